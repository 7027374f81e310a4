/* check.c - the checks behind every op. */
#include "ops/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "quant/dtype.h"

void mica__op_begin(mica__op_builder *op, mica_encoder *encoder, mica_op id, uint32_t slots, void *params,
                    uint32_t params_size)
{
    op->encoder = encoder;
    op->name = mica_op_name(id);
    op->status = MICA_OK;
    op->in_place = op->written = 0;
    op->device = mica_encoder_device(encoder);
    for (uint32_t i = 0; i < slots; i++) {
        op->operand[i].memory = NULL;
        op->operand[i].storage = NULL;
        op->operand[i].dtype = MICA_DTYPE_NONE;
        op->operand[i].access = 0;
        op->operand[i].ndim = 0;
        op->operand[i].offset = 0; /* plans ask where operands begin before they ask which are there */
    }
    op->record = (mica__record){.op = (uint16_t)id,
                                .operand_count = (uint16_t)slots,
                                .params_size = (uint16_t)params_size,
                                .label = "",
                                .fused = "",
                                .operand = op->operand,
                                .params = params};
    if (encoder == NULL)
        op->status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: encoder is NULL", op->name);
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

static bool is_activation(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

static bool is_index(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_U32 || dtype == MICA_DTYPE_I32;
}

static bool kind_has(mica__kind kind, mica_dtype dtype)
{
    switch (kind) {
    case MICA__KIND_ANY: return true;
    case MICA__KIND_ACTIVATION: return is_activation(dtype);
    case MICA__KIND_F32: return dtype == MICA_DTYPE_F32;
    case MICA__KIND_INDEX: return is_index(dtype);
    case MICA__KIND_WEIGHT:
        return is_activation(dtype) || mica__dtype_elements(dtype) > 1 || mica__dtype_is_grouped(dtype);
    case MICA__KIND_NUMBER: return is_activation(dtype) || is_index(dtype);
    case MICA__KIND_CACHE: return is_activation(dtype) || dtype == MICA_DTYPE_Q8_0;
    }
    return false;
}

static const char *const kind_text[] = {"any type",
                                        "f32, f16 or bf16",
                                        "f32",
                                        "u32 or i32",
                                        "a weight type",
                                        "f32, f16, bf16, u32 or i32",
                                        "f32, f16, bf16 or q8_0"};

static void put(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                mica__kind kind, uint32_t min_dims, uint32_t max_dims, uint32_t access)
{
    op->argument[slot] = argument;
    if (op->status != MICA_OK)
        return;
    if (buffer == NULL) {
        mica__op_refuse(op, "%s is NULL", argument);
        return;
    }
    mica__op_require(op, buffer->storage->device == op->device, "%s is on another device", argument);
    mica__op_require(op, kind_has(kind, buffer->dtype), "%s is %s, not %s", argument,
                     mica_dtype_name(buffer->dtype), kind_text[kind]);
    mica__op_require(op, buffer->ndim >= min_dims && buffer->ndim <= max_dims,
                     "%s has %u dimensions, not %u to %u", argument, buffer->ndim, min_dims, max_dims);
    mica__op_require(op,
                     kind == MICA__KIND_WEIGHT || kind == MICA__KIND_ANY ||
                         buffer->packing.layout == MICA_LAYOUT_CANONICAL,
                     "%s is packed", argument);
    if ((access & MICA_ACCESS_WRITE) != 0) {
        op->written |= 1u << slot;
        mica__op_require(op, !buffer->read_only, "%s is read-only", argument);
        for (uint32_t d = 0; d < buffer->ndim; d++)
            mica__op_require(op, buffer->shape[d] == 1 || buffer->stride[d] != 0,
                             "%s repeats (stride[%u] is 0)", argument, d);
    }
    op->buffer[slot] = buffer;
    mica__operand_from(buffer, access, &op->operand[slot]);
}

void mica__op_read(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                   mica__kind kind, uint32_t min_dims, uint32_t max_dims)
{
    put(op, slot, argument, buffer, kind, min_dims, max_dims, MICA_ACCESS_READ);
}

void mica__op_read_optional(mica__op_builder *op, uint32_t slot, const char *argument,
                            const mica_buffer *buffer, mica__kind kind, uint32_t min_dims, uint32_t max_dims)
{
    if (buffer != NULL)
        put(op, slot, argument, buffer, kind, min_dims, max_dims, MICA_ACCESS_READ);
}

void mica__op_write(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                    mica__kind kind, uint32_t min_dims, uint32_t max_dims)
{
    put(op, slot, argument, buffer, kind, min_dims, max_dims, MICA_ACCESS_WRITE);
}

void mica__op_update(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                     mica__kind kind, uint32_t min_dims, uint32_t max_dims)
{
    put(op, slot, argument, buffer, kind, min_dims, max_dims, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
}

void mica__op_weight(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                     uint32_t min_dims, uint32_t max_dims)
{
    put(op, slot, argument, buffer, MICA__KIND_WEIGHT, min_dims, max_dims, MICA_ACCESS_READ);
    if (op->status != MICA_OK || !mica__dtype_is_grouped(buffer->dtype) ||
        buffer->packing.layout != MICA_LAYOUT_CANONICAL)
        return;
    mica__op_require(op, buffer->scales != NULL, "%s is %s without scales (mica_buffer_affine)", argument,
                     mica_dtype_name(buffer->dtype));
    if (op->status != MICA_OK)
        return;
    op->argument[slot + 1] = op->argument[slot + 2] = argument;
    mica__operand_from(buffer->scales, MICA_ACCESS_READ, &op->operand[slot + 1]);
    mica__operand_from(buffer->biases, MICA_ACCESS_READ, &op->operand[slot + 2]);
}

uint64_t mica__op_size(const mica__op_builder *op, uint32_t slot, int dim)
{
    const mica__operand *o = &op->operand[slot];
    if (op->status != MICA_OK)
        return 0;
    return o->shape[dim < 0 ? (int)o->ndim + dim : dim];
}

void mica__op_dim(mica__op_builder *op, uint32_t slot, int dim, uint64_t size, const char *why)
{
    if (op->status != MICA_OK || op->operand[slot].memory == NULL)
        return;
    int d = dim < 0 ? (int)op->operand[slot].ndim + dim : dim;
    mica__op_require(op, op->operand[slot].shape[d] == size, "%s: shape[%d] is %llu, but %s is %llu",
                     op->argument[slot], d, (unsigned long long)op->operand[slot].shape[d], why,
                     (unsigned long long)size);
}

void mica__op_same_shape(mica__op_builder *op, uint32_t slot, uint32_t other)
{
    if (op->status != MICA_OK)
        return;
    const mica__operand *a = &op->operand[slot], *b = &op->operand[other];
    mica__op_require(op, a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) == 0,
                     "%s and %s differ in shape", op->argument[slot], op->argument[other]);
}

void mica__op_rows(mica__op_builder *op, uint32_t slot)
{
    const mica__operand *o = &op->operand[slot];
    if (op->status != MICA_OK || o->memory == NULL)
        return;
    uint64_t unit = mica__dtype_bytes(o->dtype);
    mica__op_require(op, o->shape[o->ndim - 1] == 1 || o->stride[o->ndim - 1] == unit,
                     "%s: the last dimension has stride %llu, not %llu", op->argument[slot],
                     (unsigned long long)o->stride[o->ndim - 1], (unsigned long long)unit);
}

void mica__op_contiguous(mica__op_builder *op, uint32_t slot)
{
    if (op->status == MICA_OK && op->operand[slot].memory != NULL)
        mica__op_require(op, mica__buffer_contiguous(op->buffer[slot]), "%s is not contiguous",
                         op->argument[slot]);
}

void mica__op_broadcast(mica__op_builder *op, uint32_t slot, uint32_t other)
{
    if (op->status != MICA_OK)
        return;
    mica__operand *o = &op->operand[slot];
    const mica__operand *target = &op->operand[other];
    if (o->ndim == target->ndim && memcmp(o->shape, target->shape, o->ndim * sizeof o->shape[0]) == 0)
        return;
    uint32_t missing = target->ndim - o->ndim;
    mica__op_require(op, o->ndim <= target->ndim, "%s has more dimensions than %s", op->argument[slot],
                     op->argument[other]);
    if (op->status != MICA_OK)
        return;
    uint64_t shape[MICA_MAX_DIMS] = {0}, stride[MICA_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < target->ndim; d++) {
        uint64_t size = d < missing ? 1 : o->shape[d - missing];
        mica__op_require(op, size == target->shape[d] || size == 1,
                         "%s does not repeat to the shape of %s (dimension %u)", op->argument[slot],
                         op->argument[other], d);
        shape[d] = target->shape[d];
        stride[d] = size == 1 ? 0 : o->stride[d - missing];
    }
    memcpy(o->shape, shape, target->ndim * sizeof shape[0]);
    memcpy(o->stride, stride, target->ndim * sizeof stride[0]);
    o->ndim = target->ndim;
}

void mica__op_in_place(mica__op_builder *op, uint32_t slot)
{
    op->in_place |= 1u << slot;
}

/* Output and operand of one storage: they may meet only if the operand allows the very same view. */
static void check_overlap(mica__op_builder *op, uint32_t output, uint32_t slot)
{
    mica__range a, b;
    if ((op->in_place >> slot & 1) != 0 && mica__operand_same(&op->operand[output], &op->operand[slot]))
        return;
    mica__range_of(&op->operand[output], &a);
    mica__range_of(&op->operand[slot], &b);
    mica__op_require(op, !mica__ranges_overlap(&a, &b), "%s overlaps %s", op->argument[output],
                     op->argument[slot]);
}

static void check_output(mica__op_builder *op, uint32_t output)
{
    const void *storage = op->operand[output].storage;
    const uint32_t count = op->record.operand_count;
    for (uint32_t slot = 0; slot < count; slot++)
        if (op->operand[slot].storage == storage && slot != output)
            check_overlap(op, output, slot);
}

mica_status mica__op_add(mica__op_builder *op)
{
    if (op->status != MICA_OK)
        return op->status;
    for (uint32_t slot = 0, written = op->written; written != 0; slot++, written >>= 1)
        if ((written & 1) != 0)
            check_output(op, slot);
    if (op->status != MICA_OK)
        return op->status;
    return mica__encoder_add(op->encoder, &op->record);
}
