/* gpu_plan_fourier.c - plans of Fourier transforms: in local memory, or through the scratch pass by pass. */
#include <string.h>

#include "backend/fourier.h"
#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define LOCAL_POINTS 1024u /* as fourier.kc has it */

static mica_status check(const mica__fourier *of)
{
    if (of->rows >= UINT32_MAX || of->length > UINT32_MAX / 4)
        return mica__fail(MICA_ERR_UNSUPPORTED, "fft: %llu rows of %llu points, 2^32 - 2 and 2^28 are served",
                          (unsigned long long)of->rows, (unsigned long long)of->n);
    return MICA_OK;
}

static void choose_radices(mk_fourier_params *p)
{
    static const uint32_t radices[] = {4, 2, 3, 5, 7, 11, 13};
    uint32_t n = p->length;
    for (uint32_t i = 0; i < sizeof radices / sizeof *radices; i++)
        for (; n % radices[i] == 0; n /= radices[i])
            p->radix[p->passes++] = radices[i];
}

static void describe(const mica__fourier *of, mk_fourier_params *p)
{
    memset(p, 0, sizeof *p);
    for (uint32_t d = 0; d < MICA_MAX_DIMS; d++) {
        p->x_stride[d] = of->x_stride[d];
        p->y_stride[d] = of->y_stride[d];
        p->shape[d] = (uint32_t)of->shape[d];
    }
    p->x_step = of->x_step;
    p->y_step = of->y_step;
    p->ndim = of->ndim;
    p->rows = (uint32_t)of->rows;
    p->n = (uint32_t)of->n;
    p->inner = (uint32_t)of->inner;
    p->length = (uint32_t)of->length;
    p->kind = of->kind;
    p->inverse = of->inverse;
    p->pairs = of->pairs;
    p->chirp = of->chirp;
    p->scale = (float)of->scale;
    choose_radices(p);
}

static mica_status next(mica__plan *plan, const char *kernel, uint64_t items)
{
    return mica__gpu_plan_next(plan, kernel, (items + MICA__MK_WG - 1) / MICA__MK_WG);
}

static mica_status plan_local(const mica__record *record, mk_fourier_params *p, mica__plan *plan)
{
    p->together = LOCAL_POINTS / p->length;
    const mica_status status =
        mica__gpu_plan_next(plan, "fourier/fft_local", (p->rows + (uint64_t)p->together - 1) / p->together);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_operand(plan, record, MICA__FFT_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__FFT_Y, 0);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

/* Transforms `rows` rows at p->from; they are there again, or in the other half of the scratch, then. */
static mica_status add_passes(mk_fourier_params *p, uint32_t rows, uint64_t half, mica__plan *plan)
{
    mk_fourier_params own = *p;
    own.rows = rows;
    own.done = 1;
    for (own.pass = 0; own.pass < p->passes; own.pass++) {
        own.from = p->from;
        own.to = p->from == 0 ? half : 0;
        const mica_status status =
            next(plan, "fourier/fft_pass", (uint64_t)rows * (p->length / p->radix[own.pass]));
        if (status != MICA_OK)
            return status;
        mica__gpu_plan_scratch(plan, 0, 2 * half, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
        mica__gpu_plan_params(plan, &own, sizeof own);
        own.done *= p->radix[own.pass];
        p->from = own.to;
    }
    return MICA_OK;
}

static mica_status plan_long(const mica__record *record, mk_fourier_params *p, mica__plan *plan)
{
    const uint32_t both = MICA_ACCESS_READ | MICA_ACCESS_WRITE, rows = p->rows + p->chirp;
    const uint64_t half = ((uint64_t)rows * p->length * 8 + 63) / 64 * 64;
    mica_status status = next(plan, "fourier/fft_fill", (uint64_t)rows * p->length);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_operand(plan, record, MICA__FFT_X, 0);
    mica__gpu_plan_scratch(plan, 0, 2 * half, both);
    mica__gpu_plan_params(plan, p, sizeof *p);
    status = add_passes(p, rows, half, plan);
    if (status == MICA_OK && p->chirp != 0) {
        status = next(plan, "fourier/fft_multiply", (uint64_t)p->rows * p->length);
        if (status != MICA_OK)
            return status;
        mica__gpu_plan_scratch(plan, 0, 2 * half, both);
        mica__gpu_plan_params(plan, p, sizeof *p);
        status = add_passes(p, p->rows, half, plan);
    }
    if (status == MICA_OK)
        status = next(plan, "fourier/fft_drain",
                      (uint64_t)p->rows * (p->kind == MICA_FFT_REAL ? p->n / 2 + 1 : p->inner));
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_scratch(plan, 0, 2 * half, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__FFT_Y, 0);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

mica_status mica__gpu_plan_fft(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__fourier of;
    mk_fourier_params p;
    (void)info;
    mica__fourier_of(record, &of);
    const mica_status status = check(&of);
    if (status != MICA_OK)
        return status;
    describe(&of, &p);
    return p.chirp == 0 && p.length <= LOCAL_POINTS ? plan_local(record, &p, plan)
                                                    : plan_long(record, &p, plan);
}
