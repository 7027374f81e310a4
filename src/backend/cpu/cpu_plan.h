/*
 * cpu_plan.h - the cpu's kernel rows: how a record becomes dispatches.
 *
 * A plan chooses units (the range a kernel is called on), the grain (units per claim, some microseconds of
 * work), scratch and per-thread memory. Views and parameters travel in one block: views first.
 */
#ifndef MICA_CPU_PLAN_H
#define MICA_CPU_PLAN_H

#include "backend/backend.h"
#include "backend/cpu/cpu_kernel.h"

/* Starts the next dispatch of the plan with no bindings, grain 1, no params. */
mica__plan_dispatch *mica__cpu_plan_next(mica__plan *plan, const char *kernel, uint64_t units);
/* Adds operand `slot` of the record as the next view (absent ones keep their place with data NULL, a scalar becomes a row of
 * one). `access` 0 takes the operand's own mark. */
void mica__cpu_plan_operand(mica__plan *plan, const mica__record *record, uint32_t slot, uint32_t access);
/* The first `count` operands of the record, in slot order and with their own marks. */
void mica__cpu_plan_operands(mica__plan *plan, const mica__record *record, uint32_t count);
/* Adds [offset, offset+bytes) of the record's scratch as a 1-d u8 view and grows scratch_bytes to hold it. */
void mica__cpu_plan_scratch(mica__plan *plan, uint64_t offset, uint64_t bytes, uint32_t access);
/* Ends the dispatch's block with its parameters. Must be called once, after the last view. */
void mica__cpu_plan_params(mica__plan *plan, const void *params, uint32_t size);
/* All operands of the record in slot order, then its params: what most ops need. */
mica__plan_dispatch *mica__cpu_plan_whole(mica__plan *plan, const mica__record *record, const char *kernel,
                                          uint64_t units);
/* Sets the grain so that a claim takes some microseconds, given what one unit takes. */
void mica__cpu_plan_grain(mica__plan_dispatch *dispatch, double unit_ns);
/* The same for units that are read from memory in order, evenly for so many threads. */
void mica__cpu_plan_shares(mica__plan_dispatch *dispatch, uint32_t threads, double unit_ns);
/* The views of the dispatch being built, in the order added: a plan may reshape them before mica__cpu_plan_params. */
mica__cpu_view *mica__cpu_plan_views(mica__plan *plan);
/* Gives `view` the shape of y, aligned at the last dimension: stride 0 where it does not vary. */
void mica__cpu_view_expand(mica__cpu_view *view, const mica__cpu_view *y);
/* Orders the dimensions of equally shaped views by the strides of the last view, greatest first, and merges those
 * that are one to all; the last `kept` stay as they are. At least one dimension remains. */
void mica__cpu_view_collapse(mica__cpu_view *view, uint32_t count, uint32_t kept);
/* Exchanges two dimensions of all views. */
void mica__cpu_view_swap(mica__cpu_view *view, uint32_t count, uint32_t a, uint32_t b);

/* f32, f16 or bf16: what activations may be. */
bool mica__cpu_is_float(uint16_t dtype);
/* Block types of KV caches, all of 32 values. */
bool mica__cpu_is_cache_block(uint16_t dtype);

/* mica__cpu_plan_<op> of each op of the table, in cpu_plan_<family>.c. */
#define OP(op, name, ...) \
    mica_status mica__cpu_plan_##name(const mica__record *, const mica__device_info *, mica__plan *);
#include "backend/ops.def"
/* Softmax of f64, and the logarithm of softmax. */
mica_status mica__cpu_plan_softmax_any(const mica__record *, mica__plan *);
/* Copy from the canonical layout into a packed one. */
mica_status mica__cpu_plan_pack(const mica__record *, const mica__device_info *, mica__plan *);
/* matmul and experts where the weights are f32, f16 or bf16. */
mica_status mica__cpu_plan_matmul_dense(const mica__record *, const mica__device_info *, mica__plan *);
mica_status mica__cpu_plan_experts_dense(const mica__record *, const mica__device_info *, mica__plan *);

/* The table of all of them. */
const mica__kernel_row *mica__cpu_kernel_rows(uint32_t *out_count);

#endif
