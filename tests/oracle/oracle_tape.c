/* oracle_tape.c - a forward pass kept step by step, and gone through backwards. */
#include "oracle/oracle_tape.h"

#include <math.h>
#include <stdlib.h>

#define FUNCTION 4 /* roundings of exp, tanh and their like, and of their slopes */

static size_t put(oracle_tape *tape, const oracle_step *step)
{
    if (tape->count == tape->room) {
        tape->room = tape->room > 0 ? 2 * tape->room : 1024;
        tape->step = realloc(tape->step, tape->room * sizeof *tape->step);
        if (!tape->step)
            abort();
    }
    tape->step[tape->count] = *step;
    return tape->count++;
}

size_t oracle_tape_value(oracle_tape *tape, double value)
{
    return put(tape, &(oracle_step){.value = value, .from = {tape->count, tape->count}});
}

/* Terms are added in any order: each counts as a sum of its own. */
static size_t add(oracle_tape *tape, size_t a, size_t b, double sign)
{
    const oracle_step *x = &tape->step[a], *y = &tape->step[b];
    const double sizes = fmax(fabs(x->value), fabs(y->value));

    return put(tape, &(oracle_step){.value = x->value + sign * y->value,
                                    .slope = {1, sign},
                                    .from = {a, b},
                                    .off = x->off + y->off + sizes});
}

size_t oracle_tape_add(oracle_tape *tape, size_t a, size_t b)
{
    return add(tape, a, b, 1);
}

size_t oracle_tape_subtract(oracle_tape *tape, size_t a, size_t b)
{
    return add(tape, a, b, -1);
}

size_t oracle_tape_multiply(oracle_tape *tape, size_t a, size_t b)
{
    const oracle_step *x = &tape->step[a], *y = &tape->step[b];
    const double value = x->value * y->value;

    return put(tape, &(oracle_step){.value = value,
                                    .slope = {y->value, x->value},
                                    .from = {a, b},
                                    .off = fabs(y->value) * x->off + fabs(x->value) * y->off + fabs(value),
                                    .slope_off = {y->off, x->off}});
}

/* A slope that is made of the value, as t of tanh goes into 1 - t^2, is off as the value is, times `curve` over `slope`. */
size_t oracle_tape_function(oracle_tape *tape, size_t a, double value, double slope, double curve)
{
    const oracle_step *x = &tape->step[a];

    return put(tape, &(oracle_step){.value = value,
                                    .slope = {slope, 0},
                                    .from = {a, tape->count},
                                    .off = fabs(slope) * x->off + FUNCTION * fabs(value),
                                    .slope_off = {fabs(curve) * x->off + FUNCTION * fabs(slope), 0}});
}

size_t oracle_tape_exp(oracle_tape *tape, size_t a)
{
    const double e = exp(tape->step[a].value);

    return oracle_tape_function(tape, a, e, e, e);
}

/* s (1 - s) out of an s that was rounded. */
size_t oracle_tape_sigmoid(oracle_tape *tape, size_t a)
{
    const double s = 1 / (1 + exp(-tape->step[a].value));
    const size_t at = oracle_tape_function(tape, a, s, s * (1 - s), s * (1 - s) * (1 - 2 * s));

    tape->step[at].slope_off[0] += FUNCTION * s * fabs(1 - 2 * s);
    return at;
}

/* 1 - t^2 likewise. */
size_t oracle_tape_tanh(oracle_tape *tape, size_t a)
{
    const double t = tanh(tape->step[a].value);
    const size_t at = oracle_tape_function(tape, a, t, 1 - t * t, -2 * t * (1 - t * t));

    tape->step[at].slope_off[0] += 2 * FUNCTION * t * t;
    return at;
}

void oracle_tape_reach(oracle_tape *tape, size_t a, double gradient)
{
    tape->step[a].gradient += gradient;
}

void oracle_tape_run(oracle_tape *tape)
{
    for (size_t i = tape->count; i-- > 0;)
        for (int k = 0; k < 2; k++) {
            const oracle_step *step = &tape->step[i];
            oracle_step *to = &tape->step[step->from[k]];
            const double term = step->slope[k] * step->gradient;

            if (step->from[k] == i)
                continue;
            to->gradient_off += fabs(step->slope[k]) * step->gradient_off +
                                step->slope_off[k] * fabs(step->gradient) + fabs(term) +
                                fmax(fabs(to->gradient), fabs(term));
            to->gradient += term;
        }
}

void oracle_tape_free(oracle_tape *tape)
{
    free(tape->step);
    *tape = (oracle_tape){0};
}
