/*
 * oracle_attention.c - where a key lies, and softmax(q k^T) v over the keys that a query sees.
 */
#include "oracle/oracle_ops.h"

#include <math.h>
#include <stdlib.h>

int64_t oracle_cache_slot(const oracle_cache *cache, int64_t sequence, int64_t position)
{
    int64_t slots = (int64_t)cache->page_slots;
    double page;

    if (position < 0 || sequence < 0 || (cache->table && sequence >= (int64_t)cache->sequences))
        return -1;
    if (!cache->table && cache->ring)
        return position % slots;
    if (!cache->table)
        return position < slots ? position : -1;
    if (position / slots >= (int64_t)cache->max_pages)
        return -1;
    page = cache->table[(size_t)sequence * cache->max_pages + (size_t)(position / slots)];
    if (page < 0 || page >= (double)cache->pages)
        return -1;
    return (int64_t)page * slots + position % slots;
}

typedef struct scores {
    double *score, *times; /* times: how often the key stands in the token's list */
    int64_t *slot;         /* -1: not seen */
    double largest, widest;
    bool any;
} scores;

/* In a ring only the newest keys are still there. */
static bool sees(const oracle_attention *a, int64_t position, int64_t key, int64_t length)
{
    if (a->cache.ring && key < length - (int64_t)a->cache.page_slots)
        return false;
    if (!a->bidirectional && key > position)
        return false;
    if (a->window && key <= position - (int64_t)a->window)
        return false;
    return !a->mask || key < (int64_t)a->mask_keys;
}

/* How often the token's list has the key; 1 without a list. */
static double listed(const oracle_attention *a, size_t token, int64_t key)
{
    double times = 0;

    if (!a->keys)
        return 1;
    for (size_t i = 0; i < a->key_count; i++)
        times += a->keys[token * a->key_count + i] == (double)key;
    return times;
}

/* What mask and slope add to a score; *bias gets the size of what a kernel rounds. */
static double added(const oracle_attention *a, size_t token, size_t head, int64_t key, double *bias)
{
    double sum = 0;

    *bias = 0;
    if (a->mask) {
        sum = a->mask[((a->mask_heads > 1 ? head : 0) * a->tokens + token) * a->mask_keys + (size_t)key];
        if (a->mask_hides)
            sum = sum != 0 ? 0 : -(double)INFINITY;
    }
    if (a->slopes) {
        *bias = fabs(a->slopes[head] * ((double)key - a->positions[token]));
        sum += a->slopes[head] * ((double)key - a->positions[token]);
    }
    return sum;
}

/* Scores of one query head over `length` keys. False when a key that it sees has no place. */
static bool score_keys(const oracle_attention *a, size_t token, size_t head, int64_t length, scores *out)
{
    int64_t sequence = a->sequences ? (int64_t)a->sequences[token] : 0;
    size_t kv_head = head / (a->heads / a->cache.heads);
    const double *q = a->q + (token * a->heads + head) * a->dim;

    out->largest = -INFINITY;
    out->widest = 0;
    for (int64_t key = 0; key < length; key++) {
        double dot = 0, size = 0, bias;
        const double *k;

        out->slot[key] = -1;
        out->times[key] = listed(a, token, key);
        if (out->times[key] == 0 || !sees(a, (int64_t)a->positions[token], key, length))
            continue;
        out->slot[key] = oracle_cache_slot(&a->cache, sequence, key);
        if (out->slot[key] < 0)
            return false;
        k = a->k + ((size_t)out->slot[key] * a->cache.heads + kv_head) * a->dim;
        for (size_t i = 0; i < a->dim; i++) {
            dot += q[i] * k[i];
            size += fabs(q[i] * k[i]);
        }
        dot *= a->scale;
        if (a->softcap > 0)
            dot = a->softcap * tanh(dot / a->softcap);
        dot += added(a, token, head, key, &bias);
        out->score[key] = dot;
        out->largest = fmax(out->largest, dot);
        if (isfinite(dot))
            out->widest = fmax(out->widest,
                               size * fabs(a->scale) * (1 + 0.1 * sqrt((double)a->dim)) + fabs(dot) + bias);
    }
    return true;
}

/* The logarithm of the sum of weights, whose own error is relative, and that of the greatest score. */
static void write_lse(const oracle_attention *a, size_t row, double largest, double total, int64_t length,
                      const scores *s)
{
    if (!a->lse)
        return;
    a->lse[row] = total > 0 ? largest + log(total) : -(double)INFINITY;
    a->lse_error[row] = 2 + s->widest + 0.25 * sqrt((double)length) + fabs(largest) + fabs(log(total));
}

/* y = sum p v; error: each p is off by its score's error, each product and sum by one rounding. */
static void mix_values(const oracle_attention *a, size_t row, int64_t length, const scores *s, double *y,
                       double *error)
{
    size_t head = row % a->heads, kv_head = head / (a->heads / a->cache.heads);
    double sink = a->sinks ? a->sinks[head] : -(double)INFINITY, largest = fmax(s->largest, sink), total = 0;

    for (size_t i = 0; i < a->v_dim; i++)
        y[i] = error[i] = 0;
    if (largest > -INFINITY)
        total = exp(sink - largest);
    for (int64_t key = 0; s->largest > -INFINITY && key < length; key++)
        total += s->slot[key] < 0 ? 0 : s->times[key] * exp(s->score[key] - largest);
    write_lse(a, row, largest, total, length, s);
    if (s->largest == -INFINITY)
        return;
    for (int64_t key = 0; key < length; key++) {
        const double *v =
            a->v + ((size_t)(s->slot[key] < 0 ? 0 : s->slot[key]) * a->cache.heads + kv_head) * a->v_dim;
        double p = s->slot[key] < 0 ? 0 : s->times[key] * exp(s->score[key] - largest) / total;

        for (size_t i = 0; p > 0 && i < a->v_dim; i++) {
            y[i] += p * v[i];
            error[i] += p * fabs(v[i]) * (2 + s->widest + 0.25 * sqrt((double)length));
        }
    }
}

/* Do the token's own indices point into their tables? Gives the number of its keys. */
static bool look_up(const oracle_attention *a, size_t token, int64_t *length)
{
    int64_t sequence = a->sequences ? (int64_t)a->sequences[token] : 0;
    double room = (double)(a->cache.page_slots * (a->cache.table ? a->cache.max_pages : 1));

    *length = 0;
    if (a->positions[token] < 0 || sequence < 0 || sequence >= (int64_t)a->cache.sequences)
        return false;
    if (a->lengths[sequence] < 0 || (!a->cache.ring && a->lengths[sequence] > room))
        return false;
    *length = (int64_t)a->lengths[sequence];
    return true;
}

bool oracle_attention_run(const oracle_attention *a, double *y, double *error)
{
    int64_t longest = 1;
    bool fine = true;
    scores s = {0};

    for (size_t i = 0; i < a->cache.sequences; i++)
        longest = a->lengths[i] > (double)longest ? (int64_t)a->lengths[i] : longest;
    s.score = calloc((size_t)longest, sizeof *s.score);
    s.slot = calloc((size_t)longest, sizeof *s.slot);
    s.times = calloc((size_t)longest, sizeof *s.times);
    if (!s.score || !s.slot || !s.times)
        abort();
    for (size_t row = 0; row < a->tokens * a->heads; row++) {
        int64_t length;

        if (!look_up(a, row / a->heads, &length) ||
            !score_keys(a, row / a->heads, row % a->heads, length, &s)) {
            fine = false;
            s.largest = -INFINITY;
        }
        mix_values(a, row, length, &s, y + row * a->v_dim, error + row * a->v_dim);
    }
    free(s.score);
    free(s.slot);
    free(s.times);
    return fine;
}

/* What one key of one query has in the gradient: its weight, the gradient of the product, and the errors of both. */
typedef struct gradient {
    double p, p_error, ds, ds_error;
} gradient;

static double dot(const double *a, const double *b, size_t n, double *size)
{
    double sum = 0;

    *size = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
        *size += fabs(a[i] * b[i]);
    }
    return sum;
}

/* Roundings of a sum of n products, as many as its absolute sum may be off by. */
static double of_sum(size_t n)
{
    return 1 + 0.25 * sqrt((double)n);
}

static gradient weigh(const oracle_attention_backward *b, size_t row, int64_t key)
{
    const oracle_attention *a = b->forward;
    const size_t head = row % a->heads, token = row / a->heads, kv = head / (a->heads / a->cache.heads);
    const double *k = a->k + ((size_t)key * a->cache.heads + kv) * a->dim;
    const double *v = a->v + ((size_t)key * a->cache.heads + kv) * a->v_dim;
    double qk_size, dv_size, dy_size, bias, slope = a->scale, score_error;
    double score = dot(a->q + row * a->dim, k, a->dim, &qk_size) * a->scale;
    const double dv = dot(b->dy + row * a->v_dim, v, a->v_dim, &dv_size);
    const double delta = dot(b->dy + row * a->v_dim, b->y + row * a->v_dim, a->v_dim, &dy_size);
    gradient g = {0, 0, 0, 0};

    score_error = qk_size * fabs(a->scale) * of_sum(a->dim) + fabs(score);
    double bend = 0; /* relative error of what the cap multiplies by */
    if (a->softcap > 0) {
        const double bent = tanh(score / a->softcap);

        score = a->softcap * bent;
        slope *= 1 - bent * bent;
        bend = 4 + 2 * score_error / a->softcap;
    }
    score += added(a, token, head, key, &bias);
    if (score == -(double)INFINITY || b->lse[row] == -(double)INFINITY)
        return g;
    g.p = exp(score - b->lse[row]);
    g.p_error = g.p * (3 + score_error + bias + fabs(score) + fabs(b->lse[row]));
    g.ds = g.p * (dv - delta) * slope;
    g.ds_error = g.p_error * fabs((dv - delta) * slope) + 4 * fabs(g.ds) +
                 g.p * fabs(slope) * (dv_size * of_sum(a->v_dim) + dy_size * of_sum(a->v_dim)) +
                 g.p * fabs(dv - delta) * fabs(a->scale) * bend;
    return g;
}

static void add(double *sum, double *error, const double *x, size_t n, double factor, double factor_error,
                double roundings)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] += factor * x[i];
        error[i] += fabs(x[i]) * (factor_error + fabs(factor) * roundings);
    }
}

static void add_query(const oracle_attention_backward *b, size_t row, int64_t length)
{
    const oracle_attention *a = b->forward;
    const size_t head = row % a->heads, token = row / a->heads, kv = head / (a->heads / a->cache.heads);
    const size_t queries = a->tokens * (a->heads / a->cache.heads);
    double size;

    for (int64_t key = 0; key < length; key++) {
        const size_t at = (size_t)key * a->cache.heads + kv;

        if (!sees(a, (int64_t)a->positions[token], key, length))
            continue;
        const gradient g = weigh(b, row, key);
        add(b->dq + row * a->dim, b->dq_error + row * a->dim, a->k + at * a->dim, a->dim, g.ds, g.ds_error,
            of_sum((size_t)length));
        add(b->dk + at * a->dim, b->dk_error + at * a->dim, a->q + row * a->dim, a->dim, g.ds, g.ds_error,
            of_sum(queries));
        add(b->dv + at * a->v_dim, b->dv_error + at * a->v_dim, b->dy + row * a->v_dim, a->v_dim, g.p,
            g.p_error, of_sum(queries));
    }
    if (b->dsinks && b->lse[row] > -(double)INFINITY) {
        const double p = exp(a->sinks[head] - b->lse[row]);
        const double delta = dot(b->dy + row * a->v_dim, b->y + row * a->v_dim, a->v_dim, &size);

        b->dsinks[head] -= p * delta;
        b->dsinks_error[head] += p * size * of_sum(a->v_dim) + fabs(p * delta) * (4 + of_sum(a->tokens)) +
                                 fabs(p * delta) * (fabs(a->sinks[head]) + fabs(b->lse[row]));
    }
}

static void zero(double *values, double *errors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = errors[i] = 0;
}

bool oracle_attention_backward_run(const oracle_attention_backward *b)
{
    const oracle_attention *a = b->forward;
    const size_t keys = a->cache.page_slots * a->cache.heads;
    bool fine = true;

    zero(b->dq, b->dq_error, a->tokens * a->heads * a->dim);
    zero(b->dk, b->dk_error, keys * a->dim);
    zero(b->dv, b->dv_error, keys * a->v_dim);
    if (b->dsinks)
        zero(b->dsinks, b->dsinks_error, a->heads);
    for (size_t row = 0; row < a->tokens * a->heads; row++) {
        int64_t length;

        if (look_up(a, row / a->heads, &length))
            add_query(b, row, length);
        else
            fine = false;
    }
    return fine;
}
