/* fuzz_schema.c: any bytes are a JSON schema: a grammar comes out, or a sentence, and nothing is kept. A text that the
 * grammar takes, walked by always taking an admitted byte, is JSON. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/json/json.h"
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
    uint32_t offsets[257];
    mica__vocabulary *vocabulary = NULL;
    for (uint32_t i = 0; i <= 256; i++)
        offsets[i] = i;
    for (uint32_t i = 0; i < 256; i++)
        bytes[i] = (char)i;
    require(mica__vocabulary_create(256, bytes, offsets, NULL, &vocabulary) == MICA_OK);
    return vocabulary;
}

/* Takes admitted bytes, which the data choose, until the text may end. */
static void walk(mica_grammar *grammar, const uint8_t *data, size_t size)
{
    mica__vocabulary *tokens = byte_tokens();
    mica_grammar_state *state = NULL;
    char text[256];
    size_t length = 0;
    uint32_t mask[8];
    if (mica__grammar_begin(grammar, tokens, &state) == MICA_OK) {
        while (length < sizeof text && !mica_grammar_may_end(state) &&
               mica_grammar_mask(state, mask, 8) == MICA_OK) {
            uint32_t byte = data[length % size];
            uint32_t tries = 0;
            while (tries++ < 256 && (mask[byte / 32] >> byte % 32 & 1) == 0)
                byte = (byte + 1) % 256;
            require(tries <= 256); /* a text that may not end can go on */
            require(mica_grammar_accept(state, byte) == MICA_OK);
            text[length++] = (char)byte;
        }
        if (mica_grammar_may_end(state)) {
            mica__json *json = NULL;
            const mica_status status = mica__json_parse(text, length, NULL, &json);
            require(status == MICA_OK ||
                    strstr(mica_status_message(), "comes twice") != NULL); /* names of other properties */
            mica__json_release(json);
        }
    }
    mica_grammar_state_release(state);
    mica__vocabulary_release(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mica_grammar *grammar = NULL;
    if (mica_grammar_from_schema((const char *)data, size, &grammar) == MICA_OK)
        walk(grammar, data, size);
    else
        require(grammar == NULL && mica_status_message()[0] != '\0');
    mica_grammar_release(grammar);
    require(mica_host_bytes() == 0);
    return 0;
}
