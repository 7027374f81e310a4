/*
 * ops_fourier.c - transforms as nodes, and what is made of them: frames of sound, convolution by spectra, log-mel spectra.
 */
#include "graph/ops_build.h"

#define ULL(x) ((unsigned long long)(x))

/* ---- one axis ---- */

static bool is_complex(mica_fft_kind kind)
{
    return kind != MICA_FFT_REAL;
}

/* x in a type that transforms take; `out` without the dimension of the pairs of f64. */
static mica_tensor as_spectral(mica_graph *graph, const char *call, mica_tensor x, mica_fft_kind kind,
                               mica__type *out)
{
    if (!mica__build_takes(graph, call, "x", x, out))
        return 0;
    if (!is_complex(kind) && (out->dtype == MICA_DTYPE_F16 || out->dtype == MICA_DTYPE_BF16))
        x = mica_graph_cast(graph, x, MICA_DTYPE_F32);
    else if (is_complex(kind) && mica_register_of(out->dtype) == MICA_REGISTER_F32 &&
             out->dtype != MICA_DTYPE_C64)
        x = mica_graph_complex_join(graph, x, mica__build_number(graph, x, 0));
    if (x == 0)
        return 0;
    *out = *mica__type_of(graph, x);
    if (!is_complex(kind) || out->dtype != MICA_DTYPE_F64)
        return x;
    if (out->ndim == 0 || !mica__sizes_agree(out->shape[out->ndim - 1], 2))
        return mica__build_refuse(graph, call, "x", out, "is no pairs: its last dimension is to be 2");
    out->ndim--;
    return x;
}

/* Dimension `at` cut to n elements, or followed by zeros. */
static mica_tensor of_size(mica_graph *graph, const char *call, mica_tensor x, const mica__type *type,
                           uint32_t at, uint64_t n)
{
    const uint64_t have = type->shape[at];
    mica_pad_params params = {.mode = MICA_PAD_CONSTANT};
    if (have == n)
        return x;
    if (!mica__size_known(have) || !mica__size_known(n) || n > INT32_MAX)
        return mica__build_refuse(graph, call, "x", type, "has no size along axis %u that is a number", at);
    if (have > n)
        return mica_graph_slice(graph, x, at, 0, n, 1);
    params.high[at] = (int64_t)(n - have);
    return mica_graph_pad(graph, x, &params);
}

mica_tensor mica_graph_fourier(mica_graph *graph, mica_tensor x, mica_fft_kind kind, uint32_t inverse,
                               mica_fft_norm norm, uint64_t n, int32_t axis)
{
    static const char call[] = "fourier";
    mica__type type;
    uint32_t at;
    if (!mica__graph_begins(graph, call))
        return 0;
    mica_tensor y = as_spectral(graph, call, x, kind, &type);
    if (y == 0 || !mica__build_axis(graph, call, axis, type.ndim, &at))
        return mica__build_end(graph, call, 0);
    if (n != 0)
        y = of_size(graph, call, y, &type, at, kind == MICA_FFT_HERMITIAN ? n / 2 + 1 : n);
    const mica_fft_params params = {.kind = (uint32_t)kind,
                                    .inverse = inverse,
                                    .norm = (uint32_t)norm,
                                    .axis = type.ndim - 1 - at,
                                    .length = kind == MICA_FFT_HERMITIAN ? (uint32_t)n : 0};
    return mica__build_end(graph, call, y == 0 ? 0 : mica__build_op(graph, MICA_OP_FFT, &params, &y, 1));
}

mica_tensor mica_graph_fourier_axes(mica_graph *graph, mica_tensor x, mica_fft_kind kind, uint32_t inverse,
                                    mica_fft_norm norm, const uint64_t *sizes, const int32_t *axes,
                                    uint32_t count)
{
    static const char call[] = "fourier_axes";
    if (!mica__graph_begins(graph, call))
        return 0;
    if (axes == NULL || count == 0 || count > MICA_MAX_DIMS)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%u axes", axes == NULL ? 0 : count);
    for (uint32_t i = 0; i < count && x != 0; i++) {
        /* the last axis first, but back from half of it last of all */
        const uint32_t at = kind == MICA_FFT_HERMITIAN ? i : count - 1 - i;
        const bool special = at == count - 1;
        x = mica_graph_fourier(graph, x, special ? kind : MICA_FFT_COMPLEX, inverse, norm,
                               sizes != NULL ? sizes[at] : 0, axes[at]);
    }
    return x != 0
               ? x
               : mica__build_end(graph, call,
                                 graph->status != MICA_OK ? 0
                                                          : mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT,
                                                                             call, "x is no tensor"));
}

/* ---- frames ---- */

/* x [.., T] as [.., frames, n], `hop` apart, after it was mirrored by `side` at its ends; `frames` 0: as many as there are. */
static mica_tensor frames_of(mica_graph *graph, const char *call, mica_tensor x, uint64_t n, uint64_t hop,
                             uint64_t side, uint64_t frames)
{
    mica__type type;
    mica_pad_params mirror = {.mode = MICA_PAD_REFLECT};
    if (!mica__build_takes_rank(graph, call, "x", x, 1, MICA_MAX_DIMS - 1, &type))
        return 0;
    const uint32_t last = type.ndim - 1;
    const uint64_t samples = type.shape[last];
    if (!mica__size_known(samples) || n == 0 || hop == 0 || samples + 2 * side < n || side >= samples ||
        samples > INT32_MAX)
        return mica__build_refuse(graph, call, "x", &type,
                                  "has no number of samples for windows of %llu, %llu apart", ULL(n),
                                  ULL(hop));
    const uint64_t most = (samples + 2 * side - n) / hop + 1;
    if (frames > most)
        return mica__build_refuse(graph, call, "x", &type, "has %llu frames, not %llu", ULL(most),
                                  ULL(frames));
    mirror.low[last] = mirror.high[last] = (int64_t)side;
    const mica_tensor all = side != 0 ? mica_graph_pad(graph, x, &mirror) : x;
    const uint64_t shape[] = {frames != 0 ? frames : most, n};
    const mica_tensor frame = mica_graph_index(graph, MICA_DTYPE_I32, 2, shape, 0);
    const mica_tensor begin = mica_graph_mul(graph, frame, mica__build_number(graph, frame, (double)hop));
    const mica_tensor ids =
        mica_graph_add(graph, begin, mica_graph_index(graph, MICA_DTYPE_I32, 2, shape, 1));
    return all == 0 || ids == 0 ? 0 : mica_graph_gather(graph, all, ids, (int32_t)last);
}

mica_tensor mica_graph_stft(mica_graph *graph, mica_tensor x, mica_tensor window, uint64_t hop,
                            uint32_t centered, mica_fft_norm norm)
{
    static const char call[] = "stft";
    mica__type type;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "window", window, 1, 1, &type))
        return 0;
    const uint64_t n = type.shape[0];
    if (!mica__size_known(n))
        return mica__build_refuse(graph, call, "window", &type, "has a size that is no number");
    const mica_tensor frames = frames_of(graph, call, x, n, hop, centered != 0 ? n / 2 : 0, 0);
    const mica_tensor windowed = frames == 0 ? 0 : mica_graph_mul(graph, frames, window);
    return mica__build_end(graph, call, windowed == 0 ? 0 : mica_graph_rfft(graph, windowed, -1, norm));
}

mica_tensor mica_graph_fft_convolve(mica_graph *graph, mica_tensor x, mica_tensor kernel)
{
    static const char call[] = "fft_convolve";
    mica__type a, b;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "x", x, 1, MICA_MAX_DIMS, &a) ||
        !mica__build_takes_rank(graph, call, "kernel", kernel, 1, MICA_MAX_DIMS, &b))
        return 0;
    const uint64_t t = a.shape[a.ndim - 1], k = b.shape[b.ndim - 1];
    if (!mica__size_known(t) || !mica__size_known(k) || t == 0 || k == 0 || t > INT32_MAX / 2 ||
        k > INT32_MAX / 2)
        return mica__build_refuse(graph, call, t == 0 || !mica__size_known(t) ? "x" : "kernel",
                                  t == 0 || !mica__size_known(t) ? &a : &b,
                                  "has no number of samples from 1 to 2^30");
    uint64_t n = 1;
    while (n < t + k - 1)
        n *= 2;
    const mica_tensor left = mica_graph_fourier(graph, x, MICA_FFT_REAL, 0, MICA_FFT_BACKWARD, n, -1),
                      right = mica_graph_fourier(graph, kernel, MICA_FFT_REAL, 0, MICA_FFT_BACKWARD, n, -1);
    const mica_tensor product = right == 0 ? 0 : mica_graph_complex_mul(graph, left, right);
    const mica_tensor y = product == 0 ? 0 : mica_graph_irfft(graph, product, n, -1, MICA_FFT_BACKWARD);
    if (y == 0)
        return mica__build_end(graph, call, 0);
    const uint32_t last = mica__type_of(graph, y)->ndim - 1;
    return mica__build_end(graph, call, mica_graph_slice(graph, y, last, 0, t + k - 1, 1));
}

static mica_tensor log_mel_region(mica_graph *graph, mica_tensor x, mica_tensor greatest)
{
    static const char *const names[] = {"audio", "audio"};
    const mica_dtype dtype = MICA_DTYPE_F32;
    mica__region_room room;
    mica__log_mel_program(greatest != 0, &room.program);
    return mica__build_region(graph, "log_mel", &room.program, names, (const mica_tensor[]){x, greatest},
                              &dtype, NULL);
}

mica_tensor mica_graph_log_mel(mica_graph *graph, mica_tensor audio, mica_tensor window, mica_tensor filters,
                               uint64_t hop, uint64_t frames)
{
    static const char call[] = "log_mel";
    static const int32_t axes[] = {-2, -1};
    mica__type type, mel;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "window", window, 1, 1, &type) ||
        !mica__build_takes_rank(graph, call, "filters", filters, 2, 2, &mel))
        return 0;
    const uint64_t n = type.shape[0];
    if (!mica__size_known(n) || !mica__sizes_agree(mel.shape[1], n / 2 + 1))
        return mica__build_refuse(graph, call, "filters", &mel, "is not [.., %llu], window / 2 + 1",
                                  ULL(n / 2 + 1));
    const mica_tensor parts = frames_of(graph, call, audio, n, hop, n / 2, frames);
    const mica_tensor windowed = parts == 0 ? 0 : mica_graph_mul(graph, parts, window);
    const mica_tensor spectrum = windowed == 0 ? 0 : mica_graph_rfft(graph, windowed, -1, MICA_FFT_BACKWARD);
    const mica_tensor power = spectrum == 0 ? 0 : mica_graph_complex_norm(graph, spectrum);
    const mica_tensor rows = power == 0 ? 0 : mica_graph_transpose(graph, power);
    const mica_tensor y = rows == 0 ? 0 : mica_graph_product(graph, filters, rows, 0);
    const mica_tensor logs = y == 0 ? 0 : log_mel_region(graph, y, 0);
    const mica_tensor most = logs == 0 ? 0 : mica_graph_reduce(graph, MICA_REDUCE_MAX, logs, axes, 2, 1);
    return mica__build_end(graph, call, most == 0 ? 0 : log_mel_region(graph, logs, most));
}

/* ---- complex numbers ---- */

static mica_tensor complex_op(mica_graph *graph, const char *call, mica__complex what, mica_tensor a,
                              mica_tensor b)
{
    static const char *const two[] = {"a", "b"}, *const one[] = {"x"};
    const bool both = what <= MICA__COMPLEX_DIV;
    const mica_dtype dtype = what <= MICA__COMPLEX_CONJ ? MICA_DTYPE_C64 : MICA_DTYPE_F32;
    mica__region_room room;
    mica__type type;
    if (!mica__graph_begins(graph, call))
        return 0;
    for (uint32_t i = 0; i < (both ? 2u : 1u); i++) {
        const char *name = both ? two[i] : one[0];
        if (!mica__build_takes(graph, call, name, i == 0 ? a : b, &type))
            return 0;
        if (type.dtype != MICA_DTYPE_C64)
            return mica__build_refuse(graph, call, name, &type, "is not c64");
    }
    mica__complex_program(what, &room.program);
    return mica__build_region(graph, call, &room.program, both ? two : one, (const mica_tensor[]){a, b},
                              &dtype, NULL);
}

mica_tensor mica_graph_complex_add(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return complex_op(graph, "complex_add", MICA__COMPLEX_ADD, a, b);
}

mica_tensor mica_graph_complex_sub(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return complex_op(graph, "complex_sub", MICA__COMPLEX_SUB, a, b);
}

mica_tensor mica_graph_complex_mul(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return complex_op(graph, "complex_mul", MICA__COMPLEX_MUL, a, b);
}

mica_tensor mica_graph_complex_div(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return complex_op(graph, "complex_div", MICA__COMPLEX_DIV, a, b);
}

mica_tensor mica_graph_complex_conj(mica_graph *graph, mica_tensor x)
{
    return complex_op(graph, "complex_conj", MICA__COMPLEX_CONJ, x, 0);
}

mica_tensor mica_graph_complex_abs(mica_graph *graph, mica_tensor x)
{
    return complex_op(graph, "complex_abs", MICA__COMPLEX_ABS, x, 0);
}

mica_tensor mica_graph_complex_norm(mica_graph *graph, mica_tensor x)
{
    return complex_op(graph, "complex_norm", MICA__COMPLEX_NORM, x, 0);
}

mica_tensor mica_graph_complex_angle(mica_graph *graph, mica_tensor x)
{
    return complex_op(graph, "complex_angle", MICA__COMPLEX_ANGLE, x, 0);
}

mica_tensor mica_graph_complex_join(mica_graph *graph, mica_tensor re, mica_tensor im)
{
    static const char *const names[] = {"re", "im"};
    const mica_tensor parts[] = {re, im};
    const mica_dtype dtype = MICA_DTYPE_C64;
    mica__region_small small;
    mica__type type;
    for (uint32_t i = 0; i < 2; i++) {
        if (!mica__graph_begins(graph, "complex_join") ||
            !mica__build_takes(graph, "complex_join", names[i], parts[i], &type))
            return 0;
        if (type.dtype == MICA_DTYPE_C64)
            return mica__build_refuse(graph, "complex_join", names[i], &type, "is complex itself");
    }
    mica__complex_join_program(&small.program);
    return mica__build_region(graph, "complex_join", &small.program, names, parts, &dtype, NULL);
}

static mica_tensor part_of(mica_graph *graph, const char *call, mica_tensor x, bool imaginary)
{
    mica__type type;
    mica__writer w;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "x", x, &type))
        return 0;
    if (type.dtype != MICA_DTYPE_C64)
        return mica__build_refuse(graph, call, "x", &type, "is not c64");
    mica__write_begin(&w, graph, call);
    st_value value = mica__write_input(&w, "x", x);
    if (imaginary) {
        value = st_step(MICA_SCALAR_IMAG, MICA_REGISTER_F32, value, st_none, st_none);
        w.room.program.special = 1;
    }
    mica__write_output(&w, value, MICA_DTYPE_F32);
    return mica__write_end(&w, NULL);
}

mica_tensor mica_graph_real(mica_graph *graph, mica_tensor x)
{
    return part_of(graph, "real", x, false);
}

mica_tensor mica_graph_imag(mica_graph *graph, mica_tensor x)
{
    return part_of(graph, "imag", x, true);
}
