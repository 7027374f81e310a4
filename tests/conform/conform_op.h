/* conform_op.h - rows whose cases come out of the table of ops: conform_make_op, conform_encode_op and an oracle. */
#ifndef CONFORM_OP_H
#define CONFORM_OP_H

#include "conform/conform.h"

/* Operands as the table has them, in its order; parameters are the caller's to draw. Index operands are zeros. */
void conform_make_op(conform_case *c, test_random *random);
/* Calls the op of any row but those of regions by its number. */
mica_status conform_encode_op(const conform_case *c, mica_encoder *encoder);
/* The slot of the case for each operand of the table, UINT32_MAX for absent ones; returns how many there are. */
uint32_t conform_operands(const conform_case *c, uint32_t *slots);

#endif
