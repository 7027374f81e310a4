/* gpu_plan_chosen.c - plans of what is chosen by elements that are not 0. */
#include <string.h>

#include "backend/chosen.h"
#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define RUN ((uint64_t)MICA__MK_WG * MK_CHOSEN_EACH)

static uint64_t groups_for(uint64_t items, uint64_t each)
{
    return (items + each - 1) / each;
}

/* The counts of runs and their sum, from the beginning of the scratch on; the list behind them. */
static uint64_t counts_bytes(const mk_chosen_params *p)
{
    return ((uint64_t)p->runs + 1) * sizeof(uint32_t);
}

static uint64_t list_at(const mk_chosen_params *p)
{
    return (counts_bytes(p) + 63) / 64 * 64;
}

static void set_chosen(const mica__operand *x, mk_chosen_params *p)
{
    const mica__gpu_view view = mica__gpu_view_of(x);
    p->elements = (uint32_t)mica__chosen_elements(x);
    p->runs = (uint32_t)groups_for(p->elements, RUN);
    p->mask = mica__chosen_mask((mica_dtype)x->dtype);
    p->bytes = mica_dtype_block_bytes((mica_dtype)x->dtype);
    p->x_ndim = view.ndim;
    for (uint32_t d = 0; d < view.ndim; d++) {
        p->x_shape[d] = view.shape[d] > 0 ? (uint32_t)view.shape[d] : 1; /* nobody reads it then */
        p->x_stride[d] = view.stride[d];
    }
}

/* Of the elements of operand `slot`: how many are not 0 into operand `count`, and where they lie into the scratch where p->listed says so. */
static mica_status plan_list(const mica__record *record, uint32_t slot, uint32_t count, mk_chosen_params *p,
                             mica__plan *plan)
{
    set_chosen(&record->operand[slot], p);
    const uint64_t most = p->elements > p->listed ? p->elements : p->listed;
    if (p->elements > 0) {
        MICA__TRY(mica__gpu_plan_next(plan, "chosen/count", p->runs));
        mica__gpu_plan_operand(plan, record, slot, 0);
        mica__gpu_plan_scratch(plan, 0, counts_bytes(p), MICA_ACCESS_WRITE);
        mica__gpu_plan_params(plan, p, sizeof *p);
    }
    MICA__TRY(mica__gpu_plan_next(plan, "chosen/sums", 1));
    mica__gpu_plan_scratch(plan, 0, counts_bytes(p), MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__gpu_plan_operand(plan, record, count, 0);
    mica__gpu_plan_params(plan, p, sizeof *p);
    if (p->listed == 0)
        return MICA_OK;
    MICA__TRY(mica__gpu_plan_next(plan, "chosen/list", groups_for(most, RUN)));
    mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_scratch(plan, 0, counts_bytes(p), MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, list_at(p), (uint64_t)p->listed * sizeof(uint32_t), MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

/* Entries of a list are counted in 32 bits. */
static mica_status set_listed(const mica__record *record, uint64_t listed, mk_chosen_params *p)
{
    if (listed > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: room for %llu, 2^32 - 1 are served",
                          mica_op_name((mica_op)record->op), (unsigned long long)listed);
    p->listed = (uint32_t)listed;
    p->ndim = p->shape[0] = p->step[0] = 1;
    return MICA_OK;
}

mica_status mica__gpu_plan_nonzero(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__NONZERO_X],
                        *places = &record->operand[MICA__NONZERO_PLACES];
    mk_chosen_params p;
    (void)info;
    memset(&p, 0, sizeof p);
    MICA__TRY(set_listed(record, mica__operand_present(places) && x->ndim > 0 ? places->shape[0] : 0, &p));
    MICA__TRY(plan_list(record, MICA__NONZERO_X, MICA__NONZERO_COUNT, &p, plan));
    if (p.listed == 0)
        return MICA_OK;
    p.ndim = x->ndim;
    for (uint32_t d = 0; d < x->ndim; d++)
        p.shape[d] = p.x_shape[d];
    p.to_stride[0] = places->stride[0];
    p.to_stride[1] = places->stride[1];
    MICA__TRY(mica__gpu_plan_next(plan, "chosen/places", groups_for(p.listed, MICA__MK_WG)));
    mica__gpu_plan_scratch(plan, list_at(&p), (uint64_t)p.listed * sizeof(uint32_t), MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__NONZERO_PLACES, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* Gathers by the list, an element wide where x is flat; what is behind its last entry is no fault. */
static mica_status plan_gathered(const mica__record *record, uint64_t list, uint64_t bytes, mica__plan *plan)
{
    const mica_compress_params *compress = record->params;
    const mica__operand *x = &record->operand[MICA__COMPRESS_X], *y = &record->operand[MICA__COMPRESS_Y];
    mica__gpu_view view[3];
    mk_gather_params p;
    memset(&p, 0, sizeof p);
    view[0] = view[1] = view[2] = mica__gpu_view_of(y);
    for (uint32_t d = 0; d < y->ndim; d++) {
        view[0].stride[d] = d == compress->axis || compress->flat != 0 ? 0 : x->stride[d];
        view[1].stride[d] = d == compress->axis ? sizeof(uint32_t) : 0;
    }
    mica__gpu_view_collapse(view, 3, 0);
    p.elements = 1;
    p.ndim = view[2].ndim;
    for (uint32_t d = 0; d < p.ndim; d++) {
        if (view[2].shape[d] > UINT32_MAX)
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "compress: a dimension of %llu elements, 2^32 - 1 are served",
                              (unsigned long long)view[2].shape[d]);
        p.shape[d] = (uint32_t)view[2].shape[d];
        p.elements *= view[2].shape[d];
        p.x_stride[d] = view[0].stride[d];
        p.ids_stride[d] = view[1].stride[d];
        p.y_stride[d] = view[2].stride[d];
    }
    p.bytes = mica_dtype_block_bytes((mica_dtype)x->dtype);
    p.x_step = compress->flat != 0 ? p.bytes : x->stride[compress->axis];
    p.count = MK_CHOSEN_NOWHERE;
    p.quiet = 1;
    MICA__TRY(mica__gpu_plan_next(plan, "places/gather", groups_for(p.elements, MICA__MK_WG)));
    mica__gpu_plan_operand(plan, record, MICA__COMPRESS_X, 0);
    mica__gpu_plan_scratch(plan, list, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__COMPRESS_Y, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_compress(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    const mica_compress_params *compress = record->params;
    const mica__operand *x = &record->operand[MICA__COMPRESS_X], *y = &record->operand[MICA__COMPRESS_Y];
    uint64_t shape[MICA_MAX_DIMS] = {1};
    mk_chosen_params p;
    (void)info;
    memset(&p, 0, sizeof p);
    MICA__TRY(set_listed(record, y->length > 0 ? y->shape[compress->axis] : 0, &p));
    if (compress->flat != 0)
        MICA__TRY(mica__chosen_flat(record, x, shape, p.step, &p.ndim));
    for (uint32_t d = 0; d < p.ndim; d++)
        p.shape[d] = (uint32_t)shape[d];
    MICA__TRY(plan_list(record, MICA__COMPRESS_CONDITION, MICA__COMPRESS_COUNT, &p, plan));
    return p.listed > 0 ? plan_gathered(record, list_at(&p), (uint64_t)p.listed * sizeof(uint32_t), plan)
                        : MICA_OK;
}
