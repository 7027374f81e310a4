/* random.c - random numbers: regions over the step `random`, whose counter is the place of the element. */
#include "base/half.h"
#include "device/hazard.h"
#include "device/objects.h"
#include "ops/draws.h"

#define ULL(x) ((unsigned long long)(x))

/* A region that is being written: the op's own input, if it has one, then seed and offset of the state, if there is one. */
typedef struct draw {
    const char *call;
    mica__steps steps;
    mica_buffer *input[3];
    const char *name[3];
    mica_buffer *state[2];  /* views that the draw owns */
    mica__region_room room; /* last: its steps have no end */
} draw;

st_value mica__draw_word(mica__steps *steps, uint64_t word)
{
    mica_region_step step;
    memset(&step, 0, sizeof step);
    step.scalar = MICA_SCALAR_CONSTANT;
    step.type = MICA_REGISTER_U64;
    memset(step.value, MICA_REGION_NONE, sizeof step.value);
    step.constant.u64 = word;
    return st_add_step(steps, &step);
}

static st_value shift_right(st_value a, uint32_t bits)
{
    return st_shift_right(a, mica__draw_word(a.of, bits));
}

st_value mica__draw_place(mica__steps *steps, uint32_t ndim, const uint64_t *shape)
{
    st_value place = st_none;
    uint64_t below = 1;
    for (uint32_t d = ndim; d-- > 0; below *= shape[d]) {
        if (shape[d] == 1)
            continue;
        st_value term = st_index(steps, MICA_REGISTER_U64, (uint8_t)(ndim - 1 - d));
        if (below != 1)
            term = st_mul(term, mica__draw_word(steps, below));
        place = place.of == NULL ? term : st_add(place, term);
    }
    return place.of == NULL ? mica__draw_word(steps, 0) : place;
}

static mica_status take_state(draw *d, mica_buffer *state)
{
    if (state->dtype != MICA_DTYPE_U64 || state->ndim != 1 || state->shape[0] != 2)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: random.state is %s with %u dimensions, not u64 [2]",
                          d->call, mica_dtype_name(state->dtype), state->ndim);
    MICA__TRY(mica_buffer_slice(state, 0, 0, 1, &d->state[0]));
    return mica_buffer_slice(state, 0, 1, 1, &d->state[1]);
}

static void add_input(draw *d, const char *name, mica_buffer *buffer, mica_register type)
{
    mica__region_program *program = &d->room.program;
    d->input[program->input_count] = buffer;
    d->name[program->input_count] = name;
    program->input[program->input_count++] = (uint8_t)type;
}

/* Begins the region of y, with the op's own input or NULL, and gives the 64 bits of each element. What is NULL beside y is found where all
 * operands are looked at. Ends with mica_status of `finish`, also after a failure. */
static mica_status begin(draw *d, const char *call, const mica_random *random, const char *name,
                         mica_buffer *input, mica_register type, const mica_buffer *y, st_value *out_bits)
{
    static const mica_random zero = {0, 0, NULL};
    memset(d, 0, sizeof *d);
    d->call = call;
    if (y == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: y is NULL", call);
    if (random == NULL)
        random = &zero;
    mica__region_begin(&d->room.program, 0, 1);
    if (name != NULL)
        add_input(d, name, input, type);
    const uint32_t first = d->room.program.input_count;
    if (random->state != NULL) {
        MICA__TRY(take_state(d, random->state));
        add_input(d, "random.state", d->state[0], MICA_REGISTER_U64);
        add_input(d, "random.state", d->state[1], MICA_REGISTER_U64);
    }
    d->steps = (mica__steps){.program = &d->room.program, .room = MICA_REGION_STEPS};
    st_value seed = mica__draw_word(&d->steps, random->seed),
             offset = mica__draw_word(&d->steps, random->offset);
    if (random->state != NULL) {
        seed = st_add(seed, st_input(&d->steps, first));
        offset = st_add(offset, st_input(&d->steps, first + 1));
    }
    *out_bits = st_step(MICA_SCALAR_RANDOM, MICA_REGISTER_U64,
                        st_add(mica__draw_place(&d->steps, y->ndim, y->shape), offset), seed, st_none);
    return MICA_OK;
}

static mica_status finish(draw *d, mica_status status, mica_encoder *encoder, bool equal_shapes, st_value y,
                          mica_buffer *out)
{
    static const char *const outputs[] = {"y"};
    const mica__region_names names = {d->call, d->name, outputs};
    if (status == MICA_OK) {
        d->room.program.output[0] = y.at;
        status = mica__region_add(encoder, &names, &d->room.program, d->input, equal_shapes, &out);
    }
    mica_buffer_release(d->state[0]);
    mica_buffer_release(d->state[1]);
    return status;
}

static mica_register register_of(const mica_buffer *buffer)
{
    return buffer != NULL ? mica__register_of(buffer->dtype) : MICA_REGISTER_NONE;
}

/* ---- bits and whole numbers ---- */

static bool is_whole(mica_dtype dtype)
{
    return (MICA__SET_INTEGER >> mica__register_of(dtype) & 1) != 0;
}

static mica_status check_whole(const char *call, const mica_buffer *y)
{
    if (y != NULL && !is_whole(y->dtype))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: y is %s, not an integer type", call,
                          mica_dtype_name(y->dtype));
    return MICA_OK;
}

mica_status mica_random_bits(mica_encoder *encoder, const mica_random *random, mica_buffer *y)
{
    draw d;
    st_value bits = st_none;
    MICA__TRY(check_whole("random_bits", y));
    const mica_status status = begin(&d, "random_bits", random, NULL, NULL, MICA_REGISTER_NONE, y, &bits);
    if (bits.of != NULL)
        bits = st_cast(bits, register_of(y));
    return finish(&d, status, encoder, false, bits, y);
}

/* Whether the type holds low and all up to high - 1. */
static bool holds(mica_dtype dtype, int64_t low, int64_t last)
{
    const uint32_t bits = 8 * mica_dtype_block_bytes(dtype), type = mica__register_of(dtype);
    if (type == MICA_REGISTER_I32 || type == MICA_REGISTER_I64)
        return low >= INT64_MIN >> (64 - bits) && last <= INT64_MAX >> (64 - bits);
    return low >= 0 && (bits == 64 || last < (int64_t)1 << bits);
}

mica_status mica__draw_whole_check(const char *who, mica_dtype dtype, int64_t low, int64_t high)
{
    const uint64_t count = (uint64_t)high - (uint64_t)low;
    if (high <= low || count > (uint64_t)1 << 32)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: high is %lld and low %lld: not 1 to 2^32 numbers",
                          who, (long long)high, (long long)low);
    if (!is_whole(dtype) || !holds(dtype, low, high - 1))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: low %lld or high %lld does not fit %s", who,
                          (long long)low, (long long)high, mica_dtype_name(dtype));
    return MICA_OK;
}

/* The upper half of the product of 96 bits, and nothing of it overflows. */
st_value mica__draw_whole(st_value bits, int64_t low, int64_t high, mica_register type)
{
    const uint64_t count = (uint64_t)high - (uint64_t)low;
    const st_value n = mica__draw_word(bits.of, count),
                   lower = st_mul(st_bit_and(bits, mica__draw_word(bits.of, UINT32_MAX)), n),
                   upper = st_mul(shift_right(bits, 32), n);
    const st_value number = shift_right(st_add(upper, shift_right(lower, 32)), 32);
    return st_cast(st_add(number, mica__draw_word(bits.of, (uint64_t)low)), type);
}

mica_status mica_random_integers(mica_encoder *encoder, int64_t low, int64_t high, const mica_random *random,
                                 mica_buffer *y)
{
    draw d;
    st_value bits = st_none;
    MICA__TRY(check_whole("random_integers", y));
    MICA__TRY(mica__draw_whole_check("random_integers", y != NULL ? y->dtype : MICA_DTYPE_I64, low, high));
    const mica_status status = begin(&d, "random_integers", random, NULL, NULL, MICA_REGISTER_NONE, y, &bits);
    if (bits.of != NULL)
        bits = mica__draw_whole(bits, low, high, register_of(y));
    return finish(&d, status, encoder, false, bits, y);
}

/* ---- floats ---- */

/* Digits of a real type; 0: it is none. */
static uint32_t digits_of(mica_dtype dtype)
{
    switch (dtype) {
    case MICA_DTYPE_F32: return 24;
    case MICA_DTYPE_F16: return 11;
    case MICA_DTYPE_BF16: return 8;
    case MICA_DTYPE_F64: return 53;
    default: return 0;
    }
}

static mica_status check_real(const char *call, const char *name, const mica_buffer *buffer)
{
    if (buffer != NULL && digits_of(buffer->dtype) == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is %s, not f32, f16, bf16 or f64", call, name,
                          mica_dtype_name(buffer->dtype));
    return MICA_OK;
}

static mica_register real_of(const mica_buffer *buffer)
{
    return buffer != NULL && buffer->dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
}

static float from_half(mica_dtype dtype, uint16_t code)
{
    return dtype == MICA_DTYPE_F16 ? mica__f16_to_f32(code) : mica__bf16_to_f32(code);
}

/* The number of the type next to `value` that is not below it, or, `under`, the greatest that is below. */
static double beside(mica_dtype dtype, double value, bool under)
{
    const float near = (float)value;
    if (dtype == MICA_DTYPE_F64)
        return under ? nextafter(value, -INFINITY) : value;
    if (dtype == MICA_DTYPE_F32) {
        if (under)
            return (double)near < value ? (double)near : (double)nextafterf(near, -INFINITY);
        return (double)near >= value ? (double)near : (double)nextafterf(near, INFINITY);
    }
    uint16_t code = dtype == MICA_DTYPE_F16 ? mica__f32_to_f16(near) : mica__f32_to_bf16(near);
    const double found = (double)from_half(dtype, code);
    const bool negative = (code & 0x8000) != 0, zero = (code & 0x7fff) == 0;
    if (under && found >= value)
        code = zero ? 0x8001 : (uint16_t)(code + (negative ? 1 : -1));
    else if (!under && found < value)
        code = zero ? 0x0001 : (uint16_t)(code + (negative ? -1 : 1));
    return (double)from_half(dtype, code);
}

/* The upper `digits` bits as a number of [0, 1). */
static st_value fraction(st_value bits, uint32_t digits, mica_register type)
{
    return st_scale(st_cast(shift_right(bits, 64 - digits), type), ldexp(1.0, -(int)digits));
}

mica_status mica__draw_uniform_check(const char *who, mica_dtype dtype, double low, double high)
{
    const bool fits = dtype == MICA_DTYPE_F64 ? isfinite(high - low)
                                              : isfinite((float)low) && isfinite((float)(high - low));
    if (!(low < high) || !fits)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "%s: low is %g and high %g, not finite and one below the other", who, low, high);
    if (!(beside(dtype, low, false) <= beside(dtype, high, true)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: no number of %s lies from low %g to below high %g",
                          who, mica_dtype_name(dtype), low, high);
    return MICA_OK;
}

st_value mica__draw_uniform(st_value bits, mica_dtype dtype, double low, double high)
{
    const mica_register type = dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
    const st_value part = fraction(bits, digits_of(dtype), type);
    return st_clamp(st_shift(st_scale(part, high - low), low), beside(dtype, low, false),
                    beside(dtype, high, true));
}

mica_status mica_random_uniform(mica_encoder *encoder, double low, double high, const mica_random *random,
                                mica_buffer *y)
{
    draw d;
    st_value value = st_none;
    const mica_dtype dtype = y != NULL ? y->dtype : MICA_DTYPE_F32;
    MICA__TRY(check_real("random_uniform", "y", y));
    MICA__TRY(mica__draw_uniform_check("random_uniform", dtype, low, high));
    const mica_status status = begin(&d, "random_uniform", random, NULL, NULL, MICA_REGISTER_NONE, y, &value);
    if (value.of != NULL)
        value = mica__draw_uniform(value, dtype, low, high);
    return finish(&d, status, encoder, false, value, y);
}

/* (w + 1/2) 2^-32 of the upper half of the bits. */
static st_value upper_half(st_value bits, mica_register type)
{
    return st_shift(st_scale(st_cast(shift_right(bits, 32), type), 0x1p-32), 0x1p-33);
}

mica_status mica__draw_normal_check(const char *who, mica_register type, double mean, double deviation)
{
    const bool wide = type == MICA_REGISTER_F64;
    if (!(wide ? isfinite(mean) : isfinite((float)mean)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: mean is %g, not finite", who, mean);
    if (!(deviation >= 0.0) || !(wide ? isfinite(deviation) : isfinite((float)deviation)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: deviation is %g, not 0 or above and finite", who,
                          deviation);
    return MICA_OK;
}

st_value mica__draw_normal(st_value bits, mica_register type, double mean, double deviation)
{
    const st_value radius = st_sqrt(st_scale(st_log(upper_half(bits, type)), -2));
    const st_value angle = st_cast(st_cast(bits, MICA_REGISTER_I32), type);
    const st_value z = st_mul(radius, st_cos(st_scale(angle, 6.283185307179586 * 0x1p-32)));
    return st_shift(st_scale(z, deviation), mean);
}

mica_status mica_random_normal(mica_encoder *encoder, double mean, double deviation,
                               const mica_random *random, mica_buffer *y)
{
    draw d;
    st_value value = st_none;
    MICA__TRY(check_real("random_normal", "y", y));
    MICA__TRY(mica__draw_normal_check("random_normal", real_of(y), mean, deviation));
    const mica_status status = begin(&d, "random_normal", random, NULL, NULL, MICA_REGISTER_NONE, y, &value);
    if (value.of != NULL)
        value = mica__draw_normal(value, real_of(y), mean, deviation);
    return finish(&d, status, encoder, false, value, y);
}

/* ---- choices ---- */

st_value mica__draw_chosen(st_value bits, st_value p)
{
    return st_less(fraction(bits, 24, st_type(p)), p);
}

mica_status mica_random_bernoulli(mica_encoder *encoder, mica_buffer *probability, double p,
                                  const mica_random *random, mica_buffer *y)
{
    draw d;
    st_value value = st_none;
    MICA__TRY(check_real("random_bernoulli", "probability", probability));
    if (y != NULL && (mica__register_of(y->dtype) == MICA_REGISTER_NONE || y->dtype == MICA_DTYPE_C64))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "random_bernoulli: y is %s, which it does not take",
                          mica_dtype_name(y->dtype));
    const char *name = probability != NULL ? "probability" : NULL;
    const mica_status status =
        begin(&d, "random_bernoulli", random, name, probability, real_of(probability), y, &value);
    if (value.of != NULL) {
        const st_value part =
            probability != NULL ? st_input(&d.steps, 0) : st_constant(&d.steps, MICA_REGISTER_F32, p);
        value = st_cast(mica__draw_chosen(value, part), register_of(y));
    }
    return finish(&d, status, encoder, false, value, y);
}

mica_status mica__draw_dropout_check(const char *who, double p)
{
    if (!(p >= 0.0 && p <= 1.0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: p is %g, not from 0 to 1", who, p);
    return MICA_OK;
}

st_value mica__draw_dropout(st_value bits, st_value x, double p)
{
    const st_value kept = st_scale(x, p < 1.0 ? 1.0 / (1.0 - p) : 0.0),
                   drop = st_constant(bits.of, MICA_REGISTER_F32, p);
    return st_select(mica__draw_chosen(bits, drop), st_number(kept, 0), kept);
}

mica_status mica_dropout(mica_encoder *encoder, mica_buffer *x, double p, const mica_random *random,
                         mica_buffer *y)
{
    draw d;
    st_value value = st_none;
    MICA__TRY(check_real("dropout", "x", x));
    MICA__TRY(check_real("dropout", "y", y));
    MICA__TRY(mica__draw_dropout_check("dropout", p));
    const mica_status status = begin(&d, "dropout", random, "x", x, real_of(x), y, &value);
    if (value.of != NULL)
        value = mica__draw_dropout(value, st_input(&d.steps, 0), p);
    return finish(&d, status, encoder, true, value, y);
}

/* ---- categories ---- */

/* What argmax would refuse, so that nothing is added then. */
static mica_status check_ids(const mica_buffer *logits, const mica_buffer *work, const mica_buffer *ids)
{
    const mica_buffer *other[2] = {logits, work};
    mica__operand out, in;
    mica__range written, used;
    if (ids->dtype != MICA_DTYPE_U32 && ids->dtype != MICA_DTYPE_I32)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "random_categorical: ids is %s, not u32 or i32",
                          mica_dtype_name(ids->dtype));
    if (ids->ndim + 1 != logits->ndim || ids->storage->device != logits->storage->device || ids->read_only)
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "random_categorical: ids has %u dimensions and logits %u, is read-only or elsewhere", ids->ndim,
            logits->ndim);
    for (uint32_t d = 0; d < ids->ndim; d++)
        if (ids->shape[d] != logits->shape[d] || (ids->stride[d] == 0 && ids->shape[d] > 1))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "random_categorical: shape[%u] of ids is %llu, of logits %llu, or it repeats",
                              d, ULL(ids->shape[d]), ULL(logits->shape[d]));
    mica__operand_from(ids, MICA_ACCESS_WRITE, &out);
    mica__range_of(&out, &written);
    for (uint32_t i = 0; i < 2; i++) {
        mica__operand_from(other[i], MICA_ACCESS_READ, &in);
        mica__range_of(&in, &used);
        if (mica__ranges_overlap(&written, &used))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "random_categorical: ids overlaps %s",
                              i == 0 ? "logits" : "work");
    }
    return MICA_OK;
}

static mica_status check_categorical(const mica_encoder *encoder, const mica_buffer *logits,
                                     const mica_buffer *work, const mica_buffer *ids)
{
    if (encoder == NULL || logits == NULL || work == NULL || ids == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "random_categorical: %s is NULL",
                          encoder == NULL  ? "encoder"
                          : logits == NULL ? "logits"
                          : work == NULL   ? "work"
                                           : "ids");
    MICA__TRY(check_real("random_categorical", "logits", logits));
    if (work->dtype != (logits->dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "random_categorical: work is %s, but logits is %s",
                          mica_dtype_name(work->dtype), mica_dtype_name(logits->dtype));
    if (logits->ndim == 0 || logits->shape[logits->ndim - 1] == 0 ||
        logits->shape[logits->ndim - 1] > UINT32_MAX)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "random_categorical: the rows of logits are not of 1 to 2^32 - 1");
    return check_ids(logits, work, ids);
}

/* log1p: what is near 1 wins, and must be told apart */
st_value mica__draw_gumbel(st_value bits, st_value logit)
{
    const st_value u = st_least(upper_half(bits, st_type(logit)), 1 - 0x1p-24);
    return st_sub(logit, st_log(st_neg(st_log1p(st_neg(u)))));
}

mica_status mica_random_categorical(mica_encoder *encoder, mica_buffer *logits, const mica_random *random,
                                    mica_buffer *work, mica_buffer *ids)
{
    draw d;
    st_value value = st_none;
    MICA__TRY(check_categorical(encoder, logits, work, ids));
    mica_status status =
        begin(&d, "random_categorical", random, "logits", logits, real_of(logits), work, &value);
    if (value.of != NULL)
        value = mica__draw_gumbel(value, st_input(&d.steps, 0));
    status = finish(&d, status, encoder, true, value, work);
    return status == MICA_OK ? mica_argmax(encoder, work, ids) : status;
}
