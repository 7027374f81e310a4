/*
 * attention.c - softmax(q k^T scale + mask) v over caches whose lengths are known when the work runs.
 *
 * A unit takes the query heads of one kv head for a tile of tokens, so that they share the loads of its keys. The
 * keys a row sees are one range of logical positions; chunk by chunk the unit finds where they lie, scores them,
 * turns scores into weights and adds values. attention.h says why the bits of a row depend on the row alone.
 */
#include "backend/cpu/kernels/attention.h"

#include "backend/cpu/kernels/attention_tile.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"

#define WIDEN_ROWS 8 /* from this many rows on 16-bit keys and values are widened once for all */

/* The keys a token sees: positions [first, last) of its sequence; none if they are equal. */
typedef struct sight {
    uint64_t sequence, first, last;
} sight;

/* The rows of one unit: tokens [token, token + tokens) by query heads [head, head + heads) of one kv head. */
typedef struct tile {
    const mica__cpu_args *args;
    const mica__attention_plan *plan;
    uint64_t token, tokens, head, heads, kv_head;
    uint64_t q_stride, o_stride;
    sight sight[MICA__ATTENTION_MAX_TOKENS];
    float *q, *score;                /* per row */
    float *part, *total;             /* per row a partial result: values, greatest score, sum of weights */
    float *key_widened, *value_widened;
} tile;

static const mica__cpu_view *view_of(const mica__cpu_args *args, uint32_t slot)
{
    return &args->view[slot];
}

/* Keys that a sequence can hold. */
static uint64_t capacity(const mica__cpu_args *args)
{
    const mica__cpu_view *k = view_of(args, MICA__ATTENTION_K), *pages = view_of(args, MICA__ATTENTION_PAGES);
    return pages->data != NULL ? pages->shape[1] * k->shape[1] : k->shape[0];
}

static bool pages_exist(const mica__cpu_args *args, const sight *s)
{
    const mica__cpu_view *k = view_of(args, MICA__ATTENTION_K), *pages = view_of(args, MICA__ATTENTION_PAGES);
    if (pages->data == NULL || s->first == s->last)
        return true;
    for (uint64_t i = s->first / k->shape[1]; i <= (s->last - 1) / k->shape[1]; i++) {
        const int64_t page = index_at(pages, s->sequence * pages->stride[0] + i * pages->stride[1]);
        if (page < 0 || (uint64_t)page >= k->shape[0])
            return false;
    }
    return true;
}

/* What the token sees, from the index operands. False if one of them lies outside. */
static bool look(const mica__cpu_args *args, const mica_attention_params *a, uint64_t token, sight *out)
{
    const mica__cpu_view *positions = view_of(args, MICA__ATTENTION_POSITIONS);
    const mica__cpu_view *lengths = view_of(args, MICA__ATTENTION_LENGTHS);
    const mica__cpu_view *sequences = view_of(args, MICA__ATTENTION_SEQUENCES);
    const mica__cpu_view *pages = view_of(args, MICA__ATTENTION_PAGES), *mask = view_of(args, MICA__ATTENTION_MASK);
    const uint64_t room = capacity(args);
    *out = (sight){0};
    const int64_t position = index_at(positions, token * positions->stride[0]);
    const int64_t sequence = sequences->data != NULL ? index_at(sequences, token * sequences->stride[0]) : 0;
    if (position < 0 || sequence < 0 || (uint64_t)sequence >= lengths->shape[0])
        return false;
    if (pages->data != NULL && (uint64_t)sequence >= pages->shape[0])
        return false;
    const int64_t length = index_at(lengths, (uint64_t)sequence * lengths->stride[0]);
    if (length < 0 || (!a->ring && (uint64_t)length > room))
        return false;
    const uint64_t next = (uint64_t)position + 1;
    uint64_t first = a->window != 0 && next > a->window ? next - a->window : 0, last = (uint64_t)length;
    if (a->ring && last > room && first < last - room)
        first = last - room;
    if (!a->bidirectional && last > next)
        last = next;
    if (mask->data != NULL && last > mask->shape[mask->ndim - 1])
        last = mask->shape[mask->ndim - 1];
    sight s = {(uint64_t)sequence, first, last};
    if (first >= last)
        s.first = s.last = 0;
    if (!pages_exist(args, &s))
        return false;
    *out = s;
    return true;
}

/* Where the keys (or values) at positions [first, last) of a sequence lie; the first position of the chunk is
 * `base`. Places up to whole tiles around them repeat the nearest one. */
static void find_rows(const tile *t, uint32_t slot, uint64_t sequence, uint64_t base, uint64_t first, uint64_t last,
                      key_rows *out)
{
    const mica__cpu_view *cache = view_of(t->args, slot), *pages = view_of(t->args, MICA__ATTENTION_PAGES);
    const uint64_t slots = cache->shape[cache->ndim - 3], slot_stride = cache->stride[cache->ndim - 3];
    const unsigned char *head = cache->data + t->kv_head * cache->stride[cache->ndim - 2], *page = head;
    uint64_t entry = first / slots, place = first % slots;
    for (uint64_t position = first; position < last; position++, place++) {
        if (place == slots) {
            place = 0;
            entry++;
        }
        if (pages->data != NULL && (place == 0 || position == first)) {
            const int64_t number = index_at(pages, sequence * pages->stride[0] + entry * pages->stride[1]);
            page = head + (uint64_t)number * cache->stride[0];
        }
        out->row[position - base] = page + place * slot_stride;
    }
    for (uint64_t i = (first - base) / TILE_KEYS * TILE_KEYS; i < first - base; i++)
        out->row[i] = out->row[first - base];
    for (uint64_t i = last - base; i % TILE_KEYS != 0; i++)
        out->row[i] = out->row[last - base - 1];
    out->dtype = cache->dtype;
    out->dim = cache->shape[cache->ndim - 1];
}

/* Brings rows [first, last) to f32 and points at the copies. */
static void widen_rows(key_rows *rows, uint64_t first, uint64_t last, float *to)
{
    const uint64_t stride = mica__attention_row_floats(rows->dim);
    for (uint64_t i = first; i < last; i++)
        rows->row[i] = (const unsigned char *)row_f32(rows->row[i], rows->dtype, rows->dim, to + i * stride);
    rows->dtype = MICA_DTYPE_F32;
}

/* The part of a token's keys in the chunk from `base` on, as places in it; false if it is empty. */
static bool in_chunk(const sight *s, uint64_t base, uint64_t *first, uint64_t *last)
{
    const uint64_t end = base + MICA__ATTENTION_CHUNK;
    *first = (s->first > base ? s->first : base) - base;
    *last = s->last > base ? (s->last < end ? s->last : end) - base : 0;
    return *first < *last;
}

/* Row of the mask for a query row, as values added to keys [first, last) of the chunk; f32 in `work`. */
static const float *mask_row(const tile *t, uint64_t row, uint64_t base, uint64_t first, uint64_t last, float *work)
{
    const mica__cpu_view *mask = view_of(t->args, MICA__ATTENTION_MASK);
    const uint64_t token = t->token + row / t->heads, head = t->head + row % t->heads;
    const unsigned char *at = mask->data + token * mask->stride[mask->ndim - 2];
    if (mask->ndim > 2 && mask->shape[0] > 1)
        at += head * mask->stride[0];
    const uint64_t stride = mask->stride[mask->ndim - 1];
    return row_f32_strided(at + (base + first) * stride, mask->dtype, stride, last - first, work);
}

/* Turns the scores of one row into weights over keys [first, last) of the chunk; the rest of their vectors get
 * none. Leaves greatest score and sum of weights behind the row's partial result. */
static void weigh(const tile *t, uint64_t row, uint64_t base, uint64_t first, uint64_t last)
{
    const mica_attention_params *a = &t->plan->attention;
    float *score = t->score + row * MICA__ATTENTION_CHUNK, *part = t->part + row * t->o_stride;
    const uint64_t begin = first / VW * VW, end = (last + VW - 1) / VW * VW;
    const vf scale = vf_set1(a->scale), cap = vf_set1(a->softcap);
    float work[MICA__ATTENTION_CHUNK];
    for (uint64_t i = begin; i < end; i += VW) {
        const vf v = vf_mul(vf_load(score + i), scale);
        vf_store(score + i, a->softcap > 0 ? vf_softcap(v, cap) : v);
    }
    if (view_of(t->args, MICA__ATTENTION_MASK)->data != NULL)
        row_add(score + first, mask_row(t, row, base, first, last, work), last - first, score + first);
    for (uint64_t i = begin; i < first; i++)
        score[i] = -INFINITY;
    for (uint64_t i = last; i < end; i++)
        score[i] = -INFINITY;
    vf greatest = vf_set1(-INFINITY), sum = vf_zero();
    for (uint64_t i = begin; i < end; i += VW)
        greatest = vf_max(vf_load(score + i), greatest);
    const float most = vf_hmax(greatest);
    /* A chunk that the mask hides is weighed against 0: no weight, unless a NaN is in it. */
    const vf from = vf_set1(most == -INFINITY ? 0.0f : most);
    for (uint64_t i = begin; i < end; i += VW) {
        const vf weight = vf_exp(vf_sub(vf_load(score + i), from));
        vf_store(score + i, weight);
        sum = vf_add(sum, weight);
    }
    part[t->o_stride - MICA__ATTENTION_LANES] = most;
    part[t->o_stride - MICA__ATTENTION_LANES + 1] = vf_sum(sum);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Scores of all rows over keys [first, last) of the chunk: what no row of a group sees is left out. */
static void score_tokens(const tile *t, uint64_t base, const key_rows *keys)
{
    const uint64_t rows = t->tokens * t->heads;
    for (uint64_t row = 0; row < rows; row += TILE_ROWS) {
        const uint64_t count = smaller(TILE_ROWS, rows - row);
        uint64_t from = MICA__ATTENTION_CHUNK, to = 0, first, last;
        for (uint64_t i = row / t->heads; i <= (row + count - 1) / t->heads; i++)
            if (in_chunk(&t->sight[i], base, &first, &last)) {
                from = smaller(from, first);
                to = last > to ? last : to;
            }
        if (from < to)
            score_keys(t->q + row * t->q_stride, t->q_stride, keys, from / TILE_KEYS * TILE_KEYS,
                       (to + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS, count, t->score + row * MICA__ATTENTION_CHUNK);
    }
}

/* Values of keys [first, last) for rows that all see them. */
static void sum_values(const tile *t, uint64_t row, uint64_t rows, const key_rows *values, uint64_t first, uint64_t last)
{
    if (first < last)
        add_values(t->score + row * MICA__ATTENTION_CHUNK, values, first, last, rows, t->part + row * t->o_stride,
                   t->o_stride);
}

/* Each row adds its own keys in order: alone up to those that all rows see, together, then alone again. */
static void mix_rows(const tile *t, uint64_t base, uint64_t row, uint64_t rows, const key_rows *values)
{
    uint64_t first[4], last[4], from = 0, to = MICA__ATTENTION_CHUNK;
    for (uint64_t i = 0; i < rows; i++) {
        if (!in_chunk(&t->sight[(row + i) / t->heads], base, &first[i], &last[i]))
            first[i] = last[i] = 0;
        memset(t->part + (row + i) * t->o_stride, 0, (t->o_stride - MICA__ATTENTION_LANES) * sizeof(float));
        from = first[i] > from ? first[i] : from;
        to = smaller(to, last[i]);
    }
    if (from >= to) {
        for (uint64_t i = 0; i < rows; i++)
            sum_values(t, row + i, 1, values, first[i], last[i]);
        return;
    }
    for (uint64_t i = 0; i < rows; i++)
        sum_values(t, row + i, 1, values, first[i], from);
    sum_values(t, row, rows, values, from, to);
    for (uint64_t i = 0; i < rows; i++)
        sum_values(t, row + i, 1, values, to, last[i]);
}

static float exp_of(float x)
{
    float lane[VW];
    vf_store(lane, vf_exp(vf_set1(x)));
    return lane[0];
}

/* total = total and part together; both are values, greatest score, sum of weights. */
static void combine(float *total, const float *part, uint64_t stride)
{
    const uint64_t values = stride - MICA__ATTENTION_LANES;
    float *most = &total[values], *sum = &total[values + 1];
    float scale = 1, part_scale = 1;
    if (part[values] != -INFINITY) {
        const float greatest = part[values] > *most ? part[values] : *most;
        scale = exp_of(*most - greatest);
        part_scale = exp_of(part[values] - greatest);
        *most = greatest;
    }
    *sum = *sum * scale + part[values + 1] * part_scale;
    for (uint64_t i = 0; i < values; i += VW) {
        const vf old = vf_mul(vf_load(total + i), vf_set1(scale));
        vf_store(total + i, vf_fma(vf_load(part + i), vf_set1(part_scale), old));
    }
}

static void clear(float *total, uint64_t stride)
{
    memset(total, 0, stride * sizeof(float));
    total[stride - MICA__ATTENTION_LANES] = -INFINITY;
}

/* y = values / sum of weights; zeros where no key was seen. */
static void write_row(const mica__cpu_args *args, uint64_t token, uint64_t head, float *total, uint64_t stride)
{
    const mica__cpu_view *y = view_of(args, MICA__ATTENTION_Y);
    const uint64_t values = stride - MICA__ATTENTION_LANES;
    const float sum = total[values + 1];
    const vf scale = vf_set1(sum == 0 ? 0.0f : 1.0f / sum);
    for (uint64_t i = 0; i < values; i += VW)
        vf_store(total + i, vf_mul(vf_load(total + i), scale));
    row_store(y->data + token * y->stride[0] + head * y->stride[1], y->dtype, total, y->shape[2]);
}

/* Where the partial result of a row and chunk lies in scratch. */
static float *kept_part(const mica__cpu_args *args, uint64_t token, uint64_t head, uint64_t chunk)
{
    const mica__attention_plan *plan = args->params;
    const mica__cpu_view *q = view_of(args, MICA__ATTENTION_Q), *y = view_of(args, MICA__ATTENTION_Y);
    float *kept = (float *)(void *)args->view[MICA__ATTENTION_SLOTS].data;
    const uint64_t row = token * q->shape[1] + head;
    return kept + (row * plan->chunks + chunk) * mica__attention_partial_floats(y->shape[2]);
}

/* Hands the partial results of a chunk on: into the rows' totals, or into scratch. */
static void give_parts(const tile *t, uint64_t chunk)
{
    uint64_t first, last;
    for (uint64_t row = 0; row < t->tokens * t->heads; row++) {
        const float *part = t->part + row * t->o_stride;
        const uint64_t token = row / t->heads;
        if (!in_chunk(&t->sight[token], chunk * MICA__ATTENTION_CHUNK, &first, &last))
            continue;
        if (t->plan->mode == MICA__ATTENTION_WHOLE)
            combine(t->total + row * t->o_stride, part, t->o_stride);
        else
            memcpy(kept_part(t->args, t->token + token, t->head + row % t->heads, chunk % t->plan->chunks), part,
                   t->o_stride * sizeof(float));
    }
}

static void walk_chunk(const tile *t, uint64_t chunk)
{
    const uint64_t base = chunk * MICA__ATTENTION_CHUNK, rows = t->tokens * t->heads;
    uint64_t from = MICA__ATTENTION_CHUNK, to = 0, first, last;
    for (uint64_t i = 0; i < t->tokens; i++)
        if (in_chunk(&t->sight[i], base, &first, &last)) {
            from = smaller(from, first);
            to = last > to ? last : to;
        }
    if (from >= to)
        return;
    key_rows keys, values;
    find_rows(t, MICA__ATTENTION_K, t->sight[0].sequence, base, base + from, base + to, &keys);
    find_rows(t, MICA__ATTENTION_V, t->sight[0].sequence, base, base + from, base + to, &values);
    if (rows >= WIDEN_ROWS) {
        widen_rows(&keys, from / TILE_KEYS * TILE_KEYS, (to + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS, t->key_widened);
        widen_rows(&values, from, to, t->value_widened);
    }
    score_tokens(t, base, &keys);
    for (uint64_t row = 0; row < rows; row++)
        if (in_chunk(&t->sight[row / t->heads], base, &first, &last))
            weigh(t, row, base, first, last);
    for (uint64_t row = 0; row < rows;) {
        const uint64_t count = rows - row >= 4 ? 4 : rows - row >= 2 ? 2 : 1;
        mix_rows(t, base, row, count, &values);
        row += count;
    }
    give_parts(t, chunk);
}

/* The rows of tokens that share a sequence: those that see nothing fit anywhere. */
static void run_tokens(const tile *t, uint64_t split)
{
    const mica__cpu_view *q = view_of(t->args, MICA__ATTENTION_Q);
    const uint64_t rows = t->tokens * t->heads, splits = t->plan->splits;
    uint64_t from = UINT64_MAX, to = 0;
    for (uint64_t i = 0; i < t->tokens; i++)
        if (t->sight[i].first < t->sight[i].last) {
            from = smaller(from, t->sight[i].first / MICA__ATTENTION_CHUNK);
            const uint64_t end = (t->sight[i].last - 1) / MICA__ATTENTION_CHUNK + 1;
            to = end > to ? end : to;
        }
    for (uint64_t row = 0; row < rows; row++) {
        const unsigned char *at = q->data + (t->token + row / t->heads) * q->stride[0] +
                                  (t->head + row % t->heads) * q->stride[1];
        float *copy = t->q + row * t->q_stride;
        const float *values = row_f32(at, q->dtype, q->shape[2], copy);
        if (values != copy)
            memcpy(copy, values, q->shape[2] * sizeof(float));
        clear(t->total + row * t->o_stride, t->o_stride);
    }
    for (uint64_t chunk = from; chunk < to; chunk++)
        if (chunk % splits == split)
            walk_chunk(t, chunk);
    for (uint64_t row = 0; t->plan->mode == MICA__ATTENTION_WHOLE && row < rows; row++)
        write_row(t->args, t->token + row / t->heads, t->head + row % t->heads, t->total + row * t->o_stride, t->o_stride);
}

/* Per-thread memory of a tile of that many rows. */
static void lay_out(tile *t, uint64_t rows)
{
    const mica__cpu_view *q = view_of(t->args, MICA__ATTENTION_Q), *y = view_of(t->args, MICA__ATTENTION_Y);
    t->q_stride = mica__attention_row_floats(q->shape[2]);
    t->o_stride = mica__attention_partial_floats(y->shape[2]);
    t->q = t->args->local;
    t->score = t->q + rows * t->q_stride;
    t->part = t->score + rows * MICA__ATTENTION_CHUNK;
    t->total = t->part + rows * t->o_stride;
    t->key_widened = t->total + rows * t->o_stride;
    t->value_widened = t->key_widened + MICA__ATTENTION_CHUNK * t->q_stride;
}

static void tile_unit(const mica__cpu_args *args, uint64_t unit)
{
    const mica__attention_plan *plan = args->params;
    const mica__cpu_view *q = view_of(args, MICA__ATTENTION_Q), *k = view_of(args, MICA__ATTENTION_K);
    const uint64_t kv_heads = k->shape[k->ndim - 2], group = q->shape[1] / kv_heads, split = unit % plan->splits;
    const uint64_t part = unit / plan->splits % plan->head_parts, rest = unit / plan->splits / plan->head_parts;
    tile t = {.args = args, .plan = plan, .kv_head = rest % kv_heads};
    t.head = t.kv_head * group + part * plan->part_heads;
    t.heads = smaller(plan->part_heads, group - part * plan->part_heads);
    uint64_t token = rest / kv_heads * plan->tile_tokens;
    const uint64_t end = smaller(token + plan->tile_tokens, q->shape[0]);
    lay_out(&t, (uint64_t)plan->tile_tokens * plan->part_heads);
    while (token < end) {
        t.token = token;
        for (t.tokens = 0; token < end; t.tokens++, token++) {
            sight *s = &t.sight[t.tokens];
            if (!look(args, &plan->attention, token, s))
                mica__cpu_fault(args);
            if (s->sequence != t.sight[0].sequence)
                break;
        }
        run_tokens(&t, split);
    }
}

static void combine_unit(const mica__cpu_args *args, uint64_t row)
{
    const mica__attention_plan *plan = args->params;
    const uint64_t heads = view_of(args, MICA__ATTENTION_Q)->shape[1], token = row / heads, head = row % heads;
    const uint64_t stride = mica__attention_partial_floats(view_of(args, MICA__ATTENTION_Y)->shape[2]);
    float *total = args->local;
    sight s;
    if (!look(args, &plan->attention, token, &s))
        mica__cpu_fault(args);
    clear(total, stride);
    for (uint64_t chunk = s.first / MICA__ATTENTION_CHUNK; chunk * MICA__ATTENTION_CHUNK < s.last; chunk++)
        combine(total, kept_part(args, token, head, chunk % plan->chunks), stride);
    write_row(args, token, head, total, stride);
}

void MICA__ISA(attention)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__attention_plan *plan = args->params;
    for (uint64_t unit = first; unit < last; unit++)
        if (plan->mode == MICA__ATTENTION_COMBINE)
            combine_unit(args, unit);
        else
            tile_unit(args, unit);
}
