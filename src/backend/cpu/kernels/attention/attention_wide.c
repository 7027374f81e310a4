/*
 * attention_wide.c - attention of f64: a unit is a row of y, which walks its keys one by one, the softmax in running form. Exactness is what
 * it is for, not speed.
 */
#include <math.h>

#include "backend/cpu/kernels/attention/attention_seen.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"

/* A row on its way: greatest score, sum of weights, weighted values. */
typedef struct wide_row {
    const mica__cpu_args *args;
    uint64_t token, head, kv_head;
    sight sight;
    double most, sum, *value;
} wide_row;

static double element(const unsigned char *at, uint16_t dtype)
{
    double value;
    if (dtype != MICA_DTYPE_F64)
        return (double)row_element(at, dtype);
    memcpy(&value, at, sizeof value);
    return value;
}

static double of_head(const wide_row *r, uint32_t slot)
{
    const mica__cpu_view *view = view_of(r->args, slot);
    return element(view->data + r->head * view->stride[0], view->dtype);
}

/* What the mask and the slope make of a score. */
static double adjust(const wide_row *r, double score, uint64_t key)
{
    const mica__cpu_view *mask = view_of(r->args, MICA__ATTENTION_MASK);
    if (mask->data != NULL) {
        const uint64_t head = mask->ndim > 2 && mask->shape[0] > 1 ? r->head * mask->stride[0] : 0;
        const unsigned char *at =
            mask->data + head + r->token * mask->stride[mask->ndim - 2] + key * mask->stride[mask->ndim - 1];
        if (mask->dtype == MICA_DTYPE_BOOL && *at == 0)
            return -INFINITY;
        score += mask->dtype == MICA_DTYPE_BOOL ? 0 : element(at, mask->dtype);
    }
    if (view_of(r->args, MICA__ATTENTION_SLOPES)->data != NULL)
        score += of_head(r, MICA__ATTENTION_SLOPES) * (double)((int64_t)key - (int64_t)r->sight.position);
    return score;
}

static double score_of(const wide_row *r, uint64_t key)
{
    const mica_attention_params *a = r->args->params;
    const mica__cpu_view *q = view_of(r->args, MICA__ATTENTION_Q), *k = view_of(r->args, MICA__ATTENTION_K);
    const unsigned char *query = q->data + r->token * q->stride[0] + r->head * q->stride[1];
    const unsigned char *row =
        key_place(r->args, MICA__ATTENTION_K, r->sight.sequence, key) + r->kv_head * k->stride[k->ndim - 2];
    double score = 0;
    for (uint64_t i = 0; i < q->shape[2]; i++)
        score += element(query + i * sizeof(double), MICA_DTYPE_F64) *
                 element(row + i * sizeof(double), MICA_DTYPE_F64);
    score *= (double)a->scale;
    if (a->softcap > 0)
        score = (double)a->softcap * tanh(score / (double)a->softcap);
    return adjust(r, score, key);
}

/* Makes room for a score: what there is shrinks where it is the greatest. */
static double take(wide_row *r, double score, uint64_t dim)
{
    if (score > r->most) {
        const double shrink = exp(r->most - score);
        r->sum *= shrink;
        for (uint64_t i = 0; i < dim; i++)
            r->value[i] *= shrink;
        r->most = score;
    }
    const double weight = exp(score - (r->most == -INFINITY ? 0 : r->most));
    r->sum += weight;
    return weight;
}

static void add_key(wide_row *r, uint64_t key)
{
    const mica__cpu_view *v = view_of(r->args, MICA__ATTENTION_V);
    const uint64_t dim = v->shape[v->ndim - 1];
    const unsigned char *row =
        key_place(r->args, MICA__ATTENTION_V, r->sight.sequence, key) + r->kv_head * v->stride[v->ndim - 2];
    const double weight = take(r, score_of(r, key), dim);
    for (uint64_t i = 0; i < dim; i++)
        r->value[i] += weight * element(row + i * sizeof(double), MICA_DTYPE_F64);
}

static void write_row(wide_row *r)
{
    const mica__cpu_view *y = view_of(r->args, MICA__ATTENTION_Y),
                         *lse = view_of(r->args, MICA__ATTENTION_LSE);
    unsigned char *to = y->data + r->token * y->stride[0] + r->head * y->stride[1];
    if (view_of(r->args, MICA__ATTENTION_SINKS)->data != NULL)
        (void)take(r, of_head(r, MICA__ATTENTION_SINKS), y->shape[2]);
    for (uint64_t i = 0; i < y->shape[2]; i++) {
        const double value = r->sum == 0 ? 0 : r->value[i] / r->sum;
        memcpy(to + i * sizeof value, &value, sizeof value);
    }
    const double total = r->sum == 0 ? -INFINITY : r->most + log(r->sum);
    if (lse->data != NULL)
        memcpy(lse->data + r->token * lse->stride[0] + r->head * lse->stride[1], &total, sizeof total);
}

void MICA__ISA(attention_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_view *q = view_of(args, MICA__ATTENTION_Q), *k = view_of(args, MICA__ATTENTION_K);
    const uint64_t heads = q->shape[1], group = heads / k->shape[k->ndim - 2],
                   dim = view_of(args, MICA__ATTENTION_Y)->shape[2];
    const bool chosen = view_of(args, MICA__ATTENTION_KEYS)->data != NULL;
    for (uint64_t row = first; row < last; row++) {
        wide_row r = {.args = args, .token = row / heads, .head = row % heads, .most = -INFINITY};
        r.kv_head = r.head / group;
        r.value = args->local;
        uint32_t *key = chosen ? (uint32_t *)(void *)(r.value + dim) : NULL;
        memset(r.value, 0, dim * sizeof(double));
        if (!look(args, args->params, r.token, key, &r.sight))
            mica__cpu_fault(args);
        for (uint64_t i = r.sight.first; i < r.sight.last; i++)
            add_key(&r, key != NULL ? key[i] : i);
        write_row(&r);
    }
}
