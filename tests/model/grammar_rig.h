/* grammar_rig.h - what the tests of grammars and samplers share: a vocabulary of single bytes, asking a grammar about
 * a whole text, and failing each allocation in turn. */
#ifndef TEST_MODEL_GRAMMAR_RIG_H
#define TEST_MODEL_GRAMMAR_RIG_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "support/meter.h"
#include "support/random.h"
#include "support/status.h"

#include "mica/host.h"
#include "mica/sample.h"
#include "grammar/vocabulary.h"

#define RIG_END 256u /* the end token of the vocabulary of bytes */

/* Token i is the byte i; one more ends the text. */
static inline mica__vocabulary *rig_bytes(void)
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
    ends[RIG_END] = 1;
    must(mica__vocabulary_create(257, bytes, offsets, ends, &vocabulary));
    return vocabulary;
}

/* Whether the whole text matches; *out_prefix, if not NULL: how many of its bytes were taken. */
static inline bool rig_matches(mica_grammar *grammar, mica__vocabulary *bytes, const char *text,
                               size_t length, size_t *out_prefix)
{
    mica_grammar_state *state = NULL;
    size_t taken = 0;
    bool ends;
    must(mica__grammar_begin(grammar, bytes, &state));
    while (taken < length && mica_grammar_accept(state, (unsigned char)text[taken]) == MICA_OK)
        taken++;
    ends = taken == length && mica_grammar_may_end(state);
    mica_grammar_state_release(state);
    if (out_prefix != NULL)
        *out_prefix = taken;
    return ends;
}

/* Calls `play` with each of its allocations failing in turn: it must end with OUT_OF_MEMORY and keep nothing. Returns
 * how many there were. */
static inline uint64_t rig_fail_allocations(mica_status (*play)(void *context), void *context)
{
    test_meter f = {.fail_at = 1};
    for (;; f.fail_at++) {
        mica_status status;
        f.calls = 0;
        must(test_meter_set(&f));
        status = play(context);
        must(mica_set_allocator(NULL));
        assert_int_equal(f.live, 0);
        if (f.calls < f.fail_at) {
            must(status);
            return f.calls;
        }
        if (status != MICA_ERR_OUT_OF_MEMORY)
            fail_msg("allocation %llu: %s: %s", (unsigned long long)f.fail_at, mica_status_name(status),
                     mica_status_message());
    }
}

#endif
