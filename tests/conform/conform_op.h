/* conform_op.h - rows whose cases come out of the table of ops: conform_make_op, conform_encode_op and an oracle. */
#ifndef CONFORM_OP_H
#define CONFORM_OP_H

#include "backend/op_table.h"
#include "conform/conform.h"

/* The place of a letter of the table in conform_draw.size. */
#define CONFORM_SIZE(letter) ((letter) - 'A' + 1)
#define CONFORM_MISSING UINT64_MAX /* of one that may be */

/* What a row decides before operands are drawn; all 0: nothing. */
typedef struct conform_draw {
    uint64_t size[MICA__SHAPE_LETTERS]; /* 0: drawn */
    uint32_t most, rest, rest_dims; /* elements of an operand, about; of REST, its rank; 0: 3000, 60, drawn */
    uint64_t types;                 /* bit d: of the first operand; 0: all that the table has */
    uint32_t groups;                /* of slots that repeat; 0: one to nine */
    /* Bit s: slot s of the table is never there; always there; of elements that each lie by themselves. */
    uint32_t absent, needed, distinct;
    /* The shape of an operand that is read though the op's rule alone knows it; returns its rank. */
    uint32_t (*ruled)(conform_case *c, test_random *random, uint32_t slot, uint64_t *shape);
} conform_draw;

/* Operands as the table has them, in its order and groups: sizes, types, strides, absent ones, the first output now and then in place.
 * The row's weight is the type of weights and caches. What is read, also of outputs that keep some of what they were, is of normal
 * numbers; indices are zeros. Parameters are the caller's to draw before, values that matter behind. */
void conform_make_op(conform_case *c, test_random *random);
void conform_make_op_as(conform_case *c, test_random *random, const conform_draw *as);
/* Calls the op of any row but those of regions by its number. */
mica_status conform_encode_op(const conform_case *c, mica_encoder *encoder);
/* The slot of the case for each operand of the table, UINT32_MAX for absent ones; returns how many there are. */
uint32_t conform_operands(const conform_case *c, uint32_t *slots);
/* What the table says of operand i of a call, whichever group it is in. */
mica_op_operand conform_table_operand(mica_op op, uint32_t i);
/* Slot `slot` of the case in words of op.h; UINT32_MAX: absent. */
mica_operand_desc conform_describe_operand(const conform_case *c, uint32_t slot);

#endif
