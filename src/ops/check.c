/* check.c - the checks behind every op. */
#include "ops/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/region.h"
#include "base/alloc.h"
#include "base/status.h"
#include "quant/dtype.h"

#define ULL(x) ((unsigned long long)(x))

/* ---- beginning, complaining ---- */

static void make_absent(mica__operand *operand)
{
    operand->memory = NULL;
    operand->storage = NULL;
    operand->dtype = MICA_DTYPE_NONE;
    operand->access = 0;
    operand->ndim = 0;
    operand->offset = operand->length = 0; /* plans ask for both before they ask which are there */
}

void mica__op_begin(mica__op_builder *op, mica_encoder *encoder, mica_op id, uint32_t slots,
                    const mica__region_names *names, const void *params, uint32_t params_size)
{
    op->encoder = encoder;
    op->device = encoder != NULL ? mica_encoder_device(encoder) : NULL;
    op->names = names;
    op->info = &mica__ops[id];
    op->name = names != NULL ? names->op : op->info->name;
    op->status = MICA_OK;
    op->first_output = op->without = UINT16_MAX;
    op->has_work = false;
    op->sizes.known = 0;
    op->sizes.rest = NULL;
    op->many = NULL;
    op->record = (mica__record){.op = (uint16_t)id,
                                .operand_count = (uint16_t)slots,
                                .params_size = (uint16_t)params_size,
                                .label = "",
                                .fused = "",
                                .operand = op->few,
                                .params = (void *)params}; /* read and copied */
    if (slots > MICA__MAX_OPERANDS) {
        op->many = slots <= UINT16_MAX ? mica__alloc(slots * sizeof *op->many) : NULL;
        op->record.operand = op->many;
        if (op->many == NULL) {
            op->record.operand_count = 0;
            op->status =
                mica__fail(MICA_ERR_OUT_OF_MEMORY, "%s: no host memory for %u operands", op->name, slots);
        }
    }
}

void mica__op_clear(mica__op_builder *op)
{
    for (uint32_t i = 0; i < op->record.operand_count; i++)
        make_absent(&op->record.operand[i]);
}

mica_status mica__op_end(mica__op_builder *op)
{
    mica__free(op->many);
    op->many = NULL;
    return op->status;
}

void mica__op_refuse(mica__op_builder *op, const char *format, ...)
{
    if (op->status != MICA_OK)
        return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    op->status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s", op->name, text);
}

const char *mica__op_argument(const mica__op_builder *op, uint32_t slot)
{
    if (op->names == NULL)
        return mica__slot_of(&op->record, slot)->name;
    const mica__region_program *program = op->record.params;
    return slot < program->input_count ? op->names->input[slot]
                                       : op->names->output[slot - program->input_count];
}

/* ---- operands ---- */

void mica__op_check_types(mica__op_builder *op, uint32_t slot, const mica__slot_info *info, mica_dtype dtype)
{
    if (info->types >= MICA__TYPES_SAME) {
        const uint32_t other = info->types - MICA__TYPES_SAME, wanted = op->record.operand[other].dtype;
        mica__op_require(op, dtype == wanted, "%s is %s, but %s is %s", mica__op_argument(op, slot),
                         mica_dtype_name(dtype), mica__op_argument(op, other),
                         mica_dtype_name((mica_dtype)wanted));
        return;
    }
    const mica__types_info *types = &mica__types[info->types];
    mica__op_require(op, (types->set >> dtype & 1) != 0, "%s is %s, not %s", mica__op_argument(op, slot),
                     mica_dtype_name(dtype), types->text);
}

static void check_output(mica__op_builder *op, uint32_t slot, const mica_buffer *buffer)
{
    mica__op_require(op, !buffer->read_only, "%s is read-only", mica__op_argument(op, slot));
    for (uint32_t d = 0; d < buffer->ndim; d++)
        mica__op_require(op, buffer->shape[d] <= 1 || buffer->stride[d] != 0, "%s repeats (stride[%u] is 0)",
                         mica__op_argument(op, slot), d);
}

/* The scales and biases that a weight has beside it go into the two slots behind it; most have none. */
static void put_tables(mica__op_builder *op, uint32_t slot, const mica_buffer *buffer)
{
    make_absent(&op->record.operand[slot + 1]);
    make_absent(&op->record.operand[slot + 2]);
    if (!mica__dtype_is_grouped(buffer->dtype) || buffer->packing.layout != MICA_LAYOUT_CANONICAL)
        return;
    mica__op_require(op, buffer->scales != NULL, "%s is %s without scales (mica_buffer_affine)",
                     mica__op_argument(op, slot), mica_dtype_name(buffer->dtype));
    if (op->status != MICA_OK)
        return;
    mica__operand_from(buffer->scales, MICA_ACCESS_READ, &op->record.operand[slot + 1]);
    mica__operand_from(buffer->biases, MICA_ACCESS_READ, &op->record.operand[slot + 2]);
}

static bool has_tables(const mica__slot_info *info)
{
    return (info[1].flags & MICA__SLOT_TABLE) != 0;
}

void mica__op_put(mica__op_builder *op, uint32_t slot, const mica__slot_info *info, const mica_buffer *buffer)
{
    if (op->status != MICA_OK)
        return;
    if (buffer == NULL) {
        mica__op_refuse(op, "%s is NULL", mica__op_argument(op, slot));
        return;
    }
    mica__op_require(op, buffer->storage->device == op->device, "%s is on another device",
                     mica__op_argument(op, slot));
    mica__op_check_types(op, slot, info, buffer->dtype);
    mica__op_require(op, has_tables(info) || buffer->packing.layout == MICA_LAYOUT_CANONICAL, "%s is packed",
                     mica__op_argument(op, slot));
    if ((info->access & MICA_ACCESS_WRITE) != 0) {
        check_output(op, slot, buffer);
        op->has_work |= buffer->length != 0;
        if (op->first_output == UINT16_MAX)
            op->first_output = (uint16_t)slot;
    } else if (buffer->length == 0) {
        op->without = (uint16_t)slot;
    }
    if (op->status != MICA_OK)
        return;
    mica__operand_from(buffer, info->access, &op->record.operand[slot]);
    if (has_tables(info))
        put_tables(op, slot, buffer);
}

/* mica__slot_of, of any op but a region. */
static inline const mica__slot_info *slot_info(const mica__op_info *info, uint32_t slot)
{
    return &info->slot[slot < info->rows ? slot : info->fixed + (slot - info->fixed) % info->grouped];
}

/* ---- shapes and strides ---- */

void mica__shape_text(const uint8_t *shape, char *out, size_t bytes)
{
    if (shape[0] == MICA__SHAPE_REPEATS || shape[0] == MICA__SHAPE_RULED) {
        snprintf(out, bytes, shape[0] == MICA__SHAPE_REPEATS ? "any" : "ruled");
        return;
    }
    size_t used = (size_t)snprintf(out, bytes, "[");
    for (uint32_t i = 0; i < MICA_MAX_DIMS && shape[i] != 0; i++) {
        const uint32_t entry = shape[i], letter = entry & ~MICA__SHAPE_MAYBE;
        const char *comma = i > 0 ? ", " : "";
        if (entry == MICA__SHAPE_REST)
            used += (size_t)snprintf(out + used, bytes - used, "%s..", comma);
        else if (letter == entry && (entry & MICA__SHAPE_FIXED) != 0)
            used += (size_t)snprintf(out + used, bytes - used, "%s%u", comma, entry & ~MICA__SHAPE_FIXED);
        else
            used += (size_t)snprintf(out + used, bytes - used, "%s%c%s", comma, (char)('a' + letter - 1),
                                     letter != entry ? "?" : "");
    }
    snprintf(out + used, bytes - used, "]");
}

static MICA__COLD void refuse_rank(mica__op_builder *op, uint32_t slot, const mica__slot_info *info)
{
    char shape[64];
    mica__shape_text(info->shape, shape, sizeof shape);
    mica__op_refuse(op, "%s has %u dimensions, not those of %s%s%s", mica__op_argument(op, slot),
                    op->record.operand[slot].ndim, shape, op->sizes.rest != NULL ? ", '..' as in " : "",
                    op->sizes.rest != NULL ? mica__op_argument(op, op->sizes.rest_slot) : "");
}

static MICA__COLD void refuse_size(mica__op_builder *op, uint32_t slot, uint32_t dim)
{
    const mica__sizes *sizes = &op->sizes;
    const uint64_t *shape = op->record.operand[slot].shape;
    /* Whoever said another size: a letter's owner, or REST's. */
    for (uint32_t letter = 1; letter < MICA__SHAPE_LETTERS; letter++) {
        mica__sizes one = *sizes;
        one.known &= 1u << letter;
        uint32_t at = 0;
        if (one.known != 0 &&
            mica__sizes_take(&one, mica__slot_of(&op->record, slot), slot, &op->record.operand[slot], &at) ==
                MICA__FIT_SIZE &&
            at == dim) {
            mica__op_refuse(op, "%s: shape[%u] is %llu, but shape[%u] of %s is %llu",
                            mica__op_argument(op, slot), dim, ULL(shape[dim]), sizes->dim[letter],
                            mica__op_argument(op, sizes->slot[letter]), ULL(sizes->size[letter]));
            return;
        }
    }
    mica__op_refuse(
        op, "%s: shape[%u] is %llu, which does not fit %s", mica__op_argument(op, slot), dim, ULL(shape[dim]),
        sizes->rest != NULL && sizes->rest_slot != slot ? mica__op_argument(op, sizes->rest_slot) : "the op");
}

static void check_shape(mica__op_builder *op, uint32_t slot, const mica__slot_info *info)
{
    uint32_t dim = 0;
    switch (mica__sizes_take(&op->sizes, info, slot, &op->record.operand[slot], &dim)) {
    case MICA__FITS: break;
    case MICA__FIT_RANK: refuse_rank(op, slot, info); break;
    case MICA__FIT_SIZE: refuse_size(op, slot, dim); break;
    }
}

static void check_rows(mica__op_builder *op, uint32_t slot)
{
    const mica__operand *o = &op->record.operand[slot];
    const uint64_t unit = mica__dtype_bytes(o->dtype);
    if (o->ndim == 0)
        return;
    mica__op_require(op, o->shape[o->ndim - 1] <= 1 || o->stride[o->ndim - 1] == unit,
                     "%s: the last dimension has stride %llu, not %llu", mica__op_argument(op, slot),
                     ULL(o->stride[o->ndim - 1]), ULL(unit));
}

void mica__op_contiguous(mica__op_builder *op, uint32_t slot)
{
    const mica__operand *o = &op->record.operand[slot];
    if (op->status != MICA_OK || !mica__operand_present(o))
        return;
    uint64_t step = mica__dtype_bytes(o->dtype), elements = mica__dtype_elements(o->dtype);
    for (uint32_t d = o->ndim; d-- > 0;) {
        mica__op_require(op, o->shape[d] <= 1 || o->stride[d] == step, "%s is not contiguous",
                         mica__op_argument(op, slot));
        step *= d + 1u == o->ndim ? o->shape[d] / elements : o->shape[d];
    }
}

static mica__rule *const rules[MICA_OP_COUNT] = {
#define OP(op, name, prefix, call, record, rule, ...) [MICA_OP_##op] = mica__rule_##rule,
#include "backend/ops.def"
};

void mica__rule_none(mica__op_builder *op)
{
    (void)op;
}

/* Shape and strides of an operand that is there; slots are looked at in their order. */
static void check_slot(mica__op_builder *op, uint32_t slot, const mica__slot_info *info)
{
    check_shape(op, slot, info);
    if (op->device != NULL && info->strides == MICA__STRIDES_ROWS)
        check_rows(op, slot);
    if (op->device != NULL && info->strides == MICA__STRIDES_WHOLE)
        mica__op_contiguous(op, slot);
}

void mica__op_check(mica__op_builder *op)
{
    uint32_t group = op->info->grouped != 0 ? op->info->fixed : UINT32_MAX;
    for (uint32_t slot = 0; slot < op->record.operand_count && op->status == MICA_OK; slot++) {
        if (slot == group) {
            mica__sizes_group(&op->sizes, slot == op->info->fixed);
            group += op->info->grouped;
        }
        if (mica__operand_present(&op->record.operand[slot]))
            check_slot(op, slot, slot_info(op->info, slot));
    }
    if (op->status == MICA_OK)
        rules[op->record.op](op);
}

/* ---- for rules ---- */

uint64_t mica__op_size(const mica__op_builder *op, char letter)
{
    const uint32_t at = (uint32_t)(letter - 'A') + 1;
    return (op->sizes.known >> at & 1) != 0 ? op->sizes.size[at] : MICA__NO_SIZE;
}

bool mica__op_has(const mica__op_builder *op, uint32_t slot)
{
    return mica__operand_present(&op->record.operand[slot]);
}

void mica__op_shape(mica__op_builder *op, uint32_t slot, uint32_t ndim, const uint64_t *shape)
{
    mica__operand *o = &op->record.operand[slot];
    if (op->status != MICA_OK || !mica__operand_present(o))
        return;
    if (o->ndim == MICA_RANK_UNKNOWN) {
        o->ndim = (uint8_t)ndim;
        memcpy(o->shape, shape, ndim * sizeof o->shape[0]);
    }
    mica__op_require(op, o->ndim == ndim, "%s has %u dimensions, not the %u that the op gives",
                     mica__op_argument(op, slot), o->ndim, ndim);
    for (uint32_t d = 0; d < ndim && op->status == MICA_OK; d++)
        mica__op_require(op, mica__sizes_agree(o->shape[d], shape[d]),
                         "%s: shape[%u] is %llu, but the op gives %llu", mica__op_argument(op, slot), d,
                         ULL(o->shape[d]), ULL(shape[d]));
}

void mica__op_same_shape(mica__op_builder *op, uint32_t slot, uint32_t other)
{
    if (op->status != MICA_OK)
        return;
    const mica__operand *a = &op->record.operand[slot], *b = &op->record.operand[other];
    mica__op_require(op, mica__operands_alike(a, b), "%s and %s differ in shape", mica__op_argument(op, slot),
                     mica__op_argument(op, other));
}

void mica__op_broadcast(mica__op_builder *op, uint32_t slot, uint32_t other)
{
    if (op->status != MICA_OK)
        return;
    mica__operand *o = &op->record.operand[slot];
    const mica__operand *target = &op->record.operand[other];
    if (mica__operands_alike(o, target))
        return;
    const uint32_t missing = target->ndim - o->ndim;
    mica__op_require(op, o->ndim <= target->ndim, "%s has more dimensions than %s",
                     mica__op_argument(op, slot), mica__op_argument(op, other));
    if (op->status != MICA_OK)
        return;
    uint64_t shape[MICA_MAX_DIMS] = {0}, stride[MICA_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < target->ndim; d++) {
        const uint64_t size = d < missing ? 1 : o->shape[d - missing];
        mica__op_require(op, size == 1 || mica__sizes_agree(size, target->shape[d]),
                         "%s does not repeat to the shape of %s (dimension %u)", mica__op_argument(op, slot),
                         mica__op_argument(op, other), d);
        shape[d] = target->shape[d];
        stride[d] = size == 1 ? 0 : o->stride[d - missing];
    }
    memcpy(o->shape, shape, target->ndim * sizeof shape[0]);
    memcpy(o->stride, stride, target->ndim * sizeof stride[0]);
    o->ndim = target->ndim;
}

/* ---- adding ---- */

/* Output and operand of one storage: they may meet only where the table allows the very same view. */
static void check_overlap(mica__op_builder *op, uint32_t output, uint32_t slot)
{
    const mica__operand *a = &op->record.operand[output], *b = &op->record.operand[slot];
    mica__range one, other;
    if ((b->access & MICA_ACCESS_WRITE) == 0 && mica__may_share(&op->record, output, slot) &&
        mica__operand_same(a, b))
        return;
    mica__range_of(a, &one);
    mica__range_of(b, &other);
    mica__op_require(op, !mica__ranges_overlap(&one, &other), "%s overlaps %s", mica__op_argument(op, output),
                     mica__op_argument(op, slot));
}

/* Everything that an output might be over. */
static void check_overlaps(mica__op_builder *op)
{
    const mica__operand *operand = op->record.operand;
    const uint32_t count = op->record.operand_count;
    for (uint32_t output = op->first_output; output < count; output++)
        for (uint32_t slot = 0; (operand[output].access & MICA_ACCESS_WRITE) != 0 && slot < count; slot++)
            if (operand[slot].storage == operand[output].storage && slot != output)
                check_overlap(op, output, slot);
}

/* Slots repeat more often than a record has them. */
static inline bool is_many(const mica__op_builder *op)
{
    const mica__op_info *info = op->info;
    return info->grouped != 0 &&
           op->record.operand_count > info->fixed + MICA__MAX_WEIGHTS * (uint32_t)info->grouped;
}

mica_status mica__op_records(mica__op_builder *op, mica_status (*each)(void *context, mica__record *record),
                             void *context)
{
    const mica__record whole = op->record;
    const uint32_t fixed = op->info->fixed, most = MICA__MAX_WEIGHTS * (uint32_t)op->info->grouped;
    mica__operand part[MICA__MAX_OPERANDS];
    mica_status status = MICA_OK;
    if (!is_many(op))
        return each(context, &op->record);
    memcpy(part, whole.operand, fixed * sizeof *part);
    op->record.operand = part;
    for (uint32_t at = fixed; at < whole.operand_count && status == MICA_OK; at += most) {
        const uint32_t count = whole.operand_count - at < most ? whole.operand_count - at : most;
        memcpy(part + fixed, whole.operand + at, count * sizeof *part);
        op->record.operand_count = (uint16_t)(fixed + count);
        rules[whole.op](op); /* parameters say how many groups there are */
        status = each(context, &op->record);
    }
    op->record = whole;
    return status;
}

static mica_status add_record(void *encoder, mica__record *record)
{
    return mica__encoder_add(encoder, record);
}

bool mica__op_has_work(mica__op_builder *op)
{
    if (op->has_work && op->without != UINT16_MAX && op->info->empty == MICA__EMPTY_REFUSED)
        mica__op_refuse(op, "%s has no elements, but there is something to compute",
                        mica__op_argument(op, op->without));
    return op->status == MICA_OK && op->has_work;
}

mica_status mica__op_add(mica__op_builder *op)
{
    if (op->status == MICA_OK)
        check_overlaps(op);
    if (mica__op_has_work(op))
        op->status = is_many(op) ? mica__op_records(op, add_record, op->encoder)
                                 : mica__encoder_add(op->encoder, &op->record);
    return mica__op_end(op);
}

/* ---- a call ---- */

uint32_t mica__op_slots(const mica__op_info *info, uint32_t count)
{
    uint32_t single = 0, repeated = 0;
    for (uint32_t i = 0; i < info->rows; i++)
        if (mica__slot_is_given(&info->slot[i]))
            *(i < info->fixed ? &single : &repeated) += 1;
    if (repeated == 0)
        return count == single ? info->fixed : 0;
    if (count <= single || (count - single) % repeated != 0)
        return 0;
    return info->fixed + (count - single) / repeated * info->grouped;
}

uint32_t mica__op_next_slot(const mica__op_builder *op, uint32_t slot)
{
    while (slot < op->record.operand_count && !mica__slot_is_given(slot_info(op->info, slot)))
        slot++;
    return slot;
}

mica_status mica__op_call_slots(mica_encoder *encoder, mica_op id, void *params, mica_buffer *const *buffers,
                                uint32_t slots)
{
    mica__op_builder op;
    const mica__op_info *info = &mica__ops[id];
    uint32_t group = info->grouped != 0 ? info->fixed : UINT32_MAX;
    mica__op_begin(&op, encoder, id, slots, NULL, params != NULL ? params : "", info->record_params);
    mica__op_require(&op, encoder != NULL, "encoder is NULL");
    for (uint32_t slot = 0; slot < slots && op.status == MICA_OK; slot++) {
        const mica__slot_info *at = slot_info(info, slot);
        if (slot == group) {
            mica__sizes_group(&op.sizes, slot == info->fixed);
            group += info->grouped;
        }
        if ((at->flags & MICA__SLOT_TABLE) != 0) /* was put with its weight */
            continue;
        const mica_buffer *buffer = mica__slot_is_given(at) ? *buffers++ : NULL;
        if (buffer == NULL && (at->flags & (MICA__SLOT_OPTIONAL | MICA__SLOT_INNER)) != 0) {
            make_absent(&op.record.operand[slot]);
            continue;
        }
        mica__op_put(&op, slot, at, buffer);
        if (op.status == MICA_OK)
            check_slot(&op, slot, at);
    }
    if (op.status == MICA_OK)
        rules[id](&op);
    return mica__op_add(&op);
}

mica_status mica__op_call(mica_encoder *encoder, mica_op id, void *params, mica_buffer *const *buffers)
{
    const mica__op_info *info = &mica__ops[id];
    return mica__op_call_slots(encoder, id, params, buffers, info->grouped != 0 ? info->rows : info->fixed);
}
