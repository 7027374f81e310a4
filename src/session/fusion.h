/*
 * fusion.h - how a fusion pattern is written.
 *
 * A pattern is tried with every record as its anchor. It looks at the records around through the flow, drafts
 * the record that would replace them, and offers the draft; mica__fusion_offer does what is common to all:
 * overlaps inside the draft, the place where it can run, a kernel that serves it and that its parts would have had too.
 */
#ifndef MICA_SESSION_FUSION_H
#define MICA_SESSION_FUSION_H

#include "backend/region.h"
#include "session/dataflow.h"

#define MICA__FUSION_MEMBERS 4

typedef struct mica__fusion_pass {
    mica_device *device; /* NULL: do not ask for kernels */
    mica__record_list *list;
    mica__flow flow;
    uint16_t *op; /* of each record, UINT16_MAX where there is none: most patterns look no further */
    mica__record_list made; /* where accepted drafts are copied; empty between offers */
    const char *name;       /* of the pattern being tried */
    mica__plan room;        /* for plans of drafts */
} mica__fusion_pass;

/* A record being put together, borrowing the storages of its members. `record` points into the struct: build
 * it in place, do not copy it. */
typedef struct mica__draft {
    mica__record record;
    mica__operand operand[MICA__MAX_OPERANDS];
    _Alignas(16) unsigned char params[MICA__MAX_PARAM_BYTES];
    uint32_t member[MICA__FUSION_MEMBERS]; /* records it replaces, any order */
    uint32_t member_count;
} mica__draft;

/* Starts with record `at` as its first member, and no operands or params yet. */
void mica__draft_begin(mica__draft *draft, const mica__fusion_pass *pass, uint32_t at);
/* Starts from a copy of record `at`, its first member. */
void mica__draft_from(mica__draft *draft, const mica__fusion_pass *pass, uint32_t at);
void mica__draft_join(mica__draft *draft, uint32_t at);

/* The record at `at` if it is there and is an `op`, else NULL. */
mica__record *mica__fusion_record(const mica__fusion_pass *pass, uint32_t at, mica_op op);
/* Replaces the members by the draft if that is legal. */
mica_status mica__fusion_offer(mica__fusion_pass *pass, mica__draft *draft, bool *out_applied);
/* The only reader of what record `at` writes to `slot`, if it reads exactly that view and the fused record need not
 * write it: an f32 value (so that not storing it changes no bit) of a session temporary, or one that the reader
 * overwrites through the very same view. */
bool mica__fusion_reader(const mica__fusion_pass *pass, uint32_t at, uint32_t slot, mica__use *out);
/* That reader, if it is an `op`. */
bool mica__fusion_consumer(const mica__fusion_pass *pass, uint32_t at, uint32_t slot, mica_op op,
                           mica__use *out);
/* That reader, if it is a region of this one step. */
bool mica__fusion_consumer_region(const mica__fusion_pass *pass, uint32_t at, uint32_t slot,
                                  mica_scalar scalar, mica__use *out);
/* Rows of activations that a kernel with a contiguous last dimension can walk, of the same shape as `like`. */
bool mica__fusion_rows_like(const mica__operand *operand, const mica__operand *like);

/* The patterns of fusion.def. Each sets *out_applied if it replaced records. */
typedef mica_status (*mica__fusion_apply)(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied);
#define FUSION(function, name, meaning, exact) \
    mica_status mica__fusion_##function(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied);
#include "session/fusion.def"
#undef FUSION

#endif
