/* fuzz_grammar.c: any bytes are GBNF, and after a NUL a text to hold against it. What is printed of a grammar that was
 * read must be read again and take and refuse the same; a mask must say what accept does. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mica/host.h"
#include "grammar/vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

static mica__vocabulary *byte_tokens(void)
{
    char bytes[256];
    uint32_t offsets[258];
    uint8_t ends[257] = {0};
    mica__vocabulary *vocabulary = NULL;
    for (uint32_t i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        offsets[i] = i;
    }
    offsets[256] = offsets[257] = 256;
    ends[256] = 1;
    require(mica__vocabulary_create(257, bytes, offsets, ends, &vocabulary) == MICA_OK);
    return vocabulary;
}

/* Both grammars read the text side by side, as far as they take it. A limit may stop either. */
static void compare(mica_grammar *a, mica_grammar *b, const uint8_t *text, size_t size)
{
    mica__vocabulary *tokens = byte_tokens();
    mica_grammar_state *x = NULL, *y = NULL;
    uint32_t mask[9];
    if (mica__grammar_begin(a, tokens, &x) == MICA_OK && mica__grammar_begin(b, tokens, &y) == MICA_OK) {
        for (size_t i = 0; i < size && i < 64; i++) {
            if (mica_grammar_mask(x, mask, 9) != MICA_OK)
                break;
            const int admitted = mask[text[i] / 32] >> text[i] % 32 & 1;
            const mica_status first = mica_grammar_accept(x, text[i]),
                              second = mica_grammar_accept(y, text[i]);
            require((first == MICA_OK) == admitted);
            if (first == MICA_ERR_BUDGET || second == MICA_ERR_BUDGET)
                break;
            require(first == second);
            require(mica_grammar_may_end(x) == mica_grammar_may_end(y));
        }
    }
    mica_grammar_state_release(x);
    mica_grammar_state_release(y);
    mica__vocabulary_release(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size == 0 ? NULL : memchr(data, 0, size);
    const size_t length = cut == NULL ? size : (size_t)(cut - data);
    mica_grammar *first = NULL, *second = NULL;
    char *text = NULL;
    uint64_t text_length = 0;
    if (mica_grammar_create((const char *)data, length, NULL, &first) != MICA_OK) {
        require(first == NULL && mica_status_message()[0] != '\0');
    } else {
        require(mica_grammar_print(first, &text, &text_length) == MICA_OK);
        require(mica_grammar_create(text, text_length, NULL, &second) == MICA_OK);
        if (cut != NULL)
            compare(first, second, cut + 1, size - length - 1);
        mica_text_free(text);
        mica_grammar_release(first);
        mica_grammar_release(second);
    }
    require(mica_host_bytes() == 0);
    return 0;
}
