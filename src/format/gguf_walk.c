/*
 * gguf_walk.c - the header of one GGUF file from its first byte to the last tensor's description. Nothing here
 * recurses: arrays in arrays are a stack of MICA__GGUF_DEPTH levels.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/utf8.h"
#include "base/work.h"
#include "format/gguf.h"
#include "format/writer.h"

mica_status mica__gguf_fail(const mica__gguf_part *part, mica_status code, const char *format, ...)
{
    char detail[320], where[128] = "header";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    if (part->what != NULL && part->label[0] != '\0')
        snprintf(where, sizeof where, "%s \"%s\"", part->what, part->label);
    else if (part->what != NULL)
        snprintf(where, sizeof where, "%s %" PRIu64, part->what, part->index);
    return mica__fail(code, "\"%s\": %s: %s", mica__archive_path(part->archive, part->file), where, detail);
}

/* The cursor's sentence knows bytes; this adds what they were to be. */
static mica_status add_place(const mica__gguf_part *part, mica_status status, const char *field,
                             uint64_t size)
{
    const mica__cursor *cursor = &part->cursor;
    if (status != MICA_ERR_MALFORMED_FILE)
        return status;
    if (cursor->end == MICA__GGUF_HEADER_BYTES)
        return mica__gguf_fail(part, MICA_ERR_BUDGET,
                               "%s of %" PRIu64 " bytes at byte %" PRIu64 " lies past byte %" PRIu64
                               ", where every header must have ended",
                               field, size, cursor->at, cursor->end);
    return mica__gguf_fail(part, status,
                           "%s of %" PRIu64 " bytes at byte %" PRIu64 ", but only %" PRIu64 " follow", field,
                           size, cursor->at, mica__cursor_left(cursor));
}

#define DEBT 16384 /* steps between two looks at the limits */

/* Takes steps for what comes next; the bytes up to here were read, and pay for some. */
static inline mica_status take_steps(mica__gguf_part *part, uint64_t steps)
{
    part->debt += steps;
    if (part->debt < DEBT)
        return MICA_OK;
    if (part->cursor.at > part->seen) {
        mica__spend_allow(part->cursor.at - part->seen);
        part->seen = part->cursor.at;
    }
    const mica_status status = mica__spend(part->debt);
    part->debt = 0;
    return status;
}

static mica_status take_number(mica__gguf_part *part, uint32_t size, const char *field, uint64_t *out_number)
{
    const mica_status status = mica__cursor_number(&part->cursor, size, out_number);
    return status == MICA_OK ? MICA_OK : add_place(part, status, field, size);
}

/* ---- strings -------------------------------------------------------------------------------------------- */

/* In the second walk the bytes move one place down, onto their own length, to make room for the NUL: strings stay
 * where they were read. The first walk gives nothing. */
static mica_status take_string(mica__gguf_part *part, const char *field, mica_string *out_string)
{
    uint64_t length = 0;
    uint8_t *bytes = NULL;
    *out_string = (mica_string){"", 0};
    mica_status status = take_number(part, 8, field, &length);
    if (status == MICA_OK)
        status = take_steps(part, 4 + (part->keep ? length / 64 : 0));
    if (status != MICA_OK)
        return status;
    if (length > mica__cursor_left(&part->cursor))
        return add_place(part, MICA_ERR_MALFORMED_FILE, field, length);
    if (!part->keep) {
        part->cursor.at += length;
        return MICA_OK;
    }
    status = mica__cursor_take(&part->cursor, (size_t)length, &bytes);
    if (status != MICA_OK)
        return add_place(part, status, field, length);
    char *text = (char *)bytes - 1; /* the last byte of the length */
    memmove(text, bytes, (size_t)length);
    text[length] = '\0';
    *out_string = (mica_string){text, length};
    return MICA_OK;
}

static void set_label(mica__gguf_part *part, const char *text, size_t length)
{
    size_t used = 0;
    while (used < length) { /* whole characters */
        const size_t next = mica__utf8_length(text + used, length - used);
        if (used + next >= sizeof part->label)
            break;
        used += next;
    }
    memcpy(part->label, text, used);
    part->label[used] = '\0';
}

/* A key or a tensor's name: some UTF-8 without NUL. Checked in both walks, so that a run of zeros ends the first. */
static mica_status take_name(mica__gguf_part *part, const char *field, mica_string *out_name)
{
    const uint64_t start = part->cursor.at;
    uint64_t length = 0;
    uint8_t *bytes = NULL;
    MICA__TRY(take_number(part, 8, field, &length));
    if (length == 0 || length > MICA__GGUF_NAME_BYTES)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "%s has %" PRIu64 " bytes, expected 1 to %d",
                               field, length, MICA__GGUF_NAME_BYTES);
    MICA__TRY(take_steps(part, 8 + length / 4));
    mica_status status = mica__cursor_take(&part->cursor, (size_t)length, &bytes);
    if (status != MICA_OK)
        return add_place(part, status, field, length);
    for (size_t i = 0; i < length;) {
        const size_t next = mica__utf8_length((const char *)bytes + i, (size_t)length - i);
        if (next == 0 || bytes[i] == 0)
            return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                                   "%s is not UTF-8 without NUL (byte %zu is 0x%02x)", field, i, bytes[i]);
        i += next;
    }
    set_label(part, (const char *)bytes, (size_t)length);
    if (!part->keep)
        return MICA_OK;
    part->cursor.at = start;
    return take_string(part, field, out_name);
}

/* ---- values --------------------------------------------------------------------------------------------- */

static mica_status take_scalar(mica__gguf_part *part, mica_value_type type, mica_value *out)
{
    const uint32_t size = mica__value_type_bytes(type);
    uint64_t bits = 0;
    const mica_status status = take_number(part, size, "its value", &bits);
    if (status != MICA_OK)
        return status;
    if (type == MICA_VALUE_BOOL && bits > 1)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "the bool is %" PRIu64 ", expected 0 or 1",
                               bits);
    switch (type) {
    case MICA_VALUE_I8: out->as.i = (int64_t)(bits ^ 0x80) - 0x80; break;
    case MICA_VALUE_I16: out->as.i = (int16_t)bits; break;
    case MICA_VALUE_I32: out->as.i = (int32_t)bits; break;
    case MICA_VALUE_I64: out->as.i = (int64_t)bits; break;
    case MICA_VALUE_F32: {
        const uint32_t narrow = (uint32_t)bits;
        float value;
        memcpy(&value, &narrow, sizeof value);
        out->as.f = (double)value;
        break;
    }
    case MICA_VALUE_F64: memcpy(&out->as.f, &bits, sizeof bits); break;
    default: out->as.u = bits; break;
    }
    return MICA_OK;
}

static void swap_items(uint8_t *items, uint64_t count, uint32_t size)
{
    for (uint64_t i = 0; i < count; i++, items += size)
        for (uint32_t j = 0; j < size / 2; j++) {
            const uint8_t byte = items[j];
            items[j] = items[size - 1 - j];
            items[size - 1 - j] = byte;
        }
}

static mica_status take_numbers(mica__gguf_part *part, mica_value *out)
{
    const uint32_t size = mica__value_type_bytes(out->item_type);
    const uint64_t bytes = out->count * size; /* not more than what is left: checked by the caller */
    uint8_t *from;
    MICA__TRY(take_steps(part, 4 + (part->keep ? bytes / 64 : 0)));
    if (!part->keep) {
        part->cursor.at += bytes;
        return MICA_OK;
    }
    uint8_t *items = mica__archive_alloc(part->archive, (size_t)bytes);
    if (items == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    out->as.items = items;
    mica_status status = mica__cursor_take(&part->cursor, (size_t)bytes, &from);
    if (status != MICA_OK)
        return add_place(part, status, "its items", bytes);
    memcpy(items, from, (size_t)bytes);
    if (part->big_endian)
        swap_items(items, out->count, size);
    for (uint64_t i = 0; out->item_type == MICA_VALUE_BOOL && i < out->count; i++)
        if (items[i] > 1)
            return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "bool %" PRIu64 " is %u, expected 0 or 1",
                                   i, items[i]);
    return MICA_OK;
}

static mica_status take_strings(mica__gguf_part *part, mica_value *out)
{
    mica_string *items = NULL, unused;
    mica_status status = MICA_OK;
    if (part->keep) {
        items = mica__archive_alloc(part->archive, (size_t)out->count * sizeof *items);
        if (items == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        out->as.items = items;
    }
    for (uint64_t i = 0; i < out->count && status == MICA_OK; i++)
        status = take_string(part, "a string of the array", items != NULL ? &items[i] : &unused);
    return status;
}

/* Item type and count, then the items; of an array of arrays only room for them. */
static mica_status take_array(mica__gguf_part *part, mica_value *out)
{
    uint64_t item_type = 0, least;
    mica_status status = take_number(part, 4, "the item type", &item_type);
    if (status == MICA_OK)
        status = take_number(part, 8, "the item count", &out->count);
    if (status != MICA_OK)
        return status;
    if (item_type >= MICA_VALUE_TYPE_COUNT)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "item type %" PRIu64 ", expected 0 to %d",
                               item_type, MICA_VALUE_TYPE_COUNT - 1);
    out->item_type = (mica_value_type)item_type;
    least = out->item_type == MICA_VALUE_STRING  ? 8
            : out->item_type == MICA_VALUE_ARRAY ? 12
                                                 : mica__value_type_bytes(out->item_type);
    if (out->count > mica__cursor_left(&part->cursor) / least)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "%" PRIu64 " items of %s, but only %" PRIu64 " bytes follow", out->count,
                               mica_value_type_name(out->item_type), mica__cursor_left(&part->cursor));
    if (out->item_type == MICA_VALUE_STRING)
        return take_strings(part, out);
    if (out->item_type != MICA_VALUE_ARRAY)
        return take_numbers(part, out);
    if (!part->keep)
        return MICA_OK;
    out->as.items = mica__archive_alloc(part->archive, (size_t)out->count * sizeof(mica_value));
    return out->as.items != NULL ? MICA_OK : MICA_ERR_OUT_OF_MEMORY;
}

/* An array of arrays whose items come next. */
typedef struct walk_level {
    mica_value *items; /* NULL in the first walk */
    uint64_t left;
} walk_level;

/* An array and everything in it. */
static mica_status take_nested(mica__gguf_part *part, mica_value *out)
{
    walk_level levels[MICA__GGUF_DEPTH];
    uint32_t depth = 0;
    mica_value unused, *next = out;
    for (;;) {
        *next = (mica_value){.type = MICA_VALUE_ARRAY};
        mica_status status = take_steps(part, 4);
        if (status == MICA_OK)
            status = take_array(part, next);
        if (status != MICA_OK)
            return status;
        const bool nested = next->item_type == MICA_VALUE_ARRAY;
        if (nested && depth + 1 == MICA__GGUF_DEPTH)
            return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "arrays in arrays deeper than %d",
                                   MICA__GGUF_DEPTH);
        if (nested)
            levels[depth++] = (walk_level){(mica_value *)(uintptr_t)next->as.items, next->count};
        while (depth != 0 && levels[depth - 1].left == 0)
            depth--;
        if (depth == 0)
            return MICA_OK;
        walk_level *top = &levels[depth - 1];
        top->left--;
        next = top->items != NULL ? top->items++ : &unused; /* NULL in the first walk */
    }
}

static mica_status take_value(mica__gguf_part *part, mica_value *out)
{
    uint64_t type = 0;
    const mica_status status = take_number(part, 4, "the value type", &type);
    if (status != MICA_OK)
        return status;
    if (type >= MICA_VALUE_TYPE_COUNT)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "value type %" PRIu64 ", expected 0 to %d",
                               type, MICA_VALUE_TYPE_COUNT - 1);
    *out = (mica_value){.type = (mica_value_type)type};
    if (out->type == MICA_VALUE_STRING)
        return take_string(part, "the string", &out->as.string);
    return out->type == MICA_VALUE_ARRAY ? take_nested(part, out) : take_scalar(part, out->type, out);
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

/* Dimensions, fastest first in the file. *out_elements is the product of those that are not 0, which must not wrap. */
static mica_status take_dims(mica__gguf_part *part, mica__tensor *out, uint64_t *out_elements,
                             uint64_t *out_row, bool *out_empty)
{
    uint64_t ndim = 0, dims[MICA_MAX_DIMS] = {0};
    mica_status status = take_number(part, 4, "the number of dimensions", &ndim);
    *out_elements = *out_row = 1;
    *out_empty = false;
    if (status == MICA_OK && ndim > mica__cursor_left(&part->cursor) / 8)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "%" PRIu64 " dimensions, but only %" PRIu64 " bytes follow", ndim,
                               mica__cursor_left(&part->cursor));
    for (uint64_t i = 0; i < ndim && status == MICA_OK; i++) {
        uint64_t dim = 0;
        status = take_steps(part, 2);
        if (status == MICA_OK)
            status = take_number(part, 8, "a dimension", &dim);
        if (dim > INT64_MAX || !mica__mul_u64(*out_elements, dim == 0 ? 1 : dim, out_elements) ||
            *out_elements > INT64_MAX)
            return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                                   "dimension %" PRIu64 " is %" PRIu64 ": more than 2^63 elements", i, dim);
        *out_empty = *out_empty || dim == 0;
        *out_row = i == 0 ? dim : *out_row;
        if (i < MICA_MAX_DIMS)
            dims[i] = dim;
    }
    if (ndim > MICA_MAX_DIMS) {
        out->problem = MICA__TENSOR_DIMS;
        return status;
    }
    out->ndim = (uint8_t)ndim;
    for (uint32_t i = 0; i < ndim; i++)
        out->shape[i] = dims[ndim - 1 - i];
    return status;
}

static mica_status name_unknown_type(mica__gguf_part *part, mica__tensor *out, uint64_t id)
{
    char text[24];
    const mica__gguf_type *type = mica__gguf_type_by_id((uint32_t)id);
    out->problem = MICA__TENSOR_TYPE;
    if (type != NULL) {
        out->type_name = type->name;
        return MICA_OK;
    }
    const int length = snprintf(text, sizeof text, "type %" PRIu64, id);
    out->type_name = part->keep ? mica__archive_text(part->archive, text, (size_t)length) : "";
    return out->type_name != NULL ? MICA_OK : MICA_ERR_OUT_OF_MEMORY;
}

/* The dtype, and how many bytes that makes. Of an unknown type the bytes come later, from the neighbours. */
static mica_status set_type(mica__gguf_part *part, mica__tensor *out, uint64_t id, uint64_t elements,
                            uint64_t row, bool empty)
{
    const mica__gguf_type *type = mica__gguf_type_by_id((uint32_t)id);
    if (type == NULL || type->dtype == MICA_DTYPE_NONE)
        return name_unknown_type(part, out, id);
    const uint32_t block = mica_dtype_block_elements(type->dtype);
    out->dtype = (uint16_t)type->dtype;
    out->type_name = type->name;
    if (row % block != 0)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "rows of %" PRIu64 " values are no multiple of %u, the block of %s", row,
                               block, type->name);
    if (!mica__mul_u64(empty ? 0 : elements / block, mica_dtype_block_bytes(type->dtype), &out->bytes))
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "%" PRIu64 " elements of %s are more than 2^64 bytes", elements, type->name);
    if (part->big_endian && out->problem == MICA__TENSOR_FINE)
        out->problem = MICA__TENSOR_BYTE_ORDER;
    return MICA_OK;
}

static mica_status take_tensor(mica__gguf_part *part, mica__tensor *out)
{
    mica_string name = {"", 0};
    uint64_t elements, row, type = 0;
    bool empty;
    *out = (mica__tensor){
        .file = part->file, .scales = MICA__NO_TENSOR, .biases = MICA__NO_TENSOR, .type_name = ""};
    mica_status status = take_name(part, "the name", &name);
    if (status == MICA_OK)
        status = take_dims(part, out, &elements, &row, &empty);
    if (status == MICA_OK)
        status = take_number(part, 4, "the type", &type);
    if (status == MICA_OK)
        status = take_number(part, 8, "the offset", &out->offset);
    if (status != MICA_OK)
        return status;
    out->name = name.data;
    out->name_length = (uint32_t)name.length;
    return set_type(part, out, type, elements, row, empty);
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

/* The byte order shows in the version: no version has its low half zero. */
static mica_status take_head(mica__gguf_part *part)
{
    uint8_t *magic;
    uint64_t version = 0;
    mica_status status = mica__cursor_take(&part->cursor, 4, &magic);
    if (status != MICA_OK)
        return add_place(part, status, "the magic", 4);
    if (memcmp(magic, MICA__GGUF_MAGIC, 4) != 0)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "the first bytes are %02x %02x %02x %02x, expected 47 47 55 46 (GGUF)",
                               magic[0], magic[1], magic[2], magic[3]);
    MICA__TRY(take_number(part, 4, "the version", &version));
    part->big_endian = version == (uint64_t)MICA__GGUF_VERSION << 24; /* version 2 was little endian alone */
    if (part->big_endian)
        version = MICA__GGUF_VERSION;
    part->cursor.swap = part->big_endian;
    if (version != 2 && version != MICA__GGUF_VERSION)
        return mica__gguf_fail(part, MICA_ERR_UNSUPPORTED, "version %" PRIu64 ", expected 2 or 3", version);
    part->version = (uint32_t)version;
    status = take_number(part, 8, "the tensor count", &part->tensor_count);
    return status == MICA_OK ? take_number(part, 8, "the metadata count", &part->meta_count) : status;
}

/* A tensor takes 25 bytes at least (name 9, dimensions 4, type 4, offset 8), an entry 14 (key 9, type 4, value 1). */
static mica_status check_counts(const mica__gguf_part *part)
{
    const uint64_t left = mica__cursor_left(&part->cursor);
    if (part->meta_count > left / 14 || part->tensor_count > (left - part->meta_count * 14) / 25 ||
        part->tensor_count >= MICA__NO_TENSOR || part->meta_count >= UINT32_MAX)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "%" PRIu64 " tensors and %" PRIu64 " metadata entries, but only %" PRIu64
                               " bytes follow",
                               part->tensor_count, part->meta_count, left);
    return MICA_OK;
}

static void set_place(mica__gguf_part *part, const char *what, uint64_t index)
{
    part->what = what;
    part->index = index;
    part->label[0] = '\0';
}

mica_status mica__gguf_walk(mica__gguf_part *part)
{
    mica__meta unused_meta = {0};
    mica__tensor unused_tensor = {0};
    set_place(part, NULL, 0);
    mica_status status = take_head(part);
    if (status == MICA_OK)
        status = check_counts(part);
    if (status == MICA_OK && part->keep && part->tensor_count != part->expected)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "it changed while it was read");
    if (status == MICA_OK && part->keep && part->meta_count != 0) {
        part->meta = mica__archive_alloc(part->archive, (size_t)part->meta_count * sizeof *part->meta);
        status = part->meta != NULL ? MICA_OK : MICA_ERR_OUT_OF_MEMORY;
    }
    for (uint64_t i = 0; i < part->meta_count && status == MICA_OK; i++) {
        mica__meta *meta = part->keep ? &part->meta[i] : &unused_meta;
        set_place(part, "metadata", i);
        status = take_name(part, "the key", &meta->key);
        if (status == MICA_OK)
            status = take_value(part, &meta->value);
    }
    for (uint64_t i = 0; i < part->tensor_count && status == MICA_OK; i++) {
        set_place(part, "tensor", i);
        status = take_tensor(part, part->keep ? &part->tensor[i] : &unused_tensor);
    }
    part->header_bytes = part->cursor.at;
    if (status != MICA_OK)
        return status;
    return take_steps(part, DEBT); /* what is left */
}
