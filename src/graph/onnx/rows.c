/*
 * rows.c - numbers of rows that the run finds: what they are made of, masks, and shapes in which they stand.
 */
#include "graph/onnx/rows.h"

#include <string.h>

#include "base/work.h"
#include "graph/onnx/operators.h"

/* Where a shape has rows, a number far below all that a shape can have stands for them. */
#define MARK (-(1ll << 52))

enum { MOST_ROWS = 1024 }; /* different ones of a model: each new one is compared with all */

/* ---- rows ----------------------------------------------------------------------------------------------- */

/* While a node is tried in a graph of its own, nothing that it makes stays. */
static bool stays(const mica__ox_op *o)
{
    return o->graph == o->scope->graph;
}

const mica__ox_found *mica__ox_rows_find(const mica__ox_op *o, const mica__ox_found *key)
{
    for (uint32_t i = 0; i < o->im->rows_count && stays(o); i++) {
        const mica__ox_found *r = o->im->rows[i];
        if (r->kind == key->kind && r->serial == o->scope->serial && r->a == key->a && r->b == key->b &&
            r->tensor == key->tensor && r->p == key->p && r->q == key->q)
            return r;
    }
    return NULL;
}

static mica_status add(mica__ox *im, mica__ox_found *rows)
{
    if (im->rows_count == MOST_ROWS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "more than %d numbers of rows that the run finds", MOST_ROWS);
    if (im->rows_count == im->rows_room) {
        const uint32_t room = im->rows_room * 2 + 8;
        mica__ox_found **list = mica__ox_memory(im, room, sizeof *list);
        if (list == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        if (im->rows_count != 0)
            memcpy(list, im->rows, im->rows_count * sizeof *list);
        im->rows = list;
        im->rows_room = room;
    }
    rows->number = im->rows_count;
    im->rows[im->rows_count++] = rows;
    return mica__spend(MOST_ROWS);
}

static mica_tensor number(const mica__ox_op *o, uint64_t value)
{
    return mica_graph_number(o->graph, MICA_DTYPE_I32, (double)value);
}

mica_status mica__ox_rows_make(mica__ox_op *o, const mica__ox_found *key, uint64_t most, mica_tensor count,
                               const mica__ox_found **out)
{
    mica__ox_found *rows = mica__ox_memory(o->im, 1, sizeof *rows);
    *out = rows;
    if (rows == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (most == 0 || most > INT32_MAX)
        return mica__ox_fail(o, "up to %llu rows as the run finds them", (unsigned long long)most);
    *rows = *key;
    rows->most = most;
    rows->serial = o->scope->serial;
    count = mica__ox_reshape(o, count, 0, NULL);
    if (count != 0 &&
        mica__ox_type(o, count).dtype != MICA_DTYPE_I32) { /* clamped where it has all its bits */
        count = mica__ox_scalar(o, MICA_SCALAR_MAX, count, mica__ox_number(o, count, 0));
        count = mica__ox_scalar(o, MICA_SCALAR_MIN, count, mica__ox_number(o, count, (double)most));
        count = mica__ox_cast(o, count, MICA_DTYPE_I32);
    }
    count = mica__ox_scalar(o, MICA_SCALAR_MAX, count, number(o, 0));
    rows->count = mica__ox_scalar(o, MICA_SCALAR_MIN, count, number(o, most));
    MICA__TRY(mica_graph_status(o->graph));
    return stays(o) ? add(o->im, rows) : MICA_OK;
}

mica_status mica__ox_rows_counted(mica__ox_op *o, mica_tensor of, const mica__ox_found *inside, uint64_t most,
                                  mica_tensor count, const mica__ox_found **out)
{
    const mica__ox_found key = {.kind = MICA__OX_ROWS_TRUE, .a = inside, .tensor = of};
    *out = mica__ox_rows_find(o, &key);
    return *out != NULL ? MICA_OK : mica__ox_rows_make(o, &key, most, count, out);
}

mica_status mica__ox_rows_slice(mica__ox_op *o, const mica__ox_found *rows, int64_t start, int64_t end,
                                const mica__ox_found **out)
{
    const int64_t last = end < (int64_t)rows->most ? end : (int64_t)rows->most;
    const mica__ox_found key = {.kind = MICA__OX_ROWS_SLICE, .a = rows, .p = start, .q = last};
    *out = start == 0 && last == (int64_t)rows->most ? rows : mica__ox_rows_find(o, &key);
    if (*out != NULL)
        return MICA_OK;
    if (last <= start)
        return mica__ox_fail(o, "none of up to %llu rows", (unsigned long long)rows->most);
    const mica_tensor count = mica__ox_scalar(
        o, MICA_SCALAR_SUB, mica__ox_scalar(o, MICA_SCALAR_MIN, rows->count, number(o, (uint64_t)last)),
        number(o, (uint64_t)start));
    return mica__ox_rows_make(o, &key, (uint64_t)(last - start), count, out);
}

mica_status mica__ox_rows_scale(mica__ox_op *o, const mica__ox_found *rows, uint64_t multiple, uint64_t part,
                                const mica__ox_found **out)
{
    const mica__ox_found *base = rows;
    if (rows->kind == MICA__OX_ROWS_SCALE) {
        base = rows->a;
        multiple *=
            (uint64_t)rows->p; /* both are sizes of tensors: below 2^48, and their product is one too */
    }
    if (part == 0 || multiple % part != 0 || multiple / part == 0)
        return mica__ox_fail(o, "rows in groups, of a number that the run finds");
    const mica__ox_found key = {.kind = MICA__OX_ROWS_SCALE, .a = base, .p = (int64_t)(multiple / part)};
    *out = key.p == 1 ? base : mica__ox_rows_find(o, &key);
    if (*out != NULL)
        return MICA_OK;
    if (base->most > INT32_MAX / (uint64_t)key.p)
        return mica__ox_fail(o, "more than 2^31 rows");
    const mica_tensor count = mica__ox_scalar(o, MICA_SCALAR_MUL, base->count, number(o, (uint64_t)key.p));
    return mica__ox_rows_make(o, &key, base->most * (uint64_t)key.p, count, out);
}

mica_status mica__ox_rows_join(mica__ox_op *o, const mica__ox_found *const *rows, const uint64_t *size,
                               uint32_t count, const mica__ox_found **out)
{
    const mica__ox_found *all = rows[0];
    uint64_t most = size[0];
    for (uint32_t i = 1; i < count; i++) {
        const mica__ox_found key = {.kind = MICA__OX_ROWS_JOIN,
                                    .a = all,
                                    .b = rows[i],
                                    .p = all == NULL ? (int64_t)most : 0,
                                    .q = rows[i] == NULL ? (int64_t)size[i] : 0};
        most += size[i];
        if (all == NULL && rows[i] == NULL)
            continue;
        const mica__ox_found *both = mica__ox_rows_find(o, &key);
        if (both == NULL) {
            const mica_tensor sum =
                mica__ox_scalar(o, MICA_SCALAR_ADD, all != NULL ? all->count : number(o, (uint64_t)key.p),
                                rows[i] != NULL ? rows[i]->count : number(o, (uint64_t)key.q));
            MICA__TRY(mica__ox_rows_make(o, &key, most, sum, &both));
        }
        all = both;
    }
    *out = all;
    return MICA_OK;
}

mica_status mica__ox_rows_at_most(mica__ox_op *o, const mica__ox_found *rows, uint64_t size, mica_tensor k,
                                  int64_t k_number, const mica__ox_found **out)
{
    const mica__ox_found key = {.kind = MICA__OX_ROWS_FIRST,
                                .a = rows,
                                .tensor = k,
                                .p = k == 0 ? k_number : 0,
                                .q = rows == NULL ? (int64_t)size : 0};
    *out = mica__ox_rows_find(o, &key);
    if (*out != NULL)
        return MICA_OK;
    const uint64_t most = k == 0 && (uint64_t)k_number < size ? (uint64_t)k_number : size;
    mica_tensor count = number(o, most);
    if (k != 0) { /* of 64 bits perhaps, which are clamped before they are cut */
        count = mica__ox_reshape(o, k, 0, NULL);
        count = mica__ox_scalar(o, MICA_SCALAR_MIN, count, mica__ox_number(o, count, (double)most));
        count = mica__ox_scalar(o, MICA_SCALAR_MAX, count, mica__ox_number(o, count, 0));
        count = mica__ox_cast(o, count, MICA_DTYPE_I32);
    }
    if (rows != NULL)
        count = mica__ox_scalar(o, MICA_SCALAR_MIN, count, rows->count);
    return mica__ox_rows_make(o, &key, most, count, out);
}

mica_tensor mica__ox_there(const mica__ox_op *o, const mica__ox_found *rows, uint32_t ndim, uint32_t axis)
{
    uint64_t shape[MICA_MAX_DIMS];
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = d == axis ? rows->most : 1;
    return mica__ox_scalar(o, MICA_SCALAR_LESS, mica__ox_iota(o, ndim, shape, axis, MICA_DTYPE_I32),
                           rows->count);
}

mica_tensor mica__ox_masked(const mica__ox_op *o, mica_tensor x, const mica__ox_found *rows, uint32_t axis,
                            mica_tensor otherwise)
{
    return x == 0 ? 0
                  : mica__ox_select(o, mica__ox_there(o, rows, mica__ox_type(o, x).ndim, axis), x, otherwise);
}

/* ---- shapes in which numbers of rows stand --------------------------------------------------------------- */

int64_t mica__ox_size_of(const mica__ox_found *rows)
{
    return MARK - (int64_t)rows->number;
}

const mica__ox_found *mica__ox_size_rows(const mica__ox *im, const mica__ox_host *host, uint64_t i)
{
    const int64_t n = host->sized ? mica__ox_host_int(host, i) : 0;
    return n <= MARK && MARK - n < (int64_t)im->rows_count ? im->rows[MARK - n] : NULL;
}

/* Whether a number of a plain host could be taken for rows, or (`below`) is not below 0. */
static bool is_number(const mica__ox_host *host, bool below)
{
    for (uint64_t i = 0; host->dtype == MICA_DTYPE_I64 && i < host->elements; i++) {
        const int64_t n = mica__ox_host_int(host, i);
        if (n <= MARK || (below && n >= 0))
            return false;
    }
    return host->dtype == MICA_DTYPE_I64 || !below;
}

/* Which inputs the node moves as they are, by bits. */
static uint32_t moved_inputs(const mica__ox_op *o)
{
    mica__ox_build *const build = o->row->build;
    if (build == mica__ox_concat)
        return UINT32_MAX;
    if (build == mica__ox_where)
        return 6;
    if (build == mica__ox_binary && o->row->argument == MICA_SCALAR_EQUAL)
        return 3;
    if (build == mica__ox_cast_op && o->node->attribute_count == 1 &&
        o->node->attribute[0].i == MICA__ONNX_INT64)
        return 1;
    return build == mica__ox_gather || build == mica__ox_slice_op || build == mica__ox_squeeze ||
           build == mica__ox_unsqueeze_op || build == mica__ox_identity || build == mica__ox_reshape_op;
}

bool mica__ox_moves_sizes(const mica__ox_op *o)
{
    const bool compares = o->row->build == mica__ox_binary;
    uint32_t sized = 0;
    for (uint32_t i = 0; i < o->input_count; i++)
        if (mica__ox_has(o, i) && o->in[i].host != NULL && o->in[i].host->sized) {
            if (i >= 32 || (moved_inputs(o) >> i & 1) == 0)
                return false;
            sized |= 1u << i;
        }
    for (uint32_t i = 0; i < o->input_count && sized != 0; i++)
        if (mica__ox_has(o, i) && (i >= 32 || (sized >> i & 1) == 0) &&
            (o->in[i].host == NULL || o->in[i].host->elements > MICA__OX_FOLD ||
             !is_number(o->in[i].host, compares)))
            return false;
    return sized != 0 && (!compares || sized != 3); /* rows are equal to no number below 0 */
}

mica_status mica__ox_note_sizes(mica__ox_op *o)
{
    for (uint32_t i = 0; i < o->output_count; i++) {
        const mica__ox_host *host = o->out[i].host;
        bool sized = false;
        for (uint64_t k = 0; host != NULL && host->dtype == MICA_DTYPE_I64 && k < host->elements; k++)
            sized = sized || mica__ox_host_int(host, k) <= MARK;
        if (!sized)
            continue;
        mica__ox_host *noted = mica__ox_memory(o->im, 1, sizeof *noted);
        if (noted == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        *noted = *host;
        noted->sized = true;
        o->out[i].host = noted;
    }
    return MICA_OK;
}

/* The numbers, 0 where rows stand; and for each of these rows a table that has 1 there, times their count. */
mica_status mica__ox_settle(mica__ox *im, mica_graph *graph, mica__ox_value *value)
{
    const mica__ox_host *host = value->host;
    if (host == NULL || !host->sized)
        return MICA_OK;
    int64_t *plain = mica__ox_memory(im, host->elements, sizeof *plain),
            *one = mica__ox_memory(im, host->elements, sizeof *one);
    if (plain == NULL || one == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < host->elements; i++)
        plain[i] = mica__ox_size_rows(im, host, i) != NULL ? 0 : mica__ox_host_int(host, i);
    const uint64_t bytes = host->elements * sizeof *plain;
    mica_tensor sum = mica_graph_constant(graph, MICA_DTYPE_I64, host->ndim, host->shape, plain, bytes);
    for (uint64_t i = 0; i < host->elements; i++) {
        const mica__ox_found *rows = mica__ox_size_rows(im, host, i);
        bool first = rows != NULL;
        MICA__TRY(mica__spend(host->elements));
        for (uint64_t k = 0; k < host->elements; k++) {
            one[k] = rows != NULL && mica__ox_size_rows(im, host, k) == rows;
            first = first && (k >= i || one[k] == 0);
        }
        if (!first)
            continue;
        const mica_tensor where =
            mica_graph_constant(graph, MICA_DTYPE_I64, host->ndim, host->shape, one, bytes);
        sum = mica_graph_add(
            graph, sum, mica_graph_mul(graph, where, mica_graph_cast(graph, rows->count, MICA_DTYPE_I64)));
    }
    *value = (mica__ox_value){.tensor = sum};
    return mica_graph_status(graph);
}

mica_status mica__ox_settle_sizes(mica__ox_op *o)
{
    const mica__ox_rule *rule = mica__ox_rule_of(o);
    for (uint32_t i = 0; i < o->input_count; i++)
        if (mica__ox_has(o, i) && (rule == NULL || i >= 32 || (rule->sizes >> i & 1) == 0))
            MICA__TRY(mica__ox_settle(o->im, o->scope->graph, &o->in[i]));
    return MICA_OK;
}
