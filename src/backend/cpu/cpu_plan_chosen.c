/* cpu_plan_chosen.c - plans of what is chosen by elements that are not 0: counts of runs, their sums, a list, then what is made of it. */
#include "backend/cpu/cpu_plan.h"

#include "backend/chosen.h"
#include "backend/cpu/cpu_params.h"

static uint64_t runs_of(uint64_t elements)
{
    return (elements + MICA__CPU_CHOSEN_RUN - 1) / MICA__CPU_CHOSEN_RUN;
}

/* The counts and their sum, from the beginning of the scratch on. */
static uint64_t counts_bytes(const mica__cpu_chosen *p)
{
    return (runs_of(p->elements) + 1) * sizeof(uint32_t);
}

static uint64_t list_at(const mica__cpu_chosen *p)
{
    return (counts_bytes(p) + 63) / 64 * 64;
}

/* Of the elements of operand `slot`: how many are not 0, into operand `count`, and how many before each run, into the scratch. */
static void plan_counts(const mica__record *record, uint32_t slot, uint32_t count, mica__cpu_chosen *p,
                        mica__plan *plan)
{
    const mica__operand *x = &record->operand[slot];
    p->elements = mica__chosen_elements(x);
    p->mask = mica__chosen_mask((mica_dtype)x->dtype);
    p->element_bytes = mica_dtype_block_bytes((mica_dtype)x->dtype);
    if (p->elements > 0) {
        mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "chosen_count", runs_of(p->elements));
        mica__cpu_plan_operand(plan, record, slot, 0);
        mica__cpu_plan_scratch(plan, 0, counts_bytes(p), MICA_ACCESS_WRITE);
        mica__cpu_plan_params(plan, p, sizeof *p);
        mica__cpu_plan_grain(dispatch, 0.1 * MICA__CPU_CHOSEN_RUN);
    }
    mica__cpu_plan_next(plan, "chosen_sums", 1);
    mica__cpu_plan_scratch(plan, 0, counts_bytes(p), MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__cpu_plan_operand(plan, record, count, 0);
    mica__cpu_plan_params(plan, p, sizeof *p);
}

/* The runs of the elements and of what is made of them: `kernel` reads operand `slot` and the counts; its output comes next. */
static mica__plan_dispatch *plan_runs(const mica__record *record, uint32_t slot, const mica__cpu_chosen *p,
                                      const char *kernel, mica__plan *plan)
{
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, kernel, runs_of(p->elements > p->listed ? p->elements : p->listed));
    mica__cpu_plan_operand(plan, record, slot, 0);
    mica__cpu_plan_scratch(plan, 0, counts_bytes(p), MICA_ACCESS_READ);
    return dispatch;
}

mica_status mica__cpu_plan_nonzero(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__NONZERO_X],
                        *places = &record->operand[MICA__NONZERO_PLACES];
    mica__cpu_chosen params = {.ndim = 1, .shape = {1}, .step = {1}};
    (void)info;
    if (mica__operand_present(places) && x->ndim > 0)
        params.listed = places->shape[0];
    plan_counts(record, MICA__NONZERO_X, MICA__NONZERO_COUNT, &params, plan);
    if (params.listed == 0)
        return MICA_OK;
    mica__plan_dispatch *dispatch = plan_runs(record, MICA__NONZERO_X, &params, "chosen_places", plan);
    mica__cpu_plan_operand(plan, record, MICA__NONZERO_PLACES, 0);
    mica__cpu_plan_params(plan, &params, sizeof params);
    mica__cpu_plan_grain(dispatch, MICA__CPU_CHOSEN_RUN);
    return MICA_OK;
}

/* Where the chosen elements of the condition lie, into the scratch. */
static void plan_list(const mica__record *record, const mica__cpu_chosen *p, mica__plan *plan)
{
    mica__plan_dispatch *dispatch = plan_runs(record, MICA__COMPRESS_CONDITION, p, "chosen_list", plan);
    mica__cpu_plan_scratch(plan, list_at(p), p->listed * sizeof(uint32_t), MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, p, sizeof *p);
    mica__cpu_plan_grain(dispatch, MICA__CPU_CHOSEN_RUN);
}

/* Gathers by the list, an element wide where x is flat; what is behind its last entry is no fault. */
mica_status mica__cpu_plan_compress(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    const mica_compress_params *compress = record->params;
    const mica__operand *x = &record->operand[MICA__COMPRESS_X], *y = &record->operand[MICA__COMPRESS_Y];
    const uint32_t axis = compress->axis, bytes = mica_dtype_block_bytes((mica_dtype)x->dtype);
    mica__cpu_chosen params = {.ndim = 1, .shape = {1}, .step = {1}, .listed = y->shape[axis]};
    (void)info;
    if (compress->flat != 0)
        MICA__TRY(mica__chosen_flat(record, x, params.shape, params.step, &params.ndim));
    if (y->length == 0)
        params.listed = 0;
    plan_counts(record, MICA__COMPRESS_CONDITION, MICA__COMPRESS_COUNT, &params, plan);
    if (params.listed == 0)
        return MICA_OK;
    plan_list(record, &params, plan);
    mica__cpu_gather gather = {.count = MICA__FOLD_NOWHERE,
                               .x_step = compress->flat != 0 ? bytes : x->stride[axis],
                               .element_bytes = bytes,
                               .quiet = 1};
    mica__cpu_plan_next(plan, "gather", 0);
    mica__cpu_plan_operand(plan, record, MICA__COMPRESS_X, 0);
    mica__cpu_plan_scratch(plan, list_at(&params), params.listed * sizeof(uint32_t), MICA_ACCESS_READ);
    mica__cpu_plan_operand(plan, record, MICA__COMPRESS_Y, 0);
    mica__cpu_view *view = mica__cpu_plan_views(plan);
    for (uint32_t v = 0; v < 2; v++) {
        view[v].ndim = view[2].ndim;
        for (uint32_t d = 0; d < view[2].ndim; d++) {
            view[v].shape[d] = view[2].shape[d];
            view[v].stride[d] = v == 1                             ? (d == axis ? sizeof(uint32_t) : 0)
                                : d == axis || compress->flat != 0 ? 0
                                                                   : x->stride[d];
        }
    }
    mica__cpu_view_collapse(view, 3, 0);
    gather.elements = 1;
    for (uint32_t d = 0; d < view[2].ndim; d++)
        gather.elements *= view[2].shape[d];
    const bool runs = view[1].stride[view->ndim - 1] == 0;
    mica__cpu_plan_params(plan, &gather, sizeof gather);
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    dispatch->groups[0] =
        (uint32_t)((gather.elements + MICA__CPU_UNIT_ELEMENTS - 1) / MICA__CPU_UNIT_ELEMENTS);
    mica__cpu_plan_grain(dispatch, (runs ? 0.1 * bytes : 2) * MICA__CPU_UNIT_ELEMENTS);
    return MICA_OK;
}
