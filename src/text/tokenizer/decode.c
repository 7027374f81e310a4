/* decode.c: ids to text. Tokens are bytes; what goes out is characters: the bytes of one that is not complete
 * wait, bytes that can become none are U+FFFD, one for each longest beginning of a character. */
#include <string.h>

#include "base/argument.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

#define REPLACEMENT "\xef\xbf\xbd"
#define MOST_WAITING 3 /* bytes of a character that is not complete */

struct mica_detokenizer {
    mica_tokenizer *tokenizer;
    uint32_t flags;
    bool at_start; /* nothing has gone out yet */
    size_t waiting;
    char *in;  /* [MOST_WAITING + longest piece]: what waits, then the new piece */
    char *out; /* [3 * (MOST_WAITING + longest piece) + 1]: every byte may become U+FFFD; and a NUL */
};

/* How many bytes at `text` are the beginning of a character that `left` bytes cannot tell: 0 if they can become none. */
static size_t half_character(const char *text, size_t left)
{
    const unsigned char *at = (const unsigned char *)text;
    /* Completed with each of these, a beginning becomes a character if it can become any. */
    static const char ends[] = "\x80\xbf";
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    const size_t whole = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    for (size_t have = left < whole ? left : whole - 1; have > 0; have--)
        for (size_t i = 0; i < 2; i++) {
            char full[4];
            memcpy(full, text, have);
            memset(full + have, ends[i], whole - have);
            if (mica__utf8_length(full, whole) == whole)
                return have;
        }
    return 0;
}

/* Moves whole characters from in[0 .. size) to out; keeps a beginning at the end unless `last`. */
static size_t put_characters(mica_detokenizer *d, size_t size, bool last)
{
    size_t at = 0, written = 0;
    while (at < size) {
        size_t bytes = mica__utf8_length(d->in + at, size - at);
        if (bytes != 0) {
            memcpy(d->out + written, d->in + at, bytes);
            written += bytes;
        } else {
            bytes = half_character(d->in + at, size - at);
            if (bytes == size - at && bytes != 0 && !last)
                break;
            bytes = bytes == 0 ? 1 : bytes;
            memcpy(d->out + written, REPLACEMENT, 3);
            written += 3;
        }
        at += bytes;
    }
    d->waiting = size - at;
    memmove(d->in, d->in + at, d->waiting);
    d->out[written] = '\0';
    return written;
}

static size_t push(mica_detokenizer *d, uint32_t id)
{
    const mica_tokenizer *t = d->tokenizer;
    const uint8_t kind = t->token_kind[id];
    const bool hidden = kind == MICA_TOKEN_CONTROL || kind == MICA_TOKEN_UNKNOWN;
    if (hidden && (d->flags & MICA_DECODE_SPECIAL) == 0) {
        d->out[0] = '\0';
        return 0;
    }
    mica_string piece = t->piece[id];
    if (d->at_start && t->spelling.lead && (d->flags & MICA_DECODE_START) != 0 && piece.length != 0 &&
        piece.data[0] == ' ')
        piece = (mica_string){piece.data + 1, piece.length - 1};
    d->at_start = false;
    if (piece.length != 0)
        memcpy(d->in + d->waiting, piece.data, (size_t)piece.length);
    return put_characters(d, d->waiting + (size_t)piece.length, false);
}

static mica_status create(const mica_tokenizer *tokenizer, uint32_t flags, mica_detokenizer **out_detokenizer)
{
    if (out_detokenizer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_detokenizer is NULL");
    *out_detokenizer = NULL;
    if (tokenizer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "tokenizer is NULL");
    MICA__TRY(mica__check_flags("flags", flags, MICA_DECODE_SPECIAL | MICA_DECODE_START));
    const size_t room = MOST_WAITING + (size_t)tokenizer->longest_piece;
    mica_detokenizer *d = mica__alloc(sizeof *d + room * 4 + 1);
    if (d == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a detokenizer");
    *d = (mica_detokenizer){.tokenizer = (mica_tokenizer *)(uintptr_t)mica__tokenizer_retain(tokenizer),
                            .flags = flags,
                            .at_start = true};
    d->in = (char *)(d + 1);
    d->out = d->in + room;
    *out_detokenizer = d;
    return MICA_OK;
}

mica_status mica_detokenizer_create(const mica_tokenizer *tokenizer, uint32_t flags,
                                    mica_detokenizer **out_detokenizer)
{
    mica__call call;
    mica__call_begin(&call, "detokenizer_create");
    return mica__call_end(&call, create(tokenizer, flags, out_detokenizer));
}

void mica_detokenizer_release(mica_detokenizer *detokenizer)
{
    if (detokenizer == NULL)
        return;
    mica_tokenizer_release(detokenizer->tokenizer);
    mica__free(detokenizer);
}

static mica_status check_id(const mica_tokenizer *tokenizer, uint32_t id)
{
    if (id < tokenizer->count)
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "id is %u, the tokenizer has %u tokens", id,
                      tokenizer->count);
}

mica_status mica_detokenizer_push(mica_detokenizer *detokenizer, uint32_t id, mica_string *out_text)
{
    if (detokenizer == NULL || out_text == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          detokenizer == NULL ? "detokenizer" : "out_text");
    *out_text = (mica_string){"", 0};
    const mica_status status = check_id(detokenizer->tokenizer, id);
    if (status == MICA_OK)
        *out_text = (mica_string){detokenizer->out, push(detokenizer, id)};
    return status;
}

mica_status mica_detokenizer_flush(mica_detokenizer *detokenizer, mica_string *out_text)
{
    if (detokenizer == NULL || out_text == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          detokenizer == NULL ? "detokenizer" : "out_text");
    *out_text = (mica_string){detokenizer->out, put_characters(detokenizer, detokenizer->waiting, true)};
    detokenizer->at_start = true;
    return MICA_OK;
}

static void append(char *text, uint64_t capacity, uint64_t *length, const char *more, size_t bytes)
{
    if (*length < capacity && bytes != 0) {
        const uint64_t room = capacity - *length;
        memcpy(text + *length, more, bytes < room ? bytes : (size_t)room);
    }
    *length += bytes;
}

#define PIECE 4096 /* tokens between two looks at the limits */

static mica_status decode(const mica_tokenizer *tokenizer, const uint32_t *ids, uint64_t count,
                          uint32_t flags, char *text, uint64_t capacity, uint64_t *out_length)
{
    mica_detokenizer *d = NULL;
    if (out_length == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_length is NULL");
    *out_length = 0;
    if ((ids == NULL && count != 0) || (text == NULL && capacity != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          ids == NULL && count != 0 ? "ids" : "text");
    mica__spend_allow(count * sizeof *ids);
    mica_status status = create(tokenizer, flags, &d);
    uint64_t length = 0, spent = 0;
    for (uint64_t i = 0; i < count && status == MICA_OK; i++) {
        status = check_id(tokenizer, ids[i]);
        if (status == MICA_OK)
            append(text, capacity, &length, d->out, push(d, ids[i]));
        if (i % PIECE == PIECE - 1 || i + 1 == count || length - spent > (uint64_t)PIECE * 16) {
            const mica_status left = mica__spend(PIECE + (length - spent));
            status = status == MICA_OK ? left : status;
            spent = length;
        }
    }
    if (status == MICA_OK) {
        append(text, capacity, &length, d->out, put_characters(d, d->waiting, true));
        *out_length = length;
    }
    mica_detokenizer_release(d);
    return status;
}

mica_status mica_tokenizer_decode(const mica_tokenizer *tokenizer, const uint32_t *ids, uint64_t count,
                                  uint32_t flags, char *text, uint64_t capacity, uint64_t *out_length)
{
    mica__call call;
    mica__call_begin(&call, "tokenizer_decode");
    return mica__call_end(&call, decode(tokenizer, ids, count, flags, text, capacity, out_length));
}
