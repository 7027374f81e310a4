/*
 * quantize.c - codes with scales. What is computed for an element is a region; blocks and packed codes are views: a block is a dimension of its own,
 * the two codes of a byte are two operands that take every second element.
 */
#include "device/objects.h"
#include "ops/steps.h"

#define ULL(x) ((unsigned long long)(x))
#define REFUSE(...) mica__fail(MICA_ERR_INVALID_ARGUMENT, __VA_ARGS__)

/* ---- operands, and their views ---- */

enum { MOST = 12 };

typedef enum share { EACH, SHARED } share; /* of the shape of x; shared by elements */

typedef struct operand {
    const char *name;
    mica_buffer *buffer; /* held */
    share role;
} operand;

/* A region over operands that share scales. Inputs, then outputs. */
typedef struct job {
    const char *op;
    mica__steps steps;
    mica_register type; /* of floats */
    mica_quantizer by;
    operand in[MOST], out[MOST];
    mica_status status;
    mica__region_room room;
} job;

static mica_register real_of(const mica_buffer *buffer)
{
    return buffer->dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
}

static bool is_real(const mica_buffer *buffer)
{
    const mica_register type = mica__register_of(buffer->dtype);
    return (type == MICA_REGISTER_F32 || type == MICA_REGISTER_F64) && buffer->dtype != MICA_DTYPE_C64;
}

static void job_begin(job *j, const char *op, mica_register type, const mica_quantizer *by)
{
    memset(j->in, 0, sizeof j->in);
    memset(j->out, 0, sizeof j->out);
    j->op = op;
    j->status = MICA_OK;
    j->type = type;
    j->by = *by;
    j->steps = (mica__steps){&j->room.program, MICA_REGION_STEPS, false};
    mica__region_begin(&j->room.program, 0, 0);
}

/* The half of a buffer's last dimension that begins with element `first`. */
static mica_status half_of(mica_buffer *buffer, uint32_t first, mica_buffer **out)
{
    const uint32_t last = buffer->ndim - 1;
    mica_buffer *from = NULL;
    MICA__TRY(mica_buffer_slice(buffer, last, first, buffer->shape[last] - first, &from));
    const mica_status status = mica_buffer_stride(from, last, 2, out);
    mica_buffer_release(from);
    return status;
}

static void hold(job *j, operand *o, const char *name, mica_buffer *buffer, share role, int half)
{
    *o = (operand){name, NULL, role};
    if (j->status != MICA_OK || buffer == NULL)
        return;
    if (half >= 0)
        j->status = half_of(buffer, (uint32_t)half, &o->buffer);
    else
        o->buffer = mica_buffer_retain(buffer);
}

static st_value add_input(job *j, const char *name, mica_buffer *buffer, share role, int half)
{
    const uint32_t i = j->room.program.input_count++;
    hold(j, &j->in[i], name, buffer, role, half);
    j->room.program.input[i] = (uint8_t)mica__register_of(buffer->dtype);
    return st_input(&j->steps, i);
}

static void add_output(job *j, const char *name, mica_buffer *buffer, int half, st_value value)
{
    const uint32_t o = j->room.program.output_count++;
    hold(j, &j->out[o], name, buffer, EACH, half);
    j->room.program.output[o] = value.at;
}

static void job_free(job *j)
{
    for (uint32_t i = 0; i < MOST; i++) {
        mica_buffer_release(j->in[i].buffer);
        mica_buffer_release(j->out[i].buffer);
    }
}

/* The part of an operand that whole blocks (`tail` 0) or the elements behind them take, blocks as a dimension of their own. */
static mica_status part_of(const operand *o, uint32_t d, uint64_t block, uint64_t whole, bool tail,
                           mica_buffer **out)
{
    mica_buffer *b = o->buffer;
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    if (tail && o->role == EACH)
        return mica_buffer_slice(b, d, whole * block, b->shape[d] - whole * block, out);
    if (tail)
        return mica_buffer_slice(b, d, b->shape[d] == 1 ? 0 : whole, 1, out);
    for (uint32_t k = 0; k < b->ndim; k++) {
        const uint32_t at = k + (k > d);
        shape[at] = b->shape[k];
        stride[at] = b->stride[k];
    }
    shape[d + 1] = o->role == EACH ? block : 1;
    stride[d + 1] = o->role == EACH ? b->stride[d] : 0;
    shape[d] = o->role == SHARED && b->shape[d] == 1 ? 1 : whole;
    stride[d] = o->role == EACH ? b->stride[d] * block : b->stride[d];
    return mica_buffer_view(b, b->dtype, b->ndim + 1, shape, stride, 0, out);
}

static mica_status add_part(job *j, mica_encoder *encoder, uint32_t d, uint64_t block, uint64_t whole,
                            bool tail)
{
    const mica__region_program *p = &j->room.program;
    mica_buffer *in[MOST] = {NULL}, *out[MOST] = {NULL};
    const char *in_name[MOST], *out_name[MOST];
    const mica__region_names names = {j->op, in_name, out_name};
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < p->input_count; i++) {
        in_name[i] = j->in[i].name;
        if (block == 0 || j->in[i].buffer->ndim == 0 || j->in[i].buffer->ndim <= d)
            in[i] = mica_buffer_retain(j->in[i].buffer);
        else if (status == MICA_OK)
            status = part_of(&j->in[i], d, block, whole, tail, &in[i]);
    }
    for (uint32_t o = 0; o < p->output_count; o++) {
        out_name[o] = j->out[o].name;
        if (block == 0)
            out[o] = mica_buffer_retain(j->out[o].buffer);
        else if (status == MICA_OK)
            status = part_of(&j->out[o], d, block, whole, tail, &out[o]);
    }
    if (status == MICA_OK)
        status = mica__region_add(encoder, &names, p, in, false, out);
    for (uint32_t i = 0; i < MOST; i++) {
        mica_buffer_release(in[i]);
        mica_buffer_release(out[i]);
    }
    return status;
}

/* Adds the region, as one record or, where the last block is not whole, as two. `x`: an operand with the whole shape. */
static mica_status job_end(job *j, mica_encoder *encoder, const mica_buffer *x)
{
    const uint32_t halves = j->by.packed != 0 && j->by.axis == 0 ? 2 : 1;
    const uint64_t block = j->by.block / halves;
    mica_status status = j->status;
    if (status == MICA_OK && block == 0)
        status = add_part(j, encoder, 0, 0, 0, false);
    if (status == MICA_OK && block != 0) {
        const uint32_t d = x->ndim - 1 - j->by.axis;
        const uint64_t n = x->shape[d] / halves, whole = n / block;
        if (whole > 0)
            status = add_part(j, encoder, d, block, whole, false);
        if (status == MICA_OK && n % block != 0)
            status = add_part(j, encoder, d, block, whole, true);
    }
    job_free(j);
    return status;
}

/* ---- checks ---- */

static bool same_shape(const mica_buffer *a, const mica_buffer *b, uint32_t halves)
{
    bool same = a->ndim == b->ndim;
    for (uint32_t d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d] * (d + 1 == a->ndim ? halves : 1);
    return same;
}

/* Scales and what lies beside them: one element for every block, or what broadcasts. */
static mica_status check_shared(const char *op, const char *name, const mica_buffer *shared,
                                const mica_buffer *x, const mica_quantizer *by)
{
    if (shared == NULL)
        return MICA_OK;
    if (by->block != 0 && shared->ndim != x->ndim)
        return REFUSE("%s: %s has %u dimensions, x %u, expected as many with blocks", op, name, shared->ndim,
                      x->ndim);
    if (shared->ndim > x->ndim)
        return REFUSE("%s: %s has %u dimensions, x %u", op, name, shared->ndim, x->ndim);
    for (uint32_t k = 0; k < shared->ndim; k++) {
        const uint32_t d = x->ndim - shared->ndim + k;
        uint64_t wanted = x->shape[d];
        if (by->block != 0 && d == x->ndim - 1 - by->axis)
            wanted = wanted / by->block + (wanted % by->block != 0);
        if (shared->shape[k] != wanted && shared->shape[k] != 1)
            return REFUSE("%s: shape[%u] of %s is %llu, not 1 or %llu", op, k, name, ULL(shared->shape[k]),
                          ULL(wanted));
    }
    return MICA_OK;
}

static mica_status check_packed(const char *op, const mica_buffer *x, const mica_quantizer *by)
{
    if (by->packed > 1 || by->away > 1 || (unsigned)by->code > MICA_CODE_FP4)
        return REFUSE("%s: by.packed, away or code is not 0 or 1", op);
    if (by->packed == 0)
        return MICA_OK;
    if (x->ndim == 0 || x->shape[x->ndim - 1] % 2 != 0 || (by->axis == 0 && by->block % 2 != 0))
        return REFUSE("%s: by.packed, but the last dimension or the block along it is not even", op);
    if (by->code == MICA_CODE_INTEGER && !(by->low == 0 && (by->high == 0 || by->high == 15)) &&
        !(by->low >= -8 && by->low < 0 && by->high <= 7 && by->high >= 0) &&
        !(by->low >= 0 && by->high <= 15))
        return REFUSE("%s: by.low is %d and high %d, which 4 bits do not hold", op, by->low, by->high);
    return MICA_OK;
}

/* Whatever x is. */
static mica_status check_all(const char *op, const mica_encoder *encoder, const mica_buffer *x,
                             const mica_quantizer *by, const mica_buffer *y)
{
    if (encoder == NULL || x == NULL || by == NULL || by->scales == NULL || y == NULL)
        return REFUSE("%s: %s is NULL", op,
                      encoder == NULL ? "encoder"
                      : x == NULL     ? "x"
                      : by == NULL    ? "by"
                      : y == NULL     ? "codes or y"
                                      : "by.scales");
    if (by->low > by->high)
        return REFUSE("%s: by.low is %d, above high, %d", op, by->low, by->high);
    if (by->zero_points != NULL && by->biases != NULL)
        return REFUSE("%s: by.zero_points and biases are both there", op);
    if (by->block != 0 && (by->axis >= x->ndim || x->ndim == MICA_MAX_DIMS))
        return REFUSE("%s: by.axis is %u, but x has %u dimensions, or %u, too many for blocks", op, by->axis,
                      x->ndim, MICA_MAX_DIMS);
    MICA__TRY(check_packed(op, x, by));
    if (!same_shape(x, y, by->packed != 0 ? 2 : 1))
        return REFUSE("%s: the codes, x or y differ in shape", op);
    MICA__TRY(check_shared(op, "by.scales", by->scales, x, by));
    MICA__TRY(check_shared(op, "by.zero_points", by->zero_points, x, by));
    return check_shared(op, "by.biases", by->biases, x, by);
}

static mica_status check(const char *op, const mica_encoder *encoder, const mica_buffer *x,
                         const mica_quantizer *by, const mica_buffer *y)
{
    if (x != NULL && !is_real(x))
        return REFUSE("%s: x or y is %s, not a float", op, mica_dtype_name(x->dtype));
    return check_all(op, encoder, x, by, y);
}

/* ---- formulas ---- */

typedef struct scaling {
    st_value scale, point, bias; /* st_none: absent */
} scaling;

/* Scales and the like for the elements of this half; -1: for all. An operand that has an element for each of x's goes in halves too. */
static scaling add_scaling(job *j, const mica_buffer *x, int half)
{
    mica_buffer *const buffer[3] = {j->by.scales, j->by.zero_points, j->by.biases};
    static const char *const name[3] = {"by.scales", "by.zero_points", "by.biases"};
    st_value value[3];
    for (uint32_t i = 0; i < 3; i++) {
        mica_buffer *b = buffer[i];
        value[i] = st_none;
        if (b == NULL)
            continue;
        const bool blocks = j->by.block != 0 && j->by.axis == 0;
        const bool own = half >= 0 && !blocks && b->ndim > 0 &&
                         b->shape[b->ndim - 1] == x->shape[x->ndim - 1] && b->shape[b->ndim - 1] > 1;
        value[i] = add_input(j, name[i], b, SHARED, own ? half : -1);
    }
    return (scaling){value[0], value[1], value[2]};
}

/* All inputs are there: steps begin. Everything in the type of x. */
static void finish_scaling(job *j, scaling *s, st_value global)
{
    s->scale = st_cast(s->scale, j->type);
    if (global.of != NULL)
        s->scale = st_mul(s->scale, st_cast(global, j->type));
    if (s->point.of != NULL)
        s->point = st_cast(s->point, j->type);
    if (s->bias.of != NULL)
        s->bias = st_cast(s->bias, j->type);
}

static st_value add_global(job *j)
{
    return j->by.global != NULL ? add_input(j, "by.global", j->by.global, SHARED, -1) : st_none;
}

static st_value rounded(st_value v, bool away)
{
    if (!away)
        return st_round(v);
    const st_value size = st_abs(v), whole = st_floor(size);
    const st_value up = st_greater_equal(st_sub(size, whole), st_number(v, 0.5));
    const st_value near = st_select(up, st_shift(whole, 1), whole);
    return st_select(st_less(v, st_number(v, 0)), st_neg(near), near);
}

/* The code of E2M1 that is nearest, as a number from 0 to 15. */
static st_value fp4_code(st_value v)
{
    const st_value a = st_abs(v);
    const st_value small = st_round(st_scale(a, 2)), middle = st_shift(st_round(a), 2);
    const st_value large = st_least(st_shift(st_round(st_scale(a, 0.5)), 4), 7);
    const st_value code =
        st_select(st_less(a, st_number(a, 2)), small, st_select(st_less(a, st_number(a, 4)), middle, large));
    return st_select(st_less(v, st_number(v, 0)), st_shift(code, 8), code);
}

static st_value fp4_value(st_value code)
{
    const st_value negative = st_greater_equal(code, st_number(code, 8));
    const st_value k = st_select(negative, st_shift(code, -8), code);
    const st_value large =
        st_select(st_less(k, st_number(k, 6)), st_shift(k, -2), st_shift(st_scale(k, 2), -8));
    const st_value a = st_select(st_less(k, st_number(k, 4)), st_scale(k, 0.5), large);
    return st_select(negative, st_neg(a), a);
}

/* x / scale (- bias before it), before any rounding. */
static st_value in_units(st_value x, const scaling *s)
{
    return st_div(s->bias.of != NULL ? st_sub(x, s->bias) : x, s->scale);
}

/* `whole`: codes are integers; else they are floats that the store rounds. */
static st_value code_of(const job *j, st_value x, const scaling *s, bool whole)
{
    const st_value v = in_units(x, s);
    if (j->by.code == MICA_CODE_FP4)
        return fp4_code(v);
    const st_value near = whole ? rounded(v, j->by.away != 0) : v;
    return st_clamp(s->point.of != NULL ? st_add(near, s->point) : near, j->by.low, j->by.high);
}

static st_value value_of(const job *j, st_value code, const scaling *s)
{
    if (j->by.code == MICA_CODE_FP4)
        code = fp4_value(code);
    if (s->bias.of != NULL)
        return st_add(st_mul(code, s->scale), s->bias);
    return st_mul(s->point.of != NULL ? st_sub(code, s->point) : code, s->scale);
}

/* ---- what callers have ---- */

/* low and high where both are 0; false where codes of this type are not served. */
static bool complete(mica_quantizer *by, mica_dtype dtype)
{
    static const struct {
        mica_dtype dtype;
        int32_t low, high;
    } ends[] = {{MICA_DTYPE_I8, -128, 127},
                {MICA_DTYPE_U8, 0, 255},
                {MICA_DTYPE_I16, -32768, 32767},
                {MICA_DTYPE_U16, 0, 65535},
                {MICA_DTYPE_I32, -16777216, 16777216},
                {MICA_DTYPE_U32, 0, 16777216},
                {MICA_DTYPE_F8_E4M3, -448, 448},
                {MICA_DTYPE_F8_E5M2, -57344, 57344}};
    if (by->packed != 0 && dtype != MICA_DTYPE_U8)
        return false;
    if (by->code == MICA_CODE_FP4)
        return dtype == MICA_DTYPE_U8 || dtype == MICA_DTYPE_I8;
    for (uint32_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i].dtype == dtype) {
            const bool given = by->low != 0 || by->high != 0;
            by->low = given ? by->low : ends[i].low;
            by->high = given ? by->high : by->packed != 0 ? 15 : ends[i].high;
            return by->low >= ends[i].low - (by->packed != 0 ? 8 : 0) && by->high <= ends[i].high;
        }
    return false;
}

mica_status mica_quantize_codes(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by,
                                mica_buffer *codes)
{
    job j;
    MICA__TRY(check("quantize_codes", encoder, x, by, codes));
    job_begin(&j, "quantize_codes", real_of(x), by);
    if (!complete(&j.by, codes->dtype))
        return REFUSE("quantize_codes: codes is %s, which does not hold codes from %d to %d",
                      mica_dtype_name(codes->dtype), by->low, by->high);
    const mica_register to = mica__register_of(codes->dtype);
    const uint32_t halves = by->packed != 0 ? 2 : 1;
    st_value from[2] = {{0}}, code[2] = {{0}};
    scaling s[2];
    for (uint32_t h = 0; h < halves; h++) {
        const int half = halves == 2 ? (int)h : -1;
        from[h] = add_input(&j, "x", x, EACH, half);
        s[h] = add_scaling(&j, x, half);
    }
    const st_value global = add_global(&j);
    for (uint32_t h = 0; h < halves; h++) {
        finish_scaling(&j, &s[h], global);
        code[h] = code_of(&j, from[h], &s[h], to != MICA_REGISTER_F32);
        if (halves == 2 && j.by.low < 0 && by->code == MICA_CODE_INTEGER) /* two's complement */
            code[h] = st_select(st_less(code[h], st_number(code[h], 0)), st_shift(code[h], 16), code[h]);
    }
    const st_value all = halves == 2 ? st_add(code[0], st_scale(code[1], 16)) : code[0];
    add_output(&j, "codes", codes, -1, st_cast(all, to));
    return job_end(&j, encoder, x);
}

mica_status mica_requantize(mica_encoder *encoder, mica_buffer *sums, const mica_quantizer *by,
                            mica_buffer *codes)
{
    job j;
    MICA__TRY(check_all("requantize", encoder, sums, by, codes));
    job_begin(&j, "requantize", MICA_REGISTER_F32, by);
    if (sums->dtype != MICA_DTYPE_I32)
        return REFUSE("requantize: sums is %s, not i32", mica_dtype_name(sums->dtype));
    if (by->biases != NULL || by->global != NULL || by->block != 0 || by->packed != 0 ||
        by->code != MICA_CODE_INTEGER)
        return REFUSE("requantize: by.biases, global, block, packed or code is given");
    if (mica_dtype_block_bytes(codes->dtype) > 2 || mica__register_of(codes->dtype) == MICA_REGISTER_F32 ||
        !complete(&j.by, codes->dtype))
        return REFUSE("requantize: codes is %s, which does not hold codes from %d to %d",
                      mica_dtype_name(codes->dtype), by->low, by->high);
    const st_value sum = add_input(&j, "sums", sums, EACH, -1);
    scaling s = add_scaling(&j, sums, -1);
    finish_scaling(&j, &s, st_none);
    const st_value near = rounded(st_mul(st_cast(sum, MICA_REGISTER_F32), s.scale), by->away != 0);
    const st_value code = st_clamp(s.point.of != NULL ? st_add(near, s.point) : near, j.by.low, j.by.high);
    add_output(&j, "codes", codes, -1, st_cast(code, mica__register_of(codes->dtype)));
    return job_end(&j, encoder, sums);
}

/* Elements of one half, or all: -1. Halves lie between each other, so that each is a record of its own. */
static mica_status dequantize_half(mica_encoder *encoder, mica_buffer *codes, const mica_quantizer *by,
                                   int half, mica_buffer *y)
{
    job j;
    job_begin(&j, "dequantize_codes", real_of(y), by);
    const st_value both = add_input(&j, "codes", codes, EACH, -1);
    scaling s = add_scaling(&j, y, half);
    const st_value global = add_global(&j);
    finish_scaling(&j, &s, global);
    st_value code = both;
    if (half >= 0)
        code = half == 0 ? st_bit_and(both, st_number(both, 15)) : st_shift_right(both, st_number(both, 4));
    code = st_cast(code, j.type);
    if (half >= 0 && by->low < 0 && by->code == MICA_CODE_INTEGER)
        code = st_select(st_greater_equal(code, st_number(code, 8)), st_shift(code, -16), code);
    add_output(&j, "y", y, half, value_of(&j, code, &s));
    return job_end(&j, encoder, y);
}

mica_status mica_dequantize_codes(mica_encoder *encoder, mica_buffer *codes, const mica_quantizer *by,
                                  mica_buffer *y)
{
    MICA__TRY(check("dequantize_codes", encoder, y, by, codes));
    mica_quantizer own = *by;
    if (!complete(&own, codes->dtype))
        return REFUSE("dequantize_codes: codes is %s, which does not hold codes from %d to %d",
                      mica_dtype_name(codes->dtype), by->low, by->high);
    if (by->packed == 0)
        return dequantize_half(encoder, codes, &own, -1, y);
    MICA__TRY(dequantize_half(encoder, codes, &own, 0, y));
    return dequantize_half(encoder, codes, &own, 1, y);
}

/* Codes that are never written: i8's where no others are asked for. */
static mica_status complete_fake(const char *op, mica_quantizer *by)
{
    if (by->packed != 0)
        return REFUSE("%s: by.packed is 1, but no codes are written", op);
    if (by->low == 0 && by->high == 0) {
        by->low = -128;
        by->high = 127;
    }
    return MICA_OK;
}

mica_status mica_fake_quantize(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by,
                               mica_buffer *y)
{
    job j;
    MICA__TRY(check("fake_quantize", encoder, x, by, y));
    job_begin(&j, "fake_quantize", real_of(x), by);
    MICA__TRY(complete_fake("fake_quantize", &j.by));
    const st_value from = add_input(&j, "x", x, EACH, -1);
    scaling s = add_scaling(&j, x, -1);
    const st_value global = add_global(&j);
    finish_scaling(&j, &s, global);
    add_output(&j, "y", y, -1, value_of(&j, code_of(&j, from, &s, true), &s));
    return job_end(&j, encoder, x);
}

/* ---- backward ---- */

/* What reaches x. `inside`: where the code is not an end that it was brought back to. */
static st_value straight_through(const job *j, mica_straight straight, st_value dy, st_value units,
                                 st_value inside)
{
    switch (straight) {
    case MICA_STRAIGHT_IDENTITY: return dy;
    case MICA_STRAIGHT_TANH: {
        const st_value t = st_tanh(units);
        return st_mul(dy, st_sub(st_number(t, 1), st_square(t)));
    }
    case MICA_STRAIGHT_HARD_TANH: {
        const st_value part = st_scale(st_abs(units), 1.0 / j->by.high);
        return st_mul(dy, st_greatest(st_sub(st_number(part, 1), part), 0));
    }
    default: return st_where(inside, dy);
    }
}

static mica_status check_backward(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by,
                                  mica_buffer *dy, mica_straight straight, mica_buffer *dx,
                                  mica_buffer *dscale)
{
    MICA__TRY(check("fake_quantize_backward", encoder, x, by, dy));
    if (dx == NULL && dscale == NULL)
        return REFUSE("fake_quantize_backward: dx and dscale are NULL");
    if ((dx != NULL && !same_shape(x, dx, 1)) || (dscale != NULL && !same_shape(x, dscale, 1)))
        return REFUSE("fake_quantize_backward: dx or dscale has not the shape of x");
    if ((unsigned)straight > MICA_STRAIGHT_HARD_TANH)
        return REFUSE("fake_quantize_backward: straight is %u, which is no mica_straight",
                      (unsigned)straight);
    if (by->biases != NULL || by->code != MICA_CODE_INTEGER)
        return REFUSE("fake_quantize_backward: by.biases are there, or by.code is not INTEGER");
    return straight == MICA_STRAIGHT_HARD_TANH && by->high < 0
               ? REFUSE("fake_quantize_backward: by.high is %d, below 0", by->high)
               : MICA_OK;
}

mica_status mica_fake_quantize_backward(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by,
                                        mica_buffer *dy, mica_straight straight, mica_buffer *dx,
                                        mica_buffer *dscale)
{
    job j;
    MICA__TRY(check_backward(encoder, x, by, dy, straight, dx, dscale));
    job_begin(&j, "fake_quantize_backward", real_of(x), by);
    MICA__TRY(complete_fake("fake_quantize_backward", &j.by));
    const st_value from = add_input(&j, "x", x, EACH, -1), reaches = add_input(&j, "dy", dy, EACH, -1);
    scaling s = add_scaling(&j, x, -1);
    const st_value global = add_global(&j);
    finish_scaling(&j, &s, global);
    const st_value units = in_units(from, &s), near = rounded(units, j.by.away != 0);
    const st_value judged = straight == MICA_STRAIGHT_ROUNDED ? near : units;
    const st_value v = s.point.of != NULL ? st_add(judged, s.point) : judged;
    const st_value below = st_less(v, st_number(v, j.by.low)), above = st_greater(v, st_number(v, j.by.high));
    const st_value inside = st_bit_not(st_bit_or(below, above));
    const st_value end = st_select(below, st_number(v, j.by.low), st_number(v, j.by.high));
    const st_value far = s.point.of != NULL ? st_sub(end, s.point) : end;
    const st_value slope = st_select(inside, st_sub(near, units), far);
    if (dx != NULL)
        add_output(&j, "dx", dx, -1, straight_through(&j, straight, reaches, units, inside));
    if (dscale != NULL)
        add_output(&j, "dscale", dscale, -1, st_mul(reaches, slope));
    return job_end(&j, encoder, x);
}

/* ---- scales ---- */

/* x reduced to the shape of `to`, which has 1 where all elements share. */
static mica_status reduce_to(mica_encoder *encoder, uint32_t kind, mica_buffer *x, mica_buffer *to)
{
    mica_reduce_params params = {.kind = kind, .keep_dims = 1};
    for (uint32_t d = 0; d < x->ndim; d++)
        if (to->shape[d] == 1)
            params.axes |= 1u << (x->ndim - 1 - d);
    return params.axes != 0 || x->ndim == 0
               ? mica_reduce(encoder, x, &params, to)
               : REFUSE("quantize_scales: by.scales has the shape of x: nothing is shared");
}

static mica_status reduce_blocks(mica_encoder *encoder, uint32_t kind, mica_buffer *x,
                                 const mica_quantizer *by, mica_buffer *to)
{
    const operand all = {"x", x, EACH}, shared = {"by.scales", to, SHARED};
    const uint32_t d = by->block != 0 ? x->ndim - 1 - by->axis : 0;
    const uint64_t whole = by->block != 0 ? x->shape[d] / by->block : 0;
    mica_status status = MICA_OK;
    if (by->block == 0)
        return reduce_to(encoder, kind, x, to);
    for (uint32_t tail = 0; tail < 2 && status == MICA_OK; tail++) {
        mica_buffer *from = NULL, *own = NULL;
        if (tail == 0 ? whole == 0 : x->shape[d] % by->block == 0)
            continue;
        status = part_of(&all, d, by->block, whole, tail != 0, &from);
        if (status == MICA_OK)
            status = part_of(&shared, d, by->block, whole, tail != 0, &own);
        if (status == MICA_OK)
            status = reduce_to(encoder, kind, from, own);
        mica_buffer_release(from);
        mica_buffer_release(own);
    }
    return status;
}

static mica_status check_scales(mica_encoder *encoder, const mica_buffer *x, const mica_quantizer *by)
{
    MICA__TRY(check("quantize_scales", encoder, x, by, x));
    if (by->zero_points != NULL || by->global != NULL || by->packed != 0)
        return REFUSE("quantize_scales: by.zero_points, global or packed is there");
    if (by->scales->ndim != x->ndim || (by->biases != NULL && !same_shape(by->scales, by->biases, 1)))
        return REFUSE("quantize_scales: by.scales has %u dimensions, x %u, or by.biases differ in shape",
                      by->scales->ndim, x->ndim);
    const uint32_t d = by->block != 0 ? x->ndim - 1 - by->axis : 0;
    if (by->block != 0 && by->scales->shape[d] == 1 && x->shape[d] > by->block)
        return REFUSE("quantize_scales: shape[%u] of by.scales is 1, but there are several blocks", d);
    return MICA_OK;
}

mica_status mica_quantize_scales(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by)
{
    job j;
    MICA__TRY(check_scales(encoder, x, by));
    job_begin(&j, "quantize_scales", real_of(x), by);
    MICA__TRY(complete_fake("quantize_scales", &j.by));
    if (j.by.high <= 0)
        return REFUSE("quantize_scales: by.high is %d, not above 0", j.by.high);
    MICA__TRY(reduce_blocks(encoder, by->biases != NULL ? MICA_REDUCE_MAX : MICA_REDUCE_MAX_ABS, x, by,
                            by->scales));
    if (by->biases != NULL)
        MICA__TRY(reduce_blocks(encoder, MICA_REDUCE_MIN, x, by, by->biases));
    j.by.block = 0; /* the rest is of scales alone */
    const st_value most = add_input(&j, "by.scales", by->scales, EACH, -1);
    if (by->biases == NULL) {
        add_output(&j, "by.scales", by->scales, -1,
                   st_greatest(st_div(most, st_number(most, j.by.high)), 1e-12));
        return job_end(&j, encoder, x);
    }
    const st_value least = add_input(&j, "by.biases", by->biases, EACH, -1);
    const st_value step = st_div(st_sub(most, least), st_number(most, (double)j.by.high - j.by.low));
    const st_value scale = st_select(st_greater(step, st_number(step, 0)), step, st_number(step, 1));
    add_output(&j, "by.scales", by->scales, -1, scale);
    add_output(&j, "by.biases", by->biases, -1,
               j.by.low != 0 ? st_sub(least, st_scale(scale, j.by.low)) : least);
    return job_end(&j, encoder, x);
}

mica_status mica_scales_follow(mica_encoder *encoder, mica_buffer *scales, double decay, mica_buffer *state)
{
    job j;
    if (encoder == NULL || scales == NULL || state == NULL)
        return REFUSE("scales_follow: %s is NULL", encoder == NULL  ? "encoder"
                                                   : scales == NULL ? "scales"
                                                                    : "state");
    if (!(decay >= 0 && decay <= 1) || !is_real(scales))
        return REFUSE("scales_follow: decay is %g, not from 0 to 1, or scales is no float", decay);
    job_begin(&j, "scales_follow", real_of(scales), &(mica_quantizer){0});
    const st_value now = add_input(&j, "scales", scales, EACH, -1),
                   before = add_input(&j, "state", state, EACH, -1);
    const st_value mean = st_add(st_scale(before, decay), st_scale(now, 1 - decay));
    add_output(&j, "state", state, -1, st_select(st_greater(before, st_number(before, 0)), mean, now));
    return job_end(&j, encoder, scales);
}
