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

/* Of each op of the table, and of outputs that are judged apart. */
#define OP(op, name, ...) CONFORM_OP(name)
#include "backend/ops.def"
CONFORM_OP(scalar)
bool conform_judge_region(conform_case *c, char *why);
extern const uint32_t conform_scalar_calls; /* as many cases of "scalar" as count through all of them */
CONFORM_OP(sample_log)
CONFORM_OP(sample_settings)
CONFORM_OP(sample_history)
CONFORM_OP(scatter_add)
CONFORM_OP(scatter_nd_add)
CONFORM_OP(log_softmax)
CONFORM_OP(masked_softmax)
bool conform_judge_bits(conform_case *c, char *why);
bool conform_judge_compress(conform_case *c, char *why);
/* Blocks that kv_write made: the best of what the type allows for x, to a tie; others as they were. */
bool conform_judge_turbo(conform_case *c, char *why);
bool conform_is_turbo(mica_dtype dtype);
#undef CONFORM_OP
void conform_make_factors(conform_case *c, test_random *random);
void conform_oracle_linear(conform_case *c);
bool conform_judge_linear(conform_case *c, char *why);
bool conform_judge_fft(conform_case *c, char *why);
void conform_make_fft_long(conform_case *c, test_random *random);
/* More cases of matmul and of attention, encoded and judged alike. */
void conform_make_matmul_several(conform_case *c, test_random *random);
void conform_oracle_matmul_several(conform_case *c);
void conform_make_matmul_tiles(conform_case *c, test_random *random);
void conform_make_experts_tiles(conform_case *c, test_random *random);
void conform_make_matmul_stream(conform_case *c, test_random *random);
void conform_make_matmul_library(conform_case *c, test_random *random);
/* Routing by scores that are not the logits: sigmoid, biases, groups. */
void conform_make_route_scored(conform_case *c, test_random *random);
/* Reductions that are cut into parts. */
void conform_make_reduce_long(conform_case *c, test_random *random);
/* Of the delta rule what matrix units take. */
void conform_make_delta_tiles(conform_case *c, test_random *random);
/* Rows that a GPU transforms in several passes. */
void conform_make_hadamard_long(conform_case *c, test_random *random);
/* Rows of scans and sorts that are cut into parts. */
void conform_make_scan_long(conform_case *c, test_random *random);
void conform_make_sort_long(conform_case *c, test_random *random);
void conform_make_prompt(conform_case *c, test_random *random);
void conform_make_attention_more(conform_case *c, test_random *random);
void conform_make_attention_backward_long(conform_case *c, test_random *random);

#endif
