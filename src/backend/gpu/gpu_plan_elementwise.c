/* gpu_plan_elementwise.c - one element after the other, in the order of y: element i of each operand by its strides. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define ABSENT 0xffffffffu

static const struct {
    uint16_t op;
    uint32_t step;
} steps[] = {
    {MICA_OP_ADD, MK_ADD},           {MICA_OP_MUL, MK_MUL},   {MICA_OP_SILU_MUL, MK_SILU_MUL},
    {MICA_OP_GELU_MUL, MK_GELU_MUL}, {MICA_OP_GELU, MK_GELU}, {MICA_OP_GELU_ERF, MK_GELU_ERF},
    {MICA_OP_SOFTCAP, MK_SOFTCAP},
};

static uint32_t step_of(uint16_t op)
{
    uint32_t i = 0;
    while (steps[i].op != op && i + 1 < sizeof steps / sizeof steps[0])
        i++;
    return steps[i].step;
}

/* Whether four neighbours can be read at once: they are neighbours, or one, in each operand, and begin at a multiple of
 * four elements in every row. */
static bool takes_four(const mica__gpu_view *view, const mk_elementwise_params *params)
{
    const uint32_t last = params->ndim - 1;
    if (params->ndim > 1 && params->shape[last] % 4 != 0)
        return false;
    for (uint32_t o = 0; o < MK_ELEMENTWISE_OPERANDS; o++) {
        const uint64_t bytes = params->type[o] == MICA__MK_F32 ? 4 : 2;
        if (view[o].stride[last] == 0)
            continue;
        if (view[o].stride[last] != bytes)
            return false;
        for (uint32_t d = 0; d < last; d++)
            if (view[o].stride[d] % (4 * bytes) != 0)
                return false;
    }
    return params->ndim > 1 || view[MK_ELEMENTWISE_OPERANDS - 1].stride[last] != 0;
}

/* Fills shape, strides and types from the operands in `slot`, the last of them y. */
static mica_status describe(const mica__record *record, const uint32_t *slot, mk_elementwise_params *params)
{
    mica__gpu_view view[MK_ELEMENTWISE_OPERANDS];
    for (uint32_t o = MK_ELEMENTWISE_OPERANDS; o-- > 0;) {
        const uint32_t from = slot[o] == ABSENT ? slot[MK_ELEMENTWISE_OPERANDS - 1] : slot[o];
        view[o] = mica__gpu_view_of(&record->operand[from]);
        if (slot[o] == ABSENT)
            memset(view[o].stride, 0, sizeof view[o].stride);
        mica__gpu_view_expand(&view[o], &view[MK_ELEMENTWISE_OPERANDS - 1]);
        params->type[o] = mica__gpu_type(record->operand[from].dtype);
    }
    mica__gpu_view_collapse(view, MK_ELEMENTWISE_OPERANDS, 0);
    params->ndim = view[0].ndim;
    params->elements = 1;
    for (uint32_t d = 0; d < params->ndim; d++) {
        if (view[0].shape[d] > UINT32_MAX)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: a dimension of %llu elements, 2^32 - 1 are served",
                              mica_op_name((mica_op)record->op), (unsigned long long)view[0].shape[d]);
        params->shape[d] = (uint32_t)view[0].shape[d];
        params->elements *= view[0].shape[d];
        for (uint32_t o = 0; o < MK_ELEMENTWISE_OPERANDS; o++)
            params->stride[o][d] = view[o].stride[d];
    }
    params->four = takes_four(view, params);
    return MICA_OK;
}

/* Plans the steps of `params` over the operands in `slot`: x, the other of each step or ABSENT, y. */
static mica_status plan_steps(const mica__record *record, const uint32_t *slot, mk_elementwise_params *params,
                              mica__plan *plan)
{
    mica_status status = mica__gpu_check_floats(record, UINT32_MAX);
    if (status == MICA_OK)
        status = describe(record, slot, params);
    const uint64_t each = params->four ? 4 : 1, items = (params->elements + each - 1) / each;
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "elementwise/chain", (items + MICA__MK_WG - 1) / MICA__MK_WG);
    if (status != MICA_OK)
        return status;
    for (uint32_t o = 0; o < MK_ELEMENTWISE_OPERANDS; o++)
        mica__gpu_plan_operand(plan, record, slot[o] == ABSENT ? slot[0] : slot[o],
                               0); /* x where nothing looks */
    mica__gpu_plan_params(plan, params, sizeof *params);
    return MICA_OK;
}

mica_status mica__gpu_plan_binary(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    static const uint32_t slot[] = {MICA__BINARY_A, MICA__BINARY_B, ABSENT, ABSENT, ABSENT, MICA__BINARY_Y};
    mk_elementwise_params params;
    (void)info;
    memset(&params, 0, sizeof params);
    params.steps = 1;
    params.step_op[0] = step_of(record->op);
    return plan_steps(record, slot, &params, plan);
}

mica_status mica__gpu_plan_unary(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    static const uint32_t slot[] = {MICA__UNARY_X, ABSENT, ABSENT, ABSENT, ABSENT, MICA__UNARY_Y};
    const mica__scalar_params *scalar = record->params;
    mk_elementwise_params params;
    (void)info;
    memset(&params, 0, sizeof params);
    params.steps = 1;
    params.step_op[0] = step_of(record->op);
    params.step_value[0] = scalar->value;
    return plan_steps(record, slot, &params, plan);
}

_Static_assert(MICA__CHAIN_STEPS == MK_ELEMENTWISE_STEPS && MICA__CHAIN_SLOTS == MK_ELEMENTWISE_OPERANDS,
               "the kernel takes a whole chain");

mica_status mica__gpu_plan_chain(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica__chain_record *chain = record->params;
    uint32_t slot[MICA__CHAIN_SLOTS];
    mk_elementwise_params params;
    (void)info;
    memset(&params, 0, sizeof params);
    for (uint32_t o = 0; o < MICA__CHAIN_SLOTS; o++)
        slot[o] = record->operand[o].memory != NULL ? o : ABSENT;
    params.steps = chain->step_count;
    for (uint32_t s = 0; s < chain->step_count; s++) {
        params.step_op[s] = step_of(chain->step[s].op);
        params.step_swapped[s] = chain->step[s].swapped;
        params.step_value[s] = chain->step[s].value;
    }
    return plan_steps(record, slot, &params, plan);
}
