/* fourier.c - the rows of a Fourier transform and the length that it runs at. */
#include "backend/fourier.h"

#include <math.h>
#include <string.h>

/* Whether there is no prime factor above the greatest radix. */
static bool is_smooth(uint64_t n)
{
    for (uint64_t p = 2; p <= MICA__FOURIER_RADIX; p++)
        while (n % p == 0)
            n /= p;
    return n == 1;
}

/* The least of 2^k, 3 2^k and 5 2^k from `least` on. */
static uint64_t good_length(uint64_t least)
{
    uint64_t best = UINT64_MAX;
    for (uint64_t odd = 1; odd <= 5; odd += 2) {
        uint64_t n = odd;
        while (n < least)
            n *= 2;
        best = n < best ? n : best;
    }
    return best;
}

static double scale_of(const mica_fft_params *params, uint64_t n)
{
    if (params->norm == MICA_FFT_ORTHO)
        return 1 / sqrt((double)n);
    return (params->norm == MICA_FFT_FORWARD) == (params->inverse == 0) ? 1 / (double)n : 1;
}

/* The dimensions of an operand but that of the axis, and that of pairs of f64; gives the size along the axis. */
static uint64_t take_rows(const mica__operand *operand, uint32_t axis, bool complex, uint64_t *shape,
                          uint64_t *stride, uint64_t *out_step, uint64_t *out_half)
{
    const bool wide = operand->dtype == MICA_DTYPE_F64;
    const uint32_t ndim = operand->ndim - (uint32_t)(wide && complex), at = ndim - 1 - axis;
    uint32_t rows = 0;
    *out_half = wide && complex ? operand->stride[ndim] : 4;
    *out_step = operand->stride[at];
    shape[0] = 1;
    stride[0] = 0;
    for (uint32_t d = 0; d < ndim; d++)
        if (d != at) {
            shape[rows] = operand->shape[d];
            stride[rows++] = operand->stride[d];
        }
    return operand->shape[at];
}

void mica__fourier_of(const mica__record *record, mica__fourier *out)
{
    const mica_fft_params *params = record->params;
    const mica__operand *x = &record->operand[MICA__FFT_X], *y = &record->operand[MICA__FFT_Y];
    const bool from_real = params->kind == MICA_FFT_REAL, to_real = params->kind == MICA_FFT_HERMITIAN;
    const bool wide = x->dtype == MICA_DTYPE_F64;
    memset(out, 0, sizeof *out);
    const uint64_t x_points =
        take_rows(x, params->axis, !from_real, out->shape, out->x_stride, &out->x_step, &out->x_half);
    const uint64_t y_points =
        take_rows(y, params->axis, !to_real, out->shape, out->y_stride, &out->y_step, &out->y_half);
    const uint32_t ndim = x->ndim - 1u - (uint32_t)(wide && !from_real);
    out->ndim = ndim > 0 ? ndim : 1;
    out->rows = 1;
    for (uint32_t d = 0; d < out->ndim; d++)
        out->rows *= out->shape[d];
    out->n = to_real ? y_points : x_points;
    out->kind = params->kind;
    out->inverse = params->inverse;
    out->scale = scale_of(params, out->n);
    out->pairs = params->kind != MICA_FFT_COMPLEX && out->n % 2 == 0;
    out->inner = out->pairs != 0 ? out->n / 2 : out->n;
    out->chirp = !is_smooth(out->inner);
    out->length = out->chirp != 0 ? good_length(2 * out->inner - 1) : out->inner;
}
