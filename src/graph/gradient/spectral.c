/*
 * spectral.c - derivatives of Fourier and Hadamard transforms. Complex numbers are pairs of independent reals: what reaches a number is complex, and a transform
 * hands it back by its conjugate.
 */
#include <string.h>

#include "graph/gradient/rules.h"

static mica_fft_params inverse_of(const mica_fft_params *params)
{
    mica_fft_params back = *params;
    back.inverse ^= 1u;
    back.norm = params->norm == MICA_FFT_ORTHO      ? MICA_FFT_ORTHO
                : params->norm == MICA_FFT_BACKWARD ? MICA_FFT_FORWARD
                                                    : MICA_FFT_BACKWARD;
    back.length = 0;
    return back;
}

/* Complex numbers times a factor for each place along the axis: `ends` at the first, and of an even n at the last, `inner` at the others. */
static mica_tensor weighted(mica_graph *graph, mica_tensor x, const mica_fft_params *params, uint64_t n,
                            double ends, double inner)
{
    const mica__type type = mica__type_copy(graph, x);
    const bool pairs = type.dtype == MICA_DTYPE_F64;
    const uint32_t places = params->axis + (pairs ? 1 : 0), axis = type.ndim - 1 - places;
    const mica_dtype dtype = pairs ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const mica_tensor at = mica__index_along(graph, x, axis);
    mica_tensor end = mica_graph_equal(graph, at, mica_graph_number(graph, MICA_DTYPE_I32, 0));
    const uint64_t half = n / 2;
    if (n % 2 == 0)
        end = mica_graph_bit_or(
            graph, end, mica_graph_equal(graph, at, mica_graph_number(graph, MICA_DTYPE_I32, (double)half)));
    mica_tensor factor = mica_graph_select(graph, end, mica_graph_number(graph, dtype, ends),
                                           mica_graph_number(graph, dtype, inner));
    for (uint32_t d = 0; d < places; d++)
        factor = mica__widened(graph, factor, 1);
    return pairs ? mica_graph_mul(graph, x, factor) : mica__complex_scale(graph, x, factor);
}

/* The length of real numbers along the axis; UNKNOWN: refused. */
static uint64_t length_of(mica__back *b, mica_tensor real, uint32_t axis)
{
    const mica__type *type = mica__type_of(b->graph, real);
    const uint64_t n = type->shape[type->ndim - 1 - axis];
    if (!mica__size_known(n))
        mica__back_refuses(b, "is along a size that is not known yet");
    return n;
}

mica__derived mica__derive_fft(mica__back *b)
{
    static const mica_fft_params none = {.kind = MICA_FFT_COMPLEX};
    mica_graph *graph = b->graph;
    const mica_fft_params *given = mica__op_params(&b->node), *params = given != NULL ? given : &none;
    mica_fft_params back = inverse_of(params);
    mica_tensor dy = b->dy[0];
    if (params->kind == MICA_FFT_REAL) {
        const uint64_t n = length_of(b, b->in[0], params->axis);
        if (!mica__size_known(n))
            return MICA__DERIVED;
        back.kind = MICA_FFT_HERMITIAN;
        back.length = (uint32_t)n;
        b->dx[0] = mica__op1(graph, MICA_OP_FFT, &back,
                             (const mica_tensor[]){weighted(graph, dy, params, n, 1, 0.5)}, 1);
    } else if (params->kind == MICA_FFT_HERMITIAN) {
        const uint64_t n = length_of(b, b->out[0], params->axis);
        if (!mica__size_known(n))
            return MICA__DERIVED;
        back.kind = MICA_FFT_REAL;
        b->dx[0] = weighted(graph, mica__op1(graph, MICA_OP_FFT, &back, &dy, 1), params, n, 1, 2);
    } else {
        b->dx[0] = mica__op1(graph, MICA_OP_FFT, &back, &dy, 1);
    }
    return MICA__DERIVED;
}

/* Inputs: x, signs. The matrix is its own transpose. */
mica__derived mica__derive_hadamard(mica__back *b)
{
    static const mica_hadamard_params none = {.undo = 0};
    mica_graph *graph = b->graph;
    const mica_hadamard_params *given = mica__op_params(&b->node);
    mica_hadamard_params back = given != NULL ? *given : none;
    const bool undo = back.undo != 0;
    back.undo ^= 1u;
    if (b->wanted[0])
        b->dx[0] = mica__op1(graph, MICA_OP_HADAMARD, &back, (const mica_tensor[]){b->dy[0], b->in[1]}, 2);
    if (b->wanted[1]) {
        const mica__type type = mica__type_copy(graph, b->in[1]);
        const mica_tensor whole = mica__op1(graph, MICA_OP_HADAMARD, &back,
                                            (const mica_tensor[]){undo ? b->in[0] : b->dy[0], 0}, 2);
        b->dx[1] = mica__sum_to(graph, mica_graph_mul(graph, whole, undo ? b->dy[0] : b->in[0]), &type);
    }
    return MICA__DERIVED;
}
