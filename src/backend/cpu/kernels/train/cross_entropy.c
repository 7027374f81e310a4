/*
 * cross_entropy.c - loss of a row of logits beside its label, or the part of each class, and its derivative. A row is read once, in blocks: of what was seen there
 * is the greatest element, the sum of e^(x - greatest) and the sum of x; those of blocks are joined in double, in their order.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

#include <float.h>

enum { BLOCK = 1024, AHEAD = 2048 }; /* elements; bytes from what is computed to what is asked for */

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

/* The greatest and the sum of n floats of a block; NaN is passed over by the greatest. Vector j goes to sum j % 4, the four are added as (0+1) + (2+3). */
static float survey(const float *x, uint64_t n, double *sum)
{
    const vf none = vf_set1(-INFINITY);
    vf best[4] = {none, none, none, none}, part[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    uint64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (uint32_t j = 0; j < 4; j++) {
            const vf v = vf_load(x + i + j * VW);
            best[j] = vf_max(v, best[j]);
            part[j] = vf_add(part[j], v);
        }
    for (uint32_t j = 0; i < n; i += VW, j++) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf v = vf_load_n(x + i, left);
        best[j] = vf_max(vf_merge_n(v, none, left), best[j]);
        part[j] = vf_add(part[j], v);
    }
    *sum = (double)vf_sum(vf_add(vf_add(part[0], part[1]), vf_add(part[2], part[3])));
    return vf_hmax(vf_max(vf_max(best[0], best[1]), vf_max(best[2], best[3])));
}

/* n floats of a block; NaN is found in the total. What follows in memory at `next` is on its way meanwhile. */
static void join_floats(seen *s, const float *x, uint64_t n, const unsigned char *next, uint64_t size)
{
    double sum;
    const float greatest = survey(x, n, &sum);
    const float top = greatest == -INFINITY ? 0.0f : greatest > FLT_MAX ? FLT_MAX : greatest;
    const vf none = vf_set1(-INFINITY), from = vf_set1(top);
    vf total[2] = {vf_zero(), vf_zero()};
    uint64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW)
        for (uint32_t j = 0; j < 2; j++) {
            __builtin_prefetch(next + (i + j * VW) * size);
            total[j] = vf_add(total[j], vf_exp(vf_sub(vf_load(x + i + j * VW), from)));
        }
    for (uint32_t j = 0; i < n; i += VW, j++) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf v = vf_merge_n(vf_load_n(x + i, left), none, left);
        total[j] = vf_add(total[j], vf_exp(vf_sub(v, from)));
    }
    join(s, greatest == -INFINITY ? -(double)INFINITY : (double)top,
         (double)vf_sum(vf_add(total[0], total[1])), sum);
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
    const uint64_t size = row_element_bytes(dtype);
    for (uint64_t i = 0; i < n; i += BLOCK) {
        const uint64_t left = n - i < BLOCK ? n - i : BLOCK;
        join_floats(&s, row_f32(x + i * size, dtype, left, room), left, x + (i + left) * size, size);
    }
    return s;
}

/* ---- what a row is compared with ---- */

/* A row's labels and the classes' weights: the part that class c has in the loss is weight t, t = (1 - smoothing) label + smoothing / classes. */
typedef struct aim {
    /* targets NULL: `label` is the class that has 1; weight NULL: every class has the weight 1 */
    const unsigned char *targets, *weight;
    uint64_t n, weight_stride, label;
    uint16_t targets_type, weight_type;
    double own, each; /* 1 - smoothing, smoothing / classes */
    bool none;        /* the row does not count */
} aim;

static aim aim_of(const mica__cpu_args *args, const walk *w, uint64_t n)
{
    const mica__cpu_cross_entropy *p = args->params;
    const mica__cpu_view *labels = &args->view[MICA__CROSS_ENTROPY_LABELS],
                         *targets = &args->view[MICA__CROSS_ENTROPY_TARGETS],
                         *weight = &args->view[MICA__CROSS_ENTROPY_WEIGHT];
    const double smoothing = (double)p->params.smoothing;
    aim a = {.targets = walk_at(w, MICA__CROSS_ENTROPY_TARGETS),
             .weight = weight->data,
             .n = n,
             .weight_stride = p->weight_stride,
             .targets_type = targets->dtype,
             .weight_type = weight->dtype,
             .own = 1 - smoothing,
             .each = smoothing / (double)n};
    if (a.targets != NULL)
        return a;
    const int64_t label = index_at(labels, w->offset[MICA__CROSS_ENTROPY_LABELS]);
    a.label = (uint64_t)label;
    a.none = label < 0 || a.label >= n;
    if (p->params.ignore != 0 && (int32_t)label == p->params.ignored_label)
        a.none = true;
    else if (a.none)
        mica__cpu_fault(args);
    return a;
}

static double weight_of(const aim *a, uint64_t c)
{
    return a->weight == NULL ? 1 : element(a->weight + c * a->weight_stride, a->weight_type, 0);
}

static double part_of(const aim *a, uint64_t c)
{
    const double label = a->targets != NULL ? element(a->targets, a->targets_type, c)
                         : c == a->label    ? 1.0
                                            : 0.0;
    return weight_of(a, c) * (a->own * label + a->each);
}

/* What has no part is not looked at: it may be infinite. */
static double times(double part, double away)
{
    return part != 0 ? part * away : 0;
}

/* The sum over classes of part (lse - x), or with x NULL of the parts: of runs of classes, then of these, so that equal terms do not lead it astray. */
static double sum_of(const aim *a, const unsigned char *x, uint16_t dtype, double lse)
{
    enum { RUN = 64 };
    double sum = 0;
    for (uint64_t first = 0; first < a->n; first += RUN) {
        const uint64_t end = a->n - first < RUN ? a->n : first + RUN;
        double own = 0;
        for (uint64_t c = first; c < end; c++)
            own += x == NULL ? part_of(a, c) : times(part_of(a, c), lse - element(x, dtype, c));
        sum += own;
    }
    return sum;
}

/* The sum of all parts. */
static double whole_of(const aim *a)
{
    if (a->targets == NULL && a->weight == NULL)
        return 1;
    if (a->targets == NULL && a->each == 0)
        return part_of(a, a->label);
    return sum_of(a, NULL, 0, 0);
}

static double loss_of(const aim *a, const unsigned char *x, uint16_t dtype, double lse, double mean)
{
    if (a->none)
        return 0;
    if (a->targets == NULL && (a->weight == NULL || a->each == 0))
        return times(a->own * weight_of(a, a->label), lse - element(x, dtype, a->label)) +
               times(a->each * (double)a->n, lse - mean);
    return sum_of(a, x, dtype, lse);
}

void MICA__ISA(cross_entropy)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_cross_entropy *p = args->params;
    const mica__cpu_view *logits = &args->view[MICA__CROSS_ENTROPY_LOGITS];
    const uint64_t n = logits->shape[logits->ndim - 1], end = mica__cpu_rows_end(&p->range, last);
    uint64_t row = mica__cpu_rows_begin(&p->range, first);
    walk w;
    walk_begin(&w, args->view, MICA__CROSS_ENTROPY_SLOTS, logits->ndim - 1u, row);
    for (; row < end; row++, walk_next(&w)) {
        const unsigned char *x = walk_at(&w, MICA__CROSS_ENTROPY_LOGITS);
        const seen s = row_seen(x, logits->dtype, n);
        const double lse = log(s.total) + top_of(s.greatest);
        const aim a = aim_of(args, &w, n);
        put(walk_at(&w, MICA__CROSS_ENTROPY_LOSS), args->view[MICA__CROSS_ENTROPY_LOSS].dtype,
            loss_of(&a, x, logits->dtype, lse, s.sum / (double)n));
        put(walk_at(&w, MICA__CROSS_ENTROPY_LSE), args->view[MICA__CROSS_ENTROPY_LSE].dtype, lse);
    }
}

/* ---- the derivative ---- */

/* What a row's derivative is made of: dloss (e^(x - lse) whole - part). */
typedef struct slope {
    float lse, whole, dloss;
} slope;

/* The element whose part is `part` of two terms. */
static inline vf slope_at(const slope *s, vf x, float own, float each)
{
    const vf e = vf_mul(vf_exp(vf_sub(x, vf_set1(s->lse))), vf_set1(s->whole));
    return vf_mul(vf_set1(s->dloss), vf_sub(vf_sub(e, vf_set1(own)), vf_set1(each)));
}

/* Every class alike; the type is a constant in each call of this. What follows in memory is on its way meanwhile. */
static inline void slope_row(const slope *s, float each, const unsigned char *x, uint16_t dtype, uint64_t n,
                             unsigned char *to)
{
    const uint64_t size = row_element_bytes(dtype);
    uint64_t i = 0;
    for (; i + VW <= n; i += VW) {
        __builtin_prefetch(x + i * size + AHEAD);
        row_store_n(to + i * size, dtype, slope_at(s, row_load_n(x + i * size, dtype, VW), 0.0f, each), VW);
    }
    if (i < n)
        row_store_n(to + i * size, dtype, slope_at(s, row_load_n(x + i * size, dtype, n - i), 0.0f, each),
                    n - i);
}

/* All classes weigh the same and the row has a label, so that all elements but the label's have the same part. `to` may be `x`. */
static void backward_label(const aim *a, const slope *s, const unsigned char *x, uint16_t dtype,
                           unsigned char *to)
{
    const uint64_t at = a->label * row_element_bytes(dtype);
    const float each = (float)a->each;
    const vf label = slope_at(s, row_load_n(x + at, dtype, 1), (float)a->own, each);
    if (dtype == MICA_DTYPE_F32)
        slope_row(s, each, x, MICA_DTYPE_F32, a->n, to);
    else if (dtype == MICA_DTYPE_F16)
        slope_row(s, each, x, MICA_DTYPE_F16, a->n, to);
    else
        slope_row(s, each, x, MICA_DTYPE_BF16, a->n, to);
    row_store_n(to + at, dtype, label, 1);
}

/* In place: a block is read before it is written. */
static void backward_parts(const aim *a, const slope *s, const unsigned char *x, uint16_t dtype,
                           unsigned char *to, uint16_t to_type)
{
    float room[BLOCK], out[BLOCK];
    for (uint64_t first = 0; first < a->n; first += BLOCK) {
        const uint64_t n = a->n - first < BLOCK ? a->n - first : BLOCK;
        const float *from = row_f32(x + first * row_element_bytes(dtype), dtype, n, room);
        for (uint64_t i = 0; i < n; i += VW) {
            const uint64_t left = n - i < VW ? n - i : VW;
            const vf e = vf_exp(vf_sub(vf_load_n(from + i, left), vf_set1(s->lse)));
            vf_store_n(out + i, vf_mul(e, vf_set1(s->whole)), left);
        }
        for (uint64_t i = 0; i < n; i++)
            out[i] = s->dloss * (out[i] - (float)part_of(a, first + i));
        row_store(to + first * row_element_bytes(to_type), to_type, out, n);
    }
}

static void backward_row(const aim *a, const unsigned char *x, uint16_t dtype, double lse, double dloss,
                         unsigned char *to, uint16_t to_type)
{
    const double whole = a->none ? 0 : whole_of(a);
    const slope s = {(float)lse, (float)whole, (float)dloss};
    if (a->none) /* zeros have no bits set in any type */
        memset(to, 0, a->n * (to_type == MICA_DTYPE_F64 ? sizeof(double) : row_element_bytes(to_type)));
    else if (dtype == MICA_DTYPE_F64)
        for (uint64_t c = 0; c < a->n; c++)
            put(to + c * sizeof(double), to_type,
                dloss * (exp(element(x, dtype, c) - lse) * whole - part_of(a, c)));
    else if (a->targets == NULL && a->weight == NULL && dtype == to_type)
        backward_label(a, &s, x, dtype, to);
    else
        backward_parts(a, &s, x, dtype, to, to_type);
}

void MICA__ISA(cross_entropy_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_cross_entropy *p = args->params;
    const mica__cpu_view *view = args->view, *logits = &view[MICA__CROSS_ENTROPY_BACKWARD_LOGITS];
    const uint64_t n = logits->shape[logits->ndim - 1], end = mica__cpu_rows_end(&p->range, last);
    uint64_t row = mica__cpu_rows_begin(&p->range, first);
    walk w;
    walk_begin(&w, view, MICA__CROSS_ENTROPY_BACKWARD_SLOTS, logits->ndim - 1u, row);
    for (; row < end; row++, walk_next(&w)) {
        const aim a = aim_of(args, &w, n);
        const double lse = element(walk_at(&w, MICA__CROSS_ENTROPY_BACKWARD_LSE),
                                   view[MICA__CROSS_ENTROPY_BACKWARD_LSE].dtype, 0);
        const double dloss = element(walk_at(&w, MICA__CROSS_ENTROPY_BACKWARD_DLOSS),
                                     view[MICA__CROSS_ENTROPY_BACKWARD_DLOSS].dtype, 0);
        backward_row(&a, walk_at(&w, MICA__CROSS_ENTROPY_BACKWARD_LOGITS), logits->dtype, lse, dloss,
                     walk_at(&w, MICA__CROSS_ENTROPY_BACKWARD_DLOGITS),
                     view[MICA__CROSS_ENTROPY_BACKWARD_DLOGITS].dtype);
    }
}
