/*
 * sample.c - one token of each row: filters over the candidates, then a draw.
 *
 * The members of a row are kept in the order of their ids. A logit that is no candidate stays among them as -inf, at
 * the end of every order and without weight, so it is never chosen. Sums are of blocks of a fixed length in f32 and of
 * those in f64.
 */
#include <float.h>

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/select.h"

#define BLOCK 1024u /* members that are added up in f32 */

typedef struct members {
    float *logit; /* these three have MICA__CPU_SAMPLE_PAD floats of room behind `count` */
    float *weight, *value;
    uint32_t *id;
    uint32_t count;
    float most; /* greatest logit */
    double sum; /* of the weights */
    uint64_t *heap;
    select_bin *bin;
} members;

/* ---- random numbers ---------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static float draw_number(const mica_sample_settings *s)
{
    const uint64_t step = 0x9e3779b97f4a7c15u;
    const uint64_t seed = (uint64_t)s->seed_high << 32 | s->seed_low,
                   pick = (uint64_t)s->pick_high << 32 | s->pick_low;
    return (float)(mix(mix(seed + step) + step * (2 * pick + 1)) >> 40) * 0x1p-24f;
}

/* ---- the members ------------------------------------------------------------------------------------------- */

/* NaN as -inf, +inf as the highest number. */
static inline vf candidates(vf x)
{
    return vf_min(vf_max(x, vf_set1(-INFINITY)), vf_set1(FLT_MAX));
}

/* The greatest candidate, -inf if there is none. */
static float greatest(const float *x, uint32_t n)
{
    vf most = vf_set1(-INFINITY);
    uint32_t i = 0;
    for (; i + VW <= n; i += VW)
        most = vf_max(vf_load(x + i), most);
    if (i < n)
        most = vf_max(vf_merge_n(vf_load_n(x + i, n - i), most, n - i), most);
    const float value = vf_hmax(most);
    return value < FLT_MAX ? value : FLT_MAX;
}

/* The first candidate with the greatest logit. */
static uint32_t first_greatest(const float *x, uint32_t n, float most)
{
    const vf bar = vf_set1(most);
    for (uint32_t i = 0; i < n; i += VW) {
        const uint32_t left = n - i < VW ? n - i : VW;
        const vf v = vf_load_n(x + i, left);
        const uint32_t below = vm_bits(vf_lt(v, bar)), equal = vm_bits(vf_eq(v, bar)),
                       above = vm_bits(vf_lt(bar, v)) | equal;
        for (uint32_t lane = 0; lane < left && (above & ~below) != 0; lane++)
            if (above >> lane & 1)
                return i + lane;
    }
    return 0;
}

static void take_all(members *m, const float *x, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VW <= n; i += VW)
        vf_store(m->logit + i, candidates(vf_load(x + i)));
    if (i < n)
        vf_store(m->logit + i, candidates(vf_merge_n(vf_load_n(x + i, n - i), vf_set1(-INFINITY), n - i)));
    for (i = 0; i < n; i++)
        m->id[i] = i;
    m->count = n;
}

/* A key that grows with the logit and falls with the id; above 0 for a candidate. */
static uint64_t rank_key(float logit, uint32_t id)
{
    const uint32_t bits = select_bits((logit < FLT_MAX ? logit : FLT_MAX) + 0.0f); /* -0 is 0 */
    return (uint64_t)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (UINT32_MAX - id);
}

static float rank_logit(uint64_t key)
{
    const uint32_t high = (uint32_t)(key >> 32), bits = high >> 31 ? high & 0x7fffffffu : ~high;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

/* The k best, through a heap that few logits get past. k is at most MICA__CPU_SAMPLE_TOP. */
static void take_top(members *m, const float *x, uint32_t n, uint32_t k)
{
    vf bar = vf_set1(-INFINITY);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i += VW) {
        const uint32_t left = n - i < VW ? n - i : VW;
        const vf v = left == VW ? vf_load(x + i) : vf_load_n(x + i, left);
        uint32_t hits = vm_bits(vf_lt(bar, v)) & (uint32_t)((1ull << left) - 1);
        for (uint32_t lane = 0; hits != 0; lane++, hits >>= 1) {
            const uint64_t key = hits & 1 ? rank_key(x[i + lane], i + lane) : 0;
            if (key == 0)
                continue;
            if (kept < k) {
                m->heap[kept++] = key;
                if (kept == k)
                    heap_make(m->heap, k);
            } else if (key > m->heap[0]) {
                m->heap[0] = key;
                heap_sift(m->heap, 0, k);
            }
            if (kept == k)
                bar = vf_set1(rank_logit(m->heap[0]));
        }
    }
    for (uint32_t i = 0; i < kept; i++) /* by id: its place in the key is 32 bits of its own */
        m->heap[i] = (uint64_t)(UINT32_MAX - (uint32_t)m->heap[i]) << 32 | m->heap[i] >> 32;
    heap_make(m->heap, kept);
    for (uint32_t i = 0; i < kept; i++) {
        const uint64_t key = heap_pop(m->heap, kept - i);
        m->id[i] = (uint32_t)(key >> 32);
        m->logit[i] = rank_logit(key << 32);
    }
    m->count = kept;
}

/* Fills the last vector up with members that are none. */
static void pad(members *m)
{
    const uint32_t round = (m->count + VW - 1) / VW * VW;
    for (uint32_t i = m->count; i < round; i++)
        m->logit[i] = -INFINITY;
}

/* exp(v), 0 where it is below the least normal number: subnormal ones take a hundred times as long. */
static inline vf weight_of(vf v)
{
    const vf least = vf_set1(-87.0f);
    return vf_select(vf_lt(v, least), vf_zero(), vf_exp(vf_max(v, least)));
}

/* weight = exp((logit - most) / temperature), their sum, and most. */
static void weigh(members *m, float temperature)
{
    double sum = 0;
    pad(m);
    m->most = greatest(m->logit, m->count);
    const vf most = vf_set1(m->most), divisor = vf_set1(temperature);
    for (uint32_t block = 0; block < m->count; block += BLOCK) {
        const uint32_t end = m->count - block < BLOCK ? m->count : block + BLOCK;
        vf part = vf_zero();
        for (uint32_t i = block; i < end; i += VW) {
            vf v = vf_sub(vf_load(m->logit + i), most);
            if (temperature != 1.0f)
                v = vf_div(v, divisor);
            v = weight_of(v);
            vf_store(m->weight + i, v);
            part = vf_add(part, v);
        }
        sum += (double)vf_sum(part);
    }
    m->sum = sum;
}

/* value = |most - logit + shift| */
static void set_values(members *m, float shift)
{
    const vf most = vf_set1(m->most), by = vf_set1(shift);
    pad(m);
    for (uint32_t i = 0; i < m->count; i += VW)
        vf_store(m->value + i, vf_abs(vf_add(vf_sub(most, vf_load(m->logit + i)), by)));
}

/* Those up to `last` stay where they are, the others become none. For a run of many. */
static void blank_others(members *m, float bound, uint64_t last)
{
    const vf bar = vf_set1(bound), none = vf_set1(-INFINITY);
    for (uint32_t i = 0; i < m->count; i += VW) {
        const vf v = vf_load(m->value + i);
        vf_store(m->logit + i, vf_select(vf_lt(bar, v), none, vf_load(m->logit + i)));
        vf_store(m->weight + i, vf_select(vf_lt(bar, v), vf_zero(), vf_load(m->weight + i)));
    }
    for (uint32_t i = (uint32_t)last; i < m->count; i++)
        if (m->value[i] == bound && i > (uint32_t)last) {
            m->logit[i] = -INFINITY;
            m->weight[i] = 0;
        }
}

/* Those up to `last` move together. */
static void drop_others(members *m, float bound, uint64_t last)
{
    const vf bar = vf_set1(bound);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->count; i += VW) {
        const uint32_t left = m->count - i < VW ? m->count - i : VW;
        const vf v = vf_load(m->value + i);
        uint32_t hits = (vm_bits(vf_lt(v, bar)) | vm_bits(vf_eq(v, bar))) & (uint32_t)((1ull << left) - 1);
        for (uint32_t at = i; hits != 0; at++, hits >>= 1) {
            if ((hits & 1) == 0 || select_key(m->value[at], at) > last)
                continue;
            m->logit[kept] = m->logit[at];
            m->weight[kept] = m->weight[at];
            m->id[kept++] = m->id[at];
        }
    }
    m->count = kept;
}

/* Those of a run stay. */
static void keep_run(members *m, select_end end)
{
    const uint32_t bits = (uint32_t)(end.key >> 32);
    float bound;
    if (end.key == UINT64_MAX)
        return;
    memcpy(&bound, &bits, sizeof bound);
    if (end.count > m->count / 64 && m->count > SELECT_HEAP)
        blank_others(m, bound, end.key);
    else
        drop_others(m, bound, end.key);
}

/* ---- filters ----------------------------------------------------------------------------------------------- */

static void keep_shortest(members *m, const float *mass, select_goal goal)
{
    const select_list list = {m->value, mass, m->count, m->heap, m->bin};
    keep_run(m, select_run(&list, &goal));
}

/* Sum of weight * (most - logit). No weight is above 0 where that is over 104. */
static double value_sum(const members *m)
{
    const vf most = vf_set1(m->most), far = vf_set1(SELECT_FAR);
    double sum = 0;
    for (uint32_t block = 0; block < m->count; block += BLOCK) {
        const uint32_t end = m->count - block < BLOCK ? m->count : block + BLOCK;
        vf part = vf_zero();
        for (uint32_t i = block; i < end; i += VW) {
            const vf v = vf_min(vf_sub(most, vf_load(m->logit + i)), far);
            part = vf_add(part, vf_mul(vf_load(m->weight + i), v));
        }
        sum += (double)vf_sum(part);
    }
    return sum;
}

/* -log(chance) - entropy is v - the mean of v. */
static void filter_typical(members *m, const mica_sample_settings *s, uint32_t keep)
{
    set_values(m, -(float)(value_sum(m) / m->sum));
    keep_shortest(m, m->weight, (select_goal){(double)s->typical_p * m->sum, true, keep});
    weigh(m, 1.0f);
}

static void filter_top_p(members *m, const mica_sample_settings *s, uint32_t keep)
{
    set_values(m, 0.0f);
    keep_shortest(m, m->weight, (select_goal){(double)s->top_p * m->sum, false, keep});
}

static void filter_min_p(members *m, const mica_sample_settings *s, uint32_t keep)
{
    const float bar = -logf(s->min_p);
    uint32_t within = 0;
    set_values(m, 0.0f);
    for (uint32_t i = 0; i < m->count; i++)
        within += m->value[i] <= bar;
    if (within >= keep)
        keep_run(m, (select_end){select_key(bar, UINT32_MAX), within});
    else
        keep_shortest(m, NULL, (select_goal){0, false, keep});
}

/* The members that the filters leave, weighed by the temperature. */
static void filter(members *m, const mica_sample_settings *s, const float *x, uint32_t n)
{
    const uint32_t keep = s->keep == 0 ? 1 : s->keep, k = s->top_k < keep ? keep : s->top_k;
    const bool typical = s->typical_p < 1.0f, top_p = s->top_p<1.0f, min_p = s->min_p> 0.0f;
    if (s->top_k != 0 && k < n && k <= MICA__CPU_SAMPLE_TOP) {
        take_top(m, x, n, k);
    } else {
        take_all(m, x, n);
        if (s->top_k != 0 && k < n) {
            m->most = greatest(m->logit, n);
            set_values(m, 0.0f);
            keep_shortest(m, NULL, (select_goal){0, false, k});
        }
    }
    if (typical || top_p || min_p)
        weigh(m, 1.0f);
    if (typical)
        filter_typical(m, s, keep);
    if (top_p)
        filter_top_p(m, s, keep);
    if (min_p)
        filter_min_p(m, s, keep);
    weigh(m, s->temperature);
}

/* ---- drawing ----------------------------------------------------------------------------------------------- */

static double block_sum(const members *m, uint32_t block)
{
    const uint32_t end = m->count - block < BLOCK ? m->count : block + BLOCK;
    vf part = vf_zero();
    for (uint32_t i = block; i < end; i += VW)
        part = vf_add(part, vf_load(m->weight + i));
    return (double)vf_sum(part);
}

static uint32_t draw(const members *m, float number)
{
    const double target = (double)number * m->sum;
    double before = 0;
    uint32_t block = 0;
    for (; block + BLOCK < m->count; block += BLOCK) {
        const double with = before + block_sum(m, block);
        if (with > target)
            break;
        before = with;
    }
    for (uint32_t i = block; i < m->count; i++) {
        before += (double)m->weight[i];
        if (m->weight[i] > 0 && before > target)
            return m->id[i];
    }
    for (uint32_t i = m->count; i-- > 0;)
        if (m->weight[i] > 0)
            return m->id[i];
    return m->id[0];
}

/* ---- rows -------------------------------------------------------------------------------------------------- */

/* A row as floats that may be looked at one by one: a copy where it is none. */
static const float *row_of(const mica__cpu_view *view, uint64_t row, float *tmp)
{
    const unsigned char *from = view->data + row * view->stride[0];
    const uint64_t n = view->shape[1];
    if (view->dtype != MICA_DTYPE_F32 || (uintptr_t)from % sizeof(float) == 0)
        return row_f32(from, view->dtype, n, tmp);
    return memcpy(tmp, from, n * sizeof *tmp);
}

static uint32_t pick(members *m, const mica_sample_settings *s, const float *x, uint32_t n)
{
    const float most = greatest(x, n);
    if (most == -INFINITY)
        return UINT32_MAX;
    if (!(s->temperature > FLT_MIN))
        return first_greatest(x, n, most);
    filter(m, s, x, n);
    return draw(m, draw_number(s));
}

/* log of token `id`'s part in the softmax of a row. `m` is work memory. */
static float log_probability(members *m, const float *x, uint32_t n, uint32_t id)
{
    if (id == UINT32_MAX)
        return -INFINITY;
    take_all(m, x, n);
    weigh(m, 1.0f);
    return (float)((double)m->logit[id] - (double)m->most - log(m->sum));
}

static void move_on(mica_sample_settings *s, const mica__cpu_view *history, uint64_t row, uint32_t id)
{
    s->pick_low++;
    s->pick_high += s->pick_low == 0;
    if (history->data == NULL)
        return;
    const uint32_t width = (uint32_t)history->shape[1], at = s->history_next % width;
    memcpy(history->data + row * history->stride[0] + at * sizeof id, &id, sizeof id);
    s->history_next = at + 1 == width ? 0 : at + 1;
}

static members members_in(void *local, uint64_t n)
{
    const uint64_t room = n + MICA__CPU_SAMPLE_PAD;
    members m = {0};
    m.heap = local;
    m.bin = (select_bin *)(void *)(m.heap + MICA__CPU_SAMPLE_TOP);
    m.logit = (float *)(void *)(m.bin + SELECT_BINS);
    m.weight = m.logit + room;
    m.value = m.weight + room;
    m.id = (uint32_t *)(void *)(m.value + room);
    return m;
}

_Static_assert(sizeof(select_bin) == MICA__CPU_SAMPLE_BIN_BYTES && SELECT_HEAP == MICA__CPU_SAMPLE_TOP &&
                   SELECT_BINS == MICA__CPU_SAMPLE_BINS,
               "the plan gives this memory");

void MICA__ISA(sample)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_range *range = args->params;
    const mica__cpu_view *logits = &args->view[MICA__SAMPLE_LOGITS], *raw = &args->view[MICA__SAMPLE_RAW];
    const mica__cpu_view *settings = &args->view[MICA__SAMPLE_SETTINGS], *ids = &args->view[MICA__SAMPLE_IDS];
    const mica__cpu_view *chances = &args->view[MICA__SAMPLE_LOG_PROBABILITIES];
    const uint32_t n = (uint32_t)logits->shape[1];
    const uint64_t end = mica__cpu_rows_end(range, last);
    members m = members_in(args->local, n);
    float *tmp = (float *)(void *)(m.id + n + MICA__CPU_SAMPLE_PAD);
    if (raw->data == NULL)
        raw = logits;
    for (uint64_t row = mica__cpu_rows_begin(range, first); row < end; row++) {
        unsigned char *from = settings->data + row * settings->stride[0];
        mica_sample_settings s;
        memcpy(&s, from, sizeof s);
        const float *x = row_of(logits, row, tmp);
        const uint32_t id = pick(&m, &s, x, n);
        memcpy(ids->data + row * ids->stride[0], &id, sizeof id);
        if (chances->data != NULL) {
            const float chance = log_probability(&m, row_of(raw, row, tmp), n, id);
            row_store(chances->data + row * chances->stride[0], chances->dtype, &chance, 1);
        }
        if (id == UINT32_MAX)
            continue;
        move_on(&s, &args->view[MICA__SAMPLE_HISTORY], row, id);
        memcpy(from, &s, sizeof s);
    }
}
