/*
 * oracle_tape.h - derivatives without formulas of derivatives: a forward pass in double whose sums, products and functions are kept, each with its own
 * slopes, and then gone through backwards. Beside each gradient goes how far it may be off, in roundings, if all of this is computed in one
 * precision: each sum, product and function rounds, and so does each slope.
 */
#ifndef ORACLE_TAPE_H
#define ORACLE_TAPE_H

#include <stddef.h>

typedef struct oracle_step {
    double value, slope[2];
    size_t from[2]; /* steps; this one itself: none */
    double gradient;
    double off, slope_off[2], gradient_off; /* in roundings */
} oracle_step;

typedef struct oracle_tape {
    oracle_step *step;
    size_t count, room;
} oracle_tape;

size_t oracle_tape_value(oracle_tape *tape, double value);
size_t oracle_tape_add(oracle_tape *tape, size_t a, size_t b);
size_t oracle_tape_subtract(oracle_tape *tape, size_t a, size_t b);
size_t oracle_tape_multiply(oracle_tape *tape, size_t a, size_t b);
/* A function of one value whose value, slope and slope of the slope the caller knows. */
size_t oracle_tape_function(oracle_tape *tape, size_t a, double value, double slope, double curve);
size_t oracle_tape_exp(oracle_tape *tape, size_t a);
size_t oracle_tape_sigmoid(oracle_tape *tape, size_t a);
size_t oracle_tape_tanh(oracle_tape *tape, size_t a);
/* What reaches a step from outside. */
void oracle_tape_reach(oracle_tape *tape, size_t a, double gradient);
/* Backwards. */
void oracle_tape_run(oracle_tape *tape);
void oracle_tape_free(oracle_tape *tape);

#endif
