/* op.c - any op by its number: what the table says of it, shapes that follow, whether a device serves it, and calling it. */
#include <string.h>

#include "backend/planning.h"
#include "device/registry.h"
#include "ops/check.h"
#include "quant/dtype.h"

#define MOST_PARAMS 160u

/* ---- what the table says ---- */

/* The op as one that is called with operands of its table; regions have functions of their own. */
static mica_status find_op(const char *call, mica_op op, const mica__op_info **out)
{
    if (op <= MICA_OP_NONE || op >= MICA_OP_COUNT)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: op is %d, which is none", call, (int)op);
    *out = &mica__ops[op];
    return MICA_OK;
}

static mica_status find_called_op(const char *call, mica_op op, const mica__op_info **out)
{
    MICA__TRY(find_op(call, op, out));
    if (op == MICA_OP_REGION || op == MICA_OP_CUSTOM)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: op is %s, which has calls of its own", call,
                          (*out)->name);
    return MICA_OK;
}

mica_status mica_op_get_info(mica_op op, mica_op_info *out_info)
{
    const mica__op_info *info = NULL;
    if (out_info == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "op_get_info: out_info is NULL");
    memset(out_info, 0, sizeof *out_info);
    MICA__TRY(find_op("op_get_info", op, &info));
    out_info->name = info->name;
    for (uint32_t i = 0; i < info->rows && op != MICA_OP_REGION; i++)
        if (mica__slot_is_given(&info->slot[i]))
            *(i < info->fixed ? &out_info->operands : &out_info->grouped) += 1;
    out_info->params_size = info->call_params;
    out_info->gradient = (mica_op_gradient)info->gradient;
    out_info->needs = (mica_op_needs)info->needs;
    return MICA_OK;
}

/* The place of slot `slot` among those that callers give. */
static uint32_t given_index(const mica__op_info *info, uint32_t slot)
{
    uint32_t index = 0;
    for (uint32_t i = 0; i < slot; i++)
        index += mica__slot_is_given(&info->slot[i]);
    return index;
}

mica_status mica_op_get_operand(mica_op op, uint32_t index, mica_op_operand *out_operand)
{
    const mica__op_info *info = NULL;
    if (out_operand == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "op_get_operand: out_operand is NULL");
    memset(out_operand, 0, sizeof *out_operand);
    MICA__TRY(find_called_op("op_get_operand", op, &info));
    uint32_t at = 0;
    while (at < info->rows && (!mica__slot_is_given(&info->slot[at]) || given_index(info, at) < index))
        at++;
    if (at == info->rows)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "op_get_operand: index is %u, beyond the operands of %s",
                          index, info->name);
    const mica__slot_info *slot = &info->slot[at];
    out_operand->name = slot->name;
    out_operand->access = slot->access;
    out_operand->optional = (slot->flags & MICA__SLOT_OPTIONAL) != 0;
    out_operand->part = (slot->flags & MICA__SLOT_PART) != 0;
    out_operand->rows = slot->strides;
    if (slot->types >= MICA__TYPES_SAME)
        out_operand->same_as = given_index(info, slot->types - MICA__TYPES_SAME);
    else
        out_operand->types = mica__types[slot->types].set & ((1ull << MICA_DTYPE_COUNT) - 2);
    mica__shape_text(slot->shape, out_operand->shape, sizeof out_operand->shape);
    return MICA_OK;
}

/* ---- calls ---- */

/* The record's parameters: the caller's first, what only fusion gives is 0. */
typedef union room {
    uint64_t aligned;
    unsigned char bytes[MOST_PARAMS];
} room;

static void fill_params(const mica__op_info *info, const void *params, room *out)
{
    memset(out, 0, sizeof *out);
    if (params != NULL)
        memcpy(out, params, info->call_params);
}

#define OP(op, name, prefix, call, record, ...) \
    _Static_assert(sizeof(record) <= MOST_PARAMS, "room for the parameters of " #name);
typedef char NO_PARAMS[1];
#include "backend/ops.def"

mica_status mica_op_apply(mica_encoder *encoder, mica_op op, const void *params, mica_buffer *const *operands,
                          uint32_t count)
{
    const mica__op_info *info = NULL;
    room record;
    MICA__TRY(find_called_op("op_apply", op, &info));
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: operands is NULL", info->name);
    const uint32_t slots = mica__op_slots(info, count);
    if (slots == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %u operands, which are not those of the op",
                          info->name, count);
    fill_params(info, params, &record);
    return mica__op_call_slots(encoder, op, &record, operands, slots);
}

/* ---- operands that need not exist ---- */

/* Contiguous bytes of a stride where the description has none; 0 where sizes are not known. */
static void fill_strides(const mica_operand_desc *desc, mica__operand *out)
{
    uint64_t step = mica__dtype_bytes(out->dtype), elements = mica__dtype_elements(out->dtype), given = 0;
    for (uint32_t d = 0; d < out->ndim; d++)
        given |= desc->stride[d];
    out->length = step;
    for (uint32_t d = out->ndim; d-- > 0;) {
        out->stride[d] = given != 0 ? desc->stride[d] : step;
        const uint64_t blocks = d + 1u == out->ndim ? out->shape[d] / elements : out->shape[d];
        step = mica__size_known(out->shape[d]) && blocks < (1ull << 40) / (step + 1) ? step * blocks : 0;
    }
    out->length = step;
}

void mica__op_put_desc(mica__op_builder *op, uint32_t slot, const mica__slot_info *info,
                       const mica_operand_desc *desc)
{
    mica__operand *out = &op->record.operand[slot];
    const char *name = mica__op_argument(op, slot);
    mica__op_require(op, desc->dtype > MICA_DTYPE_NONE && desc->dtype < MICA_DTYPE_COUNT, "%s: dtype is %d",
                     name, (int)desc->dtype);
    mica__op_require(op, desc->ndim <= MICA_MAX_DIMS, "%s has %u dimensions, over %u", name, desc->ndim,
                     MICA_MAX_DIMS);
    mica__op_require(op, desc->scale_dtype < MICA_DTYPE_COUNT, "%s: scale_dtype is %d", name,
                     (int)desc->scale_dtype);
    mica__op_require(op, desc->layout >= MICA_LAYOUT_CANONICAL && desc->layout < MICA_LAYOUT_COUNT,
                     "%s: layout is %d", name, (int)desc->layout);
    if (!mica__op_ok(op))
        return;
    out->dtype = (uint16_t)desc->dtype;
    out->ndim = (uint8_t)desc->ndim;
    out->access = info->access;
    out->layout = (uint8_t)desc->layout;
    out->temporary = 0;
    out->group_size = desc->group_size;
    memcpy(out->shape, desc->shape, sizeof out->shape);
    fill_strides(desc, out);
    mica__op_check_types(op, slot, info, desc->dtype);
    /* Tables of scales have the groups of their weight in the last dimension. */
    if ((info[1].flags & MICA__SLOT_TABLE) == 0 || desc->group_size == 0 || desc->ndim == 0 ||
        desc->layout != MICA_LAYOUT_CANONICAL)
        return;
    mica_operand_desc table = {.dtype = desc->scale_dtype, .ndim = desc->ndim};
    memcpy(table.shape, desc->shape, sizeof table.shape);
    table.shape[desc->ndim - 1] = (desc->shape[desc->ndim - 1] + desc->group_size - 1) / desc->group_size;
    mica__op_put_desc(op, slot + MICA__WEIGHT_SCALES, &info[MICA__WEIGHT_SCALES], &table);
    if (mica__dtype_is_affine(desc->dtype))
        mica__op_put_desc(op, slot + MICA__WEIGHT_BIASES, &info[MICA__WEIGHT_BIASES], &table);
}

static bool is_asked(const mica_operand_desc *desc)
{
    return desc->ndim == MICA_RANK_UNKNOWN;
}

static void begin_descs(mica__op_builder *op, mica_op id, const mica__op_info *info, room *record,
                        uint32_t count)
{
    const uint32_t slots = mica__op_slots(info, count);
    mica__op_begin(op, NULL, id, slots, NULL, record, info->record_params);
    mica__op_clear(op);
    mica__op_require(op, slots != 0, "%u operands, which are not those of the op", count);
}

/* Those that are there; what is asked for stays absent. */
static void put_descs(mica__op_builder *op, const mica_operand_desc *operands, uint32_t count)
{
    for (uint32_t i = 0, slot = 0; i < count && mica__op_ok(op); i++, slot++) {
        slot = mica__op_next_slot(op, slot);
        const mica__slot_info *info = mica__slot_of(&op->record, slot);
        const bool absent = operands[i].dtype == MICA_DTYPE_NONE && operands[i].ndim == 0;
        if (absent)
            mica__op_require(op, (info->flags & MICA__SLOT_OPTIONAL) != 0, "%s is absent", info->name);
        else if (!is_asked(&operands[i]))
            mica__op_put_desc(op, slot, info, &operands[i]);
    }
}

/* ---- inference ---- */

/* The type of an output that the caller leaves open. */
static mica_dtype default_dtype(const mica__op_builder *op, const mica__slot_info *info)
{
    if (info->types >= MICA__TYPES_SAME)
        return (mica_dtype)op->record.operand[info->types - MICA__TYPES_SAME].dtype;
    for (uint32_t slot = 0; slot < op->record.operand_count; slot++) {
        const mica__slot_info *other = mica__slot_of(&op->record, slot);
        if (other->types == info->types && other->access == MICA_ACCESS_READ && mica__op_has(op, slot))
            return (mica_dtype)op->record.operand[slot].dtype;
    }
    if (op->record.operand[0].dtype == MICA_DTYPE_F64 &&
        (mica__types[info->types].set >> MICA_DTYPE_F64 & 1) != 0) /* what is exact stays so */
        return MICA_DTYPE_F64;
    for (uint32_t dtype = 1; dtype < MICA_DTYPE_COUNT; dtype++)
        if ((mica__types[info->types].set >> dtype & 1) != 0)
            return (mica_dtype)dtype;
    return MICA_DTYPE_NONE;
}

/* Where nobody else says what REST is, an input that repeats to it does so as it is. */
static void take_repeated(mica__op_builder *op, uint32_t slot)
{
    const mica__slot_info rest = {.entries = 1, .shape = {MICA__SHAPE_REST}};
    uint32_t dim = 0;
    if (op->sizes.rest == NULL && mica__slot_of(&op->record, slot)->shape[0] == MICA__SHAPE_REPEATS)
        (void)mica__sizes_take(&op->sizes, &rest, slot, &op->record.operand[slot], &dim);
}

/* What the operands from slot `begin` on say. */
static void take_known(mica__op_builder *op, uint32_t begin, uint32_t end)
{
    uint32_t dim = 0;
    for (uint32_t slot = begin; slot < end; slot++)
        if (mica__op_has(op, slot)) /* what does not fit is found by the check behind it */
            (void)mica__sizes_take(&op->sizes, mica__slot_of(&op->record, slot), slot,
                                   &op->record.operand[slot], &dim);
    for (uint32_t slot = begin; slot < end; slot++)
        if (mica__op_has(op, slot))
            take_repeated(op, slot);
}

static void give_asked(mica__op_builder *op, uint32_t slot, mica_operand_desc *desc)
{
    const mica__slot_info *info = mica__slot_of(&op->record, slot);
    mica__operand shape = {.ndim = 0};
    if (desc->dtype == MICA_DTYPE_NONE)
        desc->dtype = default_dtype(op, info);
    if (info->shape[0] == MICA__SHAPE_REPEATS) {
        mica__op_refuse(op, "%s: its shape does not follow from the others", info->name);
    } else if (info->shape[0] == MICA__SHAPE_RULED) {
        mica__op_put_desc(op, slot, info, &(mica_operand_desc){.dtype = desc->dtype});
        op->record.operand[slot].ndim = MICA_RANK_UNKNOWN; /* until the rule has run */
    } else {
        mica__sizes_give(&op->sizes, info, &shape);
        desc->ndim = shape.ndim;
        memcpy(desc->shape, shape.shape, sizeof desc->shape);
        mica__op_put_desc(op, slot, info, desc);
    }
}

/* What rules gave. */
static void read_ruled(const mica__op_builder *op, mica_operand_desc *operands, uint32_t count)
{
    for (uint32_t i = 0, slot = 0; i < count; i++, slot++) {
        slot = mica__op_next_slot(op, slot);
        const mica__operand *o = &op->record.operand[slot];
        if (!is_asked(&operands[i]) || o->ndim == MICA_RANK_UNKNOWN)
            continue;
        operands[i].dtype = (mica_dtype)o->dtype;
        operands[i].ndim = o->ndim;
        memcpy(operands[i].shape, o->shape, o->ndim * sizeof o->shape[0]);
    }
}

/* Sizes of an output that the caller left open, where the others say them. */
static void fill_unknown(const mica__op_builder *op, mica_operand_desc *operands, uint32_t count)
{
    for (uint32_t i = 0, slot = 0; i < count && op->info->grouped == 0; i++, slot++) {
        slot = mica__op_next_slot(op, slot);
        const mica__slot_info *info = mica__slot_of(&op->record, slot);
        mica__operand known = {.ndim = 0};
        if ((info->access & MICA_ACCESS_READ) != 0 || info->shape[0] == MICA__SHAPE_RULED ||
            operands[i].dtype == MICA_DTYPE_NONE)
            continue;
        mica__sizes_give(&op->sizes, info, &known);
        for (uint32_t d = 0; known.ndim == operands[i].ndim && d < known.ndim; d++)
            if (operands[i].shape[d] == MICA_SIZE_UNKNOWN)
                operands[i].shape[d] = known.shape[d];
    }
}

/* The fixed slots, then group by group: what is known, then what follows from it. */
static void infer(mica__op_builder *op, const mica__op_info *info, mica_operand_desc *operands,
                  uint32_t count)
{
    const uint32_t slots = op->record.operand_count;
    uint32_t end = info->grouped != 0 ? 0 : slots;
    take_known(op, 0, info->fixed);
    for (uint32_t i = 0, slot = 0; i < count && mica__op_ok(op); i++, slot++) {
        slot = mica__op_next_slot(op, slot);
        if (info->grouped != 0 && slot >= info->fixed && slot >= end) {
            end = slot - (slot - info->fixed) % info->grouped + info->grouped;
            mica__sizes_group(&op->sizes, end == (uint32_t)info->fixed + info->grouped);
            take_known(op, end - info->grouped, end);
        }
        if (is_asked(&operands[i]))
            give_asked(op, slot, &operands[i]);
    }
}

mica_status mica_op_infer(mica_op op, const void *params, mica_operand_desc *operands, uint32_t count)
{
    const mica__op_info *info = NULL;
    mica__op_builder builder;
    room record;
    MICA__TRY(find_called_op("op_infer", op, &info));
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: operands is NULL", info->name);
    fill_params(info, params, &record);
    begin_descs(&builder, op, info, &record, count);
    put_descs(&builder, operands, count);
    if (mica__op_ok(&builder))
        infer(&builder, info, operands, count);
    builder.sizes = (mica__sizes){.known = 0};
    mica__op_check(&builder);
    if (mica__op_ok(&builder)) {
        read_ruled(&builder, operands, count);
        fill_unknown(&builder, operands, count);
    }
    return mica__op_end(&builder);
}

/* ---- costs ---- */

typedef struct cost {
    double bytes, operations;
} cost;

static mica_status add_cost(void *context, mica__record *record)
{
    cost *sum = context;
    double bytes = 0, operations = 0;
    mica__op_cost(record, &bytes, &operations);
    sum->bytes += bytes;
    sum->operations += operations;
    return MICA_OK;
}

mica_status mica__op_cost_of(mica_op op, const void *params, const mica_operand_desc *operands,
                             uint32_t count, double *out_bytes, double *out_operations)
{
    const mica__op_info *info = NULL;
    mica__op_builder builder;
    room record;
    cost sum = {0, 0};
    *out_bytes = *out_operations = 0;
    MICA__TRY(find_called_op("op_cost", op, &info));
    fill_params(info, params, &record);
    begin_descs(&builder, op, info, &record, count);
    put_descs(&builder, operands, count);
    mica__op_check(&builder);
    if (mica__op_ok(&builder))
        builder.status = mica__op_records(&builder, add_cost, &sum);
    *out_bytes = sum.bytes;
    *out_operations = sum.operations;
    return mica__op_end(&builder);
}

/* ---- routes ---- */

typedef struct asked {
    mica_device *device;
    mica_op_route route; /* of the records so far */
} asked;

static mica_status plan_record(void *context, mica__record *record)
{
    asked *a = context;
    double bytes = 0, operations = 0;
    mica__plan plan;
    memset(&plan, 0, sizeof plan);
    const mica__kernel_row *row = mica__registry_row(a->device, record);
    const mica_status status = mica__registry_check(a->device, record, false, &plan);
    mica__op_cost(record, &bytes, &operations);
    a->route.kernels = row != NULL ? row->name : "";
    a->route.dispatches += plan.dispatch_count;
    a->route.scratch_bytes += plan.scratch_bytes;
    a->route.bytes += bytes;
    a->route.operations += operations;
    mica__planning_end(&plan);
    return status;
}

static bool is_empty(const mica__operand *operand)
{
    for (uint32_t d = 0; d < operand->ndim; d++)
        if (operand->shape[d] == 0)
            return true;
    return false;
}

/* Whether there is something to compute, as mica__op_put finds it of buffers. */
static void find_work(mica__op_builder *op)
{
    for (uint32_t slot = 0; slot < op->record.operand_count; slot++) {
        const mica__operand *operand = &op->record.operand[slot];
        if (!mica__op_has(op, slot))
            continue;
        if ((operand->access & MICA_ACCESS_WRITE) != 0)
            op->has_work |= !is_empty(operand);
        else if (is_empty(operand))
            op->without = (uint16_t)slot;
    }
}

mica_status mica__op_plan_route(mica__op_builder *op, mica_op_route *out)
{
    asked a = {.device = op->device, .route = {.kernels = ""}};
    if (mica__op_ok(op))
        find_work(op);
    if (mica__op_has_work(op))
        op->status = mica__op_records(op, plan_record, &a);
    if (mica__op_ok(op) && out != NULL)
        *out = a.route;
    return mica__op_end(op);
}

mica_status mica_op_supported(mica_device *device, mica_op op, const void *params,
                              const mica_operand_desc *operands, uint32_t count, mica_op_route *out_route)
{
    const mica__op_info *info = NULL;
    mica__op_builder builder;
    room record;
    if (out_route != NULL)
        memset(out_route, 0, sizeof *out_route);
    if (device == NULL || operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "op_supported: %s is NULL",
                          device == NULL ? "device" : "operands");
    MICA__TRY(find_called_op("op_supported", op, &info));
    fill_params(info, params, &record);
    begin_descs(&builder, op, info, &record, count);
    put_descs(&builder, operands, count);
    builder.device = device; /* strides are looked at */
    mica__op_check(&builder);
    return mica__op_plan_route(&builder, out_route);
}
