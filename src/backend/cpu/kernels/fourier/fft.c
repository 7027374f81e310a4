/*
 * fft.c - Fourier transforms in f32, with the vectors of simd.h, and in f64.
 */
#include <string.h>

#include "backend/cpu/cpu_fourier.h"
#include "backend/cpu/kernels/fourier/fft_roots.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/simd/simd.h"
#include "backend/cpu/kernels/walk.h"

/* A square by zips: each round brings rows i and i + LANES / 2 side by side. */
static inline void transpose_f32(const float *from, uint64_t from_step, float *to, uint64_t to_step)
{
    vf a[VW], b[VW];
    for (int i = 0; i < VW; i++)
        a[i] = vf_load(from + (uint64_t)i * from_step);
    for (int round = 1; round < VW; round *= 2) {
        for (int i = 0; i < VW / 2; i++) {
            b[2 * i] = vf_zip_low(a[i], a[i + VW / 2]);
            b[2 * i + 1] = vf_zip_high(a[i], a[i + VW / 2]);
        }
        for (int i = 0; i < VW; i++)
            a[i] = b[i];
    }
    for (int i = 0; i < VW; i++)
        vf_store(to + (uint64_t)i * to_step, a[i]);
}

#define NAME(x) f32_##x
#define R float
#define V vf
#define LANES ((uint64_t)VW)
#define V_LOAD(p) vf_load(p)
#define V_STORE(p, v) vf_store(p, v)
#define V_SET1(x) vf_set1(x)
#define V_ADD(a, b) vf_add(a, b)
#define V_SUB(a, b) vf_sub(a, b)
#define V_MUL(a, b) vf_mul(a, b)
#define V_FMA(a, b, c) vf_fma(a, b, c)
#define V_FNMA(a, b, c) vf_fnma(a, b, c)
#define V_EVEN(a, b) vf_unzip_even(a, b)
#define V_ODD(a, b) vf_unzip_odd(a, b)
#define V_LOW(a, b) vf_zip_low(a, b)
#define V_HIGH(a, b) vf_zip_high(a, b)
#define V_TRANSPOSE(from, from_step, to, to_step) transpose_f32(from, from_step, to, to_step)
#include "backend/cpu/kernels/fourier/fft_block.h"
#include "backend/cpu/kernels/fourier/fft_steps.h"
#undef NAME
#undef R
#undef V
#undef LANES
#undef V_LOAD
#undef V_STORE
#undef V_SET1
#undef V_ADD
#undef V_SUB
#undef V_MUL
#undef V_FMA
#undef V_FNMA
#undef V_EVEN
#undef V_ODD
#undef V_LOW
#undef V_HIGH
#undef V_TRANSPOSE

/* Two doubles: every processor has them. */
typedef double pair_f64 __attribute__((vector_size(16)));

static inline pair_f64 load_f64(const double *p)
{
    pair_f64 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void transpose_f64(const double *from, uint64_t from_step, double *to, uint64_t to_step)
{
    for (uint64_t i = 0; i < 2; i++)
        for (uint64_t j = 0; j < 2; j++)
            to[j * to_step + i] = from[i * from_step + j];
}

#define NAME(x) f64_##x
#define R double
#define V pair_f64
#define LANES ((uint64_t)2)
#define V_LOAD(p) load_f64(p)
#define V_STORE(p, v) (((p)[0] = (v)[0]), ((p)[1] = (v)[1]))
#define V_SET1(x) ((pair_f64){x, x})
#define V_ADD(a, b) ((a) + (b))
#define V_SUB(a, b) ((a) - (b))
#define V_MUL(a, b) ((a) * (b))
#define V_FMA(a, b, c) ((a) * (b) + (c))
#define V_FNMA(a, b, c) ((c) - (a) * (b))
#define V_EVEN(a, b) ((pair_f64){(a)[0], (b)[0]})
#define V_ODD(a, b) ((pair_f64){(a)[1], (b)[1]})
#define V_LOW(a, b) ((pair_f64){(a)[0], (b)[0]})
#define V_HIGH(a, b) ((pair_f64){(a)[1], (b)[1]})
#define V_TRANSPOSE(from, from_step, to, to_step) transpose_f64(from, from_step, to, to_step)
#include "backend/cpu/kernels/fourier/fft_block.h"
#include "backend/cpu/kernels/fourier/fft_steps.h"

static bool is_wide(const mica__cpu_args *args)
{
    return args->view[0].dtype == MICA_DTYPE_F64;
}

#define PREPARE_BY(kernel, what)                                 \
    void MICA__ISA(kernel##_prepare)(const mica__cpu_args *args) \
    {                                                            \
        if (is_wide(args)) {                                     \
            const f64_fft t = f64_fft_of(args);                  \
            f64_##what(&t);                                      \
        } else {                                                 \
            const f32_fft t = f32_fft_of(args);                  \
            f32_##what(&t);                                      \
        }                                                        \
    }
PREPARE_BY(fft_fill, prepare_tables)
PREPARE_BY(fft_drain, prepare_tables)
PREPARE_BY(fft_first, prepare_tables)
PREPARE_BY(fft_second, prepare_tables)

void MICA__ISA(fft_lanes_prepare)(const mica__cpu_args *args)
{
    (is_wide(args) ? f64_prepare_lanes : f32_prepare_lanes)(args);
}

void MICA__ISA(fft_rows_prepare)(const mica__cpu_args *args)
{
    (is_wide(args) ? f64_prepare_rows : f32_prepare_rows)(args);
}

/* The rows of units [first, last), each `of` rows of the caller. */
static void range_of(const mica__cpu_args *args, uint32_t first, uint32_t last, uint64_t *out_from,
                     uint64_t *out_to)
{
    const mica__cpu_fft *fft = args->params;
    *out_from = mica__cpu_rows_begin(&fft->range, first);
    *out_to = mica__cpu_rows_end(&fft->range, last);
}

void MICA__ISA(fft_lanes)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_fft *fft = args->params;
    uint64_t from, to;
    range_of(args, first, last, &from, &to);
    from *= MICA__CPU_FFT_LANES;
    to *= MICA__CPU_FFT_LANES;
    (is_wide(args) ? f64_run_lanes : f32_run_lanes)(args, from, to < fft->of.rows ? to : fft->of.rows);
}

void MICA__ISA(fft_rows)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    uint64_t from, to;
    range_of(args, first, last, &from, &to);
    (is_wide(args) ? f64_run_rows : f32_run_rows)(args, from, to);
}

static void pieces(const mica__cpu_args *args, uint32_t first, uint32_t last, int step)
{
    uint64_t from, to;
    range_of(args, first, last, &from, &to);
    (is_wide(args) ? f64_run_pieces : f32_run_pieces)(args, from, to, step);
}

static void columns(const mica__cpu_args *args, uint32_t first, uint32_t last, bool second)
{
    uint64_t from, to;
    range_of(args, first, last, &from, &to);
    (is_wide(args) ? f64_run_columns : f32_run_columns)(args, from, to, second);
}

void MICA__ISA(fft_fill)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, first, last, 0);
}

void MICA__ISA(fft_multiply)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, first, last, 1);
}

void MICA__ISA(fft_drain)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, first, last, 2);
}

void MICA__ISA(fft_first)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    columns(args, first, last, false);
}

void MICA__ISA(fft_second)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    columns(args, first, last, true);
}
