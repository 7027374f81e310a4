/*
 * gpu_plan_recurrent.h - what plans of ops that carry a state share: which tokens and states a sequence has, and zeros for the tokens that none has.
 */
#ifndef MICA_GPU_PLAN_RECURRENT_H
#define MICA_GPU_PLAN_RECURRENT_H

#include "backend/gpu/gpu_plan.h"

#define MICA__GPU_NO_SLOT UINT32_MAX

/* Slots of the record where the operands of sequences stand; y has the tokens. A gradient has no next_state: NO_SLOT. Its write_slots, which nobody looks at, are
 * its read_slots. */
typedef struct mica__gpu_sequence_slots {
    uint32_t state, starts, read_slots, write_slots, y, next_state;
} mica__gpu_sequence_slots;

mk_sequences mica__gpu_sequences_of(const mica__record *record, const mica__gpu_sequence_slots *at,
                                    uint32_t count);
/* Whether it is read while the work runs where sequences lie, so that tokens may be nobody's and indices may lead outside. */
bool mica__gpu_is_packed(const mk_sequences *of);
/* Kernels count in 32 bits and compute in f32. `indices` is a bit mask of the slots that are no floats. */
mica_status mica__gpu_recurrent_check(const mica__record *record, uint32_t indices);
/* Zeros where no sequence is, in operand y_slot [tokens, .., n], if it is there; and the faults of sequences that lead outside. */
mica_status mica__gpu_plan_gaps(const mica__record *record, const mica__gpu_sequence_slots *at,
                                uint32_t y_slot, const mk_sequences *of, mica__plan *plan);
/* What the kernels of delta_net know of a record. */
mk_delta_params mica__gpu_delta_params(const mica__record *record, const mica__gpu_sequence_slots *at);

#endif
