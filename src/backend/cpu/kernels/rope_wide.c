/*
 * rope_wide.c - rotary embedding in f64, in plain C: for gradients that are checked in double, not for speed. A unit is a token.
 */
#include <math.h>

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/rope_axes.h"

static double load(const unsigned char *from)
{
    double value;
    memcpy(&value, from, sizeof value);
    return value;
}

static void store(unsigned char *to, double value)
{
    memcpy(to, &value, sizeof value);
}

/* By how much pair i of a token turns. */
static double angle_of(const mica__cpu_args *args, const mica_rope_params *rope, uint64_t token,
                       uint32_t pair)
{
    const mica__cpu_view *positions = &args->view[MICA__ROPE_POSITIONS],
                         *factors = &args->view[MICA__ROPE_FACTORS];
    const bool one = rope->axes == MICA_ROPE_AXES_ONE;
    uint32_t place = pair, axis = 0;
    if (!one)
        axis = mica__rope_axis(rope, (uint32_t)positions->shape[0], pair, &place);
    const double position = (double)index_at(positions, token * positions->stride[positions->ndim - 1u] +
                                                            (one ? 0 : axis * positions->stride[0]));
    const double factor = factors->data != NULL
                              ? (double)row_element(factors->data + pair * factors->stride[0], MICA_DTYPE_F32)
                              : 1.0;
    return position * (double)rope->position_scale *
           pow((double)rope->theta, -2.0 * (double)place / (double)rope->frequency_dims) / factor;
}

void MICA__ISA(rope_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rope *params = args->params;
    const mica_rope_params *rope = &params->record.rope;
    const mica__cpu_view *x = &args->view[MICA__ROPE_X], *y = &args->view[MICA__ROPE_Y];
    const uint64_t end = mica__cpu_rows_end(&params->range, last), pairs = rope->rotary_dims / 2;
    const bool neox = rope->mode == MICA_ROPE_NEOX;
    for (uint64_t t = mica__cpu_rows_begin(&params->range, first); t < end; t++)
        for (uint64_t h = 0; h < x->shape[1]; h++) {
            const unsigned char *from = x->data + t * x->stride[0] + h * x->stride[1];
            unsigned char *to = y->data + t * y->stride[0] + h * y->stride[1];
            for (uint32_t i = 0; i < pairs; i++) {
                const double angle = angle_of(args, rope, t, i);
                const double c = cos(angle) * (double)rope->attention_scale,
                             s = sin(angle) * (double)rope->attention_scale;
                const uint64_t one = neox ? i : 2 * i, other = neox ? i + pairs : 2 * i + 1;
                const double a = load(from + one * sizeof a), b = load(from + other * sizeof b);
                store(to + one * sizeof a, a * c - b * s);
                store(to + other * sizeof b, b * c + a * s);
            }
            for (uint64_t i = 2 * pairs; i < x->shape[2]; i++)
                store(to + i * sizeof(double), load(from + i * sizeof(double)));
        }
}
