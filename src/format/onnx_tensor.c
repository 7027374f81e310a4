/*
 * onnx_tensor.c - a TensorProto: the data of a tensor, wherever it is: in raw bytes, in numbers of a type, in a file beside the model.
 *
 * External data is what a stranger's file asks to be read. Only files below the model's own folder are: no absolute paths, no "..", no link that leads out.
 */
#include "format/onnx_memory.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/work.h"

enum { FLOATS = 4, INT32S = 5, STRINGS = 6, INT64S = 7, RAW = 9, DOUBLES = 10, UINT64S = 11 };

static const mica__onnx_type_info types[MICA__ONNX_TYPE_COUNT] = {
    [MICA__ONNX_FLOAT] = {"float", MICA_DTYPE_F32, 32, FLOATS},
    [MICA__ONNX_UINT8] = {"uint8", MICA_DTYPE_U8, 8, INT32S},
    [MICA__ONNX_INT8] = {"int8", MICA_DTYPE_I8, 8, INT32S},
    [MICA__ONNX_UINT16] = {"uint16", MICA_DTYPE_U16, 16, INT32S},
    [MICA__ONNX_INT16] = {"int16", MICA_DTYPE_I16, 16, INT32S},
    [MICA__ONNX_INT32] = {"int32", MICA_DTYPE_I32, 32, INT32S},
    [MICA__ONNX_INT64] = {"int64", MICA_DTYPE_I64, 64, INT64S},
    [MICA__ONNX_STRING] = {"string", MICA_DTYPE_NONE, 0, STRINGS},
    [MICA__ONNX_BOOL] = {"bool", MICA_DTYPE_BOOL, 8, INT32S},
    [MICA__ONNX_FLOAT16] = {"float16", MICA_DTYPE_F16, 16, INT32S},
    [MICA__ONNX_DOUBLE] = {"double", MICA_DTYPE_F64, 64, DOUBLES},
    [MICA__ONNX_UINT32] = {"uint32", MICA_DTYPE_U32, 32, UINT64S},
    [MICA__ONNX_UINT64] = {"uint64", MICA_DTYPE_U64, 64, UINT64S},
    [MICA__ONNX_COMPLEX64] = {"complex64", MICA_DTYPE_C64, 64, FLOATS},
    [MICA__ONNX_COMPLEX128] = {"complex128", MICA_DTYPE_NONE, 128, DOUBLES},
    [MICA__ONNX_BFLOAT16] = {"bfloat16", MICA_DTYPE_BF16, 16, INT32S},
    [MICA__ONNX_FLOAT8E4M3FN] = {"float8e4m3fn", MICA_DTYPE_F8_E4M3, 8, INT32S},
    [MICA__ONNX_FLOAT8E4M3FNUZ] = {"float8e4m3fnuz", MICA_DTYPE_NONE, 8, INT32S},
    [MICA__ONNX_FLOAT8E5M2] = {"float8e5m2", MICA_DTYPE_F8_E5M2, 8, INT32S},
    [MICA__ONNX_FLOAT8E5M2FNUZ] = {"float8e5m2fnuz", MICA_DTYPE_NONE, 8, INT32S},
    [MICA__ONNX_UINT4] = {"uint4", MICA_DTYPE_NONE, 4, INT32S},
    [MICA__ONNX_INT4] = {"int4", MICA_DTYPE_NONE, 4, INT32S},
    [MICA__ONNX_FLOAT4E2M1] = {"float4e2m1", MICA_DTYPE_NONE, 4, INT32S},
    [MICA__ONNX_FLOAT8E8M0] = {"float8e8m0", MICA_DTYPE_E8M0, 8, INT32S},
    [MICA__ONNX_UINT2] = {"uint2", MICA_DTYPE_NONE, 2, INT32S},
    [MICA__ONNX_INT2] = {"int2", MICA_DTYPE_NONE, 2, INT32S},
};

const mica__onnx_type_info *mica__onnx_type_get(uint64_t type)
{
    return type < MICA__ONNX_TYPE_COUNT && types[type].name != NULL ? &types[type] : NULL;
}

mica__onnx_type mica__onnx_type_of(mica_dtype dtype)
{
    for (uint32_t type = 1; type < MICA__ONNX_TYPE_COUNT && dtype != MICA_DTYPE_NONE; type++)
        if (types[type].dtype == dtype)
            return (mica__onnx_type)type;
    return MICA__ONNX_UNDEFINED;
}

/* Where the data of a tensor is, as far as it was read. */
typedef struct data_place {
    uint32_t field; /* that holds it; 0: none */
    mica__proto_message raw;
    bool external;
    const char *location;
    uint64_t offset, length;
    bool has_length;
} data_place;

static mica_status bad_tensor(const mica__onnx_parser *p, const mica__onnx_tensor *t, const char *what)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": tensor \"%.200s\": %s", p->proto.path, t->name, what);
}

static mica_status read_dims(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_tensor *out)
{
    uint64_t count = 0;
    MICA__TRY(mica__onnx_numbers(p, m, 1, 0, &out->dims, &count));
    if (count > UINT16_MAX)
        return bad_tensor(p, out, "has more than 65535 dimensions");
    out->ndim = (uint32_t)count;
    out->elements = 1;
    for (uint32_t i = 0; i < out->ndim; i++)
        if (out->dims[i] > INT64_MAX || !mica__mul_u64(out->elements, out->dims[i], &out->elements))
            return bad_tensor(p, out, "has a size below 0, or past 2^64 elements");
    return MICA_OK;
}

/* ---- data as numbers ------------------------------------------------------------------------------------ */

static mica_status wrong_count(const mica__onnx_parser *p, const mica__onnx_tensor *t, uint64_t found)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE,
                      "\"%s\": tensor \"%.200s\": holds %llu elements, but its dims say %llu", p->proto.path,
                      t->name, (unsigned long long)found, (unsigned long long)t->elements);
}

/* Numbers of `wide` bytes each as elements of fewer; what does not fit is refused. */
static mica_status narrow(const mica__onnx_parser *p, mica__onnx_tensor *t, const uint64_t *numbers,
                          uint64_t count, uint32_t bytes)
{
    uint8_t *data = NULL;
    MICA__TRY(mica__onnx_take(p, count, bytes, &data));
    MICA__TRY(mica__spend(count));
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t above = bytes == 8 ? 0 : numbers[i] >> (8 * bytes - 1);
        /* positive, positive and as wide as the type, or negative: the sign goes up to bit 63 */
        if (above > 1 && above != UINT64_MAX >> (8 * bytes - 1))
            return bad_tensor(p, t, "a number does not fit its type");
        for (uint32_t b = 0; b < bytes; b++)
            data[i * bytes + b] = (uint8_t)(numbers[i] >> 8 * b);
    }
    t->data = data;
    t->bytes = count * bytes;
    return MICA_OK;
}

static mica_status read_numbers(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_tensor *t,
                                uint32_t field)
{
    const uint32_t bits = types[t->type].bits, per_byte = bits < 8 ? 8 / bits : 1;
    const uint32_t wire = field == FLOATS ? 4 : field == DOUBLES ? 8 : 0;
    const uint32_t parts = t->type == MICA__ONNX_COMPLEX64 || t->type == MICA__ONNX_COMPLEX128 ? 2 : 1;
    const uint64_t *numbers;
    uint64_t count = 0, needed = 0;
    MICA__TRY(mica__onnx_numbers(p, m, field, wire, &numbers, &count));
    if (!mica__mul_u64(t->elements, parts, &needed) || count != needed / per_byte + (needed % per_byte != 0))
        return wrong_count(p, t, count / parts * per_byte);
    return narrow(p, t, numbers, count, bits < 8 ? 1 : bits / parts / 8);
}

static mica_status read_strings(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_tensor *t)
{
    uint32_t counts[MICA__ONNX_FIELDS];
    mica__onnx_text *strings = NULL;
    MICA__TRY(mica__onnx_count(p, m, counts));
    if (counts[STRINGS] != t->elements)
        return wrong_count(p, t, counts[STRINGS]);
    MICA__TRY(mica__onnx_take(p, counts[STRINGS], sizeof *strings, &strings));
    t->strings = strings;
    while (m.at != m.end) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number == STRINGS)
            MICA__TRY(mica__onnx_bytes(p, &f, strings++));
    }
    return MICA_OK;
}

/* ---- external data -------------------------------------------------------------------------------------- */

static mica_status read_decimal(const mica__onnx_parser *p, const mica__onnx_tensor *t, const char *text,
                                uint64_t *out)
{
    *out = 0;
    for (const char *at = text; *at != '\0'; at++)
        if (*at < '0' || *at > '9' || !mica__mul_u64(*out, 10, out) ||
            !mica__add_u64(*out, (uint64_t)(*at - '0'), out))
            return bad_tensor(p, t, "external data whose offset or length is no whole number");
    return text[0] != '\0' ? MICA_OK : bad_tensor(p, t, "external data with an empty offset or length");
}

static mica_status read_external(const mica__onnx_parser *p, const mica__onnx_tensor *t,
                                 mica__proto_message m, data_place *out)
{
    mica__onnx_pair pair;
    MICA__TRY(mica__onnx_read_pair(p, m, &pair));
    if (strcmp(pair.key, "location") == 0)
        out->location = pair.value;
    if (strcmp(pair.key, "offset") == 0)
        return read_decimal(p, t, pair.value, &out->offset);
    if (strcmp(pair.key, "length") == 0) {
        out->has_length = true;
        return read_decimal(p, t, pair.value, &out->length);
    }
    return MICA_OK; /* checksums */
}

/* A path that could lead out of the folder is refused before anything is looked at. */
static mica_status check_location(const mica__onnx_parser *p, const mica__onnx_tensor *t,
                                  const char *location)
{
    bool plain = location != NULL && location[0] != '\0' && location[0] != '/' &&
                 strchr(location, '\\') == NULL && strchr(location, ':') == NULL;
    for (const char *at = location; plain && at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        plain = strncmp(at, "..", 2) != 0 || (at[2] != '/' && at[2] != '\0');
    }
    if (!plain)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "\"%s\": tensor \"%.200s\": external data at \"%.200s\", which is no plain path below "
            "the model's folder",
            p->proto.path, t->name, location == NULL ? "" : location);
    if (p->memory->folder == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": tensor \"%.200s\": external data, but the model is no file", p->proto.path,
                          t->name);
    return MICA_OK;
}

/* The map of a file below the folder, opened once. */
static mica_status map_file(const mica__onnx_parser *p, const char *location, const mica__file_map **out_map)
{
    mica__onnx_file *file = p->memory->files;
    mica__file *opened = NULL;
    char *path = NULL;
    const size_t size = strlen(p->memory->folder) + strlen(location) + 2;
    for (; file != NULL; file = file->next)
        if (strcmp(file->location, location) == 0) {
            *out_map = &file->map;
            return mica__spend(16);
        }
    MICA__TRY(mica__spend(1000)); /* opening one takes some microseconds */
    MICA__TRY(mica__onnx_take(p, 1, sizeof *file, &file));
    MICA__TRY(mica__onnx_take(p, size, 1, &path));
    snprintf(path, size, "%s/%s", p->memory->folder, location);
    MICA__TRY(mica__file_open_inside(p->memory->folder, path, &opened));
    const mica_status status = mica__file_map_open(opened, &file->map);
    mica__file_close(opened);
    MICA__TRY(status);
    file->location = location;
    file->next = p->memory->files;
    p->memory->files = file;
    *out_map = &file->map;
    return MICA_OK;
}

static mica_status open_external(const mica__onnx_parser *p, mica__onnx_tensor *t, const data_place *where,
                                 uint64_t bytes)
{
    const mica__file_map *map = NULL;
    MICA__TRY(check_location(p, t, where->location));
    MICA__TRY(map_file(p, where->location, &map));
    if (where->offset > map->size || bytes > map->size - where->offset ||
        (where->has_length && where->length != bytes))
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "\"%s\": tensor \"%.200s\": takes %llu bytes, which are not at byte %llu of \"%.200s\" "
            "with %zu bytes",
            p->proto.path, t->name, (unsigned long long)bytes, (unsigned long long)where->offset,
            where->location, map->size);
    t->data = bytes == 0 ? NULL : (const uint8_t *)map->data + where->offset;
    t->bytes = bytes;
    return MICA_OK;
}

/* ---- the message ---------------------------------------------------------------------------------------- */

static mica_status note_field(const mica__onnx_parser *p, const mica__onnx_tensor *t, uint32_t number,
                              data_place *where)
{
    if (where->field != 0 && where->field != number)
        return bad_tensor(p, t, "has its data twice");
    where->field = number;
    return MICA_OK;
}

static mica_status read_field(const mica__onnx_parser *p, const mica__proto_message *m,
                              const mica__proto_field *f, mica__onnx_tensor *t, data_place *where)
{
    switch (f->number) {
    case 2:
        MICA__TRY(mica__onnx_coded(p, m, f, MICA__PROTO_VARINT));
        if (mica__onnx_type_get(f->value) == NULL)
            return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": a tensor of type %llu, which is not known",
                              p->proto.path, (unsigned long long)f->value);
        t->type = (mica__onnx_type)f->value;
        return MICA_OK;
    case 3: return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": a tensor in segments", p->proto.path);
    case 8: return mica__onnx_name(p, f, &t->name);
    case RAW:
        MICA__TRY(mica__onnx_coded(p, m, f, MICA__PROTO_BYTES));
        where->raw = f->content;
        return note_field(p, t, RAW, where);
    case FLOATS:
    case INT32S:
    case STRINGS:
    case INT64S:
    case DOUBLES:
    case UINT64S: /* an empty packed field says nothing */
        return f->wire == MICA__PROTO_BYTES && f->value == 0 && f->number != STRINGS
                   ? MICA_OK
                   : note_field(p, t, f->number, where);
    case 13:
        MICA__TRY(mica__onnx_coded(p, m, f, MICA__PROTO_BYTES));
        return read_external(p, t, f->content, where);
    case 14:
        MICA__TRY(mica__onnx_coded(p, m, f, MICA__PROTO_VARINT));
        where->external = f->value == 1;
        return f->value <= 1 ? MICA_OK : bad_tensor(p, t, "data_location is neither 0 nor 1");
    default: return MICA_OK;
    }
}

static mica_status find_data(const mica__onnx_parser *p, mica__proto_message m, const data_place *where,
                             mica__onnx_tensor *t)
{
    const mica__onnx_type_info *info = &types[t->type];
    uint64_t bits = 0;
    if (t->type == MICA__ONNX_UNDEFINED)
        return bad_tensor(p, t, "has no type");
    if (!mica__mul_u64(t->elements, info->bits, &bits))
        return bad_tensor(p, t, "has more than 2^64 bits");
    const uint64_t bytes = bits / 8 + (bits % 8 != 0);
    if (where->external && info->bits != 0)
        return where->field != 0 ? bad_tensor(p, t, "has its data twice") : open_external(p, t, where, bytes);
    if (where->field == info->field && where->field != 0)
        return info->field == STRINGS ? read_strings(p, m, t) : read_numbers(p, m, t, info->field);
    if (where->field != RAW)
        return where->field == 0 && t->elements == 0 ? MICA_OK
               : where->field == 0                   ? bad_tensor(p, t, "has no data")
                                                     : bad_tensor(p, t, "has data of another type");
    if (info->bits == 0)
        return bad_tensor(p, t, "has strings as raw data");
    if ((uint64_t)(where->raw.end - where->raw.at) != bytes)
        return wrong_count(p, t,
                           info->bits < 8 ? (uint64_t)(where->raw.end - where->raw.at) * 8 / info->bits
                                          : (uint64_t)(where->raw.end - where->raw.at) / (info->bits / 8));
    t->data = where->raw.at;
    t->bytes = bytes;
    return MICA_OK;
}

mica_status mica__onnx_read_tensor(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_tensor *out)
{
    data_place where = {0};
    *out = (mica__onnx_tensor){.name = ""};
    for (mica__proto_message at = m; at.at != at.end;) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &at, &f));
        MICA__TRY(read_field(p, &at, &f, out, &where));
    }
    MICA__TRY(read_dims(p, m, out));
    return find_data(p, m, &where, out);
}
