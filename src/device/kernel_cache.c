/*
 * kernel_cache.c - compiled kernels on disk: one file each, "<hash of the key>.kernel": header, key, bytes.
 *
 * Files appear by rename, so a reader sees a whole one or none; a hash over the bytes finds what a disk or a person
 * damaged. Nobody waits for anybody: two processes that compile the same kernel write the same file twice.
 *
 * What is loaded here runs with the rights of the process. So the folder and each file must be the user's own (or root's) and
 * closed to other writers, and the file must hold the key itself, letter by letter: a name, which is but a hash, can be
 * given to any file, and texts with equal hashes can be made.
 */
#include "device/kernel_cache.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/file/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "mica/device.h"

#define MAGIC "mica-k2" /* with its NUL the first eight bytes */
#define SUFFIX ".kernel"
#define NAME_CHARS 32 /* of the hash in hex */
#define MOST_BYTES ((uint64_t)256 << 20)
#define MOST_ENTRY ((uint64_t)64 << 20) /* the key and the code together */
#define PATH_BYTES 1152

typedef struct header {
    char magic[8];
    mica__hash128 sum; /* of all that follows the header */
    uint64_t identity_bytes, text_bytes, bytes;
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

static bool path_of(const mica__kernel_key *key, char *path)
{
    mica__hash128 hash = {0, 0};
    hash = mica__hash_key(key->identity, strlen(key->identity), hash);
    hash = mica__hash_key(key->text, strlen(key->text), hash);
    const int length =
        snprintf(path, PATH_BYTES, "%s/%016" PRIx64 "%016" PRIx64 SUFFIX, folder(), hash.high, hash.low);
    return folder()[0] != '\0' && length > 0 && length < PATH_BYTES;
}

/* ---- whose it is ---- */

/* Says once why the cache, or something in it, is passed over: the reason is the thread's sentence. */
static void warn(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (mica__log_wanted() && !atomic_flag_test_and_set(&said))
        mica__log(MICA_LOG_WARNING, "kernel cache: %s; compiled kernels there are not used",
                  mica_status_message());
}

/* Whether the folder is there and nobody else can put kernels into it. */
static bool folder_is_own(void)
{
    if (mica__file_check_own_folder(folder()) == MICA_OK)
        return true;
    if (mica__file_look(folder()) == MICA__FILE_KIND_FOLDER)
        warn();
    return false;
}

/* Opens an entry that is there and of the user; NULL otherwise. */
static mica__file *open_entry(const char *path)
{
    struct stat about;
    mica__file *file = NULL;
    if (lstat(path, &about) == 0 && mica__file_open_own(path, &file) != MICA_OK)
        warn();
    return file;
}

/* ---- one entry ---- */

/* Whether `size` bytes behind the header `head` are what it says, of that key. */
static bool is_whole(const header *head, const mica__kernel_key *key, const char *bytes, uint64_t size)
{
    const mica__hash128 sum = mica__hash_key(bytes, (size_t)size, (mica__hash128){0, 0});
    const uint64_t identity = strlen(key->identity), text = strlen(key->text);
    return memcmp(head->magic, MAGIC, sizeof head->magic) == 0 && head->sum.low == sum.low &&
           head->sum.high == sum.high && head->identity_bytes == identity && head->text_bytes == text &&
           head->bytes > 0 && head->bytes <= size && identity + text == size - head->bytes &&
           memcmp(bytes, key->identity, (size_t)identity) == 0 &&
           memcmp(bytes + identity, key->text, (size_t)text) == 0;
}

/* The code of an open entry; NULL if it is damaged or of another key. */
static void *read_entry(const mica__file *file, const mica__kernel_key *key, uint64_t *out_bytes)
{
    header head;
    const uint64_t size = mica__file_size(file);
    if (size <= sizeof head || size - sizeof head > MOST_ENTRY ||
        mica__file_read_at(file, 0, &head, sizeof head) != MICA_OK)
        return NULL;
    const uint64_t rest = size - sizeof head;
    char *bytes = mica__alloc((size_t)rest + 1);
    if (bytes == NULL)
        return NULL;
    bytes[rest] = '\0'; /* PTX ends with one */
    if (mica__file_read_at(file, sizeof head, bytes, (size_t)rest) != MICA_OK ||
        !is_whole(&head, key, bytes, rest)) {
        mica__free(bytes);
        return NULL;
    }
    memmove(bytes, bytes + (rest - head.bytes), (size_t)head.bytes + 1);
    *out_bytes = head.bytes;
    return bytes;
}

void *mica__kernel_cache_load(const mica__kernel_key *key, uint64_t *out_bytes)
{
    char path[PATH_BYTES];
    *out_bytes = 0;
    if (!path_of(key, path) || !folder_is_own())
        return NULL;
    mica__file *file = open_entry(path);
    if (file == NULL)
        return NULL;
    void *bytes = read_entry(file, key, out_bytes);
    mica__file_close(file);
    if (bytes == NULL)
        unlink(path);
    return bytes;
}

/* ---- the folder ---- */

static bool is_entry(const char *name)
{
    return strspn(name, "0123456789abcdef") == NAME_CHARS && strcmp(name + NAME_CHARS, SUFFIX) == 0;
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
        if (length <= 0 || (size_t)length >= sizeof file.path || lstat(file.path, &about) != 0)
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

bool mica__kernel_cache_path(const char *name, bool make, char *path, size_t capacity)
{
    const int length = snprintf(path, capacity, "%s/%s", folder(), name);
    return folder()[0] != '\0' && length > 0 && (size_t)length < capacity && (!make || make_folder()) &&
           folder_is_own();
}

void mica__kernel_cache_store(const mica__kernel_key *key, const char *name, const void *bytes, uint64_t size)
{
    char path[PATH_BYTES];
    header head = {.magic = MAGIC, .bytes = size};
    mica__file_writer *writer = NULL;
    head.identity_bytes = strlen(key->identity);
    head.text_bytes = strlen(key->text);
    if (size == 0 || size > MOST_ENTRY || head.identity_bytes + head.text_bytes > MOST_ENTRY - size ||
        !path_of(key, path) || !make_folder() || !folder_is_own())
        return;
    const size_t before = (size_t)(head.identity_bytes + head.text_bytes);
    char *all = mica__alloc(before + (size_t)size);
    if (all == NULL)
        return;
    memcpy(all, key->identity, (size_t)head.identity_bytes);
    memcpy(all + head.identity_bytes, key->text, (size_t)head.text_bytes);
    memcpy(all + before, bytes, (size_t)size);
    head.sum = mica__hash_key(all, before + (size_t)size, (mica__hash128){0, 0});
    snprintf(head.name, sizeof head.name, "%s", name);
    mica__file_sweep(path);
    if (mica__file_writer_open(path, &writer) == MICA_OK) {
        mica__file_writer_hide(writer);
        (void)mica__file_writer_write(writer, &head, sizeof head);
        (void)mica__file_writer_write(writer, all, before + (size_t)size);
        if (mica__file_writer_commit(writer) == MICA_OK)
            shrink();
    }
    mica__free(all);
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

/* What a list calls an entry: its name, which goes to terminals, or what is wrong with it. */
static void name_entry(const char *path, char *name)
{
    header head;
    mica__file *file = NULL;
    const char *word = "(of another user)";
    if (mica__file_open_own(path, &file) == MICA_OK) {
        const bool whole = mica__file_read_at(file, 0, &head, sizeof head) == MICA_OK &&
                           memcmp(head.magic, MAGIC, sizeof head.magic) == 0;
        word = whole ? head.name : "(damaged)";
    }
    snprintf(name, MICA_NAME_BYTES, "%.*s", MICA_NAME_BYTES - 1, word);
    for (char *at = name; *at != '\0'; at++)
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
    mica__file_close(file);
}

static bool list(const found *entry, void *context)
{
    listing *l = context;
    if (l->count < l->capacity) {
        mica_cache_entry *to = &l->entries[l->count];
        memset(to, 0, sizeof *to);
        name_entry(entry->path, to->name);
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
