/* attention_backward.c - the gradient of attention over one sequence, in f32 and in f64. */
#include "backend/cpu/kernels/attention/attention_backward.h"

#include <math.h>

#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"

#define LANES 16 /* partial sums of a dot product: their order is the same on every instruction set */
#define SLOT(name) MICA__ATTENTION_BACKWARD_##name

static const mica__cpu_view *view_of(const mica__cpu_args *args, uint32_t slot)
{
    return &args->view[slot];
}

/* Where the row of a token (or key) and head begins. */
static unsigned char *row_at(const mica__cpu_view *view, uint64_t token, uint64_t head)
{
    return view->data + token * view->stride[0] + head * view->stride[1];
}

static double any_element(const unsigned char *at, uint16_t dtype)
{
    double value;
    if (dtype != MICA_DTYPE_F64)
        return (double)row_element(at, dtype);
    memcpy(&value, at, sizeof value);
    return value;
}

/* The keys [first, last) that a token sees. */
typedef struct backward_sight {
    int64_t position;
    uint64_t first, last;
} backward_sight;

/* False: an index lies outside, and nothing is seen. */
static bool look(const mica__cpu_args *args, uint64_t token, backward_sight *out)
{
    const mica_attention_params *a = &((const mica__attention_backward_plan *)args->params)->attention;
    const mica__cpu_view *positions = view_of(args, SLOT(POSITIONS)), *mask = view_of(args, SLOT(MASK));
    const int64_t position = index_at(positions, token * positions->stride[0]);
    const int64_t length = index_at(view_of(args, SLOT(LENGTHS)), 0);
    *out = (backward_sight){position, 0, 0};
    if (position < 0 || length < 0 || (uint64_t)length > view_of(args, SLOT(K))->shape[0])
        return false;
    const uint64_t next = (uint64_t)position + 1;
    out->last = (uint64_t)length;
    if (!a->bidirectional && next < out->last)
        out->last = next;
    if (mask->data != NULL && mask->shape[mask->ndim - 1] < out->last)
        out->last = mask->shape[mask->ndim - 1];
    out->first = a->window != 0 && next > a->window ? next - a->window : 0;
    out->first = out->first < out->last ? out->first : out->last;
    return true;
}

#define REAL float
#define WIDE 0
#define NAME(x) x##_f32
#define EXP expf
#define TANH tanhf
#include "backend/cpu/kernels/attention/attention_backward_body.h"
#undef REAL
#undef WIDE
#undef NAME
#undef EXP
#undef TANH
#define REAL double
#define WIDE 1
#define NAME(x) x##_f64
#define EXP exp
#define TANH tanh
#include "backend/cpu/kernels/attention/attention_backward_body.h"

void MICA__ISA(attention_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = view_of(args, SLOT(Q))->dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        if (wide)
            run_unit_f64(args, unit);
        else
            run_unit_f32(args, unit);
}
