/*
 * check.h - what every op asks of its operands. Knows shapes and types, no kernel and no backend.
 *
 * An op builds an mica__op, describes its operands one by one, and adds it. The first complaint is kept; adding
 * reports it. So an op reads as a list of facts.
 */
#ifndef MICA_OPS_CHECK_H
#define MICA_OPS_CHECK_H

#include "base/status.h"
#include "device/encoder.h"
#include "mica/ops.h"

typedef struct mica__op_builder {
    mica_encoder *encoder;
    mica_device *device; /* the encoder's */
    const char *name;    /* of the op, for sentences */
    mica_status status;
    uint32_t written, in_place; /* masks of slots: outputs; inputs whose very view an output may be */
    mica__operand operand[MICA__MAX_OPERANDS];
    /* Of the operands that are there; of others nothing is written. */
    const mica_buffer *buffer[MICA__MAX_OPERANDS];
    const char *argument[MICA__MAX_OPERANDS]; /* name of the argument */
    mica__record record;
} mica__op_builder;

/* Which types an operand may have. */
typedef enum mica__kind {
    MICA__KIND_ANY,
    MICA__KIND_ACTIVATION, /* f32 f16 bf16 */
    MICA__KIND_F32,
    MICA__KIND_INDEX,  /* u32 i32 */
    MICA__KIND_WEIGHT, /* what matmul and embedding take */
    MICA__KIND_NUMBER, /* activation or index */
    MICA__KIND_CACHE   /* activation or q8_0 */
} mica__kind;

void mica__op_begin(mica__op_builder *op, mica_encoder *encoder, mica_op id, uint32_t slots, void *params,
                    uint32_t params_size);
/* Puts a buffer into a slot: not NULL, on the encoder's device, of that kind, with ndim in [min_dims, max_dims]. */
void mica__op_read(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                   mica__kind kind, uint32_t min_dims, uint32_t max_dims);
/* The same for an operand that may be NULL. */
void mica__op_read_optional(mica__op_builder *op, uint32_t slot, const char *argument,
                            const mica_buffer *buffer, mica__kind kind, uint32_t min_dims, uint32_t max_dims);
/* An output: also refuses read-only buffers and repeated dimensions (stride 0). */
void mica__op_write(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                    mica__kind kind, uint32_t min_dims, uint32_t max_dims);
/* An output that is read too (a cache, a counter). */
void mica__op_update(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                     mica__kind kind, uint32_t min_dims, uint32_t max_dims);
/* A weight and, for types that have them, its scales and biases in the two slots behind it. */
void mica__op_weight(mica__op_builder *op, uint32_t slot, const char *argument, const mica_buffer *buffer,
                     uint32_t min_dims, uint32_t max_dims);
/* Dimension `dim` of the operand (negative: from the end) must be `size`; `why` says what it must match. */
void mica__op_dim(mica__op_builder *op, uint32_t slot, int dim, uint64_t size, const char *why);
/* Same shape as another operand. */
void mica__op_same_shape(mica__op_builder *op, uint32_t slot, uint32_t other);
/* The last dimension must be contiguous. Absent operands pass. */
void mica__op_rows(mica__op_builder *op, uint32_t slot);
void mica__op_contiguous(mica__op_builder *op, uint32_t slot);
/* Lets the operand repeat to the shape of `other`: dimensions aligned at the last, missing ones and size 1 repeat. */
void mica__op_broadcast(mica__op_builder *op, uint32_t slot, uint32_t other);
/* Allows the output to be the very view of this input. */
void mica__op_in_place(mica__op_builder *op, uint32_t slot);
/* Keeps a complaint unless there is one already. */
void mica__op_refuse(mica__op_builder *op, const char *format, ...) MICA__PRINTF(2, 3);
/* The arguments of a complaint are only looked at when there is one. */
#define mica__op_require(op, holds, ...)      \
    do {                                      \
        if (!(holds))                         \
            mica__op_refuse(op, __VA_ARGS__); \
    } while (0)
/* Checks that no output overlaps another operand, then adds the record. */
mica_status mica__op_add(mica__op_builder *op);

/* Size of dimension `dim` (negative: from the end) of an operand; 0 once something was refused. */
uint64_t mica__op_size(const mica__op_builder *op, uint32_t slot, int dim);
static inline bool mica__op_ok(const mica__op_builder *op)
{
    return op->status == MICA_OK;
}

#endif
