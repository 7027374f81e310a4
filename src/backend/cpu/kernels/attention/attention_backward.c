/*
 * attention_backward.c - the gradient of attention over one sequence, in f32.
 *
 * A chunk of keys is packed once and all queries go by in tiles. A tile of queries and a block of as many keys make five products of
 * matrices: the scores and dy.v, of which weights and what reaches the scores are made, and with those dq, dk and dv. Sums are in rising
 * dimension, key, and query; where one part of a sum ends the next goes on, so that no bit depends on tiles and chunks. What a query does not
 * see is a factor 0, which would let a NaN through: where a number is not finite such factors are left out one by one.
 */
#include "backend/cpu/kernels/attention/attention_backward_seen.h"
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/outer.h"
#include "backend/cpu/kernels/product/product_pack.h"

#define TILE MICA__ATTENTION_BACKWARD_TILE

_Static_assert(TILE % OUTER_ROWS == 0 && TILE % VW == 0, "tiles are whole");

/* A kv head's keys [first, first + keys) and the tile of queries that meets them. Rows of queries are numbered token by token, the
 * heads of a token together. */
typedef struct backward_tile {
    const mica__cpu_args *args;
    const mica__attention_backward_plan *plan;
    uint64_t kv_head, group, dim, v_dim;
    uint64_t first, keys;
    float *k_columns, *v_columns, *k, *dk, *dv; /* columns in panels of TILE keys; rows are row(dim) apart */
    uint64_t row, rows;
    backward_sight sight[TILE];
    float lse[TILE], delta[TILE]; /* delta = dy.y */
    float *q, *dy, *dq, *y;
    float *p, *ds; /* [TILE, TILE]: scores, then weights; dy.v, then what reaches the scores */
    bool keys_finite, finite;
} backward_tile;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t row_floats(uint64_t dim)
{
    return mica__attention_backward_row(dim);
}

static uint64_t token_of(const backward_tile *t, uint64_t r)
{
    return (t->row + r) / t->group;
}

static uint64_t head_of(const backward_tile *t, uint64_t r)
{
    return t->kv_head * t->group + (t->row + r) % t->group;
}

/* A row as f32, filled up to a whole vector. */
static void load_row(const mica__cpu_view *view, uint64_t token, uint64_t head, float *to)
{
    gemm_pack_row(row_at(view, token, head), view->dtype, view->shape[2], 0, 1, to);
}

/* x - x is 0, or NaN. */
static bool is_finite(const float *row, uint64_t n)
{
    vf sum = vf_zero();
    for (uint64_t i = 0; i < n; i += VW)
        sum = vf_add(sum, vf_sub(vf_load(row + i), vf_load(row + i)));
    return vf_sum(sum) == 0;
}

static float dot(const float *a, const float *b, uint64_t n)
{
    vf sum = vf_zero();
    for (uint64_t i = 0; i < n; i += VW)
        sum = vf_fma(vf_load(a + i), vf_load(b + i), sum);
    return vf_sum(sum);
}

/* Columns of keys or values in panels of TILE; those behind the last are zeros. */
static void pack_columns(const backward_tile *t, uint32_t slot, float *panels)
{
    const mica__cpu_view *x = view_of(t->args, slot);
    const uint64_t bytes = row_element_bytes(x->dtype), dim = x->shape[2];
    for (uint64_t i = 0; i < t->keys; i += TILE) {
        const product_lines lines = {row_at(x, t->first + i, t->kv_head), x->stride[0], bytes,
                                     smaller(TILE, t->keys - i),          dim,          x->dtype};
        pack_lines(&lines, TILE, panels + i * dim);
    }
}

static void load_keys(backward_tile *t)
{
    const uint64_t whole = mica__dense_round(t->keys, TILE), k = row_floats(t->dim), v = row_floats(t->v_dim);
    pack_columns(t, SLOT(K), t->k_columns);
    pack_columns(t, SLOT(V), t->v_columns);
    for (uint64_t i = 0; i < t->keys; i++)
        load_row(view_of(t->args, SLOT(K)), t->first + i, t->kv_head, t->k + i * k);
    memset(t->k + t->keys * k, 0, (whole - t->keys) * k * sizeof *t->k);
    memset(t->dk, 0, t->plan->chunk_keys * k * sizeof *t->dk);
    memset(t->dv, 0, t->plan->chunk_keys * v * sizeof *t->dv);
    t->keys_finite = is_finite(t->k_columns, whole * t->dim) && is_finite(t->v_columns, whole * t->v_dim);
}

/* Rows that are not there are zeros that see nothing. False: nobody of the tile sees the chunk. */
static bool load_queries(backward_tile *t)
{
    const mica__cpu_view *lse = view_of(t->args, SLOT(LSE));
    const uint64_t q = row_floats(t->dim), v = row_floats(t->v_dim), end = t->first + t->keys;
    bool seen = false;
    for (uint64_t r = 0; r < t->rows; r++) {
        if (!look(t->args, token_of(t, r), &t->sight[r]))
            mica__cpu_fault(t->args);
        seen = seen || (t->sight[r].first < end && t->sight[r].last > t->first);
    }
    if (!seen)
        return false;
    t->finite = t->keys_finite;
    for (uint64_t r = 0; r < t->rows; r++) {
        float *to = t->q + r * q, *dy = t->dy + r * v;
        load_row(view_of(t->args, SLOT(Q)), token_of(t, r), head_of(t, r), to);
        load_row(view_of(t->args, SLOT(DY)), token_of(t, r), head_of(t, r), dy);
        load_row(view_of(t->args, SLOT(Y)), token_of(t, r), head_of(t, r), t->y);
        t->lse[r] = row_element(row_at(lse, token_of(t, r), head_of(t, r)), lse->dtype);
        t->delta[r] = dot(dy, t->y, t->v_dim);
        t->finite = t->finite && is_finite(to, t->dim) && is_finite(dy, t->v_dim);
    }
    for (uint64_t r = t->rows; r % OUTER_ROWS != 0; r++) {
        memset(t->q + r * q, 0, q * sizeof *t->q);
        memset(t->dy + r * v, 0, v * sizeof *t->dy);
    }
    return true;
}

/* What the mask says of keys [first, last), from `key` on. */
static void add_mask(const backward_tile *t, uint64_t r, uint64_t key, uint64_t first, uint64_t last,
                     float *score)
{
    const mica__cpu_view *mask = view_of(t->args, SLOT(MASK));
    const uint64_t stride = mask->stride[mask->ndim - 1];
    const unsigned char *at = mask_of(mask, token_of(t, r), head_of(t, r)) + key * stride;
    for (uint64_t i = first; i < last; i++) {
        if (mask->dtype != MICA_DTYPE_BOOL)
            score[i] += row_element(at + i * stride, mask->dtype);
        else
            score[i] = at[i * stride] != 0 ? score[i] : -INFINITY;
    }
}

static void add_slope(const backward_tile *t, uint64_t r, uint64_t key, uint64_t first, uint64_t last,
                      float *score)
{
    const float slope = (float)of_head(view_of(t->args, SLOT(SLOPES)), head_of(t, r));
    for (uint64_t i = first; i < last; i++)
        score[i] += slope * (float)((int64_t)(key + i) - t->sight[r].position);
}

/* Of one row: scores of the block from `key` on become weights, dy.v what reaches the scores. Neither is more than 0 for a key that is not seen. */
static void weigh(const backward_tile *t, uint64_t r, uint64_t key, float *p, float *ds)
{
    const mica_attention_params *a = &t->plan->attention;
    const backward_sight *s = &t->sight[r];
    const uint64_t first = smaller(larger(s->first, key) - key, TILE),
                   last = larger(smaller(larger(s->last, key) - key, TILE), first);
    const vf scale = vf_set1(a->scale), cap = vf_set1(a->softcap), nothing = vf_set1(-INFINITY);
    float slope[TILE];
    for (uint64_t i = 0; i < TILE; i += VW) {
        vf_store(p + i, vf_mul(vf_load(p + i), scale));
        vf_store(slope + i, scale);
    }
    for (uint64_t i = 0; a->softcap > 0 && i < TILE; i += VW) {
        const vf part = vf_tanh(vf_div(vf_load(p + i), cap));
        vf_store(p + i, vf_mul(cap, part));
        vf_store(slope + i, vf_mul(scale, vf_fnma(part, part, vf_set1(1))));
    }
    if (view_of(t->args, SLOT(MASK))->data != NULL)
        add_mask(t, r, key, first, last, p);
    if (view_of(t->args, SLOT(SLOPES))->data != NULL)
        add_slope(t, r, key, first, last, p);
    const vf lse = vf_set1(t->lse[r]), delta = vf_set1(t->delta[r]), zero = vf_zero();
    for (uint64_t i = 0; i < TILE; i += VW) {
        const vf score = vf_load(p + i);
        const vf weight = vf_exp(vf_sub(score, lse));
        const vf reaches = vf_mul(vf_mul(weight, vf_sub(vf_load(ds + i), delta)), vf_load(slope + i));
        const uint64_t from = first > i ? smaller(first - i, VW) : 0,
                       to = last > i ? smaller(last - i, VW) : 0;
        const vm hidden = vf_eq(score, nothing);
        const vf kept = vf_merge_n(vf_select(hidden, zero, weight), zero, to),
                 kept_ds = vf_merge_n(vf_select(hidden, zero, reaches), zero, to);
        vf_store(p + i, vf_merge_n(zero, kept, from));
        vf_store(ds + i, vf_merge_n(zero, kept_ds, from));
    }
}

static void add_row(float factor, const float *x, uint64_t n, float *sum)
{
    for (uint64_t i = 0; i < n; i += VW)
        vf_store(sum + i, vf_fma(vf_set1(factor), vf_load(x + i), vf_load(sum + i)));
}

/* The three sums of a block without the factors 0. */
static void add_one_by_one(const backward_tile *t, uint64_t at)
{
    const uint64_t q = row_floats(t->dim), v = row_floats(t->v_dim);
    for (uint64_t r = 0; r < t->rows; r++)
        for (uint64_t i = 0; i < smaller(TILE, t->keys - at); i++) {
            const float p = t->p[r * TILE + i], ds = t->ds[r * TILE + i];
            if (p == 0 && ds == 0)
                continue;
            add_row(ds, t->k + (at + i) * q, t->dim, t->dq + r * q);
            add_row(ds, t->q + r * q, t->dim, t->dk + (at + i) * q);
            add_row(p, t->dy + r * v, t->v_dim, t->dv + (at + i) * v);
        }
}

static void add_sums(const backward_tile *t, uint64_t at)
{
    const uint64_t q = row_floats(t->dim), v = row_floats(t->v_dim);
    const uint64_t keys = smaller(TILE, t->keys - at);
    const outer to_q = {t->ds, t->k + at * q, TILE, 1, q, keys, t->dq, q, false},
                to_k = {t->ds, t->q, 1, TILE, q, t->rows, t->dk + at * q, q, false},
                to_v = {t->p, t->dy, 1, TILE, v, t->rows, t->dv + at * v, v, false};
    outer_add(&to_q, t->rows, t->dim);
    outer_add(&to_k, keys, t->dim);
    outer_add(&to_v, keys, t->v_dim);
}

/* The tile's queries and the block of keys at place `at` of the chunk. */
static void run_block(const backward_tile *t, uint64_t at)
{
    const uint64_t q = row_floats(t->dim), v = row_floats(t->v_dim), key = t->first + at;
    uint64_t first = UINT64_MAX, last = 0;
    for (uint64_t r = 0; r < t->rows; r++)
        if (t->sight[r].first < t->sight[r].last) {
            first = smaller(first, t->sight[r].first);
            last = larger(last, t->sight[r].last);
        }
    if (first >= key + TILE || last <= key)
        return;
    const outer scores = {t->q, t->k_columns + at * t->dim, q, 1, TILE, t->dim, t->p, TILE, true},
                values = {t->dy, t->v_columns + at * t->v_dim, v, 1, TILE, t->v_dim, t->ds, TILE, true};
    outer_add(&scores, t->rows, TILE);
    outer_add(&values, t->rows, TILE);
    for (uint64_t r = 0; r < t->rows; r++)
        if (t->lse[r] == -INFINITY) {
            memset(t->p + r * TILE, 0, TILE * sizeof *t->p);
            memset(t->ds + r * TILE, 0, TILE * sizeof *t->ds);
        } else {
            weigh(t, r, key, t->p + r * TILE, t->ds + r * TILE);
        }
    if (t->finite)
        add_sums(t, at);
    else
        add_one_by_one(t, at);
}

/* Where a split keeps its sum of a row of dq; NULL: what it has is all. */
static float *kept_row(const mica__cpu_args *args, uint64_t split, uint64_t token, uint64_t head)
{
    const mica__attention_backward_plan *plan = args->params;
    const mica__cpu_view *q = view_of(args, SLOT(Q));
    if (plan->kept == 0)
        return NULL;
    float *kept = (float *)(void *)args->view[MICA__ATTENTION_BACKWARD_SLOTS].data;
    return kept + ((split * q->shape[0] + token) * q->shape[1] + head) * row_floats(q->shape[2]);
}

/* All queries by the tile's chunk, which is the split's first or adds to what it has. */
static void run_chunk(backward_tile *t, uint64_t split, bool first)
{
    const mica__cpu_view *dq = view_of(t->args, SLOT(DQ));
    const uint64_t all = view_of(t->args, SLOT(Q))->shape[0] * t->group, q = row_floats(t->dim);
    for (t->row = 0; t->row < all; t->row += TILE) {
        t->rows = smaller(TILE, all - t->row);
        const bool seen = load_queries(t);
        if (!seen && !first)
            continue;
        memset(t->dq, 0, TILE * q * sizeof *t->dq);
        for (uint64_t r = 0; !first && r < t->rows; r++)
            memcpy(t->dq + r * q, kept_row(t->args, split, token_of(t, r), head_of(t, r)), q * sizeof *t->dq);
        for (uint64_t at = 0; seen && at < t->keys; at += TILE)
            run_block(t, at);
        for (uint64_t r = 0; r < t->rows; r++) {
            float *kept = kept_row(t->args, split, token_of(t, r), head_of(t, r));
            if (kept != NULL)
                memcpy(kept, t->dq + r * q, q * sizeof *kept);
            else
                row_store(row_at(dq, token_of(t, r), head_of(t, r)), dq->dtype, t->dq + r * q, t->dim);
        }
    }
}

static void lay_out(backward_tile *t)
{
    const uint64_t q = row_floats(t->dim), v = row_floats(t->v_dim), keys = t->plan->chunk_keys;
    t->k_columns = t->args->local;
    t->v_columns = t->k_columns + keys * q;
    t->k = t->v_columns + keys * v;
    t->dk = t->k + keys * q;
    t->dv = t->dk + keys * q;
    t->q = t->dv + keys * v;
    t->dq = t->q + TILE * q;
    t->dy = t->dq + TILE * q;
    t->y = t->dy + TILE * v;
    t->p = t->y + v;
    t->ds = t->p + TILE * TILE;
}

static void run_split(const mica__cpu_args *args, uint64_t unit)
{
    const mica__attention_backward_plan *plan = args->params;
    const mica__cpu_view *k = view_of(args, SLOT(K)), *dk = view_of(args, SLOT(DK)),
                         *dv = view_of(args, SLOT(DV));
    const uint64_t kv_heads = k->shape[1], split = unit / kv_heads;
    backward_tile t = {.args = args,
                       .plan = plan,
                       .kv_head = unit % kv_heads,
                       .group = view_of(args, SLOT(Q))->shape[1] / kv_heads,
                       .dim = k->shape[2],
                       .v_dim = view_of(args, SLOT(V))->shape[2]};
    const uint64_t begin = mica__dense_cut(plan->chunks, plan->splits, split),
                   end = mica__dense_cut(plan->chunks, plan->splits, split + 1), there = keys_there(args);
    lay_out(&t);
    for (uint64_t chunk = begin; chunk < end; chunk++) {
        t.first = chunk * plan->chunk_keys;
        const uint64_t all = smaller(plan->chunk_keys, k->shape[0] - t.first);
        t.keys = there > t.first ? smaller(all, there - t.first) : 0;
        load_keys(&t);
        run_chunk(&t, split, chunk == begin);
        for (uint64_t i = 0; i < all; i++) {
            row_store(row_at(dk, t.first + i, t.kv_head), dk->dtype, t.dk + i * row_floats(t.dim), t.dim);
            row_store(row_at(dv, t.first + i, t.kv_head), dv->dtype, t.dv + i * row_floats(t.v_dim), t.v_dim);
        }
    }
}

/* A row of dq: what the splits kept. */
static void join_row(const mica__cpu_args *args, uint64_t row)
{
    const mica__attention_backward_plan *plan = args->params;
    const mica__cpu_view *dq = view_of(args, SLOT(DQ));
    const uint64_t heads = dq->shape[1], dim = dq->shape[2];
    float *sum = args->local;
    memcpy(sum, kept_row(args, 0, row / heads, row % heads), dim * sizeof *sum);
    for (uint64_t split = 1; split < plan->splits; split++)
        row_add(sum, kept_row(args, split, row / heads, row % heads), dim, sum);
    row_store(row_at(dq, row / heads, row % heads), dq->dtype, sum, dim);
}

static float exp_of(float x)
{
    float lane[VW];
    vf_store(lane, vf_exp(vf_set1(x)));
    return lane[0];
}

static void run_sink(const mica__cpu_args *args, uint64_t head)
{
    const mica__cpu_view *out = view_of(args, SLOT(DSINKS)), *y = view_of(args, SLOT(Y)),
                         *dy = view_of(args, SLOT(DY)), *lse = view_of(args, SLOT(LSE));
    const float sink = (float)of_head(view_of(args, SLOT(SINKS)), head);
    float *y_row = args->local, *dy_row = y_row + row_floats(y->shape[2]), sum = 0;
    for (uint64_t token = 0; token < y->shape[0]; token++) {
        backward_sight sight;
        const float at = row_element(row_at(lse, token, head), lse->dtype);
        if (!look(args, token, &sight) || sink == -INFINITY || at == -INFINITY)
            continue;
        load_row(y, token, head, y_row);
        load_row(dy, token, head, dy_row);
        sum -= exp_of(sink - at) * dot(dy_row, y_row, y->shape[2]);
    }
    row_store(out->data + head * out->stride[0], out->dtype, &sum, 1);
}

void MICA__ISA(attention_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__attention_backward_plan *plan = args->params;
    for (uint64_t unit = first; unit < last; unit++)
        switch (plan->mode) {
        case MICA__ATTENTION_BACKWARD_SPLITS: run_split(args, unit); break;
        case MICA__ATTENTION_BACKWARD_JOIN: join_row(args, unit); break;
        default: run_sink(args, unit); break;
        }
}
