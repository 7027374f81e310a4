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
    double *score;
    int64_t *slot; /* -1: not seen */
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

/* Scores of one query head over `length` keys. False when a key that it sees has no place. */
static bool score_keys(const oracle_attention *a, size_t token, size_t head, int64_t length, scores *out)
{
    int64_t sequence = a->sequences ? (int64_t)a->sequences[token] : 0;
    size_t kv_head = head / (a->heads / a->cache.heads);
    const double *q = a->q + (token * a->heads + head) * a->dim;

    out->largest = -INFINITY;
    out->widest = 0;
    for (int64_t key = 0; key < length; key++) {
        double dot = 0, size = 0;
        const double *k;

        out->slot[key] = -1;
        if (!sees(a, (int64_t)a->positions[token], key, length))
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
        if (a->mask)
            dot += a->mask[((a->mask_heads > 1 ? head : 0) * a->tokens + token) * a->mask_keys + (size_t)key];
        out->score[key] = dot;
        out->largest = fmax(out->largest, dot);
        if (isfinite(dot))
            out->widest =
                fmax(out->widest, size * fabs(a->scale) * (1 + 0.1 * sqrt((double)a->dim)) + fabs(dot));
    }
    return true;
}

/* y = sum p v; error: each p is off by its score's error, each product and sum by one rounding. */
static void mix_values(const oracle_attention *a, size_t head, int64_t length, const scores *s, double *y,
                       double *error)
{
    size_t kv_head = head / (a->heads / a->cache.heads);
    double total = 0;

    for (size_t i = 0; i < a->v_dim; i++)
        y[i] = error[i] = 0;
    if (s->largest == -INFINITY)
        return;
    for (int64_t key = 0; key < length; key++)
        total += s->slot[key] < 0 ? 0 : exp(s->score[key] - s->largest);
    for (int64_t key = 0; key < length; key++) {
        const double *v =
            a->v + ((size_t)(s->slot[key] < 0 ? 0 : s->slot[key]) * a->cache.heads + kv_head) * a->v_dim;
        double p = s->slot[key] < 0 ? 0 : exp(s->score[key] - s->largest) / total;

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
    if (!s.score || !s.slot)
        abort();
    for (size_t row = 0; row < a->tokens * a->heads; row++) {
        int64_t length;

        if (!look_up(a, row / a->heads, &length) ||
            !score_keys(a, row / a->heads, row % a->heads, length, &s)) {
            fine = false;
            s.largest = -INFINITY;
        }
        mix_values(a, row % a->heads, length, &s, y + row * a->v_dim, error + row * a->v_dim);
    }
    free(s.score);
    free(s.slot);
    return fine;
}
