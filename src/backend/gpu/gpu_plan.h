/*
 * gpu_plan.h - how records become dispatches of the portable kernels (src/kernels): shared by all GPU backends.
 *
 * A plan names a kernel "file/entry" with constants, groups, bindings in the order of the entry's parameter list, and the
 * entry's parameter block (kernels/params). Groups are one-dimensional, MICA__MK_WG work-items unless the constant MK_WG
 * says otherwise. Knows no driver.
 */
#ifndef MICA_GPU_PLAN_H
#define MICA_GPU_PLAN_H

#include "backend/backend.h"
#include "kernels/kernels.h"

#define MICA__GPU_MOST_GROUPS_X 0x7fffffffu
#define MICA__GPU_MOST_GROUPS_YZ 65535u
#define MICA__GPU_BINDING_BYTES 16u /* of the arguments, at most: a pointer, and on some devices an offset */

/* Starts the next dispatch: no bindings, no constants, groups x by 1 by 1 of MICA__MK_WG. UNSUPPORTED when x is over
 * MICA__GPU_MOST_GROUPS_X. */
mica_status mica__gpu_plan_next(mica__plan *plan, const char *kernel, uint64_t groups_x);
/* The further dimensions of the grid of the dispatch being built. */
mica_status mica__gpu_plan_groups(mica__plan *plan, uint64_t y, uint64_t z);
/* The same for `count` places in one row: place i is i % MICA__GPU_MOST_GROUPS_YZ in y and the rest in z; the last z may have
 * too many. */
mica_status mica__gpu_plan_places(mica__plan *plan, uint64_t count);
/* What follows has no status of its own: a constant, binding or parameter block that finds no memory latches one in the plan,
 * and the registry refuses it. */
/* Appends a constant; "MK_WG" also sets the work-items of a group. Always in the same order for the same kernel. */
void mica__gpu_plan_constant(mica__plan *plan, const char *name, uint32_t value);
/* Adds operand `slot` as the next binding; an absent one keeps its place. `access` 0: the operand's own mark. */
void mica__gpu_plan_operand(mica__plan *plan, const mica__record *record, uint32_t slot, uint32_t access);
/* Adds [offset, offset + bytes) of the record's scratch and grows it to hold that. Offsets are multiples of 64. */
void mica__gpu_plan_scratch(mica__plan *plan, uint64_t offset, uint64_t bytes, uint32_t access);
/* Adds the fault word. */
void mica__gpu_plan_fault(mica__plan *plan);
/* Ends the dispatch with its parameter block, which every device takes: at most 512 bytes. */
void mica__gpu_plan_params(mica__plan *plan, const void *params, uint32_t size);
/* The same for a block of any size, whose kernel says MK_BLOCK instead of MK_PARAM: where the device does not take it as an
 * argument (beside the bindings, which are added before), the backend puts it into a buffer and the constant MK_FAR is 1. */
void mica__gpu_plan_block(mica__plan *plan, const mica__device_info *info, const void *params, uint32_t size);

/* What mk_fault stores for this record. */
uint32_t mica__gpu_fault_code(const mica__record *record);
/* f32, f16 or bf16. */
bool mica__gpu_is_float(uint16_t dtype);
/* MK_F32, MK_F16 or MK_BF16. */
uint32_t mica__gpu_type(uint16_t dtype);
/* The same of a KV cache, or MK_Q8_0 and those above it for its block types; MK_F32 for what caches have not. */
uint32_t mica__gpu_cache_type(uint16_t dtype);
/* UNSUPPORTED unless every operand of the bit mask `slots` that is there is a float. */
mica_status mica__gpu_check_floats(const mica__record *record, uint32_t slots);

/* Shape and byte strides of operands, to be bent for a kernel. */
typedef struct mica__gpu_view {
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    uint32_t ndim;
} mica__gpu_view;

/* To kernels a scalar is a row of one. */
mica__gpu_view mica__gpu_view_of(const mica__operand *operand);
/* Gives `view` the shape of y, aligned at the last dimension: stride 0 where it does not vary. */
void mica__gpu_view_expand(mica__gpu_view *view, const mica__gpu_view *y);
/* Merges neighbouring dimensions that are one to all `count` equally shaped views; the last `kept` stay apart. */
void mica__gpu_view_collapse(mica__gpu_view *view, uint32_t count, uint32_t kept);

/* The frequencies of a rope, its mode and scale, for `angle` of rotate.kc. */
mica_status mica__gpu_rope_frequencies(const mica_rope_params *rope, mk_rope_params *params);

/* The logarithm of softmax. */
mica_status mica__gpu_plan_log_softmax(const mica__record *record, mica__plan *plan);

/* The layout that the GPU's matmuls read fastest. */
mica_layout mica__gpu_weight_layout(const mica__operand *weight, const mica__device_info *info);
/* A copy between layouts. */
mica_status mica__gpu_plan_pack(const mica__record *record, mica__plan *plan);

/* Whether each kind of call of an op gets a text of its own, its types and flags constants: 3 KB of instructions instead of 27, which a step of a
 * model finds in no cache. Not where compiling takes longer than running; there, and where there is no compiler, the op's row NAME_any has
 * one text for all, to which KERNEL_NOT_FOUND without a sentence leads. */
bool mica__gpu_has_own_texts(const mica__device_info *info);

/* The rows of all GPU backends are MICA__GPU_KERNEL_ROW of gpu_kernel_rows.def; a backend may put its own in front. */
#define MICA__GPU_KERNEL_ROW(op, name, plan) \
    mica_status plan(const mica__record *, const mica__device_info *, mica__plan *);
#include "backend/gpu/gpu_kernel_rows.def"
#undef MICA__GPU_KERNEL_ROW

#endif
