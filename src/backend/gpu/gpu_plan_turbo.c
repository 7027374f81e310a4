/* gpu_plan_turbo.c - plans of rotations. */
#include <math.h>
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define TILE 4096u /* of hadamard.kc */
#define FEW 1024u  /* elements of a group, where rows are short */
#define MOST_ROW (1ull << 31)

static uint64_t describe(const mica__record *record, mk_hadamard_params *p)
{
    const mica__operand *o = record->operand;
    const mica_hadamard_params *hadamard = record->params;
    mica__gpu_view view[2] = {mica__gpu_view_of(&o[MICA__HADAMARD_X]),
                              mica__gpu_view_of(&o[MICA__HADAMARD_Y])};
    uint64_t rows = 1;
    memset(p, 0, sizeof *p);
    mica__gpu_view_collapse(view, 2, 1);
    const uint32_t last = view[0].ndim - 1;
    for (uint32_t d = 0; d < last; d++) {
        rows *= view[0].shape[d];
        p->shape[d] = (uint32_t)view[0].shape[d];
    }
    for (uint32_t v = 0; v < 2; v++) {
        memcpy(p->stride[v], view[v].stride, last * sizeof view[v].stride[0]);
        p->step[v] = view[v].stride[last];
    }
    p->ndim = view[0].ndim;
    p->n = (uint32_t)view[0].shape[last];
    p->x_type = mica__gpu_type(o[MICA__HADAMARD_X].dtype);
    p->y_type = mica__gpu_type(o[MICA__HADAMARD_Y].dtype);
    p->scale = hadamard->scale != 0 ? hadamard->scale : (float)(1 / sqrt((double)p->n));
    p->flags = hadamard->undo != 0 ? MK_HADAMARD_UNDO : 0;
    if (mica__operand_present(&o[MICA__HADAMARD_SIGNS])) {
        p->flags |= MK_HADAMARD_SIGNS;
        p->signs_step = o[MICA__HADAMARD_SIGNS].stride[0];
        p->signs_type = mica__gpu_type(o[MICA__HADAMARD_SIGNS].dtype);
    }
    return rows;
}

/* The pass over runs whose elements lie `apart` from each other. */
static mica_status add_pass(const mica__record *record, mk_hadamard_params *p, uint64_t rows, uint32_t apart,
                            mica__plan *plan)
{
    const uint32_t left = p->n / apart;
    p->apart = apart;
    p->length = left < TILE ? left : TILE;
    p->columns = p->length < FEW ? FEW / p->length : 1;
    p->runs = rows * (p->n / p->length);
    p->flags &= ~(MK_HADAMARD_FIRST | MK_HADAMARD_LAST);
    p->flags |= (apart == 1 ? MK_HADAMARD_FIRST : 0) | (p->length == left ? MK_HADAMARD_LAST : 0);
    const mica_status status =
        mica__gpu_plan_next(plan, "hadamard/hadamard", (p->runs + p->columns - 1) / p->columns);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_operand(plan, record, MICA__HADAMARD_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__HADAMARD_SIGNS, 0);
    mica__gpu_plan_operand(plan, record, MICA__HADAMARD_Y, 0);
    mica__gpu_plan_scratch(plan, 0, p->n > TILE ? 4 * rows * p->n : 64, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

mica_status mica__gpu_plan_hadamard(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__HADAMARD_X];
    mk_hadamard_params params;
    (void)info;
    mica_status status = mica__gpu_check_floats(record, UINT32_MAX);
    if (status == MICA_OK && x->shape[x->ndim - 1] > MOST_ROW)
        status = mica__fail(MICA_ERR_UNSUPPORTED, "hadamard: rows of %llu elements, 2^31 are served",
                            (unsigned long long)x->shape[x->ndim - 1]);
    if (status != MICA_OK)
        return status;
    const uint64_t rows = describe(record, &params);
    if (rows > UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "hadamard: %llu rows, 2^32 - 1 are served",
                          (unsigned long long)rows);
    uint64_t apart = 1;
    do {
        status = add_pass(record, &params, rows, (uint32_t)apart, plan);
        apart *= params.length;
    } while (status == MICA_OK && apart < params.n);
    return status;
}
