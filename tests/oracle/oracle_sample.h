/*
 * oracle_sample.h - the end of a decode step in double precision: changed logits, chances, the drawn token.
 *
 * A sampler decides by comparing sums, and f32 sums may fall on either side of a bound that they nearly meet. So beside a
 * choice stands its `margin`: how far the nearest decision was from going the other way, as a part of 1.
 */
#ifndef ORACLE_SAMPLE_H
#define ORACLE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct oracle_sampling {
    uint64_t seed, pick;
    double temperature, top_p, min_p, typical_p;
    size_t top_k, keep;
} oracle_sampling;

/* The chance of each token of [count] logits to be drawn, 0 for those that a filter takes away; all 0 where there is
 * no candidate. Returns the margin of the filters. */
double oracle_sample_chances(const oracle_sampling *sampling, size_t count, const double *logits,
                             double *chance);
/* The token that is drawn, -1 if there is none, and the margin of it all. */
int64_t oracle_sample_pick(const oracle_sampling *sampling, size_t count, const double *logits,
                           double *margin);
/* The number in [0, 1) that a draw is made with: 24 bits. */
double oracle_sample_number(uint64_t seed, uint64_t pick);
/* log of a token's part in the softmax; `error` as in oracle_ops.h. */
double oracle_log_probability(size_t count, const double *logits, size_t id, double *error);

typedef struct oracle_penalties {
    size_t count; /* of logits */
    size_t slots; /* of the bias */
    const double *bias_ids, *bias;
    const uint32_t *mask; /* NULL: all are admitted */
    size_t width;         /* of the history; 0: none */
    const double *history;
    size_t last, next;
    double repeat, presence, frequency;
} oracle_penalties;

/* y from logits. False when an id points outside. */
bool oracle_penalize(const oracle_penalties *penalties, const double *logits, double *y, double *error);

#endif
