/* attention_backward_wide.c - the gradient of attention over one sequence in f64, a product of a query and a key after the other. */
#include <math.h>

#include "backend/cpu/kernels/attention/attention_backward_seen.h"
#include "backend/cpu/kernels/kernels.h"

#define LANES 16 /* partial sums of a dot product: their order is the same on every instruction set */

static const double *doubles_at(const mica__cpu_view *view, uint64_t token, uint64_t head)
{
    return (const double *)(const void *)row_at(view, token, head);
}

static void store(unsigned char *dst, const double *src, uint64_t n)
{
    memcpy(dst, src, n * sizeof *src);
}

static double dot(const double *a, const double *b, uint64_t n)
{
    double lane[LANES] = {0}, rest = 0;
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint64_t l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++)
        rest += a[i] * b[i];
    for (uint64_t step = LANES / 2; step > 0; step /= 2)
        for (uint64_t l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0] + rest;
}

static void add_scaled(double factor, const double *x, uint64_t n, double *sum)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += factor * x[i];
}

/* A row of the queries: what every key asks of it. */
typedef struct query_row {
    uint64_t token, head;
    backward_sight sight;
    const double *q, *dy;
    double lse, delta; /* delta = dy.y */
} query_row;

static void load_query(const mica__cpu_args *args, uint64_t token, uint64_t head, query_row *out)
{
    const mica__cpu_view *y = view_of(args, SLOT(Y));
    out->token = token;
    out->head = head;
    (void)look(args, token, &out->sight);
    out->q = doubles_at(view_of(args, SLOT(Q)), token, head);
    out->dy = doubles_at(view_of(args, SLOT(DY)), token, head);
    out->lse = *doubles_at(view_of(args, SLOT(LSE)), token, head);
    out->delta = dot(out->dy, doubles_at(y, token, head), y->shape[2]);
}

/* What a key weighs for a query, and the gradient of their product. Both 0 where the mask hides it. */
typedef struct weight {
    double p, ds;
} weight;

static double masked(const mica__cpu_args *args, const query_row *query, uint64_t key)
{
    const mica__cpu_view *mask = view_of(args, SLOT(MASK));
    const unsigned char *at = mask_of(mask, query->token, query->head) + key * mask->stride[mask->ndim - 1];
    if (mask->dtype == MICA_DTYPE_BOOL)
        return *at != 0 ? 0 : -(double)INFINITY;
    return any_element(at, mask->dtype);
}

static weight weigh(const mica__cpu_args *args, const query_row *query, uint64_t key, const double *k,
                    const double *v)
{
    const mica_attention_params *a = &((const mica__attention_backward_plan *)args->params)->attention;
    const uint64_t dim = view_of(args, SLOT(Q))->shape[2], v_dim = view_of(args, SLOT(Y))->shape[2];
    const double cap = (double)a->softcap, scale = (double)a->scale;
    double score = dot(query->q, k, dim) * scale, slope = scale;
    if (cap > 0) {
        const double bent = tanh(score / cap);
        score = cap * bent;
        slope *= 1 - bent * bent;
    }
    if (view_of(args, SLOT(MASK))->data != NULL)
        score += masked(args, query, key);
    if (view_of(args, SLOT(SLOPES))->data != NULL)
        score += of_head(view_of(args, SLOT(SLOPES)), query->head) *
                 (double)((int64_t)key - query->sight.position);
    if (score == -(double)INFINITY || query->lse == -(double)INFINITY)
        return (weight){0, 0};
    const double p = exp(score - query->lse);
    return (weight){p, p * (dot(query->dy, v, v_dim) - query->delta) * slope};
}

static bool sees(const query_row *query, uint64_t key)
{
    return key >= query->sight.first && key < query->sight.last;
}

/* dq of a tile of tokens and the query heads of one kv head, at most MICA__ATTENTION_BACKWARD_ROWS rows at a time. */
static void run_rows(const mica__cpu_args *args, uint64_t token, uint64_t tokens, uint64_t head,
                     uint64_t heads, uint64_t kv_head)
{
    const mica__cpu_view *k = view_of(args, SLOT(K)), *v = view_of(args, SLOT(V)),
                         *dq = view_of(args, SLOT(DQ));
    const uint64_t dim = k->shape[2], rows = tokens * heads;
    query_row query[MICA__ATTENTION_BACKWARD_ROWS];
    double *sum = args->local;
    uint64_t first = UINT64_MAX, last = 0;
    for (uint64_t r = 0; r < rows; r++) {
        load_query(args, token + r / heads, head + r % heads, &query[r]);
        first = query[r].sight.first < first ? query[r].sight.first : first;
        last = query[r].sight.last > last ? query[r].sight.last : last;
    }
    memset(sum, 0, rows * dim * sizeof *sum);
    for (uint64_t key = first; key < last; key++) {
        const double *key_row = doubles_at(k, key, kv_head), *value_row = doubles_at(v, key, kv_head);
        for (uint64_t r = 0; r < rows; r++)
            if (sees(&query[r], key)) {
                const weight w = weigh(args, &query[r], key, key_row, value_row);
                add_scaled(w.ds, key_row, dim, sum + r * dim);
            }
    }
    for (uint64_t r = 0; r < rows; r++)
        store(row_at(dq, query[r].token, query[r].head), sum + r * dim, dim);
}

static void run_queries(const mica__cpu_args *args, uint64_t unit)
{
    const mica__attention_backward_plan *plan = args->params;
    const mica__cpu_view *q = view_of(args, SLOT(Q)), *k = view_of(args, SLOT(K));
    const uint64_t kv_heads = k->shape[1], group = q->shape[1] / kv_heads, kv_head = unit % kv_heads;
    const uint64_t token = unit / kv_heads * plan->tile, left = q->shape[0] - token;
    const uint64_t tokens = left < plan->tile ? left : plan->tile;
    for (uint64_t t = 0; t < tokens; t++) {
        backward_sight sight;
        if (!look(args, token + t, &sight))
            mica__cpu_fault(args);
    }
    if (plan->tile * group <= MICA__ATTENTION_BACKWARD_ROWS) {
        run_rows(args, token, tokens, kv_head * group, group, kv_head);
        return;
    }
    for (uint64_t h = 0; h < group; h += MICA__ATTENTION_BACKWARD_ROWS) { /* a tile is one token then */
        const uint64_t heads =
            group - h < MICA__ATTENTION_BACKWARD_ROWS ? group - h : MICA__ATTENTION_BACKWARD_ROWS;
        run_rows(args, token, tokens, kv_head * group + h, heads, kv_head);
    }
}

/* dk and dv of a tile of keys of one kv head: all its queries go by. */
static void run_keys(const mica__cpu_args *args, uint64_t unit)
{
    const mica__attention_backward_plan *plan = args->params;
    const mica__cpu_view *q = view_of(args, SLOT(Q)), *k = view_of(args, SLOT(K)),
                         *v = view_of(args, SLOT(V));
    const mica__cpu_view *dk = view_of(args, SLOT(DK)), *dv = view_of(args, SLOT(DV));
    const uint64_t kv_heads = k->shape[1], group = q->shape[1] / kv_heads, kv_head = unit % kv_heads;
    const uint64_t first = unit / kv_heads * plan->tile, left = k->shape[0] - first;
    const uint64_t keys = left < plan->tile ? left : plan->tile, dim = k->shape[2], v_dim = v->shape[2];
    double *k_sum = args->local, *v_sum = k_sum + keys * dim;
    memset(k_sum, 0, keys * (dim + v_dim) * sizeof *k_sum);
    for (uint64_t row = 0; row < q->shape[0] * group; row++) {
        query_row query;
        backward_sight sight;
        (void)look(args, row / group, &sight);
        if (sight.last <= first || sight.first >= first + keys)
            continue;
        load_query(args, row / group, kv_head * group + row % group, &query);
        for (uint64_t i = 0; i < keys; i++) {
            if (!sees(&query, first + i))
                continue;
            const weight w = weigh(args, &query, first + i, doubles_at(k, first + i, kv_head),
                                   doubles_at(v, first + i, kv_head));
            add_scaled(w.ds, query.q, dim, k_sum + i * dim);
            add_scaled(w.p, query.dy, v_dim, v_sum + i * v_dim);
        }
    }
    for (uint64_t i = 0; i < keys; i++) {
        store(row_at(dk, first + i, kv_head), k_sum + i * dim, dim);
        store(row_at(dv, first + i, kv_head), v_sum + i * v_dim, v_dim);
    }
}

static void run_sink(const mica__cpu_args *args, uint64_t head)
{
    const mica__cpu_view *q = view_of(args, SLOT(Q)), *out = view_of(args, SLOT(DSINKS));
    const double sink = of_head(view_of(args, SLOT(SINKS)), head);
    double sum = 0;
    for (uint64_t token = 0; token < q->shape[0]; token++) {
        query_row query;
        backward_sight sight;
        if (!look(args, token, &sight))
            continue;
        load_query(args, token, head, &query);
        if (sink != -(double)INFINITY && query.lse != -(double)INFINITY)
            sum -= exp(sink - query.lse) * query.delta;
    }
    store(out->data + head * out->stride[0], &sum, 1);
}

void MICA__ISA(attention_backward_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__attention_backward_plan *plan = args->params;
    for (uint64_t unit = first; unit < last; unit++)
        switch (plan->mode) {
        case MICA__ATTENTION_BACKWARD_QUERIES: run_queries(args, unit); break;
        case MICA__ATTENTION_BACKWARD_KEYS: run_keys(args, unit); break;
        default: run_sink(args, unit); break;
        }
}
