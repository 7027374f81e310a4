/* gpu_plan_image.c - plans of convolution and of its gradient with respect to the weight. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "backend/windows.h"
#include "base/status.h"

#define TILE 64u         /* outputs and places of a group: conv.kc */
#define FEW_OUTPUTS 8u   /* of a group up to which a tile would be mostly empty */
#define MOST 0x3fffffffu /* places, terms: kernels count them in 32 bits with a sign */

static mica_status check_size(const mica__record *record, uint64_t size, const char *what)
{
    if (size <= MOST)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu %s, 2^30 - 1 are served on GPUs",
                      mica_op_name((mica_op)record->op), (unsigned long long)size, what);
}

/* The windows and the sizes of a group. */
static mica_status set_windows(const mica__record *record, const mica__windows *w, mk_conv_params *p,
                               uint64_t *places, uint64_t *terms)
{
    const bool transposed = p->transposed != 0;
    mica_status status = MICA_OK;
    *places = p->batch;
    *terms = p->channels;
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        const uint64_t reach = (uint64_t)w->kernel[d] * w->dilation[d] + w->in[d] + w->low[d] + w->high[d];
        if (status == MICA_OK)
            status =
                check_size(record, reach > w->stride[d] ? reach : w->stride[d], "places along a dimension");
        p->in[d] = (uint32_t)w->in[d];
        p->out[d] = (uint32_t)w->out[d];
        p->taps[d] = w->kernel[d];
        p->stride[d] = w->stride[d];
        p->dilation[d] = w->dilation[d];
        p->low[d] = w->low[d];
        p->places[d] = transposed ? p->in[d] : p->out[d];
        *places *= p->places[d];
        *terms *= p->taps[d];
        if (status == MICA_OK)
            status = check_size(record, *places > *terms ? *places : *terms, "places or products");
    }
    return status;
}

static void set_strides(const mica__operand *operand, mk_u64 *stride)
{
    uint64_t shape[MICA__WINDOW_DIMS], from[MICA__WINDOW_DIMS];
    mica__windows_operand(operand, shape, from);
    memcpy(stride, from, sizeof from);
}

mica_status mica__gpu_plan_conv(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__conv_record *fused = record->params;
    const mica_conv_params *conv = &fused->conv;
    const mica__operand *x = &record->operand[MICA__CONV_X], *w = &record->operand[MICA__CONV_WEIGHT],
                        *bias = &record->operand[MICA__CONV_BIAS], *y = &record->operand[MICA__CONV_Y];
    const bool transposed = conv->transposed != 0;
    mica__windows windows;
    mk_conv_params p;
    uint64_t places, terms;
    (void)info;
    if (fused->relu != 0 || record->operand_count > MICA__CONV_SLOTS)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "conv on a GPU: a residual and relu are records of their own");
    memset(&p, 0, sizeof p);
    mica__windows_of_conv(conv, transposed ? y : x, w, transposed ? x : y, &windows);
    p.transposed = conv->transposed;
    p.batch = (uint32_t)x->shape[0];
    p.channels = (uint32_t)(x->shape[1] / conv->groups);
    p.outputs = (uint32_t)(y->shape[1] / conv->groups);
    mica_status status = set_windows(record, &windows, &p, &places, &terms);
    const bool few = p.outputs <= FEW_OUTPUTS;
    if (status == MICA_OK)
        status =
            mica__gpu_plan_next(plan, few ? "conv/direct" : "conv/tiled",
                                few ? (places + MICA__MK_WG - 1) / MICA__MK_WG : (places + TILE - 1) / TILE);
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(plan, few ? p.outputs : (p.outputs + TILE - 1) / TILE, conv->groups);
    if (status != MICA_OK)
        return status;
    set_strides(x, p.x_stride);
    set_strides(y, p.y_stride);
    set_strides(w, p.weight_stride);
    if (transposed) { /* weight [c, o, ..] */
        const mk_u64 step = p.weight_stride[0];
        p.weight_stride[0] = p.weight_stride[1];
        p.weight_stride[1] = step;
    }
    p.x_group = p.channels * p.x_stride[1];
    p.weight_group = transposed ? p.channels * p.weight_stride[1] : p.outputs * p.weight_stride[0];
    p.has_bias = mica__operand_present(bias);
    p.bias_stride = p.has_bias != 0 ? bias->stride[0] : 0;
    p.bias_type = p.has_bias != 0 ? mica__gpu_type(bias->dtype) : 0;
    p.x_type = mica__gpu_type(x->dtype);
    p.weight_type = mica__gpu_type(w->dtype);
    p.y_type = mica__gpu_type(y->dtype);
    for (uint32_t slot = 0; slot < MICA__CONV_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_conv_weight_backward(const mica__record *record, const mica__device_info *info,
                                                mica__plan *plan)
{
    const mica_conv_params *conv = record->params;
    const mica__operand *x = &record->operand[MICA__CONV_WEIGHT_X],
                        *dy = &record->operand[MICA__CONV_WEIGHT_DY],
                        *w = &record->operand[MICA__CONV_WEIGHT_DWEIGHT];
    mica__windows windows;
    mk_conv_params p;
    uint64_t places, terms;
    (void)info;
    memset(&p, 0, sizeof p);
    mica__windows_of_conv(conv, x, w, dy, &windows);
    p.batch = (uint32_t)x->shape[0];
    p.channels = (uint32_t)(x->shape[1] / conv->groups);
    p.outputs = (uint32_t)(dy->shape[1] / conv->groups);
    mica_status status = set_windows(record, &windows, &p, &places, &terms);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "conv/weight_backward", terms);
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(plan, p.outputs, conv->groups);
    if (status != MICA_OK)
        return status;
    set_strides(x, p.x_stride);
    set_strides(dy, p.y_stride);
    set_strides(w, p.weight_stride);
    p.x_group = p.channels * p.x_stride[1];
    p.weight_group = p.outputs * p.weight_stride[0];
    p.x_type = mica__gpu_type(x->dtype);
    p.weight_type = mica__gpu_type(w->dtype);
    p.y_type = mica__gpu_type(dy->dtype);
    for (uint32_t slot = 0; slot < MICA__CONV_WEIGHT_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
