/* fourier.c - Fourier transforms, and what is made of them and of regions. */
#include "device/objects.h"
#include "ops/check.h"

#define MOST_POINTS ((uint64_t)1 << 28)
#define ULL(x) ((unsigned long long)(x))

/* Whether x or y of a transform is complex. */
static bool is_complex(uint32_t kind, bool of_y)
{
    return kind == MICA_FFT_COMPLEX || (kind == MICA_FFT_REAL) == of_y;
}

/* Dimensions without that of the pairs of f64; complains of a type that is not what the kind says. */
static uint32_t take_type(mica__op_builder *op, uint32_t slot, bool complex, bool wide)
{
    const mica__operand *o = &op->record.operand[slot];
    const uint32_t wanted = wide ? MICA_DTYPE_F64 : complex ? MICA_DTYPE_C64 : MICA_DTYPE_F32;
    const char *name = mica__op_argument(op, slot);
    mica__op_require(op, o->dtype == wanted,
                     "%s is %s, not %s as params.kind has it beside the other operand", name,
                     mica_dtype_name((mica_dtype)o->dtype), mica_dtype_name((mica_dtype)wanted));
    if (o->ndim == MICA_RANK_UNKNOWN || !wide || !complex)
        return o->ndim;
    mica__op_require(op, o->ndim > 0 && mica__sizes_agree(o->shape[o->ndim - 1], 2),
                     "%s is f64 and complex: its last dimension is to be 2", name);
    return o->ndim > 0 ? o->ndim - 1u : 0;
}

/* The size of y along the axis: n / 2 + 1 of n, n of n / 2 + 1, or n. */
static uint64_t points_of_y(mica__op_builder *op, const mica_fft_params *params, uint64_t n, uint32_t at)
{
    if (!mica__size_known(n))
        return MICA_SIZE_UNKNOWN;
    mica__op_require(op, n >= 1 && n <= MOST_POINTS, "x: shape[%u] is %llu, not from 1 to 2^28", at, ULL(n));
    if (params->kind != MICA_FFT_HERMITIAN)
        return params->kind == MICA_FFT_REAL ? n / 2 + 1 : n;
    const uint64_t even = n > 1 ? 2 * (n - 1) : 1, length = params->length != 0 ? params->length : even;
    mica__op_require(op, length / 2 + 1 == n && length <= MOST_POINTS,
                     "params.length is %u, but x has %llu numbers along the axis, not %llu", params->length,
                     ULL(n), ULL(length / 2 + 1));
    return length;
}

void mica__rule_fft(mica__op_builder *op)
{
    const mica_fft_params *params = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__FFT_X];
    mica__operand *y = &op->record.operand[MICA__FFT_Y];
    mica__op_require(op, params->kind <= MICA_FFT_HERMITIAN, "params.kind is %u, which is no mica_fft_kind",
                     params->kind);
    mica__op_require(op, params->inverse <= 1, "params.inverse is %u, not 0 or 1", params->inverse);
    mica__op_require(op, params->norm <= MICA_FFT_FORWARD, "params.norm is %u, which is no mica_fft_norm",
                     params->norm);
    mica__op_require(op, params->length == 0 || params->kind == MICA_FFT_HERMITIAN,
                     "params.length is %u, but only HERMITIAN transforms have one", params->length);
    if (!mica__op_ok(op))
        return;
    const bool wide = x->dtype == MICA_DTYPE_F64, to_complex = is_complex(params->kind, true);
    const uint32_t ndim = take_type(op, MICA__FFT_X, is_complex(params->kind, false), wide);
    if (y->ndim == MICA_RANK_UNKNOWN) /* its type is asked for too */
        y->dtype = wide ? MICA_DTYPE_F64 : to_complex ? MICA_DTYPE_C64 : MICA_DTYPE_F32;
    take_type(op, MICA__FFT_Y, to_complex, wide);
    mica__op_require(op, params->axis < ndim, "params.axis is %u, but x has %u dimensions", params->axis,
                     ndim);
    mica__op_require(op, ndim + (wide && to_complex) <= MICA_MAX_DIMS, "x has %u dimensions, y would have %u",
                     ndim, ndim + 1);
    if (!mica__op_ok(op))
        return;
    uint64_t shape[MICA_MAX_DIMS] = {0};
    const uint32_t at = ndim - 1 - params->axis;
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = x->shape[d];
    shape[at] = points_of_y(op, params, shape[at], at);
    if (wide && to_complex)
        shape[ndim] = 2;
    if (mica__op_ok(op))
        mica__op_shape(op, MICA__FFT_Y, ndim + (wide && to_complex), shape);
}

mica_status mica_fft(mica_encoder *encoder, mica_buffer *x, const mica_fft_params *params, mica_buffer *y)
{
    mica_fft_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_FFT, &record, (mica_buffer *const[]){x, y});
}

/* Complex transforms from `from` to `to` along the axes of the mask, the first of them from one to the other, the rest in place. */
static mica_status along_axes(mica_encoder *encoder, mica_buffer *from, const mica_fft_params *params,
                              uint32_t axes, mica_buffer *to)
{
    mica_fft_params one = *params;
    one.kind = MICA_FFT_COMPLEX;
    one.length = 0;
    for (; axes != 0; axes &= axes - 1) {
        one.axis = (uint32_t)__builtin_ctz(axes);
        MICA__TRY(mica_fft(encoder, from, &one, to));
        from = to;
    }
    return MICA_OK;
}

mica_status mica_fft_axes(mica_encoder *encoder, mica_buffer *x, const mica_fft_params *params, uint32_t axes,
                          mica_buffer *work, mica_buffer *y)
{
    mica_fft_params record = {0};
    if (params != NULL)
        record = *params;
    if (axes == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "fft_axes: axes is 0: there is no axis");
    if (axes >> MICA_MAX_DIMS != 0 || (x != NULL && axes >> x->ndim != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "fft_axes: axes is 0x%x, but x has %u dimensions", axes,
                          x != NULL ? x->ndim : MICA_MAX_DIMS);
    if (record.kind == MICA_FFT_COMPLEX)
        return along_axes(encoder, x, &record, axes, y);
    const uint32_t last = axes & ~(axes - 1), rest = axes & (axes - 1);
    record.axis = (uint32_t)__builtin_ctz(last);
    if (record.kind != MICA_FFT_HERMITIAN) {
        MICA__TRY(mica_fft(encoder, x, &record, y));
        return along_axes(encoder, y, &record, rest, y);
    }
    if (rest != 0 && work == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "fft_axes: work is NULL, which several axes of a HERMITIAN transform need");
    MICA__TRY(along_axes(encoder, x, &record, rest, work));
    return mica_fft(encoder, rest != 0 ? work : x, &record, y);
}
