/* onnx_memory.c - the memory of an ONNX model, and what is common to its messages: names, counts, packed numbers. */
#include "format/onnx_memory.h"

#include <string.h>

#include "base/checked.h"
#include "base/utf8.h"
#include "base/work.h"
#include "format/chunks.h"

mica_status mica__onnx_take(const mica__onnx_parser *p, uint64_t count, size_t size, void *out_pointer)
{
    void *pointer = NULL;
    uint64_t bytes = 0;
    memset(out_pointer, 0, sizeof pointer);
    if (mica__mul_u64(count, size, &bytes) && bytes <= SIZE_MAX)
        pointer = mica__chunks_alloc(&p->memory->chunks, bytes == 0 ? 1 : (size_t)bytes);
    if (pointer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for %llu items of its tables",
                          p->proto.path, (unsigned long long)count);
    memset(pointer, 0, (size_t)bytes);
    memcpy(out_pointer, &pointer, sizeof pointer);
    return MICA_OK;
}

mica_status mica__onnx_coded(const mica__onnx_parser *p, const mica__proto_message *after,
                             const mica__proto_field *f, uint32_t wire)
{
    return f->wire == wire ? MICA_OK
                           : mica__proto_malformed(&p->proto, after->at, "a field is not coded as its type");
}

mica_status mica__onnx_bytes(const mica__onnx_parser *p, const mica__proto_field *f,
                             mica__onnx_text *out_text)
{
    char *text = NULL;
    MICA__TRY(mica__onnx_coded(p, &f->content, f, MICA__PROTO_BYTES));
    MICA__TRY(mica__onnx_take(p, f->value + 1, 1, &text));
    if (f->value != 0)
        memcpy(text, f->content.at, (size_t)f->value);
    *out_text = (mica__onnx_text){text, f->value};
    return mica__spend(f->value / 64);
}

mica_status mica__onnx_name(const mica__onnx_parser *p, const mica__proto_field *f, const char **out_name)
{
    mica__onnx_text text = {0};
    MICA__TRY(mica__onnx_bytes(p, f, &text));
    for (uint64_t at = 0; at < text.length;) {
        const size_t length = mica__utf8_length(text.data + at, (size_t)(text.length - at));
        if (length == 0 || text.data[at] == '\0')
            return mica__proto_malformed(&p->proto, f->content.at, "a name that is no UTF-8, or has a NUL");
        at += length;
    }
    *out_name = text.data;
    return mica__spend(text.length / 4);
}

mica_status mica__onnx_count(const mica__onnx_parser *p, mica__proto_message m,
                             uint32_t out_counts[MICA__ONNX_FIELDS])
{
    memset(out_counts, 0, MICA__ONNX_FIELDS * sizeof *out_counts);
    while (m.at != m.end) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number < MICA__ONNX_FIELDS)
            out_counts[f.number]++;
    }
    return MICA_OK;
}

/* How many numbers a packed field has. */
static mica_status count_packed(const mica__onnx_parser *p, const mica__proto_message *m, uint32_t bytes,
                                uint64_t *count)
{
    const uint64_t size = (uint64_t)(m->end - m->at);
    MICA__TRY(mica__spend(size / 8));
    if (bytes != 0 && size % bytes != 0)
        return mica__proto_malformed(&p->proto, m->at, "packed numbers that end inside of one");
    if (bytes != 0)
        *count += size / bytes;
    if (bytes == 0 && size != 0 && m->end[-1] >= 0x80)
        return mica__proto_malformed(&p->proto, m->at, "packed numbers that end inside of one");
    for (const uint8_t *at = m->at; bytes == 0 && at != m->end; at++)
        *count += *at < 0x80;
    return MICA_OK;
}

/* Each number of the field, counted, or read where there is an array for them. */
static mica_status walk_numbers(const mica__onnx_parser *p, mica__proto_message m, uint32_t number,
                                uint32_t bytes, uint64_t *out, uint64_t *count)
{
    const uint32_t wire = bytes == 0 ? MICA__PROTO_VARINT : bytes == 4 ? MICA__PROTO_32 : MICA__PROTO_64;
    *count = 0;
    while (m.at != m.end) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number != number)
            continue;
        if (f.wire == wire) {
            if (out != NULL)
                out[*count] = f.value;
            ++*count;
            continue;
        }
        MICA__TRY(mica__onnx_coded(p, &m, &f, MICA__PROTO_BYTES));
        if (out == NULL) {
            MICA__TRY(count_packed(p, &f.content, bytes, count));
            continue;
        }
        while (f.content.at != f.content.end)
            MICA__TRY(mica__proto_number(&p->proto, &f.content, bytes, &out[(*count)++]));
    }
    return MICA_OK;
}

mica_status mica__onnx_numbers(const mica__onnx_parser *p, mica__proto_message m, uint32_t number,
                               uint32_t bytes, const uint64_t **out_numbers, uint64_t *out_count)
{
    uint64_t *numbers = NULL;
    MICA__TRY(walk_numbers(p, m, number, bytes, NULL, out_count));
    MICA__TRY(mica__onnx_take(p, *out_count, sizeof *numbers, &numbers));
    *out_numbers = numbers;
    return walk_numbers(p, m, number, bytes, numbers, out_count);
}

mica_status mica__onnx_read_pair(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_pair *out)
{
    *out = (mica__onnx_pair){"", ""};
    while (m.at != m.end) {
        mica__proto_field f;
        MICA__TRY(mica__proto_next(&p->proto, &m, &f));
        if (f.number == 1 || f.number == 2)
            MICA__TRY(mica__onnx_name(p, &f, f.number == 1 ? &out->key : &out->value));
    }
    return MICA_OK;
}
