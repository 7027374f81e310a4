/* windows.c - how many windows there are, and three spatial dimensions for all. */
#include "backend/windows.h"

#include <string.h>

uint64_t mica__windows_count(uint64_t in, uint32_t kernel, uint32_t stride, uint32_t dilation, uint32_t low,
                             uint32_t high)
{
    const uint64_t padded = in + low + high, covered = (uint64_t)dilation * (kernel - 1u) + 1;
    return padded >= covered ? (padded - covered) / stride + 1 : 0;
}

void mica__windows_align(uint32_t dims, const uint32_t *from, uint32_t missing, uint32_t *to)
{
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++)
        to[d] = d + dims < MICA_SPATIAL_DIMS ? missing : from[d + dims - MICA_SPATIAL_DIMS];
}

void mica__windows_operand(const mica__operand *operand, uint64_t *shape, uint64_t *stride)
{
    const uint32_t missing = MICA__WINDOW_DIMS - operand->ndim;
    for (uint32_t d = 0; d < MICA__WINDOW_DIMS; d++) {
        const bool here = d < 2 || d >= 2 + missing;
        const uint32_t from = d < 2 ? d : d - missing;
        shape[d] = here ? operand->shape[from] : 1;
        stride[d] = here ? operand->stride[from] : 0;
    }
}

void mica__windows_of_conv(const mica_conv_params *params, const mica__operand *in,
                           const mica__operand *weight, const mica__operand *out, mica__windows *windows)
{
    const uint32_t dims = in->ndim - 2u, missing = MICA_SPATIAL_DIMS - dims;
    mica__windows_align(dims, params->stride, 1, windows->stride);
    mica__windows_align(dims, params->dilation, 1, windows->dilation);
    mica__windows_align(dims, params->low, 0, windows->low);
    mica__windows_align(dims, params->high, 0, windows->high);
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        const uint32_t from = 2 + d - missing;
        windows->in[d] = d < missing ? 1 : in->shape[from];
        windows->out[d] = d < missing ? 1 : out->shape[from];
        windows->kernel[d] = d < missing ? 1 : (uint32_t)weight->shape[from];
    }
}

uint64_t mica__windows_count_ceil(uint64_t in, uint32_t kernel, uint32_t stride, uint32_t dilation,
                                  uint32_t low, uint32_t high)
{
    const uint64_t padded = in + low + high, covered = (uint64_t)dilation * (kernel - 1u) + 1;
    const uint64_t count = padded >= covered ? (padded - covered + stride - 1) / stride + 1 : 0;
    return count > 1 && (count - 1) * stride >= in + low ? count - 1 : count;
}

/* Whether dimensions outer and inner are one to all operands. */
static bool are_one(const mica__frames *f, uint32_t count, uint32_t outer, uint32_t inner)
{
    for (uint32_t i = 0; i < count; i++)
        if (f->stride[i][outer] != f->stride[i][inner] * f->shape[inner])
            return false;
    return true;
}

static void merge(mica__frames *f, uint32_t count)
{
    uint32_t last = 0;
    for (uint32_t d = 1; d < f->ndim; d++) {
        const bool one = are_one(f, count, last, d);
        last += !one;
        f->shape[last] = one ? f->shape[last] * f->shape[d] : f->shape[d];
        for (uint32_t i = 0; i < count; i++)
            f->stride[i][last] = f->stride[i][d];
    }
    for (uint32_t d = last + 1; d < f->ndim; d++) {
        f->shape[d] = 0;
        for (uint32_t i = 0; i < count; i++)
            f->stride[i][d] = 0;
    }
    f->ndim = f->ndim > 0 ? last + 1 : 0;
}

void mica__frames_of(const mica__operand *operand, uint32_t count, uint32_t dims, mica__frames *f)
{
    const uint32_t missing = MICA_SPATIAL_DIMS - dims;
    memset(f, 0, sizeof *f);
    f->ndim = operand->ndim - dims;
    f->count = 1;
    for (uint32_t d = 0; d < f->ndim; d++) {
        f->shape[d] = operand->shape[d];
        f->count *= operand->shape[d];
    }
    for (uint32_t i = 0; i < count; i++) {
        const bool here = mica__operand_present(&operand[i]);
        for (uint32_t d = 0; here && d < f->ndim; d++)
            f->stride[i][d] = operand[i].stride[d];
        for (uint32_t d = 0; here && d < MICA_SPATIAL_DIMS; d++) {
            f->grid[i][d] = d < missing ? 1 : operand[i].shape[f->ndim + d - missing];
            f->step[i][d] = d < missing ? 0 : operand[i].stride[f->ndim + d - missing];
        }
    }
    merge(f, count);
}

void mica__windows_of_pool(const mica_pool_windows_params *params, const uint64_t *in, const uint64_t *out,
                           mica__windows *windows)
{
    memcpy(windows->in, in, sizeof windows->in);
    memcpy(windows->out, out, sizeof windows->out);
    mica__windows_align(params->dims, params->kernel, 1, windows->kernel);
    mica__windows_align(params->dims, params->stride, 1, windows->stride);
    mica__windows_align(params->dims, params->dilation, 1, windows->dilation);
    mica__windows_align(params->dims, params->low, 0, windows->low);
    mica__windows_align(params->dims, params->high, 0, windows->high);
}

void mica__windows_of_im2col(const mica_im2col_params *params, const uint64_t *in, mica__windows *windows)
{
    memcpy(windows->in, in, sizeof windows->in);
    mica__windows_align(params->dims, params->kernel, 1, windows->kernel);
    mica__windows_align(params->dims, params->stride, 1, windows->stride);
    mica__windows_align(params->dims, params->dilation, 1, windows->dilation);
    mica__windows_align(params->dims, params->low, 0, windows->low);
    mica__windows_align(params->dims, params->high, 0, windows->high);
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++)
        windows->out[d] = mica__windows_count(in[d], windows->kernel[d], windows->stride[d],
                                              windows->dilation[d], windows->low[d], windows->high[d]);
}
