/* shards.c: reads the index of a model in several safetensors files. Opens no file; knows names alone. */
#include "format/shards.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/sort.h"

#define BYTES_PER_NODE 4 /* at least, in any index that a writer makes */
#define SPARE_NODES 1024 /* a short index may be denser */

struct mica__shards {
    const char *path;
    mica__json *json;
    const mica__json_node *map; /* weight_map */
    const char **file;          /* [file_count], sorted, into the document */
    uint32_t file_count;
};

void mica__shards_release(mica__shards *shards)
{
    if (shards == NULL)
        return;
    mica__json_release(shards->json);
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

static mica_status collect_files(mica__shards *shards)
{
    uint32_t count = 0, kept = 0;
    mica_status status;
    shards->file = mica__alloc((size_t)shards->map->child_count * sizeof *shards->file);
    if (shards->file == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for its file names", shards->path);
    for (const mica__json_node *at = mica__json_first(shards->map); at != NULL;
         at = mica__json_next(shards->json, at)) {
        if (at->type != MICA__JSON_STRING || !is_plain(at->string.data, at->string.length))
            return mica__fail(
                MICA_ERR_MALFORMED_FILE,
                "\"%s\": tensor \"%.200s\" is mapped to %s%.100s, not to the plain name of a .safetensors "
                "file",
                shards->path, at->key, at->type == MICA__JSON_STRING ? "" : mica__json_type_name(at),
                at->type == MICA__JSON_STRING ? at->string.data : "");
        shards->file[count++] = at->string.data;
    }
    status = mica__sort(shards->file, count, sizeof *shards->file, by_text);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || strcmp(shards->file[kept - 1], shards->file[i]) != 0)
            shards->file[kept++] = shards->file[i];
    shards->file_count = kept;
    return status;
}

static mica_status parse(mica__shards *shards, const void *bytes, size_t size)
{
    const mica__json_limits limits = {size == 0 ? 1 : size, 0,
                                      (uint32_t)(size / BYTES_PER_NODE) + SPARE_NODES};
    mica_status status = mica__json_parse(bytes, size, &limits, &shards->json);
    if (status != MICA_OK)
        return mica__fail(status == MICA_ERR_OUT_OF_MEMORY ? status : MICA_ERR_MALFORMED_FILE, "\"%s\": %s",
                          shards->path, mica_status_message());
    shards->map = mica__json_get(shards->json, mica__json_root(shards->json), "weight_map");
    if (shards->map == NULL || shards->map->type != MICA__JSON_OBJECT || shards->map->child_count == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": weight_map is %s, not an object that maps tensors to files", shards->path,
                          shards->map == NULL                      ? "missing"
                          : shards->map->type == MICA__JSON_OBJECT ? "empty"
                                                                   : mica__json_type_name(shards->map));
    return collect_files(shards);
}

mica_status mica__shards_parse(const char *path, const void *bytes, size_t size, mica__shards **out)
{
    mica__shards *shards = mica__calloc(1, sizeof *shards);
    mica_status status;
    *out = NULL;
    if (shards == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory to read it", path);
    shards->path = path;
    status = parse(shards, bytes, size);
    if (status != MICA_OK) {
        mica__shards_release(shards);
        return status;
    }
    *out = shards;
    return MICA_OK;
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

mica_status mica__shards_check(const mica__shards *shards, const mica__archive *archive)
{
    for (const mica__json_node *at = mica__json_first(shards->map); at != NULL;
         at = mica__json_next(shards->json, at)) {
        const uint32_t found = mica__archive_find(archive, at->key, at->key_length);
        if (found == MICA__NO_TENSOR || archive->tensor[found].file != find_file(shards, at->string.data))
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "\"%s\": tensor \"%.200s\" is not in \"%.100s\" but %s%s", shards->path,
                              at->key, at->string.data, found == MICA__NO_TENSOR ? "nowhere" : "in ",
                              found == MICA__NO_TENSOR ? "" : shards->file[archive->tensor[found].file]);
    }
    return MICA_OK;
}
