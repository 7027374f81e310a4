/*
 * reduce.c - reductions over any axes. Terms come in blocks: some of one output, gathered from wherever they lie, or some rows of many columns. What a
 * block says is joined to what is known so far in 64 bits, in the order of the terms.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/reduce_blocks.h"
#include "backend/cpu/kernels/reduce_wide.h"

enum { X = MICA__REDUCE_X, Y = MICA__REDUCE_Y, PARTS = MICA__REDUCE_SLOTS };

#define DOUBLES_BLOCK 128u /* terms of an output that are added up apart: roundings of few terms */

typedef enum value_class { FLOATS, DOUBLES, WHOLES } value_class;

static value_class class_of(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F64                                                          ? DOUBLES
           : dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16 ? FLOATS
                                                                                            : WHOLES;
}

/* ---- places ---- */

/* Where the next term of an output lies behind its first. */
typedef struct terms {
    const mica__reduction *shape;
    uint64_t index[MICA_MAX_DIMS], offset;
} terms;

static void terms_begin(terms *t, const mica__reduction *shape, uint64_t at)
{
    t->shape = shape;
    t->offset = 0;
    for (uint32_t d = shape->reduced; d-- > 0;) {
        t->index[d] = at % shape->reduced_shape[d];
        at /= shape->reduced_shape[d];
        t->offset += t->index[d] * shape->reduced_stride[d];
    }
}

/* How many lie at equal distances from here on. */
static uint64_t terms_run(const terms *t)
{
    const uint32_t last = t->shape->reduced - 1;
    return t->shape->reduced_shape[last] - t->index[last];
}

/* Over `count` of a run. */
static void terms_skip(terms *t, uint64_t count)
{
    const mica__reduction *shape = t->shape;
    uint32_t d = shape->reduced - 1;
    t->index[d] += count;
    t->offset += count * shape->reduced_stride[d];
    for (; d > 0 && t->index[d] == shape->reduced_shape[d]; d--) {
        t->index[d] = 0;
        t->index[d - 1]++;
        t->offset += shape->reduced_stride[d - 1] - shape->reduced_shape[d] * shape->reduced_stride[d];
    }
}

/* One tile: its outputs lie at the last kept dimension from `first` on. */
typedef struct outputs {
    const unsigned char *x;
    unsigned char *y;
    uint64_t count;
} outputs;

static outputs outputs_of(const mica__cpu_args *args, const mica__cpu_reduce *p, uint64_t number)
{
    const mica__reduction *shape = &p->shape;
    const uint32_t last = shape->kept - 1;
    const uint64_t first = number % p->tiles * p->tile, left = shape->shape[last] - first;
    outputs t = {args->view[X].data, args->view[Y].data, left < p->tile ? left : p->tile};
    uint64_t x_offset = first * shape->x_stride[last], y_offset = first * shape->y_stride[last];
    number /= p->tiles;
    for (uint32_t d = last; d-- > 0;) {
        x_offset += number % shape->shape[d] * shape->x_stride[d];
        y_offset += number % shape->shape[d] * shape->y_stride[d];
        number /= shape->shape[d];
    }
    if (t.x != NULL) /* without terms there may be nothing */
        t.x += x_offset;
    t.y += y_offset;
    return t;
}

/* ---- f32, f16, bf16 ---- */

/* The next n terms of one output. */
static const float *gather_floats(terms *t, const unsigned char *x, uint16_t dtype, uint64_t n, float *to)
{
    const uint64_t step = t->shape->reduced_stride[t->shape->reduced - 1];
    const float *whole = NULL;
    for (uint64_t i = 0; i < n;) {
        const uint64_t run = terms_run(t), count = run < n - i ? run : n - i;
        whole = row_f32_strided(x + t->offset, dtype, step, count, to + i);
        if (count < n && whole != to + i)
            memcpy(to + i, whole, count * sizeof *to);
        terms_skip(t, count);
        whole = count == n ? whole : to;
        i += count;
    }
    return whole;
}

/* Squares or magnitudes in `to`, which may be `x`; the elements themselves where the kind is of those. */
static const float *changed(uint32_t kind, const float *x, uint64_t n, float *to)
{
    if (!reduce_changes(kind))
        return x;
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        const vf v = vf_load_n(x + i, left);
        vf_store_n(to + i, kind == MICA_REDUCE_MAX_ABS ? vf_abs(v) : vf_mul(v, v), left);
    }
    return to;
}

static void floats_of_one(const mica__cpu_reduce *p, const outputs *at, uint16_t dtype, uint64_t begin,
                          uint64_t end, double *a, double *b, void *room)
{
    const uint32_t kind = reduce_kind(p->reduce.kind);
    double more_a = 0, more_b = 0;
    terms t;
    terms_begin(&t, &p->shape, begin);
    for (uint64_t i = begin; i < end; i += MICA__CPU_REDUCE_BLOCK) {
        const uint64_t n = end - i < MICA__CPU_REDUCE_BLOCK ? end - i : MICA__CPU_REDUCE_BLOCK;
        row_block(kind, changed(p->reduce.kind, gather_floats(&t, at->x, dtype, n, room), n, room), n,
                  &more_a, &more_b);
        real_join(kind, 1, a, b, i - begin, &more_a, &more_b, n);
    }
}

static void floats_of_columns(const mica__cpu_reduce *p, const outputs *at, uint16_t dtype, uint64_t begin,
                              uint64_t end, double *a, double *b, void *room)
{
    const uint32_t kind = reduce_kind(p->reduce.kind);
    const uint64_t step = p->shape.x_stride[p->shape.kept - 1];
    const float *row[MICA__CPU_REDUCE_ROWS];
    double *more_a = b + p->tile, *more_b = more_a + p->tile;
    terms t;
    terms_begin(&t, &p->shape, begin);
    for (uint64_t i = begin; i < end; i += MICA__CPU_REDUCE_ROWS) {
        const uint64_t rows = end - i < MICA__CPU_REDUCE_ROWS ? end - i : MICA__CPU_REDUCE_ROWS;
        for (uint64_t r = 0; r < rows; r++, terms_skip(&t, 1)) {
            float *own = (float *)room + r * p->tile;
            row[r] = row_f32_strided(at->x + t.offset, dtype, step, at->count, own);
            row[r] = changed(p->reduce.kind, row[r], at->count, own);
        }
        columns_block(kind, row, rows, at->count, more_a, more_b);
        real_join(kind, at->count, a, b, i - begin, more_a, more_b, rows);
    }
}

/* ---- f64 and integers: a term at a time ---- */

/* VAR is that of the distances to the first term, which are small where the mean is far above the spread. */
static void doubles_of(const mica__cpu_reduce *p, const outputs *at, uint64_t begin, uint64_t end, double *a,
                       double *b, double *room)
{
    const uint32_t kind = reduce_kind(p->reduce.kind);
    const uint64_t step = p->shape.x_stride[p->shape.kept - 1], width = p->tile;
    double *more_a = b + width, *more_b = more_a + width, *term = room, *second = room + width,
           *shift = room + 2 * width;
    terms t;
    terms_begin(&t, &p->shape, begin);
    for (uint64_t c = 0; c < at->count; c++) { /* a term is its own mean, and its own greatest */
        second[c] = kind == MICA_REDUCE_LOGSUMEXP ? 1 : 0;
        memcpy(&shift[c], at->x + c * step, sizeof *shift);
        shift[c] = kind == MICA_REDUCE_VAR ? shift[c] : 0;
    }
    for (uint64_t i = begin; i < end; i += DOUBLES_BLOCK) {
        const uint64_t rows = end - i < DOUBLES_BLOCK ? end - i : DOUBLES_BLOCK;
        real_begin(kind, at->count, more_a, more_b);
        for (uint64_t r = 0; r < rows; r++, terms_skip(&t, 1)) {
            for (uint64_t c = 0; c < at->count; c++) {
                memcpy(&term[c], at->x + t.offset + c * step, sizeof *term);
                term[c] -= shift[c];
                if (reduce_changes(p->reduce.kind))
                    term[c] = p->reduce.kind == MICA_REDUCE_MAX_ABS ? fabs(term[c]) : term[c] * term[c];
            }
            real_join(kind, at->count, more_a, more_b, r, term, second, 1);
        }
        real_join(kind, at->count, a, b, i - begin, more_a, more_b, rows);
    }
}

static void wholes_of(const mica__cpu_reduce *p, const outputs *at, uint16_t dtype, uint64_t begin,
                      uint64_t end, int64_t *a, int64_t *room)
{
    const uint32_t kind = reduce_kind(p->reduce.kind);
    const uint64_t across = p->shape.x_stride[p->shape.kept - 1];
    const uint64_t along = p->shape.reduced_stride[p->shape.reduced - 1];
    terms t;
    terms_begin(&t, &p->shape, begin);
    for (uint64_t i = begin; i < end;) {
        uint64_t n = 1;
        const unsigned char *from = at->x + t.offset;
        if (p->columns != 0) {
            for (uint64_t c = 0; c < at->count; c++)
                room[c] = whole_load(from + c * across, dtype);
            whole_join(kind, at->count, a, room);
        } else {
            n = terms_run(&t) < end - i ? terms_run(&t) : end - i;
            n = n < MICA__CPU_REDUCE_BLOCK ? n : MICA__CPU_REDUCE_BLOCK;
            for (uint64_t k = 0; k < n; k++)
                room[k] = whole_load(from + k * along, dtype);
            *a = whole_over(kind, room, n, *a);
        }
        terms_skip(&t, n);
        i += n;
    }
}

/* ---- both ---- */

/* What is known of terms [begin, end) of a tile: a and b, with the work memory behind them. */
static void reduce_terms(const mica__cpu_args *args, const outputs *at, uint64_t begin, uint64_t end,
                         double *a, double *b)
{
    const mica__cpu_reduce *p = args->params;
    const uint16_t dtype = args->view[X].dtype;
    double *room = a + 4 * (uint64_t)p->tile;
    switch (class_of(dtype)) {
    case FLOATS:
        (p->columns != 0 ? floats_of_columns : floats_of_one)(p, at, dtype, begin, end, a, b, room);
        break;
    case DOUBLES: doubles_of(p, at, begin, end, a, b, room); break;
    case WHOLES: wholes_of(p, at, dtype, begin, end, (int64_t *)(void *)a, (int64_t *)(void *)room); break;
    }
}

static void begin_terms(const mica__cpu_args *args, uint64_t count, double *a, double *b)
{
    const mica__cpu_reduce *p = args->params;
    const uint32_t kind = reduce_kind(p->reduce.kind);
    if (class_of(args->view[X].dtype) == WHOLES)
        whole_begin(kind, args->view[X].dtype, count, (int64_t *)(void *)a);
    else
        real_begin(kind, count, a, b);
    for (uint64_t i = 0; i < count && p->reduce.kind == MICA_REDUCE_MAX_ABS; i++)
        a[i] = 0;
}

/* The results go to y; a is overwritten. */
static void store(const mica__cpu_args *args, const outputs *at, double *a, const double *b)
{
    const mica__cpu_reduce *p = args->params;
    const uint16_t dtype = args->view[Y].dtype;
    const uint64_t step = p->shape.y_stride[p->shape.kept - 1];
    const value_class values = class_of(dtype);
    const int64_t *whole = (const int64_t *)(const void *)a;
    float *rounded = (float *)(void *)a; /* in place, from the first on */
    for (uint64_t c = 0; c < at->count; c++) {
        if (values == WHOLES) {
            whole_store(at->y + c * step, dtype, whole[c]);
            continue;
        }
        const double value = real_end(&p->reduce, p->shape.terms, a[c], b[c]);
        const float narrow = (float)value;
        if (values == DOUBLES)
            memcpy(at->y + c * step, &value, sizeof value);
        else
            memcpy(rounded + c, &narrow, sizeof narrow);
    }
    if (values == FLOATS)
        row_store_strided(at->y, dtype, step, rounded, at->count);
}

void MICA__ISA(reduce)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_reduce *p = args->params;
    const uint64_t end = mica__cpu_rows_end(&p->range, last);
    double *a = args->local, *b = a + p->tile;
    for (uint64_t task = mica__cpu_rows_begin(&p->range, first); task < end; task++) {
        const outputs at = outputs_of(args, p, task / p->parts);
        const uint64_t from = task % p->parts * p->part, left = p->shape.terms - from;
        begin_terms(args, at.count, a, b);
        if (left != 0)
            reduce_terms(args, &at, from, from + (left < p->part ? left : p->part), a, b);
        if (p->parts == 1) {
            store(args, &at, a, b);
            continue;
        }
        memcpy(args->view[PARTS].data + task * 2 * p->tile * sizeof *a, a, 2 * p->tile * sizeof *a);
    }
}

void MICA__ISA(reduce_join)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_reduce *p = args->params;
    const uint32_t kind = reduce_kind(p->reduce.kind);
    double *a = args->local, *b = a + p->tile;
    for (uint64_t number = first; number < last; number++) {
        const outputs at = outputs_of(args, p, number);
        begin_terms(args, at.count, a, b);
        for (uint64_t part = 0; part < p->parts; part++) {
            const uint64_t begin = part * p->part, left = p->shape.terms - begin;
            const double *more = (const double *)(const void *)args->view[PARTS].data +
                                 (number * p->parts + part) * 2 * p->tile;
            if (class_of(args->view[X].dtype) == WHOLES)
                whole_join(kind, at.count, (int64_t *)(void *)a, (const int64_t *)(const void *)more);
            else
                real_join(kind, at.count, a, b, begin, more, more + p->tile, left < p->part ? left : p->part);
        }
        store(args, &at, a, b);
    }
}
