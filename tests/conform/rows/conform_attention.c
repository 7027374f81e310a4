/*
 * conform_attention.c - cases of kv_write and attention: flat, ring and paged caches, windows, masks, bad indices.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"

enum { KV_X, KV_POSITIONS, KV_SEQUENCES, KV_PAGES, KV_CACHE };
enum { Q, K, V, POSITIONS, LENGTHS, SEQUENCES, PAGES, MASK, Y, SINKS, SLOPES, KEYS, LSE };

typedef enum cache_kind { FLAT, RING, PAGED } cache_kind;

/* How positions map to slots in a case. Unpaged: one page of `slots`. */
typedef struct cache_plan {
    cache_kind kind;
    uint64_t heads, slots; /* slots: of a page when paged */
    uint64_t pages, sequences, max_pages;
} cache_plan;

/* The row of f64, which kernels for GPUs have not: there its cases are of f32. */
static bool is_wide(const conform_case *c)
{
    return c->row->weight == MICA_DTYPE_F64 && !conform_kernels;
}

static mica_dtype draw_type(const conform_case *c, test_random *random)
{
    return is_wide(c) ? MICA_DTYPE_F64 : c->typical ? MICA_DTYPE_F32 : conform_float(random);
}

/* Rows about sinks, slopes, lists of keys, masks of bool, lse. */
static bool has_more(const conform_case *c)
{
    return c->row->make == conform_make_attention_more;
}

/* Rows about prompts have heads in whole pieces of 16 as models have them: what matrix units take. */
static bool is_prompt(const conform_case *c)
{
    return c->row->make == conform_make_prompt;
}

/* A head size up to `most` that the row's type of cache can have. */
static uint64_t draw_dim(const conform_case *c, test_random *random, uint64_t most)
{
    uint64_t block = oracle_block_values(c->row->weight);

    if (c->row->weight == MICA_DTYPE_NONE)
        return test_random_size(random, test_random_one_in(random, 6) ? 256 : most);
    block = block < 16 ? 16 : block;
    return block * (1 + test_random_below(random, test_random_one_in(random, 6) ? 256 / block : 4));
}

/* Room for `positions` positions in each sequence. */
static cache_plan draw_plan(const conform_case *c, test_random *random, uint64_t heads, uint64_t positions)
{
    static const uint64_t page_sizes[] = {1, 3, 8, 16, 32, 64};
    cache_plan plan = {.kind = c->typical ? FLAT : (cache_kind)test_random_below(random, 3), .heads = heads};

    plan.sequences = plan.pages = 1;
    plan.slots = positions + test_random_below(random, 5);
    if (plan.kind != PAGED)
        return plan;
    plan.slots = page_sizes[test_random_below(random, 6)];
    plan.sequences = 1 + test_random_below(random, 3);
    plan.max_pages = (positions + plan.slots - 1) / plan.slots + test_random_below(random, 2);
    plan.pages = plan.sequences * plan.max_pages + test_random_below(random, 3);
    return plan;
}

static void add_cache(conform_case *c, test_random *random, const char *name, const cache_plan *plan,
                      uint64_t dim, bool output)
{
    uint64_t paged[4] = {plan->pages, plan->slots, plan->heads, dim},
             flat[3] = {plan->slots, plan->heads, dim};
    const uint64_t *shape = plan->kind == PAGED ? paged : flat;
    uint32_t ndim = plan->kind == PAGED ? 4 : 3;
    mica_dtype dtype = c->typical ? MICA_DTYPE_F16 : conform_float(random);
    test_layout layout = is_prompt(c) && !test_random_one_in(random, 4) ? TEST_CONTIGUOUS : TEST_ROWS;

    /* Keys of one type and values of another are right too. */
    if (c->row->weight != MICA_DTYPE_NONE && c->row->weight != MICA_DTYPE_F64 &&
        (output || c->typical || !test_random_one_in(random, 5)))
        dtype = c->row->weight;
    if (is_wide(c))
        dtype = MICA_DTYPE_F64;
    if (output)
        conform_add_output(c, random, name, dtype, ndim, shape, TEST_ROWS, false, 0);
    else
        conform_add(c, random, name, dtype, ndim, shape, layout);
    if (oracle_is_block(dtype))
        test_tensor_blocks(conform_tensor(c, c->operand_count - 1), random);
    else
        test_tensor_normal(conform_tensor(c, c->operand_count - 1), random, 1);
}

/* A number of a cache times `factor`; of blocks, all numbers of its block. */
static void scale_number(test_tensor *cache, uint64_t i, double factor)
{
    uint8_t *block = cache->image + test_tensor_place(cache, i);
    uint16_t scale;

    if (!oracle_is_block(cache->dtype)) { /* every block begins with its scale */
        test_tensor_set(cache, i, test_tensor_get(cache, i) * factor);
        return;
    }
    memcpy(&scale, block, sizeof scale);
    scale = oracle_to_f16(oracle_from_f16(scale) * factor);
    memcpy(block, &scale, sizeof scale);
}

/* Values of very different sizes, and maybe one that is no number: whoever does not see it must not notice. Keys that a mask
 * hides are seen, with no weight: their values are numbers. */
static void spread_values(conform_case *c, test_random *random)
{
    test_tensor *cache = conform_tensor(c, V);
    uint64_t step = oracle_block_values(cache->dtype), row = cache->shape[cache->ndim - 1];
    int power = 0;

    for (uint64_t i = 0; i < cache->count; i += step) {
        if (i % row == 0)
            power = (int)test_random_below(random, 25) - 12;
        scale_number(cache, i, ldexp(1, power));
    }
    if (!c->operand[MASK].present && test_random_one_in(random, 2))
        scale_number(cache, test_random_below(random, cache->count / step) * step,
                     test_random_one_in(random, 2) ? (double)NAN : (double)INFINITY);
}

/* Every entry a page of its own, in shuffled order. */
static void fill_pages(test_tensor *table, test_random *random, const cache_plan *plan)
{
    uint64_t *order = test_alloc(plan->pages, sizeof *order);

    for (uint64_t i = 0; i < plan->pages; i++) {
        uint64_t other = test_random_below(random, i + 1);

        order[i] = order[other];
        order[other] = i;
    }
    for (uint64_t i = 0; i < table->count; i++)
        test_tensor_set(table, i, (double)order[i]);
    free(order);
}

static void add_pages(conform_case *c, test_random *random, const cache_plan *plan)
{
    const uint64_t shape[2] = {plan->sequences, plan->max_pages};

    if (plan->kind == PAGED)
        fill_pages(&conform_add(c, random, "pages", MICA_DTYPE_U32, 2, shape, TEST_CONTIGUOUS)->tensor,
                   random, plan);
    else
        conform_add_absent(c);
}

static oracle_cache view_cache(conform_case *c, uint32_t cache_slot, uint32_t pages_slot, const double *table,
                               bool ring)
{
    const test_tensor *cache = conform_tensor(c, cache_slot), *pages = conform_tensor(c, pages_slot);
    bool paged = c->operand[pages_slot].present;
    oracle_cache out = {
        .pages = 1, .page_slots = cache->shape[paged], .heads = cache->shape[1 + paged], .table = table};

    out.ring = ring;
    out.sequences = out.max_pages = 1;
    if (paged) {
        out.pages = cache->shape[0];
        out.sequences = pages->shape[0];
        out.max_pages = pages->shape[1];
    }
    return out;
}

/* Distinct positions within each sequence, or consecutive ones in a ring. */
static void draw_positions(conform_case *c, test_random *random, const cache_plan *plan, uint64_t tokens)
{
    uint64_t room = plan->kind == PAGED ? plan->slots * plan->max_pages : plan->slots;
    uint64_t base = plan->kind == RING ? test_random_below(random, 3 * plan->slots) : 0;
    uint64_t *order = test_alloc(room, sizeof *order);

    for (uint64_t i = 0; i < room; i++) {
        uint64_t other = plan->kind == RING ? i : test_random_below(random, i + 1);

        order[i] = order[other];
        order[other] = base + i;
    }
    for (uint64_t t = 0; t < tokens; t++)
        test_tensor_set(conform_tensor(c, KV_POSITIONS), t, (double)order[t]);
    free(order);
}

static void break_write(conform_case *c, test_random *random, const cache_plan *plan, uint64_t tokens)
{
    uint64_t token = test_random_below(random, tokens), kind = test_random_below(random, 3);
    test_tensor *positions = conform_tensor(c, KV_POSITIONS);
    bool is_signed = positions->dtype == MICA_DTYPE_I32;

    if (plan->kind == RING)
        return;
    c->wanted = MICA_ERR_FAULT;
    if (kind == 0 && plan->kind == PAGED) {
        test_tensor *pages = conform_tensor(c, KV_PAGES);
        uint64_t sequence = c->operand[KV_SEQUENCES].present
                                ? (uint64_t)test_tensor_get(conform_tensor(c, KV_SEQUENCES), token)
                                : 0;
        uint64_t page = (uint64_t)test_tensor_get(positions, token) / plan->slots;

        test_tensor_set(pages, sequence * plan->max_pages + page, (double)plan->pages);
    } else if (kind == 1 && c->operand[KV_SEQUENCES].present) {
        test_tensor_set(conform_tensor(c, KV_SEQUENCES), token, (double)plan->sequences);
    } else {
        test_tensor_set(positions, token, is_signed ? -1 : 4294967295.0);
    }
}

void conform_make_kv_write(conform_case *c, test_random *random)
{
    const uint64_t tokens = c->typical ? 64 : test_random_size(random, 33),
                   heads = c->typical ? 8 : test_random_size(random, 5),
                   dim = c->typical ? 128 : draw_dim(c, random, 140);
    const cache_plan plan = draw_plan(c, random, heads, tokens + 4);
    conform_draw as = {.absent = 1u << MICA__KV_SEQUENCES | 1u << MICA__KV_PAGES,
                       .distinct = ~(1u << MICA__KV_X)};

    c->params.kv.ring = plan.kind == RING;
    as.size[CONFORM_SIZE('T')] = tokens;
    as.size[CONFORM_SIZE('H')] = heads;
    as.size[CONFORM_SIZE('D')] = dim;
    as.size[CONFORM_SIZE('S')] = plan.slots;
    as.size[CONFORM_SIZE('P')] = CONFORM_MISSING;
    if (plan.kind == PAGED) {
        as.absent = 0;
        as.needed = 1u << MICA__KV_PAGES;
        as.size[CONFORM_SIZE('L')] = plan.sequences;
        as.size[CONFORM_SIZE('W')] = plan.max_pages;
        as.size[CONFORM_SIZE('P')] = plan.pages;
    }
    conform_make_op_as(c, random, &as);
    test_tensor_normal(conform_tensor(c, KV_X), random, 2);
    draw_positions(c, random, &plan, tokens);
    if (c->operand[KV_SEQUENCES].present)
        test_tensor_indices(conform_tensor(c, KV_SEQUENCES), random, plan.sequences);
    if (plan.kind == PAGED)
        fill_pages(conform_tensor(c, KV_PAGES), random, &plan);
    if (!c->typical && test_random_one_in(random, 4))
        break_write(c, random, &plan, tokens);
}

void conform_oracle_kv_write(conform_case *c)
{
    double *x = conform_values(c, KV_X), *positions = conform_values(c, KV_POSITIONS);
    double *sequences = conform_values(c, KV_SEQUENCES), *table = conform_values(c, KV_PAGES);
    double *before = conform_values(c, KV_CACHE);
    uint64_t tokens = conform_tensor(c, KV_X)->shape[0], row = conform_tensor(c, KV_X)->count / tokens;
    oracle_cache cache = view_cache(c, KV_CACHE, KV_PAGES, table, c->params.kv.ring);

    for (uint64_t i = 0; i < conform_tensor(c, KV_CACHE)->count; i++) {
        c->expected[i] = before[i];
        c->error[i] = ORACLE_EXACT;
    }
    for (uint64_t t = 0; t < tokens; t++) {
        int64_t slot =
            oracle_cache_slot(&cache, sequences ? (int64_t)sequences[t] : 0, (int64_t)positions[t]);

        if (slot >= 0 && conform_is_turbo(conform_tensor(c, KV_CACHE)->dtype))
            for (uint64_t i = 0; i < row; i++) { /* judged by what blocks of it may be */
                c->expected[(uint64_t)slot * row + i] = x[t * row + i];
                c->error[(uint64_t)slot * row + i] = 0;
            }
        else if (slot >= 0 && oracle_is_block(conform_tensor(c, KV_CACHE)->dtype))
            oracle_round_block(conform_tensor(c, KV_CACHE)->dtype, x + t * row, row,
                               c->expected + (uint64_t)slot * row);
        else if (slot >= 0)
            memcpy(c->expected + (uint64_t)slot * row, x + t * row, row * sizeof *x);
    }
    free(x);
    free(positions);
    free(sequences);
    free(table);
    free(before);
}

/* Query positions and key counts. In a ring the queries are the newest positions. */
static void draw_lengths(conform_case *c, test_random *random, const cache_plan *plan, uint64_t tokens)
{
    uint64_t room = plan->kind == PAGED ? plan->slots * plan->max_pages : plan->slots;
    test_tensor *lengths = conform_tensor(c, LENGTHS), *positions = conform_tensor(c, POSITIONS);

    for (uint64_t s = 0; s < plan->sequences; s++) {
        uint64_t length = test_random_one_in(random, 9) ? 0 : 1 + test_random_below(random, room);

        if (plan->kind == RING)
            length = tokens + test_random_below(random, 3 * room);
        if (test_random_one_in(random, 3)) /* full to the brim, or, in a ring, one past it */
            length = plan->kind == RING ? room + test_random_below(random, 3) : room;
        test_tensor_set(lengths, s, (double)(c->typical ? room : length));
    }
    for (uint64_t t = 0; t < tokens; t++) {
        uint64_t sequence =
            c->operand[SEQUENCES].present ? (uint64_t)test_tensor_get(conform_tensor(c, SEQUENCES), t) : 0;
        uint64_t length = (uint64_t)test_tensor_get(lengths, sequence);
        uint64_t position =
            plan->kind == RING || c->typical ? length - tokens + t : test_random_below(random, length + 2);

        test_tensor_set(positions, t, (double)position);
    }
}

static void draw_attention(conform_case *c, test_random *random)
{
    mica_attention_params *params = &c->params.attention;

    if (c->typical)
        return;
    params->scale = test_random_one_in(random, 2) ? 0 : (float)test_random_uniform(random, 0.02, 0.5);
    params->softcap = test_random_one_in(random, 4) ? 20.0f : 0;
    params->bidirectional = test_random_one_in(random, 4) != 0;
    if (test_random_one_in(random, 2))
        params->window = 1 + (uint32_t)test_random_below(random, 70);
}

/* No mask if there are no keys. */
static void add_mask(conform_case *c, test_random *random, uint64_t heads, uint64_t tokens, uint64_t keys)
{
    uint64_t shape[3] = {heads, tokens, keys};
    bool flat = test_random_one_in(random, 2), hides = has_more(c) && test_random_one_in(random, 2);
    test_tensor *mask;

    if (keys == 0) {
        conform_add_absent(c);
        return;
    }
    conform_add(c, random, "mask", hides ? MICA_DTYPE_BOOL : draw_type(c, random), flat ? 2 : 3,
                flat ? shape + 1 : shape, TEST_ROWS_REPEAT);
    mask = conform_tensor(c, MASK);
    test_tensor_normal(mask, random, 1);
    for (uint64_t i = 0; i < mask->count; i++) {
        const bool hidden = test_random_one_in(random, 3) || i / mask->shape[mask->ndim - 1] % 11 == 3;

        if (hides)
            test_tensor_set(mask, i, hidden ? 0 : 1);
        else if (hidden)
            test_tensor_set(mask, i, -(double)INFINITY);
    }
}

/* One index out of its table: a sequence, a page, a length, a position. The oracle finds whether it matters. */
static void break_attention(conform_case *c, test_random *random, const cache_plan *plan, uint64_t tokens)
{
    uint64_t token = test_random_below(random, tokens), kind = test_random_below(random, 3);
    test_tensor *positions = conform_tensor(c, POSITIONS);

    if (kind == 0 && c->operand[SEQUENCES].present)
        test_tensor_set(conform_tensor(c, SEQUENCES), token, (double)plan->sequences);
    else if (kind == 0 && plan->kind == PAGED)
        test_tensor_set(conform_tensor(c, PAGES), 0, (double)plan->pages + 5);
    else if (kind == 1 && plan->kind != RING)
        test_tensor_set(conform_tensor(c, LENGTHS), 0,
                        (double)(plan->slots * (plan->max_pages ? plan->max_pages : 1) + 1));
    else if (positions->dtype == MICA_DTYPE_I32)
        test_tensor_set(positions, token, -1);
}

/* Pages that no query sees, those before a window for one, need not be there: their entries point nowhere. */
static void lose_pages(conform_case *c, const cache_plan *plan, uint64_t tokens)
{
    const mica_attention_params *params = &c->params.attention;
    test_tensor *pages = conform_tensor(c, PAGES);

    for (uint64_t i = 0; plan->kind == PAGED && i < pages->count; i++) {
        double begin = (double)(i % plan->max_pages * plan->slots), end = begin + (double)plan->slots;
        uint64_t sequence = i / plan->max_pages;
        double length = test_tensor_get(conform_tensor(c, LENGTHS), sequence);
        bool seen = false;

        for (uint64_t t = 0; t < tokens; t++) {
            double position = test_tensor_get(conform_tensor(c, POSITIONS), t);
            double first = params->window ? position + 1 - params->window : 0;
            double last = params->bidirectional ? length : fmin(length, position + 1);
            double own = c->operand[SEQUENCES].present ? test_tensor_get(conform_tensor(c, SEQUENCES), t) : 0;

            seen = seen || (own == (double)sequence && first < end && last > begin);
        }
        if (!seen)
            test_tensor_set(pages, i, i % 2 ? 4294967295.0 : (double)plan->pages);
    }
}

/* One case in six has many tokens at once, and all of the rows about prompts. */
void conform_make_attention(conform_case *c, test_random *random)
{
    uint64_t tokens = is_prompt(c) ? 16 + test_random_size(random, conform_few_processors ? 50 : 130)
                                   : test_random_size(random, test_random_one_in(random, 6) ? 90 : 9);
    uint64_t kv_heads = test_random_size(random, 3), heads = kv_heads * (1 + test_random_below(random, 7));
    uint64_t dim = draw_dim(c, random, 140);
    uint64_t v_dim = test_random_one_in(random, 3) ? draw_dim(c, random, 70) : dim;
    uint64_t longest =
        tokens + (tokens < 10 && test_random_one_in(random, 3) ? 600 : test_random_size(random, 260));
    cache_plan plan;

    if (c->typical) {
        tokens = is_prompt(c) ? 512 : 1;
        kv_heads = 8;
        heads = 32;
        dim = v_dim = 128;
        longest = 2048;
    }
    plan = draw_plan(c, random, kv_heads, longest);
    draw_attention(c, random);
    conform_add(c, random, "q", draw_type(c, random), 3, (uint64_t[]){tokens, heads, dim}, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, Q), random, 1);
    add_cache(c, random, "k", &plan, dim, false);
    add_cache(c, random, "v", &plan, v_dim, false);
    conform_add(c, random, "positions", conform_index(random), 1, &tokens, TEST_CONTIGUOUS);
    conform_add(c, random, "lengths", conform_index(random), 1, &plan.sequences, TEST_CONTIGUOUS);
    if (plan.sequences > 1) {
        conform_add(c, random, "sequences", conform_index(random), 1, &tokens, TEST_CONTIGUOUS);
        test_tensor_indices(conform_tensor(c, SEQUENCES), random, plan.sequences);
    } else {
        conform_add_absent(c);
    }
    draw_lengths(c, random, &plan, tokens);
    c->params.attention.ring = plan.kind == RING;
    add_pages(c, random, &plan);
    lose_pages(c, &plan, tokens);
    add_mask(c, random, heads, tokens,
             c->typical || !test_random_one_in(random, 3) ? 0 : 1 + test_random_below(random, longest + 3));
    conform_add_output(c, random, "y", draw_type(c, random), 3, (uint64_t[]){tokens, heads, v_dim}, TEST_ROWS,
                       false, 0);
    if (is_prompt(c) && !c->typical && test_random_one_in(random, 3))
        spread_values(c, random);
    if (!c->typical && test_random_one_in(random, 5))
        break_attention(c, random, &plan, tokens);
    c->flops = 2.0 * (double)(tokens * heads * longest * (dim + v_dim));
    c->bytes = conform_bytes(c, K) + conform_bytes(c, V);
}

void conform_make_prompt(conform_case *c, test_random *random)
{
    conform_make_attention(c, random);
}

/* One number for each head, some of them -inf where that has a meaning. */
static void add_heads(conform_case *c, test_random *random, const char *name, uint64_t heads, double spread,
                      bool infinite)
{
    const uint32_t slot = c->operand_count;

    conform_add(c, random, name, draw_type(c, random), 1, &heads, TEST_ANY);
    test_tensor_normal(conform_tensor(c, slot), random, spread);
    for (uint64_t i = 0; infinite && i < heads; i++)
        if (test_random_one_in(random, 9))
            test_tensor_set(conform_tensor(c, slot), i, -(double)INFINITY);
}

/* Lists of keys: any order, some twice, some outside of everything. */
static void add_keys(conform_case *c, test_random *random, uint64_t tokens)
{
    const uint64_t shape[2] = {tokens, test_random_size(random, test_random_one_in(random, 3) ? 300 : 40)};
    double longest = 1;
    test_tensor *keys;

    conform_add(c, random, "keys", conform_index(random), 2, shape, TEST_ANY);
    keys = conform_tensor(c, KEYS);
    for (uint64_t s = 0; s < conform_tensor(c, LENGTHS)->count; s++)
        longest = fmax(longest, test_tensor_get(conform_tensor(c, LENGTHS), s));
    for (uint64_t i = 0; i < keys->count; i++) {
        const double outside = keys->dtype == MICA_DTYPE_I32 ? -1 : 4294967295.0;

        test_tensor_set(keys, i,
                        test_random_one_in(random, 8)
                            ? outside
                            : (double)test_random_below(random, (uint64_t)fmin(longest, 1e9) + 2));
    }
}

/* As attention, with some of the operands that few callers have. */
void conform_make_attention_more(conform_case *c, test_random *random)
{
    conform_make_attention(c, random);
    const uint64_t tokens = conform_tensor(c, Q)->shape[0], heads = conform_tensor(c, Q)->shape[1];

    if (!c->typical && test_random_one_in(random, 2))
        add_heads(c, random, "sinks", heads, 3, true);
    else
        conform_add_absent(c);
    if (!c->typical && test_random_one_in(random, 2))
        add_heads(c, random, "slopes", heads, 0.05, false);
    else
        conform_add_absent(c);
    if (!c->typical && test_random_one_in(random, 3))
        add_keys(c, random, tokens);
    else
        conform_add_absent(c);
    if (!c->typical && test_random_one_in(random, 2))
        conform_add(c, random, "lse", is_wide(c) ? MICA_DTYPE_F64 : MICA_DTYPE_F32, 2,
                    (uint64_t[]){tokens, heads}, TEST_ANY)
            ->written = true;
    else
        conform_add_absent(c);
}

/* Three tokens, the newest of `length` keys. The kernels cut keys into chunks of 128. */
typedef struct attention_edge {
    cache_kind kind;
    uint64_t slots, max_pages, length;
    uint32_t window, bidirectional;
    uint64_t mask_keys;
} attention_edge;

static const attention_edge edges[CONFORM_ATTENTION_EDGES] = {
    /* a ring around its brim, and around its second lap */
    {RING, 19, 0, 18, 0, 0, 0},
    {RING, 19, 0, 19, 0, 0, 0},
    {RING, 19, 0, 20, 0, 0, 0},
    {RING, 19, 0, 21, 0, 0, 0},
    {RING, 19, 0, 38, 0, 0, 0},
    {RING, 19, 0, 39, 0, 0, 0},
    {RING, 128, 0, 129, 0, 0, 0},
    {RING, 127, 0, 256, 0, 0, 0},
    {RING, 19, 0, 20, 0, 1, 0},
    /* with a window that is the ring, one less, one more, or a part of it */
    {RING, 19, 0, 20, 19, 0, 0},
    {RING, 19, 0, 21, 18, 0, 0},
    {RING, 19, 0, 40, 20, 0, 0},
    {RING, 19, 0, 20, 5, 1, 0},
    {RING, 19, 0, 20, 0, 0, 20},
    /* pages that end with the keys, one before, one after; windows that begin with a page */
    {PAGED, 16, 4, 15, 0, 0, 0},
    {PAGED, 16, 4, 16, 0, 0, 0},
    {PAGED, 16, 4, 17, 0, 0, 0},
    {PAGED, 16, 4, 64, 0, 0, 0},
    {PAGED, 16, 4, 34, 16, 0, 0},
    {PAGED, 16, 4, 34, 17, 0, 0},
    {PAGED, 1, 20, 20, 3, 0, 0},
    {PAGED, 128, 2, 129, 1, 0, 0},
    {PAGED, 64, 4, 256, 128, 0, 0},
    /* flat: chunks, windows in both directions, masks that end with the keys, one before, one after */
    {FLAT, 130, 0, 128, 0, 0, 0},
    {FLAT, 130, 0, 129, 0, 1, 0},
    {FLAT, 130, 0, 130, 2, 0, 0},
    {FLAT, 20, 0, 20, 18, 0, 0},
    {FLAT, 20, 0, 20, 7, 1, 0},
    {FLAT, 260, 0, 258, 2, 1, 0},
    {FLAT, 20, 0, 20, 0, 0, 19},
    {FLAT, 20, 0, 19, 4, 1, 19},
    {FLAT, 20, 0, 19, 0, 1, 20},
};

static void make_edge(conform_case *c, test_random *random)
{
    const attention_edge *edge = &edges[c->number % CONFORM_ATTENTION_EDGES];
    uint64_t tokens = 3, heads = 4, dim = test_random_size(random, 40), one = 1;
    cache_plan plan = {.kind = edge->kind, .heads = 2, .slots = edge->slots, .max_pages = edge->max_pages};

    plan.sequences = 1;
    plan.pages = edge->kind == PAGED ? edge->max_pages + 1 : 1;
    c->params.attention.ring = edge->kind == RING;
    c->params.attention.window = edge->window;
    c->params.attention.bidirectional = edge->bidirectional;
    conform_add(c, random, "q", draw_type(c, random), 3, (uint64_t[]){tokens, heads, dim}, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, Q), random, 1);
    add_cache(c, random, "k", &plan, dim, false);
    add_cache(c, random, "v", &plan, dim, false);
    conform_add(c, random, "positions", conform_index(random), 1, &tokens, TEST_CONTIGUOUS);
    conform_add(c, random, "lengths", conform_index(random), 1, &one, TEST_CONTIGUOUS);
    conform_add_absent(c);
    test_tensor_set(conform_tensor(c, LENGTHS), 0, (double)edge->length);
    for (uint64_t t = 0; t < tokens; t++)
        test_tensor_set(conform_tensor(c, POSITIONS), t, (double)(edge->length - tokens + t));
    add_pages(c, random, &plan);
    add_mask(c, random, heads, tokens, edge->mask_keys);
    conform_add_output(c, random, "y", MICA_DTYPE_F32, 3, (uint64_t[]){tokens, heads, dim}, TEST_ROWS, false,
                       0);
}

const conform_row conform_attention_edges = {.name = "attention edges",
                                             .op = MICA_OP_ATTENTION,
                                             .make = make_edge,
                                             .encode = conform_encode_attention,
                                             .oracle = conform_oracle_attention,
                                             .factor = 2,
                                             .reason = "as attention"};

mica_status conform_encode_attention(const conform_case *c, mica_encoder *encoder)
{
    mica_attention_operands operands = {
        .q = conform_buffer(c, Q),
        .k = conform_buffer(c, K),
        .v = conform_buffer(c, V),
        .positions = conform_buffer(c, POSITIONS),
        .lengths = conform_buffer(c, LENGTHS),
        .sequences = conform_buffer(c, SEQUENCES),
        .pages = conform_buffer(c, PAGES),
        .mask = conform_buffer(c, MASK),
        .sinks = conform_buffer(c, SINKS),
        .slopes = conform_buffer(c, SLOPES),
        .keys = conform_buffer(c, KEYS),
        .lse = conform_buffer(c, LSE),
    };

    return mica_attention(encoder, &operands, &c->params.attention, conform_buffer(c, Y));
}

/* A value of a turbo block is a sum of 64 in six steps; what these round is of the size of the block's norm, at most. */
static double turned_error(const test_tensor *v, const double *values)
{
    double greatest = 0;

    for (uint64_t i = 0; conform_is_turbo(v->dtype) && i < v->count; i += 64) {
        double squares = 0;

        for (uint64_t j = i; j < i + 64; j++)
            squares += values[j] * values[j];
        if (isfinite(squares))
            greatest = fmax(greatest, sqrt(squares));
    }
    return greatest;
}

void conform_oracle_attention(conform_case *c)
{
    const mica_attention_params *params = &c->params.attention;
    const test_tensor *q = conform_tensor(c, Q), *mask = conform_tensor(c, MASK);
    double *values[KEYS + 1];
    oracle_attention a = {.tokens = q->shape[0], .heads = q->shape[1], .dim = q->shape[2]};

    for (uint32_t i = 0; i <= KEYS; i++)
        values[i] = i == Y ? NULL : conform_values(c, i);
    a.v_dim = conform_tensor(c, Y)->shape[2];
    a.cache = view_cache(c, K, PAGES, values[PAGES], params->ring);
    a.q = values[Q];
    a.k = values[K];
    a.v = values[V];
    a.positions = values[POSITIONS];
    a.lengths = values[LENGTHS];
    a.sequences = values[SEQUENCES];
    a.mask = values[MASK];
    a.mask_heads = values[MASK] && mask->ndim == 3 ? mask->shape[0] : 1;
    a.mask_keys = values[MASK] ? mask->shape[mask->ndim - 1] : 0;
    a.mask_hides = values[MASK] && mask->dtype == MICA_DTYPE_BOOL;
    a.sinks = values[SINKS];
    a.slopes = values[SLOPES];
    a.keys = values[KEYS];
    a.key_count = values[KEYS] ? conform_tensor(c, KEYS)->shape[1] : 0;
    a.scale = params->scale != 0 ? params->scale
              : is_wide(c)       ? 1.0f / sqrtf((float)a.dim)
                                 : 1 / sqrt((double)a.dim);
    a.softcap = params->softcap;
    a.window = params->window;
    a.bidirectional = params->bidirectional;
    if (c->operand[LSE].present)
        conform_expect_also(c, LSE, &a.lse, &a.lse_error);
    if (!oracle_attention_run(&a, c->expected, c->error))
        c->wanted = MICA_ERR_FAULT;
    const double turned = turned_error(conform_tensor(c, V), values[V]);
    for (uint64_t i = 0; turned > 0 && i < conform_tensor(c, Y)->count; i++)
        c->error[i] += c->error[i] >= 0 ? turned : 0;
    for (uint64_t i = 0; is_wide(c) && i < conform_tensor(c, Y)->count; i++)
        c->error[i] *= 0x1p-29; /* roundings of f64 */
    for (uint64_t i = 0; is_wide(c) && a.lse && i < a.tokens * a.heads; i++)
        a.lse_error[i] *= 0x1p-29;
    for (uint32_t i = 0; i <= KEYS; i++)
        free(values[i]);
}
