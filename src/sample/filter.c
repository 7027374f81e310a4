/* filter.c: the filters over candidates, one function each. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "sample/sample.h"

#define BLOCK 16u          /* logits looked at together for one above the bar */
#define FEW_SELECTED 4096u /* up to this many, a heap beats sorting everything */
#define FEW_SORTED 512u    /* up to this many, a heap sort beats four passes */

static bool is_before(mica__candidate a, mica__candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* ---- order ---------------------------------------------------------------------------------------------- */

/* Heap of the best so far with the worst on top. */
static void sift(mica__candidate *heap, uint32_t root, uint32_t count)
{
    const mica__candidate item = heap[root];
    for (uint32_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && is_before(heap[child], heap[child + 1]))
            child++;
        if (!is_before(item, heap[child]))
            break;
        heap[root] = heap[child];
        root = child;
    }
    heap[root] = item;
}

static void heap_make(mica__candidate *heap, uint32_t count)
{
    for (uint32_t i = count / 2; i > 0; i--)
        sift(heap, i - 1, count);
}

static void heap_sort(mica__candidate *heap, uint32_t count)
{
    for (uint32_t left = count; left > 1; left--) {
        const mica__candidate worst = heap[0];
        heap[0] = heap[left - 1];
        heap[left - 1] = worst;
        sift(heap, 0, left - 1);
    }
}

/* A number that grows as the logit falls. */
static uint32_t sort_key(float logit)
{
    uint32_t bits;
    logit += 0.0f; /* -0 is 0 */
    memcpy(&bits, &logit, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

static uint32_t logit_key(const mica__candidate *item)
{
    return sort_key(item->logit);
}

static uint32_t id_key(const mica__candidate *item)
{
    return item->id;
}

/* Stable, by four bytes from the lowest: time does not depend on the values. */
static inline void radix_sort(mica__candidate *items, mica__candidate *scratch, uint32_t count,
                              uint32_t (*key)(const mica__candidate *))
{
    mica__candidate *from = items, *to = scratch;
    for (uint32_t shift = 0; shift < 32; shift += 8) {
        uint32_t starts[257] = {0};
        mica__candidate *swap = from;
        for (uint32_t i = 0; i < count; i++)
            starts[(key(&from[i]) >> shift & 0xff) + 1]++;
        for (uint32_t digit = 0; digit < 256; digit++)
            starts[digit + 1] += starts[digit];
        for (uint32_t i = 0; i < count; i++)
            to[starts[key(&from[i]) >> shift & 0xff]++] = from[i];
        from = to;
        to = swap;
    }
}

void mica__candidates_sort(mica__candidates *list)
{
    if (list->sorted)
        return;
    if (list->count <= FEW_SORTED) {
        heap_make(list->items, list->count);
        heap_sort(list->items, list->count);
    } else {
        radix_sort(list->items, list->scratch, list->count, logit_key);
    }
    list->sorted = true;
}

void mica__candidates_order(mica__candidates *list)
{
    bool ordered = true;
    for (uint32_t i = 1; i < list->count && ordered; i++)
        ordered = list->items[i - 1].id < list->items[i].id;
    if (ordered)
        return;
    radix_sort(list->items, list->scratch, list->count, id_key);
    list->sorted = false;
}

/* ---- gathering ------------------------------------------------------------------------------------------ */

static void gather_all(mica__candidates *list, const float *logits, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t id = 0; id < count; id++) {
        if (!(logits[id] > -INFINITY)) /* NaN too */
            continue;
        list->items[kept].id = id;
        list->items[kept++].logit = logits[id] < FLT_MAX ? logits[id] : FLT_MAX;
    }
    list->count = kept;
    list->sorted = false;
}

/* Whether one of BLOCK logits is above the bar; all are looked at, so that it becomes vector code. */
static bool any_above(const float *logits, float bar)
{
    uint32_t above = 0;
    for (uint32_t i = 0; i < BLOCK; i++)
        above |= logits[i] > bar;
    return above != 0;
}

/* The k highest, by a heap that few logits get past. */
static void gather_top(mica__candidates *list, const float *logits, uint32_t count, uint32_t k)
{
    mica__candidate *heap = list->items;
    float bar = -INFINITY; /* the worst of a full heap */
    uint32_t kept = 0;
    for (uint32_t start = 0; start < count; start += BLOCK) {
        const uint32_t end = count - start < BLOCK ? count : start + BLOCK;
        if (end - start == BLOCK && !any_above(logits + start, bar))
            continue;
        for (uint32_t id = start; id < end; id++) {
            const mica__candidate item = {id, logits[id] < FLT_MAX ? logits[id] : FLT_MAX};
            if (!(logits[id] > bar))
                continue;
            if (kept < k) {
                heap[kept++] = item;
                if (kept < k)
                    continue;
                heap_make(heap, k);
            } else if (is_before(item, heap[0])) { /* not an infinity against the highest number */
                heap[0] = item;
                sift(heap, 0, k);
            }
            bar = heap[0].logit;
        }
    }
    if (kept < k)
        heap_make(heap, kept);
    heap_sort(heap, kept);
    list->count = kept;
    list->sorted = true;
}

void mica__candidates_gather(mica__candidates *list, const float *logits, uint32_t count, uint32_t k)
{
    if (k != 0 && k <= FEW_SELECTED) {
        gather_top(list, logits, count, k);
        return;
    }
    gather_all(list, logits, count);
    if (k == 0 || k >= list->count)
        return;
    mica__candidates_sort(list);
    list->count = k;
}

/* ---- chances -------------------------------------------------------------------------------------------- */

static float highest(const mica__candidates *list)
{
    float most = list->items[0].logit;
    for (uint32_t i = 1; !list->sorted && i < list->count; i++)
        most = list->items[i].logit > most ? list->items[i].logit : most;
    return most;
}

double mica__candidates_softmax(mica__candidates *list)
{
    const double most = highest(list);
    double sum = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        list->chance[i] = exp((double)list->items[i].logit - most);
        sum += list->chance[i];
    }
    for (uint32_t i = 0; i < list->count; i++)
        list->chance[i] /= sum;
    return sum > 0 ? log(sum) + most : -INFINITY; /* 0 only of an empty list */
}

/* `count` or what may not be gone below. */
static uint32_t not_below(const mica__candidates *list, uint32_t count)
{
    const uint32_t least = list->least < list->count ? list->least : list->count;
    return count < least ? least : count;
}

void mica__filter_top_p(mica__candidates *list, double p)
{
    double sum = 0;
    uint32_t kept = 0;
    if (p >= 1)
        return;
    mica__candidates_sort(list);
    (void)mica__candidates_softmax(list);
    while (kept < list->count && (kept == 0 || sum < p))
        sum += list->chance[kept++];
    list->count = not_below(list, kept);
}

void mica__filter_min_p(mica__candidates *list, double p)
{
    double bar;
    uint32_t kept = 0;
    if (p <= 0)
        return;
    bar = highest(list) + log(p);
    if (list->least > 1)
        mica__candidates_sort(list); /* so that what stays beyond the bar is the most likely of it */
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].logit >= bar || (list->sorted && kept < list->least))
            list->items[kept++] = list->items[i];
    list->count = kept;
}

/* The first of the equal logits that end before a place of a sorted list. */
static uint32_t equals_before(const mica__candidates *list, uint32_t end)
{
    uint32_t first = end;
    while (first > 0 && list->items[first - 1].logit == list->items[end - 1].logit)
        first--;
    return first;
}

void mica__filter_typical(mica__candidates *list, double p)
{
    double entropy = 0, sum = 0;
    uint32_t kept = 0;
    if (p >= 1)
        return;
    mica__candidates_sort(list);
    const double total = mica__candidates_softmax(list);
    for (uint32_t i = 0; i < list->count; i++)
        entropy -= list->chance[i] > 0 ? list->chance[i] * ((double)list->items[i].logit - total) : 0;
    /* The distance falls and then rises along the sorted list, so the nearest are taken from two ends: `low` goes up
     * from the first candidate past the entropy, `high` down from the one before it, there by groups of equal logits,
     * of which `group` is the next one. */
    uint32_t low = 0;
    while (low < list->count && total - (double)list->items[low].logit < entropy)
        low++;
    uint32_t high = low, group = equals_before(list, high);
    while ((high > 0 || low < list->count) && (sum <= p || kept < list->least)) {
        const double below = high > 0 ? entropy - (total - (double)list->items[high - 1].logit) : INFINITY;
        const double above = low < list->count ? total - (double)list->items[low].logit - entropy : INFINITY;
        const uint32_t taken = below <= above ? group++ : low++;
        if (below <= above && group == high) {
            while (high > 0 && list->items[high - 1].logit == list->items[taken].logit)
                high--;
            group = equals_before(list, high);
        }
        sum += list->chance[taken];
        list->scratch[kept++] = list->items[taken];
    }
    memcpy(list->items, list->scratch, kept * sizeof *list->items);
    list->count = kept;
    list->sorted = false;
    mica__candidates_order(list);
}

void mica__filter_xtc(mica__candidates *list, double threshold)
{
    uint32_t above = 0;
    if (threshold > 0.5 || list->count < 2)
        return;
    mica__candidates_sort(list);
    (void)mica__candidates_softmax(list);
    while (above < list->count && list->chance[above] >= threshold)
        above++;
    if (above < 2 || list->count - (above - 1) < list->least)
        return;
    list->count -= above - 1;
    memmove(list->items, list->items + above - 1, list->count * sizeof *list->items);
}

void mica__filter_temperature(mica__candidates *list, float temperature)
{
    const float most = highest(list);
    if (temperature == 1.0f)
        return;
    for (uint32_t i = 0; i < list->count; i++) {
        const float logit = (list->items[i].logit - most) / temperature;
        list->items[i].logit = logit > -FLT_MAX ? logit : -FLT_MAX;
    }
}

void mica__filter_surprise(mica__candidates *list, double mu)
{
    uint32_t kept = 0;
    mica__candidates_sort(list);
    (void)mica__candidates_softmax(list);
    while (kept < list->count && -log2(list->chance[kept]) <= mu)
        kept++;
    list->count = not_below(list, kept == 0 ? 1 : kept);
}
