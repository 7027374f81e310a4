/*
 * records.h - record lists made by hand, on storages without a device: what the passes work on, and nothing
 * else.
 */
#ifndef TESTS_SESSION_RECORDS_H
#define TESTS_SESSION_RECORDS_H

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "backend/region.h"
#include "device/encoder.h"
#include "session/passes.h"

#define HAND_STORAGES 64
#define HAND_BYTES 2048

typedef struct hand {
    mica__storage storage[HAND_STORAGES];
    uint8_t temporary[HAND_STORAGES];
    uint32_t count;
    mica__record_list list;
} hand;

/* ---- building ---- */

static inline uint32_t hand_storage(hand *h, bool temporary)
{
    uint32_t id = h->count++;
    if (id >= HAND_STORAGES)
        abort();
    memset(&h->storage[id], 0, sizeof h->storage[id]);
    atomic_init(&h->storage[id].references, 1u << 20); /* never freed by the records */
    h->storage[id].memory = (mica__memory *)(void *)&h->storage[id];
    h->storage[id].bytes = HAND_BYTES;
    h->temporary[id] = temporary;
    return id;
}

static inline mica__operand hand_view(const hand *h, uint32_t id, mica_dtype dtype, uint64_t offset,
                                      uint32_t ndim, ...)
{
    mica__operand o = {0};
    va_list dims;
    o.memory = h->storage[id].memory;
    o.storage = (void *)&h->storage[id];
    o.dtype = (uint16_t)dtype;
    o.ndim = (uint8_t)ndim;
    o.offset = offset;
    o.temporary = h->temporary[id];
    va_start(dims, ndim);
    for (uint32_t d = 0; d < ndim; d++)
        o.shape[d] = (uint64_t)va_arg(dims, int);
    va_end(dims);
    uint64_t block = mica_dtype_block_elements(dtype), run = mica_dtype_block_bytes(dtype);
    for (uint32_t d = ndim; d-- > 0;) {
        o.stride[d] = run;
        run *= d == ndim - 1 ? o.shape[d] / block : o.shape[d];
    }
    o.length = run;
    return o;
}

/* A whole f32 [rows, columns]. */
static inline mica__operand hand_f32(const hand *h, uint32_t id, int rows, int columns)
{
    return hand_view(h, id, MICA_DTYPE_F32, 0, 2, rows, columns);
}

static inline mica__operand hand_absent(void)
{
    return (mica__operand){0};
}

/* Adds a record; the last `writes` operands are outputs, the ones before are inputs. */
static inline void hand_add(hand *h, mica_op op, const mica__operand *operands, uint32_t count,
                            uint32_t writes, const void *params, uint32_t params_size)
{
    mica__operand copy[32];
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = operands[i];
        if (mica__operand_present(&copy[i]) && copy[i].access == 0)
            copy[i].access = i >= count - writes ? MICA_ACCESS_WRITE : MICA_ACCESS_READ;
    }
    mica__record record = {.op = (uint16_t)op,
                           .operand_count = (uint16_t)count,
                           .params_size = (uint16_t)params_size,
                           .original_index = h->list.count,
                           .label = "",
                           .fused = "",
                           .operand = copy,
                           .params = (void *)params};
    if (mica__record_list_add(&h->list, &record) != MICA_OK)
        abort();
}

/* Elementwise records as their ops make them. */
typedef enum hand_op {
    HAND_ADD,
    HAND_MUL,
    HAND_SILU_MUL,
    HAND_GELU_MUL,
    HAND_GELU,
    HAND_GELU_ERF,
    HAND_SOFTCAP
} hand_op;

static inline void hand_region(hand *h, const mica__operand *operands, const mica__region_program *program)
{
    hand_add(h, MICA_OP_REGION, operands, (uint32_t)program->input_count + program->output_count,
             program->output_count, program, mica__region_bytes(program->step_count));
}

static inline void hand_binary(hand *h, hand_op op, mica__operand a, mica__operand b, mica__operand y)
{
    mica__region_small small;
    mica__region_program *p = &small.program;
    uint8_t gate = 0;
    mica__region_begin(p, 2, 1);
    p->input[0] = p->input[1] = MICA_REGISTER_F32;
    if (op == HAND_SILU_MUL || op == HAND_GELU_MUL)
        gate = mica__region_step(p, op == HAND_SILU_MUL ? MICA_SCALAR_SILU : MICA_SCALAR_GELU,
                                 MICA_REGISTER_F32, 0, MICA_REGION_NONE, MICA_REGION_NONE);
    p->output[0] = mica__region_step(p, op == HAND_ADD ? MICA_SCALAR_ADD : MICA_SCALAR_MUL, MICA_REGISTER_F32,
                                     gate, 1, MICA_REGION_NONE);
    hand_region(h, (mica__operand[]){a, b, y}, p);
}

static inline void hand_unary(hand *h, hand_op op, mica__operand x, mica__operand y, float value)
{
    mica__region_small small;
    mica__region_program *p = &small.program;
    uint8_t cap = MICA_REGION_NONE;
    mica__region_begin(p, 1, 1);
    p->input[0] = MICA_REGISTER_F32;
    if (op == HAND_SOFTCAP)
        cap = mica__region_constant(p, MICA_REGISTER_F32, (mica__scalar_value){.f32 = value});
    p->output[0] = mica__region_step(p,
                                     op == HAND_SOFTCAP ? MICA_SCALAR_SOFTCAP
                                     : op == HAND_GELU  ? MICA_SCALAR_GELU
                                                        : MICA_SCALAR_GELU_ERF,
                                     MICA_REGISTER_F32, 0, cap, MICA_REGION_NONE);
    hand_region(h, (mica__operand[]){x, y}, p);
}

static inline void hand_copy(hand *h, mica__operand x, mica__operand y)
{
    hand_add(h, MICA_OP_COPY, (mica__operand[]){x, hand_absent(), hand_absent(), y}, MICA__COPY_SLOTS, 1, "",
             0);
}

static inline void hand_fill(hand *h, mica__operand y, double value)
{
    mica__region_small small;
    mica__region_begin(&small.program, 0, 1);
    small.program.output[0] =
        mica__region_constant(&small.program, MICA_REGISTER_F32, (mica__scalar_value){.f32 = (float)value});
    hand_region(h, &y, &small.program);
}

/* Of u32. */
static inline void hand_advance(hand *h, mica__operand counters)
{
    mica__region_small small;
    mica__region_begin(&small.program, 1, 1);
    small.program.input[0] = MICA_REGISTER_U32;
    const uint8_t one =
        mica__region_constant(&small.program, MICA_REGISTER_U32, (mica__scalar_value){.u64 = 1});
    small.program.output[0] =
        mica__region_step(&small.program, MICA_SCALAR_ADD, MICA_REGISTER_U32, 0, one, MICA_REGION_NONE);
    hand_region(h, (mica__operand[]){counters, counters}, &small.program);
}

static inline void hand_norm(hand *h, mica__operand x, mica__operand weight, mica__operand y)
{
    mica_norm_params params = {1e-5f};
    mica__operand operands[MICA__NORM_SLOTS] = {{0}};
    operands[MICA__NORM_X] = x;
    operands[MICA__NORM_WEIGHT] = weight;
    operands[MICA__NORM_Y] = y;
    hand_add(h, MICA_OP_RMS_NORM, operands, MICA__NORM_SLOTS, 2, &params, sizeof params);
}

static inline void hand_matmul(hand *h, mica__operand x, mica__operand weight, mica__operand y)
{
    mica__matmul_record params = {.weight_count = 1};
    mica__operand operands[MICA__MATMUL_OPERANDS(1)] = {{0}};
    operands[MICA__MATMUL_X] = x;
    operands[MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA)] = weight;
    operands[MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y)] = y;
    hand_add(h, MICA_OP_MATMUL, operands, MICA__MATMUL_OPERANDS(1), 1, &params, sizeof params);
}

static inline void hand_experts(hand *h, mica__operand x, mica__operand ids, mica__operand weight,
                                mica__operand y)
{
    mica__matmul_record params = {.weight_count = 1};
    mica__operand operands[MICA__EXPERTS_SLOTS] = {{0}};
    operands[MICA__EXPERTS_X] = x;
    operands[MICA__EXPERTS_IDS] = ids;
    operands[MICA__EXPERTS_WEIGHT] = weight;
    operands[MICA__EXPERTS_Y] = y;
    hand_add(h, MICA_OP_MATMUL_EXPERTS, operands, MICA__EXPERTS_SLOTS, 1, &params, sizeof params);
}

static inline void hand_rope(hand *h, mica__operand x, mica__operand positions, mica__operand y)
{
    mica__rope_record params = {.rope = {.theta = 10000.0f, .position_scale = 1, .attention_scale = 1}};
    params.rope.rotary_dims = params.rope.frequency_dims = (uint32_t)x.shape[x.ndim - 1u];
    mica__operand operands[MICA__ROPE_SLOTS] = {{0}};
    operands[MICA__ROPE_X] = x;
    operands[MICA__ROPE_POSITIONS] = positions;
    operands[MICA__ROPE_Y] = y;
    hand_add(h, MICA_OP_ROPE, operands, MICA__ROPE_SLOTS, 2, &params, sizeof params);
}

static inline void hand_kv_write(hand *h, mica__operand x, mica__operand positions, mica__operand cache)
{
    mica_kv_params params = {0};
    hand_add(h, MICA_OP_KV_WRITE, (mica__operand[]){x, positions, hand_absent(), hand_absent(), cache},
             MICA__KV_SLOTS, 1, &params, sizeof params);
}

static inline void hand_free(hand *h)
{
    mica__record_list_free(&h->list);
    h->count = 0;
}

/* Runs the fusion table over the list; the number of fusions. */
static inline uint64_t hand_fuse(hand *h)
{
    uint64_t fusions = 0;
    if (mica__fuse(NULL, &h->list, &fusions) != MICA_OK)
        abort();
    return fusions;
}

static inline uint64_t hand_reorder(hand *h)
{
    uint64_t moved = 0;
    if (mica__reorder(&h->list, &moved) != MICA_OK)
        abort();
    return moved;
}

#endif
