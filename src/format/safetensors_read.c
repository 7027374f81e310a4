/*
 * safetensors_read.c - reads safetensors: a length, a JSON header, the bytes of the tensors without a gap.
 *
 * Knows one file or all shards of a model, in order; nothing of folders, indexes or quantisation. The rules are those
 * of the format's reference implementation, with two differences: a type word that it would refuse blocks only the use
 * of its tensor, and a key that is there twice is refused.
 */
#include "format/safetensors.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/sort.h"
#include "format/archive.h"

#define LENGTH_BYTES 8
#define MAX_NAME 65535u
/* A value takes four bytes of a header or more in anything that a writer makes ("[1,1,1]" is the densest part of a
 * tensor), so that this many nodes bound the memory by a small factor of the header. */
#define BYTES_PER_NODE 4
#define SPARE_NODES 1024 /* so that a short header may be as dense as it likes */

static const mica__safetensors_type types[] = {
    {"BOOL", MICA_DTYPE_BOOL, 8},
    {"F4", MICA_DTYPE_NONE, 4},
    {"F6_E2M3", MICA_DTYPE_NONE, 6},
    {"F6_E3M2", MICA_DTYPE_NONE, 6},
    {"U8", MICA_DTYPE_U8, 8},
    {"I8", MICA_DTYPE_I8, 8},
    {"F8_E5M2", MICA_DTYPE_F8_E5M2, 8},
    {"F8_E4M3", MICA_DTYPE_F8_E4M3, 8},
    {"F8_E8M0", MICA_DTYPE_E8M0, 8},
    {"F8_E4M3FNUZ", MICA_DTYPE_NONE, 8},
    {"F8_E5M2FNUZ", MICA_DTYPE_NONE, 8},
    {"I16", MICA_DTYPE_I16, 16},
    {"U16", MICA_DTYPE_U16, 16},
    {"F16", MICA_DTYPE_F16, 16},
    {"BF16", MICA_DTYPE_BF16, 16},
    {"I32", MICA_DTYPE_I32, 32},
    {"U32", MICA_DTYPE_U32, 32},
    {"F32", MICA_DTYPE_F32, 32},
    {"C64", MICA_DTYPE_C64, 64},
    {"F64", MICA_DTYPE_F64, 64},
    {"I64", MICA_DTYPE_I64, 64},
    {"U64", MICA_DTYPE_U64, 64},
};

#define TYPE_COUNT (sizeof types / sizeof types[0])

const mica__safetensors_type *mica__safetensors_type_named(const char *name, size_t length)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (strlen(types[i].name) == length && memcmp(types[i].name, name, length) == 0)
            return &types[i];
    return NULL;
}

const mica__safetensors_type *mica__safetensors_type_of(uint16_t dtype)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype && dtype != MICA_DTYPE_NONE)
            return &types[i];
    return NULL;
}

/* One shard while it is read. */
typedef struct shard {
    mica__archive *archive;
    mica__json *json;
    const char *path;
    uint32_t file;
    uint64_t data, data_bytes; /* where the tensors begin in the file, and all that follows */
} shard;

/* A tensor's object; the sentence names the tensor and the field. */
static mica_status bad_field(const shard *s, const mica__json_node *tensor, const char *field,
                             const char *found, const char *expected)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": tensor \"%.200s\": %s is %s, not %s", s->path,
                      tensor->key, field, found, expected);
}

static const char *type_word(const mica__json_node *node)
{
    return node == NULL ? "missing" : mica__json_type_name(node);
}

/* The two numbers of data_offsets, inside the data. */
static mica_status read_offsets(const shard *s, const mica__json_node *object, uint64_t *out_begin,
                                uint64_t *out_end)
{
    static const char field[] = "data_offsets", expected[] = "an array of two whole numbers";
    const mica__json_node *pair = mica__json_get(s->json, object, field), *end;
    if (pair == NULL || pair->type != MICA__JSON_ARRAY)
        return bad_field(s, object, field, type_word(pair), expected);
    if (pair->child_count != 2)
        return bad_field(s, object, field, "an array of another length", expected);
    end = mica__json_next(s->json, pair + 1);
    if (end == NULL || pair[1].exact != MICA__JSON_EXACT_UINT || end->exact != MICA__JSON_EXACT_UINT)
        return bad_field(s, object, field, "something else", expected);
    *out_begin = pair[1].number.uint_value;
    *out_end = end->number.uint_value;
    if (*out_begin > *out_end || *out_end > s->data_bytes)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "\"%s\": tensor \"%.200s\": data_offsets are [%llu, %llu], but the file holds %llu bytes of data",
            s->path, object->key, (unsigned long long)*out_begin, (unsigned long long)*out_end,
            (unsigned long long)s->data_bytes);
    return MICA_OK;
}

/* Fills ndim and shape, and counts the elements; a product past 64 bits is refused. */
static mica_status read_shape(const shard *s, const mica__json_node *object, mica__tensor *tensor,
                              uint64_t *out_elements)
{
    const mica__json_node *shape = mica__json_get(s->json, object, "shape");
    uint64_t elements = 1;
    uint32_t ndim = 0;
    if (shape == NULL || shape->type != MICA__JSON_ARRAY)
        return bad_field(s, object, "shape", type_word(shape), "an array of whole numbers");
    for (const mica__json_node *at = mica__json_first(shape); at != NULL; at = mica__json_next(s->json, at)) {
        if (at->exact != MICA__JSON_EXACT_UINT)
            return bad_field(s, object, "a dimension in shape", mica__json_type_name(at), "a whole number");
        if (!mica__mul_u64(elements, at->number.uint_value, &elements))
            return bad_field(s, object, "the number of elements in shape", "past 2^64",
                             "one that a file can hold");
        if (ndim < MICA_MAX_DIMS)
            tensor->shape[ndim] = at->number.uint_value;
        ndim++;
    }
    if (ndim > MICA_MAX_DIMS) {
        tensor->problem = MICA__TENSOR_DIMS;
        memset(tensor->shape, 0, sizeof tensor->shape);
        ndim = 0;
    }
    tensor->ndim = (uint8_t)ndim;
    *out_elements = elements;
    return MICA_OK;
}

static mica_status check_size(const shard *s, const mica__json_node *object,
                              const mica__safetensors_type *type, uint64_t elements, uint64_t bytes)
{
    uint64_t bits = 0;
    if (!mica__mul_u64(elements, type->bits, &bits))
        return bad_field(s, object, "its size in bits", "past 2^64", "one that a file can hold");
    if (bits % 8 != 0)
        return bad_field(s, object, "its size", "no whole number of bytes", "one");
    if (bits / 8 != bytes)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "\"%s\": tensor \"%.200s\": data_offsets hold %llu bytes, but %s and shape say %llu", s->path,
            object->key, (unsigned long long)bytes, type->name, (unsigned long long)(bits / 8));
    return MICA_OK;
}

/* The type's row, or for a word that is not known the word alone. */
static mica_status read_type(const shard *s, const mica__json_node *object, mica__tensor *tensor,
                             const mica__safetensors_type **out_type)
{
    const mica__json_node *word = mica__json_get(s->json, object, "dtype");
    if (word == NULL || word->type != MICA__JSON_STRING)
        return bad_field(s, object, "dtype", type_word(word), "a string");
    *out_type = mica__safetensors_type_named(word->string.data, word->string.length);
    tensor->type_name = *out_type != NULL
                            ? (*out_type)->name
                            : mica__archive_text(s->archive, word->string.data, word->string.length);
    if (tensor->type_name == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    tensor->dtype = *out_type != NULL ? (*out_type)->dtype : MICA_DTYPE_NONE;
    if (tensor->dtype == MICA_DTYPE_NONE)
        tensor->problem = MICA__TENSOR_TYPE;
    return MICA_OK;
}

static mica_status read_tensor(const shard *s, const mica__json_node *object, mica__tensor *out)
{
    const mica__safetensors_type *type = NULL;
    uint64_t begin = 0, end = 0, elements = 0;
    mica_status status;

    memset(out, 0, sizeof *out);
    if (memchr(object->key, 0, object->key_length) != NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": the name \"%.200s\" of a tensor has a NUL in it",
                          s->path, object->key);
    if (object->key_length > MAX_NAME)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": tensor \"%.60s...\": its name has %u bytes, more than %u", s->path,
                          object->key, object->key_length, MAX_NAME);
    if (object->type != MICA__JSON_OBJECT)
        return bad_field(s, object, "the entry", mica__json_type_name(object), "an object");
    status = read_type(s, object, out, &type);
    if (status == MICA_OK)
        status = read_shape(s, object, out, &elements);
    if (status == MICA_OK)
        status = read_offsets(s, object, &begin, &end);
    if (status == MICA_OK && type != NULL)
        status = check_size(s, object, type, elements, end - begin);
    if (status != MICA_OK)
        return status;
    out->name = mica__archive_text(s->archive, object->key, object->key_length);
    if (out->name == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    out->name_length = object->key_length;
    out->offset = s->data + begin;
    out->bytes = end - begin;
    out->file = s->file;
    out->scales = out->biases = MICA__NO_TENSOR;
    return MICA_OK;
}

/* In the order of the data; tensors without bytes, which share an offset, by name. */
static int by_place(const void *left, const void *right)
{
    const mica__tensor *a = left, *b = right;
    const uint32_t shorter = a->name_length < b->name_length ? a->name_length : b->name_length;
    int order;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    order = memcmp(a->name, b->name, shorter);
    return order != 0 ? order : (a->name_length > b->name_length) - (a->name_length < b->name_length);
}

/* Every byte of the data belongs to exactly one tensor. The tensors are in the order of the data. */
static mica_status check_tiling(const shard *s, const mica__tensor *tensor, uint32_t count)
{
    uint64_t at = s->data;
    for (uint32_t i = 0; i < count; i++) {
        if (tensor[i].offset != at)
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "\"%s\": tensor \"%.200s\" begins at byte %llu of the data, but the ones "
                              "before it end at %llu: "
                              "the format allows neither %s",
                              s->path, tensor[i].name, (unsigned long long)(tensor[i].offset - s->data),
                              (unsigned long long)(at - s->data), "holes nor overlaps");
        at += tensor[i].bytes;
    }
    if (at - s->data != s->data_bytes)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": the file holds %llu bytes of data, but its tensors end at %llu", s->path,
                          (unsigned long long)s->data_bytes, (unsigned long long)(at - s->data));
    return MICA_OK;
}

/* The first file's map becomes the archive's metadata; those of further shards repeat it and are only checked. */
static mica_status read_metadata(const shard *s, const mica__json_node *map)
{
    mica__archive *archive = s->archive;
    mica__meta *meta = NULL;
    if (map->type == MICA__JSON_NULL)
        return MICA_OK;
    if (map->type != MICA__JSON_OBJECT)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": __metadata__ is %s, not an object of strings",
                          s->path, mica__json_type_name(map));
    if (s->file == 0 && map->child_count != 0) {
        meta = mica__archive_alloc(archive, (size_t)map->child_count * sizeof *meta);
        if (meta == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        archive->meta = meta;
    }
    for (const mica__json_node *at = mica__json_first(map); at != NULL; at = mica__json_next(s->json, at)) {
        const char *key, *text;
        if (at->type != MICA__JSON_STRING)
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "\"%s\": \"%.200s\" in __metadata__ is %s, not a string", s->path, at->key,
                              mica__json_type_name(at));
        if (meta == NULL)
            continue;
        key = mica__archive_text(archive, at->key, at->key_length);
        text = mica__archive_text(archive, at->string.data, at->string.length);
        if (key == NULL || text == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        memset(&meta[archive->meta_count], 0, sizeof *meta);
        meta[archive->meta_count].key = (mica_string){key, at->key_length};
        meta[archive->meta_count].value.type = MICA_VALUE_STRING;
        meta[archive->meta_count].value.as.string = (mica_string){text, at->string.length};
        archive->meta_count++;
    }
    return MICA_OK;
}

/* Room for `more` tensors behind those that are there: exact for the first file, doubling for further shards. */
static mica_status reserve(mica__archive *archive, uint32_t more, uint32_t *capacity)
{
    uint64_t needed = (uint64_t)archive->tensor_count + more;
    mica__tensor *grown;
    if (needed <= *capacity)
        return MICA_OK;
    if (needed < 2 * (uint64_t)*capacity)
        needed = 2 * (uint64_t)*capacity;
    if (needed >= MICA__NO_TENSOR)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": more than 2^32 tensors",
                          mica__file_path(archive->file[0]));
    grown = mica__archive_alloc(archive, (size_t)needed * sizeof *grown);
    if (grown == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (archive->tensor_count != 0)
        memcpy(grown, archive->tensor, archive->tensor_count * sizeof *grown);
    archive->tensor = grown;
    *capacity = (uint32_t)needed;
    return MICA_OK;
}

static mica_status read_entries(const shard *s, uint32_t *capacity)
{
    const mica__json_node *root = mica__json_root(s->json);
    mica__archive *archive = s->archive;
    const uint32_t first = archive->tensor_count;
    mica__tensor *mine;
    mica_status status = reserve(archive, root->child_count, capacity);
    for (const mica__json_node *at = mica__json_first(root); at != NULL && status == MICA_OK;
         at = mica__json_next(s->json, at)) {
        if (strcmp(at->key, MICA__SAFETENSORS_METADATA) == 0 &&
            at->key_length == sizeof MICA__SAFETENSORS_METADATA - 1)
            status = read_metadata(s, at);
        else
            status = read_tensor(s, at, &archive->tensor[archive->tensor_count++]);
    }
    if (status != MICA_OK)
        return status;
    mine = archive->tensor == NULL ? NULL : archive->tensor + first;
    status = mica__sort(mine, archive->tensor_count - first, sizeof *mine, by_place);
    return status == MICA_OK ? check_tiling(s, mine, archive->tensor_count - first) : status;
}

/* The header's length, checked against the format's limit and the file. */
static mica_status read_length(const shard *s, uint64_t *out_length)
{
    const mica__file *file = s->archive->file[s->file];
    uint8_t raw[LENGTH_BYTES + 1];
    uint64_t length = 0;
    mica_status status;
    if (mica__file_size(file) < LENGTH_BYTES + 2)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": %llu bytes are too few for a safetensors file",
                          s->path, (unsigned long long)mica__file_size(file));
    status = mica__file_read_at(file, 0, raw, sizeof raw);
    if (status != MICA_OK)
        return status;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | raw[i];
    if (length > MICA__SAFETENSORS_MAX_HEADER || length > mica__file_size(file) - LENGTH_BYTES || length < 2)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "\"%s\": a header of %llu bytes, where the file has room for %llu and the format for %u", s->path,
            (unsigned long long)length, (unsigned long long)(mica__file_size(file) - LENGTH_BYTES),
            MICA__SAFETENSORS_MAX_HEADER);
    if (raw[LENGTH_BYTES] != '{')
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": the header begins with byte 0x%02x, not with '{'",
                          s->path, raw[LENGTH_BYTES]);
    *out_length = length;
    return MICA_OK;
}

static mica_status read_header(shard *s)
{
    const mica__file *file = s->archive->file[s->file];
    mica__json_limits limits = {0};
    uint64_t length = 0;
    char *text;
    mica_status status = read_length(s, &length);
    if (status != MICA_OK)
        return status;
    text = mica__alloc((size_t)length);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for a header of %llu bytes", s->path,
                          (unsigned long long)length);
    limits.max_bytes = (size_t)length;
    limits.max_nodes = (uint32_t)length / BYTES_PER_NODE + SPARE_NODES;
    status = mica__file_read_at(file, LENGTH_BYTES, text, (size_t)length);
    if (status == MICA_OK) {
        status = mica__json_parse(text, (size_t)length, &limits, &s->json);
        if (status != MICA_OK)
            status = mica__fail(status == MICA_ERR_OUT_OF_MEMORY ? status : MICA_ERR_MALFORMED_FILE,
                                "\"%s\": the header: %s", s->path, mica_status_message());
    }
    mica__free(text);
    s->data = LENGTH_BYTES + length;
    s->data_bytes = mica__file_size(file) - s->data;
    return status;
}

mica_status mica__safetensors_read(mica__archive *archive)
{
    uint32_t capacity = 0;
    mica_status status = MICA_OK;
    archive->format = MICA_FORMAT_SAFETENSORS;
    for (uint32_t i = 0; i < archive->file_count && status == MICA_OK; i++) {
        shard s = {.archive = archive, .file = i, .path = mica__file_path(archive->file[i])};
        status = read_header(&s);
        if (status == MICA_OK)
            status = read_entries(&s, &capacity);
        mica__json_release(s.json);
    }
    if (status != MICA_OK)
        return status;
    archive->visible_count = archive->tensor_count;
    return mica__archive_index(archive);
}
