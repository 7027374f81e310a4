/*
 * route.c - the best experts of each token with their weights, and the weighted sum of what experts gave.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"

/* Whether a stands before b, which has the lower id. */
static inline bool is_better(float a, float b)
{
    return a > b || (b != b && a == a);
}

/* The `slots` best of n logits in order: their ids and values. */
static void choose(const float *logits, uint64_t n, uint64_t slots, uint32_t *ids, float *best)
{
    uint64_t count = 0;
    for (uint64_t e = 0; e < n; e++) {
        if (count == slots && !is_better(logits[e], best[slots - 1]))
            continue;
        uint64_t at = count < slots ? count++ : slots - 1;
        for (; at > 0 && is_better(logits[e], best[at - 1]); at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = logits[e];
        ids[at] = (uint32_t)e;
    }
}

/* Divides by the sum, taken in order of rank, unless it is 0; then scales. */
static void finish_weights(const mica_route_params *route, uint64_t slots, float *weights)
{
    float sum = 0;
    for (uint64_t s = 0; s < slots; s++)
        sum += weights[s];
    for (uint64_t s = 0; s < slots; s++) {
        if (route->normalise && sum != 0)
            weights[s] /= sum;
        weights[s] *= route->scale;
    }
}

void MICA__ISA(route)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_route *params = args->params;
    const mica__cpu_view *logits = &args->view[MICA__ROUTE_LOGITS], *ids = &args->view[MICA__ROUTE_IDS];
    const mica__cpu_view *weights = &args->view[MICA__ROUTE_WEIGHTS];
    const uint64_t n = logits->shape[1], slots = ids->shape[1],
                   end = mica__cpu_rows_end(&params->range, last);
    const uint64_t round = (n + VW - 1) / VW * VW;
    float *row_tmp = args->local, *soft = row_tmp + n, *best = soft + round;
    uint32_t *chosen = (uint32_t *)(void *)(best + slots);
    for (uint64_t token = mica__cpu_rows_begin(&params->range, first); token < end; token++) {
        const float *x = row_f32(logits->data + token * logits->stride[0], logits->dtype, n, row_tmp);
        choose(x, n, slots, chosen, best);
        if (params->route.softmax_first) {
            row_softmax(x, 1.0f, n, soft);
            for (uint64_t s = 0; s < slots; s++)
                best[s] = soft[chosen[s]];
        } else {
            row_softmax(best, 1.0f, slots, soft);
            memcpy(best, soft, slots * sizeof *best);
        }
        finish_weights(&params->route, slots, best);
        memcpy(ids->data + token * ids->stride[0], chosen, slots * sizeof *chosen);
        row_store(weights->data + token * weights->stride[0], weights->dtype, best, slots);
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

/* Row r is tile r % tiles of token r / tiles. */
void MICA__ISA(expert_sum)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_range *range = args->params;
    const mica__cpu_view *x = &args->view[MICA__EXPERT_SUM_X], *y = &args->view[MICA__EXPERT_SUM_Y];
    const mica__cpu_view *weights = &args->view[MICA__EXPERT_SUM_WEIGHTS];
    const uint64_t slots = x->shape[1], n = x->shape[2],
                   tiles = (n + MICA__CPU_SUM_TILE - 1) / MICA__CPU_SUM_TILE;
    const uint64_t end = mica__cpu_rows_end(range, last);
    float sum[MICA__CPU_SUM_TILE], tmp[MICA__CPU_SUM_TILE];
    for (uint64_t row = mica__cpu_rows_begin(range, first); row < end; row++) {
        const uint64_t token = row / tiles, at = row % tiles * MICA__CPU_SUM_TILE;
        const uint64_t part = n - at < MICA__CPU_SUM_TILE ? n - at : MICA__CPU_SUM_TILE;
        memset(sum, 0, sizeof sum);
        for (uint64_t s = 0; s < slots; s++) {
            const unsigned char *from = x->data + token * x->stride[0] + s * x->stride[1];
            const float weight = row_element(
                weights->data + token * weights->stride[0] + s * weights->stride[1], weights->dtype);
            add_scaled(row_f32(from + at * row_element_bytes(x->dtype), x->dtype, part, tmp), weight, part,
                       sum);
        }
        row_store(y->data + token * y->stride[0] + at * row_element_bytes(y->dtype), y->dtype, sum, part);
    }
}
