/*
 * ops_elementwise.c - operators element by element: functions of one value and of two, choices, casts.
 */
#include <math.h>
#include <string.h>

#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

static mica_dtype dtype_of(const mica__ox_op *o, mica_tensor x)
{
    return mica__ox_type(o, x).dtype;
}

static bool is_whole(mica_dtype dtype)
{
    const mica_register reg = mica_register_of(dtype);
    return reg != MICA_REGISTER_F32 && reg != MICA_REGISTER_F64;
}

static bool is_unsigned(mica_dtype dtype)
{
    const mica_register reg = mica_register_of(dtype);
    return reg == MICA_REGISTER_U32 || reg == MICA_REGISTER_U64 || reg == MICA_REGISTER_BOOL;
}

/* ---- one value ------------------------------------------------------------------------------------------ */

mica_status mica__ox_unary(mica__ox_op *o)
{
    mica_scalar scalar = (mica_scalar)o->row->argument;
    mica_tensor x = mica__ox_in(o, 0);
    const mica_dtype dtype = dtype_of(o, x);
    if (is_unsigned(dtype) && (scalar == MICA_SCALAR_ABS || scalar == MICA_SCALAR_RELU)) {
        mica__ox_out(o, 0, x);
        return MICA_OK;
    }
    if (is_unsigned(dtype) && scalar == MICA_SCALAR_SIGN)
        mica__ox_out(o, 0, mica__ox_scalar(o, MICA_SCALAR_MIN, x, mica__ox_number(o, x, 1)));
    else if (is_whole(dtype) && (scalar == MICA_SCALAR_FLOOR || scalar == MICA_SCALAR_CEIL))
        mica__ox_out(o, 0, x);
    else
        mica__ox_out(o, 0, mica__ox_scalar(o, scalar, x, 0));
    return MICA_OK;
}

mica_status mica__ox_identity(mica__ox_op *o)
{
    if (!mica__ox_has(o, 0) || o->output_count == 0)
        return mica__ox_fail(o, "without an input or an output");
    o->out[0] = o->in[0];
    return MICA_OK;
}

mica_status mica__ox_is_inf(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const bool negative = mica__ox_int(o, "detect_negative", 1) != 0;
    const bool positive = mica__ox_int(o, "detect_positive", 1) != 0;
    mica_tensor y = mica__ox_scalar(o, MICA_SCALAR_ISINF, x, 0);
    if (!negative)
        y = mica__ox_scalar(o, MICA_SCALAR_BIT_AND, y,
                            mica__ox_scalar(o, MICA_SCALAR_GREATER, x, mica__ox_number(o, x, 0)));
    if (!positive)
        y = mica__ox_scalar(o, MICA_SCALAR_BIT_AND, y,
                            mica__ox_scalar(o, MICA_SCALAR_LESS, x, mica__ox_number(o, x, 0)));
    mica__ox_out(o, 0, y);
    return MICA_OK;
}

/* y = x > 0 ? yes : no */
static mica_tensor where_positive(const mica__ox_op *o, mica_tensor x, mica_tensor yes, mica_tensor no)
{
    return mica__ox_select(o, mica__ox_scalar(o, MICA_SCALAR_GREATER, x, mica__ox_number(o, x, 0)), yes, no);
}

static mica_tensor scaled(const mica__ox_op *o, mica_tensor x, double by)
{
    return mica__ox_scalar(o, MICA_SCALAR_MUL, x, mica__ox_number(o, x, by));
}

/* Arithmetic of 16-bit floats goes through f32, so that only the result is rounded. */
static mica_tensor widened(const mica__ox_op *o, mica_tensor x)
{
    const mica_dtype dtype = dtype_of(o, x);
    return dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16 ? mica__ox_cast(o, x, MICA_DTYPE_F32) : x;
}

mica_status mica__ox_elu(mica__ox_op *o) /* Elu, Selu, Celu */
{
    enum { ELU, SELU, CELU };
    const mica_dtype dtype = dtype_of(o, mica__ox_in(o, 0));
    const mica_tensor x = widened(o, mica__ox_in(o, 0));
    const double alpha =
        (double)mica__ox_float(o, "alpha", o->row->argument == SELU ? 1.67326319217681884765625f : 1);
    const double gamma =
        o->row->argument == SELU ? (double)mica__ox_float(o, "gamma", 1.05070102214813232421875f) : 1;
    const mica_tensor inner =
        o->row->argument == CELU ? mica__ox_scalar(o, MICA_SCALAR_DIV, x, mica__ox_number(o, x, alpha)) : x;
    const mica_tensor low = scaled(o, mica__ox_scalar(o, MICA_SCALAR_EXPM1, inner, 0), alpha);
    mica_tensor y = where_positive(o, x, x, low);
    if (o->row->argument == SELU)
        y = scaled(o, y, gamma);
    mica__ox_out(o, 0, mica__ox_cast(o, y, dtype));
    return MICA_OK;
}

mica_status mica__ox_leaky(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const double alpha = (double)mica__ox_float(o, "alpha", 0.01f);
    mica__ox_out(o, 0, where_positive(o, x, x, scaled(o, x, alpha)));
    return MICA_OK;
}

mica_status mica__ox_prelu(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica_tensor low = mica__ox_scalar(o, MICA_SCALAR_MUL, x, mica__ox_in(o, 1));
    mica__ox_out(
        o, 0, mica__ox_select(o, mica__ox_scalar(o, MICA_SCALAR_LESS, x, mica__ox_number(o, x, 0)), low, x));
    return MICA_OK;
}

mica_status mica__ox_thresholded(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica_tensor above = mica__ox_scalar(o, MICA_SCALAR_GREATER, x,
                                              mica__ox_number(o, x, (double)mica__ox_float(o, "alpha", 1)));
    mica__ox_out(o, 0, mica__ox_select(o, above, x, mica__ox_number(o, x, 0)));
    return MICA_OK;
}

mica_status mica__ox_shrink(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const double lambd = (double)mica__ox_float(o, "lambd", 0.5f),
                 bias = (double)mica__ox_float(o, "bias", 0);
    const mica_tensor low = mica__ox_scalar(o, MICA_SCALAR_LESS, x, mica__ox_number(o, x, -lambd));
    const mica_tensor high = mica__ox_scalar(o, MICA_SCALAR_GREATER, x, mica__ox_number(o, x, lambd));
    const mica_tensor down = mica__ox_scalar(o, MICA_SCALAR_SUB, x, mica__ox_number(o, x, bias));
    const mica_tensor up = mica__ox_scalar(o, MICA_SCALAR_ADD, x, mica__ox_number(o, x, bias));
    mica__ox_out(o, 0, mica__ox_select(o, low, up, mica__ox_select(o, high, down, mica__ox_number(o, x, 0))));
    return MICA_OK;
}

static mica_tensor clamped(const mica__ox_op *o, mica_tensor x, double low, double high)
{
    x = mica__ox_scalar(o, MICA_SCALAR_MAX, x, mica__ox_number(o, x, low));
    return mica__ox_scalar(o, MICA_SCALAR_MIN, x, mica__ox_number(o, x, high));
}

mica_status mica__ox_hard_sigmoid(mica__ox_op *o)
{
    const mica_dtype dtype = dtype_of(o, mica__ox_in(o, 0));
    const mica_tensor x = widened(o, mica__ox_in(o, 0));
    const double alpha = (double)mica__ox_float(o, "alpha", 0.2f),
                 beta = (double)mica__ox_float(o, "beta", 0.5f);
    const mica_tensor y =
        mica__ox_scalar(o, MICA_SCALAR_ADD, scaled(o, x, alpha), mica__ox_number(o, x, beta));
    mica__ox_out(o, 0, mica__ox_cast(o, clamped(o, y, 0, 1), dtype));
    return MICA_OK;
}

mica_status mica__ox_gelu(mica__ox_op *o) /* Gelu, and com.microsoft's, which is exact */
{
    static const char *const words[] = {"none", "tanh", NULL};
    const uint32_t kind = mica__ox_word(o, "approximate", 0, words);
    if (kind == UINT32_MAX)
        return mica__ox_fail(o, "attribute \"approximate\" is neither \"none\" nor \"tanh\"");
    mica__ox_out(
        o, 0, mica__ox_scalar(o, kind == 0 ? MICA_SCALAR_GELU_ERF : MICA_SCALAR_GELU, mica__ox_in(o, 0), 0));
    return MICA_OK;
}

/* BiasGelu and FastGelu of com.microsoft: gelu(x + bias). */
mica_status mica__ox_bias_gelu(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0);
    if (mica__ox_has(o, 1))
        x = mica__ox_scalar(o, MICA_SCALAR_ADD, x, mica__ox_in(o, 1));
    mica__ox_out(o, 0, mica__ox_scalar(o, (mica_scalar)o->row->argument, x, 0));
    return MICA_OK;
}

/* x sigmoid(alpha x): Swish, QuickGelu. */
mica_status mica__ox_swish(mica__ox_op *o)
{
    const mica_dtype dtype = dtype_of(o, mica__ox_in(o, 0));
    const mica_tensor x = widened(o, mica__ox_in(o, 0));
    const float alpha = mica__ox_float(o, "alpha", o->row->argument == 0 ? 1.0f : 1.702f);
    const mica_tensor gate =
        mica__ox_scalar(o, MICA_SCALAR_SIGMOID, alpha == 1.0f ? x : scaled(o, x, (double)alpha), 0);
    mica__ox_out(o, 0, mica__ox_cast(o, mica__ox_scalar(o, MICA_SCALAR_MUL, x, gate), dtype));
    return MICA_OK;
}

mica_status mica__ox_clip(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0);
    if (mica__ox_has(o, 1))
        x = mica__ox_scalar(o, MICA_SCALAR_MAX, x, mica__ox_in(o, 1));
    if (mica__ox_has(o, 2))
        x = mica__ox_scalar(o, MICA_SCALAR_MIN, x, mica__ox_in(o, 2));
    mica__ox_out(o, 0, x);
    return MICA_OK;
}

/* ---- two values ----------------------------------------------------------------------------------------- */

mica_status mica__ox_binary(mica__ox_op *o)
{
    mica__ox_out(o, 0,
                 mica__ox_scalar(o, (mica_scalar)o->row->argument, mica__ox_in(o, 0), mica__ox_in(o, 1)));
    return MICA_OK;
}

mica_status mica__ox_mod(mica__ox_op *o)
{
    const bool fmod = mica__ox_int(o, "fmod", 0) != 0;
    mica__ox_out(
        o, 0,
        mica__ox_scalar(o, fmod ? MICA_SCALAR_REM : MICA_SCALAR_MOD, mica__ox_in(o, 0), mica__ox_in(o, 1)));
    return MICA_OK;
}

/* base^exponent of integers by squaring, for exponents from 0 to 63; of others the result is 0, as of integers it wraps. */
static mica_tensor whole_power(const mica__ox_op *o, mica_tensor base, mica_tensor exponent)
{
    mica_tensor y = mica__ox_number(o, base, 1), square = base, left = exponent;
    const mica_tensor zero = mica__ox_number(o, left, 0), two = mica__ox_number(o, left, 2);
    for (uint32_t bit = 0; bit < 6; bit++) {
        const mica_tensor odd =
            mica__ox_scalar(o, MICA_SCALAR_NOT_EQUAL, mica__ox_scalar(o, MICA_SCALAR_REM, left, two), zero);
        y = mica__ox_select(o, odd, mica__ox_scalar(o, MICA_SCALAR_MUL, y, square), y);
        square = mica__ox_scalar(o, MICA_SCALAR_MUL, square, square);
        left = mica__ox_scalar(o, MICA_SCALAR_DIV, left, two);
    }
    return y;
}

mica_status mica__ox_pow(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0), e = mica__ox_in(o, 1);
    const mica_dtype dtype = dtype_of(o, x), power = dtype_of(o, e);
    if (is_whole(dtype) && is_whole(power)) {
        const mica__ox_host *host = mica__ox_known(o, 1);
        for (uint64_t i = 0; host != NULL && i < host->elements; i++)
            if (mica__ox_host_int(host, i) < 0 || mica__ox_host_int(host, i) > 63)
                return mica__ox_fail(o, "exponent %lld of an integer", (long long)mica__ox_host_int(host, i));
        if (host == NULL)
            return mica__ox_fail(o, "input \"%.100s\", exponents of integers, must be known while importing",
                                 o->node->input[1]);
        mica__ox_out(o, 0, whole_power(o, x, mica__ox_cast(o, e, dtype)));
        return MICA_OK;
    }
    if (!is_whole(dtype) && mica__ox_known(o, 1) != NULL && mica__ox_known(o, 1)->elements == 1 &&
        mica__ox_host_number(mica__ox_known(o, 1), 0) == 2) {
        mica__ox_out(o, 0, mica__ox_scalar(o, MICA_SCALAR_SQUARE, x, 0));
        return MICA_OK;
    }
    const mica_dtype wide = is_whole(dtype) || dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const mica_tensor y =
        mica__ox_scalar(o, MICA_SCALAR_POW, mica__ox_cast(o, x, wide), mica__ox_cast(o, e, wide));
    mica__ox_out(o, 0, mica__ox_cast(o, y, dtype));
    return MICA_OK;
}

mica_status mica__ox_shift(mica__ox_op *o)
{
    static const char *const words[] = {"LEFT", "RIGHT", NULL};
    const uint32_t way = mica__ox_word(o, "direction", UINT32_MAX, words);
    if (way == UINT32_MAX)
        return mica__ox_fail(o, "attribute \"direction\" is neither \"LEFT\" nor \"RIGHT\"");
    mica__ox_out(o, 0,
                 mica__ox_scalar(o, way == 0 ? MICA_SCALAR_SHIFT_LEFT : MICA_SCALAR_SHIFT_RIGHT,
                                 mica__ox_in(o, 0), mica__ox_in(o, 1)));
    return MICA_OK;
}

/* Max, Min, Sum, Mean of any number of tensors. */
mica_status mica__ox_variadic(mica__ox_op *o)
{
    const bool mean = o->row->argument == MICA_SCALAR_NONE;
    mica_tensor y = mica__ox_in(o, 0);
    if (o->input_count == 0)
        return mica__ox_fail(o, "has no inputs");
    for (uint32_t i = 1; i < o->input_count; i++)
        y = mica__ox_scalar(o, mean ? MICA_SCALAR_ADD : (mica_scalar)o->row->argument, y, mica__ox_in(o, i));
    if (mean)
        y = mica__ox_scalar(o, MICA_SCALAR_DIV, y, mica__ox_number(o, y, o->input_count));
    mica__ox_out(o, 0, y);
    return MICA_OK;
}

mica_status mica__ox_where(mica__ox_op *o)
{
    mica__ox_out(o, 0, mica__ox_select(o, mica__ox_in(o, 0), mica__ox_in(o, 1), mica__ox_in(o, 2)));
    return MICA_OK;
}

/* ---- types ---------------------------------------------------------------------------------------------- */

/* ONNX saturates where a type of 8 bits cannot hold a number, unless it is told otherwise. */
static mica_tensor saturated(const mica__ox_op *o, mica_tensor x, mica_dtype dtype)
{
    const double most = dtype == MICA_DTYPE_F8_E4M3 ? 448.0 : 57344.0;
    return clamped(o, mica__ox_cast(o, x, MICA_DTYPE_F32), -most, most);
}

static mica_status cast_to(mica__ox_op *o, mica_dtype dtype, bool saturate)
{
    mica_tensor x = mica__ox_in(o, 0);
    const mica_dtype from = dtype_of(o, x);
    if ((dtype == MICA_DTYPE_F8_E4M3 || dtype == MICA_DTYPE_F8_E5M2) && from != dtype) {
        if (!saturate)
            return mica__ox_fail(o, "casts to %s that do not saturate", mica_dtype_name(dtype));
        x = saturated(o, x, dtype);
    }
    if (dtype == MICA_DTYPE_E8M0 || from == MICA_DTYPE_E8M0)
        return mica__ox_fail(o, "casts of float8e8m0");
    mica__ox_out(o, 0, mica__ox_cast(o, x, dtype));
    return MICA_OK;
}

mica_status mica__ox_cast_op(mica__ox_op *o)
{
    static const char *const words[] = {"up", NULL};
    const mica_dtype dtype = mica__ox_dtype(o, mica__ox_int(o, "to", 0));
    const bool saturate = mica__ox_int(o, "saturate", 1) != 0;
    (void)mica__ox_word(o, "round_mode", 0, words); /* of float8e8m0 alone */
    return dtype == MICA_DTYPE_NONE ? MICA_ERR_UNSUPPORTED : cast_to(o, dtype, saturate);
}

mica_status mica__ox_cast_like(mica__ox_op *o)
{
    static const char *const words[] = {"up", NULL};
    const bool saturate = mica__ox_int(o, "saturate", 1) != 0;
    (void)mica__ox_word(o, "round_mode", 0, words);
    return cast_to(o, mica__ox_in_type(o, 1).dtype, saturate);
}

mica_status mica__ox_bit_cast(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica_dtype dtype = mica__ox_dtype(o, mica__ox_int(o, "to", 0));
    if (dtype == MICA_DTYPE_NONE)
        return MICA_ERR_UNSUPPORTED;
    const mica_dtype from = dtype_of(o, x);
    if (dtype == MICA_DTYPE_BOOL && from != dtype) { /* a byte that is 0 or 1; with any bit set it holds */
        if (mica_dtype_block_bytes(from) != 1 || x == 0)
            return mica__ox_fail(o, "from %s to bool", mica_dtype_name(from));
        const mica_tensor byte = mica_graph_bits(o->graph, x, MICA_DTYPE_U8);
        mica__ox_out(o, 0, mica__ox_cast(o, byte, dtype));
        return MICA_OK;
    }
    if (from == MICA_DTYPE_BOOL && dtype != from) {
        if (mica_dtype_block_bytes(dtype) != 1)
            return mica__ox_fail(o, "from bool to %s", mica_dtype_name(dtype));
        const mica_tensor byte = mica__ox_cast(o, x, MICA_DTYPE_U8);
        mica__ox_out(o, 0, byte == 0 ? 0 : mica_graph_bits(o->graph, byte, dtype));
        return MICA_OK;
    }
    mica__ox_out(o, 0, mica_graph_bits(o->graph, x, dtype));
    return MICA_OK;
}

/* Dropout of inference: x, and a mask of ones. */
mica_status mica__ox_dropout(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    int64_t training = 0;
    double ratio = 0.5;
    (void)mica__ox_int(o, "seed", 0);
    if (o->version < 12) /* trains where the model is trained */
        (void)mica__ox_float(o, "ratio", 0.5f);
    if (mica__ox_has(o, 2))
        MICA__TRY(mica__ox_need_int(o, 2, &training));
    if (training != 0 && mica__ox_has(o, 1))
        MICA__TRY(mica__ox_need_number(o, 1, &ratio));
    if (training != 0 && ratio != 0)
        return mica__ox_fail(o, "training_mode with a ratio above 0");
    mica__ox_out(o, 0, x);
    const mica__type type = mica__ox_type(o, x);
    if (mica__ox_wants(o, 1))
        mica__ox_out(o, 1, mica__ox_expand_like(o, mica_graph_number(o->graph, MICA_DTYPE_BOOL, 1), &type));
    return MICA_OK;
}
