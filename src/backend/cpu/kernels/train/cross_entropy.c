/*
 * cross_entropy.c - loss of a row of logits and a label. A row is read once, in blocks: of what was seen there is the greatest element, the sum of e^(x -
 * greatest) and the sum of x; those of blocks are joined in double, in their order.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

#include <float.h>

enum { BLOCK = 1024 };

typedef struct seen {
    double greatest, total, sum; /* total: of e^(x - top(greatest)) */
} seen;

/* What exponents are counted from: finite, so that -inf has no part and inf is infinite. */
static double top_of(double greatest)
{
    return greatest == -(double)INFINITY ? 0 : greatest > DBL_MAX ? DBL_MAX : greatest;
}

/* A total counted from another top; nothing stays nothing. */
static double moved(double total, double from, double to)
{
    return total == 0 ? 0 : total * exp(top_of(from) - top_of(to));
}

static void join(seen *s, double greatest, double total, double sum)
{
    const double most = greatest > s->greatest ? greatest : s->greatest;
    s->total = moved(s->total, s->greatest, most) + moved(total, greatest, most);
    s->greatest = most;
    s->sum += sum;
}

/* n floats of a block; NaN is passed over by the greatest and found in the total. */
static void join_floats(seen *s, const float *x, uint64_t n)
{
    const vf none = vf_set1(-INFINITY);
    vf best = none, sum = vf_zero(), total = vf_zero();
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf v = vf_load_n(x + i, left);
        best = vf_max(vf_merge_n(v, none, left), best);
        sum = vf_add(sum, v);
    }
    const float greatest = vf_hmax(best);
    const float top = greatest == -INFINITY ? 0.0f : greatest > FLT_MAX ? FLT_MAX : greatest;
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        total = vf_add(total, vf_exp(vf_sub(vf_merge_n(vf_load_n(x + i, left), none, left), vf_set1(top))));
    }
    join(s, greatest == -INFINITY ? -(double)INFINITY : (double)top, (double)vf_sum(total),
         (double)vf_sum(sum));
}

static double element(const unsigned char *x, uint16_t dtype, uint64_t i)
{
    double v;
    if (dtype != MICA_DTYPE_F64)
        return (double)row_element(x + i * row_element_bytes(dtype), dtype);
    memcpy(&v, x + i * sizeof v, sizeof v);
    return v;
}

static void put(unsigned char *to, uint16_t dtype, double value)
{
    const float narrow = (float)value;
    if (to == NULL)
        return;
    if (dtype == MICA_DTYPE_F64)
        memcpy(to, &value, sizeof value);
    else
        row_store(to, dtype, &narrow, 1);
}

static seen doubles_seen(const unsigned char *x, uint64_t n)
{
    seen s = {-(double)INFINITY, 0, 0};
    for (uint64_t i = 0; i < n; i++) {
        const double v = element(x, MICA_DTYPE_F64, i);
        s.greatest = v > s.greatest ? v : s.greatest;
        s.sum += v;
    }
    for (uint64_t i = 0; i < n; i++)
        s.total += exp(element(x, MICA_DTYPE_F64, i) - top_of(s.greatest));
    return s;
}

static seen row_seen(const unsigned char *x, uint16_t dtype, uint64_t n)
{
    float room[BLOCK];
    seen s = {-(double)INFINITY, 0, 0};
    if (dtype == MICA_DTYPE_F64)
        return doubles_seen(x, n);
    for (uint64_t i = 0; i < n; i += BLOCK) {
        const uint64_t left = n - i < BLOCK ? n - i : BLOCK;
        join_floats(&s, row_f32(x + i * row_element_bytes(dtype), dtype, left, room), left);
    }
    return s;
}

void MICA__ISA(cross_entropy)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_cross_entropy *p = args->params;
    const mica__cpu_view *logits = &args->view[MICA__CROSS_ENTROPY_LOGITS];
    const mica__cpu_view *labels = &args->view[MICA__CROSS_ENTROPY_LABELS];
    const uint64_t n = logits->shape[logits->ndim - 1], end = mica__cpu_rows_end(&p->range, last);
    const double smoothing = (double)p->params.smoothing;
    uint64_t row = mica__cpu_rows_begin(&p->range, first);
    walk w;
    walk_begin(&w, args->view, MICA__CROSS_ENTROPY_SLOTS, logits->ndim - 1u, row);
    for (; row < end; row++, walk_next(&w)) {
        const unsigned char *x = walk_at(&w, MICA__CROSS_ENTROPY_LOGITS);
        const int64_t label = index_at(labels, w.offset[MICA__CROSS_ENTROPY_LABELS]);
        const seen s = row_seen(x, logits->dtype, n);
        const double lse = log(s.total) + top_of(s.greatest);
        double loss = 0;
        if (p->params.ignore != 0 && (int32_t)label == p->params.ignored_label)
            loss = 0;
        else if (label < 0 || (uint64_t)label >= n)
            mica__cpu_fault(args);
        else
            loss = (1 - smoothing) * (lse - element(x, logits->dtype, (uint64_t)label)) +
                   (smoothing > 0 ? smoothing * (lse - s.sum / (double)n) : 0);
        put(walk_at(&w, MICA__CROSS_ENTROPY_LOSS), args->view[MICA__CROSS_ENTROPY_LOSS].dtype, loss);
        put(walk_at(&w, MICA__CROSS_ENTROPY_LSE), args->view[MICA__CROSS_ENTROPY_LSE].dtype, lse);
    }
}
