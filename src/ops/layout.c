/*
 * layout.c - where elements lie: pads, and what is one (rolled, flipped, tiled), gathering and scattering by ids; joining and repeating,
 * which are views and copies.
 */
#include <string.h>

#include "base/half.h"
#include "device/hazard.h"
#include "device/objects.h"
#include "ops/region.h"
#include "quant/dtype.h"

#define ULL(x) ((unsigned long long)(x))

/* ---- pad ---- */

/* The element that the value is in x's type. */
static uint64_t value_bits(mica__op_builder *op, double value, mica_dtype dtype)
{
    mica__scalar_value constant = {.u64 = 0};
    mica__op_require(op, mica__constant_of(value, dtype, &constant), "params.value %g does not fit %s", value,
                     mica_dtype_name(dtype));
    const bool tiny = dtype == MICA_DTYPE_F8_E4M3 || dtype == MICA_DTYPE_F8_E5M2 || dtype == MICA_DTYPE_E8M0;
    mica__op_require(op, !tiny || value == 0.0, "params.value is %g, but x is %s, which pads with 0 alone",
                     value, mica_dtype_name(dtype));
    switch (dtype) {
    case MICA_DTYPE_F16: return mica__f32_to_f16(constant.f32);
    case MICA_DTYPE_BF16: return mica__f32_to_bf16(constant.f32);
    case MICA_DTYPE_F32:
    case MICA_DTYPE_C64: return mica__f32_bits(constant.f32);
    default: return tiny ? 0 : constant.u64;
    }
}

/* low + n + high of one dimension; 0 where that is below. */
static uint64_t padded_size(mica__op_builder *op, const mica_pad_params *params, uint32_t d, uint64_t n)
{
    const int64_t most = (int64_t)1 << 48, low = params->low[d], high = params->high[d];
    mica__op_require(op, low > -most && low < most && high > -most && high < most,
                     "params: low[%u] or high[%u] is over 2^48", d, d);
    if (!mica__op_ok(op) || (low == 0 && high == 0))
        return n;
    if (!mica__size_known(n))
        return MICA_SIZE_UNKNOWN;
    mica__op_require(op, n < (uint64_t)most && low + (int64_t)n + high >= 0,
                     "x: shape[%u] is %llu, of which params.low and high leave less than nothing", d, ULL(n));
    const uint64_t size = mica__op_ok(op) ? (uint64_t)(low + (int64_t)n + high) : 0;
    mica__op_require(op, n != 0 || size == 0 || params->mode == MICA_PAD_CONSTANT,
                     "x: shape[%u] is 0: there is nothing to repeat", d);
    return size;
}

void mica__rule_pad(mica__op_builder *op)
{
    mica__pad_record *record = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__PAD_X];
    uint64_t shape[MICA_MAX_DIMS] = {0};
    mica__op_require(op, record->pad.mode <= MICA_PAD_WRAP, "params.mode is %u", record->pad.mode);
    record->bits = value_bits(op, record->pad.value, (mica_dtype)x->dtype);
    for (uint32_t d = 0; d < MICA_MAX_DIMS && mica__op_ok(op); d++)
        if (d < x->ndim)
            shape[d] = padded_size(op, &record->pad, d, x->shape[d]);
        else
            mica__op_require(op, record->pad.low[d] == 0 && record->pad.high[d] == 0,
                             "params: dimension %u is padded, but x has %u", d, x->ndim);
    mica__op_shape(op, MICA__PAD_Y, x->ndim, shape);
}

mica_status mica_pad(mica_encoder *encoder, mica_buffer *x, const mica_pad_params *params, mica_buffer *y)
{
    mica__pad_record record = {.bits = 0};
    if (params != NULL)
        record.pad = *params;
    return mica__op_call(encoder, MICA_OP_PAD, &record, (mica_buffer *const[]){x, y});
}

static mica_status check_axis(const char *call, const mica_buffer *x, uint32_t axis)
{
    if (x == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: x is NULL", call);
    if (axis >= x->ndim)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: axis is %u, but x has %u dimensions", call, axis,
                          x->ndim);
    return MICA_OK;
}

mica_status mica_roll(mica_encoder *encoder, mica_buffer *x, uint32_t axis, int64_t shift, mica_buffer *y)
{
    mica_pad_params params = {.mode = MICA_PAD_WRAP};
    MICA__TRY(check_axis("roll", x, axis));
    if (x->shape[axis] != 0) {
        params.low[axis] = shift % (int64_t)x->shape[axis];
        params.high[axis] = -params.low[axis];
    }
    return mica_pad(encoder, x, &params, y);
}

/* Backwards is what lies before x in its mirror. */
mica_status mica_flip(mica_encoder *encoder, mica_buffer *x, uint32_t axes, mica_buffer *y)
{
    mica_pad_params params = {.mode = MICA_PAD_SYMMETRIC};
    if (x == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "flip: x is NULL");
    if (axes >> x->ndim != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "flip: axes is 0x%x, but x has %u dimensions", axes,
                          x->ndim);
    for (uint32_t d = 0; d < x->ndim; d++)
        if ((axes >> d & 1) != 0) {
            params.low[d] = (int64_t)x->shape[d];
            params.high[d] = -params.low[d];
        }
    return mica_pad(encoder, x, &params, y);
}

mica_status mica_tile(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    mica_pad_params params = {.mode = MICA_PAD_WRAP};
    if (x == NULL || y == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "tile: %s is NULL", x == NULL ? "x" : "y");
    if (x->ndim != y->ndim)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "tile: x has %u dimensions, y %u", x->ndim, y->ndim);
    for (uint32_t d = 0; d < x->ndim; d++) {
        if (x->shape[d] == 0 ? y->shape[d] != 0 : y->shape[d] % x->shape[d] != 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "tile: shape[%u] of y is %llu, no multiple of x's %llu", d, ULL(y->shape[d]),
                              ULL(x->shape[d]));
        params.high[d] = (int64_t)y->shape[d] - (int64_t)x->shape[d];
    }
    return mica_pad(encoder, x, &params, y);
}

/* ---- gather and scatter ---- */

/* The axis, and that ids, which has one dimension or as many as `of`, repeats to the shape of `of`; then it has that shape. In sentences
 * `of` is the operand whose elements the ids are for. */
static void take_ids(mica__op_builder *op, uint32_t slot, uint32_t axis, uint32_t ndim, const uint64_t *shape)
{
    mica__operand *ids = &op->record.operand[slot];
    mica__op_require(op, ids->ndim != MICA_RANK_UNKNOWN, "ids: its shape does not follow from the others");
    mica__op_require(op, ids->ndim == 1 || ids->ndim == ndim, "ids has %u dimensions, not 1 or %u", ids->ndim,
                     ndim);
    uint64_t stride[MICA_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < ndim && mica__op_ok(op); d++) {
        const bool own = ids->ndim == ndim || d == axis;
        const uint32_t at = ids->ndim == ndim ? d : 0;
        mica__op_require(op, !own || ids->shape[at] == 1 || mica__sizes_agree(ids->shape[at], shape[d]),
                         "ids: shape[%u] is %llu, which does not repeat to %llu", at, ULL(ids->shape[at]),
                         ULL(shape[d]));
        stride[d] = own && ids->shape[at] != 1 ? ids->stride[at] : 0;
    }
    if (!mica__op_ok(op))
        return;
    ids->ndim = (uint8_t)ndim;
    memcpy(ids->shape, shape, ndim * sizeof *shape);
    memcpy(ids->stride, stride, ndim * sizeof *stride);
}

/* The other operand is as `x` in every dimension but the axis. */
static void match(mica__op_builder *op, uint32_t slot, uint32_t axis, const mica__operand *x)
{
    const mica__operand *o = &op->record.operand[slot];
    mica__op_require(op, o->ndim == x->ndim, "%s has %u dimensions, not %u", mica__op_argument(op, slot),
                     o->ndim, x->ndim);
    for (uint32_t d = 0; d < x->ndim && mica__op_ok(op); d++)
        mica__op_require(op, d == axis || mica__sizes_agree(o->shape[d], x->shape[d]),
                         "%s: shape[%u] is %llu, not %llu", mica__op_argument(op, slot), d, ULL(o->shape[d]),
                         ULL(x->shape[d]));
}

static void check_range(mica__op_builder *op, uint32_t slot, uint32_t axis)
{
    const uint64_t n = op->record.operand[slot].shape[axis];
    mica__op_require(op, !mica__size_known(n) || n < (1u << 31) - 2, "%s: shape[%u] is %llu, over 2^31",
                     mica__op_argument(op, slot), axis, ULL(n));
}

void mica__rule_gather(mica__op_builder *op)
{
    const mica_gather_params *params = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__GATHER_X], *y = &op->record.operand[MICA__GATHER_Y];
    const mica__operand *ids = &op->record.operand[MICA__GATHER_IDS];
    const uint32_t axis = params->axis;
    mica__op_require(op, axis < x->ndim, "params.axis is %u, but x has %u dimensions", axis, x->ndim);
    if (!mica__op_ok(op))
        return;
    check_range(op, MICA__GATHER_X, axis);
    uint64_t shape[MICA_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    if (ids->ndim == 1 || ids->ndim == x->ndim) /* else take_ids refuses */
        shape[axis] = ids->shape[ids->ndim == 1 ? 0 : axis];
    if (y->ndim == MICA_RANK_UNKNOWN)
        mica__op_shape(op, MICA__GATHER_Y, x->ndim, shape);
    match(op, MICA__GATHER_Y, axis, x);
    if (mica__op_ok(op))
        mica__op_require(op, mica__sizes_agree(y->shape[axis], shape[axis]),
                         "y: shape[%u] is %llu, but ids has %llu there", axis, ULL(y->shape[axis]),
                         ULL(shape[axis]));
    if (mica__op_ok(op))
        take_ids(op, MICA__GATHER_IDS, axis, y->ndim, y->shape);
}

mica_status mica_gather(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids,
                        const mica_gather_params *params, mica_buffer *y)
{
    mica_gather_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_GATHER, &record, (mica_buffer *const[]){x, ids, y});
}

static bool adds(uint32_t dtype)
{
    switch (dtype) {
    case MICA_DTYPE_F32:
    case MICA_DTYPE_F16:
    case MICA_DTYPE_BF16:
    case MICA_DTYPE_F64:
    case MICA_DTYPE_I32:
    case MICA_DTYPE_U32:
    case MICA_DTYPE_I64:
    case MICA_DTYPE_U64: return true;
    default: return false;
    }
}

void mica__rule_scatter(mica__op_builder *op)
{
    const mica_scatter_params *params = op->record.params;
    const mica__operand *updates = &op->record.operand[MICA__SCATTER_UPDATES];
    const mica__operand *y = &op->record.operand[MICA__SCATTER_Y];
    const uint32_t axis = params->axis;
    mica__op_require(op, axis < updates->ndim, "params.axis is %u, but updates has %u dimensions", axis,
                     updates->ndim);
    mica__op_require(op, params->mode <= MICA_SCATTER_MIN, "params.mode is %u", params->mode);
    mica__op_require(op, params->mode == MICA_SCATTER_SET || adds(updates->dtype),
                     "updates is %s, which is set alone", mica_dtype_name((mica_dtype)updates->dtype));
    mica__op_require(op, y->ndim != MICA_RANK_UNKNOWN, "y: its shape does not follow from the others");
    if (!mica__op_ok(op))
        return;
    match(op, MICA__SCATTER_Y, axis, updates);
    check_range(op, MICA__SCATTER_UPDATES, axis);
    if (mica__op_ok(op))
        check_range(op, MICA__SCATTER_Y, axis);
    take_ids(op, MICA__SCATTER_IDS, axis, updates->ndim, updates->shape);
}

mica_status mica_scatter(mica_encoder *encoder, mica_buffer *updates, mica_buffer *ids,
                         const mica_scatter_params *params, mica_buffer *y)
{
    mica_scatter_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_SCATTER, &record, (mica_buffer *const[]){updates, ids, y});
}

/* ---- coordinates of several dimensions ---- */

/* How many coordinates a place of ids has, for dimensions of `of` from `batch` on; 0 with a complaint, or where the size is not known. */
static uint32_t count_coordinates(mica__op_builder *op, uint32_t slot, uint32_t of, uint32_t batch)
{
    const mica__operand *ids = &op->record.operand[slot], *o = &op->record.operand[of];
    const char *name = mica__op_argument(op, of);
    mica__op_require(op, ids->ndim != MICA_RANK_UNKNOWN, "ids: its shape does not follow from the others");
    mica__op_require(op, o->ndim != MICA_RANK_UNKNOWN, "%s: its shape does not follow from the others", name);
    mica__op_require(op, batch < o->ndim, "params.batch_dims is %u, but %s has %u dimensions", batch, name,
                     o->ndim);
    mica__op_require(op, ids->ndim > batch, "ids has %u dimensions, not over %u", ids->ndim, batch);
    if (!mica__op_ok(op))
        return 0;
    const uint64_t components = ids->shape[ids->ndim - 1u];
    if (!mica__size_known(components))
        return 0;
    mica__op_require(op, components > 0 && components <= o->ndim - batch,
                     "ids: shape[%u] is %llu coordinates, not 1 to %u", ids->ndim - 1u, ULL(components),
                     o->ndim - batch);
    for (uint32_t k = 0; k < components && mica__op_ok(op); k++)
        check_range(op, of, batch + k);
    return mica__op_ok(op) ? (uint32_t)components : 0;
}

/* The shape of slot `chosen`: that of ids without its coordinates, then what these leave of `of`. */
static void take_chosen(mica__op_builder *op, uint32_t chosen, uint32_t ids_slot, uint32_t of, uint32_t named)
{
    const mica__operand *ids = &op->record.operand[ids_slot], *o = &op->record.operand[of],
                        *c = &op->record.operand[chosen];
    const uint32_t lines = ids->ndim - 1u, ndim = lines + o->ndim - named;
    uint64_t shape[MICA_MAX_DIMS] = {0};
    mica__op_require(op, ndim <= MICA_MAX_DIMS, "ids: what it names of %s has %u dimensions, over %u",
                     mica__op_argument(op, of), ndim, MICA_MAX_DIMS);
    mica__op_require(op, c->ndim == MICA_RANK_UNKNOWN || c->ndim == ndim,
                     "ids: what it names of %s has %u dimensions, but %s has %u", mica__op_argument(op, of),
                     ndim, mica__op_argument(op, chosen), c->ndim);
    for (uint32_t d = 0; d < ndim && mica__op_ok(op); d++)
        shape[d] = d < lines ? ids->shape[d] : o->shape[named + (d - lines)];
    mica__op_shape(op, chosen, ndim, shape);
}

void mica__rule_gather_nd(mica__op_builder *op)
{
    const uint32_t batch = ((const mica_gather_nd_params *)op->record.params)->batch_dims;
    const mica__operand *x = &op->record.operand[MICA__GATHER_ND_X];
    const mica__operand *ids = &op->record.operand[MICA__GATHER_ND_IDS];
    const uint32_t components = count_coordinates(op, MICA__GATHER_ND_IDS, MICA__GATHER_ND_X, batch);
    if (components == 0)
        return;
    for (uint32_t d = 0; d < batch; d++)
        mica__op_require(op, mica__sizes_agree(ids->shape[d], x->shape[d]),
                         "ids: shape[%u] is %llu, but x has %llu there", d, ULL(ids->shape[d]),
                         ULL(x->shape[d]));
    take_chosen(op, MICA__GATHER_ND_Y, MICA__GATHER_ND_IDS, MICA__GATHER_ND_X, batch + components);
}

mica_status mica_gather_nd(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids,
                           const mica_gather_nd_params *params, mica_buffer *y)
{
    mica_gather_nd_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_GATHER_ND, &record, (mica_buffer *const[]){x, ids, y});
}

void mica__rule_scatter_nd(mica__op_builder *op)
{
    const mica_scatter_nd_params *params = op->record.params;
    const mica__operand *updates = &op->record.operand[MICA__SCATTER_ND_UPDATES];
    mica__op_require(op, params->mode <= MICA_SCATTER_MIN, "params.mode is %u", params->mode);
    mica__op_require(op, params->mode == MICA_SCATTER_SET || adds(updates->dtype),
                     "updates is %s, which is set alone", mica_dtype_name((mica_dtype)updates->dtype));
    const uint32_t components = count_coordinates(op, MICA__SCATTER_ND_IDS, MICA__SCATTER_ND_Y, 0);
    if (components != 0)
        take_chosen(op, MICA__SCATTER_ND_UPDATES, MICA__SCATTER_ND_IDS, MICA__SCATTER_ND_Y, components);
}

mica_status mica_scatter_nd(mica_encoder *encoder, mica_buffer *updates, mica_buffer *ids,
                            const mica_scatter_nd_params *params, mica_buffer *y)
{
    mica_scatter_nd_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_SCATTER_ND, &record, (mica_buffer *const[]){updates, ids, y});
}

/* ---- what is chosen ---- */

/* Lists count in 32 bits. */
static void check_listed(mica__op_builder *op, uint32_t slot)
{
    const mica__operand *x = &op->record.operand[slot];
    uint64_t elements = 1;
    for (uint32_t d = 0; d < x->ndim && mica__op_ok(op); d++) {
        if (!mica__size_known(x->shape[d]))
            return;
        elements *= x->shape[d]; /* sizes of a buffer do not overflow */
    }
    mica__op_require(op, elements < 1u << 31, "%s has %llu elements, not below 2^31",
                     mica__op_argument(op, slot), ULL(elements));
}

static void check_zero(mica__op_builder *op, uint32_t slot)
{
    mica__op_require(op, op->record.operand[slot].dtype != MICA_DTYPE_E8M0, "%s is e8m0, which has no 0",
                     mica__op_argument(op, slot));
}

void mica__rule_nonzero(mica__op_builder *op)
{
    const mica__operand *x = &op->record.operand[MICA__NONZERO_X],
                        *places = &op->record.operand[MICA__NONZERO_PLACES];
    uint64_t shape[2] = {1, x->ndim};
    check_zero(op, MICA__NONZERO_X);
    check_listed(op, MICA__NONZERO_X);
    if (!mica__op_has(op, MICA__NONZERO_PLACES) || !mica__op_ok(op))
        return;
    for (uint32_t d = 0; d < x->ndim && mica__size_known(shape[0]); d++)
        shape[0] = mica__size_known(x->shape[d]) ? shape[0] * x->shape[d] : MICA_SIZE_UNKNOWN;
    if (places->ndim == 2) /* the caller's room */
        shape[0] = places->shape[0];
    mica__op_shape(op, MICA__NONZERO_PLACES, 2, shape);
}

mica_status mica_nonzero(mica_encoder *encoder, mica_buffer *x, mica_buffer *places, mica_buffer *count)
{
    return mica__op_call(encoder, MICA_OP_NONZERO, NULL, (mica_buffer *const[]){x, places, count});
}

void mica__rule_compress(mica__op_builder *op)
{
    const mica_compress_params *params = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__COMPRESS_X],
                        *y = &op->record.operand[MICA__COMPRESS_Y];
    const bool flat = params->flat != 0;
    const uint64_t there = mica__op_size(op, 'L');
    uint64_t shape[MICA_MAX_DIMS] = {0}, size = 1;
    mica__op_require(op, params->flat <= 1, "params.flat is %u, not 0 or 1", params->flat);
    mica__op_require(op, flat ? params->axis == 0 : params->axis < x->ndim,
                     "params.axis is %u, but x has %u dimensions", params->axis, flat ? 1u : x->ndim);
    if (flat)
        check_listed(op, MICA__COMPRESS_X);
    check_zero(op, MICA__COMPRESS_CONDITION);
    check_listed(op, MICA__COMPRESS_CONDITION);
    if (!mica__op_ok(op))
        return;
    for (uint32_t d = 0; d < x->ndim; d++) {
        shape[flat ? 0 : d] = x->shape[d];
        size = !mica__size_known(size) || !mica__size_known(x->shape[d]) ? MICA_SIZE_UNKNOWN
                                                                         : size * x->shape[d];
    }
    size = flat ? size : x->shape[params->axis];
    mica__op_require(op, !mica__size_known(there) || !mica__size_known(size) || there <= size,
                     "condition: shape[0] is %llu, but x has %llu there", ULL(there), ULL(size));
    const uint32_t ndim = flat ? 1 : x->ndim;
    shape[params->axis] = y->ndim == ndim ? y->shape[params->axis] : there; /* the caller's room */
    mica__op_shape(op, MICA__COMPRESS_Y, ndim, shape);
}

mica_status mica_compress(mica_encoder *encoder, mica_buffer *x, mica_buffer *condition,
                          const mica_compress_params *params, mica_buffer *y, mica_buffer *count)
{
    mica_compress_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_COMPRESS, &record, (mica_buffer *const[]){x, condition, y, count});
}

/* ---- views and copies ---- */

/* Everything that a copy of the input would refuse, before any is added; and that it lies nowhere in y. */
static mica_status check_input(const mica_buffer *x, uint32_t i, uint32_t axis, const mica_buffer *y,
                               uint64_t before)
{
    mica__operand from, to;
    mica__range one, other;
    if (x == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "concat: inputs[%u] is NULL", i);
    if (x->storage->device != y->storage->device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "concat: inputs[%u] is on another device than y", i);
    if (x->dtype != y->dtype && (x->dtype > MICA_DTYPE_BF16 || y->dtype > MICA_DTYPE_BF16))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "concat: inputs[%u] is %s, but y is %s", i,
                          mica_dtype_name(x->dtype), mica_dtype_name(y->dtype));
    if (x->ndim != y->ndim || x->packing.layout != MICA_LAYOUT_CANONICAL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "concat: inputs[%u] has %u dimensions, y %u", i, x->ndim,
                          y->ndim);
    for (uint32_t d = 0; d < y->ndim; d++)
        if (d == axis ? x->shape[d] > y->shape[d] - before : x->shape[d] != y->shape[d])
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "concat: shape[%u] of inputs[%u] is %llu, but y has %llu there", d, i,
                              ULL(x->shape[d]), ULL(d == axis ? y->shape[d] - before : y->shape[d]));
    mica__operand_from(x, MICA_ACCESS_READ, &from);
    mica__operand_from(y, MICA_ACCESS_WRITE, &to);
    mica__range_of(&from, &one);
    mica__range_of(&to, &other);
    if (mica__ranges_overlap(&one, &other))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "concat: y overlaps inputs[%u]", i);
    return MICA_OK;
}

static mica_status check_concat(const mica_encoder *encoder, mica_buffer *const *inputs, uint32_t count,
                                uint32_t axis, const mica_buffer *y)
{
    uint64_t before = 0;
    if (encoder == NULL || y == NULL || (inputs == NULL && count > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "concat: %s is NULL",
                          encoder == NULL ? "encoder"
                          : y == NULL     ? "y"
                                          : "inputs");
    if (axis >= y->ndim)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "concat: axis is %u, but y has %u dimensions", axis,
                          y->ndim);
    if (y->storage->device != mica_encoder_device(encoder) || y->read_only ||
        y->packing.layout != MICA_LAYOUT_CANONICAL || mica__dtype_elements(y->dtype) > 1)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "concat: y is on another device, read-only, packed or of blocks");
    for (uint32_t i = 0; i < count; i++) {
        MICA__TRY(check_input(inputs[i], i, axis, y, before));
        before += inputs[i]->shape[axis];
    }
    if (before != y->shape[axis])
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "concat: shape[%u] of y is %llu, but the inputs have %llu", axis,
                          ULL(y->shape[axis]), ULL(before));
    return MICA_OK;
}

/* Each part is a record of its own, whose bytes hazards know to the column: none waits for another, and fusion may drop one. */
mica_status mica_concat(mica_encoder *encoder, mica_buffer *const *inputs, uint32_t count, uint32_t axis,
                        mica_buffer *y)
{
    uint64_t before = 0;
    MICA__TRY(check_concat(encoder, inputs, count, axis, y));
    for (uint32_t i = 0; i < count; i++) {
        mica_buffer *part = NULL;
        MICA__TRY(mica_buffer_slice(y, axis, before, inputs[i]->shape[axis], &part));
        const mica_status status = mica_copy(encoder, inputs[i], part);
        mica_buffer_release(part);
        if (status != MICA_OK)
            return status;
        before += inputs[i]->shape[axis];
    }
    return MICA_OK;
}

mica_status mica_repeat(mica_encoder *encoder, mica_buffer *x, uint32_t axis, mica_buffer *y)
{
    mica_buffer *from = NULL, *to = NULL;
    uint64_t shape[MICA_MAX_DIMS], from_stride[MICA_MAX_DIMS], to_stride[MICA_MAX_DIMS];
    MICA__TRY(check_axis("repeat", x, axis));
    if (y == NULL || x->ndim == MICA_MAX_DIMS || y->ndim != x->ndim)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "repeat: x has %u dimensions, y %u, expected as many and at most 7", x->ndim,
                          y != NULL ? y->ndim : 0);
    const uint64_t n = x->shape[axis], times = n != 0 ? y->shape[axis] / n : 0;
    for (uint32_t d = 0; d < x->ndim; d++) {
        if (y->shape[d] != (d == axis ? n * times : x->shape[d]))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "repeat: shape[%u] of y is %llu, of x %llu", d,
                              ULL(y->shape[d]), ULL(x->shape[d]));
        const uint32_t at = d + (d > axis);
        shape[at] = x->shape[d];
        from_stride[at] = x->stride[d];
        to_stride[at] = d == axis ? y->stride[d] * times : y->stride[d];
    }
    shape[axis + 1] = times;
    from_stride[axis + 1] = 0;
    to_stride[axis + 1] = y->stride[axis];
    mica_status status = mica_buffer_view(x, x->dtype, x->ndim + 1, shape, from_stride, 0, &from);
    if (status == MICA_OK)
        status = mica_buffer_view(y, y->dtype, y->ndim + 1, shape, to_stride, 0, &to);
    if (status == MICA_OK)
        status = mica_copy(encoder, from, to);
    mica_buffer_release(from);
    mica_buffer_release(to);
    return status;
}
