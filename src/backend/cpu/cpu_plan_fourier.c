/*
 * cpu_plan_fourier.c - plans of Fourier transforms: which of the ways of cpu_fourier.h a length goes, and its steps.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_fourier.h"
#include "backend/cpu/cpu_plan.h"
#include "backend/cpu/kernels/fourier/fft_roots.h"
#include "backend/planning.h"
#include "base/isa.h"
#include "base/status.h"

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* length = first * second, as near to each other as its divisors are. */
static void fold(mica__cpu_fft *fft)
{
    const uint64_t length = fft->of.length;
    uint64_t first = (uint64_t)sqrt((double)length);
    while (first * first < length)
        first++;
    while (length % first != 0)
        first++;
    fft->first = first;
    fft->second = length / first;
}

/* The rows of x and y in the place of the operands themselves. */
static void give_rows(mica__cpu_view *view, const mica__fourier *of)
{
    for (uint32_t o = 0; o < MICA__FFT_SLOTS; o++) {
        view[o].ndim = (uint8_t)of->ndim;
        memcpy(view[o].shape, of->shape, sizeof of->shape);
        memcpy(view[o].stride, o == MICA__FFT_X ? of->x_stride : of->y_stride, sizeof of->x_stride);
    }
}

/* One dispatch over `rows` of its range. Views: x and y, then the parts of the scratch where there are some. */
static void add_step(const mica__record *record, mica__cpu_fft *fft, mica__plan *plan, const char *kernel,
                     uint64_t rows, const uint64_t *scratch, double unit_ns)
{
    const uint32_t both = MICA_ACCESS_READ | MICA_ACCESS_WRITE;
    fft->range.rows = rows;
    fft->range.rows_per_unit = 1 + rows / UINT32_MAX;
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, kernel, ceil_of(rows, fft->range.rows_per_unit));
    mica__cpu_plan_operands(plan, record, MICA__FFT_SLOTS);
    give_rows(mica__cpu_plan_views(plan), &fft->of);
    if (scratch != NULL) {
        mica__cpu_plan_scratch(plan, 0, scratch[0], both);
        mica__cpu_plan_scratch(plan, scratch[0], scratch[1], both);
    }
    fft->ready = mica__cpu_fft_places_of(fft).tables <= MICA__CPU_FFT_READY;
    mica__cpu_plan_params(plan, fft, sizeof *fft);
    unsigned char *tables =
        fft->ready != 0 ? mica__planning_params(plan, (uint32_t)mica__cpu_fft_places_of(fft).tables) : NULL;
    if (tables != NULL)
        fft_tables_make(fft, tables);
    dispatch->local_bytes = (uint32_t)mica__cpu_fft_places_of(fft).bytes;
    mica__cpu_plan_grain(dispatch, unit_ns);
}

/* The steps of long rows: into the scratch, both steps, and out of it; a convolution goes there and back. */
static void plan_long(const mica__record *record, mica__cpu_fft *fft, mica__plan *plan)
{
    const mica__fourier *of = &fft->of;
    const uint64_t rows = of->rows + of->chirp, lanes = MICA__CPU_FFT_LANES, pair = 2 * fft->size;
    const uint64_t pieces = ceil_of(of->length, MICA__CPU_FFT_PIECE);
    const uint64_t scratch[2] = {ceil_of(rows * of->length * pair, 64) * 64,
                                 rows * mica__cpu_fft_folded(fft) * pair};
    const double block_ns = 2.0 * (double)(fft->first * lanes);
    fft->part = MICA__CPU_FFT_ROOTS;
    if (fft->direct == 0)
        add_step(record, fft, plan, "fft_fill", rows * pieces, scratch, 3.0 * MICA__CPU_FFT_PIECE);
    for (uint32_t way = 0; way <= of->chirp; way++) {
        const uint64_t own = way != 0 ? of->rows : rows;
        fft->part = MICA__CPU_FFT_ROOTS;
        if (way != 0)
            add_step(record, fft, plan, "fft_multiply", own * pieces, scratch, 2.0 * MICA__CPU_FFT_PIECE);
        fft->part = MICA__CPU_FFT_ALL;
        add_step(record, fft, plan, "fft_first", own * ceil_of(fft->second, lanes), scratch, block_ns);
        fft->part = MICA__CPU_FFT_SECOND;
        add_step(record, fft, plan, "fft_second", own * ceil_of(fft->first, lanes), scratch, block_ns);
    }
    fft->part = MICA__CPU_FFT_ROOTS;
    if (fft->direct == 0)
        add_step(record, fft, plan, "fft_drain", of->rows * pieces, scratch, 4.0 * MICA__CPU_FFT_PIECE);
}

mica_status mica__cpu_plan_fft(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__cpu_fft fft = {.size = record->operand[MICA__FFT_X].dtype == MICA_DTYPE_F64 ? 8 : 4};
    mica__fourier_of(record, &fft.of);
    fft.direct = fft.of.kind == MICA_FFT_COMPLEX && fft.of.chirp == 0 && fft.of.x_step == 2 * fft.size &&
                 fft.of.y_step == 2 * fft.size && fft.of.x_half == fft.size && fft.of.y_half == fft.size;
    fft.order = fft.of.pairs != 0 ? fft.of.n : 2 * fft.of.n;
    fft.first = fft.of.length;
    fft.second = 1;
    /* squares of the widest vectors are as fast as lanes, and a row alone leaves no lanes empty */
    const bool squares = info->isa == MICA__ISA_AVX512 && fft.size == 4 &&
                         fft.of.length % ((uint64_t)MICA__CPU_FFT_LANES * MICA__CPU_FFT_LANES) == 0;
    const bool lanes = fft.of.length <= MICA__CPU_FFT_SHORT && !squares;
    if (!lanes)
        fold(&fft);
    fft.first_radices = fft_radices_of(fft.first);
    fft.second_radices = fft_radices_of(fft.second);
    /* what goes through two steps alone is computed by the same functions either way, which the rest is not */
    fft.own = fft.of.length <= MICA__CPU_FFT_MEDIUM &&
              (fft.direct == 0 || fft.of.length < MICA__CPU_FFT_SHARED || fft.of.rows >= info->threads);
    fft.part = MICA__CPU_FFT_ALL;
    const uint64_t local = mica__cpu_fft_places_of(&fft).bytes;
    if (local > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "fft on the cpu: %llu points need %llu bytes of work memory",
                          (unsigned long long)fft.of.n, (unsigned long long)local);
    const double row_ns = 20 + 3.0 * (double)fft.of.length;
    if (lanes)
        add_step(record, &fft, plan, "fft_lanes", ceil_of(fft.of.rows, MICA__CPU_FFT_LANES), NULL,
                 MICA__CPU_FFT_LANES * row_ns);
    else if (fft.own != 0)
        add_step(record, &fft, plan, "fft_rows", fft.of.rows, NULL, row_ns);
    else
        plan_long(record, &fft, plan);
    return MICA_OK;
}
