/*
 * cpu_plan_region.h - what the plan of a region knows while it is made: cpu_plan_region.c, cpu_plan_blocks.c.
 */
#ifndef MICA_CPU_PLAN_REGION_H
#define MICA_CPU_PLAN_REGION_H

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/cpu_plan.h"

#define MICA__REGION_UNREAD 0xffu
#define MICA__REGION_AT_END 0xfeu /* read by a store, or its slot is no other's */
#define MICA__REGION_NO_PLACE 0xffu

typedef struct mica__region_planner {
    const mica__region_program *program;
    mica__cpu_view *view;
    uint8_t view_count, ndim, slots, free_count;
    uint8_t free_slot[MICA__CPU_REGION_SLOTS];
    uint8_t last[MICA__CPU_REGION_VALUES];  /* the step that reads it last, AT_END or UNREAD */
    uint8_t place[MICA__CPU_REGION_VALUES]; /* where it stands */
    uint8_t stored[MICA_REGION_OUTPUTS];    /* 1: by a store; else a step writes it */
    uint8_t dim[MICA_MAX_DIMS]; /* of axis k from the last, after collapsing; ndim: it has one element */
    uint8_t count[MICA__CPU_REGION_KINDS];
    uint32_t slot_element; /* bytes */
    uint64_t far_bytes;    /* an output as long passes the caches */
    bool far;              /* some do */
    mica__cpu_region_entry entry[MICA__CPU_REGION_KINDS][MICA__CPU_REGION_BLOCKS];
} mica__region_planner;

_Static_assert(MICA__CPU_REGION_VALUES <= MICA__CPU_REGION_BLOCKS,
               "no kind has more entries than there are blocks");

static inline uint64_t mica__region_row_stride(const mica__region_planner *p, uint32_t view)
{
    return p->view[view].stride[p->ndim - 1];
}

/* Whether f32 of it goes through whole vectors. */
bool mica__region_has_vector(uint32_t scalar);
mica__cpu_region_entry *mica__region_entry(mica__region_planner *p, uint32_t kind, uint32_t function);
/* A place for a value of this register type. */
uint8_t mica__region_slot(mica__region_planner *p, uint32_t type);
/* The program as blocks, where all of it is f32 with vector formulas; nothing otherwise. After everything else. */
void mica__region_plan_blocks(mica__region_planner *p);

#endif
