/*
 * norm.c - norms over any dimensions and their gradients. Group, instance and batch norms are views of one op: the dimensions that are
 * normalised together come last, weight and bias repeat to x.
 */
#include "ops/norm.h"

#include <math.h>
#include <string.h>

#include "device/objects.h"
#include "ops/programs.h"

#define ULL(x) ((unsigned long long)(x))
#define NONE MICA_REGION_NONE

/* ---- rules ---- */

void mica__op_all_double(mica__op_builder *op)
{
    const mica__operand *o = op->record.operand;
    for (uint32_t slot = 1; slot < op->record.operand_count && mica__op_ok(op); slot++)
        if (mica__op_has(op, slot) && o[slot].dtype != MICA_DTYPE_BOOL && o[slot].dtype != MICA_DTYPE_U32 &&
            o[slot].dtype != MICA_DTYPE_I32)
            mica__op_require(op, (o[slot].dtype == MICA_DTYPE_F64) == (o[0].dtype == MICA_DTYPE_F64),
                             "%s is %s, but %s is %s: all operands are f64 or none",
                             mica__op_argument(op, slot), mica_dtype_name((mica_dtype)o[slot].dtype),
                             mica__op_argument(op, 0), mica_dtype_name((mica_dtype)o[0].dtype));
}

/* What both rules ask; x is slot 0 of both. */
static void check_params(mica__op_builder *op, mica_normalize_params *params)
{
    const mica__operand *x = &op->record.operand[0];
    if (params->dims == 0)
        params->dims = 1;
    mica__op_require(op, params->kind <= MICA_NORMALIZE_L2,
                     "params.kind is %u, which is no mica_normalize_kind", params->kind);
    mica__op_require(op, params->dims <= x->ndim, "params.dims is %u, but x has %u dimensions", params->dims,
                     x->ndim);
    mica__op_require(op, params->eps >= 0.0f && isfinite(params->eps), "eps is %g, not 0 or above and finite",
                     (double)params->eps);
    mica__op_require(op, isfinite(params->offset), "params.offset is not finite");
    mica__op_all_double(op);
}

void mica__rule_normalize(mica__op_builder *op)
{
    mica_normalize_params *params = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__NORMALIZE_X];
    check_params(op, params);
    mica__op_require(op, params->kind == MICA_NORMALIZE_LAYER || !mica__op_has(op, MICA__NORMALIZE_MEAN),
                     "mean is asked for, but params.kind %u has none", params->kind);
    mica__op_require(op,
                     mica__op_has(op, MICA__NORMALIZE_Y) || mica__op_has(op, MICA__NORMALIZE_MEAN) ||
                         mica__op_has(op, MICA__NORMALIZE_VAR),
                     "y, mean and var are NULL");
    if (mica__op_has(op, MICA__NORMALIZE_WEIGHT))
        mica__op_broadcast(op, MICA__NORMALIZE_WEIGHT, MICA__NORMALIZE_X);
    if (mica__op_has(op, MICA__NORMALIZE_BIAS))
        mica__op_broadcast(op, MICA__NORMALIZE_BIAS, MICA__NORMALIZE_X);
    if (!mica__op_ok(op))
        return;
    mica__op_shape(op, MICA__NORMALIZE_MEAN, x->ndim - params->dims, x->shape);
    mica__op_shape(op, MICA__NORMALIZE_VAR, x->ndim - params->dims, x->shape);
}

void mica__rule_normalize_backward(mica__op_builder *op)
{
    mica_normalize_params *params = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__NORMALIZE_BACKWARD_X];
    const mica__operand *weight = &op->record.operand[MICA__NORMALIZE_BACKWARD_WEIGHT];
    uint64_t shape[MICA_MAX_DIMS] = {0};
    check_params(op, params);
    mica__op_require(op,
                     mica__op_has(op, MICA__NORMALIZE_BACKWARD_DX) ||
                         mica__op_has(op, MICA__NORMALIZE_BACKWARD_DWEIGHT) ||
                         mica__op_has(op, MICA__NORMALIZE_BACKWARD_DBIAS),
                     "dx, dweight and dbias are NULL");
    if (!mica__op_ok(op))
        return;
    uint32_t ndim = params->dims;
    if (mica__op_has(op, MICA__NORMALIZE_BACKWARD_WEIGHT)) {
        ndim = weight->ndim;
        memcpy(shape, weight->shape, sizeof shape);
        mica__op_broadcast(op, MICA__NORMALIZE_BACKWARD_WEIGHT, MICA__NORMALIZE_BACKWARD_X);
    } else {
        memcpy(shape, x->shape + (x->ndim - ndim), ndim * sizeof shape[0]);
    }
    mica__op_shape(op, MICA__NORMALIZE_BACKWARD_DWEIGHT, ndim, shape);
    mica__op_shape(op, MICA__NORMALIZE_BACKWARD_DBIAS, ndim, shape);
}

/* ---- the ops ---- */

mica_status mica_normalize(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                           const mica_normalize_params *params, mica_buffer *y, mica_buffer *mean,
                           mica_buffer *var)
{
    mica_normalize_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_NORMALIZE, &record,
                         (mica_buffer *const[]){x, weight, bias, y, mean, var});
}

mica_status mica_normalize_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                    mica_buffer *weight, const mica_normalize_params *params, mica_buffer *dx,
                                    mica_buffer *dweight, mica_buffer *dbias)
{
    mica_normalize_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_NORMALIZE_BACKWARD, &record,
                         (mica_buffer *const[]){x, dy, weight, dx, dweight, dbias});
}

mica_status mica_l2_norm(mica_encoder *encoder, mica_buffer *x, float eps, mica_buffer *y)
{
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_L2, .eps = eps};
    if (y == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "l2_norm: y is NULL");
    return mica_normalize(encoder, x, NULL, NULL, &params, y, NULL, NULL);
}

static mica_status check_row(const char *name, const mica_buffer *row, const mica_buffer *x)
{
    const uint64_t dim = x->ndim > 0 ? x->shape[x->ndim - 1] : 1;
    if (row == NULL || (row->ndim == 1 && row->shape[0] == dim))
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s has %u dimensions, expected [%llu]", name, row->ndim,
                      ULL(dim));
}

mica_status mica__norm_of_doubles(mica_encoder *encoder, mica_normalize_kind kind, mica_buffer *x,
                                  mica_buffer *weight, mica_buffer *bias, float eps, mica_buffer *y)
{
    const mica_normalize_params params = {.kind = kind, .eps = eps};
    if (y == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "norm: y is NULL");
    MICA__TRY(check_row("norm: weight", weight, x));
    MICA__TRY(check_row("norm: bias", bias, x));
    return mica_normalize(encoder, x, weight, bias, &params, y, NULL, NULL);
}

mica_status mica_rms_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                   mica_buffer *weight, float eps, mica_buffer *dx, mica_buffer *dweight)
{
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_RMS, .eps = eps};
    if (x != NULL)
        MICA__TRY(check_row("rms_norm_backward: weight", weight, x));
    return mica_normalize_backward(encoder, x, dy, weight, &params, dx, dweight, NULL);
}

mica_status mica_layer_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                     mica_buffer *weight, float eps, mica_buffer *dx, mica_buffer *dweight,
                                     mica_buffer *dbias)
{
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_LAYER, .eps = eps};
    if (x != NULL)
        MICA__TRY(check_row("layer_norm_backward: weight", weight, x));
    return mica_normalize_backward(encoder, x, dy, weight, &params, dx, dweight, dbias);
}

mica_status mica_l2_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy, float eps,
                                  mica_buffer *dx)
{
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_L2, .eps = eps};
    return mica_normalize_backward(encoder, x, dy, NULL, &params, dx, NULL, NULL);
}

/* ---- views of [n, channels, ..] ---- */

#define MOST_VIEWS 7u

/* Views of one call; the first failure is kept. */
typedef struct views {
    const char *call;
    mica_buffer *made[MOST_VIEWS];
    uint32_t count;
    mica_status status;
} views;

static mica_buffer *add_view(views *v, mica_buffer *buffer, uint32_t ndim, const uint64_t *shape,
                             const uint64_t *stride)
{
    mica_buffer *view = NULL;
    if (v->status == MICA_OK)
        v->status = mica_buffer_view(buffer, buffer->dtype, ndim, shape, stride, 0, &view);
    if (view != NULL)
        v->made[v->count++] = view;
    return view;
}

/* The status of the call; the views go. */
static mica_status end_views(views *v, mica_status status)
{
    for (uint32_t i = 0; i < v->count; i++)
        mica_buffer_release(v->made[i]);
    return v->status != MICA_OK ? v->status : status;
}

static mica_status check_channels(const char *call, const mica_buffer *x, uint64_t groups)
{
    if (x == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: x is NULL", call);
    if (x->ndim < 2 || x->ndim == MICA_MAX_DIMS)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: x has %u dimensions, not 2 to %u", call, x->ndim,
                          MICA_MAX_DIMS - 1);
    if (groups == 0 || x->shape[1] % groups != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "%s: groups is %llu, which does not divide %llu channels", call, ULL(groups),
                          ULL(x->shape[1]));
    return MICA_OK;
}

/* [n, channels, ..] as [n, groups, channels / groups, ..]; NULL stays NULL. Not of x's shape: refused by `name`. */
static mica_buffer *grouped(views *v, const char *name, mica_buffer *buffer, const mica_buffer *x,
                            uint64_t groups)
{
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    if (buffer == NULL || v->status != MICA_OK)
        return NULL;
    if (buffer->ndim != x->ndim || memcmp(buffer->shape, x->shape, x->ndim * sizeof shape[0]) != 0) {
        v->status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s has another shape than x", v->call, name);
        return NULL;
    }
    for (uint32_t d = 0; d < x->ndim; d++) {
        shape[d + (d > 1)] = buffer->shape[d];
        stride[d + (d > 1)] = buffer->stride[d];
    }
    shape[1] = groups;
    shape[2] = x->shape[1] / groups;
    stride[2] = buffer->stride[1];
    stride[1] = buffer->stride[1] * shape[2];
    return add_view(v, buffer, x->ndim + 1u, shape, stride);
}

/* [channels] as [groups, channels / groups, 1..], to stand beside what `grouped` gives. */
static mica_buffer *grouped_row(views *v, const char *name, mica_buffer *row, const mica_buffer *x,
                                uint64_t groups)
{
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    if (row == NULL || v->status != MICA_OK)
        return NULL;
    if (row->ndim != 1 || row->shape[0] != x->shape[1]) {
        v->status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s has %u dimensions, expected [%llu]",
                               v->call, name, row->ndim, ULL(x->shape[1]));
        return NULL;
    }
    for (uint32_t d = 0; d < x->ndim; d++) {
        shape[d] = 1;
        stride[d] = row->stride[0];
    }
    shape[0] = groups;
    shape[1] = x->shape[1] / groups;
    stride[0] = row->stride[0] * shape[1];
    return add_view(v, row, x->ndim, shape, stride);
}

/* [n, channels, ..] as [channels, n, ..]. */
static mica_buffer *by_channel(views *v, const char *name, mica_buffer *buffer, const mica_buffer *x)
{
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    if (buffer == NULL || v->status != MICA_OK)
        return NULL;
    if (buffer->ndim != x->ndim || memcmp(buffer->shape, x->shape, x->ndim * sizeof shape[0]) != 0) {
        v->status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s has another shape than x", v->call, name);
        return NULL;
    }
    for (uint32_t d = 0; d < x->ndim; d++) {
        const uint32_t from = d < 2 ? 1 - d : d;
        shape[d] = buffer->shape[from];
        stride[d] = buffer->stride[from];
    }
    return add_view(v, buffer, x->ndim, shape, stride);
}

/* [channels] as [channels, 1..] of `ndim` dimensions. */
static mica_buffer *channel_row(views *v, const char *name, mica_buffer *row, const mica_buffer *x,
                                uint32_t ndim)
{
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    if (row == NULL || v->status != MICA_OK)
        return NULL;
    if (row->ndim != 1 || row->shape[0] != x->shape[1]) {
        v->status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s has %u dimensions, expected [%llu]",
                               v->call, name, row->ndim, ULL(x->shape[1]));
        return NULL;
    }
    for (uint32_t d = 0; d < ndim; d++) {
        shape[d] = d == 0 ? row->shape[0] : 1;
        stride[d] = row->stride[0];
    }
    return add_view(v, row, ndim, shape, stride);
}

/* ---- groups of channels ---- */

static mica_status group_norm(const char *call, mica_encoder *encoder, mica_buffer *x, uint64_t groups,
                              mica_buffer *weight, mica_buffer *bias, float eps, mica_buffer *y)
{
    views v = {.call = call};
    MICA__TRY(check_channels(call, x, groups));
    if (y == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: y is NULL", call);
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_LAYER, .dims = x->ndim - 1u, .eps = eps};
    mica_buffer *from = grouped(&v, "x", x, x, groups), *to = grouped(&v, "y", y, x, groups);
    mica_buffer *scale = grouped_row(&v, "weight", weight, x, groups),
                *shift = grouped_row(&v, "bias", bias, x, groups);
    return end_views(&v, v.status != MICA_OK
                             ? v.status
                             : mica_normalize(encoder, from, scale, shift, &params, to, NULL, NULL));
}

mica_status mica_group_norm(mica_encoder *encoder, mica_buffer *x, uint32_t groups, mica_buffer *weight,
                            mica_buffer *bias, float eps, mica_buffer *y)
{
    return group_norm("group_norm", encoder, x, groups, weight, bias, eps, y);
}

mica_status mica_instance_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                               float eps, mica_buffer *y)
{
    MICA__TRY(check_channels("instance_norm", x, 1));
    return group_norm("instance_norm", encoder, x, x->shape[1], weight, bias, eps, y);
}

mica_status mica_group_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy, uint32_t groups,
                                     mica_buffer *weight, float eps, mica_buffer *dx, mica_buffer *dweight,
                                     mica_buffer *dbias)
{
    views v = {.call = "group_norm_backward"};
    MICA__TRY(check_channels(v.call, x, groups));
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_LAYER, .dims = x->ndim - 1u, .eps = eps};
    if (dy == NULL || (weight == NULL && (dweight != NULL || dbias != NULL)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", v.call, dy == NULL ? "dy" : "weight");
    mica_buffer *from = grouped(&v, "x", x, x, groups), *gradient = grouped(&v, "dy", dy, x, groups);
    mica_buffer *scale = grouped_row(&v, "weight", weight, x, groups), *to = grouped(&v, "dx", dx, x, groups);
    mica_buffer *of_weight = grouped_row(&v, "dweight", dweight, x, groups),
                *of_bias = grouped_row(&v, "dbias", dbias, x, groups);
    return end_views(&v, v.status != MICA_OK ? v.status
                                             : mica_normalize_backward(encoder, from, gradient, scale,
                                                                       &params, to, of_weight, of_bias));
}

/* ---- batches ---- */

/* The register type of a program over x, and a number in it. */
static mica_register register_of(const mica_buffer *x)
{
    return x != NULL && x->dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
}

static uint8_t number(mica__region_program *program, mica_register type, double value)
{
    mica__scalar_value constant = {.u64 = 0};
    if (type == MICA_REGISTER_F64)
        constant.f64 = value;
    else
        constant.f32 = (float)value;
    return mica__region_constant(program, type, constant);
}

mica_status mica__batch_norm_program(const char *who, mica_register type, float eps, bool weight, bool bias,
                                     mica__region_program *out)
{
    const uint32_t count = 3u + weight + bias;
    if (!(eps >= 0.0f) || !isfinite(eps))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: eps is %g, not 0 or above and finite", who,
                          (double)eps);
    mica__region_begin(out, count, 1);
    memset(out->input, (uint8_t)type, count);
    const uint8_t more =
        mica__region_step(out, MICA_SCALAR_ADD, type, 2, number(out, type, (double)eps), NONE);
    const uint8_t r = mica__region_step(out, MICA_SCALAR_RSQRT, type, more, NONE, NONE);
    const uint8_t centred = mica__region_step(out, MICA_SCALAR_SUB, type, 0, 1, NONE);
    uint8_t value = mica__region_step(out, MICA_SCALAR_MUL, type, centred, r, NONE);
    if (weight)
        value = mica__region_step(out, MICA_SCALAR_MUL, type, value, 3, NONE);
    if (bias)
        value = mica__region_step(out, MICA_SCALAR_ADD, type, value, (uint8_t)(count - 1), NONE);
    out->output[0] = value;
    return MICA_OK;
}

mica_status mica_batch_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *mean, mica_buffer *var,
                            mica_buffer *weight, mica_buffer *bias, float eps, mica_buffer *y)
{
    const char *inputs[5] = {"x", "mean", "var"};
    static const char *const outputs[] = {"y"};
    const mica__region_names names = {"batch_norm", inputs, outputs};
    views v = {.call = "batch_norm"};
    mica__region_room room;
    uint32_t count = 3;
    MICA__TRY(check_channels(v.call, x, 1));
    if (mean == NULL || var == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "batch_norm: %s is NULL", mean == NULL ? "mean" : "var");
    MICA__TRY(
        mica__batch_norm_program(v.call, register_of(x), eps, weight != NULL, bias != NULL, &room.program));
    const uint32_t ndim = x->ndim - 1u;
    mica_buffer *buffer[5] = {x, channel_row(&v, "mean", mean, x, ndim),
                              channel_row(&v, "var", var, x, ndim)};
    if (weight != NULL) {
        inputs[count] = "weight";
        buffer[count++] = channel_row(&v, "weight", weight, x, ndim);
    }
    if (bias != NULL) {
        inputs[count] = "bias";
        buffer[count++] = channel_row(&v, "bias", bias, x, ndim);
    }
    return end_views(&v, v.status != MICA_OK
                             ? v.status
                             : mica__region_add(encoder, &names, &room.program, buffer, false, &y));
}

/* new = (1 - momentum) running + momentum statistic * share, of mean and of var. */
mica_status mica__running_program(const char *who, mica_register type, double momentum, double correction,
                                  mica__region_program *out)
{
    if (!(momentum >= 0 && momentum <= 1))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: params.momentum is %g, not 0 to 1", who, momentum);
    mica__region_begin(out, 4, 2);
    memset(out->input, (uint8_t)type, 4);
    const uint8_t keep = number(out, type, 1 - momentum);
    for (uint8_t i = 0; i < 2; i++) {
        const uint8_t share = number(out, type, momentum * (i == 0 ? 1 : correction));
        const uint8_t old = mica__region_step(out, MICA_SCALAR_MUL, type, i, keep, NONE);
        const uint8_t fresh = mica__region_step(out, MICA_SCALAR_MUL, type, (uint8_t)(2 + i), share, NONE);
        out->output[i] = mica__region_step(out, MICA_SCALAR_ADD, type, old, fresh, NONE);
    }
    return MICA_OK;
}

static mica_status move_running(mica_encoder *encoder, const mica_batch_norm_operands *o, double momentum,
                                double correction)
{
    static const char *const inputs[] = {"running_mean", "running_var", "mean", "var"};
    static const char *const outputs[] = {"new_running_mean", "new_running_var"};
    static const mica__region_names names = {"batch_norm_train", inputs, outputs};
    mica__region_room room;
    MICA__TRY(
        mica__running_program("batch_norm_train", register_of(o->x), momentum, correction, &room.program));
    return mica__region_add(encoder, &names, &room.program,
                            (mica_buffer *const[]){o->running_mean, o->running_var, o->mean, o->var}, true,
                            (mica_buffer *const[]){o->new_running_mean, o->new_running_var});
}

static mica_status check_train(const mica_batch_norm_operands *o, const mica_batch_norm_params *params)
{
    if (o == NULL || params == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "batch_norm_train: %s is NULL",
                          o == NULL ? "operands" : "params");
    MICA__TRY(check_channels("batch_norm_train", o->x, 1));
    if (o->y == NULL || o->mean == NULL || o->var == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "batch_norm_train: %s is NULL",
                          o->y == NULL      ? "y"
                          : o->mean == NULL ? "mean"
                                            : "var");
    const uint32_t running = (o->running_mean != NULL) + (o->running_var != NULL) +
                             (o->new_running_mean != NULL) + (o->new_running_var != NULL);
    if (running != 0 && running != 4)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "batch_norm_train: %u of running_mean, running_var and the new ones, not 0 or all",
                          running);
    if (!(params->momentum >= 0.0f && params->momentum <= 1.0f))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "batch_norm_train: params.momentum is %g, not 0 to 1",
                          (double)params->momentum);
    return MICA_OK;
}

mica_status mica_batch_norm_train(mica_encoder *encoder, const mica_batch_norm_operands *operands,
                                  const mica_batch_norm_params *params)
{
    const mica_batch_norm_operands *o = operands;
    views v = {.call = "batch_norm_train"};
    MICA__TRY(check_train(o, params));
    const mica_buffer *x = o->x;
    double n = (double)x->shape[0];
    for (uint32_t d = 2; d < x->ndim; d++)
        n *= (double)x->shape[d];
    const mica_normalize_params normalize = {
        .kind = MICA_NORMALIZE_LAYER, .dims = x->ndim - 1u, .eps = params->eps};
    mica_buffer *from = by_channel(&v, "x", o->x, x), *to = by_channel(&v, "y", o->y, x);
    mica_buffer *weight = channel_row(&v, "weight", o->weight, x, x->ndim),
                *bias = channel_row(&v, "bias", o->bias, x, x->ndim);
    mica_status status = v.status;
    if (status == MICA_OK)
        status = mica_normalize(encoder, from, weight, bias, &normalize, to, o->mean, o->var);
    if (status == MICA_OK && o->running_mean != NULL)
        status = move_running(encoder, o, (double)params->momentum, n > 1 ? n / (n - 1) : 1);
    return end_views(&v, status);
}

mica_status mica_batch_norm_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                     mica_buffer *weight, float eps, mica_buffer *dx, mica_buffer *dweight,
                                     mica_buffer *dbias)
{
    views v = {.call = "batch_norm_backward"};
    MICA__TRY(check_channels(v.call, x, 1));
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_LAYER, .dims = x->ndim - 1u, .eps = eps};
    if (dy == NULL || (weight == NULL && (dweight != NULL || dbias != NULL)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", v.call, dy == NULL ? "dy" : "weight");
    mica_buffer *from = by_channel(&v, "x", x, x), *gradient = by_channel(&v, "dy", dy, x);
    mica_buffer *scale = channel_row(&v, "weight", weight, x, x->ndim), *to = by_channel(&v, "dx", dx, x);
    mica_buffer *of_weight = channel_row(&v, "dweight", dweight, x, x->ndim),
                *of_bias = channel_row(&v, "dbias", dbias, x, x->ndim);
    return end_views(&v, v.status != MICA_OK ? v.status
                                             : mica_normalize_backward(encoder, from, gradient, scale,
                                                                       &params, to, of_weight, of_bias));
}

/* ---- softmax, residuals ---- */

mica_status mica_log_softmax(mica_encoder *encoder, mica_buffer *x, float scale, mica_buffer *y)
{
    mica_softmax_params params = {.scale = scale, .log = 1};
    return mica__op_call(encoder, MICA_OP_SOFTMAX, &params, (mica_buffer *const[]){x, NULL, y});
}

mica_status mica_softmax_backward(mica_encoder *encoder, mica_buffer *y, mica_buffer *dy, float scale,
                                  mica_buffer *dx)
{
    mica_softmax_params params = {.scale = scale};
    return mica__op_call(encoder, MICA_OP_SOFTMAX_BACKWARD, &params, (mica_buffer *const[]){y, dy, dx});
}

mica_status mica_log_softmax_backward(mica_encoder *encoder, mica_buffer *y, mica_buffer *dy, float scale,
                                      mica_buffer *dx)
{
    mica_softmax_params params = {.scale = scale, .log = 1};
    return mica__op_call(encoder, MICA_OP_SOFTMAX_BACKWARD, &params, (mica_buffer *const[]){y, dy, dx});
}

void mica__gated_residual_program(mica_register type, mica__region_program *out)
{
    mica__region_begin(out, 3, 1);
    memset(out->input, (uint8_t)type, 3);
    const uint8_t product = mica__region_step(out, MICA_SCALAR_MUL, type, 1, 2, NONE);
    out->output[0] = mica__region_step(out, MICA_SCALAR_ADD, type, 0, product, NONE);
}

mica_status mica_gated_residual(mica_encoder *encoder, mica_buffer *x, mica_buffer *gate, mica_buffer *branch,
                                mica_buffer *y)
{
    static const char *const inputs[] = {"x", "gate", "branch"}, *const outputs[] = {"y"};
    static const mica__region_names names = {"gated_residual", inputs, outputs};
    mica__region_small small;
    mica__gated_residual_program(register_of(x), &small.program);
    return mica__region_add(encoder, &names, &small.program, (mica_buffer *const[]){x, gate, branch}, false,
                            &y);
}
