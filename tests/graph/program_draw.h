/*
 * program_draw.h - draws programs: every kind of step over what is there, operands made where nothing fits, bodies drawn the same way, one level deeper.
 */
#ifndef TEST_PROGRAM_DRAW_H
#define TEST_PROGRAM_DRAW_H

#include "program.h"

typedef struct drawing {
    program *p;
    test_random *random;
    uint32_t depth;           /* of bodies */
    const mica_dtype *dtypes; /* that inputs and constants have; 6 of them */
} drawing;

enum { DRAWN_DEPTH = 2, NOTHING = UINT32_MAX };

static inline uint32_t below(drawing *d, uint64_t n)
{
    return (uint32_t)test_random_below(d->random, n);
}
static inline const program_shape *type_at(const drawing *d, uint32_t i)
{
    return &d->p->step[i].type;
}
/* Adds a step of one result; NOTHING where it is too large or there is no room. */
static inline uint32_t add_step(drawing *d, program_step step)
{
    if (d->p->count + 8 >= PROGRAM_STEPS || shape_count(&step.type) > PROGRAM_ELEMENTS)
        return NOTHING;
    d->p->step[d->p->count] = step;
    return d->p->count++;
}

static inline program_shape draw_shape(drawing *d, uint32_t least_rank)
{
    static const uint64_t sizes[] = {1, 1, 2, 3, 3, 4, 5, 7};
    program_shape s = {.dtype = d->dtypes[below(d, 6)],
                       .ndim = least_rank + below(d, PROGRAM_RANK + 1 - least_rank)};
    do
        for (uint32_t i = 0; i < s.ndim; i++)
            s.size[i] = sizes[below(d, 8)];
    while (shape_count(&s) > PROGRAM_ELEMENTS / 2);
    return s;
}

/* ---- choosing what is there ---- */

typedef bool suits(const program_shape *have, const program_shape *wanted);

static inline bool any_type(const program_shape *have, const program_shape *wanted)
{
    (void)have, (void)wanted;
    return true;
}
static inline bool same_type(const program_shape *have, const program_shape *wanted)
{
    return have->dtype == wanted->dtype && have->ndim == wanted->ndim &&
           memcmp(have->size, wanted->size, have->ndim * sizeof *have->size) == 0;
}
static inline bool is_number(const program_shape *have, const program_shape *wanted)
{
    (void)wanted;
    return have->dtype != MICA_DTYPE_BOOL;
}
static inline bool is_real(const program_shape *have, const program_shape *wanted)
{
    (void)wanted;
    return dtype_is_float(have->dtype);
}
static inline bool is_bool(const program_shape *have, const program_shape *wanted)
{
    (void)wanted;
    return have->dtype == MICA_DTYPE_BOOL;
}
static inline bool is_whole(const program_shape *have, const program_shape *wanted)
{
    (void)wanted;
    return have->dtype == MICA_DTYPE_I32;
}
static inline bool has_axes(const program_shape *have, const program_shape *wanted)
{
    (void)wanted;
    return have->ndim != 0;
}
static inline bool sums(const program_shape *have, const program_shape *wanted)
{
    return have->ndim != 0 && is_number(have, wanted);
}
static inline bool real_rows(const program_shape *have, const program_shape *wanted)
{
    return have->ndim != 0 && is_real(have, wanted);
}
/* What matmuls take here: f32 or f64 with rows and columns. */
static inline bool is_matrix(const program_shape *have, const program_shape *wanted)
{
    (void)wanted;
    return have->ndim >= 2 && (have->dtype == MICA_DTYPE_F32 || have->dtype == MICA_DTYPE_F64);
}
/* Repeats to the shape wanted. */
static inline bool repeats(const program_shape *have, const program_shape *wanted)
{
    if (have->dtype != wanted->dtype || have->ndim > wanted->ndim)
        return false;
    for (uint32_t i = 0; i < have->ndim; i++)
        if (have->size[i] != 1 && have->size[i] != wanted->size[i + wanted->ndim - have->ndim])
            return false;
    return true;
}

/* One of the steps that suit, later ones rather; NOTHING. */
static inline uint32_t choose(drawing *d, suits *suit, const program_shape *wanted)
{
    uint32_t found = NOTHING, seen = 0;
    for (uint32_t i = 0; i < d->p->count; i++)
        if (suit(type_at(d, i), wanted)) {
            seen += 1 + (i + 8 > d->p->count);
            if (below(d, seen) < 1 + (uint32_t)(i + 8 > d->p->count))
                found = i;
        }
    return found;
}

/* A value of just this type and shape. */
static inline uint32_t fitting(drawing *d, const program_shape *wanted)
{
    uint32_t at = below(d, 4) == 0 ? NOTHING : choose(d, same_type, wanted);
    if (at == NOTHING && below(d, 4) != 0 && (at = choose(d, repeats, wanted)) != NOTHING)
        at = add_step(d, (program_step){.kind = STEP_EXPAND, .type = *wanted, .in = {at}, .in_count = 1});
    if (at == NOTHING && shape_count(wanted) <= 64)
        at = add_step(
            d, (program_step){.kind = STEP_CONSTANT, .type = *wanted, .seed = test_random_next(d->random)});
    if (at == NOTHING) { /* too large for a constant in a text */
        const program_shape one = {.dtype = wanted->dtype};
        at = add_step(
            d, (program_step){.kind = STEP_CONSTANT, .type = one, .seed = test_random_next(d->random)});
        if (at != NOTHING)
            at = add_step(d, (program_step){.kind = STEP_EXPAND, .type = *wanted, .in = {at}, .in_count = 1});
    }
    return at;
}

/* ---- element by element ---- */

static inline bool join(program_shape *s, const program_shape *other)
{
    program_shape out = s->ndim >= other->ndim ? *s : *other;
    const program_shape *less = s->ndim >= other->ndim ? other : s;
    for (uint32_t i = 0; i < less->ndim; i++) {
        uint64_t *size = &out.size[i + out.ndim - less->ndim];
        if (*size != less->size[i] && *size != 1 && less->size[i] != 1)
            return false;
        *size = *size == 1 ? less->size[i] : *size;
    }
    out.dtype = s->dtype;
    *s = out;
    return shape_count(&out) <= PROGRAM_ELEMENTS;
}

static inline bool joins(const program_shape *have, const program_shape *wanted)
{
    program_shape s = *wanted;
    return have->dtype == wanted->dtype && join(&s, have);
}

static inline uint32_t draw_unary(drawing *d)
{
    static const uint32_t real[] = {MICA_SCALAR_NEG,      MICA_SCALAR_ABS,  MICA_SCALAR_RELU,
                                    MICA_SCALAR_SQUARE,   MICA_SCALAR_TANH, MICA_SCALAR_SIGMOID,
                                    MICA_SCALAR_SOFTSIGN, MICA_SCALAR_SIN,  MICA_SCALAR_FLOOR};
    const uint32_t x = choose(d, any_type, NULL);
    program_step step = {.kind = STEP_UNARY, .type = *type_at(d, x), .in = {x}, .in_count = 1};
    const mica_dtype dtype = step.type.dtype;
    step.code = dtype == MICA_DTYPE_BOOL ? (uint32_t)MICA_SCALAR_BIT_NOT
                : dtype == MICA_DTYPE_I32
                    ? real[below(d, 3)]
                    : real[below(d, dtype == MICA_DTYPE_F64 || dtype == MICA_DTYPE_F32 ? 9 : 7)];
    return add_step(d, step);
}

static inline uint32_t draw_binary(drawing *d)
{
    static const uint32_t numbers[] = {MICA_SCALAR_ADD,           MICA_SCALAR_SUB,  MICA_SCALAR_MUL,
                                       MICA_SCALAR_MAX,           MICA_SCALAR_MIN,  MICA_SCALAR_LESS,
                                       MICA_SCALAR_GREATER_EQUAL, MICA_SCALAR_EQUAL};
    static const uint32_t logic[] = {MICA_SCALAR_BIT_AND, MICA_SCALAR_BIT_OR, MICA_SCALAR_BIT_XOR};
    const uint32_t a = choose(d, any_type, NULL);
    program_step step = {.kind = STEP_BINARY, .type = *type_at(d, a), .in_count = 2};
    const uint32_t b = choose(d, joins, &step.type);
    const bool turned = below(d, 2) != 0;
    step.in[0] = turned ? b : a, step.in[1] = turned ? a : b;
    (void)join(&step.type, type_at(d, b));
    if (step.type.dtype == MICA_DTYPE_BOOL)
        step.code = logic[below(d, 3)];
    else
        step.code = numbers[below(d, 8)];
    if (step.type.dtype == MICA_DTYPE_I32 && below(d, 2) != 0)
        step.code = MICA_SCALAR_MIN; /* or numbers grow beyond those of i32 */
    if (step.code == MICA_SCALAR_LESS || step.code == MICA_SCALAR_GREATER_EQUAL ||
        step.code == MICA_SCALAR_EQUAL)
        step.type.dtype = MICA_DTYPE_BOOL;
    return add_step(d, step);
}

static inline uint32_t draw_select(drawing *d)
{
    const uint32_t a = choose(d, any_type, NULL);
    program_step step = {
        .kind = STEP_SELECT, .code = MICA_SCALAR_SELECT, .type = *type_at(d, a), .in_count = 3};
    const uint32_t b = choose(d, joins, &step.type);
    (void)join(&step.type, type_at(d, b));
    program_shape condition = step.type;
    condition.dtype = MICA_DTYPE_BOOL;
    const uint32_t c = fitting(d, &condition);
    step.in[0] = c, step.in[1] = a, step.in[2] = b;
    return c == NOTHING ? NOTHING : add_step(d, step);
}

static inline uint32_t draw_cast(drawing *d)
{
    const uint32_t x = choose(d, any_type, NULL);
    program_step step = {.kind = STEP_CAST, .type = *type_at(d, x), .in = {x}, .in_count = 1};
    step.type.dtype = d->dtypes[below(d, 6)];
    return step.type.dtype == type_at(d, x)->dtype ? NOTHING : add_step(d, step);
}

static inline uint32_t draw_source(drawing *d)
{
    program_step step = {
        .kind = STEP_CONSTANT, .type = draw_shape(d, 0), .seed = test_random_next(d->random)};
    if (step.type.ndim != 0 && below(d, 3) == 0) {
        step.kind = STEP_INDEX;
        step.axis = below(d, step.type.ndim);
        step.type.dtype = MICA_DTYPE_I32;
    }
    return shape_count(&step.type) > 64 ? NOTHING : add_step(d, step);
}

/* ---- views ---- */

static inline uint32_t draw_reshape(drawing *d)
{
    const uint32_t x = choose(d, any_type, NULL);
    program_step step = {.kind = STEP_RESHAPE, .type = *type_at(d, x), .in = {x}, .in_count = 1};
    uint64_t left = shape_count(&step.type);
    step.type.ndim = left == 1 ? below(d, 4) : 1 + below(d, PROGRAM_RANK);
    for (uint32_t i = 0; i + 1 < step.type.ndim; i++) {
        uint64_t size = 1 + below(d, left);
        while (left % size != 0)
            size--;
        step.type.size[i] = size;
        left /= size;
    }
    if (step.type.ndim != 0)
        step.type.size[step.type.ndim - 1] = left;
    return add_step(d, step);
}

static inline uint32_t draw_permute(drawing *d)
{
    const uint32_t x = choose(d, has_axes, NULL);
    if (x == NOTHING)
        return x;
    const program_shape *from = type_at(d, x);
    program_step step = {.kind = STEP_PERMUTE, .type = *from, .in = {x}, .in_count = 1};
    for (uint32_t i = 0; i < from->ndim; i++)
        step.order[i] = i;
    for (uint32_t i = from->ndim; i-- > 1;) {
        const uint32_t j = below(d, i + 1), kept = step.order[i];
        step.order[i] = step.order[j];
        step.order[j] = kept;
    }
    for (uint32_t i = 0; i < from->ndim; i++)
        step.type.size[i] = from->size[step.order[i]];
    return add_step(d, step);
}

static inline uint32_t draw_slice(drawing *d)
{
    const uint32_t x = choose(d, has_axes, NULL);
    if (x == NOTHING)
        return x;
    program_step step = {.kind = STEP_SLICE, .type = *type_at(d, x), .in = {x}, .in_count = 1};
    step.axis = below(d, step.type.ndim);
    const uint64_t n = step.type.size[step.axis];
    step.start = below(d, n);
    step.step = 1 + (int64_t)below(d, 3);
    const bool back = below(d, 3) == 0;
    const uint64_t most = (back ? step.start : n - 1 - step.start) / (uint64_t)step.step + 1;
    step.count = 1 + below(d, most);
    step.step = back ? -step.step : step.step;
    step.type.size[step.axis] = step.count;
    return add_step(d, step);
}

static inline uint32_t draw_expand(drawing *d)
{
    const uint32_t x = choose(d, any_type, NULL);
    program_step step = {.kind = STEP_EXPAND, .type = *type_at(d, x), .in = {x}, .in_count = 1};
    if (step.type.ndim < PROGRAM_RANK && below(d, 2) != 0) {
        memmove(step.type.size + 1, step.type.size, 3 * sizeof *step.type.size);
        step.type.size[0] = 1;
        step.type.ndim++;
    }
    for (uint32_t i = 0; i < step.type.ndim; i++)
        if (step.type.size[i] == 1)
            step.type.size[i] = 1 + below(d, 4);
    return add_step(d, step);
}

static inline bool beside(const program_shape *have, const program_shape *wanted)
{
    return have->ndim == wanted->ndim && have->dtype == wanted->dtype;
}

static inline uint32_t draw_concat(drawing *d)
{
    const uint32_t x = choose(d, has_axes, NULL);
    if (x == NOTHING)
        return x;
    program_step step = {.kind = STEP_CONCAT, .type = *type_at(d, x), .in = {x}, .in_count = 1 + below(d, 3)};
    step.axis = below(d, step.type.ndim);
    for (uint32_t k = 1; k < step.in_count; k++) {
        program_shape part = *type_at(d, x);
        part.size[step.axis] = 1 + below(d, 4);
        step.in[k] = below(d, 3) == 0 ? x : fitting(d, &part);
        if (step.in[k] == NOTHING)
            return NOTHING;
        step.type.size[step.axis] += type_at(d, step.in[k])->size[step.axis];
    }
    return add_step(d, step);
}

static inline uint32_t draw_pad(drawing *d)
{
    const uint32_t x = choose(d, has_axes, NULL);
    if (x == NOTHING)
        return x;
    program_step step = {
        .kind = STEP_PAD, .type = *type_at(d, x), .in = {x}, .in_count = 1, .seed = below(d, 2)};
    for (uint32_t i = 0; i < step.type.ndim; i++) {
        step.low[i] = (int64_t)below(d, 3) - (step.type.size[i] > 2);
        step.high[i] = (int64_t)below(d, 2);
        step.type.size[i] += (uint64_t)(step.low[i] + step.high[i]);
    }
    return add_step(d, step);
}

static inline uint32_t draw_stop(drawing *d)
{
    const uint32_t x = choose(d, any_type, NULL);
    return add_step(d, (program_step){.kind = STEP_STOP, .type = *type_at(d, x), .in = {x}, .in_count = 1});
}

/* ---- sums, rows, places ---- */

static inline uint32_t draw_reduce(drawing *d)
{
    static const uint32_t kinds[] = {MICA_REDUCE_SUM, MICA_REDUCE_MAX, MICA_REDUCE_MIN, MICA_REDUCE_MEAN};
    const uint32_t x = choose(d, has_axes, NULL);
    if (x == NOTHING)
        return x;
    const program_shape *from = type_at(d, x);
    program_step step = {.kind = STEP_REDUCE, .in = {x}, .in_count = 1, .keep = below(d, 2)};
    step.axes = 1 + below(d, (1u << from->ndim) - 1);
    step.code = from->dtype == MICA_DTYPE_BOOL  ? (uint32_t)MICA_REDUCE_ANY + below(d, 2)
                : from->dtype == MICA_DTYPE_I32 ? kinds[below(d, 3)]
                                                : kinds[below(d, 4)];
    step.type.dtype = from->dtype;
    for (uint32_t i = 0; i < from->ndim; i++)
        if ((step.axes >> i & 1) == 0)
            step.type.size[step.type.ndim++] = from->size[i];
        else if (step.keep)
            step.type.size[step.type.ndim++] = 1;
    return add_step(d, step);
}

static inline uint32_t draw_rows(drawing *d)
{
    static const step_kind kinds[] = {STEP_CUMSUM, STEP_SORT, STEP_SOFTMAX};
    program_step step = {.kind = kinds[below(d, 3)], .in_count = 1};
    const uint32_t x = choose(d, step.kind == STEP_SOFTMAX ? real_rows : sums, NULL);
    if (x == NOTHING)
        return x;
    step.in[0] = x;
    step.type = *type_at(d, x);
    return add_step(d, step);
}

/* x along `axis` at n ids; or n updates of x there. */
static inline uint32_t draw_places(drawing *d)
{
    const uint32_t x = choose(d, has_axes, NULL);
    if (x == NOTHING)
        return x;
    program_step step = {.kind = STEP_GATHER, .type = *type_at(d, x), .in = {x}, .in_count = 2};
    step.axis = below(d, step.type.ndim);
    program_shape ids = {.dtype = MICA_DTYPE_I32, .ndim = 1, .size = {1 + below(d, 4)}}, updates = step.type;
    step.in[1] = fitting(d, &ids);
    updates.size[step.axis] = ids.size[0];
    if (below(d, 2) != 0) {
        step.kind = STEP_SCATTER;
        const bool adds = is_real(&updates, NULL) || updates.dtype == MICA_DTYPE_I32;
        step.code = adds && below(d, 2) != 0 ? MICA_SCATTER_ADD : MICA_SCATTER_SET;
        step.in[2] = step.in[1] == NOTHING ? NOTHING : fitting(d, &updates);
        step.in_count = 3;
    } else {
        step.type = updates;
    }
    return step.in[1] == NOTHING || step.in[2] == NOTHING ? NOTHING : add_step(d, step);
}

static inline uint32_t draw_matmul(drawing *d)
{
    const uint32_t x = choose(d, is_matrix, NULL);
    if (x == NOTHING)
        return x;
    program_step step = {.kind = STEP_MATMUL, .type = *type_at(d, x), .in = {x}, .in_count = 2};
    program_shape b = step.type;
    const uint64_t n = 1 + below(d, 5), k = b.size[b.ndim - 1];
    if (below(d, 2) != 0)
        b.ndim = 2;
    b.size[b.ndim - 2] = k;
    b.size[b.ndim - 1] = n;
    step.in[1] = fitting(d, &b);
    step.type.size[step.type.ndim - 1] = n;
    return step.in[1] == NOTHING ? NOTHING : add_step(d, step);
}

/* ---- bodies ---- */

static inline void draw_steps(drawing *d, uint32_t count);

/* A body over inputs of such types; its outputs have the types in `wanted`, or (count 0) are what it made. */
static inline program *draw_body(drawing *d, const program_shape *inputs, uint32_t input_count,
                                 const program_shape *wanted, uint32_t wanted_count)
{
    program *body = calloc(1, sizeof *body);
    drawing inner = {body, d->random, d->depth + 1, d->dtypes};
    assert_non_null(body);
    body->inputs = body->count = input_count;
    for (uint32_t i = 0; i < input_count; i++)
        body->step[i] = (program_step){.kind = STEP_INPUT, .type = inputs[i]};
    draw_steps(&inner, 1 + below(d, 7));
    body->output_count = wanted_count != 0 ? wanted_count : 1 + below(d, 3);
    for (uint32_t i = 0; i < body->output_count; i++) {
        body->output[i] = wanted_count != 0 ? fitting(&inner, &wanted[i]) : choose(&inner, any_type, NULL);
        if (body->output[i] == NOTHING) { /* no room: an input has to do, and another type fails the draw */
            free(body);
            return NULL;
        }
    }
    return body;
}

static inline void program_free(program *p)
{
    for (uint32_t i = 0; p != NULL && i < p->count; i++) {
        program_free(p->step[i].body[0]);
        program_free(p->step[i].body[1]);
    }
    free(p);
}

/* The step, and a part for each result behind the first. */
static inline uint32_t add_parts(drawing *d, program_step step, const program_shape *types, uint32_t count)
{
    step.type = types[0];
    step.parts = count;
    uint32_t first = NOTHING;
    bool fits = d->p->count + count + 8 < PROGRAM_STEPS;
    for (uint32_t i = 0; i < count; i++)
        fits = fits && shape_count(&types[i]) <= PROGRAM_ELEMENTS;
    if (fits)
        first = add_step(d, step);
    if (first == NOTHING) {
        program_free(step.body[0]);
        program_free(step.body[1]);
        return NOTHING;
    }
    for (uint32_t i = 1; i < count; i++)
        (void)add_step(
            d, (program_step){.kind = STEP_PART, .type = types[i], .in = {first}, .in_count = 1, .code = i});
    return first;
}

static inline uint32_t some_inputs(drawing *d, program_step *step, program_shape *types, uint32_t from)
{
    const uint32_t count = 1 + below(d, 3);
    for (uint32_t i = 0; i < count; i++) {
        step->in[step->in_count] = choose(d, any_type, NULL);
        types[from + i] = *type_at(d, step->in[step->in_count++]);
    }
    return count;
}

static inline void output_types(const program *body, program_shape *out)
{
    for (uint32_t i = 0; i < body->output_count; i++)
        out[i] = body->step[body->output[i]].type;
}

static inline uint32_t draw_choice(drawing *d)
{
    program_step step = {.kind = below(d, 3) == 0 ? STEP_CALL : STEP_IF};
    program_shape types[PROGRAM_INPUTS], out[PROGRAM_INPUTS];
    if (step.kind == STEP_IF) {
        step.in[0] = fitting(d, &(program_shape){.dtype = MICA_DTYPE_BOOL});
        step.in_count = 1;
        if (step.in[0] == NOTHING)
            return NOTHING;
    } else {
        step.code = below(d, 2) != 0 ? MICA_CALL_CHECKPOINT : 0;
    }
    const uint32_t count = some_inputs(d, &step, types, 0);
    step.body[0] = draw_body(d, types, count, NULL, 0);
    if (step.body[0] == NULL)
        return NOTHING;
    output_types(step.body[0], out);
    if (step.kind == STEP_IF &&
        (step.body[1] = draw_body(d, types, count, out, step.body[0]->output_count)) == NULL) {
        program_free(step.body[0]);
        return NOTHING;
    }
    return add_parts(d, step, out, step.body[0]->output_count);
}

/* The counter goes up by one; others are what the body makes of them. */
static inline uint32_t draw_while(drawing *d)
{
    program_step step = {.kind = STEP_WHILE, .count = 1 + below(d, 4), .in_count = 1, .start = below(d, 6)};
    program_shape types[PROGRAM_INPUTS] = {{.dtype = MICA_DTYPE_I32}};
    step.in[0] = add_step(d, (program_step){.kind = STEP_CONSTANT, .type = types[0], .seed = 11});
    if (step.in[0] == NOTHING)
        return NOTHING;
    const uint32_t others = some_inputs(d, &step, types, 1);
    step.carried = 1 + below(d, others + 1);
    program *body = step.body[0] = draw_body(d, types, 1 + others, types, step.carried);
    if (body == NULL)
        return NOTHING;
    drawing inner = {body, d->random, d->depth + 1, d->dtypes};
    const uint32_t one = body->count;
    body->step[body->count++] = (program_step){.kind = STEP_INDEX, .type = {MICA_DTYPE_I32, 1, {2}}};
    body->step[body->count++] = (program_step){.kind = STEP_REDUCE,
                                               .type = types[0],
                                               .in = {one},
                                               .in_count = 1,
                                               .axes = 1,
                                               .code = MICA_REDUCE_MAX};
    body->output[0] = body->count;
    body->step[body->count++] = (program_step){
        .kind = STEP_BINARY, .type = types[0], .in = {0, one + 1}, .in_count = 2, .code = MICA_SCALAR_ADD};
    (void)inner;
    return add_parts(d, step, types, step.carried);
}

static inline uint32_t draw_scan(drawing *d)
{
    program_step step = {.kind = STEP_SCAN, .keep = below(d, 2), .count = 1 + below(d, 4)};
    program_shape types[PROGRAM_INPUTS], wanted[PROGRAM_INPUTS];
    const uint32_t x = below(d, 4) == 0 ? NOTHING : choose(d, has_axes, NULL);
    step.carried = some_inputs(d, &step, types, 0);
    uint32_t count = step.carried;
    memcpy(wanted, types, count * sizeof *types);
    if (x != NOTHING) {
        program_shape slice = *type_at(d, x);
        step.count = slice.size[0];
        step.scanned = 1;
        memmove(slice.size, slice.size + 1, 3 * sizeof *slice.size);
        slice.ndim--;
        step.in[step.in_count++] = x;
        types[count++] = slice;
        wanted[step.carried] = slice;
    }
    count += some_inputs(d, &step, types, count);
    step.parts = step.carried + step.scanned;
    step.body[0] = draw_body(d, types, count, wanted, step.parts);
    if (step.body[0] == NULL || step.count > 8) {
        program_free(step.body[0]);
        return NOTHING;
    }
    if (step.scanned != 0) { /* stacked */
        memmove(wanted[step.carried].size + 1, wanted[step.carried].size, 3 * sizeof(uint64_t));
        wanted[step.carried].size[0] = step.count;
        wanted[step.carried].ndim++;
    }
    return add_parts(d, step, wanted, step.parts);
}

/* ---- all of it ---- */

static inline void draw_steps(drawing *d, uint32_t count)
{
    static uint32_t (*const draws[])(drawing *) = {
        draw_unary,  draw_unary,  draw_binary,  draw_binary,  draw_binary, draw_select,
        draw_cast,   draw_source, draw_reshape, draw_permute, draw_slice,  draw_expand,
        draw_concat, draw_pad,    draw_stop,    draw_reduce,  draw_rows,   draw_places,
        draw_matmul, draw_choice, draw_while,   draw_scan};
    const uint32_t kinds = sizeof draws / sizeof draws[0];
    for (uint32_t i = 0; i < count; i++)
        (void)draws[below(d, d->depth < DRAWN_DEPTH ? kinds : kinds - 3)](d);
}

enum { DRAWN_F32, DRAWN_F64, DRAWN_MIXED, DRAWN_KINDS };

/* A program over inputs of such types; owned by the caller: program_free. */
static inline program *program_draw(test_random *random, uint32_t kind)
{
    static const mica_dtype types[DRAWN_KINDS][6] = {
        {MICA_DTYPE_F32, MICA_DTYPE_F32, MICA_DTYPE_F32, MICA_DTYPE_F32, MICA_DTYPE_I32, MICA_DTYPE_BOOL},
        {MICA_DTYPE_F64, MICA_DTYPE_F64, MICA_DTYPE_F64, MICA_DTYPE_F64, MICA_DTYPE_I32, MICA_DTYPE_BOOL},
        {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_F64, MICA_DTYPE_I32, MICA_DTYPE_BOOL}};
    program *p = calloc(1, sizeof *p);
    assert_non_null(p);
    drawing d = {.p = p, .random = random, .dtypes = types[kind]};
    p->inputs = 2 + below(&d, 4);
    for (uint32_t i = 0; i < p->inputs; i++)
        (void)add_step(&d, (program_step){.kind = STEP_INPUT, .type = draw_shape(&d, 0)});
    draw_steps(&d, 4 + below(&d, 28));
    p->output_count = 1 + below(&d, PROGRAM_OUTPUTS);
    for (uint32_t i = 0; i < p->output_count; i++)
        p->output[i] = i == 0 ? p->count - 1 : choose(&d, any_type, NULL);
    return p;
}

#endif
