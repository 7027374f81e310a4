/*
 * ops_signal.c - Fourier transforms, windows, mel filters, random numbers.
 */
#include <math.h>
#include <string.h>

#include "base/work.h"
#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

#define PI 3.14159265358979323846
#define MOST_ELEMENTS \
    (1ull << 22) /* of what is made while importing: a small file may ask for no more memory than this */

/* ---- transforms ----------------------------------------------------------------------------------------- */

/* Real and imaginary parts, each a tensor without the last dimension; imaginary 0 where the signal is real. */
typedef struct signal {
    mica_tensor real, imaginary;
} signal;

static void put_number(mica_dtype dtype, void *table, uint64_t i, double value)
{
    if (dtype == MICA_DTYPE_F64)
        ((double *)table)[i] = value;
    else
        ((float *)table)[i] = (float)value;
}

/* cos and sin of -2 pi j k / n (+ for the inverse, over n): [n, bins]. */
static mica_status tables(mica__ox_op *o, uint64_t n, uint64_t bins, bool inverse, mica_dtype dtype,
                          mica_tensor out[2])
{
    const uint64_t shape[2] = {n, bins}, size = mica_dtype_block_bytes(dtype);
    if (n == 0 || bins > MOST_ELEMENTS / n)
        return mica__ox_fail(o, "of %llu points", (unsigned long long)n);
    MICA__TRY(mica__spend(4 * n * bins));
    uint8_t *table = mica__ox_memory(o->im, n * bins * 2, (size_t)size);
    if (table == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t k = 0; k < bins; k++) {
            const double angle = (inverse ? 2 : -2) * PI * (double)(j * k % n) / (double)n;
            put_number(dtype, table, j * bins + k, cos(angle) / (inverse ? (double)n : 1));
            put_number(dtype, table, n * bins + j * bins + k, sin(angle) / (inverse ? (double)n : 1));
        }
    for (uint32_t i = 0; i < 2; i++)
        out[i] = mica__ox_constant(o, dtype, 2, shape, table + i * n * bins * size);
    return MICA_OK;
}

static mica_tensor times(const mica__ox_op *o, mica_tensor a, mica_tensor b)
{
    return a == 0 || b == 0 ? 0 : mica_graph_matmul(o->graph, a, b);
}

/* Both parts as pairs [.., n, 2]. */
static mica_tensor as_pairs(const mica__ox_op *o, signal s)
{
    const uint32_t ndim = mica__ox_type(o, s.real).ndim;
    const mica_tensor parts[2] = {mica__ox_unsqueeze(o, s.real, ndim),
                                  mica__ox_unsqueeze(o, s.imaginary, ndim)};
    return parts[0] == 0 || parts[1] == 0 ? 0 : mica_graph_concat(o->graph, parts, 2, ndim);
}

/* s along its last dimension [.., n] into `bins` numbers, by the definition: one product with tables of cosines and sines. */
static mica_status transform(mica__ox_op *o, const signal *s, uint64_t n, uint64_t bins, bool inverse,
                             signal *out)
{
    mica_tensor table[2] = {0};
    MICA__TRY(tables(o, n, bins, inverse, mica__ox_type(o, s->real).dtype, table));
    out->real = times(o, s->real, table[0]);
    out->imaginary = times(o, s->real, table[1]);
    if (s->imaginary != 0) {
        out->real = mica__ox_scalar(o, MICA_SCALAR_SUB, out->real, times(o, s->imaginary, table[1]));
        out->imaginary =
            mica__ox_scalar(o, MICA_SCALAR_ADD, out->imaginary, times(o, s->imaginary, table[0]));
    }
    return MICA_OK;
}

static signal split_pairs(const mica__ox_op *o, mica_tensor x)
{
    const mica__type t = mica__ox_type(o, x);
    signal s = {0, 0};
    s.real = mica__ox_reshape(o, mica__ox_slice(o, x, t.ndim - 1, 0, 1), t.ndim - 1, t.shape);
    if (t.shape[t.ndim - 1] == 2)
        s.imaginary = mica__ox_reshape(o, mica__ox_slice(o, x, t.ndim - 1, 1, 1), t.ndim - 1, t.shape);
    return s;
}

/* n points along the last dimension: cut, or zeros behind. */
static mica_tensor to_length(const mica__ox_op *o, mica_tensor x, uint64_t n)
{
    const mica__type t = mica__ox_type(o, x);
    mica_pad_params params = {.mode = MICA_PAD_CONSTANT};
    if (x == 0 || t.shape[t.ndim - 1] == n)
        return x;
    params.high[t.ndim - 1] = (int64_t)n - (int64_t)t.shape[t.ndim - 1];
    return mica__ox_op1(o, MICA_OP_PAD, &params, &x, 1);
}

/* The missing half of a one-sided spectrum: its conjugate backwards. */
static void complete(const mica__ox_op *o, signal *s, uint64_t n)
{
    const mica__type t = mica__ox_type(o, s->real);
    const uint64_t have = t.shape[t.ndim - 1], missing = n - have;
    if (missing == 0 || have <= missing)
        return;
    const mica_tensor real = mica_graph_slice(o->graph, s->real, t.ndim - 1, missing, missing, -1);
    const mica_tensor imaginary = mica__ox_scalar(
        o, MICA_SCALAR_NEG, mica_graph_slice(o->graph, s->imaginary, t.ndim - 1, missing, missing, -1), 0);
    s->real = mica_graph_concat(o->graph, (const mica_tensor[]){s->real, real}, 2, t.ndim - 1);
    s->imaginary = mica_graph_concat(o->graph, (const mica_tensor[]){s->imaginary, imaginary}, 2, t.ndim - 1);
}

/* The axis: an attribute until opset 19, then an input. */
static mica_status dft_axis(mica__ox_op *o, uint32_t ndim, uint32_t *out)
{
    int64_t axis = o->version < 20 ? mica__ox_int(o, "axis", 1) : -2;
    if (o->version >= 20 && mica__ox_has(o, 2))
        MICA__TRY(mica__ox_need_int(o, 2, &axis));
    return mica__ox_axis(o, axis, ndim, out);
}

mica_status mica__ox_dft(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type t = mica__ox_type(o, x);
    const bool inverse = mica__ox_int(o, "inverse", 0) != 0, onesided = mica__ox_int(o, "onesided", 0) != 0;
    int64_t length = 0;
    uint32_t axis = 0;
    if (t.ndim < 2 || (t.dtype != MICA_DTYPE_F32 && t.dtype != MICA_DTYPE_F64))
        return mica__ox_fail(o, "of %u dimensions of %s", t.ndim, mica_dtype_name(t.dtype));
    MICA__TRY(dft_axis(o, t.ndim, &axis));
    MICA__TRY(mica__ox_need_shape(o, x, "input"));
    if (axis == t.ndim - 1)
        return mica__ox_fail(o, "along the parts of complex numbers");
    const bool back = inverse && onesided; /* to a real signal */
    length = back ? (int64_t)(2 * (t.shape[axis] - 1)) : (int64_t)t.shape[axis];
    if (mica__ox_has(o, 1))
        MICA__TRY(mica__ox_need_int(o, 1, &length));
    if (length < 1 || (uint64_t)length > MOST_ELEMENTS)
        return mica__ox_fail(o, "dft_length %lld", (long long)length);
    const uint64_t n = (uint64_t)length, bins = onesided && !inverse ? n / 2 + 1 : n;
    signal s = split_pairs(o, x), y = {0, 0};
    s.real = to_length(o, mica__ox_move(o, s.real, axis, t.ndim - 2), back ? n / 2 + 1 : n);
    s.imaginary = to_length(o, mica__ox_move(o, s.imaginary, axis, t.ndim - 2), back ? n / 2 + 1 : n);
    if (back && s.imaginary == 0)
        s.imaginary = mica__ox_scalar(o, MICA_SCALAR_SUB, s.real, s.real);
    if (back)
        complete(o, &s, n);
    MICA__TRY(transform(o, &s, n, bins, inverse, &y));
    y.real = mica__ox_move(o, y.real, t.ndim - 2, axis);
    y.imaginary = mica__ox_move(o, y.imaginary, t.ndim - 2, axis);
    mica__ox_out(o, 0, back ? mica__ox_unsqueeze(o, y.real, t.ndim - 1) : as_pairs(o, y));
    return MICA_OK;
}

/* Frames of a signal [batch, points] as [batch, frames, n]: slices of it. */
static mica_tensor frames_of(const mica__ox_op *o, mica_tensor x, uint64_t frames, uint64_t step, uint64_t n)
{
    mica_tensor at = mica__ox_iota(o, 2, (const uint64_t[]){frames, n}, 0, MICA_DTYPE_I32);
    const mica__type t = mica__ox_type(o, x);
    const mica_gather_params params = {.axis = 1};
    at = mica__ox_scalar(o, MICA_SCALAR_MUL, at, mica__ox_number(o, at, (double)step));
    at = mica__ox_scalar(o, MICA_SCALAR_ADD, at,
                         mica__ox_iota(o, 2, (const uint64_t[]){frames, n}, 1, MICA_DTYPE_I32));
    at = mica__ox_reshape(o, at, 1, (const uint64_t[]){frames * n});
    const mica_tensor y = mica__ox_op1(o, MICA_OP_GATHER, &params, (const mica_tensor[]){x, at}, 2);
    return x == 0 ? 0 : mica__ox_reshape(o, y, 3, (const uint64_t[]){t.shape[0], frames, n});
}

mica_status mica__ox_stft(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0), window = mica__ox_in(o, 2);
    const mica__type t = mica__ox_type(o, x), w = mica__ox_type(o, window);
    const bool onesided = mica__ox_int(o, "onesided", 1) != 0;
    int64_t step = 0, n = window != 0 ? (int64_t)w.shape[0] : t.ndim > 1 ? (int64_t)t.shape[1] : 0;
    MICA__TRY(mica__ox_need_int(o, 1, &step));
    if (mica__ox_has(o, 3))
        MICA__TRY(mica__ox_need_int(o, 3, &n));
    MICA__TRY(mica__ox_need_shape(o, x, "signal"));
    if (t.ndim != 3 || t.shape[2] == 0 || t.shape[2] > 2 || step < 1 || n < 1 || (uint64_t)n > t.shape[1] ||
        t.shape[1] > MOST_ELEMENTS)
        return mica__ox_fail(o, "of such shapes or steps");
    const uint64_t frames = (t.shape[1] - (uint64_t)n) / (uint64_t)step + 1,
                   bins = onesided ? (uint64_t)n / 2 + 1 : (uint64_t)n;
    signal s = split_pairs(o, x), y = {0, 0};
    s.real = frames_of(o, s.real, frames, (uint64_t)step, (uint64_t)n);
    s.imaginary = frames_of(o, s.imaginary, frames, (uint64_t)step, (uint64_t)n);
    if (window != 0) {
        s.real = mica__ox_scalar(o, MICA_SCALAR_MUL, s.real, window);
        s.imaginary = mica__ox_scalar(o, MICA_SCALAR_MUL, s.imaginary, window);
    }
    MICA__TRY(transform(o, &s, (uint64_t)n, bins, false, &y));
    mica__ox_out(o, 0, as_pairs(o, y));
    return MICA_OK;
}

/* ---- windows, filters ----------------------------------------------------------------------------------- */

/* A known table in the type that is asked for. */
static mica_status give_table(mica__ox_op *o, const double *table, uint32_t ndim, const uint64_t *shape)
{
    const mica_dtype dtype = mica__ox_dtype(o, mica__ox_int(o, "output_datatype", MICA__ONNX_FLOAT));
    uint64_t count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    if (dtype == MICA_DTYPE_F64)
        return mica__ox_out_host(o, 0, MICA_DTYPE_F64, ndim, shape, table);
    if (dtype == MICA_DTYPE_NONE)
        return MICA_ERR_UNSUPPORTED;
    float *small = mica__ox_memory(o->im, count, sizeof *small);
    if (small == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < count; i++)
        small[i] = (float)table[i];
    const mica_tensor x = mica__ox_constant(o, MICA_DTYPE_F32, ndim, shape, small);
    mica__ox_out(o, 0, mica__ox_cast(o, x, dtype));
    return MICA_OK;
}

mica_status mica__ox_window(mica__ox_op *o)
{
    enum { HANN, HAMMING, BLACKMAN };
    static const double factors[3][3] = {{0.5, -0.5, 0}, {25.0 / 46, -21.0 / 46, 0}, {0.42, -0.5, 0.08}};
    const bool periodic = mica__ox_int(o, "periodic", 1) != 0;
    const double *f = factors[o->row->argument];
    int64_t size = 0;
    MICA__TRY(mica__ox_need_int(o, 0, &size));
    if (size < 1 || (uint64_t)size > MOST_ELEMENTS)
        return mica__ox_fail(o, "of size %lld", (long long)size);
    MICA__TRY(mica__spend((uint64_t)size * 4));
    double *table = mica__ox_memory(o->im, (uint64_t)size, sizeof *table);
    if (table == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    const double n = periodic ? (double)size : (double)size - 1;
    for (int64_t i = 0; i < size; i++) {
        const double angle = n == 0 ? 0 : 2 * PI * (double)i / n;
        table[i] = f[0] + f[1] * cos(angle) + f[2] * cos(2 * angle);
    }
    return give_table(o, table, 1, (const uint64_t[]){(uint64_t)size});
}

mica_status mica__ox_mel_weights(mica__ox_op *o)
{
    double number[5];
    for (uint32_t i = 0; i < 5; i++)
        MICA__TRY(mica__ox_need_number(o, i, &number[i]));
    const double mels = number[0], points = number[1], rate = number[2];
    if (!(mels >= 1) || !(points >= 1) || !(rate > 0) || mels > 65536 || points > 1 << 20 ||
        mels * points > (double)MOST_ELEMENTS)
        return mica__ox_fail(o, "such sizes");
    const uint64_t count = (uint64_t)mels, bins = (uint64_t)points / 2 + 1;
    const double low = 2595 * log10(1 + number[3] / 700), high = 2595 * log10(1 + number[4] / 700),
                 step = (high - low) / (mels + 2);
    double *table = mica__ox_memory(o->im, bins * count, sizeof *table);
    int64_t *edge = mica__ox_memory(o->im, count + 2, sizeof *edge);
    if (table == NULL || edge == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    MICA__TRY(mica__spend(bins * count));
    for (uint64_t i = 0; i < count + 2; i++) {
        const double hertz = 700 * (pow(10, ((double)i * step + low) / 2595) - 1);
        edge[i] = (int64_t)floor((points + 1) * hertz / rate);
    }
    for (uint64_t i = 0; i < count; i++) {
        const int64_t left = edge[i], centre = edge[i + 1], right = edge[i + 2];
        if (left < 0 || right > (int64_t)bins)
            return mica__ox_fail(o, "edges beyond the spectrum");
        if (centre == left && centre < (int64_t)bins)
            table[(uint64_t)centre * count + i] = 1;
        for (int64_t j = left; j <= centre && centre != left && j < (int64_t)bins; j++)
            table[(uint64_t)j * count + i] = (double)(j - left) / (double)(centre - left);
        for (int64_t j = centre; j < right && right > centre; j++)
            table[(uint64_t)j * count + i] = (double)(right - j) / (double)(right - centre);
    }
    return give_table(o, table, 2, (const uint64_t[]){bins, count});
}

/* ---- random numbers ------------------------------------------------------------------------------------- */

/* Numbers of [0, 1), or with `normal` of mean 0 and deviation 1. Without a seed each operator has one of its own: the same in every run. */
static mica_status draw(mica__ox_op *o, bool normal, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                        mica_tensor *out)
{
    const mica__onnx_attribute *given = mica__ox_attribute(o, "seed", MICA__ONNX_KIND_FLOAT);
    uint64_t count = 1, key = 0x6d696361 + o->im->draws++;
    uint32_t bits = 0;
    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    if (given != NULL) {
        memcpy(&bits, &given->f, sizeof bits);
        key = bits;
    }
    const uint64_t flat[] = {count};
    const mica_tensor at = mica__ox_iota(o, 1, flat, 0, MICA_DTYPE_U64);
    const mica_tensor word = mica_graph_random_bits(
        o->graph, at, mica_graph_constant(o->graph, MICA_DTYPE_U64, 0, NULL, &key, sizeof key));
    const uint64_t forty = 40, eight = 8, mask = 0xffffff;
    const mica_tensor by = mica_graph_constant(o->graph, MICA_DTYPE_U64, 0, NULL, &forty, sizeof forty);
    mica_tensor u = mica__ox_cast(o, mica__ox_scalar(o, MICA_SCALAR_SHIFT_RIGHT, word, by), MICA_DTYPE_F32);
    u = mica__ox_scalar(o, MICA_SCALAR_MUL, u, mica__ox_number(o, u, 1.0 / 16777216));
    if (normal) { /* Box and Muller, of the upper and of lower bits */
        const mica_tensor less = mica_graph_constant(o->graph, MICA_DTYPE_U64, 0, NULL, &eight, sizeof eight);
        const mica_tensor low = mica_graph_constant(o->graph, MICA_DTYPE_U64, 0, NULL, &mask, sizeof mask);
        mica_tensor v = mica__ox_scalar(o, MICA_SCALAR_BIT_AND,
                                        mica__ox_scalar(o, MICA_SCALAR_SHIFT_RIGHT, word, less), low);
        v = mica__ox_cast(o, v, MICA_DTYPE_F32);
        v = mica__ox_scalar(o, MICA_SCALAR_COS,
                            mica__ox_scalar(o, MICA_SCALAR_MUL, v, mica__ox_number(o, v, 2 * PI / 16777216)),
                            0);
        u = mica__ox_scalar(o, MICA_SCALAR_ADD, u, mica__ox_number(o, u, 1.0 / 33554432));
        u = mica__ox_scalar(o, MICA_SCALAR_MUL, mica__ox_scalar(o, MICA_SCALAR_LOG, u, 0),
                            mica__ox_number(o, u, -2));
        u = mica__ox_scalar(o, MICA_SCALAR_MUL, mica__ox_scalar(o, MICA_SCALAR_SQRT, u, 0), v);
    }
    *out = mica__ox_cast(o, mica__ox_reshape(o, u, ndim, shape), dtype);
    return MICA_OK;
}

/* RandomUniform, RandomNormal, and their kin that take a shape of their input. */
mica_status mica__ox_random(mica__ox_op *o)
{
    const bool normal = (o->row->argument & 1) != 0, like = (o->row->argument & 2) != 0;
    const mica__type type = mica__ox_in_type(o, 0);
    const double a = (double)(normal ? mica__ox_float(o, "mean", 0) : mica__ox_float(o, "low", 0));
    const double b = (double)(normal ? mica__ox_float(o, "scale", 1) : mica__ox_float(o, "high", 1));
    const mica__onnx_type usual = like ? mica__onnx_type_of(type.dtype) : MICA__ONNX_FLOAT;
    const mica_dtype dtype = mica__ox_dtype(o, mica__ox_int(o, "dtype", (int64_t)usual));
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = type.ndim;
    mica_tensor y = 0;
    memcpy(shape, type.shape, sizeof shape);
    if (!like) {
        const int64_t *given = mica__ox_ints(o, "shape", &ndim);
        if (ndim > MICA_MAX_DIMS)
            return mica__ox_fail(o, "of %u dimensions", ndim);
        for (uint32_t d = 0; d < ndim; d++)
            shape[d] = (uint64_t)given[d];
    }
    for (uint32_t d = 0; d < ndim; d++)
        if (shape[d] > 1ull << 32)
            return mica__ox_fail(o, "of a size that is not known while importing, or too large");
    if (dtype != MICA_DTYPE_F32 && dtype != MICA_DTYPE_F16 && dtype != MICA_DTYPE_BF16 &&
        dtype != MICA_DTYPE_F64)
        return mica__ox_fail(o, "of %s", mica_dtype_name(dtype));
    MICA__TRY(draw(o, normal, MICA_DTYPE_F32, ndim, shape, &y));
    y = mica__ox_scalar(o, MICA_SCALAR_MUL, y, mica__ox_number(o, y, normal ? b : b - a));
    y = mica__ox_scalar(o, MICA_SCALAR_ADD, y, mica__ox_number(o, y, a));
    mica__ox_out(o, 0, mica__ox_cast(o, y, dtype));
    return MICA_OK;
}

mica_status mica__ox_bernoulli(mica__ox_op *o)
{
    const mica_tensor p = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, p);
    const mica_dtype dtype =
        mica__ox_dtype(o, mica__ox_int(o, "dtype", (int64_t)mica__onnx_type_of(type.dtype)));
    mica_tensor u = 0;
    if (dtype == MICA_DTYPE_NONE)
        return MICA_ERR_UNSUPPORTED;
    MICA__TRY(mica__ox_need_shape(o, p, "input"));
    MICA__TRY(draw(o, false, MICA_DTYPE_F32, type.ndim, type.shape, &u));
    mica__ox_out(o, 0,
                 mica__ox_cast(
                     o, mica__ox_scalar(o, MICA_SCALAR_LESS, u, mica__ox_cast(o, p, MICA_DTYPE_F32)), dtype));
    return MICA_OK;
}
