/*
 * planning.h - how a plan is filled: its arrays grow, and keep what they have grown to for the next plan.
 *
 * Nothing here fails while a row plans: what finds no memory is latched in the plan, which the registry refuses, and until then
 * is written where something else stands. One thread at a time.
 */
#ifndef MICA_BACKEND_PLANNING_H
#define MICA_BACKEND_PLANNING_H

#include "backend/backend.h"

/* An empty plan for the record. OUT_OF_MEMORY. */
mica_status mica__planning_begin(mica__plan *plan, const mica__record *record);
/* Frees its arrays; it is all zero then. */
void mica__planning_end(mica__plan *plan);
/* Appends a dispatch of one group: no bindings, no parameters, grain 1. Valid until the next one. */
mica__plan_dispatch *mica__planning_dispatch(mica__plan *plan, const char *kernel);
/* Appends `count` bindings to the last dispatch, to be filled. Valid until the next ones. */
mica__plan_binding *mica__planning_bindings(mica__plan *plan, uint32_t count);
/* Appends `bytes` to the parameters of the last dispatch, to be filled: any number. Valid until the next ones. NULL where there is no memory
 * for more than every plan has at hand: 8 KB, the record's parameters and 256 bytes for each of its operands. */
unsigned char *mica__planning_params(mica__plan *plan, uint32_t bytes);
/* Appends `text` to the constants of the last dispatch, behind a '|' where there are some. */
void mica__planning_constant(mica__plan *plan, const char *text);

/* "kernel|constants" of a dispatch, or "kernel" where it has none. Valid until the plan changes. NULL: no memory. */
const char *mica__planning_key(mica__plan *plan, const mica__plan_dispatch *dispatch);

static inline mica__plan_dispatch *mica__planning_last(const mica__plan *plan)
{
    return &plan->dispatch[plan->dispatch_count - 1];
}
static inline const char *mica__planning_constants(const mica__plan *plan,
                                                   const mica__plan_dispatch *dispatch)
{
    return plan->text + dispatch->constants;
}

#endif
