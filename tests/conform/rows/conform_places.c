/*
 * conform_places.c - cases of pad, gather and scatter: any rank, axis, strides and type; ids that repeat, and some outside.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_number.h"
#include "oracle/oracle_places.h"

#define MOST 3000u

static const mica_dtype plain[] = {MICA_DTYPE_F32, MICA_DTYPE_F16,  MICA_DTYPE_U8,     MICA_DTYPE_I16,
                                   MICA_DTYPE_I32, MICA_DTYPE_U64,  MICA_DTYPE_F64,    MICA_DTYPE_C64,
                                   MICA_DTYPE_I8,  MICA_DTYPE_BF16, MICA_DTYPE_F8_E4M3};

static mica_dtype draw_plain(const conform_case *c, test_random *random)
{
    return c->typical ? MICA_DTYPE_F32 : plain[test_random_below(random, sizeof plain / sizeof *plain)];
}

static uint64_t bits_at(const test_tensor *t, const uint8_t *image, uint64_t index)
{
    uint64_t bits = 0;

    memcpy(&bits, image + test_tensor_place(t, index), oracle_block_bytes(t->dtype));
    return bits;
}

static void oracle_bits(conform_case *c)
{
    c->wanted_values = test_alloc(conform_tensor(c, c->output)->count, sizeof(uint64_t));
}

/* The output bit for bit. */
bool conform_judge_bits(conform_case *c, char *why)
{
    const test_tensor *y = conform_tensor(c, c->output);
    const uint64_t *wanted = c->wanted_values;

    for (uint64_t i = 0; i < y->count; i++)
        if (bits_at(y, y->after, i) != wanted[i]) {
            snprintf(why, CONFORM_TEXT, "element %llu of %s is 0x%llx, the oracle says 0x%llx",
                     (unsigned long long)i, y->name, (unsigned long long)bits_at(y, y->after, i),
                     (unsigned long long)wanted[i]);
            return false;
        }
    return true;
}

/* ---- pad ---- */

enum { PAD_X, PAD_Y };

/* Sometimes far longer than x, sometimes what roll, flip and tile are. */
static void draw_pads(test_random *random, uint64_t n, int64_t *low, int64_t *high)
{
    switch (test_random_below(random, 6)) {
    case 0: *low = *high = 0; break;
    case 1:
        *low = (int64_t)n * (test_random_one_in(random, 2) ? 1 : -1);
        *high = -*low;
        break;
    case 2:
        *low = (int64_t)test_random_below(random, 3 * n + 1);
        *high = (int64_t)test_random_below(random, 3);
        break;
    default:
        *low = (int64_t)test_random_below(random, 5) - 2;
        *high = (int64_t)test_random_below(random, 5) - 2;
        break;
    }
    if (*low + (int64_t)n + *high < 1)
        *high = 1 - (int64_t)n - *low;
}

void conform_make_pad(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS] = {64, 4096}, wide[MICA_MAX_DIMS] = {0};
    const uint32_t ndim = c->typical ? 2 : (uint32_t)test_random_below(random, MICA_MAX_DIMS + 1);
    const mica_dtype dtype = draw_plain(c, random);
    mica_pad_params *p = &c->params.pad;

    if (!c->typical)
        conform_shape(random, ndim, ndim > 4 ? 60 : 500, shape);
    p->mode = c->typical ? MICA_PAD_CONSTANT : (uint32_t)test_random_below(random, MICA_PAD_WRAP + 1);
    p->value = dtype == MICA_DTYPE_F8_E4M3 ? 0 : (double)test_random_below(random, 100);
    for (uint32_t d = 0; d < ndim; d++) {
        if (c->typical)
            p->low[d] = p->high[d] = 1;
        else if (!test_random_one_in(random, 3))
            draw_pads(random, shape[d], &p->low[d], &p->high[d]);
        wide[d] = (uint64_t)(p->low[d] + (int64_t)shape[d] + p->high[d]);
    }
    conform_add(c, random, "x", dtype, ndim, shape, TEST_REPEAT);
    test_tensor_bytes(conform_tensor(c, PAD_X), random);
    conform_add_output(c, random, "y", dtype, ndim, wide, TEST_ANY, false, 0);
    c->bytes = conform_bytes(c, PAD_X) + conform_bytes(c, PAD_Y);
}

mica_status conform_encode_pad(const conform_case *c, mica_encoder *encoder)
{
    return mica_pad(encoder, conform_buffer(c, PAD_X), &c->params.pad, conform_buffer(c, PAD_Y));
}

void conform_oracle_pad(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, PAD_X), *y = conform_tensor(c, PAD_Y);
    const mica_pad_params *p = &c->params.pad;
    uint64_t value = 0;

    oracle_bits(c);
    if (y->dtype == MICA_DTYPE_C64)
        oracle_put(MICA_DTYPE_F32, p->value, &value);
    else if (p->value != 0)
        oracle_put(y->dtype, p->value, &value);
    for (uint64_t i = 0; i < y->count; i++) {
        uint64_t rest = i, from = 0, step = 1;
        bool inside = true;

        for (uint32_t d = y->ndim; d-- > 0;) {
            const int64_t place = oracle_pad_place((int)p->mode, (int64_t)(rest % y->shape[d]) - p->low[d],
                                                   (int64_t)x->shape[d]);

            inside = inside && place >= 0;
            from += (place >= 0 ? (uint64_t)place : 0) * step;
            step *= x->shape[d];
            rest /= y->shape[d];
        }
        ((uint64_t *)c->wanted_values)[i] = inside ? bits_at(x, x->image, from) : value;
    }
}

/* ---- gather and scatter ---- */

/* Shapes that gather's and scatter's rules know: ids are a vector along the axis, or have sizes of their own; y has another size there. */
static uint32_t rule_places(conform_case *c, test_random *random, uint32_t slot, uint64_t *shape)
{
    const bool scatter = c->row->op == MICA_OP_SCATTER;
    const test_tensor *of = conform_tensor(c, 0);
    const uint32_t axis = scatter ? c->params.scatter.axis : c->params.gather.axis;
    const uint64_t other = test_random_size(random, 9);

    memcpy(shape, of->shape, of->ndim * sizeof *shape);
    shape[axis] = scatter && slot == MICA__SCATTER_IDS ? of->shape[axis] : other;
    if (scatter && slot == MICA__SCATTER_Y)
        return of->ndim;
    if (test_random_one_in(random, 2)) {
        shape[0] = shape[axis];
        return 1;
    }
    for (uint32_t d = 0; d < of->ndim; d++)
        shape[d] = d != axis && test_random_one_in(random, 3) ? 1 : shape[d];
    return of->ndim;
}

/* Ids below `n`; in one of four cases some lie outside. */
static void fill_ids(conform_case *c, test_random *random, uint32_t slot, uint64_t n)
{
    test_tensor *ids = conform_tensor(c, slot);

    test_tensor_indices(ids, random, n);
    if (c->typical || !test_random_one_in(random, 4))
        return;
    c->wanted = MICA_ERR_FAULT;
    for (uint32_t k = 0; k < 3; k++)
        test_tensor_set(ids, test_random_below(random, ids->count),
                        ids->dtype == MICA_DTYPE_I32 && test_random_one_in(random, 2)
                            ? -1.0 - (double)test_random_below(random, 3)
                            : (double)(n + test_random_below(random, 3)));
}

/* Of any rank but 0, any types or those of `types`. */
static conform_draw draw_places(test_random *random, uint64_t types, uint32_t *out_axis)
{
    const uint32_t ndim = 1 + (uint32_t)test_random_below(random, MICA_MAX_DIMS);

    *out_axis = (uint32_t)test_random_below(random, ndim);
    return (conform_draw){.rest = MOST, .rest_dims = ndim, .types = types, .ruled = rule_places};
}

static uint64_t id_of(conform_case *c, uint32_t slot, const test_tensor *of, uint32_t axis, uint64_t index)
{
    const test_tensor *ids = conform_tensor(c, slot);
    const double id =
        test_tensor_get(ids, oracle_id_place(of->ndim, of->shape, axis, ids->ndim, ids->shape, index));

    return id < 0 ? UINT64_MAX : (uint64_t)id;
}

enum { GATHER_X, GATHER_IDS, GATHER_Y };

void conform_make_gather(conform_case *c, test_random *random)
{
    const conform_draw as = draw_places(random, 0, &c->params.gather.axis);

    conform_make_op_as(c, random, &as);
    test_tensor *x = conform_tensor(c, GATHER_X);
    test_tensor_bytes(x, random);
    fill_ids(c, random, GATHER_IDS, x->shape[c->params.gather.axis]);
}

void conform_oracle_gather(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, GATHER_X), *y = conform_tensor(c, GATHER_Y);
    const uint32_t axis = c->params.gather.axis;

    oracle_bits(c);
    for (uint64_t i = 0; i < y->count; i++) {
        const uint64_t id = id_of(c, GATHER_IDS, y, axis, i);

        if (id < x->shape[axis])
            ((uint64_t *)c->wanted_values)[i] =
                bits_at(x, x->image, oracle_at_id(y->ndim, y->shape, axis, x->shape[axis], i, id));
    }
}

enum { UPDATES, SCATTER_IDS, SCATTER_Y };

static void make_scatter(conform_case *c, test_random *random, uint64_t types, uint32_t mode)
{
    c->params.scatter.mode = mode;
    const conform_draw as = draw_places(random, types, &c->params.scatter.axis);
    conform_make_op_as(c, random, &as);
    fill_ids(c, random, SCATTER_IDS, conform_tensor(c, SCATTER_Y)->shape[c->params.scatter.axis]);
}

void conform_make_scatter(conform_case *c, test_random *random)
{
    make_scatter(c, random, 0, MICA_SCATTER_SET);
    test_tensor_bytes(conform_tensor(c, UPDATES), random);
    test_tensor_bytes(conform_tensor(c, SCATTER_Y), random);
}

void conform_oracle_scatter(conform_case *c)
{
    const test_tensor *updates = conform_tensor(c, UPDATES), *y = conform_tensor(c, SCATTER_Y);
    const uint32_t axis = c->params.scatter.axis;

    oracle_bits(c);
    uint64_t *wanted = c->wanted_values;
    for (uint64_t i = 0; i < y->count; i++)
        wanted[i] = bits_at(y, y->image, i);
    for (uint64_t i = 0; i < updates->count; i++) {
        const uint64_t id = id_of(c, SCATTER_IDS, updates, axis, i);

        if (id < y->shape[axis])
            wanted[oracle_at_id(updates->ndim, updates->shape, axis, y->shape[axis], i, id)] =
                bits_at(updates, updates->image, i);
    }
}

void conform_make_scatter_add(conform_case *c, test_random *random)
{
    const uint64_t real = 1u << MICA_DTYPE_F32 | 1u << MICA_DTYPE_F16 | 1u << MICA_DTYPE_BF16,
                   integers = 1u << MICA_DTYPE_I32 | 1u << MICA_DTYPE_U32 | 1u << MICA_DTYPE_I64 |
                              1u << MICA_DTYPE_U64;
    const bool whole = test_random_one_in(random, 2);

    make_scatter(c, random, whole ? integers : real,
                 c->typical || test_random_one_in(random, 2)
                     ? MICA_SCATTER_ADD
                     : MICA_SCATTER_MUL + (uint32_t)test_random_below(random, 3));
    for (uint32_t slot = UPDATES; slot <= SCATTER_Y; slot += SCATTER_Y)
        if (whole && c->params.scatter.mode == MICA_SCATTER_MUL)
            test_tensor_indices(conform_tensor(c, slot), random, 2); /* so that no product wraps */
        else if (whole)
            test_tensor_indices(conform_tensor(c, slot), random, 1000);
        else
            test_tensor_normal(conform_tensor(c, slot), random, 1);
}

void conform_oracle_scatter_add(conform_case *c)
{
    const test_tensor *updates = conform_tensor(c, UPDATES), *y = conform_tensor(c, SCATTER_Y);
    const uint32_t axis = c->params.scatter.axis;
    double *count = test_alloc(y->count, sizeof *count);

    for (uint64_t i = 0; i < y->count; i++) {
        c->expected[i] = test_tensor_get(y, i);
        c->error[i] = fabs(c->expected[i]);
    }
    for (uint64_t i = 0; i < updates->count; i++) {
        const uint64_t id = id_of(c, SCATTER_IDS, updates, axis, i);
        const uint64_t at = id < y->shape[axis]
                                ? oracle_at_id(updates->ndim, updates->shape, axis, y->shape[axis], i, id)
                                : UINT64_MAX;

        if (at != UINT64_MAX)
            oracle_combine((int)c->params.scatter.mode, test_tensor_get(updates, i), &c->expected[at],
                           &c->error[at], &count[at]);
    }
    for (uint64_t i = 0; i < y->count; i++)
        c->error[i] *= c->params.scatter.mode == MICA_SCATTER_ADD   ? 1 + 0.25 * sqrt(count[i])
                       : c->params.scatter.mode == MICA_SCATTER_MUL ? count[i]
                                                                    : 0;
    free(count);
}
