/*
 * ops_quantize.c - numbers as codes: QuantizeLinear and its like, products of codes, weights of few bits.
 */
#include <string.h>

#include "base/half.h"
#include "base/work.h"
#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

static mica_tensor binary(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return b == 0 ? 0 : mica__ox_scalar(o, scalar, a, b);
}

/* The least and the greatest code of a type; false: not one of codes. */
static bool code_range(mica_dtype dtype, double *low, double *high)
{
    static const struct {
        mica_dtype dtype;
        double low, high;
    } ranges[] = {{MICA_DTYPE_I8, -128, 127},      {MICA_DTYPE_U8, 0, 255},
                  {MICA_DTYPE_I16, -32768, 32767}, {MICA_DTYPE_U16, 0, 65535},
                  {MICA_DTYPE_F8_E4M3, -448, 448}, {MICA_DTYPE_F8_E5M2, -57344, 57344}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].dtype == dtype) {
            *low = ranges[i].low;
            *high = ranges[i].high;
            return true;
        }
    return false;
}

/* Sums of products as codes: round(sums scale) + zero, held inside the type of `zero`. */
mica_tensor mica__ox_requantised(const mica__ox_op *o, mica_tensor sums, mica_tensor scale, mica_tensor zero)
{
    const mica_dtype dtype = mica__ox_type(o, zero).dtype;
    double low = 0, high = 0;
    if (zero == 0 || !code_range(dtype, &low, &high))
        return 0;
    mica_tensor y = binary(o, MICA_SCALAR_MUL, mica__ox_cast(o, sums, MICA_DTYPE_F32),
                           mica__ox_cast(o, scale, MICA_DTYPE_F32));
    y = mica__ox_scalar(o, MICA_SCALAR_ROUND, y, 0);
    y = binary(o, MICA_SCALAR_ADD, y, mica__ox_cast(o, zero, MICA_DTYPE_F32));
    y = binary(o, MICA_SCALAR_MAX, y, mica__ox_number(o, y, low));
    y = binary(o, MICA_SCALAR_MIN, y, mica__ox_number(o, y, high));
    return mica__ox_cast(o, y, dtype);
}

/* A factor of the tensor, of an axis, or of blocks along it, so that it broadcasts to x; x may get another shape for it. */
typedef struct spread {
    mica__type type; /* of x, as it was */
    uint32_t axis;
    uint64_t block;
} spread;

static mica_status read_spread(mica__ox_op *o, const mica__type *type, const mica__type *scale, spread *out)
{
    const int64_t axis = mica__ox_int(o, "axis", 1), block = mica__ox_int(o, "block_size", 0);
    *out = (spread){.type = *type, .block = (uint64_t)block};
    if (block != 0 && scale->ndim == type->ndim && type->ndim < MICA_MAX_DIMS) {
        MICA__TRY(mica__ox_axis(o, axis, type->ndim, &out->axis));
        const uint64_t size = type->shape[out->axis];
        return block > 0 && mica__size_known(size) && size % (uint64_t)block == 0 &&
                       scale->shape[out->axis] == size / (uint64_t)block
                   ? MICA_OK
                   : mica__ox_fail(o, "blocks that do not divide the axis");
    }
    out->block = 0;
    if (scale->ndim == 0 || (scale->ndim == 1 && scale->shape[0] == 1))
        return MICA_OK;
    if (scale->ndim != 1)
        return mica__ox_fail(o, "scales of %u dimensions", scale->ndim);
    return mica__ox_axis(o, axis, type->ndim, &out->axis);
}

/* x as [.., blocks, block, ..] */
static mica_tensor in_blocks(const mica__ox_op *o, mica_tensor x, const spread *s)
{
    uint64_t shape[MICA_MAX_DIMS];
    if (s->block == 0)
        return x;
    for (uint32_t d = 0; d <= s->type.ndim; d++)
        shape[d] = s->type.shape[d > s->axis ? d - 1 : d];
    shape[s->axis] /= s->block;
    shape[s->axis + 1] = s->block;
    return mica__ox_reshape(o, x, s->type.ndim + 1, shape);
}

static mica_tensor factor(const mica__ox_op *o, mica_tensor x, const spread *s)
{
    const mica__type type = mica__ox_type(o, x);
    if (x == 0)
        return 0;
    if (s->block != 0)
        return mica__ox_unsqueeze(o, x, s->axis + 1);
    if (type.ndim == 1 && type.shape[0] == 1)
        return mica__ox_reshape(o, x, 0, NULL);
    return type.ndim == 0 ? x : mica__ox_along(o, x, s->type.ndim, s->axis);
}

static mica_status read_code_type(mica__ox_op *o, mica_dtype *out)
{
    const int64_t given = mica__ox_int(o, "output_dtype", 0);
    *out = mica__ox_has(o, 2) ? mica__ox_in_type(o, 2).dtype : MICA_DTYPE_U8;
    if (given != 0)
        *out = mica__ox_dtype(o, given);
    return *out == MICA_DTYPE_NONE ? MICA_ERR_UNSUPPORTED : MICA_OK;
}

mica_status mica__ox_quantize(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0), scales = mica__ox_in_type(o, 1);
    const bool saturate = mica__ox_int(o, "saturate", 1) != 0;
    const int64_t precision = mica__ox_int(o, "precision", 0);
    double low = 0, high = 0;
    mica_dtype dtype;
    spread s;
    MICA__TRY(read_code_type(o, &dtype));
    MICA__TRY(read_spread(o, &type, &scales, &s));
    if (!code_range(dtype, &low, &high) || !saturate || (precision != 0 && precision != MICA__ONNX_FLOAT))
        return mica__ox_fail(o, "codes of %s, or such a precision", mica_dtype_name(dtype));
    if (mica__ox_known(o, 2) != NULL && dtype != mica__ox_in_type(o, 2).dtype)
        return mica__ox_fail(o, "output_dtype is not the type of the zero point");
    const bool floats = mica_register_of(dtype) == MICA_REGISTER_F32;
    mica_tensor y = in_blocks(o, mica__ox_cast(o, mica__ox_in(o, 0), MICA_DTYPE_F32), &s);
    y = binary(o, MICA_SCALAR_DIV, y, factor(o, mica__ox_cast(o, mica__ox_in(o, 1), MICA_DTYPE_F32), &s));
    if (!floats)
        y = mica__ox_scalar(o, MICA_SCALAR_ROUND, y, 0);
    if (mica__ox_has(o, 2))
        y = binary(o, MICA_SCALAR_ADD, y, factor(o, mica__ox_cast(o, mica__ox_in(o, 2), MICA_DTYPE_F32), &s));
    y = binary(o, MICA_SCALAR_MAX, y, mica__ox_number(o, y, low));
    y = binary(o, MICA_SCALAR_MIN, y, mica__ox_number(o, y, high));
    y = mica__ox_cast(o, y, dtype);
    mica__ox_out(o, 0, s.block != 0 ? mica__ox_reshape(o, y, type.ndim, type.shape) : y);
    return MICA_OK;
}

mica_status mica__ox_dequantize(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0), scales = mica__ox_in_type(o, 1);
    const int64_t given = mica__ox_int(o, "output_dtype", 0);
    const mica_dtype dtype = given == 0 ? scales.dtype : mica__ox_dtype(o, given);
    spread s;
    if (dtype == MICA_DTYPE_NONE)
        return MICA_ERR_UNSUPPORTED;
    MICA__TRY(read_spread(o, &type, &scales, &s));
    const bool whole = type.dtype == MICA_DTYPE_I32; /* whose codes f32 does not hold */
    mica_tensor y =
        in_blocks(o, mica__ox_cast(o, mica__ox_in(o, 0), whole ? MICA_DTYPE_I32 : MICA_DTYPE_F32), &s);
    if (mica__ox_has(o, 2))
        y = binary(
            o, MICA_SCALAR_SUB, y,
            factor(o, mica__ox_cast(o, mica__ox_in(o, 2), whole ? MICA_DTYPE_I32 : MICA_DTYPE_F32), &s));
    y = binary(o, MICA_SCALAR_MUL, mica__ox_cast(o, y, MICA_DTYPE_F32),
               factor(o, mica__ox_cast(o, mica__ox_in(o, 1), MICA_DTYPE_F32), &s));
    y = mica__ox_cast(o, y, dtype);
    mica__ox_out(o, 0, s.block != 0 ? mica__ox_reshape(o, y, type.ndim, type.shape) : y);
    return MICA_OK;
}

mica_status mica__ox_dynamic_quantize(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const uint32_t all = (1u << mica__ox_type(o, x).ndim) - 1;
    const mica_tensor zero = mica__ox_number(o, x, 0), most = mica__ox_number(o, x, 255);
    const mica_tensor high =
        binary(o, MICA_SCALAR_MAX, mica__ox_reduce(o, MICA_REDUCE_MAX, x, all, false), zero);
    const mica_tensor low =
        binary(o, MICA_SCALAR_MIN, mica__ox_reduce(o, MICA_REDUCE_MIN, x, all, false), zero);
    const mica_tensor scale = binary(o, MICA_SCALAR_DIV, binary(o, MICA_SCALAR_SUB, high, low), most);
    mica_tensor point = binary(o, MICA_SCALAR_DIV, binary(o, MICA_SCALAR_SUB, zero, low), scale);
    point = mica__ox_scalar(o, MICA_SCALAR_ROUND, point, 0);
    point = binary(o, MICA_SCALAR_MIN, binary(o, MICA_SCALAR_MAX, point, zero), most);
    mica_tensor y = mica__ox_scalar(o, MICA_SCALAR_ROUND, binary(o, MICA_SCALAR_DIV, x, scale), 0);
    y = binary(o, MICA_SCALAR_ADD, y, point);
    y = binary(o, MICA_SCALAR_MIN, binary(o, MICA_SCALAR_MAX, y, zero), most);
    mica__ox_out(o, 0, mica__ox_cast(o, y, MICA_DTYPE_U8));
    mica__ox_out(o, 1, scale);
    mica__ox_out(o, 2, mica__ox_cast(o, point, MICA_DTYPE_U8));
    return MICA_OK;
}

/* ---- products of codes ---------------------------------------------------------------------------------- */

/* A zero point of rows [M] as [M, 1]; of columns as it is. */
static mica_tensor point_of_rows(const mica__ox_op *o, mica_tensor zero)
{
    const mica__type type = mica__ox_type(o, zero);
    return type.ndim == 1 && type.shape[0] != 1
               ? mica__ox_reshape(o, zero, 2, (const uint64_t[]){type.shape[0], 1})
               : zero;
}

static mica_tensor code_product(mica__ox_op *o, uint32_t a, uint32_t a_zero, uint32_t b, uint32_t b_zero)
{
    const mica_tensor inputs[] = {mica__ox_in(o, a), mica__ox_in(o, b), 0,
                                  point_of_rows(o, mica__ox_in(o, a_zero)), mica__ox_in(o, b_zero)};
    const mica_operand_desc asked = {.dtype = MICA_DTYPE_I32, .ndim = MICA_RANK_UNKNOWN};
    return inputs[0] == 0 || inputs[1] == 0
               ? 0
               : mica_graph_op(o->graph, MICA_OP_PRODUCT, NULL, inputs, 5, 1, &asked, NULL, 0);
}

mica_status mica__ox_matmul_integer(mica__ox_op *o)
{
    if (mica__ox_in_type(o, 0).ndim < 2 || mica__ox_in_type(o, 1).ndim < 2)
        return mica__ox_fail(o, "of vectors");
    mica__ox_out(o, 0, code_product(o, 0, 2, 1, 3));
    return MICA_OK;
}

/* a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero */
mica_status mica__ox_qlinear_matmul(mica__ox_op *o)
{
    if (mica__ox_in_type(o, 0).ndim < 2 || mica__ox_in_type(o, 3).ndim < 2)
        return mica__ox_fail(o, "of vectors");
    const mica_tensor sums = code_product(o, 0, 2, 3, 5);
    const mica_tensor left = point_of_rows(o, mica__ox_cast(o, mica__ox_in(o, 1), MICA_DTYPE_F32));
    mica_tensor scale = binary(o, MICA_SCALAR_MUL, left, mica__ox_cast(o, mica__ox_in(o, 4), MICA_DTYPE_F32));
    scale = binary(o, MICA_SCALAR_DIV, scale, mica__ox_cast(o, mica__ox_in(o, 6), MICA_DTYPE_F32));
    mica__ox_out(o, 0, mica__ox_requantised(o, sums, scale, mica__ox_in(o, 7)));
    return MICA_OK;
}

/* ---- MatMulNBits of com.microsoft ----------------------------------------------------------------------- */

typedef struct few_bits {
    const mica__ox_host *codes, *scales, *zeros;
    uint64_t n, k, bits, block, blocks;
} few_bits;

static double zero_of(const few_bits *w, uint64_t row, uint64_t block)
{
    if (w->zeros == NULL)
        return (double)(1u << (w->bits - 1));
    if (w->zeros->dtype != MICA_DTYPE_U8)
        return mica__ox_host_number(w->zeros, row * w->blocks + block);
    const uint64_t bytes = (w->blocks * w->bits + 7) / 8, bit = block * w->bits;
    const uint8_t byte = ((const uint8_t *)w->zeros->data)[row * bytes + bit / 8];
    return (double)(byte >> bit % 8 & ((1u << w->bits) - 1));
}

static void decode_row(const few_bits *w, uint64_t row, float *out)
{
    const uint64_t bytes = w->block * w->bits / 8;
    for (uint64_t b = 0; b < w->blocks; b++) {
        const uint8_t *codes = (const uint8_t *)w->codes->data + (row * w->blocks + b) * bytes;
        const double scale = mica__ox_host_number(w->scales, row * w->blocks + b), zero = zero_of(w, row, b);
        for (uint64_t i = 0; i < w->block && b * w->block + i < w->k; i++) {
            const uint64_t bit = i * w->bits;
            const double code = (double)(codes[bit / 8] >> bit % 8 & ((1u << w->bits) - 1));
            out[b * w->block + i] = (float)((code - zero) * scale);
        }
    }
}

static mica_status read_few_bits(mica__ox_op *o, few_bits *w)
{
    w->n = (uint64_t)mica__ox_int(o, "N", 0);
    w->k = (uint64_t)mica__ox_int(o, "K", 0);
    w->bits = (uint64_t)mica__ox_int(o, "bits", 4);
    w->block = (uint64_t)mica__ox_int(o, "block_size", 32);
    (void)mica__ox_int(o, "accuracy_level", 0);
    if ((w->bits != 2 && w->bits != 4 && w->bits != 8) || w->block < 8 || w->block > 65536 || w->n == 0 ||
        w->k == 0 || w->n > 1ull << 40 || w->k > 1ull << 40)
        return mica__ox_fail(o, "such numbers of bits, rows or columns");
    if (mica__ox_has(o, 4))
        return mica__ox_fail(o, "g_idx");
    w->blocks = (w->k + w->block - 1) / w->block;
    MICA__TRY(mica__ox_need(o, 1, &w->codes));
    MICA__TRY(mica__ox_need(o, 2, &w->scales));
    w->zeros = mica__ox_known(o, 3);
    const uint64_t zeros = w->zeros != NULL && w->zeros->dtype == MICA_DTYPE_U8
                               ? w->n * ((w->blocks * w->bits + 7) / 8)
                               : w->n * w->blocks;
    return w->codes->dtype == MICA_DTYPE_U8 && w->codes->bytes == w->n * w->blocks * w->block * w->bits / 8 &&
                   w->scales->elements == w->n * w->blocks &&
                   (w->zeros == NULL || w->zeros->elements == zeros) &&
                   (w->zeros != NULL) == mica__ox_has(o, 3)
               ? MICA_OK
               : mica__ox_fail(o, "codes, scales or zero points of another size");
}

mica_status mica__ox_matmul_nbits(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica_dtype dtype = mica__ox_type(o, x).dtype;
    few_bits w = {.codes = NULL};
    MICA__TRY(read_few_bits(o, &w));
    float *values = mica__ox_memory(o->im, w.n * w.k, sizeof *values);
    if (values == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t row = 0; row < w.n; row++) {
        MICA__TRY(mica__spend(w.k / 8 + 1));
        decode_row(&w, row, values + row * w.k);
    }
    const mica_tensor weight = mica__ox_constant(o, MICA_DTYPE_F32, 2, (const uint64_t[]){w.n, w.k}, values);
    mica_tensor y = x == 0 ? 0 : mica_graph_linear(o->graph, mica__ox_cast(o, x, MICA_DTYPE_F32), weight, 0);
    if (mica__ox_has(o, 5))
        y = binary(o, MICA_SCALAR_ADD, y, mica__ox_cast(o, mica__ox_in(o, 5), MICA_DTYPE_F32));
    mica__ox_out(o, 0, mica__ox_cast(o, y, dtype));
    return MICA_OK;
}
