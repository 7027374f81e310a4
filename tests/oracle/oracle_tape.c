/* oracle_tape.c - a forward pass kept step by step, and gone through backwards. */
#include "oracle/oracle_tape.h"

#include <math.h>
#include <stdlib.h>

static size_t put(oracle_tape *tape, double value, size_t a, double slope_a, size_t b, double slope_b)
{
    if (tape->count == tape->room) {
        tape->room = tape->room > 0 ? 2 * tape->room : 1024;
        tape->step = realloc(tape->step, tape->room * sizeof *tape->step);
        if (!tape->step)
            abort();
    }
    tape->step[tape->count] = (oracle_step){value, {slope_a, slope_b}, {a, b}, 0, 0};
    return tape->count++;
}

size_t oracle_tape_value(oracle_tape *tape, double value)
{
    return put(tape, value, tape->count, 0, tape->count, 0);
}

size_t oracle_tape_add(oracle_tape *tape, size_t a, size_t b)
{
    return put(tape, tape->step[a].value + tape->step[b].value, a, 1, b, 1);
}

size_t oracle_tape_subtract(oracle_tape *tape, size_t a, size_t b)
{
    return put(tape, tape->step[a].value - tape->step[b].value, a, 1, b, -1);
}

size_t oracle_tape_multiply(oracle_tape *tape, size_t a, size_t b)
{
    const double x = tape->step[a].value, y = tape->step[b].value;

    return put(tape, x * y, a, y, b, x);
}

size_t oracle_tape_function(oracle_tape *tape, size_t a, double value, double slope)
{
    return put(tape, value, a, slope, tape->count, 0);
}

size_t oracle_tape_exp(oracle_tape *tape, size_t a)
{
    const double e = exp(tape->step[a].value);

    return oracle_tape_function(tape, a, e, e);
}

size_t oracle_tape_sigmoid(oracle_tape *tape, size_t a)
{
    const double s = 1 / (1 + exp(-tape->step[a].value));

    return oracle_tape_function(tape, a, s, s * (1 - s));
}

size_t oracle_tape_tanh(oracle_tape *tape, size_t a)
{
    const double t = tanh(tape->step[a].value);

    return oracle_tape_function(tape, a, t, 1 - t * t);
}

void oracle_tape_reach(oracle_tape *tape, size_t a, double gradient)
{
    tape->step[a].gradient += gradient;
    tape->step[a].size += fabs(gradient);
}

void oracle_tape_run(oracle_tape *tape)
{
    for (size_t i = tape->count; i-- > 0;)
        for (int k = 0; k < 2; k++) {
            const oracle_step *step = &tape->step[i];
            oracle_step *to = &tape->step[step->from[k]];

            if (step->from[k] == i)
                continue;
            to->gradient += step->slope[k] * step->gradient;
            to->size += fabs(step->slope[k]) * step->size;
        }
}

void oracle_tape_free(oracle_tape *tape)
{
    free(tape->step);
    *tape = (oracle_tape){0};
}
