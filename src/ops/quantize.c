/*
 * quantize.c - codes with scales. What is computed for an element is a region; blocks and packed codes are views: a block is a dimension of its own,
 * the two codes of a byte are two operands that take every second element.
 */
#include "device/objects.h"
#include "ops/codes.h"

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

/* ---- scales as inputs ---- */

/* Scales and the like for the elements of this half; -1: for all. An operand that has an element for each of x's goes in halves too. */
static mica__scaling add_scaling(job *j, const mica_buffer *x, int half)
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
    return (mica__scaling){value[0], value[1], value[2]};
}

static st_value add_global(job *j)
{
    return j->by.global != NULL ? add_input(j, "by.global", j->by.global, SHARED, -1) : st_none;
}

/* ---- what callers have ---- */

mica_status mica_quantize_codes(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by,
                                mica_buffer *codes)
{
    job j;
    MICA__TRY(check("quantize_codes", encoder, x, by, codes));
    job_begin(&j, "quantize_codes", real_of(x), by);
    if (!mica__codes_complete(&j.by, codes->dtype))
        return REFUSE("quantize_codes: codes is %s, which does not hold codes from %d to %d",
                      mica_dtype_name(codes->dtype), by->low, by->high);
    const mica_register to = mica__register_of(codes->dtype);
    const uint32_t halves = by->packed != 0 ? 2 : 1;
    st_value from[2] = {{0}}, code[2] = {{0}};
    mica__scaling s[2];
    for (uint32_t h = 0; h < halves; h++) {
        const int half = halves == 2 ? (int)h : -1;
        from[h] = add_input(&j, "x", x, EACH, half);
        s[h] = add_scaling(&j, x, half);
    }
    const st_value global = add_global(&j);
    for (uint32_t h = 0; h < halves; h++) {
        mica__scaling_finish(&s[h], global, j.type);
        code[h] = mica__code_of(&j.by, from[h], &s[h], to != MICA_REGISTER_F32);
    }
    const st_value all = halves == 2 ? mica__codes_pack(&j.by, code[0], code[1]) : code[0];
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
        !mica__codes_complete(&j.by, codes->dtype))
        return REFUSE("requantize: codes is %s, which does not hold codes from %d to %d",
                      mica_dtype_name(codes->dtype), by->low, by->high);
    const st_value sum = add_input(&j, "sums", sums, EACH, -1);
    mica__scaling s = add_scaling(&j, sums, -1);
    mica__scaling_finish(&s, st_none, j.type);
    const st_value code = mica__code_of_sum(&j.by, sum, &s);
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
    mica__scaling s = add_scaling(&j, y, half);
    const st_value global = add_global(&j);
    mica__scaling_finish(&s, global, j.type);
    const st_value code =
        half < 0 ? st_cast(both, j.type) : mica__codes_unpack(by, both, (uint32_t)half, j.type);
    add_output(&j, "y", y, half, mica__value_of(by, code, &s));
    return job_end(&j, encoder, y);
}

mica_status mica_dequantize_codes(mica_encoder *encoder, mica_buffer *codes, const mica_quantizer *by,
                                  mica_buffer *y)
{
    MICA__TRY(check("dequantize_codes", encoder, y, by, codes));
    mica_quantizer own = *by;
    if (!mica__codes_complete(&own, codes->dtype))
        return REFUSE("dequantize_codes: codes is %s, which does not hold codes from %d to %d",
                      mica_dtype_name(codes->dtype), by->low, by->high);
    if (by->packed == 0)
        return dequantize_half(encoder, codes, &own, -1, y);
    MICA__TRY(dequantize_half(encoder, codes, &own, 0, y));
    return dequantize_half(encoder, codes, &own, 1, y);
}

mica_status mica_fake_quantize(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by,
                               mica_buffer *y)
{
    job j;
    MICA__TRY(check("fake_quantize", encoder, x, by, y));
    job_begin(&j, "fake_quantize", real_of(x), by);
    if (!mica__codes_complete_fake(&j.by))
        return REFUSE("fake_quantize: by.packed is 1, but no codes are written");
    const st_value from = add_input(&j, "x", x, EACH, -1);
    mica__scaling s = add_scaling(&j, x, -1);
    const st_value global = add_global(&j);
    mica__scaling_finish(&s, global, j.type);
    add_output(&j, "y", y, -1, mica__value_of(&j.by, mica__code_of(&j.by, from, &s, true), &s));
    return job_end(&j, encoder, x);
}

/* ---- backward ---- */

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
    if (!mica__codes_complete_fake(&j.by))
        return REFUSE("fake_quantize_backward: by.packed is 1, but no codes are written");
    const st_value from = add_input(&j, "x", x, EACH, -1), reaches = add_input(&j, "dy", dy, EACH, -1);
    mica__scaling s = add_scaling(&j, x, -1);
    const st_value global = add_global(&j);
    mica__scaling_finish(&s, global, j.type);
    st_value of_x, of_scale;
    mica__code_slopes(&j.by, straight, from, reaches, &s, dx != NULL ? &of_x : NULL,
                      dscale != NULL ? &of_scale : NULL);
    if (dx != NULL)
        add_output(&j, "dx", dx, -1, of_x);
    if (dscale != NULL)
        add_output(&j, "dscale", dscale, -1, of_scale);
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
    if (!mica__codes_complete_fake(&j.by))
        return REFUSE("quantize_scales: by.packed is 1, but no codes are written");
    if (j.by.high <= 0)
        return REFUSE("quantize_scales: by.high is %d, not above 0", j.by.high);
    MICA__TRY(reduce_blocks(encoder, by->biases != NULL ? MICA_REDUCE_MAX : MICA_REDUCE_MAX_ABS, x, by,
                            by->scales));
    if (by->biases != NULL)
        MICA__TRY(reduce_blocks(encoder, MICA_REDUCE_MIN, x, by, by->biases));
    j.by.block = 0; /* the rest is of scales alone */
    const st_value most = add_input(&j, "by.scales", by->scales, EACH, -1);
    if (by->biases == NULL) {
        add_output(&j, "by.scales", by->scales, -1, mica__scale_of_most(&j.by, most));
        return job_end(&j, encoder, x);
    }
    const st_value least = add_input(&j, "by.biases", by->biases, EACH, -1);
    st_value scale, bias;
    mica__scale_of_ends(&j.by, most, least, &scale, &bias);
    add_output(&j, "by.scales", by->scales, -1, scale);
    add_output(&j, "by.biases", by->biases, -1, bias);
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
    add_output(&j, "state", state, -1, mica__scale_that_follows(before, now, decay));
    return job_end(&j, encoder, scales);
}
