/*
 * scan.c - derivatives of running sums and their like, and of reductions.
 */
#include <math.h>
#include <string.h>

#include "graph/gradient/rules.h"

static mica_tensor scan_node(mica_graph *graph, mica_tensor x, mica_scan_kind kind, uint32_t exclusive,
                             uint32_t reverse)
{
    const mica_scan_params params = {.kind = (uint32_t)kind, .exclusive = exclusive, .reverse = reverse};
    return mica__op1(graph, MICA_OP_SCAN, &params, &x, 1);
}

/* ---- running products ---- */

/* Element i is element i + by (`reverse`: i - by) of x along the last dimension, 0 beyond. */
static mica_tensor ahead(mica_graph *graph, mica_tensor x, uint64_t by, uint32_t reverse)
{
    const uint32_t last = mica__type_of(graph, x)->ndim - 1;
    mica_pad_params params = {.mode = MICA_PAD_CONSTANT};
    params.low[last] = reverse != 0 ? (int64_t)by : -(int64_t)by;
    params.high[last] = -params.low[last];
    return mica__op1(graph, MICA_OP_PAD, &params, &x, 1);
}

/*
 * dx_i = (the product of all before i) h_i with h_i = sum over k >= i of dy_k (the product of those between i and k, k included) = dy_i + x_(i+1) h_(i+1): a
 * recurrence that is doubled until it spans the row, so that nothing is divided by an x of 0.
 */
static void derive_prod(mica__back *b, const mica_scan_params *params)
{
    mica_graph *graph = b->graph;
    const mica_tensor x = mica__wide(graph, b->in[0]);
    const mica__type type = mica__type_copy(graph, x);
    const uint64_t n = type.shape[type.ndim - 1];
    if (!mica__size_known(n)) {
        mica__back_refuses(b, "is a running product along a size that is not known yet");
        return;
    }
    mica_tensor h = mica__wide(graph, b->dy[0]);
    if (params->exclusive != 0)
        h = ahead(graph, h, 1, params->reverse);
    mica_tensor between = ahead(graph, x, 1, params->reverse);
    for (uint64_t span = 1; span < n && graph->status == MICA_OK; span *= 2) {
        h = mica_graph_add(graph, h, mica_graph_mul(graph, between, ahead(graph, h, span, params->reverse)));
        if (2 * span < n)
            between = mica_graph_mul(graph, between, ahead(graph, between, span, params->reverse));
    }
    b->dx[0] = mica_graph_mul(graph, h, scan_node(graph, x, MICA_SCAN_PROD, 1, params->reverse));
}

/* ---- running extremes: the nearest of the elements that are as great gets it ---- */

static void derive_extreme(mica__back *b, const mica_scan_params *params)
{
    mica_graph *graph = b->graph;
    const mica_tensor x = b->in[0];
    const uint32_t last = mica__type_of(graph, x)->ndim - 1, reverse = params->reverse;
    mica_tensor dy = b->dy[0];
    const mica_tensor y = scan_node(graph, x, (mica_scan_kind)params->kind, 0, reverse);
    if (params->exclusive != 0)
        dy = ahead(graph, dy, 1, reverse);
    const mica_tensor here =
        mica_graph_bit_or(graph, mica_graph_equal(graph, x, y), mica_graph_isnan(graph, x));
    const mica_tensor far = mica_graph_number(graph, MICA_DTYPE_I32, reverse != 0 ? (double)INT32_MAX : 0);
    const mica_tensor place =
        mica__repeat_to(graph, mica_graph_select(graph, here, mica__index_along(graph, x, last), far), x);
    const mica_tensor ids = scan_node(graph, place, reverse != 0 ? MICA_SCAN_MIN : MICA_SCAN_MAX, 0, reverse);
    b->dx[0] = mica__put(graph, MICA_SCATTER_ADD, dy, ids, last, x);
}

mica__derived mica__derive_scan(mica__back *b)
{
    const mica_scan_params *given = mica__op_params(&b->node);
    const mica_scan_params params = given != NULL ? *given : (mica_scan_params){.kind = MICA_SCAN_SUM};
    if (params.kind == MICA_SCAN_SUM)
        b->dx[0] = scan_node(b->graph, b->dy[0], MICA_SCAN_SUM, params.exclusive, params.reverse ^ 1u);
    else if (params.kind == MICA_SCAN_PROD)
        derive_prod(b, &params);
    else
        derive_extreme(b, &params);
    return MICA__DERIVED;
}

/* ---- reductions ---- */

/* A reduction: x and y in the type that formulas compute in; y and dy with the reduced dimensions of size 1. */
typedef struct reduced {
    mica_graph *graph;
    mica_tensor x, y, dy;
    int32_t axes[MICA_MAX_DIMS];
    uint32_t count, correction;
} reduced;

/* y [..] of x with the reduced dimensions put in again. */
static mica_tensor kept(const reduced *r, mica_tensor y, uint32_t ndim)
{
    mica_graph *graph = r->graph;
    y = mica__wide(graph, y);
    for (uint32_t d = 0, i = 0; d < ndim && mica__type_of(graph, y)->ndim < ndim; d++)
        if (i < r->count && r->axes[i] == (int32_t)d) {
            y = mica__widened(graph, y, d);
            i++;
        }
    return y;
}

/* Of x's type: over how many elements y is. */
static mica_tensor count_of(const reduced *r)
{
    const mica__type type = mica__type_copy(r->graph, r->x);
    double n = 1;
    for (uint32_t i = 0; i < r->count; i++) {
        const uint64_t size = type.shape[r->axes[i]];
        n = mica__size_known(size) && n >= 0 ? n * (double)size : -1;
    }
    if (n >= 0)
        return mica_graph_number(r->graph, type.dtype, n);
    const mica_tensor one = mica_graph_number(r->graph, type.dtype, 1);
    return mica_graph_reduce(r->graph, MICA_REDUCE_SUM, mica__repeat_to(r->graph, one, r->x), r->axes,
                             r->count, 1);
}

static mica_tensor of_sum(const reduced *r)
{
    return r->dy;
}

static mica_tensor of_mean(const reduced *r)
{
    return mica_graph_div(r->graph, r->dy, count_of(r));
}

/* The elements that are as great as the greatest share what reaches it. */
static mica_tensor shared(const reduced *r, mica_tensor x)
{
    mica_graph *graph = r->graph;
    const mica_tensor ones = mica__indicator(graph, mica_graph_equal(graph, x, r->y), r->dy);
    const mica_tensor count = mica_graph_reduce(graph, MICA_REDUCE_SUM, ones, r->axes, r->count, 1);
    return mica_graph_mul(graph, ones, mica_graph_div(graph, r->dy, count));
}

static mica_tensor of_extreme(const reduced *r)
{
    return shared(r, r->x);
}

static mica_tensor of_max_abs(const reduced *r)
{
    const mica_tensor share = shared(r, mica_graph_abs(r->graph, r->x));
    return mica_graph_mul(r->graph, share, mica_graph_sign(r->graph, r->x));
}

static mica_tensor of_var(const reduced *r)
{
    mica_graph *graph = r->graph;
    const mica_tensor mean = mica_graph_reduce(graph, MICA_REDUCE_MEAN, r->x, r->axes, r->count, 1);
    const mica_tensor n = mica__plus(graph, count_of(r), -(double)r->correction);
    const mica_tensor slope = mica__times(graph, mica_graph_div(graph, r->dy, n), 2);
    return mica_graph_mul(graph, mica_graph_sub(graph, r->x, mean), slope);
}

/* e^(x - y), 0 where all of a row are -inf. */
static mica_tensor of_logsumexp(const reduced *r)
{
    mica_graph *graph = r->graph;
    const mica_tensor zero = mica__number(graph, r->y, 0), low = mica__number(graph, r->y, -HUGE_VAL);
    const mica_tensor y = mica_graph_select(graph, mica_graph_equal(graph, r->y, low), zero, r->y);
    return mica_graph_mul(graph, r->dy, mica_graph_exp(graph, mica_graph_sub(graph, r->x, y)));
}

static mica_tensor of_sum_squares(const reduced *r)
{
    return mica_graph_mul(r->graph, r->dy, mica__times(r->graph, r->x, 2));
}

/* The product of all before times that of all behind, over the reduced dimensions in a row. */
static mica_tensor of_prod(const reduced *r)
{
    mica_graph *graph = r->graph;
    const mica__type type = mica__type_copy(graph, r->x);
    uint32_t order[MICA_MAX_DIMS], back[MICA_MAX_DIMS], at = 0, mask = 0;
    mica__type flat = {.dtype = type.dtype}, permuted = {.dtype = type.dtype, .ndim = type.ndim};
    for (uint32_t i = 0; i < r->count; i++)
        mask |= 1u << r->axes[i];
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t d = 0; d < type.ndim; d++)
            if ((mask >> d & 1) == pass)
                order[at++] = d;
    uint64_t size = 1;
    for (uint32_t i = 0; i < type.ndim; i++) {
        back[order[i]] = i;
        permuted.shape[i] = type.shape[order[i]];
        if (i + r->count < type.ndim)
            flat.shape[flat.ndim++] = permuted.shape[i];
        else
            size = mica__size_known(size) && mica__size_known(permuted.shape[i]) ? size * permuted.shape[i]
                                                                                 : MICA_SIZE_UNKNOWN;
    }
    flat.shape[flat.ndim++] = size;
    if (type.ndim == 0)
        return r->dy;
    const mica_tensor rows = mica__reshape_to(graph, mica_graph_permute(graph, r->x, order), &flat);
    const mica_tensor others = mica_graph_mul(graph, scan_node(graph, rows, MICA_SCAN_PROD, 1, 0),
                                              scan_node(graph, rows, MICA_SCAN_PROD, 1, 1));
    const mica_tensor there = mica_graph_permute(graph, mica__reshape_to(graph, others, &permuted), back);
    return mica_graph_mul(graph, r->dy, there);
}

mica__derived mica__derive_reduce(mica__back *b)
{
    typedef mica_tensor slope(const reduced *r);
    static slope *const slopes[] = {[MICA_REDUCE_SUM] = of_sum,
                                    [MICA_REDUCE_MEAN] = of_mean,
                                    [MICA_REDUCE_MAX] = of_extreme,
                                    [MICA_REDUCE_MIN] = of_extreme,
                                    [MICA_REDUCE_PROD] = of_prod,
                                    [MICA_REDUCE_VAR] = of_var,
                                    [MICA_REDUCE_LOGSUMEXP] = of_logsumexp,
                                    [MICA_REDUCE_SUM_SQUARES] = of_sum_squares,
                                    [MICA_REDUCE_MAX_ABS] = of_max_abs};
    const mica_reduce_params *given = mica__op_params(&b->node);
    const mica_reduce_params params = given != NULL ? *given : (mica_reduce_params){.kind = MICA_REDUCE_SUM};
    const uint32_t ndim = mica__type_of(b->graph, b->in[0])->ndim;
    reduced r = {.graph = b->graph, .x = mica__wide(b->graph, b->in[0]), .correction = params.correction};
    for (uint32_t d = 0; d < ndim; d++)
        if (params.axes == 0 || (params.axes >> (ndim - 1 - d) & 1) != 0)
            r.axes[r.count++] = (int32_t)d;
    if (params.kind >= sizeof slopes / sizeof slopes[0] || slopes[params.kind] == NULL) {
        mica__back_refuses(b, "has no derivative");
        return MICA__DERIVED;
    }
    r.y = kept(&r, b->out[0], ndim);
    r.dy = kept(&r, b->dy[0], ndim);
    b->dx[0] = mica__repeat_to(b->graph, slopes[params.kind](&r), b->in[0]);
    return MICA__DERIVED;
}
