/* conv.c - convolution, transposed convolution, and the gradient with respect to the weight. */
#include "backend/windows.h"
#include "ops/check.h"
#include "quant/dtype.h"

#define ULL(x) ((unsigned long long)(x))

/* f64 is alone: all operands are, or none. */
static void check_types(mica__op_builder *op, uint32_t slots)
{
    const mica__operand *first = &op->record.operand[0];
    for (uint32_t s = 1; s < slots; s++) {
        const mica__operand *o = &op->record.operand[s];
        mica__op_require(
            op, !mica__op_has(op, s) || (o->dtype == MICA_DTYPE_F64) == (first->dtype == MICA_DTYPE_F64),
            "%s is %s, but %s is %s", mica__op_argument(op, s), mica_dtype_name((mica_dtype)o->dtype),
            mica__op_argument(op, 0), mica_dtype_name((mica_dtype)first->dtype));
    }
}

/* Fills in defaults and checks each parameter of `dims` dimensions by itself. */
static void check_params(mica__op_builder *op, mica_conv_params *p, uint32_t dims)
{
    p->groups = p->groups != 0 ? p->groups : 1;
    mica__op_require(op, p->transposed <= 1, "params.transposed is %u, not 0 or 1", p->transposed);
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        if (d >= dims) {
            p->stride[d] = p->dilation[d] = 1;
            p->low[d] = p->high[d] = p->output_padding[d] = p->kernel[d] = 0;
            continue;
        }
        p->stride[d] = p->stride[d] != 0 ? p->stride[d] : 1;
        p->dilation[d] = p->dilation[d] != 0 ? p->dilation[d] : 1;
        mica__op_require(op, p->stride[d] <= MICA__WINDOW_MOST, "params.stride[%u] is %u, over 2^24", d,
                         p->stride[d]);
        mica__op_require(op, p->dilation[d] <= MICA__WINDOW_MOST, "params.dilation[%u] is %u, over 2^24", d,
                         p->dilation[d]);
        mica__op_require(op, p->low[d] <= MICA__WINDOW_MOST, "params.low[%u] is %u, over 2^24", d, p->low[d]);
        mica__op_require(op, p->kernel[d] <= MICA__WINDOW_MOST, "params.kernel[%u] is %u, over 2^24", d,
                         p->kernel[d]);
        mica__op_require(op, p->high[d] <= MICA__WINDOW_MOST, "params.high[%u] is %u, over 2^24", d,
                         p->high[d]);
        const uint32_t least = p->stride[d] > p->dilation[d] ? p->stride[d] : p->dilation[d];
        mica__op_require(
            op, p->output_padding[d] == 0 || (p->transposed != 0 && p->output_padding[d] < least),
            "params.output_padding[%u] is %u, which is for transposed ones, below stride or dilation", d,
            p->output_padding[d]);
    }
}

/* Sizes of the kernel as parameters and weight say; the former get what the latter has. */
static void check_kernel(mica__op_builder *op, mica_conv_params *p, uint32_t slot, uint32_t ndim)
{
    const mica__operand *weight = &op->record.operand[slot];
    mica__op_require(op, weight->ndim == ndim, "%s has %u dimensions, but x has %u",
                     mica__op_argument(op, slot), weight->ndim, ndim);
    for (uint32_t d = 0; d + 2 < weight->ndim && mica__op_ok(op); d++) {
        const uint64_t size = weight->shape[2 + d];
        if (!mica__size_known(size))
            continue;
        mica__op_require(op, size > 0 && size <= MICA__WINDOW_MOST, "%s: shape[%u] is %llu, not 1 to 2^24",
                         mica__op_argument(op, slot), 2 + d, ULL(size));
        mica__op_require(op, p->kernel[d] == 0 || p->kernel[d] == size,
                         "%s: shape[%u] is %llu, but params.kernel[%u] is %u", mica__op_argument(op, slot),
                         2 + d, ULL(size), d, p->kernel[d]);
        p->kernel[d] = (uint32_t)size;
    }
}

/* The places of y along spatial dimension d. */
static uint64_t places_of(mica__op_builder *op, const mica_conv_params *p, uint32_t d)
{
    const uint64_t in = op->record.operand[MICA__CONV_X].shape[2 + d],
                   kernel = op->record.operand[MICA__CONV_WEIGHT].shape[2 + d];
    if (!mica__size_known(in) || !mica__size_known(kernel))
        return MICA_SIZE_UNKNOWN;
    mica__op_require(op, in < 1ull << 32, "x: shape[%u] is %llu, over 2^32 - 1", 2 + d, ULL(in));
    if (!mica__op_ok(op))
        return 0;
    if (p->transposed == 0) {
        const uint64_t out =
            mica__windows_count(in, (uint32_t)kernel, p->stride[d], p->dilation[d], p->low[d], p->high[d]);
        mica__op_require(op, out > 0, "weight: shape[%u] is %llu, which does not fit into the %llu of x",
                         2 + d, ULL(kernel), ULL(in));
        return out;
    }
    mica__op_require(op, in > 0, "x: shape[%u] is 0", 2 + d);
    const uint64_t whole =
        in > 0 ? (in - 1) * p->stride[d] + p->dilation[d] * (kernel - 1) + 1 + p->output_padding[d] : 0;
    const uint64_t cut = (uint64_t)p->low[d] + p->high[d];
    mica__op_require(op, !mica__op_ok(op) || whole > cut,
                     "params: low[%u] and high[%u] leave nothing of the %llu places of y", d, d, ULL(whole));
    return mica__op_ok(op) ? whole - cut : 0;
}

static void check_groups(mica__op_builder *op, const mica_conv_params *p, uint64_t *outputs)
{
    const mica__operand *x = &op->record.operand[MICA__CONV_X], *w = &op->record.operand[MICA__CONV_WEIGHT];
    const uint64_t channels = x->shape[1], first = w->shape[0], second = w->shape[1];
    *outputs = p->transposed == 0 ? first : mica__size_known(second) ? second * p->groups : MICA_SIZE_UNKNOWN;
    if (!mica__size_known(channels) || !mica__size_known(first) || !mica__size_known(second))
        return;
    mica__op_require(op, channels % p->groups == 0,
                     "params.groups is %u, which does not divide the %llu channels of x", p->groups,
                     ULL(channels));
    if (p->transposed == 0) {
        mica__op_require(op, first % p->groups == 0,
                         "params.groups is %u, which does not divide shape[0] of weight, %llu", p->groups,
                         ULL(first));
        mica__op_require(op, second == channels / p->groups,
                         "weight: shape[1] is %llu, but x has %llu channels in %u groups", ULL(second),
                         ULL(channels), p->groups);
    } else {
        mica__op_require(op, first == channels, "weight: shape[0] is %llu, but x has %llu channels",
                         ULL(first), ULL(channels));
    }
}

void mica__rule_conv(mica__op_builder *op)
{
    mica_conv_params *p = &((mica__conv_record *)op->record.params)->conv;
    const mica__operand *x = &op->record.operand[MICA__CONV_X], *bias = &op->record.operand[MICA__CONV_BIAS];
    uint64_t shape[MICA__WINDOW_DIMS] = {x->shape[0]};
    check_types(op, MICA__CONV_SLOTS);
    check_params(op, p, x->ndim - 2u);
    check_kernel(op, p, MICA__CONV_WEIGHT, x->ndim);
    if (!mica__op_ok(op))
        return;
    check_groups(op, p, &shape[1]);
    if (mica__op_has(op, MICA__CONV_BIAS))
        mica__op_require(op, mica__sizes_agree(bias->shape[0], shape[1]),
                         "bias: shape[0] is %llu, but y has %llu channels", ULL(bias->shape[0]),
                         ULL(shape[1]));
    for (uint32_t d = 0; d + 2 < x->ndim && mica__op_ok(op); d++)
        shape[2 + d] = places_of(op, p, d);
    mica__op_shape(op, MICA__CONV_Y, x->ndim, shape);
}

mica_status mica_conv(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                      const mica_conv_params *params, mica_buffer *y)
{
    mica__conv_record record = {.relu = 0};
    if (params != NULL)
        record.conv = *params;
    return mica__op_call(encoder, MICA_OP_CONV, &record, (mica_buffer *const[]){x, weight, bias, y});
}

/* Along spatial dimension d dy has as many places as the convolution gave. */
static void check_windows(mica__op_builder *op, const mica_conv_params *p, uint32_t d)
{
    const uint64_t in = op->record.operand[MICA__CONV_WEIGHT_X].shape[2 + d],
                   out = op->record.operand[MICA__CONV_WEIGHT_DY].shape[2 + d];
    if (p->kernel[d] == 0 || !mica__size_known(in) || !mica__size_known(out))
        return;
    mica__op_require(op, in < 1ull << 32, "x: shape[%u] is %llu, over 2^32 - 1", 2 + d, ULL(in));
    const uint64_t places =
        mica__windows_count(in, p->kernel[d], p->stride[d], p->dilation[d], p->low[d], p->high[d]);
    mica__op_require(op, out == places, "dy: shape[%u] is %llu, but a kernel of %u places gives %llu", 2 + d,
                     ULL(out), p->kernel[d], ULL(places));
}

void mica__rule_conv_weight_backward(mica__op_builder *op)
{
    mica_conv_params *p = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__CONV_WEIGHT_X],
                        *dy = &op->record.operand[MICA__CONV_WEIGHT_DY],
                        *w = &op->record.operand[MICA__CONV_WEIGHT_DWEIGHT];
    check_types(op, MICA__CONV_WEIGHT_SLOTS);
    check_params(op, p, x->ndim - 2u);
    mica__op_require(op, p->transposed == 0, "params.transposed is 1: exchange x and dy instead");
    mica__op_require(op, dy->ndim == x->ndim, "dy has %u dimensions, but x has %u", dy->ndim, x->ndim);
    if (!mica__op_ok(op))
        return;
    const uint64_t channels = x->shape[1], outputs = dy->shape[1];
    uint64_t shape[MICA__WINDOW_DIMS] = {outputs, MICA_SIZE_UNKNOWN};
    if (mica__size_known(channels) && mica__size_known(outputs))
        mica__op_require(op, channels % p->groups == 0 && outputs % p->groups == 0,
                         "params.groups is %u, which does not divide the channels of x and dy", p->groups);
    if (mica__size_known(channels))
        shape[1] = channels / p->groups;
    if (w->ndim != MICA_RANK_UNKNOWN)
        check_kernel(op, p, MICA__CONV_WEIGHT_DWEIGHT, x->ndim);
    for (uint32_t d = 0; d + 2 < x->ndim; d++)
        shape[2 + d] = p->kernel[d] != 0 ? p->kernel[d] : MICA_SIZE_UNKNOWN;
    mica__op_shape(op, MICA__CONV_WEIGHT_DWEIGHT, x->ndim, shape);
    for (uint32_t d = 0; d + 2 < x->ndim && mica__op_ok(op); d++)
        check_windows(op, p, d);
}

mica_status mica_conv_weight_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                      const mica_conv_params *params, mica_buffer *dweight)
{
    mica_conv_params record = {.groups = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_CONV_WEIGHT_BACKWARD, &record,
                         (mica_buffer *const[]){x, dy, dweight});
}
