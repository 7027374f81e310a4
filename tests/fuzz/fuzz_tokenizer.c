/* fuzz_tokenizer.c: a tokenizer.json, a NUL, and a text to encode with it. What loads encodes to ids in range, or ends with a status;
 * the ids decode to valid UTF-8, at once and token by token alike. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "mica/host.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

static void decode(const mica_tokenizer *tokenizer, const uint32_t *ids, uint64_t count)
{
    mica_detokenizer *detokenizer = NULL;
    mica_string part;
    uint64_t length = 0, again = 0, at = 0;
    require(mica_tokenizer_decode(tokenizer, ids, count, MICA_DECODE_START, NULL, 0, &length) == MICA_OK);
    char *text = malloc(length + 1);
    require(text != NULL &&
            mica_tokenizer_decode(tokenizer, ids, count, MICA_DECODE_START, text, length, &again) == MICA_OK);
    require(length == again);
    for (size_t i = 0, bytes; i < length; i += bytes)
        require((bytes = mica__utf8_length(text + i, length - i)) != 0);
    require(mica_detokenizer_create(tokenizer, MICA_DECODE_START, &detokenizer) == MICA_OK);
    for (uint64_t i = 0; i <= count; i++) {
        require((i < count ? mica_detokenizer_push(detokenizer, ids[i], &part)
                           : mica_detokenizer_flush(detokenizer, &part)) == MICA_OK);
        require(part.length <= length - at && memcmp(text + at, part.data, part.length) == 0);
        at += part.length;
    }
    require(at == length);
    mica_detokenizer_release(detokenizer);
    free(text);
}

static void encode(const mica_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags)
{
    mica_tokenizer_info info;
    uint64_t count = 0, again = 0;
    require(mica_tokenizer_get_info(tokenizer, &info) == MICA_OK);
    if (mica_tokenizer_encode(tokenizer, text, length, flags, NULL, 0, &count) != MICA_OK)
        return;
    uint32_t *ids = calloc(count + 1, sizeof *ids);
    require(ids != NULL &&
            mica_tokenizer_encode(tokenizer, text, length, flags, ids, count, &again) == MICA_OK);
    require(count == again);
    for (uint64_t i = 0; i < count; i++)
        require(ids[i] < info.count);
    decode(tokenizer, ids, count);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, 0, size);
    const size_t length = end != NULL ? (size_t)(end - data) : size;
    const char *text = end != NULL ? (const char *)end + 1 : "";
    const size_t rest = end != NULL ? size - length - 1 : 0;
    mica_tokenizer *tokenizer = NULL;
    if (mica__tokenizer_from_json(NULL, (const char *)data, length, &tokenizer) == MICA_OK) {
        encode(tokenizer, text, rest, 0);
        encode(tokenizer, text, rest, MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL);
    } else {
        require(tokenizer == NULL && mica_status_message()[0] != '\0');
    }
    mica_tokenizer_release(tokenizer);
    require(mica_host_bytes() == 0);
    return 0;
}
