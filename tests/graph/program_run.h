/* program_run.h - a whole program in double: steps in order, choices and loops by their bodies. */
#ifndef TEST_PROGRAM_RUN_H
#define TEST_PROGRAM_RUN_H

#include "program.h"

/* A step being computed: its operands and theirs. */
typedef struct at_step {
    const program_step *step;
    const program_shape *from[PROGRAM_INPUTS];
    program_value in[PROGRAM_INPUTS], *out;
} at_step;

/* ---- element by element ---- */

static inline void put_unary(const at_step *s, uint64_t i)
{
    const program_shape *t = &s->step->type;
    const double a = s->in[0].x[i], e = s->in[0].error[i];
    double y = 0, slope = 1, own = 0;
    switch (s->step->code) {
    case MICA_SCALAR_NEG: y = -a; break;
    case MICA_SCALAR_ABS: y = fabs(a); break;
    case MICA_SCALAR_RELU: y = a > 0 ? a : 0; break;
    case MICA_SCALAR_SQUARE: y = a * a, slope = 2 * fabs(a) + e, own = 1; break;
    case MICA_SCALAR_TANH: y = tanh(a), own = 8; break;
    case MICA_SCALAR_SIGMOID: y = 1 / (1 + exp(-a)), own = 8 + 2 * fabs(a); break;
    case MICA_SCALAR_SIN: y = sin(a), own = 8 + (y == 0 ? 0 : fabs(a) / fmax(fabs(y), 1e-3)); break;
    case MICA_SCALAR_SOFTSIGN: y = a / (1 + fabs(a)), own = 4; break;
    case MICA_SCALAR_BIT_NOT: y = a == 0, slope = e; break;
    default:
        y = floor(a); /* FLOOR */
        slope = floor(a - e) == floor(a + e) ? 0 : INFINITY;
        break;
    }
    put_value(t, s->out, i, y, e == 0 ? 0 : e * slope, own);
}

static inline double certain(bool answer, double error, double *out_error)
{
    *out_error = answer ? 0 : error == 0 ? 0 : INFINITY;
    return 0;
}

static inline void put_binary(const at_step *s, uint64_t i, uint64_t ia, uint64_t ib)
{
    const double a = s->in[0].x[ia], b = s->in[1].x[ib], ea = s->in[0].error[ia], eb = s->in[1].error[ib];
    double y = 0, e = ea + eb, own = 0;
    const bool apart = fabs(a - b) > e;
    switch (s->step->code) {
    case MICA_SCALAR_ADD: y = a + b, own = 1; break;
    case MICA_SCALAR_SUB: y = a - b, own = 1; break;
    case MICA_SCALAR_MUL: y = a * b, e = fabs(a) * eb + fabs(b) * ea + ea * eb, own = 1; break;
    case MICA_SCALAR_MAX: y = fmax(a, b); break;
    case MICA_SCALAR_MIN: y = fmin(a, b); break;
    case MICA_SCALAR_MOD: y = a - b * floor(a / b), e = e == 0 ? 0 : INFINITY; break;
    case MICA_SCALAR_LESS: y = a < b, (void)certain(apart, e, &e); break;
    case MICA_SCALAR_GREATER_EQUAL: y = a >= b, (void)certain(apart, e, &e); break;
    case MICA_SCALAR_EQUAL: y = a == b, (void)certain(apart, e, &e); break;
    case MICA_SCALAR_BIT_AND: y = a != 0 && b != 0; break;
    case MICA_SCALAR_BIT_OR: y = a != 0 || b != 0; break;
    default: y = (a != 0) != (b != 0); break; /* BIT_XOR */
    }
    put_value(&s->step->type, s->out, i, y, e, own);
}

static inline void put_select(const at_step *s, uint64_t i, uint64_t ic, uint64_t ia, uint64_t ib)
{
    const program_value *from = s->in[0].x[ic] != 0 ? &s->in[1] : &s->in[2];
    const uint64_t j = s->in[0].x[ic] != 0 ? ia : ib;
    put_value(&s->step->type, s->out, i, from->x[j], s->in[0].error[ic] == 0 ? from->error[j] : INFINITY, 0);
}

static inline void put_cast(const at_step *s, uint64_t i)
{
    const program_shape *t = &s->step->type;
    double x = s->in[0].x[i], e = s->in[0].error[i];
    if (t->dtype == MICA_DTYPE_I32) {
        e = trunc(x - e) == trunc(x + e) ? 0 : INFINITY;
        x = trunc(x);
    } else if (t->dtype == MICA_DTYPE_BOOL) {
        e = e == 0 || fabs(x) > e ? 0 : INFINITY;
        x = x != 0;
    }
    put_value(t, s->out, i, x, e, 0);
}

/* ---- where elements come from: the element of operand 0 for one of the result ---- */

static inline uint64_t source_of(const at_step *s, uint64_t i, bool *inside)
{
    const program_step *step = s->step;
    const program_shape *from = s->from[0];
    uint64_t place[PROGRAM_RANK] = {0}, at[PROGRAM_RANK] = {0};
    place_of(&step->type, i, place);
    *inside = true;
    for (uint32_t d = 0; d < from->ndim; d++)
        at[d] = place[d];
    if (step->kind == STEP_RESHAPE || step->kind == STEP_STOP)
        return i;
    if (step->kind == STEP_EXPAND)
        return element_at(from, place, step->type.ndim);
    if (step->kind == STEP_PERMUTE)
        for (uint32_t d = 0; d < from->ndim; d++)
            at[step->order[d]] = place[d];
    if (step->kind == STEP_SLICE)
        at[step->axis] = (uint64_t)((int64_t)step->start + (int64_t)place[step->axis] * step->step);
    for (uint32_t d = 0; d < from->ndim && step->kind == STEP_PAD; d++) {
        at[d] = place[d] - (uint64_t)step->low[d];
        *inside = *inside && at[d] < from->size[d];
    }
    return *inside ? element_at(from, at, from->ndim) : 0;
}

static inline void compute_view(const at_step *s)
{
    for (uint64_t i = 0; i < shape_count(&s->step->type); i++) {
        bool inside;
        const uint64_t j = source_of(s, i, &inside);
        s->out->x[i] = inside ? s->in[0].x[j] : (double)(int32_t)s->step->seed; /* of a pad */
        s->out->error[i] = inside ? s->in[0].error[j] : 0;
    }
}

static inline void compute_concat(const at_step *s)
{
    const program_step *step = s->step;
    for (uint64_t i = 0; i < shape_count(&step->type); i++) {
        uint64_t place[PROGRAM_RANK];
        uint32_t part = 0;
        place_of(&step->type, i, place);
        while (place[step->axis] >= s->from[part]->size[step->axis])
            place[step->axis] -= s->from[part++]->size[step->axis];
        const uint64_t j = element_at(s->from[part], place, step->type.ndim);
        s->out->x[i] = s->in[part].x[j];
        s->out->error[i] = s->in[part].error[j];
    }
}

/* The number that is id i, modulo n; -1: not certain. */
static inline int64_t id_of(const program_value *ids, uint64_t i, uint64_t n)
{
    const double x = ids->x[i], m = (double)n;
    return ids->error[i] == 0 ? (int64_t)(x - m * floor(x / m)) : -1;
}

static inline void compute_gather(const at_step *s)
{
    const program_step *step = s->step;
    const program_shape *from = s->from[0];
    for (uint64_t i = 0; i < shape_count(&step->type); i++) { /* ids [n] */
        uint64_t place[PROGRAM_RANK];
        place_of(&step->type, i, place);
        const int64_t id = id_of(&s->in[1], place[step->axis], from->size[step->axis]);
        place[step->axis] = id < 0 ? 0 : (uint64_t)id;
        const uint64_t j = element_at(from, place, from->ndim);
        s->out->x[i] = s->in[0].x[j];
        s->out->error[i] = id < 0 ? INFINITY : s->in[0].error[j];
    }
}

/* in: x, ids [n], updates. */
static inline void compute_scatter(const at_step *s)
{
    const program_step *step = s->step;
    const program_shape *t = &step->type, *updates = s->from[2];
    bool lost = false;
    for (uint64_t i = 0; i < shape_count(t); i++) {
        s->out->x[i] = s->in[0].x[i];
        s->out->error[i] = s->in[0].error[i];
    }
    for (uint64_t i = 0; i < shape_count(updates); i++) {
        uint64_t place[PROGRAM_RANK];
        place_of(updates, i, place);
        const int64_t id = id_of(&s->in[1], place[step->axis], t->size[step->axis]);
        lost = lost || id < 0;
        place[step->axis] = id < 0 ? 0 : (uint64_t)id;
        const uint64_t j = element_at(t, place, t->ndim);
        const double x = s->in[2].x[i], e = s->in[2].error[i];
        if (step->code == MICA_SCATTER_ADD)
            put_value(t, s->out, j, s->out->x[j] + x, s->out->error[j] + e + fabs(x) * unit_of(t->dtype), 1);
        else
            put_value(t, s->out, j, x, e, 0);
    }
    for (uint64_t i = 0; i < shape_count(t) && lost; i++)
        s->out->error[i] = INFINITY;
}

/* ---- sums ---- */

static inline void compute_reduce(const at_step *s)
{
    const program_step *step = s->step;
    const program_shape *from = s->from[0], *t = &step->type;
    const uint64_t count = shape_count(t), all = shape_count(from);
    const double terms = (double)all / (double)count;
    for (uint64_t i = 0; i < count; i++) {
        double sum = 0, size = 0, errors = 0, most = -INFINITY, least = INFINITY, worst = 0;
        for (uint64_t j = 0; j < all; j++) {
            uint64_t place[PROGRAM_RANK], at[PROGRAM_RANK];
            uint32_t n = 0;
            place_of(from, j, place);
            for (uint32_t d = 0; d < from->ndim; d++)
                if ((step->axes >> d & 1) == 0)
                    at[n++] = place[d];
                else if (step->keep)
                    at[n++] = 0;
            if (element_at(t, at, t->ndim) != i)
                continue;
            const double x = s->in[0].x[j];
            sum += x, size += fabs(x), errors += s->in[0].error[j];
            most = fmax(most, x), least = fmin(least, x), worst = fmax(worst, s->in[0].error[j]);
        }
        const double wide = unit_of(t->dtype == MICA_DTYPE_F64 ? t->dtype : MICA_DTYPE_F32);
        errors += dtype_is_float(t->dtype) ? size * wide * terms : 0;
        switch (step->code) {
        case MICA_REDUCE_SUM: put_value(t, s->out, i, sum, errors, 1); break;
        case MICA_REDUCE_MEAN: put_value(t, s->out, i, sum / terms, errors / terms, 2); break;
        case MICA_REDUCE_MAX: put_value(t, s->out, i, most, worst, 0); break;
        case MICA_REDUCE_MIN: put_value(t, s->out, i, least, worst, 0); break;
        case MICA_REDUCE_ANY: put_value(t, s->out, i, most != 0, worst, 0); break;
        default: put_value(t, s->out, i, least != 0, worst, 0); break; /* ALL */
        }
    }
}

/* Rows of the last dimension: running sums, softmax, sorted. */
static inline void compute_rows(const at_step *s)
{
    const program_shape *t = &s->step->type;
    const uint64_t n = t->size[t->ndim - 1];
    const double wide = unit_of(t->dtype == MICA_DTYPE_F64 ? t->dtype : MICA_DTYPE_F32);
    for (uint64_t r = 0; r < shape_count(t); r += n) {
        const double *x = s->in[0].x + r, *e = s->in[0].error + r;
        double sum = 0, size = 0, errors = 0, most = -INFINITY, worst = 0;
        for (uint64_t i = 0; i < n; i++)
            most = fmax(most, x[i]), worst = fmax(worst, e[i]);
        for (uint64_t i = 0; i < n; i++) {
            sum += s->step->kind == STEP_SOFTMAX ? exp(x[i] - most) : x[i];
            size += fabs(x[i]), errors += e[i];
            if (s->step->kind == STEP_CUMSUM)
                put_value(t, s->out, r + i, sum,
                          errors + size * wide * (double)n * (dtype_is_float(t->dtype) ? 1 : 0), 1);
        }
        for (uint64_t i = 0; i < n && s->step->kind == STEP_SOFTMAX; i++) {
            const double y = exp(x[i] - most) / sum;
            put_value(t, s->out, r + i, y, y * expm1(2 * worst), 16 + 2 * fabs(x[i] - most));
        }
        for (uint64_t i = 0; i < n && s->step->kind == STEP_SORT; i++) {
            uint64_t before = 0;
            for (uint64_t j = 0; j < n; j++)
                before += x[j] < x[i] || (x[j] == x[i] && j < i);
            put_value(t, s->out, r + before, x[i], worst, 0);
        }
    }
}

/* a [.., M, K] b [.., K, N]; b [K, N] is for all of a. */
static inline void compute_matmul(const at_step *s)
{
    const program_shape *t = &s->step->type, *a = s->from[0], *b = s->from[1];
    const uint64_t m = t->size[t->ndim - 2], n = t->size[t->ndim - 1], k = a->size[a->ndim - 1];
    const double wide = unit_of(t->dtype);
    for (uint64_t i = 0; i < shape_count(t); i++) {
        const uint64_t batch = i / (m * n), row = i / n % m, column = i % n;
        double sum = 0, size = 0, errors = 0;
        for (uint64_t j = 0; j < k; j++) {
            const uint64_t ia = (batch * m + row) * k + j;
            const uint64_t ib = (b->ndim == 2 ? 0 : batch * k * n) + j * n + column;
            const double x = s->in[0].x[ia], y = s->in[1].x[ib];
            const double ex = s->in[0].error[ia], ey = s->in[1].error[ib];
            sum += x * y, size += fabs(x * y);
            errors += fabs(x) * ey + fabs(y) * ex + ex * ey;
        }
        put_value(t, s->out, i, sum, errors + size * wide * (double)k, 1);
    }
}

/* ---- all of it ---- */

typedef struct program_values {
    program_value of[PROGRAM_STEPS];
} program_values;

static inline program_value value_new(uint64_t count)
{
    double *x = calloc(2 * count, sizeof *x);
    assert_non_null(x);
    return (program_value){x, x + count};
}
static inline void values_free(program_values *v)
{
    for (uint32_t i = 0; i < PROGRAM_STEPS; i++)
        free(v->of[i].x);
    free(v);
}
static inline void value_copy(program_value *to, const program_value *from, uint64_t offset, uint64_t count)
{
    memcpy(to->x, from->x + offset, count * sizeof *to->x);
    memcpy(to->error, from->error + offset, count * sizeof *to->error);
}

static inline program_values *program_compute(const program *p, const program_value *inputs);

static inline void compute_elements(const at_step *s)
{
    const program_step *step = s->step;
    for (uint64_t i = 0; i < shape_count(&step->type); i++) {
        uint64_t place[PROGRAM_RANK], at[3] = {0};
        place_of(&step->type, i, place);
        for (uint32_t k = 0; k < step->in_count; k++)
            at[k] = element_at(s->from[k], place, step->type.ndim);
        switch (step->kind) {
        case STEP_UNARY: put_unary(s, i); break;
        case STEP_BINARY: put_binary(s, i, at[0], at[1]); break;
        case STEP_SELECT: put_select(s, i, at[0], at[1], at[2]); break;
        case STEP_CAST: put_cast(s, i); break;
        case STEP_INDEX: s->out->x[i] = (double)place[step->axis]; break;
        default: s->out->x[i] = drawn_number(step->type.dtype, step->seed, i); break;
        }
    }
}

/* Outputs of a body to the parts of the step. */
static inline void take_outputs(const program *body, const program_values *from, uint32_t first,
                                uint32_t count, program_value *out)
{
    for (uint32_t i = 0; i < count; i++)
        value_copy(&out[first + i], &from->of[body->output[first + i]], 0,
                   shape_count(&body->step[body->output[first + i]].type));
}

static inline void make_uncertain(const program_step *parts, uint32_t count, program_value *out)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t e = 0; e < shape_count(&parts[i].type); e++)
            out[i].error[e] = INFINITY;
}

static inline void compute_choice(const at_step *s)
{
    const bool choice = s->step->kind == STEP_IF;
    const program *body = s->step->body[choice && s->in[0].x[0] == 0];
    program_values *inner = program_compute(body, s->in + choice);
    take_outputs(body, inner, 0, s->step->parts, s->out);
    if (choice && s->in[0].error[0] != 0)
        make_uncertain(s->step, s->step->parts, s->out); /* parts lie behind it */
    values_free(inner);
}

static inline void compute_while(const at_step *s)
{
    const program_step *step = s->step;
    program_value carried[PROGRAM_INPUTS];
    memcpy(carried, s->in, sizeof carried);
    for (uint32_t i = 0; i < step->carried; i++) {
        const uint64_t count = shape_count(s->from[i]);
        value_copy(&s->out[i], &s->in[i], 0, count);
        carried[i] = s->out[i];
    }
    for (uint64_t round = 0; s->out[0].x[0] < (double)step->count; round++) {
        if (step->start != 0 && round == step->start) /* the bound */
            break;
        program_values *inner = program_compute(step->body[0], carried);
        take_outputs(step->body[0], inner, 0, step->carried, s->out);
        values_free(inner);
    }
}

/* in: carried, scanned, others. Slices of the body come behind what is carried. */
static inline void compute_scan(const at_step *s)
{
    const program_step *step = s->step;
    const program *body = step->body[0];
    program_value in[PROGRAM_INPUTS];
    memcpy(in, s->in, sizeof in);
    for (uint32_t i = 0; i < step->carried; i++) {
        value_copy(&s->out[i], &s->in[i], 0, shape_count(s->from[i]));
        in[i] = s->out[i];
    }
    for (uint64_t round = 0; round < step->count; round++) {
        const uint64_t t = step->keep ? step->count - 1 - round : round;
        for (uint32_t i = step->carried; i < step->carried + step->scanned; i++) {
            const uint64_t slice = shape_count(s->from[i]) / step->count;
            in[i] = (program_value){s->in[i].x + t * slice, s->in[i].error + t * slice};
        }
        program_values *inner = program_compute(body, in);
        for (uint32_t i = step->carried; i < step->parts; i++) {
            const uint64_t slice = shape_count(&body->step[body->output[i]].type);
            program_value at = {s->out[i].x + t * slice, s->out[i].error + t * slice};
            value_copy(&at, &inner->of[body->output[i]], 0, slice);
        }
        take_outputs(body, inner, 0, step->carried, s->out);
        values_free(inner);
    }
}

static inline void compute_step(const at_step *s)
{
    switch (s->step->kind) {
    case STEP_RESHAPE:
    case STEP_PERMUTE:
    case STEP_SLICE:
    case STEP_EXPAND:
    case STEP_STOP:
    case STEP_PAD: compute_view(s); break;
    case STEP_CONCAT: compute_concat(s); break;
    case STEP_REDUCE: compute_reduce(s); break;
    case STEP_CUMSUM:
    case STEP_SOFTMAX:
    case STEP_SORT: compute_rows(s); break;
    case STEP_GATHER: compute_gather(s); break;
    case STEP_SCATTER: compute_scatter(s); break;
    case STEP_MATMUL: compute_matmul(s); break;
    case STEP_CALL:
    case STEP_IF: compute_choice(s); break;
    case STEP_WHILE: compute_while(s); break;
    case STEP_SCAN: compute_scan(s); break;
    case STEP_PART: break; /* its step has filled it */
    default: compute_elements(s); break;
    }
}

/* Owned by the caller: values_free. Inputs are copied. */
static inline program_values *program_compute(const program *p, const program_value *inputs)
{
    program_values *v = calloc(1, sizeof *v);
    assert_non_null(v);
    for (uint32_t i = 0; i < p->count; i++)
        v->of[i] = value_new(shape_count(&p->step[i].type));
    for (uint32_t i = 0; i < p->count; i++) {
        const program_step *step = &p->step[i];
        at_step s = {.step = step, .out = &v->of[i]};
        if (step->kind == STEP_INPUT) {
            value_copy(s.out, &inputs[i], 0, shape_count(&step->type));
            continue;
        }
        for (uint32_t k = 0; k < step->in_count; k++) {
            s.from[k] = &p->step[step->in[k]].type;
            s.in[k] = v->of[step->in[k]];
        }
        compute_step(&s);
    }
    return v;
}

#endif
