/*
 * sample.h - choosing the next token: filters over logits, penalties, grammars; of the library libmica-model.
 *
 * The order is fixed: bias, grammar mask, penalties (repeat, presence, frequency), DRY, top-k, typical, top-p, min-p,
 * XTC, temperature, draw. Mirostat takes the place of the filters from top-k to XTC and comes after the temperature.
 * A filter at its neutral value costs nothing. The same seed and the same logits give the same tokens on every
 * machine of one instruction set.
 *
 * Threads: a grammar is immutable: any thread at once. A sampler, a grammar state: one thread at a time; any number
 * side by side. Picking allocates nothing, but that a grammar state grows while it meets what it has not met before.
 *
 * Whoever wrote a schema or a grammar, a call ends: it takes n log n steps for a schema or grammar of n bytes, unless
 * its choices multiply each other; then, and where a text can be read in very many ways, it is BUDGET by the limits
 * of the thread's work (work.h): `steps`, and `states`, which bounds the different places of a schema, and the places
 * and sets of places that a grammar state remembers (those beyond it are forgotten and found again; BUDGET where one
 * call needs more). CANCELLED within 100 ms. No call here needs more than 128 KB of stack.
 */
#ifndef MICA_SAMPLE_H
#define MICA_SAMPLE_H

#include "mica/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- grammar -------------------------------------------------------------------------------------------- */

typedef struct mica_grammar mica_grammar;

/* A grammar in GBNF; the text must match the rule `root` (NULL: "root"). INVALID_ARGUMENT gives line and
 * column, or says that no text matches; UNSUPPORTED names a rule that can begin with itself (left recursion);
 * BUDGET: past 16 MB, 2^24 characters, rules and classes, groups more than 200 deep, or a limit of the work.
 * The caller releases *out_grammar. */
MICA_API mica_status mica_grammar_create(const char *gbnf, uint64_t length, const char *root,
                                         mica_grammar **out_grammar);
/* A grammar of JSON texts that a JSON schema admits: each text that matches is valid, not each valid text matches.
 * Properties come in the order of the schema, and no others beside them unless additionalProperties or required asks
 * for some; a schema without a type means the types that its keywords speak of; numbers have at most 16 digits on
 * either side of the point; blanks stand only where pretty printers put them. UNSUPPORTED names the keyword that cannot
 * be kept, and its place; INVALID_ARGUMENT: no schema, or one that nothing satisfies; BUDGET: its text or that of its
 * grammar is past 16 MB, or a limit of the work. The caller releases *out_grammar. */
MICA_API mica_status mica_grammar_from_schema(const char *schema, uint64_t length,
                                              mica_grammar **out_grammar);
/* NULL is fine. */
MICA_API void mica_grammar_release(mica_grammar *grammar);
/* The GBNF text of a grammar, as printed from its rules; the caller frees it with mica_text_free.
 * INVALID_ARGUMENT for NULL, OUT_OF_MEMORY. */
MICA_API mica_status mica_grammar_print(const mica_grammar *grammar, char **out_text, uint64_t *out_length);

/* Where a text stands in a grammar. Keeps the grammar. */
typedef struct mica_grammar_state mica_grammar_state;
/* `tokenizer` is kept and gives tokens their text: control tokens have none and are never admitted, end tokens only
 * where the text may end. The grammar remembers the vocabulary for the next state with the same tokenizer. BUDGET: the
 * text can begin in too many ways. The caller releases *out_state. */
MICA_API mica_status mica_grammar_begin(mica_grammar *grammar, const mica_tokenizer *tokenizer,
                                        mica_grammar_state **out_state);
/* NULL is fine. */
MICA_API void mica_grammar_state_release(mica_grammar_state *state);
/* Bit i % 32 of mask[i / 32] becomes 1 if token i may come next; end tokens only where the text may end, and nothing
 * else after one. `words` is the length of mask, (count + 31) / 32 or more; the rest becomes 0. BUDGET: the text can be
 * read in too many ways; the state is as before. */
MICA_API mica_status mica_grammar_mask(mica_grammar_state *state, uint32_t *mask, uint64_t words);
/* Moves on by a token. INVALID_ARGUMENT if the grammar does not admit it; then the state is as before. */
MICA_API mica_status mica_grammar_accept(mica_grammar_state *state, uint32_t id);
/* 1 if the text may end here. */
MICA_API int mica_grammar_may_end(const mica_grammar_state *state);
/* Back to the beginning. */
MICA_API void mica_grammar_reset(mica_grammar_state *state);

/* ---- sampler -------------------------------------------------------------------------------------------- */

typedef struct mica_sampler mica_sampler;

typedef struct mica_logit_bias {
    uint32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
} mica_logit_bias;

/* Get the neutral values with mica_sampling_default and change what you want. */
typedef struct mica_sampling {
    uint64_t size; /* sizeof(mica_sampling); 0 = this version's */
    uint64_t seed;
    float temperature; /* 0: the most likely token, everything after the penalties is skipped; default 0.8 */
    uint32_t top_k;    /* 0: all; default 40 */
    float top_p;       /* 1: all; default 0.95 */
    float min_p;       /* 0: all; default 0.05 */
    float typical_p;   /* 1: all */
    float xtc_probability;   /* 0: never */
    float xtc_threshold;     /* 0.1; above 0.5 it does nothing */
    float repeat_penalty;    /* 1: none; logits of seen tokens divided (positive) or multiplied (negative) */
    float presence_penalty;  /* 0: none; taken off once */
    float frequency_penalty; /* 0: none; taken off per occurrence */
    uint32_t penalty_last;   /* tokens looked back on, up to 2^20; 0: none; default 64 */
    float dry_multiplier;    /* 0: none */
    float dry_base;          /* 1.75 */
    uint32_t dry_allowed;    /* 2 */
    uint32_t dry_last;       /* tokens looked back on, up to 2^20; 0 = all kept (penalty window of 4096) */
    /* texts that end a sequence, up to 1024 of up to 256 bytes; NULL: "\n" ":" "\"" "*" */
    const char *const *dry_breakers;
    uint32_t dry_breaker_count;
    uint32_t mirostat;  /* 0 or 2 */
    float mirostat_tau; /* 5 */
    float mirostat_eta; /* 0.1 */
    const mica_logit_bias *bias;
    uint32_t bias_count;
    uint32_t keep_at_least; /* tokens that no filter takes away; 0 = 1 */
} mica_sampling;

typedef struct mica_token_chance {
    uint32_t id;
    float log_probability; /* natural, of the softmax of the raw logits */
} mica_token_chance;

/* The default values, as people know them from other programs. */
MICA_API void mica_sampling_default(mica_sampling *out);
/* A sampler for logits of `vocabulary` tokens. `tokenizer` (for the DRY breakers) and `grammar` may be NULL; both are
 * kept. INVALID_ARGUMENT names the field. The caller releases *out_sampler. */
MICA_API mica_status mica_sampler_create(const mica_sampling *sampling, uint32_t vocabulary,
                                         const mica_tokenizer *tokenizer, mica_grammar *grammar,
                                         mica_sampler **out_sampler);
/* NULL is fine. */
MICA_API void mica_sampler_release(mica_sampler *sampler);
/* The next token for these logits, [vocabulary] floats, not changed. NaN never wins. Does not accept it.
 * INVALID_ARGUMENT where nothing can be chosen (all NaN, or all forbidden). */
MICA_API mica_status mica_sampler_pick(mica_sampler *sampler, const float *logits, uint32_t *out_id);
/* The token has become part of the text: penalties and grammar move on. Tokens of the prompt too, if the penalties
 * should know them: then with `in_grammar` 0. */
MICA_API mica_status mica_sampler_accept(mica_sampler *sampler, uint32_t id, int in_grammar);
/* Forgets all tokens; the random numbers start again from the seed. */
MICA_API void mica_sampler_reset(mica_sampler *sampler);
/* The most likely tokens of these logits before any filter, best first, equal ones by id; NaN and -infinity are none,
 * and where too few are left the rest is MICA_NO_TOKEN. `count` is from 1 to vocabulary. */
MICA_API mica_status mica_sampler_chances(mica_sampler *sampler, const float *logits, uint32_t count,
                                          mica_token_chance *out);
/* The candidates that the filters of the last pick left, most likely first, with the natural logarithm of the
 * probability each was drawn with; out_count is how many (0 before a pick and after mica_sampler_chances), `capacity`
 * cuts what is written. */
MICA_API mica_status mica_sampler_candidates(mica_sampler *sampler, mica_token_chance *out, uint32_t capacity,
                                             uint32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
