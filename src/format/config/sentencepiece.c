/* sentencepiece.c - the three messages of a tokenizer.model. */
#include "format/config/sentencepiece.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/protobuf.h"
#include "base/utf8.h"
#include "base/work.h"

typedef struct parser {
    mica__proto proto;
    mica__sentencepiece *out;
    uint32_t capacity;
} parser;

static mica_status malformed(const parser *p, const uint8_t *at, const char *what)
{
    return mica__proto_malformed(&p->proto, at, what);
}

static bool is_text(const mica__proto_message *m)
{
    if (memchr(m->at, 0, (size_t)(m->end - m->at)) != NULL)
        return false;
    for (const uint8_t *at = m->at; at != m->end;) {
        const size_t length = mica__utf8_length((const char *)at, (size_t)(m->end - at));
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

static mica_status read_piece_field(const parser *p, const mica__proto_field *f,
                                    mica__token_list_piece *piece)
{
    if (f->number == 1 && f->wire == MICA__PROTO_BYTES) {
        if (!is_text(&f->content) || f->value > UINT16_MAX)
            return malformed(p, f->content.at, "a piece that is no UTF-8 text of at most 65535 bytes");
        piece->text = (const char *)f->content.at;
        piece->length = (uint32_t)f->value;
    } else if (f->number == 2 && f->wire == MICA__PROTO_32) {
        const uint32_t bits = (uint32_t)f->value;
        memcpy(&piece->score, &bits, sizeof piece->score);
    } else if (f->number == 3 && f->wire == MICA__PROTO_VARINT) {
        if (f->value < MICA__PIECE_NORMAL || f->value > MICA__PIECE_BYTE)
            return malformed(p, p->proto.start, "a piece of an unknown kind");
        piece->kind = (mica__piece_kind)f->value;
    }
    return MICA_OK;
}

static mica_status grow(parser *p)
{
    const uint32_t capacity = p->capacity == 0 ? 1024 : p->capacity * 2;
    mica__token_list_piece *grown = mica__realloc(p->out->piece, (size_t)capacity * sizeof *grown);
    if (grown == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for %u pieces", p->proto.path, capacity);
    p->out->piece = grown;
    p->capacity = capacity;
    return MICA_OK;
}

static mica_status read_piece(parser *p, mica__proto_message m)
{
    mica__token_list_piece piece = {.kind = MICA__PIECE_NORMAL};
    const uint8_t *start = m.at;
    mica_status status = MICA_OK;
    while (m.at != m.end && status == MICA_OK) {
        mica__proto_field f;
        status = mica__proto_next(&p->proto, &m, &f);
        if (status == MICA_OK)
            status = read_piece_field(p, &f, &piece);
    }
    if (status != MICA_OK)
        return status;
    if (piece.text == NULL || piece.length == 0 || !isfinite(piece.score))
        return malformed(p, start, "a piece without a text or a finite score");
    if (p->out->count == MICA__SENTENCEPIECE_MOST)
        return malformed(p, start, "more than 2^22 pieces");
    if (p->out->count == p->capacity)
        status = grow(p);
    if (status == MICA_OK)
        p->out->piece[p->out->count++] = piece;
    return status;
}

static mica_status read_trainer(parser *p, mica__proto_message m)
{
    enum { UNIGRAM = 1, PAIRS = 2 };
    mica_status status = MICA_OK;
    while (m.at != m.end && status == MICA_OK) {
        mica__proto_field f;
        status = mica__proto_next(&p->proto, &m, &f);
        if (status != MICA_OK || f.number != 3 || f.wire != MICA__PROTO_VARINT)
            continue;
        if (f.value != UNIGRAM && f.value != PAIRS)
            return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": a model of words or characters", p->proto.path);
        p->out->unigram = f.value == UNIGRAM;
    }
    return status;
}

static mica_status read_normalizer(parser *p, mica__proto_message m)
{
    mica_status status = MICA_OK;
    while (m.at != m.end && status == MICA_OK) {
        mica__proto_field f;
        status = mica__proto_next(&p->proto, &m, &f);
        if (status != MICA_OK)
            break;
        if (f.number == 2 && f.wire == MICA__PROTO_BYTES) {
            p->out->chars = (const char *)f.content.at;
            p->out->chars_length = (uint32_t)f.value;
        } else if (f.number == 3 && f.wire == MICA__PROTO_VARINT) {
            p->out->prefix = f.value != 0;
        } else if (f.number == 4 && f.wire == MICA__PROTO_VARINT) {
            p->out->trim = f.value != 0;
        }
    }
    return status;
}

static mica_status read_model(parser *p, mica__proto_message m)
{
    static mica_status (*const parts[])(parser * p, mica__proto_message m) = {
        [1] = read_piece, [2] = read_trainer, [3] = read_normalizer};
    mica_status status = MICA_OK;
    while (m.at != m.end && status == MICA_OK) {
        mica__proto_field f;
        status = mica__proto_next(&p->proto, &m, &f);
        if (status == MICA_OK && f.wire == MICA__PROTO_BYTES && f.number >= 1 && f.number <= 3)
            status = parts[f.number](p, f.content);
    }
    if (status == MICA_OK && p->out->count == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": a model without a piece", p->proto.path);
    return status;
}

mica_status mica__sentencepiece_parse(const char *path, const void *bytes, size_t size,
                                      mica__sentencepiece *out)
{
    parser p = {.proto = {path, bytes}, .out = out};
    /* what the messages mean where they are silent */
    *out = (mica__sentencepiece){.unigram = true, .prefix = true, .trim = true};
    if (size > UINT32_MAX)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": %zu bytes are too many", path, size);
    mica__spend_allow(size);
    const mica_status status =
        size == 0 ? mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": an empty file", path)
                  : read_model(&p, (mica__proto_message){p.proto.start, p.proto.start + size});
    if (status != MICA_OK)
        mica__sentencepiece_free(out);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------------------- */

/* Counts, and writes where there is memory: the same calls are made once for the size and once for the bytes. */
typedef struct output {
    uint8_t *bytes; /* NULL while counting */
    size_t size;
} output;

static void put(output *out, const void *bytes, size_t size)
{
    if (out->bytes != NULL && size != 0)
        memcpy(out->bytes + out->size, bytes, size);
    out->size += size;
}

static void put_varint(output *out, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(out, &byte, 1);
        value >>= 7;
    } while (value != 0);
}

static void put_number(output *out, uint32_t number, uint64_t value)
{
    put_varint(out, (uint64_t)number << 3 | MICA__PROTO_VARINT);
    put_varint(out, value);
}

static void put_bytes(output *out, uint32_t number, const void *bytes, size_t size)
{
    put_varint(out, (uint64_t)number << 3 | MICA__PROTO_BYTES);
    put_varint(out, size);
    put(out, bytes, size);
}

static void put_piece(output *out, const void *from)
{
    const mica__token_list_piece *piece = from;
    uint32_t bits;
    memcpy(&bits, &piece->score, sizeof bits);
    const uint8_t score[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16),
                              (uint8_t)(bits >> 24)};
    put_bytes(out, 1, piece->text, piece->length);
    put_varint(out, 2 << 3 | MICA__PROTO_32);
    put(out, score, sizeof score);
    if (piece->kind != MICA__PIECE_NORMAL)
        put_number(out, 3, piece->kind);
}

static void put_trainer(output *out, const void *from)
{
    const mica__sentencepiece *model = from;
    bool bytes = false;
    for (uint32_t i = 0; i < model->count; i++)
        bytes = bytes || model->piece[i].kind == MICA__PIECE_BYTE;
    put_number(out, 3, model->unigram ? 1 : 2);
    put_number(out, 4, model->count);
    put_number(out, 35, bytes);
}

static void put_normalizer(output *out, const void *from)
{
    const mica__sentencepiece *model = from;
    put_bytes(out, 1, "identity", 8);
    if (model->chars_length != 0)
        put_bytes(out, 2, model->chars, model->chars_length);
    put_number(out, 3, model->prefix);
    put_number(out, 4, model->trim);
}

/* A message in a message: its size comes first. */
static void put_message(output *out, uint32_t number, void (*write)(output *out, const void *from),
                        const void *from)
{
    output sized = {0};
    write(&sized, from);
    put_varint(out, (uint64_t)number << 3 | MICA__PROTO_BYTES);
    put_varint(out, sized.size);
    write(out, from);
}

static void put_model(output *out, const mica__sentencepiece *model)
{
    for (uint32_t i = 0; i < model->count; i++)
        put_message(out, 1, put_piece, &model->piece[i]);
    put_message(out, 2, put_trainer, model);
    put_message(out, 3, put_normalizer, model);
}

mica_status mica__sentencepiece_write(const mica__sentencepiece *model, char **out_bytes, size_t *out_size)
{
    output out = {0};
    put_model(&out, model);
    *out_bytes = mica__alloc(out.size);
    *out_size = out.size;
    if (*out_bytes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a tokenizer.model of %zu bytes", out.size);
    out = (output){.bytes = (uint8_t *)*out_bytes};
    put_model(&out, model);
    return MICA_OK;
}

void mica__sentencepiece_free(mica__sentencepiece *model)
{
    mica__free(model->piece);
    *model = (mica__sentencepiece){0};
}
