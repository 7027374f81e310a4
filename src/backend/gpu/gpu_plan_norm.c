/* gpu_plan_norm.c - plans of norms over any dimensions, of their gradients and of softmax's. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define SUB 32u                /* MK_SUB */
#define MOST_NARROW 512u       /* elements of a row that MK_SUB work-items serve */
#define MOST_COUNT 0x7fffffffu /* of anything */
#define FEW_COLUMNS 8u         /* outputs side by side that are better summed one by one */

/* ---- rows ---- */

static bool are_one(const mica__gpu_view *view, uint32_t count, uint32_t d)
{
    bool one = true;
    for (uint32_t v = 0; v < count && view->shape[d] != 1 && view->shape[d + 1] != 1; v++)
        one = one && view[v].stride[d] == view[v].stride[d + 1] * view[v].shape[d + 1];
    return one;
}

static void join(mica__gpu_view *view, uint32_t count, uint32_t d)
{
    for (uint32_t v = 0; v < count; v++) {
        mica__gpu_view *at = &view[v];
        at->stride[d] = at->shape[d + 1] != 1 ? at->stride[d + 1] : at->stride[d];
        at->shape[d] *= at->shape[d + 1];
        for (uint32_t k = d + 1; k + 1 < at->ndim; k++) {
            at->shape[k] = at->shape[k + 1];
            at->stride[k] = at->stride[k + 1];
        }
        at->ndim--;
    }
}

/* Merges neighbours on either side of `outer`, of equally shaped views; gives what is left of it. */
static uint32_t merge(mica__gpu_view *view, uint32_t count, uint32_t outer)
{
    for (uint32_t d = 0; d + 1 < view->ndim;) {
        if (d + 1 == outer || !are_one(view, count, d)) {
            d++;
            continue;
        }
        join(view, count, d);
        outer -= d < outer;
    }
    return outer;
}

/* An operand beside x: as it repeats to it, or, where it has only the first `outer` dimensions, standing still along the others. */
static mica__gpu_view view_of(const mica__operand *operand, const mica__gpu_view *x, uint32_t outer,
                              bool lifted)
{
    mica__gpu_view view = *x;
    memset(view.stride, 0, sizeof view.stride);
    if (!mica__operand_present(operand))
        return view;
    if (!lifted) {
        view = mica__gpu_view_of(operand);
        mica__gpu_view_expand(&view, x);
        return view;
    }
    for (uint32_t d = 0; d < outer; d++)
        view.stride[d] = operand->stride[d];
    return view;
}

/* The record's operands `slot`, the first being x; those from `lifted` on have the outer dimensions alone. */
static mica_status describe(const mica__record *record, const uint32_t *slot, uint32_t count, uint32_t lifted,
                            uint32_t dims, mk_normalize_params *p)
{
    mica__gpu_view view[MK_NORMALIZE_OPERANDS];
    uint64_t rows = 1, n = 1;
    memset(p, 0, sizeof *p);
    view[0] = mica__gpu_view_of(&record->operand[slot[0]]);
    const uint32_t outer = view[0].ndim - dims;
    for (uint32_t o = 0; o < count; o++) {
        const mica__operand *operand = &record->operand[slot[o]];
        view[o] = view_of(operand, &view[0], outer, o >= lifted);
        p->type[o] = mica__gpu_type(operand->dtype);
        p->present |= (uint32_t)mica__operand_present(operand) << o;
    }
    p->outer = merge(view, count, outer);
    p->ndim = view[0].ndim;
    for (uint32_t d = 0; d < p->ndim; d++) {
        *(d < p->outer ? &rows : &n) *= view[0].shape[d];
        p->shape[d] = (uint32_t)view[0].shape[d];
        for (uint32_t o = 0; o < count; o++)
            p->stride[o][d] = view[o].stride[d];
    }
    if (rows > MOST_COUNT || n > MOST_COUNT)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu rows of %llu elements, 2^31 - 1 of each are served",
                          mica_op_name((mica_op)record->op), (unsigned long long)rows, (unsigned long long)n);
    p->rows = (uint32_t)rows;
    p->n = (uint32_t)n;
    p->narrow = n <= MOST_NARROW;
    return MICA_OK;
}

static mica_status next(mica__plan *plan, const char *kernel, const mk_normalize_params *p)
{
    const uint32_t rows = p->narrow != 0 ? MICA__MK_WG / SUB : 1; /* of a group */
    return mica__gpu_plan_next(plan, kernel, ((uint64_t)p->rows + rows - 1) / rows);
}

static mica_status plan_rows(const mica__record *record, const char *kernel, mk_normalize_params *p,
                             const uint32_t *slot, uint32_t count, mica__plan *plan)
{
    MICA__TRY(next(plan, kernel, p));
    for (uint32_t o = 0; o < count; o++)
        mica__gpu_plan_operand(plan, record, slot[o], 0);
    mica__gpu_plan_params(plan, p, sizeof *p);
    return MICA_OK;
}

static void set_params(const mica_normalize_params *normalize, mk_normalize_params *p)
{
    p->kind = normalize->kind;
    p->eps = normalize->eps;
    p->offset = normalize->offset;
}

mica_status mica__gpu_plan_normalize(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    static const uint32_t slot[] = {MICA__NORMALIZE_X, MICA__NORMALIZE_WEIGHT, MICA__NORMALIZE_BIAS,
                                    MICA__NORMALIZE_Y, MICA__NORMALIZE_MEAN,   MICA__NORMALIZE_VAR};
    const mica_normalize_params *normalize = record->params;
    mk_normalize_params p;
    (void)info;
    MICA__TRY(mica__gpu_check_floats(record, UINT32_MAX));
    MICA__TRY(describe(record, slot, 6, 4, normalize->dims, &p));
    set_params(normalize, &p);
    return plan_rows(record, "normalize/forward", &p, slot, 6, plan);
}

/* ---- gradients ---- */

static void add_dim(mk_normalize_sums_params *p, const mica__gpu_view *view, uint32_t d, uint64_t row_step)
{
    const uint32_t at = p->ndim++;
    p->shape[at] = (uint32_t)view[0].shape[d];
    p->x_stride[at] = view[0].stride[d];
    p->dy_stride[at] = view[1].stride[d];
    p->dweight_stride[at] = view[2].stride[d];
    p->dbias_stride[at] = view[3].stride[d];
    p->row_step[at] = (uint32_t)row_step;
}

/* Kept are the dimensions that an output has; `view` are x, dy, dweight and dbias beside x. */
static mica_status sums_of(const mica__gpu_view *view, uint32_t outer, const mica__operand *output,
                           mk_normalize_sums_params *p)
{
    const uint32_t missing = view->ndim - output->ndim;
    uint64_t row_step[MICA_MAX_DIMS] = {0}, rows = 1, count[2] = {1, 1};
    for (uint32_t d = outer; d-- > 0; rows *= view->shape[d])
        row_step[d] = rows;
    for (uint32_t reduced = 0; reduced < 2; reduced++) {
        const uint32_t before = p->ndim;
        for (uint32_t d = 0; d < view->ndim; d++)
            if ((d < missing || output->shape[d - missing] == 1) == (reduced != 0)) {
                count[reduced] *= view->shape[d];
                add_dim(p, view, d, row_step[d]);
            }
        if (p->ndim == before) /* a dimension of one element */
            p->shape[p->ndim++] = 1;
        p->kept = reduced == 0 ? p->ndim : p->kept;
    }
    if (count[0] > MOST_COUNT || count[1] > MOST_COUNT)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "normalize_backward: %llu sums of %llu terms, 2^31 - 1 of each are served",
                          (unsigned long long)count[0], (unsigned long long)count[1]);
    p->outputs = (uint32_t)count[0];
    p->terms = (uint32_t)count[1];
    const bool along =
        p->shape[p->kept - 1] < FEW_COLUMNS || p->x_stride[p->ndim - 1] < p->x_stride[p->kept - 1];
    const uint32_t most = along ? MICA__MK_WG : MICA__MK_WG / SUB;
    for (p->lanes = 1; p->lanes < most && p->lanes < p->terms / 4;)
        p->lanes *= 2;
    return MICA_OK;
}

static mica_status plan_sums(const mica__record *record, uint64_t bytes, mica__plan *plan)
{
    const mica_normalize_params *normalize = record->params;
    const mica__operand *x = &record->operand[MICA__NORMALIZE_BACKWARD_X],
                        *dy = &record->operand[MICA__NORMALIZE_BACKWARD_DY],
                        *dweight = &record->operand[MICA__NORMALIZE_BACKWARD_DWEIGHT],
                        *dbias = &record->operand[MICA__NORMALIZE_BACKWARD_DBIAS];
    const uint32_t outer = x->ndim - normalize->dims;
    mica__gpu_view view[4] = {mica__gpu_view_of(x)};
    mk_normalize_sums_params p;
    view[1] = view_of(dy, view, outer, false);
    view[2] = view_of(dweight, view, outer, false);
    view[3] = view_of(dbias, view, outer, false);
    memset(&p, 0, sizeof p);
    p.x_type = mica__gpu_type(x->dtype);
    p.dy_type = mica__gpu_type(dy->dtype);
    p.dweight_type = mica__gpu_type(dweight->dtype);
    p.dbias_type = mica__gpu_type(dbias->dtype);
    p.has_dweight = mica__operand_present(dweight);
    p.has_dbias = mica__operand_present(dbias);
    MICA__TRY(sums_of(view, outer, p.has_dweight != 0 ? dweight : dbias, &p));
    const uint32_t across = MICA__MK_WG / p.lanes;
    MICA__TRY(mica__gpu_plan_next(plan, "normalize/sums", ((uint64_t)p.outputs + across - 1) / across));
    mica__gpu_plan_operand(plan, record, MICA__NORMALIZE_BACKWARD_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__NORMALIZE_BACKWARD_DY, 0);
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__NORMALIZE_BACKWARD_DWEIGHT, 0);
    mica__gpu_plan_operand(plan, record, MICA__NORMALIZE_BACKWARD_DBIAS, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_normalize_backward(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan)
{
    static const uint32_t slot[] = {MICA__NORMALIZE_BACKWARD_X, MICA__NORMALIZE_BACKWARD_WEIGHT,
                                    MICA__NORMALIZE_BACKWARD_DY, MICA__NORMALIZE_BACKWARD_DX};
    const mica_normalize_params *normalize = record->params;
    mk_normalize_params p;
    (void)info;
    MICA__TRY(mica__gpu_check_floats(record, UINT32_MAX));
    MICA__TRY(describe(record, slot, 4, 4, normalize->dims, &p));
    set_params(normalize, &p);
    const uint64_t bytes = (uint64_t)p.rows * 2 * sizeof(float);
    MICA__TRY(next(plan, "normalize/backward", &p));
    for (uint32_t o = 0; o < 4; o++)
        mica__gpu_plan_operand(plan, record, slot[o], 0);
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    if (!mica__operand_present(&record->operand[MICA__NORMALIZE_BACKWARD_DWEIGHT]) &&
        !mica__operand_present(&record->operand[MICA__NORMALIZE_BACKWARD_DBIAS]))
        return MICA_OK;
    return plan_sums(record, bytes, plan);
}

/* Both have three slots. */
static mica_status plan_softmax(const mica__record *record, const char *kernel, uint32_t floats, bool kind,
                                mica__plan *plan)
{
    static const uint32_t slot[] = {0, 1, 2};
    const mica_softmax_params *softmax = record->params;
    mk_normalize_params p;
    MICA__TRY(mica__gpu_check_floats(record, floats));
    MICA__TRY(describe(record, slot, 3, 3, 1, &p));
    p.eps = softmax->scale;
    p.kind = kind;
    return plan_rows(record, kernel, &p, slot, 3, plan);
}

mica_status mica__gpu_plan_softmax_backward(const mica__record *record, const mica__device_info *info,
                                            mica__plan *plan)
{
    const mica_softmax_params *softmax = record->params;
    (void)info;
    return plan_softmax(record, "normalize/softmax_backward", UINT32_MAX, softmax->log != 0, plan);
}

mica_status mica__gpu_plan_log_softmax(const mica__record *record, mica__plan *plan)
{
    const bool truth = record->operand[MICA__SOFTMAX_MASK].dtype == MICA_DTYPE_BOOL;
    return plan_softmax(record, "normalize/log_softmax", truth ? ~(1u << MICA__SOFTMAX_MASK) : UINT32_MAX,
                        truth, plan);
}
