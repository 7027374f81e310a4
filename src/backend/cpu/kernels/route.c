/*
 * route.c - the best experts of each token with their weights, and the weighted sum of what experts gave.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/simd/functions.h"

/* Whether a stands before b, which has the lower id. */
static inline bool is_better(float a, float b)
{
    return a > b || (b != b && a == a);
}

/* The best so far in order: their ids and what they were chosen by. */
typedef struct ranking {
    uint32_t *ids;
    float *best;
    uint64_t count, slots;
} ranking;

/* Puts values [first, last) into it. */
static void choose(ranking *r, const float *values, uint64_t first, uint64_t last)
{
    uint64_t count = r->count;
    for (uint64_t e = first; e < last; e++) {
        if (count == r->slots && !is_better(values[e], r->best[count - 1]))
            continue;
        uint64_t at = count < r->slots ? count++ : count - 1;
        for (; at > 0 && is_better(values[e], r->best[at - 1]); at--) {
            r->best[at] = r->best[at - 1];
            r->ids[at] = r->ids[at - 1];
        }
        r->best[at] = values[e];
        r->ids[at] = (uint32_t)e;
    }
    r->count = count;
}

/* What experts are chosen by, of those of the best groups alone. `work` has room for the groups and as many again. */
static void choose_of_groups(ranking *r, const mica_route_params *route, const float *by, uint64_t n,
                             float *work)
{
    const uint64_t groups = route->groups, size = n / groups;
    ranking open = {(uint32_t *)(void *)(work + groups), work + 2 * groups, 0, route->top_groups};
    for (uint64_t g = 0; g < groups; g++) {
        uint32_t ids[2];
        float best[2];
        ranking two = {ids, best, 0, size < route->group_best ? size : route->group_best};
        choose(&two, by, g * size, (g + 1) * size);
        work[g] = two.count == 2 ? best[0] + best[1] : best[0];
    }
    choose(&open, work, 0, groups);
    for (uint64_t g = 0; g < groups; g++) /* in their order, so that the lower id wins among equals */
        for (uint64_t i = 0; i < open.count; i++)
            if (open.ids[i] == g)
                choose(r, by, g * size, (g + 1) * size);
}

/* Divides by the sum, taken in order of rank, unless it is 0; then scales. */
static void finish_weights(const mica_route_params *route, const mica__cpu_view *scale, const ranking *r,
                           float *weights)
{
    float sum = 0;
    for (uint64_t s = 0; s < r->slots; s++)
        sum += weights[s];
    for (uint64_t s = 0; s < r->slots; s++) {
        if (route->normalise && sum != 0)
            weights[s] /= sum;
        weights[s] *= route->scale;
        if (scale->data != NULL)
            weights[s] *=
                row_element(scale->data + r->ids[s] * row_element_bytes(scale->dtype), scale->dtype);
    }
}

/* y = sigmoid(x), or softmax(x) */
static void score(bool sigmoid, const float *x, uint64_t n, float *y)
{
    if (!sigmoid) {
        row_softmax(x, 1.0f, n, y);
        return;
    }
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        vf_store_n(y + i, vf_sigmoid(vf_load_n(x + i, left)), left);
    }
}

static void add_bias(const float *x, const mica__cpu_view *bias, uint64_t n, float *y)
{
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf b = row_load_n(bias->data + i * row_element_bytes(bias->dtype), bias->dtype, left);
        vf_store_n(y + i, vf_add(vf_load_n(x + i, left), b), left);
    }
}

/* A token's work memory: its logits, their scores, scores with bias, weights, each whole vectors; what the groups and a ranking need. */
typedef struct token_work {
    float *logits, *score, *by, *weights, *groups;
    ranking chosen;
} token_work;

static uint64_t whole_vectors(uint64_t n)
{
    return (n + VW - 1) / VW * VW;
}

static token_work work_of(void *local, uint64_t n, uint64_t slots, uint64_t groups)
{
    token_work w = {.logits = local};
    w.score = w.logits + whole_vectors(n);
    w.by = w.score + whole_vectors(n);
    w.weights = w.by + whole_vectors(n);
    w.groups = w.weights + whole_vectors(slots);
    float *best = w.groups + 3 * groups;
    w.chosen = (ranking){(uint32_t *)(void *)(best + slots), best, 0, slots};
    return w;
}

/* Softmax keeps the order of logits, so that without biases and sums of two the logits themselves are chosen by. */
static void route_token(const mica_route_params *route, const mica__cpu_view *bias, const float *x,
                        uint64_t n, token_work *w)
{
    const bool sigmoid = route->scoring == MICA_ROUTE_SIGMOID, scored = sigmoid || route->softmax_first;
    const float *by = x;
    ranking *r = &w->chosen;
    r->count = 0;
    if (scored)
        score(sigmoid, x, n, w->score);
    if (scored && (sigmoid || bias->data != NULL || route->group_best == 2))
        by = w->score;
    if (bias->data != NULL) {
        add_bias(by, bias, n, w->by);
        by = w->by;
    }
    if (route->groups > 1)
        choose_of_groups(r, route, by, n, w->groups);
    else
        choose(r, by, 0, n);
    const float *from = scored ? w->score : x;
    for (uint64_t s = 0; s < r->slots; s++)
        w->weights[s] = from[r->ids[s]];
    if (!scored) {
        memcpy(r->best, w->weights, r->slots * sizeof *r->best);
        row_softmax(r->best, 1.0f, r->slots, w->weights);
    }
}

void MICA__ISA(route)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_route *params = args->params;
    const mica__cpu_view *logits = &args->view[MICA__ROUTE_LOGITS], *ids = &args->view[MICA__ROUTE_IDS];
    const mica__cpu_view *weights = &args->view[MICA__ROUTE_WEIGHTS], *scale = &args->view[MICA__ROUTE_SCALE];
    const uint64_t n = logits->shape[1], slots = ids->shape[1],
                   end = mica__cpu_rows_end(&params->range, last);
    token_work w = work_of(args->local, n, slots, params->route.groups);
    for (uint64_t token = mica__cpu_rows_begin(&params->range, first); token < end; token++) {
        const float *x = row_f32(logits->data + token * logits->stride[0], logits->dtype, n, w.logits);
        route_token(&params->route, &args->view[MICA__ROUTE_BIAS], x, n, &w);
        finish_weights(&params->route, scale, &w.chosen, w.weights);
        memcpy(ids->data + token * ids->stride[0], w.chosen.ids, slots * sizeof *w.chosen.ids);
        row_store(weights->data + token * weights->stride[0], weights->dtype, w.weights, slots);
    }
}

/* sum[i] += weight * x[i] */
static inline void add_scaled(const float *x, float weight, uint64_t n, float *sum)
{
    const vf w = vf_set1(weight);
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        vf_store_n(sum + i, vf_fma(w, vf_load_n(x + i, left), vf_load_n(sum + i, left)), left);
    }
}

#define SUMS 8 /* vectors of sums that stay in registers while the slots go by */

/* n columns, at most SUMS vectors, of one token's slots, in their order. The type is a constant in each call of this. */
static inline void sum_columns(const mica__cpu_view *x, const unsigned char *from, uint16_t dtype,
                               const mica__cpu_view *weights, const unsigned char *weight, uint64_t n,
                               float *to)
{
    const uint64_t vector = VW * row_element_bytes(dtype), slots = x->shape[1];
    const bool whole = n == SUMS * VW;
    vf sum[SUMS];
    for (uint32_t j = 0; j < SUMS; j++)
        sum[j] = vf_zero();
    for (uint64_t s = 0; s < slots; s++, from += x->stride[1], weight += weights->stride[1]) {
        const vf w = vf_set1(row_element(weight, weights->dtype));
        for (uint32_t j = 0; j < SUMS && whole; j++) {
            __builtin_prefetch(from + (j + SUMS) * vector);
            sum[j] = vf_fma(w, row_load_n(from + j * vector, dtype, VW), sum[j]);
        }
        for (uint32_t j = 0; j < SUMS && !whole && j * VW < n; j++)
            sum[j] =
                vf_fma(w, row_load_n(from + j * vector, dtype, n - j * VW < VW ? n - j * VW : VW), sum[j]);
    }
    for (uint32_t j = 0; j < SUMS && j * VW < n; j++)
        vf_store_n(to + j * VW, sum[j], n - j * VW < VW ? n - j * VW : VW);
}

/* `part` columns from `at` on of the weighted sum of a token's slots. */
static void sum_slots(const mica__cpu_args *args, uint64_t token, uint64_t at, uint64_t part, float *sum)
{
    const mica__cpu_view *x = &args->view[MICA__EXPERT_SUM_X],
                         *weights = &args->view[MICA__EXPERT_SUM_WEIGHTS];
    const unsigned char *weight = weights->data + token * weights->stride[0];
    const unsigned char *from = x->data + token * x->stride[0] + at * row_element_bytes(x->dtype);
    for (uint64_t i = 0; i < part; i += SUMS * VW) {
        const uint64_t n = part - i < SUMS * VW ? part - i : SUMS * VW;
        if (x->dtype == MICA_DTYPE_F32)
            sum_columns(x, from + 4 * i, MICA_DTYPE_F32, weights, weight, n, sum + i);
        else if (x->dtype == MICA_DTYPE_F16)
            sum_columns(x, from + 2 * i, MICA_DTYPE_F16, weights, weight, n, sum + i);
        else
            sum_columns(x, from + 2 * i, MICA_DTYPE_BF16, weights, weight, n, sum + i);
    }
}

/* The shared expert and the residual. */
static void add_rest(const mica__cpu_args *args, uint64_t token, uint64_t at, uint64_t part, float *sum)
{
    const mica__cpu_view *gate = &args->view[MICA__EXPERT_SUM_GATE];
    float tmp[MICA__CPU_SUM_TILE];
    for (uint32_t slot = MICA__EXPERT_SUM_SHARED; slot <= MICA__EXPERT_SUM_RESIDUAL; slot++) {
        const mica__cpu_view *view = &args->view[slot];
        float weight = 1.0f;
        if (slot == MICA__EXPERT_SUM_GATE || view->data == NULL)
            continue;
        if (slot == MICA__EXPERT_SUM_SHARED && gate->data != NULL) {
            const float logit = row_element(gate->data + token * gate->stride[0], gate->dtype);
            vf_store_n(&weight, vf_sigmoid(vf_load_n(&logit, 1)), 1);
        }
        const unsigned char *from =
            view->data + token * view->stride[0] + at * row_element_bytes(view->dtype);
        add_scaled(row_f32(from, view->dtype, part, tmp), weight, part, sum);
    }
}

/* Row r is tile r % tiles of token r / tiles. */
void MICA__ISA(expert_sum)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_range *range = args->params;
    const mica__cpu_view *y = &args->view[MICA__EXPERT_SUM_Y];
    const uint64_t n = y->shape[1], tiles = (n + MICA__CPU_SUM_TILE - 1) / MICA__CPU_SUM_TILE;
    const uint64_t end = mica__cpu_rows_end(range, last);
    float sum[MICA__CPU_SUM_TILE];
    for (uint64_t row = mica__cpu_rows_begin(range, first); row < end; row++) {
        const uint64_t token = row / tiles, at = row % tiles * MICA__CPU_SUM_TILE;
        const uint64_t part = n - at < MICA__CPU_SUM_TILE ? n - at : MICA__CPU_SUM_TILE;
        sum_slots(args, token, at, part, sum);
        add_rest(args, token, at, part, sum);
        row_store(y->data + token * y->stride[0] + at * row_element_bytes(y->dtype), y->dtype, sum, part);
    }
}
