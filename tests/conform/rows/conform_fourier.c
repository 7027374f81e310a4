/*
 * conform_fourier.c - cases of Fourier transforms: every kind, direction, norm and axis, lengths that go each of the ways that kernels have, in f32
 * and, on the cpu, in f64, with any strides and in place.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_fourier.h"
#include "oracle/oracle_number.h"

enum { X, Y };

static const uint64_t odd_lengths[] = {67,   97,   101,  121,  125,  128,  143,  169, 200, 243,
                                       256,  257,  400,  480,  512,  513,  521,  625, 729, 1000,
                                       1021, 1024, 1080, 1287, 2048, 2197, 2310, 3000};
static const uint64_t long_lengths[] = {4096,  4097,  5040,  10007, 16384,   17408,
                                        34816, 32768, 40040, 59049, 1u << 17};

static bool is_complex(const conform_case *c, uint32_t slot)
{
    const uint32_t kind = c->params.fft.kind;

    return kind == MICA_FFT_COMPLEX || (kind == MICA_FFT_REAL) == (slot == Y);
}

/* The points of an operand along the axis. */
static uint64_t points(const conform_case *c, uint32_t slot, uint64_t n)
{
    return is_complex(c, slot) && c->params.fft.kind != MICA_FFT_COMPLEX ? n / 2 + 1 : n;
}

/* A number's part; part 1 of a real one is nothing. */
static uint8_t *part_of(conform_case *c, uint32_t slot, uint8_t *bytes, uint64_t index, uint32_t part)
{
    const test_tensor *t = conform_tensor(c, slot);
    const bool pairs = is_complex(c, slot) && t->dtype == MICA_DTYPE_F64;

    return bytes + (pairs ? test_tensor_place(t, 2 * index + part) : test_tensor_place(t, index) + 4 * part);
}

static double get_part(conform_case *c, uint32_t slot, uint8_t *bytes, uint64_t index, uint32_t part)
{
    const mica_dtype dtype = conform_tensor(c, slot)->dtype;

    if (part == 1 && !is_complex(c, slot))
        return 0;
    return oracle_get(dtype == MICA_DTYPE_F64 ? dtype : MICA_DTYPE_F32, part_of(c, slot, bytes, index, part));
}

/* Complex or real numbers of the operand. */
static uint64_t numbers(conform_case *c, uint32_t slot)
{
    const test_tensor *t = conform_tensor(c, slot);

    return t->dtype == MICA_DTYPE_F64 && is_complex(c, slot) ? t->count / 2 : t->count;
}

static void fill(conform_case *c, test_random *random)
{
    test_tensor *x = conform_tensor(c, X);
    const mica_dtype dtype = x->dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const double spread = exp2((double)test_random_below(random, 21) - 10);
    const bool tone = test_random_one_in(random, 6); /* all energy in few numbers */

    for (uint64_t i = 0; i < numbers(c, X); i++)
        for (uint32_t part = 0; part < (is_complex(c, X) ? 2u : 1u); part++)
            oracle_put(dtype, tone ? (double)(i % 5 == 2) * spread : spread * test_random_normal(random),
                       part_of(c, X, x->image, i, part));
}

static void add_operand(conform_case *c, test_random *random, uint32_t slot, bool wide, uint32_t ndim,
                        const uint64_t *shape, bool in_place)
{
    const bool complex = is_complex(c, slot);
    const mica_dtype dtype = wide ? MICA_DTYPE_F64 : complex ? MICA_DTYPE_C64 : MICA_DTYPE_F32;
    const uint32_t at = ndim - 1 - c->params.fft.axis;
    uint64_t own[MICA_MAX_DIMS];

    memcpy(own, shape, ndim * sizeof *shape);
    own[at] = points(c, slot, shape[at]);
    own[ndim] = 2;
    ndim += wide && complex;
    if (slot == X)
        conform_add(c, random, "x", dtype, ndim, own, in_place ? TEST_ANY : TEST_REPEAT);
    else
        conform_add_output(c, random, "y", dtype, ndim, own, TEST_ANY, in_place, X);
}

static void make(conform_case *c, test_random *random, uint64_t n)
{
    mica_fft_params *fft = &c->params.fft;
    const uint32_t ndim = c->typical ? 1 : 1 + (uint32_t)test_random_below(random, 3);
    const bool wide = !c->typical && !conform_kernels && test_random_one_in(random, 3);
    uint64_t shape[MICA_MAX_DIMS];
    bool in_place = false;

    if (!c->typical) {
        fft->kind = (uint32_t)test_random_below(random, 3);
        fft->inverse = (uint32_t)test_random_below(random, 2);
        fft->norm = (uint32_t)test_random_below(random, 3);
        fft->axis = (uint32_t)test_random_below(random, ndim);
        in_place = fft->kind == MICA_FFT_COMPLEX && test_random_one_in(random, 3);
    }
    if (fft->kind == MICA_FFT_HERMITIAN && (n % 2 == 1 || test_random_one_in(random, 2)))
        fft->length = (uint32_t)n;
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = n > 600 ? 1 + test_random_below(random, 2) : test_random_size(random, n > 64 ? 5 : 20);
    shape[ndim - 1 - fft->axis] = n;
    add_operand(c, random, X, wide, ndim, shape, in_place);
    fill(c, random);
    add_operand(c, random, Y, wide, ndim, shape, in_place);
    c->flops = 5 * (double)n * log2((double)n);
    c->bytes = conform_bytes(c, X) + conform_bytes(c, Y);
}

void conform_make_fft(conform_case *c, test_random *random)
{
    const uint32_t odd = sizeof odd_lengths / sizeof *odd_lengths;
    const uint64_t n = test_random_one_in(random, 2) ? 1 + test_random_below(random, 64)
                                                     : odd_lengths[test_random_below(random, odd)];

    make(c, random, c->typical ? 1u << 20 : n);
}

void conform_make_fft_long(conform_case *c, test_random *random)
{
    make(c, random,
         c->typical ? 1u << 20
                    : long_lengths[test_random_below(random, sizeof long_lengths / sizeof *long_lengths)]);
}

mica_status conform_encode_fft(const conform_case *c, mica_encoder *encoder)
{
    return mica_fft(encoder, conform_buffer(c, X), &c->params.fft, conform_buffer(c, Y));
}

static double scale_of(const mica_fft_params *fft, uint64_t n)
{
    if (fft->norm == MICA_FFT_ORTHO)
        return 1 / sqrt((double)n);
    return fft->norm == (fft->inverse != 0 ? MICA_FFT_BACKWARD : MICA_FFT_FORWARD) ? 1 / (double)n : 1;
}

/* The whole row of x: half a spectrum has the conjugates of what it leaves out. */
static void read_row(conform_case *c, uint64_t n, uint64_t first, uint64_t step, double *row)
{
    const uint64_t have = points(c, X, n);
    const bool hermitian = c->params.fft.kind == MICA_FFT_HERMITIAN;

    for (uint64_t k = 0; k < n; k++) {
        const uint64_t own = k < have ? k : n - k;

        for (uint32_t part = 0; part < 2; part++)
            row[2 * k + part] = get_part(c, X, conform_tensor(c, X)->image, first + own * step, part);
        if (hermitian && (own == 0 || 2 * own == n))
            row[2 * k + 1] = 0;
        else if (hermitian && k >= have)
            row[2 * k + 1] = -row[2 * k + 1];
    }
}

/* wanted_values: of each number of y its parts, then by how much they may be off. */
void conform_oracle_fft(conform_case *c)
{
    const mica_fft_params *fft = &c->params.fft;
    const test_tensor *y = conform_tensor(c, Y), *x = conform_tensor(c, X);
    const bool pairs = y->dtype == MICA_DTYPE_F64 && is_complex(c, Y);
    const uint32_t at = y->ndim - 1 - fft->axis - pairs;
    const uint64_t have = y->shape[at], n = fft->kind == MICA_FFT_HERMITIAN ? have : x->shape[at];
    uint64_t step = 1;
    double *row = test_alloc(2 * n, sizeof *row), *whole = test_alloc(2 * n, sizeof *whole);
    double *error = test_alloc(n, sizeof *error);
    double *wanted = c->wanted_values = test_alloc(3 * numbers(c, Y) + 1, sizeof *wanted);

    for (uint32_t d = at + 1; d < y->ndim - (uint32_t)pairs; d++)
        step *= y->shape[d];
    for (uint64_t r = 0; r < numbers(c, Y) / have; r++) {
        const uint64_t from = r / step * points(c, X, n) * step + r % step,
                       to = r / step * have * step + r % step;
        const double scale = scale_of(fft, n);

        read_row(c, n, from, step, row);
        oracle_dft(n, fft->inverse != 0, row, whole);
        oracle_dft_error(n, row, whole, error);
        for (uint64_t k = 0; k < have; k++) {
            double *out = wanted + 3 * (to + k * step);

            out[0] = scale * whole[2 * k];
            out[1] = is_complex(c, Y) ? scale * whole[2 * k + 1] : 0;
            out[2] = scale * error[k];
        }
    }
    free(row);
    free(whole);
    free(error);
}

bool conform_judge_fft(conform_case *c, char *why)
{
    const test_tensor *y = conform_tensor(c, Y);
    const double *wanted = c->wanted_values;
    const double eps = ORACLE_F32_EPS * (y->dtype == MICA_DTYPE_F64 ? 0x1p-29 : 1);

    for (uint64_t i = 0; i < numbers(c, Y); i++)
        for (uint32_t part = 0; part < 2; part++) {
            const double got = get_part(c, Y, conform_tensor(c, Y)->after, i, part),
                         want = wanted[3 * i + part];
            const double room = c->row->factor * eps * wanted[3 * i + 2] + 1e-37;

            if (fabs(got - want) <= room)
                continue;
            snprintf(why, CONFORM_TEXT,
                     "part %u of number %llu of y is %.9g, the oracle says %.9g, off by %.3g, allowed %.3g "
                     "(%s); kind %u, "
                     "inverse %u, norm %u, axis %u",
                     part, (unsigned long long)i, got, want, fabs(got - want), room, c->row->reason,
                     c->params.fft.kind, c->params.fft.inverse, c->params.fft.norm, c->params.fft.axis);
            return false;
        }
    return true;
}
