/*
 * shards.c: reads the index of a model in several safetensors files. Opens no file; knows names alone.
 *
 * Only the names of files are kept. The tensors, of which there may be a million, are compared with an archive in a
 * second reading.
 */
#include "format/shards.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json/json_reader.h"
#include "base/sort.h"
#include "base/work.h"
#include "format/safetensors.h"
#include "format/writer.h"

struct mica__shards {
    const char *path;
    const mica__file *index;
    const char **file; /* [file_count], sorted once all are there */
    uint32_t file_count, file_capacity;
    mica__name_set names;         /* of files */
    const mica__archive *archive; /* the second time: what the tensors are compared with */
    struct mica__chunk *chunks;   /* memory of the names */
    mica__json_reader reader;
};

void mica__shards_release(mica__shards *shards)
{
    if (shards == NULL)
        return;
    mica__name_set_free(&shards->names);
    mica__chunks_free(&shards->chunks);
    mica__free(shards->file);
    mica__free(shards);
}

uint32_t mica__shards_count(const mica__shards *shards)
{
    return shards->file_count;
}

const char *mica__shards_file(const mica__shards *shards, uint32_t index)
{
    return shards->file[index];
}

/* A name that stays in the folder on every system. */
static bool is_plain(const char *name, size_t length)
{
    static const char ending[] = ".safetensors";
    const size_t tail = sizeof ending - 1;
    for (size_t i = 0; i < length; i++)
        if (name[i] == '/' || name[i] == '\\' || name[i] == ':' || (unsigned char)name[i] < 0x20)
            return false;
    return length > tail && length <= 255 && name[0] != '.' &&
           memcmp(name + length - tail, ending, tail) == 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static mica_status bad_json(const mica__shards *shards, mica_status status)
{
    if (status == MICA_OK)
        return status;
    return mica__fail(mica__json_status(status), "\"%s\": %s", shards->path, mica_status_message());
}

static mica_status no_memory(const mica__shards *shards)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for its file names", shards->path);
}

/* Adds a file that was not named before. */
static mica_status add_file(mica__shards *shards, const mica_string *name)
{
    bool fresh = false;
    if (shards->file_count == shards->file_capacity) {
        const uint32_t capacity = shards->file_capacity == 0 ? 16 : shards->file_capacity * 2;
        const char **grown = mica__realloc(shards->file, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return no_memory(shards);
        shards->file = grown;
        shards->file_capacity = capacity;
    }
    char *copy = mica__chunks_alloc(&shards->chunks, (size_t)name->length + 1);
    if (copy == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    memcpy(copy, name->data, (size_t)name->length);
    copy[name->length] = '\0';
    shards->file[shards->file_count++] = copy;
    return mica__name_set_add(&shards->names, copy, (size_t)name->length, &fresh);
}

/* The first time: the value of a tensor is the plain name of a file, which is kept. */
static mica_status collect(mica__shards *shards, const mica__json_node *item)
{
    const bool text = item->type == MICA__JSON_STRING;
    if (!text || !is_plain(item->string.data, item->string.length))
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "\"%s\": tensor \"%.200s\" is mapped to %s%.100s, not to the plain name of a .safetensors file",
            shards->path, item->key, text ? "" : mica__json_type_name(item), text ? item->string.data : "");
    const mica_string name = {item->string.data, item->string.length};
    return mica__name_set_has(&shards->names, name.data, (size_t)name.length) ? MICA_OK
                                                                              : add_file(shards, &name);
}

static uint32_t find_file(const mica__shards *shards, const char *name)
{
    uint32_t low = 0, high = shards->file_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (strcmp(name, shards->file[middle]) < 0)
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* The second time: the tensor is in the file that it is mapped to. */
static mica_status compare(mica__shards *shards, const mica__json_node *item)
{
    const mica__archive *archive = shards->archive;
    const mica_status status = mica__spend(16); /* two searches */
    if (status != MICA_OK)
        return status;
    const uint32_t found = mica__archive_find(archive, item->key, item->key_length);
    const bool text = item->type == MICA__JSON_STRING;
    if (text && found != MICA__NO_TENSOR &&
        archive->tensor[found].file == find_file(shards, item->string.data))
        return MICA_OK;
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": tensor \"%.200s\" is not in \"%.100s\" but %s%s",
                      shards->path, item->key, text ? item->string.data : "",
                      found == MICA__NO_TENSOR ? "nowhere" : "in ",
                      found == MICA__NO_TENSOR ? "" : shards->file[archive->tensor[found].file]);
}

static mica_status read_map(mica__shards *shards, const mica__json_node *map)
{
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    mica_status status = MICA_OK;
    if (map->type != MICA__JSON_OBJECT)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": weight_map is %s, not an object that maps tensors to files", shards->path,
                          mica__json_type_name(map));
    while (status == MICA_OK) {
        status = bad_json(shards, mica__json_reader_next(&shards->reader, &event, &item));
        if (status != MICA_OK || event == MICA__JSON_EVENT_CLOSE)
            break;
        status = shards->archive != NULL ? compare(shards, &item) : collect(shards, &item);
    }
    return status;
}

/* All members of the index; of them only weight_map is looked at. */
static mica_status read_members(mica__shards *shards, bool *out_map)
{
    static const char key[] = "weight_map";
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    mica_status status;
    do {
        status = bad_json(shards, mica__json_reader_next(&shards->reader, &event, &item));
        const bool map = status == MICA_OK && item.key_length == sizeof key - 1 &&
                         memcmp(item.key, key, sizeof key - 1) == 0;
        if (map) {
            *out_map = true;
            status = read_map(shards, &item);
        } else if (status == MICA_OK && event == MICA__JSON_EVENT_OPEN && shards->reader.depth > 1) {
            status = bad_json(shards, mica__json_reader_skip(&shards->reader));
        }
    } while (status == MICA_OK && event != MICA__JSON_EVENT_DONE);
    return status;
}

/* Reads the index once; keys that come twice were found the first time. */
static mica_status walk(mica__shards *shards, bool *out_map)
{
    const mica__json_limits limits = {MICA__SAFETENSORS_MAX_HEADER, 0, 0};
    mica_status status = bad_json(shards, mica__json_reader_begin(&shards->reader, shards->index, 0,
                                                                  mica__file_size(shards->index), &limits));
    *out_map = false;
    shards->reader.unchecked_levels = shards->archive != NULL ? UINT32_MAX : 0;
    if (status == MICA_OK)
        status = read_members(shards, out_map);
    mica__json_reader_end(&shards->reader);
    return status;
}

static mica_status parse(mica__shards *shards)
{
    bool map = false;
    const mica_status status = walk(shards, &map);
    if (status != MICA_OK)
        return status;
    if (shards->file_count == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": weight_map is %s, not an object that maps tensors to files", shards->path,
                          map ? "empty" : "missing");
    return mica__sort(shards->file, shards->file_count, sizeof *shards->file, by_text);
}

mica_status mica__shards_parse(const mica__file *index, mica__shards **out)
{
    mica__shards *shards = mica__calloc(1, sizeof *shards);
    *out = NULL;
    if (shards == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory to read it", mica__file_path(index));
    shards->path = mica__file_path(index);
    shards->index = index;
    mica__spend_allow(mica__file_size(index));
    const mica_status status = parse(shards);
    if (status != MICA_OK) {
        mica__shards_release(shards);
        return status;
    }
    *out = shards;
    return MICA_OK;
}

mica_status mica__shards_check(mica__shards *shards, const mica__archive *archive)
{
    bool map = false;
    shards->archive = archive;
    return walk(shards, &map);
}
