/*
 * conform_coordinates.c - cases of places in several dimensions: gathering and scattering by them; any rank, strides and type, places that repeat, and some
 * with a coordinate outside its own dimension that would be inside another's. And of elements that are chosen because they are not 0: none, all, more
 * or fewer than there is room for.
 */
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

static uint64_t product(const uint64_t *shape, uint32_t from, uint32_t to)
{
    uint64_t elements = 1;

    for (uint32_t d = from; d < to; d++)
        elements *= shape[d];
    return elements;
}

/* Dimensions: batch, `coordinates` that are named and `rest` of x or y; batch, `lines` and one of ids. */
typedef struct split {
    uint32_t batch, coordinates, rest, lines;
    uint64_t whole[MICA_MAX_DIMS];  /* [batch.., coordinates.., rest..] */
    uint64_t ids[MICA_MAX_DIMS];    /* [batch.., lines.., coordinates] */
    uint64_t chosen[MICA_MAX_DIMS]; /* [batch.., lines.., rest..] */
} split;

static split draw_split(const conform_case *c, test_random *random, bool batched)
{
    split s = {
        .batch = 0, .coordinates = 2, .rest = 1, .lines = 1, .whole = {64, 64, 1024}, .ids = {4096, 2}};

    if (!c->typical) {
        const uint32_t ndim = 1 + (uint32_t)test_random_below(random, 6);

        s.batch = batched && ndim > 1 ? (uint32_t)test_random_below(random, ndim < 3 ? ndim : 3) : 0;
        s.coordinates = 1 + (uint32_t)test_random_below(random, ndim - s.batch);
        s.rest = ndim - s.batch - s.coordinates;
        s.lines = (uint32_t)test_random_below(
            random, MICA_MAX_DIMS - s.batch - (s.rest > 0 ? s.rest : 1) < 3 ? 2 : 4);
        conform_shape(random, ndim, MOST / 4, s.whole);
        memcpy(s.ids, s.whole, s.batch * sizeof *s.ids);
        for (uint32_t d = 0; d < s.lines; d++)
            s.ids[s.batch + d] = test_random_size(random, 6);
        s.ids[s.batch + s.lines] = s.coordinates;
    }
    memcpy(s.chosen, s.ids, (s.batch + s.lines) * sizeof *s.ids);
    memcpy(s.chosen + s.batch + s.lines, s.whole + s.batch + s.coordinates, s.rest * sizeof *s.ids);
    return s;
}

/* In one of four cases a coordinate lies outside of its dimension. */
static void add_ids(conform_case *c, test_random *random, const split *s)
{
    conform_add(c, random, "ids", conform_index(random), s->batch + s->lines + 1, s->ids, TEST_REPEAT);
    test_tensor *ids = conform_tensor(c, c->operand_count - 1);
    const uint64_t *size = s->whole + s->batch;

    for (uint64_t i = 0; i < ids->count; i++)
        test_tensor_set(ids, i, (double)test_random_below(random, size[i % s->coordinates]));
    if (s->coordinates > 1 && ids->stride[ids->ndim - 1] == 0) /* one number for all its dimensions */
        for (uint64_t i = 0; i < ids->count; i++) {
            uint64_t least = size[0];

            for (uint32_t k = 1; k < s->coordinates; k++)
                least = size[k] < least ? size[k] : least;
            test_tensor_set(ids, i, (double)test_random_below(random, least));
        }
    if (c->typical || !test_random_one_in(random, 4))
        return;
    c->wanted = MICA_ERR_FAULT;
    for (uint32_t k = 0; k < 3; k++) {
        const uint64_t at = test_random_below(random, ids->count);

        test_tensor_set(ids, at,
                        ids->dtype == MICA_DTYPE_I32 && test_random_one_in(random, 2)
                            ? -1.0 - (double)test_random_below(random, 3)
                            : (double)(size[at % s->coordinates] + test_random_below(random, 3)));
    }
}

/* Which coordinates an op names is told by the shapes of its operands. */
static split split_of(conform_case *c, uint32_t whole, uint32_t ids, uint32_t batch)
{
    const test_tensor *w = conform_tensor(c, whole), *i = conform_tensor(c, ids);
    split s = {.batch = batch, .coordinates = (uint32_t)i->shape[i->ndim - 1]};

    s.rest = w->ndim - batch - s.coordinates;
    s.lines = i->ndim - 1 - batch;
    memcpy(s.whole, w->shape, w->ndim * sizeof *s.whole);
    memcpy(s.ids, i->shape, i->ndim * sizeof *s.ids);
    return s;
}

/* The element of the whole that element `index` of what is chosen is; UINT64_MAX: there is none. */
static uint64_t place_of(const split *s, const test_tensor *ids, uint64_t index)
{
    const uint64_t rest = product(s->whole, s->batch + s->coordinates, s->batch + s->coordinates + s->rest);
    const uint64_t line = index / rest, lines = product(s->ids, s->batch, s->batch + s->lines);
    double place[MICA_MAX_DIMS];

    for (uint32_t k = 0; k < s->coordinates; k++)
        place[k] = test_tensor_get(ids, line * s->coordinates + k);
    const uint64_t at = oracle_coordinates(s->coordinates, s->whole + s->batch, place);
    if (at == UINT64_MAX)
        return at;
    return (line / lines * product(s->whole, s->batch, s->batch + s->coordinates) + at) * rest + index % rest;
}

/* ---- gather ---- */

enum { GATHER_X, GATHER_IDS, GATHER_Y };

void conform_make_gather_nd(conform_case *c, test_random *random)
{
    const split s = draw_split(c, random, true);

    conform_add(c, random, "x", draw_plain(c, random), s.batch + s.coordinates + s.rest, s.whole,
                TEST_REPEAT);
    test_tensor_bytes(conform_tensor(c, GATHER_X), random);
    add_ids(c, random, &s);
    conform_add_output(c, random, "y", conform_tensor(c, GATHER_X)->dtype, s.batch + s.lines + s.rest,
                       s.chosen, TEST_ANY, false, 0);
    c->params.gather_nd.batch_dims = s.batch;
    c->bytes = 2 * conform_bytes(c, GATHER_Y);
}

mica_status conform_encode_gather_nd(const conform_case *c, mica_encoder *encoder)
{
    return mica_gather_nd(encoder, conform_buffer(c, GATHER_X), conform_buffer(c, GATHER_IDS),
                          &c->params.gather_nd, conform_buffer(c, GATHER_Y));
}

void conform_oracle_gather_nd(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, GATHER_X), *y = conform_tensor(c, GATHER_Y);
    const split s = split_of(c, GATHER_X, GATHER_IDS, c->params.gather_nd.batch_dims);
    uint64_t *wanted = c->wanted_values = test_alloc(y->count, sizeof(uint64_t));

    for (uint64_t i = 0; i < y->count; i++) {
        const uint64_t at = place_of(&s, conform_tensor(c, GATHER_IDS), i);

        if (at != UINT64_MAX)
            wanted[i] = bits_at(x, x->image, at);
    }
}

/* ---- scatter ---- */

enum { UPDATES, SCATTER_IDS, SCATTER_Y };

static void make_scatter(conform_case *c, test_random *random, mica_dtype dtype, uint32_t mode)
{
    const split s = draw_split(c, random, false);

    conform_add(c, random, "updates", dtype, s.lines + s.rest, s.chosen, TEST_REPEAT);
    add_ids(c, random, &s);
    conform_add_output(c, random, "y", dtype, s.coordinates + s.rest, s.whole, TEST_ANY, false, 0);
    c->params.scatter_nd.mode = mode;
    c->bytes = 3 * conform_bytes(c, UPDATES);
}

void conform_make_scatter_nd(conform_case *c, test_random *random)
{
    make_scatter(c, random, draw_plain(c, random), MICA_SCATTER_SET);
    test_tensor_bytes(conform_tensor(c, UPDATES), random);
    test_tensor_bytes(conform_tensor(c, SCATTER_Y), random);
}

mica_status conform_encode_scatter_nd(const conform_case *c, mica_encoder *encoder)
{
    return mica_scatter_nd(encoder, conform_buffer(c, UPDATES), conform_buffer(c, SCATTER_IDS),
                           &c->params.scatter_nd, conform_buffer(c, SCATTER_Y));
}

void conform_oracle_scatter_nd(conform_case *c)
{
    const test_tensor *updates = conform_tensor(c, UPDATES), *y = conform_tensor(c, SCATTER_Y);
    const split s = split_of(c, SCATTER_Y, SCATTER_IDS, 0);
    uint64_t *wanted = c->wanted_values = test_alloc(y->count, sizeof(uint64_t));

    for (uint64_t i = 0; i < y->count; i++)
        wanted[i] = bits_at(y, y->image, i);
    for (uint64_t i = 0; i < updates->count; i++) {
        const uint64_t at = place_of(&s, conform_tensor(c, SCATTER_IDS), i);

        if (at != UINT64_MAX)
            wanted[at] = bits_at(updates, updates->image, i);
    }
}

void conform_make_scatter_nd_add(conform_case *c, test_random *random)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_I32,
                                       MICA_DTYPE_U32};
    const mica_dtype dtype = c->typical ? MICA_DTYPE_F32 : types[test_random_below(random, 5)];
    const bool whole = dtype == MICA_DTYPE_I32 || dtype == MICA_DTYPE_U32;

    make_scatter(c, random, dtype,
                 c->typical || test_random_one_in(random, 2)
                     ? MICA_SCATTER_ADD
                     : MICA_SCATTER_MUL + (uint32_t)test_random_below(random, 3));
    for (uint32_t slot = UPDATES; slot <= SCATTER_Y; slot += SCATTER_Y)
        if (whole && c->params.scatter_nd.mode == MICA_SCATTER_MUL)
            test_tensor_indices(conform_tensor(c, slot), random, 2); /* so that no product wraps */
        else if (whole)
            test_tensor_indices(conform_tensor(c, slot), random, 1000);
        else
            test_tensor_normal(conform_tensor(c, slot), random, 1);
}

void conform_oracle_scatter_nd_add(conform_case *c)
{
    const test_tensor *updates = conform_tensor(c, UPDATES), *y = conform_tensor(c, SCATTER_Y);
    const split s = split_of(c, SCATTER_Y, SCATTER_IDS, 0);
    const uint32_t mode = c->params.scatter_nd.mode;
    double *count = test_alloc(y->count, sizeof *count);

    for (uint64_t i = 0; i < y->count; i++) {
        c->expected[i] = test_tensor_get(y, i);
        c->error[i] = fabs(c->expected[i]);
    }
    for (uint64_t i = 0; i < updates->count; i++) {
        const uint64_t at = place_of(&s, conform_tensor(c, SCATTER_IDS), i);

        if (at != UINT64_MAX)
            oracle_combine((int)mode, test_tensor_get(updates, i), &c->expected[at], &c->error[at],
                           &count[at]);
    }
    for (uint64_t i = 0; i < y->count; i++)
        c->error[i] *= mode == MICA_SCATTER_ADD   ? 1 + 0.25 * sqrt(count[i])
                       : mode == MICA_SCATTER_MUL ? count[i]
                                                  : 0;
    free(count);
}

/* ---- what is not 0 ---- */

/* Raw bytes, and zeros among them, some with their signs. */
static void fill_chosen(test_tensor *x, test_random *random)
{
    const uint32_t bytes = (uint32_t)oracle_block_bytes(x->dtype);
    const bool real = x->dtype == MICA_DTYPE_F32 || x->dtype == MICA_DTYPE_F16 ||
                      x->dtype == MICA_DTYPE_F64 || x->dtype == MICA_DTYPE_BF16 ||
                      x->dtype == MICA_DTYPE_F8_E4M3 || x->dtype == MICA_DTYPE_C64;
    const uint32_t part = x->dtype == MICA_DTYPE_C64 ? 4 : bytes,
                   rare = (uint32_t)test_random_below(random, 4);

    test_tensor_bytes(x, random);
    for (uint64_t i = 0; i < x->count; i++) {
        uint8_t *at = x->image + test_tensor_place(x, i);

        if (rare == 0 ? false : rare == 1 ? test_random_one_in(random, 2) : !test_random_one_in(random, 4))
            for (uint32_t k = 0; k < bytes; k += part) {
                memset(at + k, 0, part);
                if (real && test_random_one_in(random, 2))
                    at[k + part - 1] = 0x80;
            }
    }
}

static bool is_zero(const test_tensor *x, uint64_t i)
{
    float part[2];

    if (x->dtype == MICA_DTYPE_F8_E4M3) /* is its code to the tensor */
        return (x->image[test_tensor_place(x, i)] & 0x7f) == 0;
    if (x->dtype != MICA_DTYPE_C64)
        return test_tensor_get(x, i) == 0;
    memcpy(part, x->image + test_tensor_place(x, i), sizeof part);
    return part[0] == 0 && part[1] == 0;
}

enum { NONZERO_X, NONZERO_PLACES, NONZERO_COUNT };

/* Long ones have several runs, whose last is cut. */
static void draw_chosen(const conform_case *c, test_random *random, uint32_t ndim, uint64_t *shape)
{
    if (c->typical)
        shape[0] = shape[1] = 4096;
    else if (ndim == 1 && test_random_one_in(random, 2))
        shape[0] = 4000 + test_random_below(random, 9000);
    else
        conform_shape(random, ndim, MOST, shape);
}

void conform_make_nonzero(conform_case *c, test_random *random)
{
    const uint32_t ndim = c->typical ? 2 : (uint32_t)test_random_below(random, 6);
    const mica_dtype index = conform_index(random);
    uint64_t shape[MICA_MAX_DIMS] = {0}, places[2] = {0, ndim}, one = 1;

    draw_chosen(c, random, ndim, shape);
    conform_add(c, random, "x", draw_plain(c, random), ndim, shape, TEST_REPEAT);
    fill_chosen(conform_tensor(c, NONZERO_X), random);
    const uint64_t count = conform_tensor(c, NONZERO_X)->count;
    places[0] =
        c->typical || test_random_one_in(random, 2) ? count : 1 + test_random_below(random, count + 9);
    if (ndim > 0 && (c->typical || !test_random_one_in(random, 6)))
        conform_add_output(c, random, "places", index, 2, places, TEST_ANY, false, 0);
    else
        conform_add_absent(c);
    conform_add_output(c, random, "count", test_random_one_in(random, 2) ? index : conform_index(random), 1,
                       &one, TEST_ANY, false, 0);
    c->output = c->operand[NONZERO_PLACES].present ? NONZERO_PLACES : NONZERO_COUNT;
    c->bytes = 2 * conform_bytes(c, NONZERO_X) + conform_bytes(c, NONZERO_PLACES);
}

mica_status conform_encode_nonzero(const conform_case *c, mica_encoder *encoder)
{
    return mica_nonzero(encoder, conform_buffer(c, NONZERO_X), conform_buffer(c, NONZERO_PLACES),
                        conform_buffer(c, NONZERO_COUNT));
}

void conform_oracle_nonzero(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, NONZERO_X), *places = conform_tensor(c, NONZERO_PLACES);
    const bool listed = c->operand[NONZERO_PLACES].present;
    const uint64_t room = listed ? places->shape[0] : 0;
    double *all = c->expected, *error;
    uint64_t count = 0;

    for (uint64_t i = 0; i < room * x->ndim; i++)
        c->expected[i] = places->dtype == MICA_DTYPE_I32 ? -1 : 4294967295.0;
    for (uint64_t i = 0; i < x->count; i++) {
        uint64_t rest = i;

        if (is_zero(x, i))
            continue;
        for (uint32_t d = x->ndim; d-- > 0 && count < room;) {
            c->expected[count * x->ndim + d] = (double)(rest % x->shape[d]);
            rest /= x->shape[d];
        }
        count++;
    }
    if (listed)
        conform_expect_also(c, NONZERO_COUNT, &all, &error);
    all[0] = (double)count;
}

enum { COMPRESS_X, COMPRESS_CONDITION, COMPRESS_Y, COMPRESS_COUNT };

void conform_make_compress(conform_case *c, test_random *random)
{
    const uint32_t ndim = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, 5);
    const bool flat = !c->typical && test_random_one_in(random, 3);
    mica_compress_params *p = &c->params.compress;
    uint64_t shape[MICA_MAX_DIMS] = {0}, length, room, one = 1;

    draw_chosen(c, random, ndim, shape);
    p->flat = flat;
    p->axis = c->typical || flat ? 0 : (uint32_t)test_random_below(random, ndim);
    conform_add(c, random, "x", draw_plain(c, random), ndim, shape, TEST_REPEAT);
    test_tensor_bytes(conform_tensor(c, COMPRESS_X), random);
    length = flat ? conform_tensor(c, COMPRESS_X)->count : shape[p->axis];
    if (!c->typical && test_random_one_in(random, 3))
        length = 1 + test_random_below(random, length);
    conform_add(c, random, "condition", test_random_one_in(random, 2) ? MICA_DTYPE_U8 : draw_plain(c, random),
                1, &length, TEST_REPEAT);
    fill_chosen(conform_tensor(c, COMPRESS_CONDITION), random);
    room = c->typical || test_random_one_in(random, 2) ? length : 1 + test_random_below(random, length + 3);
    shape[p->axis] = room;
    conform_add_output(c, random, "y", conform_tensor(c, COMPRESS_X)->dtype, flat ? 1 : ndim, shape, TEST_ANY,
                       false, 0);
    conform_add_output(c, random, "count", conform_index(random), 1, &one, TEST_ANY, false, 0);
    c->output = COMPRESS_Y;
    c->bytes = 2 * conform_bytes(c, COMPRESS_Y);
}

mica_status conform_encode_compress(const conform_case *c, mica_encoder *encoder)
{
    return mica_compress(encoder, conform_buffer(c, COMPRESS_X), conform_buffer(c, COMPRESS_CONDITION),
                         &c->params.compress, conform_buffer(c, COMPRESS_Y),
                         conform_buffer(c, COMPRESS_COUNT));
}

void conform_oracle_compress(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, COMPRESS_X), *y = conform_tensor(c, COMPRESS_Y),
                      *condition = conform_tensor(c, COMPRESS_CONDITION);
    const uint32_t axis = c->params.compress.axis;
    uint64_t *wanted = c->wanted_values = test_alloc(y->count, sizeof(uint64_t)), count = 0;

    for (uint64_t i = 0; i < condition->count; i++) {
        if (is_zero(condition, i))
            continue;
        for (uint64_t e = 0; e < y->count && count < y->shape[axis]; e++) {
            const uint64_t inner = product(y->shape, axis + 1, y->ndim);

            if (e / inner % y->shape[axis] != count)
                continue;
            wanted[e] = bits_at(x, x->image,
                                c->params.compress.flat != 0
                                    ? i
                                    : oracle_at_id(y->ndim, y->shape, axis, x->shape[axis], e, i));
        }
        count++;
    }
    *c->expected = (double)count;
}

bool conform_judge_compress(conform_case *c, char *why)
{
    const test_tensor *count = conform_tensor(c, COMPRESS_COUNT);
    uint32_t got;

    memcpy(&got, count->after + test_tensor_place(count, 0), sizeof got);
    if ((double)got == *c->expected)
        return conform_judge_bits(c, why);
    snprintf(why, CONFORM_TEXT, "count is %u, the oracle says %.0f", got, *c->expected);
    return false;
}
