/*
 * conform_rows.h - the functions behind the table: per op, how a case is made, encoded and judged.
 */
#ifndef CONFORM_ROWS_H
#define CONFORM_ROWS_H

#include "conform/conform.h"

#define CONFORM_OP(name)                                                             \
    void conform_make_##name(conform_case *c, test_random *random);                  \
    mica_status conform_encode_##name(const conform_case *c, mica_encoder *encoder); \
    void conform_oracle_##name(conform_case *c);

CONFORM_OP(copy)
CONFORM_OP(fill)
CONFORM_OP(advance)
CONFORM_OP(add)
CONFORM_OP(mul)
CONFORM_OP(silu_mul)
CONFORM_OP(gelu_mul)
CONFORM_OP(gelu)
CONFORM_OP(gelu_erf)
CONFORM_OP(softcap)
CONFORM_OP(chain)
CONFORM_OP(rms_norm)
CONFORM_OP(layer_norm)
CONFORM_OP(softmax)
CONFORM_OP(rope)
CONFORM_OP(kv_write)
CONFORM_OP(attention)
CONFORM_OP(matmul)
CONFORM_OP(matmul_experts)
CONFORM_OP(route)
CONFORM_OP(route_ids)
CONFORM_OP(expert_sum)
CONFORM_OP(embedding)
CONFORM_OP(argmax)
CONFORM_OP(penalize)
CONFORM_OP(sample)
CONFORM_OP(sample_log)
CONFORM_OP(sample_settings)
CONFORM_OP(sample_history)
#undef CONFORM_OP
/* More cases of matmul and of attention, encoded and judged alike. */
void conform_make_matmul_tiles(conform_case *c, test_random *random);
void conform_make_experts_tiles(conform_case *c, test_random *random);
void conform_make_matmul_stream(conform_case *c, test_random *random);
void conform_make_matmul_library(conform_case *c, test_random *random);
void conform_make_prompt(conform_case *c, test_random *random);

#endif
