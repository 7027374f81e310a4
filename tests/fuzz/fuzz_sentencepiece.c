/* fuzz_sentencepiece.c: any bytes as a tokenizer.model. What is accepted is written and read again: the same pieces. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "format/config/sentencepiece.h"
#include "mica/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

static void check_piece(const mica__token_list_piece *piece, const uint8_t *data, size_t size)
{
    require(piece->length != 0 && isfinite(piece->score));
    require(piece->kind >= MICA__PIECE_NORMAL && piece->kind <= MICA__PIECE_BYTE);
    require(piece->text >= (const char *)data && piece->text + piece->length <= (const char *)data + size);
}

static void compare(const mica__sentencepiece *a, const mica__sentencepiece *b)
{
    require(a->count == b->count && a->unigram == b->unigram && a->prefix == b->prefix && a->trim == b->trim);
    require(a->chars_length == b->chars_length);
    for (uint32_t i = 0; i < a->count; i++) {
        const mica__token_list_piece *x = &a->piece[i], *y = &b->piece[i];
        require(x->length == y->length && memcmp(x->text, y->text, x->length) == 0);
        require(memcmp(&x->score, &y->score, sizeof x->score) == 0 && x->kind == y->kind);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mica__sentencepiece first, second;
    char *bytes = NULL;
    size_t length = 0;
    if (mica__sentencepiece_parse("input", data, size, &first) != MICA_OK) {
        require(mica_status_message()[0] != '\0' && mica_host_bytes() == 0);
        return 0;
    }
    for (uint32_t i = 0; i < first.count; i++)
        check_piece(&first.piece[i], data, size);
    require(mica__sentencepiece_write(&first, &bytes, &length) == MICA_OK);
    require(mica__sentencepiece_parse("again", bytes, length, &second) == MICA_OK);
    compare(&first, &second);
    mica__sentencepiece_free(&first);
    mica__sentencepiece_free(&second);
    mica__free(bytes);
    require(mica_host_bytes() == 0);
    return 0;
}
