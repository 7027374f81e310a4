/*
 * attention.c - softmax(q k^T scale + mask) v over caches whose lengths are known when the work runs.
 *
 * A unit takes a tile of tokens and the query heads of one or more kv heads: rows that share a key share
 * its loads, and the kv heads of one token lie side by side in memory. The keys a row sees are one range of
 * logical positions; chunk by chunk the unit finds where they lie, scores them, turns scores into weights
 * and adds values. attention.h says why the bits of a row depend on the row alone.
 */
#include "backend/cpu/kernels/attention/attention.h"

#include "backend/cpu/kernels/attention/attention_seen.h"
#include "backend/cpu/kernels/attention/attention_tile.h"
#include "backend/cpu/kernels/kernels.h"

/* From this many rows of one kv head on keys are packed and values widened once for all. */
#define WIDEN_ROWS 8
#define BLOCK_BYTES 32768 /* of keys or values that all kv heads of a unit read before the next ones */

/* The rows of one unit: tokens [token, token + tokens) by kv heads [kv_head, kv_head + kv_heads) by `heads`
 * of the query heads of each, from `head` on. Row numbers rise with query head, then token, then kv head. */
typedef struct tile {
    const mica__cpu_args *args;
    const mica__attention_plan *plan;
    uint64_t token, tokens, kv_head, kv_heads, head, heads;
    uint64_t rows, q_stride, o_stride;
    sight sight[MICA__ATTENTION_MAX_TOKENS];
    float *q, *score;    /* per row */
    float *part, *total; /* per row a partial result: values, greatest score, sum of weights */
    float *key_packed, *value_widened;
    float *row;    /* a key or value on its way */
    uint32_t *key; /* positions of the keys where the caller chose them; NULL: all of a range */
} tile;

/* Where the values of a chunk lie, and the keys of the next one (NULL: there is none). */
typedef struct chunk_rows {
    key_rows values;
    const key_rows *next;
} chunk_rows;

static uint64_t row_token(const tile *t, uint64_t row)
{
    return t->tokens == 1 ? 0 : row / t->heads % t->tokens;
}

static uint64_t row_head(const tile *t, uint64_t row)
{
    const mica__cpu_view *q = view_of(t->args, MICA__ATTENTION_Q), *k = view_of(t->args, MICA__ATTENTION_K);
    const uint64_t group = q->shape[1] / k->shape[k->ndim - 2];
    return (t->kv_head + row / (t->heads * t->tokens)) * group + t->head + row % t->heads;
}

/* The part of a token's keys in the chunk from `base` on, as places in it; false and [0, 0) if empty. */
static bool in_chunk(const sight *s, uint64_t base, uint64_t *out_first, uint64_t *out_last)
{
    *out_first = larger(s->first, base) - base;
    *out_last = s->last > base ? smaller(s->last - base, MICA__ATTENTION_CHUNK) : 0;
    if (*out_first >= *out_last)
        *out_first = *out_last = 0;
    return *out_last != 0;
}

/* What tokens [from, to) of the tile see of a chunk, taken together; [0, 0) if nothing. */
static void seen_by(const tile *t, uint64_t base, uint64_t from, uint64_t to, uint64_t *out_first,
                    uint64_t *out_last)
{
    uint64_t first, last;
    *out_first = MICA__ATTENTION_CHUNK;
    *out_last = 0;
    for (uint64_t i = from; i < to; i++)
        if (in_chunk(&t->sight[i], base, &first, &last)) {
            *out_first = smaller(*out_first, first);
            *out_last = larger(*out_last, last);
        }
    if (*out_last == 0)
        *out_first = 0;
}

/* Fills up the pointers around [first, last) to whole tiles. */
static void pad_rows(key_rows *rows)
{
    for (uint64_t i = rows->first / TILE_KEYS * TILE_KEYS; i < rows->first; i++)
        rows->row[i] = rows->row[rows->first];
    for (uint64_t i = rows->last; i % TILE_KEYS != 0; i++)
        rows->row[i] = rows->row[rows->last - 1];
}

/* The keys (or values, by slot) of a chunk that some token of the tile sees. */
static void find_rows(const tile *t, uint32_t slot, uint64_t chunk, key_rows *out)
{
    const mica__cpu_view *cache = view_of(t->args, slot), *pages = view_of(t->args, MICA__ATTENTION_PAGES);
    const uint64_t slots = cache->shape[cache->ndim - 3], slot_stride = cache->stride[cache->ndim - 3];
    const uint64_t base = chunk * MICA__ATTENTION_CHUNK, sequence = t->sight[0].sequence;
    out->dtype = cache->dtype;
    out->dim = cache->shape[cache->ndim - 1];
    out->bytes = cache_row_bytes(out->dtype, out->dim);
    out->head_stride = cache->stride[cache->ndim - 2];
    const unsigned char *head = cache->data + t->kv_head * out->head_stride, *page = head;
    seen_by(t, base, 0, t->tokens, &out->first, &out->last);
    uint64_t entry = (base + out->first) / slots, place = (base + out->first) % slots;
    for (uint64_t i = out->first; t->key != NULL && i < out->last; i++)
        out->row[i] = key_place(t->args, slot, sequence, t->key[base + i]) + (head - cache->data);
    for (uint64_t i = out->first; t->key == NULL && i < out->last; place = 0, entry++) {
        if (pages->data != NULL) {
            const int64_t number = index_at(pages, sequence * pages->stride[0] + entry * pages->stride[1]);
            /* Between the windows of two tokens a page may be missing: nobody sees it, and any other serves. */
            const bool exists = number >= 0 && (uint64_t)number < cache->shape[0];
            page = exists ? head + (uint64_t)number * cache->stride[0] : head;
        }
        const uint64_t run = smaller(out->last - i, slots - place);
        for (uint64_t j = 0; j < run; j++)
            out->row[i + j] = page + (place + j) * slot_stride;
        i += run;
    }
    pad_rows(out);
}

/* Whether the tile's rows share each key often enough to prepare it for them; then it has one kv head. */
static bool widens(const tile *t)
{
    return t->kv_heads == 1 && t->rows >= WIDEN_ROWS;
}

static bool is_decoded(uint16_t dtype)
{
    return cache_is_coded(dtype) && !mica__attention_reads(dtype);
}

/* Puts a key into a panel as its row `i` of `rows`, as gemm_pack_row does. */
static void pack_row(const tile *t, const unsigned char *row, uint16_t dtype, uint64_t dim, uint32_t i,
                     uint32_t rows, float *panel)
{
    if (is_decoded(dtype)) {
        mica__quant_decode_row(dtype, row, t->row, dim);
        gemm_pack_row((const unsigned char *)t->row, MICA_DTYPE_F32, dim, i, rows, panel);
        return;
    }
    if (!mica__attention_reads(dtype)) {
        gemm_pack_row(row, dtype, dim, i, rows, panel);
        return;
    }
    for (uint64_t at = 0; at < dim; at += VW)
        vf_store(panel + at * rows + i * VW, cache_load(row, dtype, at, cache_scale(row, dtype, at)));
}

/* Brings keys or values to f32 and points at the copies, which lie from `copies` on. */
static void widen_rows(const tile *t, key_rows *rows, float *copies)
{
    const uint64_t stride = mica__attention_row_floats(rows->dim);
    for (uint64_t i = rows->first; i < rows->last; i++) {
        float *to = copies + i * stride;
        const float *wide = to;
        if (is_decoded(rows->dtype))
            mica__quant_decode_row(rows->dtype, rows->row[i], to, rows->dim);
        else if (mica__attention_reads(rows->dtype))
            pack_row(t, rows->row[i], rows->dtype, rows->dim, 0, 1, to);
        else
            wide = row_f32(rows->row[i], rows->dtype, rows->dim, to);
        rows->row[i] = (const unsigned char *)wide;
    }
    rows->dtype = MICA_DTYPE_F32;
    rows->bytes = rows->dim * sizeof(float);
}

/* Packs keys into panels of gemm.h by place in the chunk; those that no row sees are zeros. */
static void pack_keys(const tile *t, const key_rows *keys)
{
    const uint64_t steps = gemm_steps(keys->dim), end = mica__dense_round(keys->last, GEMM_NR);
    for (uint64_t i = keys->first / GEMM_NR * GEMM_NR; i < end; i++) {
        const uint32_t j = (uint32_t)(i % GEMM_NR);
        float *panel = t->key_packed + (i - j) * steps * VW;
        if (i >= keys->first && i < keys->last)
            pack_row(t, keys->row[i], keys->dtype, keys->dim, j, GEMM_NR, panel);
        else
            gemm_pack_zero(steps, j, GEMM_NR, panel);
    }
}

/* Scores of all rows of a tile that widens, from packed rows of q and packed keys. What no row of a panel
 * sees is left out. */
static void score_panels(const tile *t, uint64_t base, uint64_t dim)
{
    const uint64_t panels = gemm_row_panels(t->rows);
    gemm_part part = {.steps = gemm_steps(dim), .first = true, .last = true};
    for (uint64_t p = 0; p < panels; p++) {
        const uint64_t row = mica__dense_cut(t->rows, panels, p),
                       end = mica__dense_cut(t->rows, panels, p + 1);
        const float *q = t->q + row * part.steps * VW;
        uint64_t first, last;
        seen_by(t, base, row_token(t, row), row_token(t, end - 1) + 1, &first, &last);
        for (uint64_t key = first / GEMM_NR * GEMM_NR; key < last; key += GEMM_NR) {
            const float *keys = t->key_packed + key * part.steps * VW;
            part.ahead = (const unsigned char *)(keys + GEMM_NR * part.steps * VW);
            gemm_tile(q, gemm_panel_lines(keys), &part, end - row, t->score + row * SCORE_STRIDE + key,
                      SCORE_STRIDE);
        }
    }
}

/* Scores of the rows of kv head `kv` for places [from, to), multiples of TILE_KEYS. What no row of a group
 * sees is left out. The first group fetches the values meanwhile. */
static void score_block(const tile *t, uint64_t base, uint64_t kv, uint64_t from, uint64_t to,
                        const key_rows *keys, const key_rows *values)
{
    const uint64_t begin = kv * t->tokens * t->heads, end = begin + t->tokens * t->heads;
    for (uint64_t row = begin; row < end; row += TILE_ROWS) {
        const uint64_t count = smaller(TILE_ROWS, end - row);
        key_range range = {keys, row == begin ? values : NULL, kv, keys->first, keys->last};
        if (t->tokens > 1)
            seen_by(t, base, row_token(t, row), row_token(t, row + count - 1) + 1, &range.first, &range.last);
        range.first = larger(range.first / TILE_KEYS * TILE_KEYS, from);
        range.last = smaller(mica__dense_round(range.last, TILE_KEYS), to);
        score_keys(t->q + row * t->q_stride, t->q_stride, &range, count, t->score + row * SCORE_STRIDE);
    }
}

/* Position of the key at a place of the chunk. */
static uint64_t key_position(const tile *t, uint64_t at)
{
    return t->key != NULL ? t->key[at] : at;
}

/* The mask of a query row for keys [first, last) of the chunk: added to their scores, or, of bool, saying which keep theirs. */
static void mask_row(const tile *t, uint64_t row, uint64_t base, uint64_t first, uint64_t last, float *score)
{
    const mica__cpu_view *mask = view_of(t->args, MICA__ATTENTION_MASK);
    const uint64_t stride = mask->stride[mask->ndim - 1];
    const unsigned char *at = mask->data + (t->token + row_token(t, row)) * mask->stride[mask->ndim - 2];
    float work[MICA__ATTENTION_CHUNK];
    if (mask->ndim > 2 && mask->shape[0] > 1)
        at += row_head(t, row) * mask->stride[0];
    if (mask->dtype != MICA_DTYPE_BOOL && t->key == NULL) {
        const float *added =
            row_f32_strided(at + (base + first) * stride, mask->dtype, stride, last - first, work);
        row_add(score + first, added, last - first, score + first);
        return;
    }
    for (uint64_t i = first; i < last; i++) {
        const unsigned char *element = at + key_position(t, base + i) * stride;
        if (mask->dtype != MICA_DTYPE_BOOL)
            score[i] += row_element(element, mask->dtype);
        else
            score[i] = *element != 0 ? score[i] : -INFINITY;
    }
}

/* One element of an operand that has one for each head. */
static float of_head(const mica__cpu_view *view, uint64_t head)
{
    return row_element(view->data + head * view->stride[0], view->dtype);
}

/* Adds the row's slope times how far each key is behind its query, negative before it. */
static void slope_row(const tile *t, uint64_t row, uint64_t base, uint64_t first, uint64_t last, float *score)
{
    const float slope = of_head(view_of(t->args, MICA__ATTENTION_SLOPES), row_head(t, row));
    const int64_t query = (int64_t)t->sight[row_token(t, row)].position;
    for (uint64_t i = first; i < last; i++)
        score[i] += slope * (float)((int64_t)key_position(t, base + i) - query);
}

/* Scores of [begin, end), whole vectors, times the scale and capped. */
static void scale_row(const mica_attention_params *a, uint64_t begin, uint64_t end, float *score)
{
    const vf scale = vf_set1(a->scale), cap = vf_set1(a->softcap);
    for (uint64_t i = begin; i < end; i += VW)
        vf_store(score + i, vf_mul(vf_load(score + i), scale));
    for (uint64_t i = begin; a->softcap > 0 && i < end; i += VW)
        vf_store(score + i, vf_softcap(vf_load(score + i), cap));
}

/* Turns the scores of one row into weights over keys [first, last) of the chunk; the rest of their vectors
 * get none. Leaves greatest score and sum of weights behind the row's partial result. */
static void weigh(const tile *t, uint64_t row, uint64_t base, uint64_t first, uint64_t last)
{
    float *score = t->score + row * SCORE_STRIDE, *part = t->part + row * t->o_stride;
    const uint64_t begin = first / VW * VW, end = (last + VW - 1) / VW * VW;
    scale_row(&t->plan->attention, begin, end, score);
    if (view_of(t->args, MICA__ATTENTION_MASK)->data != NULL)
        mask_row(t, row, base, first, last, score);
    if (view_of(t->args, MICA__ATTENTION_SLOPES)->data != NULL)
        slope_row(t, row, base, first, last, score);
    if (begin < first)
        vf_store(score + begin, vf_merge_n(vf_set1(-INFINITY), vf_load(score + begin), first - begin));
    if (last < end)
        vf_store(score + end - VW,
                 vf_merge_n(vf_load(score + end - VW), vf_set1(-INFINITY), last - (end - VW)));
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

/* Each of a few rows of more than one token adds its own keys in order: alone up to those that all rows see, together, then
 * alone again. */
static void mix_tokens(const tile *t, uint64_t base, uint64_t row, uint64_t rows, const key_range *block)
{
    const float *weight = t->score + row * SCORE_STRIDE;
    float *part = t->part + row * t->o_stride;
    uint64_t first[4], last[4];
    key_range all = *block;
    for (uint64_t i = 0; i < rows; i++) {
        in_chunk(&t->sight[row_token(t, row + i)], base, &first[i], &last[i]);
        first[i] = smaller(larger(first[i], block->first), block->last);
        last[i] = larger(smaller(last[i], block->last), first[i]);
        all.first = larger(all.first, first[i]);
        all.last = smaller(all.last, last[i]);
    }
    if (all.first >= all.last)
        all.first = all.last = block->last;
    for (uint64_t i = 0; i < rows; i++) {
        const key_range alone = {block->rows, NULL, block->head, first[i], smaller(last[i], all.first)};
        add_values(weight + i * SCORE_STRIDE, &alone, 1, part + i * t->o_stride, t->o_stride);
    }
    add_values(weight, &all, rows, part, t->o_stride);
    for (uint64_t i = 0; i < rows; i++) {
        const key_range alone = {block->rows, NULL, block->head, all.last, last[i]};
        add_values(weight + i * SCORE_STRIDE, &alone, 1, part + i * t->o_stride, t->o_stride);
    }
}

/* The same for rows of one token, which see what the chunk's rows are. */
static void mix_rows(const tile *t, uint64_t base, uint64_t row, uint64_t rows, const key_range *block)
{
    key_range seen = *block;
    if (t->tokens > 1) {
        mix_tokens(t, base, row, rows, block);
        return;
    }
    seen.first = larger(seen.first, seen.rows->first);
    seen.last = smaller(seen.last, seen.rows->last);
    add_values(t->score + row * SCORE_STRIDE, &seen, rows, t->part + row * t->o_stride, t->o_stride);
}

/* Values of places [from, to) for the rows of kv head `kv`. The first rows fetch the next keys meanwhile. */
static void mix_block(const tile *t, uint64_t base, uint64_t kv, uint64_t from, uint64_t to,
                      const chunk_rows *c)
{
    const uint64_t begin = kv * t->tokens * t->heads, end = begin + t->tokens * t->heads;
    for (uint64_t row = begin; row < end;) {
        const uint64_t count = end - row >= 4 ? 4 : end - row >= 2 ? 2 : 1;
        const key_range block = {&c->values, row == begin ? c->next : NULL, kv, from, to};
        mix_rows(t, base, row, count, &block);
        row += count;
    }
}

/* total = total and part together; both are values, greatest score, sum of weights. */
static void combine(float *total, const float *part, uint64_t stride)
{
    const uint64_t values = stride - MICA__ATTENTION_LANES;
    float *most = &total[values], *sum = &total[values + 1];
    vf scale = vf_set1(1), part_scale = vf_set1(1);
    if (*most == -INFINITY) {
        scale = vf_zero();
        *most = part[values];
    } else if (part[values] > *most) {
        scale = vf_exp(vf_set1(*most - part[values]));
        *most = part[values];
    } else if (part[values] != -INFINITY) {
        part_scale = vf_exp(vf_set1(part[values] - *most));
    }
    float lane[2][VW];
    vf_store(lane[0], scale);
    vf_store(lane[1], part_scale);
    *sum = *sum * lane[0][0] + part[values + 1] * lane[1][0];
    for (uint64_t i = 0; i < values; i += VW)
        vf_store(total + i, vf_fma(vf_load(part + i), part_scale, vf_mul(vf_load(total + i), scale)));
}

static void clear(float *total, uint64_t stride)
{
    memset(total, 0, stride * sizeof(float));
    total[stride - MICA__ATTENTION_LANES] = -INFINITY;
}

static float exp_of(float x)
{
    float lane[VW];
    vf_store(lane, vf_exp(vf_set1(x)));
    return lane[0];
}

/* The head's sink joins the sum of weights: its score may be the greatest. Returns what the values shrink by. */
static float add_sink(float sink, float *most, float *sum)
{
    const float top = sink > *most ? sink : *most;
    if (top == -INFINITY)
        return 1;
    const float shrink = exp_of(*most - top);
    *sum = *sum * shrink + exp_of(sink - top);
    *most = top;
    return shrink;
}

static void write_lse(const mica__cpu_args *args, uint64_t token, uint64_t head, float most, float sum)
{
    const mica__cpu_view *lse = view_of(args, MICA__ATTENTION_LSE);
    const float nothing = -INFINITY;
    float lane[VW];
    if (lse->data == NULL)
        return;
    vf_store(lane, vf_add(vf_set1(most), vf_log(vf_set1(sum))));
    row_store(lse->data + token * lse->stride[0] + head * lse->stride[1], MICA_DTYPE_F32,
              sum == 0 ? &nothing : lane, 1);
}

/* y = values / sum of weights; zeros where no key was seen. */
static void write_row(const mica__cpu_args *args, uint64_t token, uint64_t head, float *total,
                      uint64_t stride)
{
    const mica__cpu_view *y = view_of(args, MICA__ATTENTION_Y);
    const uint64_t values = stride - MICA__ATTENTION_LANES;
    const mica__cpu_view *sinks = view_of(args, MICA__ATTENTION_SINKS);
    float sum = total[values + 1], shrink = 1;
    if (sinks->data != NULL)
        shrink = add_sink(of_head(sinks, head), &total[values], &sum);
    write_lse(args, token, head, total[values], sum);
    const vf scale = vf_set1(sum == 0 ? 0.0f : shrink * (1.0f / sum));
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
    return kept + (row * plan->chunks + chunk % plan->chunks) * mica__attention_partial_floats(y->shape[2]);
}

/* Hands the partial results of a chunk on: into the rows' totals, or into scratch. */
static void give_parts(const tile *t, uint64_t chunk)
{
    uint64_t first, last;
    for (uint64_t row = 0; row < t->rows; row++) {
        const float *part = t->part + row * t->o_stride;
        const uint64_t token = row_token(t, row);
        if (!in_chunk(&t->sight[token], chunk * MICA__ATTENTION_CHUNK, &first, &last))
            continue;
        if (t->plan->mode == MICA__ATTENTION_WHOLE)
            combine(t->total + row * t->o_stride, part, t->o_stride);
        else
            memcpy(kept_part(t->args, t->token + token, row_head(t, row), chunk), part,
                   t->o_stride * sizeof(float));
    }
}

/* Scores of all rows. The kv heads of a unit take turns, so that they read memory in order. */
static void score_chunk(const tile *t, uint64_t base, uint64_t step, const key_rows *keys,
                        const key_rows *values)
{
    key_rows decoded;
    if (widens(t)) {
        pack_keys(t, keys);
        score_panels(t, base, keys->dim);
        return;
    }
    if (is_decoded(keys->dtype)) {
        decoded = *keys;
        widen_rows(t, &decoded, t->key_packed);
        pad_rows(&decoded);
        keys = &decoded;
    }
    for (uint64_t from = 0; from < keys->last; from += step)
        for (uint64_t kv = 0; kv < t->kv_heads; kv++)
            score_block(t, base, kv, from, from + step, keys, values);
}

/* Keys of a block: some whole tiles; all of the chunk where the unit has one kv head. */
static uint64_t block_keys(const tile *t, const key_rows *keys)
{
    const uint64_t bytes = t->kv_heads * cache_row_bytes(keys->dtype, keys->dim);
    const uint64_t few = larger(BLOCK_BYTES / bytes / TILE_KEYS * TILE_KEYS, TILE_KEYS);
    return t->kv_heads > 1 ? smaller(few, MICA__ATTENTION_CHUNK) : MICA__ATTENTION_CHUNK;
}

/* One chunk: its keys, and those of the chunk after it to fetch meanwhile. */
static void walk_chunk(const tile *t, uint64_t chunk, const key_rows *keys, const key_rows *next)
{
    const uint64_t base = chunk * MICA__ATTENTION_CHUNK;
    const uint64_t step = block_keys(t, keys);
    uint64_t first, last;
    chunk_rows c = {.next = next};
    if (keys->last == 0)
        return;
    find_rows(t, MICA__ATTENTION_V, chunk, &c.values);
    score_chunk(t, base, step, keys, &c.values);
    for (uint64_t row = 0; row < t->rows; row++) {
        memset(t->part + row * t->o_stride, 0, t->o_stride * sizeof(float));
        if (in_chunk(&t->sight[row_token(t, row)], base, &first, &last))
            weigh(t, row, base, first, last);
    }
    if (widens(t) || is_decoded(c.values.dtype))
        widen_rows(t, &c.values, t->value_widened);
    for (uint64_t from = 0; from < keys->last; from += step)
        for (uint64_t kv = 0; kv < t->kv_heads; kv++)
            mix_block(t, base, kv, from, from + step, &c);
    give_parts(t, chunk);
}

/* Chunks that some token of the tile sees: [first, last). */
static void seen_chunks(const tile *t, uint64_t *out_first, uint64_t *out_last)
{
    *out_first = UINT64_MAX;
    *out_last = 0;
    for (uint64_t i = 0; i < t->tokens; i++)
        if (t->sight[i].first < t->sight[i].last) {
            *out_first = smaller(*out_first, t->sight[i].first / MICA__ATTENTION_CHUNK);
            *out_last = larger(*out_last, (t->sight[i].last - 1) / MICA__ATTENTION_CHUNK + 1);
        }
}

static const unsigned char *q_row(const tile *t, uint64_t row)
{
    const mica__cpu_view *q = view_of(t->args, MICA__ATTENTION_Q);
    return q->data + (t->token + row_token(t, row)) * q->stride[0] + row_head(t, row) * q->stride[1];
}

/* Rows of q as f32; packed into panels of gemm.h if the tile widens. */
static void load_q(const tile *t)
{
    const mica__cpu_view *q = view_of(t->args, MICA__ATTENTION_Q);
    const uint64_t dim = q->shape[2], panels = gemm_row_panels(t->rows);
    for (uint64_t row = 0; !widens(t) && row < t->rows; row++)
        gemm_pack_row(q_row(t, row), q->dtype, dim, 0, 1, t->q + row * t->q_stride);
    for (uint64_t p = 0; widens(t) && p < panels; p++) {
        const uint64_t first = mica__dense_cut(t->rows, panels, p),
                       end = mica__dense_cut(t->rows, panels, p + 1);
        for (uint64_t row = first; row < end; row++)
            gemm_pack_row(q_row(t, row), q->dtype, dim, (uint32_t)(row - first), (uint32_t)(end - first),
                          t->q + first * gemm_steps(dim) * VW);
    }
}

/* Tokens that share a sequence: each split takes every splits-th chunk. */
static void run_tokens(tile *t, uint64_t split)
{
    const uint64_t splits = t->plan->splits;
    uint64_t from, to;
    key_rows keys[2];
    t->rows = t->kv_heads * t->tokens * t->heads;
    load_q(t);
    for (uint64_t row = 0; row < t->rows; row++)
        clear(t->total + row * t->o_stride, t->o_stride);
    seen_chunks(t, &from, &to);
    uint64_t chunk = from < to ? from + (split + splits - from % splits) % splits : to;
    if (chunk < to)
        find_rows(t, MICA__ATTENTION_K, chunk, &keys[0]);
    for (uint32_t now = 0; chunk < to; chunk += splits, now ^= 1) {
        const bool more = chunk + splits < to;
        if (more)
            find_rows(t, MICA__ATTENTION_K, chunk + splits, &keys[now ^ 1]);
        walk_chunk(t, chunk, &keys[now], more ? &keys[now ^ 1] : NULL);
    }
    for (uint64_t row = 0; t->plan->mode == MICA__ATTENTION_WHOLE && row < t->rows; row++)
        write_row(t->args, t->token + row_token(t, row), row_head(t, row), t->total + row * t->o_stride,
                  t->o_stride);
}

/* Where the positions of chosen keys go; NULL: nobody chose any. */
static uint32_t *chosen_keys(const mica__cpu_args *args, float *room)
{
    return view_of(args, MICA__ATTENTION_KEYS)->data != NULL ? (uint32_t *)(void *)room : NULL;
}

/* Per-thread memory of a tile of that many rows. */
static void lay_out(tile *t, uint64_t rows)
{
    const mica__cpu_view *q = view_of(t->args, MICA__ATTENTION_Q), *y = view_of(t->args, MICA__ATTENTION_Y);
    t->q_stride = mica__attention_row_floats(q->shape[2]);
    t->o_stride = mica__attention_partial_floats(y->shape[2]);
    t->q = t->args->local;
    t->score = t->q + rows * t->q_stride;
    t->part = t->score + rows * SCORE_STRIDE;
    t->total = t->part + rows * t->o_stride;
    t->key_packed = t->total + rows * t->o_stride;
    t->value_widened = t->key_packed + SCORE_STRIDE * t->q_stride;
    t->row = t->value_widened + SCORE_STRIDE * mica__attention_row_floats(y->shape[2]);
    t->key = chosen_keys(t->args, t->row + t->q_stride);
}

static void tile_unit(const mica__cpu_args *args, uint64_t unit)
{
    const mica__attention_plan *plan = args->params;
    const mica__cpu_view *q = view_of(args, MICA__ATTENTION_Q), *k = view_of(args, MICA__ATTENTION_K);
    const uint64_t kv_heads = k->shape[k->ndim - 2], group = q->shape[1] / kv_heads,
                   split = unit % plan->splits;
    const uint64_t part = unit / plan->splits % plan->head_parts,
                   rest = unit / plan->splits / plan->head_parts;
    tile t = {.args = args, .plan = plan, .kv_head = rest % plan->kv_parts * plan->part_kv_heads};
    t.kv_heads = smaller(plan->part_kv_heads, kv_heads - t.kv_head);
    t.head = part * plan->part_heads;
    t.heads = smaller(plan->part_heads, group - t.head);
    uint64_t token = rest / plan->kv_parts * plan->tile_tokens;
    const uint64_t end = smaller(token + plan->tile_tokens, q->shape[0]);
    lay_out(&t, (uint64_t)plan->tile_tokens * plan->part_kv_heads * plan->part_heads);
    while (token < end) {
        t.token = token;
        for (t.tokens = 0; token < end; t.tokens++, token++) {
            sight *s = &t.sight[t.tokens];
            if (!look(args, &plan->attention, token, t.key, s))
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
    const uint64_t heads = view_of(args, MICA__ATTENTION_Q)->shape[1], token = row / heads,
                   head = row % heads;
    const uint64_t stride = mica__attention_partial_floats(view_of(args, MICA__ATTENTION_Y)->shape[2]);
    float *total = args->local;
    sight s;
    if (!look(args, &plan->attention, token, chosen_keys(args, total + stride), &s))
        mica__cpu_fault(args);
    clear(total, stride);
    for (uint64_t chunk = s.first / MICA__ATTENTION_CHUNK; chunk * MICA__ATTENTION_CHUNK < s.last; chunk++)
        combine(total, kept_part(args, token, head, chunk), stride);
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
