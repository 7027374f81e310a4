/* windows.c - how many windows there are, and three spatial dimensions for all. */
#include "backend/windows.h"

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
