/*
 * check.h - how a call becomes a record: its operands go into the slots that the table (ops.def) gives them, everything that the
 * table says of them is checked, then what only the op itself knows: its rule. Knows shapes and types, no kernel and no backend.
 *
 * The first complaint is kept; adding reports it. So a rule reads as a list of facts.
 */
#ifndef MICA_OPS_CHECK_H
#define MICA_OPS_CHECK_H

#include "backend/op_table.h"
#include "base/status.h"
#include "device/encoder.h"
#include "mica/op.h"
#include "mica/ops.h"

/* What the operands of a region are called in sentences; those of other ops are called as the table has them. */
typedef struct mica__region_names {
    const char *op;
    const char *const *input, *const *output;
} mica__region_names;

typedef struct mica__op_builder {
    mica_encoder *encoder; /* NULL: nothing will be added, somebody asks */
    mica_device *device;   /* NULL: shapes and types alone are asked about */
    const char *name;      /* of the op, for sentences */
    const mica__region_names *names;
    const mica__op_info *info;
    mica_status status;
    uint16_t first_output; /* slot; UINT16_MAX: none yet */
    uint16_t without;      /* slot of an input without elements; UINT16_MAX: none */
    bool has_work;         /* some output has elements */
    mica__record record;
    mica__sizes sizes;
    mica__operand *many; /* record.operand where `few` do not do */
    mica__operand few[MICA__MAX_OPERANDS];
} mica__op_builder;

/* A call: `buffers` are those operands that callers give, in the order of the table, NULL for absent ones, one group where slots repeat;
 * `params` is the op's record struct, which its rule completes. */
mica_status mica__op_call(mica_encoder *encoder, mica_op id, void *params, mica_buffer *const *buffers);
/* The same for a record of so many slots: any number of groups. */
mica_status mica__op_call_slots(mica_encoder *encoder, mica_op id, void *params, mica_buffer *const *buffers,
                                uint32_t slots);

/* The same step by step, for regions and for those who ask. `slots` operands, each to be put or made absent. */
void mica__op_begin(mica__op_builder *op, mica_encoder *encoder, mica_op id, uint32_t slots,
                    const mica__region_names *names, const void *params, uint32_t params_size);
/* All operands are absent. */
void mica__op_clear(mica__op_builder *op);
/* Puts a buffer into a slot: not NULL, on the device, of the slot's types; an output is not read-only and repeats nowhere. */
void mica__op_put(mica__op_builder *op, uint32_t slot, const mica__slot_info *info,
                  const mica_buffer *buffer);
/* Puts what a buffer would be like into a slot. */
void mica__op_put_desc(mica__op_builder *op, uint32_t slot, const mica__slot_info *info,
                       const mica_operand_desc *desc);
/* How the builder's device would do it; ends the builder. `out` may be NULL. */
mica_status mica__op_plan_route(mica__op_builder *op, mica_op_route *out);
/* What the op moves and takes at the least on operands of known sizes, whatever the device (mica__op_cost). Refuses what mica_op_infer does. */
mica_status mica__op_cost_of(mica_op op, const void *params, const mica_operand_desc *operands,
                             uint32_t count, double *out_bytes, double *out_operations);
/* Whether some output has elements; an input without any is refused then, unless the table allows it. */
bool mica__op_has_work(mica__op_builder *op);
/* Checks that no output overlaps another operand unless the table allows it, adds the record unless there is nothing to do, and ends
 * the builder. */
mica_status mica__op_add(mica__op_builder *op);

/* Gives `each` the records that the call becomes, until one fails: one, or of slots that repeat more often than a record has them several,
 * each with the fixed operands and the next groups. */
mica_status mica__op_records(mica__op_builder *op, mica_status (*each)(void *context, mica__record *record),
                             void *context);

/* The first complaint; frees what the builder took. */
mica_status mica__op_end(mica__op_builder *op);

/* ---- for rules ---- */

#define MICA__NO_SIZE 0u
/* The size that a letter of the table stands for ('D'); 0 where no operand has it. */
uint64_t mica__op_size(const mica__op_builder *op, char letter);
bool mica__op_has(const mica__op_builder *op, uint32_t slot);
/* The shape that the op gives a slot which the table calls RULED: checked, or written where somebody asks for it. Sizes may be
 * unknown. */
void mica__op_shape(mica__op_builder *op, uint32_t slot, uint32_t ndim, const uint64_t *shape);
static inline bool mica__operands_alike(const mica__operand *a, const mica__operand *b)
{
    bool same = a->ndim == b->ndim;
    for (uint32_t d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d];
    return same;
}
/* Same shape as another operand. */
void mica__op_same_shape(mica__op_builder *op, uint32_t slot, uint32_t other);
/* No gaps. */
void mica__op_contiguous(mica__op_builder *op, uint32_t slot);
/* Lets the operand repeat to the shape of `other`: dimensions aligned at the last, missing ones and size 1 repeat. */
void mica__op_broadcast(mica__op_builder *op, uint32_t slot, uint32_t other);
/* The name of the slot's argument. */
const char *mica__op_argument(const mica__op_builder *op, uint32_t slot) MICA__COLD;
/* Keeps a complaint unless there is one already. */
void mica__op_refuse(mica__op_builder *op, const char *format, ...) MICA__PRINTF(2, 3) MICA__COLD;
/* The arguments of a complaint are only looked at when there is one. */
#define mica__op_require(op, holds, ...)      \
    do {                                      \
        if (!(holds))                         \
            mica__op_refuse(op, __VA_ARGS__); \
    } while (0)

static inline bool mica__op_ok(const mica__op_builder *op)
{
    return op->status == MICA_OK;
}

/* ---- inside of the room ---- */

typedef void mica__rule(mica__op_builder *op);
/* The column of the table; rules see sizes that may be unknown, and complete record.params. */
#define OP(op, name, prefix, call, record, rule, ...) mica__rule mica__rule_##rule;
#include "backend/ops.def"

/* Whether callers fill the slot. */
static inline bool mica__slot_is_given(const mica__slot_info *slot)
{
    return (slot->flags & (MICA__SLOT_INNER | MICA__SLOT_TABLE)) == 0;
}
/* Slots of a record for `count` operands of a caller; 0: that many do not fit the op. */
uint32_t mica__op_slots(const mica__op_info *info, uint32_t count);
/* The next slot from `slot` on that callers fill. */
uint32_t mica__op_next_slot(const mica__op_builder *op, uint32_t slot);
/* Refuses a type that the slot does not take. */
void mica__op_check_types(mica__op_builder *op, uint32_t slot, const mica__slot_info *info, mica_dtype dtype);
/* Whatever the table says of the operands that are there, then the rule. */
void mica__op_check(mica__op_builder *op);
/* "[.., d]", "any". */
void mica__shape_text(const uint8_t *shape, char *out, size_t bytes);

#endif
