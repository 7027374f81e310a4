/*
 * oracle_sample.c - filters, the draw and the penalties, from their formulas; lists are sorted whole.
 */
#include "oracle/oracle_sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

/* ---- candidates ----------------------------------------------------------------------------------------- */

typedef struct candidate {
    double logit, value; /* value: what the list is ordered by */
    size_t id;
} candidate;

typedef struct list {
    candidate *items;
    size_t count;
    double most, sum; /* sum of exp(logit - most) */
    double margin;
} list;

static int by_value(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_id(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static void measure(list *l)
{
    l->most = -INFINITY;
    l->sum = 0;
    for (size_t i = 0; i < l->count; i++)
        l->most = fmax(l->most, l->items[i].logit);
    for (size_t i = 0; i < l->count; i++) {
        l->sum += exp(l->items[i].logit - l->most);
        l->items[i].value = l->most - l->items[i].logit;
    }
}

static double chance_of(const list *l, size_t i)
{
    return exp(l->items[i].logit - l->most) / l->sum;
}

static void gather(list *l, size_t count, const double *logits)
{
    for (size_t id = 0; id < count; id++)
        if (!isnan(logits[id]) && logits[id] != -INFINITY)
            l->items[l->count++] = (candidate){fmin(logits[id], FLT_MAX), 0, id};
}

/* Keeps the first `kept`; others whose value all but equals that of the last might change places with it. */
static void cut(list *l, size_t kept, double grain)
{
    if (kept >= l->count)
        return;
    for (size_t i = 0; i < l->count && grain > 0; i++) {
        double gap = fabs(l->items[i].value - l->items[kept - 1].value);

        if (l->items[i].logit != l->items[kept - 1].logit)
            l->margin = fmin(l->margin, gap * grain);
    }
    l->count = kept;
}

/* The length of the shortest run with chances of `p` (or more than it), at least `keep`: the first `keep` stay however
 * their sum compares, so that only what comes after them is a decision. */
static size_t run_length(list *l, double p, bool above, size_t keep)
{
    double sum = 0;
    size_t kept = 0;

    while (kept < l->count && (kept < keep || (above ? sum <= p : sum < p))) {
        if (kept >= keep)
            l->margin = fmin(l->margin, fabs(sum - p));
        sum += chance_of(l, kept++);
    }
    l->margin = fmin(l->margin, fabs(sum - p));
    return kept;
}

static void typical(list *l, double p, size_t keep)
{
    double entropy = 0;

    measure(l);
    for (size_t i = 0; i < l->count; i++)
        if (chance_of(l, i) > 0)
            entropy -= chance_of(l, i) * log(chance_of(l, i));
    for (size_t i = 0; i < l->count; i++)
        l->items[i].value = fabs(l->most - l->items[i].logit + log(l->sum) - entropy);
    qsort(l->items, l->count, sizeof *l->items, by_value);
    cut(l, run_length(l, p, true, keep), 0.1);
}

static void min_p(list *l, double p, size_t keep)
{
    size_t kept = 0;

    measure(l);
    qsort(l->items, l->count, sizeof *l->items, by_value);
    for (size_t i = 0; i < l->count; i++) {
        if (i >= keep) /* those before stay in any case */
            l->margin = fmin(l->margin, fabs(l->items[i].value + log(p)));
        kept += l->items[i].value <= -log(p);
    }
    cut(l, kept < keep ? keep : kept, 0);
}

static void filter(const oracle_sampling *s, list *l)
{
    size_t keep = s->keep == 0 ? 1 : s->keep;

    measure(l);
    qsort(l->items, l->count, sizeof *l->items, by_value);
    if (s->top_k != 0)
        cut(l, s->top_k < keep ? keep : s->top_k, 1);
    if (s->typical_p < 1)
        typical(l, s->typical_p, keep);
    measure(l);
    qsort(l->items, l->count, sizeof *l->items, by_value);
    if (s->top_p < 1)
        cut(l, run_length(l, s->top_p, false, keep), 1);
    if (s->min_p > 0)
        min_p(l, s->min_p, keep);
}

/* ---- drawing -------------------------------------------------------------------------------------------- */

double oracle_sample_chances(const oracle_sampling *sampling, size_t count, const double *logits,
                             double *chance)
{
    list l = {.items = calloc(count, sizeof(candidate)), .margin = 1};

    for (size_t id = 0; id < count; id++)
        chance[id] = 0;
    gather(&l, count, logits);
    if (l.count != 0 && sampling->temperature == 0) {
        measure(&l);
        qsort(l.items, l.count, sizeof *l.items, by_value);
        chance[l.items[0].id] = 1;
    } else if (l.count != 0) {
        filter(sampling, &l);
        measure(&l);
        for (size_t i = 0; i < l.count; i++)
            l.items[i].logit = (l.items[i].logit - l.most) / sampling->temperature;
        measure(&l);
        qsort(l.items, l.count, sizeof *l.items, by_id);
        for (size_t i = 0; i < l.count; i++)
            chance[l.items[i].id] = chance_of(&l, i);
    }
    free(l.items);
    return l.margin;
}

static uint64_t scramble(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

double oracle_sample_number(uint64_t seed, uint64_t pick)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t bits = scramble(scramble(seed + golden) + golden * (2 * pick + 1));

    return floor(ldexp((double)(bits >> 32), -8)) * ldexp(1, -24);
}

int64_t oracle_sample_pick(const oracle_sampling *sampling, size_t count, const double *logits,
                           double *margin)
{
    double *chance = calloc(count, sizeof *chance), sum = 0,
           number = oracle_sample_number(sampling->seed, sampling->pick);
    int64_t id = -1;

    *margin = oracle_sample_chances(sampling, count, logits, chance);
    for (size_t i = 0; i < count; i++) {
        if (chance[i] == 0)
            continue;
        if (sampling->temperature != 0 && sum > 0)
            *margin = fmin(*margin, fabs(number - sum));
        if (number < sum)
            break;
        id = (int64_t)i;
        sum += chance[i];
    }
    free(chance);
    return id;
}

double oracle_log_probability(size_t count, const double *logits, size_t id, double *error)
{
    list l = {.items = calloc(count, sizeof(candidate))};
    double result;

    gather(&l, count, logits);
    measure(&l);
    result = fmin(logits[id], FLT_MAX) - l.most - log(l.sum);
    *error = fabs(logits[id] - l.most) + log(l.sum) + 2 + 0.25 * sqrt((double)count) + fabs(result);
    free(l.items);
    return result;
}

/* ---- penalties ------------------------------------------------------------------------------------------ */

/* How often a token counts in the history. */
static size_t times_of(const oracle_penalties *p, size_t id)
{
    size_t times = 0, last = p->last < p->width ? p->last : p->width;

    for (size_t back = 1; back <= last; back++)
        times += p->history[(p->next % p->width + p->width - back) % p->width] == (double)id;
    return times;
}

static bool is_inside(double id, size_t count)
{
    return id == -1 || id == 4294967295.0 || (id >= 0 && id < (double)count);
}

bool oracle_penalize(const oracle_penalties *p, const double *logits, double *y, double *error)
{
    bool inside = true;
    size_t last = p->last < p->width ? p->last : p->width;
    bool counts = p->repeat != 1 || p->presence != 0 || p->frequency != 0;

    for (size_t id = 0; id < p->count; id++) {
        double size = fabs(logits[id]);
        size_t times = counts && p->width != 0 ? times_of(p, id) : 0;

        y[id] = logits[id];
        for (size_t slot = 0; slot < p->slots; slot++)
            if (p->bias_ids[slot] == (double)id) {
                y[id] += p->bias[slot];
                size += fabs(p->bias[slot]);
            }
        if (p->mask && !(p->mask[id / 32] >> id % 32 & 1))
            y[id] = -INFINITY;
        if (times != 0 && y[id] > -INFINITY) {
            double off = p->frequency * (double)times + p->presence, scale = p->repeat;

            scale = y[id] <= 0 ? scale : 1 / scale;
            size = size * scale + fabs(p->frequency) * (double)times + fabs(p->presence);
            y[id] = fmax(-FLT_MAX, fmin(FLT_MAX, y[id] * scale - off));
        }
        error[id] = size;
    }
    for (size_t slot = 0; slot < p->slots; slot++)
        inside = inside && is_inside(p->bias_ids[slot], p->count);
    for (size_t back = 1; counts && p->width != 0 && back <= last; back++)
        inside = inside && is_inside(p->history[(p->next % p->width + p->width - back) % p->width], p->count);
    return inside;
}
