/* sample.h: the filters over candidates, and the tokens a sampler looks back on.
 *
 * A candidate list goes through the filters one after the other; each takes candidates away and changes no other's
 * logit, but for the temperature. They know no vocabulary and allocate nothing. They mean the same as mica_penalize and
 * mica_sample (ops.h), which take their place in a decode step, in double precision; mirostat, DRY and XTC are here
 * alone. */
#ifndef MICA_SAMPLE_SAMPLE_H
#define MICA_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "mica/ops.h"
#include "mica/sample.h"

typedef struct mica__candidate {
    uint32_t id;
    float logit; /* finite */
} mica__candidate;

typedef struct mica__candidates {
    mica__candidate *items;   /* [capacity] */
    mica__candidate *scratch; /* [capacity] */
    double *chance;           /* [capacity], of items after `softmax` */
    uint32_t count;
    uint32_t least; /* how many no filter goes below; at least 1 */
    bool sorted;    /* by logit, highest first, equal ones by id */
} mica__candidates;

/* Fills the list with the `k` highest of [count] logits, sorted; k 0: all of them, by id. NaN and -infinity are no
 * candidates, +infinity counts as the highest finite number. */
void mica__candidates_gather(mica__candidates *list, const float *logits, uint32_t count, uint32_t k);
/* Highest logit first, equal ones by id. */
void mica__candidates_sort(mica__candidates *list);
/* By id: the order in which a draw goes through them. */
void mica__candidates_order(mica__candidates *list);
/* Sets chance[i] = exp(logit[i] - max) / sum. Returns the natural logarithm of sum exp(logit - max), plus max. */
double mica__candidates_softmax(mica__candidates *list);

/* Keeps the shortest run of the most likely ones whose chances add up to p or more. 1: all. */
void mica__filter_top_p(mica__candidates *list, double p);
/* Keeps those at least p times as likely as the most likely one. 0: all. */
void mica__filter_min_p(mica__candidates *list, double p);
/* Orders by the distance of -log(chance) from the entropy, nearest first, equal logits by id, and keeps the shortest
 * run whose chances add up to more than p. 1: all. */
void mica__filter_typical(mica__candidates *list, double p);
/* Of those with a chance of `threshold` or more, takes away all but the least likely one. */
void mica__filter_xtc(mica__candidates *list, double threshold);
/* Divides the logits, measured from the highest, by a temperature above 0. */
void mica__filter_temperature(mica__candidates *list, float temperature);
/* Keeps those whose surprise, -log2(chance), is at most mu. */
void mica__filter_surprise(mica__candidates *list, double mu);

/* Takes a logit for a token that was seen `times` times, at least 1, to the one after the penalties. */
float mica__penalty(const mica_sampling *sampling, float logit, uint32_t times);

/* ---- looking back --------------------------------------------------------------------------------------- */

/* The last tokens of a text, newest last, in a ring. */
typedef struct mica__history {
    uint32_t *ids;                  /* [capacity] */
    uint8_t *breaks;                /* [capacity] 1: a DRY breaker ends in this token */
    uint32_t capacity, count, head; /* head: where the next one goes */
} mica__history;

/* The token `back` places before the end; 0 is the newest. */
static inline uint32_t mica__history_at(const mica__history *history, uint32_t back)
{
    return history->ids[(history->head + history->capacity - 1 - back) % history->capacity];
}

void mica__history_push(mica__history *history, uint32_t id, bool breaks);

/* For each token that would continue a repetition, sets longest[id] to the length of the longest run, at least
 * `allowed`, that ends the text and also stands earlier with this token after it. Looks at the last `last` tokens, and
 * at no run that reaches back over a break. The ids are written to `found`; returns how many. `lengths` is [last]
 * scratch, longest is all 0 before. */
uint32_t mica__dry_search(const mica__history *history, uint32_t last, uint32_t allowed, uint32_t *lengths,
                          uint32_t *longest, uint32_t *found);

/* What DRY takes off a logit. */
float mica__dry_penalty(const mica_sampling *sampling, uint32_t length);

/* ---- the sampler ---------------------------------------------------------------------------------------- */

#define MICA__SAMPLE_LONGEST_BREAKER 256u

/* The texts that end a sequence, by what they begin with. */
typedef struct mica__breakers {
    struct mica__breaker_node *nodes; /* [count], the first is the empty beginning; NULL: there are none */
    uint32_t *table;                  /* [slots] by parent and byte */
    uint32_t count, slots;
    uint64_t seed;
} mica__breakers;

/* From texts of 1 to LONGEST_BREAKER bytes; freed whether this fails or not. */
mica_status mica__breakers_make(mica__breakers *all, const char *const *texts, uint32_t count);
void mica__breakers_free(mica__breakers *all);
/* Reads bytes from a node on, which is 0 at the beginning; whether a breaker ends in them. */
bool mica__breakers_read(const mica__breakers *breakers, mica_string bytes, uint32_t *node);

struct mica_sampler {
    mica_sampling sampling; /* its bias and dry_breakers point into this sampler's own memory */
    uint32_t vocabulary;
    const mica_tokenizer *tokenizer; /* kept; may be NULL */
    mica_grammar_state *grammar;     /* NULL: none */
    mica__candidates list;
    float *logits;  /* [vocabulary] changed logits; NULL when nothing ever changes them */
    uint32_t *mask; /* [words] */
    uint64_t words;
    mica__history history;
    uint32_t *counts;  /* [vocabulary], all 0 between picks */
    uint32_t *lengths; /* [history.capacity] */
    uint32_t *found;   /* [history.capacity] */
    mica_logit_bias *bias;
    mica__breakers breakers;
    uint32_t broken;     /* where the text stands in them */
    uint8_t *is_breaker; /* [vocabulary] whether one ends inside of a token: 0 not asked yet, 1 no, 2 yes */
    uint64_t picks;      /* drawn so far */
    double mu;           /* mirostat: the surprise that is let through */
    double surprise;     /* of the last pick, in bits */
    uint32_t picked;     /* MICA_NO_TOKEN: none, or accepted already */
};

/* ---- for the ops ---------------------------------------------------------------------------------------- */

/* Whether mica_penalize and mica_sample can do all that this sampler asks for. */
bool mica__sampler_in_ops(const mica_sampler *sampler);

/* Operands that it then needs: the width of a history, slots of a bias (0: none), a mask. */
typedef struct mica__sampler_needs {
    uint32_t history, bias;
    bool mask;
} mica__sampler_needs;
mica__sampler_needs mica__sampler_measure(const mica_sampler *sampler);

/* Its row of settings, for a history of this width that mica__sampler_write wrote. */
void mica__sampler_settings(const mica_sampler *sampler, uint32_t history_width, mica_sample_settings *out);
/* Its rows of a history [width] and of a bias [slots]; NULL: empty ones. */
void mica__sampler_write(const mica_sampler *sampler, uint32_t *history, uint32_t width, uint32_t *bias_ids,
                         uint32_t *bias, uint32_t slots);
/* The mask of its grammar. */
mica_status mica__sampler_mask(mica_sampler *sampler, uint32_t *mask, uint64_t words);
/* A token was picked by the ops. */
void mica__sampler_picked(mica_sampler *sampler, uint32_t id);
/* log of a token's part in the softmax of logits. */
float mica__log_probability(const float *logits, uint32_t count, uint32_t id);

/* ---- random numbers ------------------------------------------------------------------------------------- */

/* Number `index` of stream `stream` of a seed, in [0, 1) with 53 bits: the same on every machine, in any order. */
double mica__random_at(uint64_t seed, uint64_t index, uint32_t stream);

#endif
