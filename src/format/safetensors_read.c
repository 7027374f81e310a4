/*
 * safetensors_read.c - reads safetensors: a length, a JSON header, the bytes of the tensors without a gap.
 *
 * Knows one file or all shards of a model, in order; nothing of folders, indexes or quantisation. The rules are those
 * of the format's reference implementation, with two differences: a type word that it would refuse blocks only the use
 * of its tensor, and a key that is there twice is refused.
 *
 * A header is read twice, item by item: once to check and to count, which needs no memory to speak of however long it
 * is, and once to keep.
 */
#include "format/safetensors.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/json/json_reader.h"
#include "base/sort.h"
#include "base/work.h"
#include "format/archive.h"

#define LENGTH_BYTES 8
#define MAX_NAME 65535u
#define SHOWN_NAME 200 /* bytes of a name in a sentence */

/* One shard while it is read. */
typedef struct shard {
    mica__archive *archive;
    const char *path;
    uint32_t file;
    uint64_t data, data_bytes; /* where the tensors begin in the file, and all that follows */
    bool keep;                 /* the second time: what was counted is kept */
    /* places for what was counted: a file may change between the two times */
    uint32_t tensor_room, meta_room;
    uint32_t tensor_count, meta_count;
    uint64_t tensor_bytes; /* of all tensors; where it wraps, check_tiling finds the overlap */
    bool has_metadata;
    /* of the tensor that is being read, cut: its text in the reader's window moves */
    char name[SHOWN_NAME + 1];
    mica__json_reader reader;
} shard;

/* What an entry says of its tensor. */
typedef struct entry {
    const mica__safetensors_type *type; /* NULL: a word that is not known */
    const char *type_name;              /* NULL: there was no dtype */
    bool has_shape, has_offsets;
    uint32_t ndim; /* all of them, also those that do not fit in shape */
    uint64_t shape[MICA_MAX_DIMS];
    uint64_t elements;
    uint64_t offsets[2];
} entry;

/* The sentence names the tensor and the field. */
static mica_status bad_field(const shard *s, const char *field, const char *found, const char *expected)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": tensor \"%s\": %s is %s, not %s", s->path, s->name,
                      field, found, expected);
}

/* The reader's own refusals get the path; a header is never past a budget, only wrong. */
static mica_status bad_json(const shard *s, mica_status status)
{
    if (status == MICA_OK)
        return status;
    return mica__fail(mica__json_status(status), "\"%s\": the header: %s", s->path, mica_status_message());
}

static mica_status changed(const shard *s)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": its header changed while it was read", s->path);
}

static mica_status next_item(shard *s, mica__json_event *event, mica__json_node *item)
{
    return bad_json(s, mica__json_reader_next(&s->reader, event, item));
}

/* ---- the fields of a tensor ----------------------------------------------------------------------------- */

static mica_status read_type(shard *s, const mica__json_node *word, entry *out)
{
    if (word->type != MICA__JSON_STRING)
        return bad_field(s, "dtype", mica__json_type_name(word), "a string");
    out->type = mica__safetensors_type_named(word->string.data, word->string.length);
    out->type_name = out->type != NULL ? out->type->name
                     : !s->keep        ? ""
                                : mica__archive_text(s->archive, word->string.data, word->string.length);
    return out->type_name == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
}

/* The dimensions, of which a product past 64 bits is refused. */
static mica_status read_shape(shard *s, const mica__json_node *array, entry *out)
{
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    if (array->type != MICA__JSON_ARRAY)
        return bad_field(s, "shape", mica__json_type_name(array), "an array of whole numbers");
    out->has_shape = true;
    out->elements = 1;
    for (;;) {
        const mica_status status = next_item(s, &event, &item);
        if (status != MICA_OK || event == MICA__JSON_EVENT_CLOSE)
            return status;
        if (item.exact != MICA__JSON_EXACT_UINT)
            return bad_field(s, "a dimension in shape", mica__json_type_name(&item), "a whole number");
        if (!mica__mul_u64(out->elements, item.number.uint_value, &out->elements))
            return bad_field(s, "the number of elements in shape", "past 2^64", "one that a file can hold");
        if (out->ndim < MICA_MAX_DIMS)
            out->shape[out->ndim] = item.number.uint_value;
        out->ndim++;
    }
}

/* The two numbers of data_offsets, inside the data. */
static mica_status read_offsets(shard *s, const mica__json_node *array, entry *out)
{
    static const char field[] = "data_offsets", expected[] = "an array of two whole numbers";
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    uint32_t count = 0;
    if (array->type != MICA__JSON_ARRAY)
        return bad_field(s, field, mica__json_type_name(array), expected);
    for (;; count++) {
        const mica_status status = next_item(s, &event, &item);
        if (status != MICA_OK)
            return status;
        if (event == MICA__JSON_EVENT_CLOSE)
            break;
        if (item.exact != MICA__JSON_EXACT_UINT)
            return bad_field(s, field, "something else", expected);
        if (count < 2)
            out->offsets[count] = item.number.uint_value;
    }
    if (count != 2)
        return bad_field(s, field, "an array of another length", expected);
    if (out->offsets[0] > out->offsets[1] || out->offsets[1] > s->data_bytes)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "\"%s\": tensor \"%s\": data_offsets are [%llu, %llu], but the file holds %llu bytes of data",
            s->path, s->name, (unsigned long long)out->offsets[0], (unsigned long long)out->offsets[1],
            (unsigned long long)s->data_bytes);
    out->has_offsets = true;
    return MICA_OK;
}

static mica_status read_field(shard *s, mica__json_event event, const mica__json_node *item, entry *out)
{
    static const struct {
        const char *key;
        uint32_t length;
        mica_status (*read)(shard *s, const mica__json_node *item, entry *out);
    } fields[] = {{"dtype", 5, read_type}, {"shape", 5, read_shape}, {"data_offsets", 12, read_offsets}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].length == item->key_length && memcmp(fields[i].key, item->key, item->key_length) == 0)
            return fields[i].read(s, item, out);
    return event == MICA__JSON_EVENT_OPEN ? bad_json(s, mica__json_reader_skip(&s->reader)) : MICA_OK;
}

static mica_status check_size(const shard *s, const mica__safetensors_type *type, uint64_t elements,
                              uint64_t bytes)
{
    uint64_t bits = 0;
    if (!mica__mul_u64(elements, type->bits, &bits))
        return bad_field(s, "its size in bits", "past 2^64", "one that a file can hold");
    if (bits % 8 != 0)
        return bad_field(s, "its size", "no whole number of bytes", "one");
    if (bits / 8 != bytes)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": tensor \"%s\": data_offsets hold %llu bytes, but %s and shape say %llu",
                          s->path, s->name, (unsigned long long)bytes, type->name,
                          (unsigned long long)(bits / 8));
    return MICA_OK;
}

/* All fields are there and fit each other. */
static mica_status check_entry(const shard *s, const entry *e)
{
    if (e->type_name == NULL)
        return bad_field(s, "dtype", "missing", "a string");
    if (!e->has_shape)
        return bad_field(s, "shape", "missing", "an array of whole numbers");
    if (!e->has_offsets)
        return bad_field(s, "data_offsets", "missing", "an array of two whole numbers");
    return e->type != NULL ? check_size(s, e->type, e->elements, e->offsets[1] - e->offsets[0]) : MICA_OK;
}

/* ---- the header ----------------------------------------------------------------------------------------- */

static void keep_entry(const shard *s, const entry *e, mica__tensor *out)
{
    out->type_name = e->type_name;
    out->dtype = e->type != NULL ? e->type->dtype : MICA_DTYPE_NONE;
    out->problem = out->dtype == MICA_DTYPE_NONE ? MICA__TENSOR_TYPE : MICA__TENSOR_FINE;
    if (e->ndim > MICA_MAX_DIMS) {
        out->problem = MICA__TENSOR_DIMS;
    } else {
        out->ndim = (uint8_t)e->ndim;
        memcpy(out->shape, e->shape, sizeof out->shape);
    }
    out->offset = s->data + e->offsets[0];
    out->bytes = e->offsets[1] - e->offsets[0];
    out->file = s->file;
    out->scales = out->biases = MICA__NO_TENSOR;
}

/* The name of an entry: for sentences, and if it is kept for the archive. */
static mica_status read_name(shard *s, const mica__json_node *object, mica__tensor *out)
{
    const size_t shown = object->key_length < SHOWN_NAME ? object->key_length : SHOWN_NAME;
    memcpy(s->name, object->key, shown);
    s->name[shown] = '\0';
    if (memchr(object->key, 0, object->key_length) != NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": the name \"%s\" of a tensor has a NUL in it",
                          s->path, s->name);
    if (object->key_length > MAX_NAME)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": tensor \"%.60s...\": its name has %u bytes, more than %u", s->path,
                          s->name, object->key_length, MAX_NAME);
    if (object->type != MICA__JSON_OBJECT)
        return bad_field(s, "the entry", mica__json_type_name(object), "an object");
    if (!s->keep)
        return MICA_OK;
    memset(out, 0, sizeof *out);
    out->name = mica__archive_text(s->archive, object->key, object->key_length);
    out->name_length = object->key_length;
    return out->name == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
}

/* One tensor; `out` is its place if it is kept. */
static mica_status read_tensor(shard *s, const mica__json_node *object, mica__tensor *out)
{
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    entry e = {0};
    mica_status status = read_name(s, object, out);
    while (status == MICA_OK) {
        status = next_item(s, &event, &item);
        if (status != MICA_OK || event == MICA__JSON_EVENT_CLOSE)
            break;
        status = read_field(s, event, &item, &e);
    }
    if (status == MICA_OK)
        status = check_entry(s, &e);
    if (status != MICA_OK)
        return status;
    if (s->keep)
        keep_entry(s, &e, out);
    s->tensor_count++;
    s->tensor_bytes += e.offsets[1] - e.offsets[0];
    return MICA_OK;
}

/* One pair of the metadata. That of the first file is the archive's; further shards repeat it. */
static mica_status read_pair(shard *s, const mica__json_node *item)
{
    mica__archive *archive = s->archive;
    if (item->type != MICA__JSON_STRING)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": \"%.200s\" in __metadata__ is %s, not a string",
                          s->path, item->key, mica__json_type_name(item));
    s->meta_count++;
    if (!s->keep || s->file != 0)
        return MICA_OK;
    if (s->meta_count > s->meta_room)
        return changed(s);
    mica__meta *meta = &archive->meta[archive->meta_count];
    const char *key = mica__archive_text(archive, item->key, item->key_length);
    const char *text = mica__archive_text(archive, item->string.data, item->string.length);
    if (key == NULL || text == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    memset(meta, 0, sizeof *meta);
    meta->key = (mica_string){key, item->key_length};
    meta->value.type = MICA_VALUE_STRING;
    meta->value.as.string = (mica_string){text, item->string.length};
    archive->meta_count++;
    return MICA_OK;
}

static mica_status read_metadata(shard *s, const mica__json_node *map)
{
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    if (s->has_metadata)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": __metadata__ comes twice", s->path);
    s->has_metadata = true;
    if (map->type == MICA__JSON_NULL)
        return MICA_OK;
    if (map->type != MICA__JSON_OBJECT)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": __metadata__ is %s, not an object of strings",
                          s->path, mica__json_type_name(map));
    for (;;) {
        mica_status status = next_item(s, &event, &item);
        if (status != MICA_OK || event == MICA__JSON_EVENT_CLOSE)
            return status;
        status = read_pair(s, &item);
        if (status != MICA_OK)
            return status;
    }
}

static bool is_metadata(const mica__json_node *item)
{
    static const char key[] = MICA__SAFETENSORS_METADATA;
    return item->key_length == sizeof key - 1 && memcmp(item->key, key, sizeof key - 1) == 0;
}

/* All members of the header's object, and nothing behind it. */
static mica_status read_members(shard *s)
{
    mica__archive *archive = s->archive;
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    /* the object itself: the header begins with its brace */
    mica_status status = next_item(s, &event, &item);
    while (status == MICA_OK) {
        status = next_item(s, &event, &item);
        if (status != MICA_OK || event == MICA__JSON_EVENT_DONE)
            return status;
        if (event == MICA__JSON_EVENT_CLOSE)
            continue;
        if (is_metadata(&item))
            status = read_metadata(s, &item);
        else if (s->keep && s->tensor_count == s->tensor_room)
            status = changed(s);
        else
            status = read_tensor(s, &item, s->keep ? &archive->tensor[archive->tensor_count++] : NULL);
    }
    return status;
}

/* Reads the header once. Tensors that come twice are found when the archive is indexed by name. */
static mica_status walk(shard *s, bool keep)
{
    const mica__json_limits limits = {MICA__SAFETENSORS_MAX_HEADER, 0, 0};
    s->keep = keep;
    s->tensor_count = s->meta_count = 0;
    s->tensor_bytes = 0;
    s->has_metadata = false;
    mica_status status = bad_json(s, mica__json_reader_begin(&s->reader, s->archive->file[s->file],
                                                             LENGTH_BYTES, s->data - LENGTH_BYTES, &limits));
    s->reader.unchecked_levels = keep ? 1 : UINT32_MAX;
    if (status == MICA_OK)
        status = read_members(s);
    mica__json_reader_end(&s->reader);
    return status;
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

/* Every byte of the data belongs to exactly one tensor. They are in the order of the data, and have as many bytes. */
static mica_status check_tiling(const shard *s, const mica__tensor *tensor)
{
    uint64_t at = s->data;
    for (uint32_t i = 0; i < s->tensor_count; i++) {
        if (tensor[i].offset != at)
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "\"%s\": tensor \"%.200s\" begins at byte %llu of the data, but the ones "
                              "before it end at %llu: the format allows neither holes nor overlaps",
                              s->path, tensor[i].name, (unsigned long long)(tensor[i].offset - s->data),
                              (unsigned long long)(at - s->data));
        at += tensor[i].bytes;
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

/* The header's length, checked against the format's limit and the file. */
static mica_status read_length(const shard *s, uint64_t *out_length)
{
    const mica__file *file = s->archive->file[s->file];
    uint8_t raw[LENGTH_BYTES + 1];
    uint64_t length = 0;
    if (mica__file_size(file) < LENGTH_BYTES + 2)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": %llu bytes are too few for a safetensors file",
                          s->path, (unsigned long long)mica__file_size(file));
    MICA__TRY(mica__file_read_at(file, 0, raw, sizeof raw));
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

/* Memory for all that was counted. */
static mica_status prepare(shard *s, uint32_t *capacity)
{
    mica__archive *archive = s->archive;
    s->tensor_room = s->tensor_count;
    s->meta_room = s->meta_count;
    if (s->file == 0 && s->meta_count != 0) {
        archive->meta = mica__archive_alloc(archive, (size_t)s->meta_count * sizeof *archive->meta);
        if (archive->meta == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
    }
    return reserve(archive, s->tensor_count, capacity);
}

static mica_status read_shard(shard *s, uint32_t *capacity)
{
    const mica__file *file = s->archive->file[s->file];
    uint64_t length = 0;
    MICA__TRY(read_length(s, &length));
    s->data = LENGTH_BYTES + length;
    mica__spend_allow(s->data);
    s->data_bytes = mica__file_size(file) - s->data;
    mica_status status = walk(s, false);
    if (status == MICA_OK && s->tensor_bytes != s->data_bytes)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "\"%s\": the file holds %llu bytes of data, but its tensors %llu: the format allows "
            "neither holes nor overlaps",
            s->path, (unsigned long long)s->data_bytes, (unsigned long long)s->tensor_bytes);
    if (status == MICA_OK)
        status = prepare(s, capacity);
    if (status == MICA_OK)
        status = walk(s, true);
    if (status == MICA_OK && (s->tensor_count != s->tensor_room || s->tensor_bytes != s->data_bytes))
        return changed(s);
    if (status != MICA_OK || s->tensor_count == 0)
        return status;
    mica__tensor *mine = s->archive->tensor + (s->archive->tensor_count - s->tensor_count);
    status = mica__sort(mine, s->tensor_count, sizeof *mine, by_place);
    return status == MICA_OK ? check_tiling(s, mine) : status;
}

mica_status mica__safetensors_read(mica__archive *archive)
{
    uint32_t capacity = 0;
    mica_status status = MICA_OK;
    archive->format = MICA_FORMAT_SAFETENSORS;
    for (uint32_t i = 0; i < archive->file_count && status == MICA_OK; i++) {
        shard s = {.archive = archive, .file = i, .path = mica__file_path(archive->file[i])};
        status = read_shard(&s, &capacity);
    }
    if (status != MICA_OK)
        return status;
    archive->visible_count = archive->tensor_count;
    return mica__archive_index(archive);
}
