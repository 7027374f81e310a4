/*
 * kernel_cache.c - compiled kernels on disk: one file each, "<key in hex>.kernel": header, name, bytes.
 *
 * Files appear by rename, so a reader sees a whole one or none; a hash over the bytes finds what a disk or a person
 * damaged. Nobody waits for anybody: two processes that compile the same kernel write the same file twice.
 */
#include "device/kernel_cache.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/file.h"
#include "base/status.h"
#include "mica/device.h"

#define MAGIC "mica-k1" /* with its NUL the first eight bytes */
#define SUFFIX ".kernel"
#define UNFINISHED ".tmp"
#define NAME_CHARS 32 /* of the key in hex */
#define MOST_BYTES ((uint64_t)256 << 20)
#define MOST_ENTRY ((uint64_t)64 << 20)
#define PATH_BYTES 1152

typedef struct header {
    char magic[8];
    mica__hash128 key, sum; /* sum: of the bytes */
    uint64_t bytes;
    char name[MICA_NAME_BYTES];
} header;

/* One file of the folder. */
typedef struct found {
    char path[PATH_BYTES];
    uint64_t bytes;
    time_t written;
} found;

static const char *folder(void)
{
    return mica__env_get()->cache_dir;
}

static bool path_of(mica__hash128 key, char *path)
{
    const int length =
        snprintf(path, PATH_BYTES, "%s/%016" PRIx64 "%016" PRIx64 SUFFIX, folder(), key.high, key.low);
    return folder()[0] != '\0' && length > 0 && length < PATH_BYTES;
}

static mica__hash128 sum_of(const void *bytes, uint64_t size)
{
    const mica__hash128 zero = {0, 0};
    return mica__hash_key(bytes, (size_t)size, zero);
}

static bool same_hash(mica__hash128 a, mica__hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

void *mica__kernel_cache_load(mica__hash128 key, uint64_t *out_bytes)
{
    char path[PATH_BYTES];
    void *data = NULL;
    size_t size = 0;
    header head;
    *out_bytes = 0;
    if (!path_of(key, path) || mica__file_look(path) != MICA__FILE_KIND_REGULAR ||
        mica__file_read_all(path, MOST_ENTRY + sizeof head, &data, &size) != MICA_OK)
        return NULL;
    bool fine = size > sizeof head;
    if (fine) {
        memcpy(&head, data, sizeof head);
        fine = memcmp(head.magic, MAGIC, sizeof head.magic) == 0 && same_hash(head.key, key) &&
               head.bytes == size - sizeof head;
    }
    if (fine) {
        memmove(data, (unsigned char *)data + sizeof head, (size_t)head.bytes);
        fine = same_hash(head.sum, sum_of(data, head.bytes));
        *out_bytes = head.bytes;
    }
    if (fine)
        return data;
    unlink(path);
    mica__free(data);
    *out_bytes = 0;
    return NULL;
}

/* ---- the folder ---- */

/* What a process was killed over while it wrote (file_write.c) counts as well: it takes room, and nobody else takes it away. */
static bool is_unfinished(const char *path)
{
    const size_t length = strlen(path);
    return length > strlen(UNFINISHED) && strcmp(path + length - strlen(UNFINISHED), UNFINISHED) == 0;
}

static bool is_entry(const char *name)
{
    const size_t begin = NAME_CHARS + strlen(SUFFIX);
    return strspn(name, "0123456789abcdef") == NAME_CHARS &&
           strncmp(name + NAME_CHARS, SUFFIX, strlen(SUFFIX)) == 0 &&
           (name[begin] == '\0' || (name[begin] == '.' && is_unfinished(name)));
}

/* Calls `visit` for each entry until it says no. IO if the folder is there and cannot be read. */
static mica_status each_entry(bool (*visit)(const found *entry, void *context), void *context)
{
    if (folder()[0] == '\0')
        return MICA_OK;
    DIR *listing = opendir(folder());
    if (listing == NULL && errno == ENOENT)
        return MICA_OK;
    if (listing == NULL)
        return mica__fail(MICA_ERR_IO, "cache: %.400s cannot be read: %s", folder(), strerror(errno));
    bool more = true;
    for (const struct dirent *entry; more && (entry = readdir(listing)) != NULL;) {
        found file;
        struct stat about;
        if (!is_entry(entry->d_name))
            continue;
        const int length = snprintf(file.path, sizeof file.path, "%s/%s", folder(), entry->d_name);
        if (length <= 0 || (size_t)length >= sizeof file.path || stat(file.path, &about) != 0)
            continue;
        file.bytes = (uint64_t)about.st_size;
        file.written = about.st_mtime;
        more = visit(&file, context);
    }
    closedir(listing);
    return MICA_OK;
}

/* What all entries take, and which was written first. */
typedef struct weight {
    uint64_t bytes;
    found oldest;
    bool any;
} weight;

static bool weigh(const found *entry, void *context)
{
    weight *w = context;
    w->bytes += entry->bytes;
    if (!w->any || entry->written < w->oldest.written)
        w->oldest = *entry;
    w->any = true;
    return true;
}

/* Takes the oldest away until the rest is under the limit. */
static void shrink(void)
{
    for (;;) {
        weight w = {.bytes = 0, .any = false};
        if (each_entry(weigh, &w) != MICA_OK || w.bytes <= MOST_BYTES || !w.any || unlink(w.oldest.path) != 0)
            return;
    }
}

/* Makes the folder and those above it, for the user alone. */
static bool make_folder(void)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s", folder());
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

void mica__kernel_cache_store(mica__hash128 key, const char *name, const void *bytes, uint64_t size)
{
    char path[PATH_BYTES];
    header head;
    mica__file_writer *writer = NULL;
    if (size == 0 || size > MOST_ENTRY || !path_of(key, path) || !make_folder())
        return;
    memset(&head, 0, sizeof head);
    memcpy(head.magic, MAGIC, sizeof head.magic);
    head.key = key;
    head.sum = sum_of(bytes, size);
    head.bytes = size;
    snprintf(head.name, sizeof head.name, "%s", name);
    if (mica__file_writer_open(path, &writer) != MICA_OK)
        return;
    (void)mica__file_writer_write(writer, &head, sizeof head);
    (void)mica__file_writer_write(writer, bytes, (size_t)size);
    if (mica__file_writer_commit(writer) == MICA_OK)
        shrink();
}

/* ---- for people ---- */

const char *mica_cache_folder(void)
{
    return folder();
}

typedef struct listing {
    mica_cache_entry *entries;
    uint32_t capacity, count;
    time_t now;
} listing;

static bool list(const found *entry, void *context)
{
    listing *l = context;
    header head;
    mica__file *file = NULL;
    if (mica__file_open_read(entry->path, &file) != MICA_OK)
        return true;
    const bool whole = mica__file_read_at(file, 0, &head, sizeof head) == MICA_OK &&
                       memcmp(head.magic, MAGIC, sizeof head.magic) == 0;
    mica__file_close(file);
    if (l->count < l->capacity) {
        mica_cache_entry *to = &l->entries[l->count];
        memset(to, 0, sizeof *to);
        snprintf(to->name, sizeof to->name, "%.*s", (int)sizeof to->name - 1,
                 is_unfinished(entry->path) ? "(unfinished)"
                 : whole                    ? head.name
                                            : "(damaged)");
        to->bytes = entry->bytes;
        to->seconds = l->now > entry->written ? (uint64_t)(l->now - entry->written) : 0;
    }
    l->count++;
    return true;
}

mica_status mica_cache_list(mica_cache_entry *entries, uint32_t capacity, uint32_t *out_count)
{
    if (out_count == NULL || (entries == NULL && capacity > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "cache_list: %s is NULL",
                          out_count == NULL ? "out_count" : "entries");
    listing l = {entries, capacity, 0, time(NULL)};
    const mica_status status = each_entry(list, &l);
    *out_count = l.count;
    return status;
}

typedef struct removal {
    uint32_t count;
    mica_status status;
} removal;

static bool take_away(const found *entry, void *context)
{
    removal *r = context;
    if (unlink(entry->path) == 0)
        r->count++;
    else if (errno != ENOENT)
        r->status = mica__fail(MICA_ERR_IO, "cache_clear: %.400s stays: %s", entry->path, strerror(errno));
    return r->status == MICA_OK;
}

mica_status mica_cache_clear(uint32_t *out_removed)
{
    removal r = {0, MICA_OK};
    const mica_status status = each_entry(take_away, &r);
    if (out_removed != NULL)
        *out_removed = r.count;
    return status != MICA_OK ? status : r.status;
}
