/* gpu_plan_reduce.c - plans of reductions. */
#include <math.h>
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "backend/reduction.h"
#include "base/status.h"

#define SUB 32u                /* MK_SUB */
#define MOST_TERMS 0x7fffffffu /* of an output */
#define ENOUGH_GROUPS 1024u    /* from which on terms are not cut into parts */
#define PART_TERMS 64u         /* of a work-item in a part, at the least */
#define PARTIAL_BYTES 24u

typedef enum registers { F32 = 1, F64 = 2, I64 = 3 } registers;

static registers registers_of(uint16_t dtype)
{
    return mica__gpu_is_float(dtype) ? F32 : dtype == MICA_DTYPE_F64 ? F64 : I64;
}

/* As reduce.kc has it. */
static uint32_t type_of(uint16_t dtype)
{
    switch (dtype) {
    case MICA_DTYPE_I64: return 8;
    case MICA_DTYPE_I32: return 4;
    case MICA_DTYPE_U32: return 5;
    case MICA_DTYPE_BOOL: return 1;
    default: return mica__gpu_type(dtype);
    }
}

static uint32_t kind_of(uint32_t kind)
{
    switch (kind) {
    case MICA_REDUCE_MEAN: return MICA_REDUCE_SUM;
    case MICA_REDUCE_ANY: return MICA_REDUCE_MAX;
    case MICA_REDUCE_ALL: return MICA_REDUCE_MIN;
    case MICA_REDUCE_SUM_SQUARES: return MICA_REDUCE_SUM;
    case MICA_REDUCE_MAX_ABS: return MICA_REDUCE_MAX;
    default: return kind;
    }
}

static uint64_t bits_of(registers type, double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    uint64_t wide;
    memcpy(&bits, &narrow, sizeof bits);
    memcpy(&wide, &value, sizeof wide);
    return type == F64 ? wide : bits;
}

/* The result over nothing, before a mean is made of it. */
static uint64_t first_of(uint32_t kind, uint16_t dtype)
{
    const registers type = registers_of(dtype);
    const bool least = kind == MICA_REDUCE_MAX || kind == MICA_REDUCE_LOGSUMEXP,
               most = kind == MICA_REDUCE_MIN;
    if (kind == MICA_REDUCE_PROD)
        return type == I64 ? 1 : bits_of(type, 1);
    if (!least && !most)
        return 0;
    if (type != I64)
        return bits_of(type, least ? -(double)INFINITY : (double)INFINITY);
    switch (dtype) {
    case MICA_DTYPE_I64: return (uint64_t)(least ? INT64_MIN : INT64_MAX);
    case MICA_DTYPE_I32: return (uint64_t)(int64_t)(least ? INT32_MIN : INT32_MAX);
    case MICA_DTYPE_U32: return least ? 0 : UINT32_MAX;
    default: return least ? 0 : 1;
    }
}

static uint32_t power_of_two_from(uint64_t least, uint32_t most)
{
    uint32_t power = 1;
    while (power < least && power < most)
        power *= 2;
    return power;
}

/* Who takes what: neighbours in memory go to neighbouring work-items. */
static void cut(const mica__reduction *shape, mk_reduce_params *p)
{
    const bool columns = shape->shape[shape->kept - 1] > 1 &&
                         shape->x_stride[shape->kept - 1] < shape->reduced_stride[shape->reduced - 1];
    p->lanes = columns ? power_of_two_from(shape->terms / 4, MICA__MK_WG / SUB)
                       : power_of_two_from(shape->terms / 4, MICA__MK_WG);
    const uint32_t across = MICA__MK_WG / p->lanes;
    p->lane_stride = columns ? across : 1;
    const uint64_t tiles = (shape->outputs + across - 1) / across;
    uint64_t parts = (ENOUGH_GROUPS + tiles - 1) / tiles, most = shape->terms / (PART_TERMS * p->lanes);
    parts = parts < most ? parts : most;
    parts = parts > 1 ? parts : 1;
    p->part = (uint32_t)((shape->terms + parts - 1) / parts);
    p->parts = shape->terms > 0 ? (uint32_t)((shape->terms + p->part - 1) / p->part) : 1;
}

static mica_status describe(const mica__record *record, const mica__reduction *shape, mk_reduce_params *p)
{
    const mica_reduce_params *reduce = record->params;
    const mica__operand *x = &record->operand[MICA__REDUCE_X], *y = &record->operand[MICA__REDUCE_Y];
    if (shape->outputs > MOST_TERMS || shape->terms > MOST_TERMS)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "reduce: %llu outputs of %llu terms, 2^31 - 1 of each are served",
                          (unsigned long long)shape->outputs, (unsigned long long)shape->terms);
    memset(p, 0, sizeof *p);
    for (uint32_t d = 0; d < MICA_MAX_DIMS; d++) {
        p->x_stride[d] = shape->x_stride[d];
        p->y_stride[d] = shape->y_stride[d];
        p->reduced_stride[d] = shape->reduced_stride[d];
        p->shape[d] = (uint32_t)shape->shape[d];
        p->reduced_shape[d] = (uint32_t)shape->reduced_shape[d];
    }
    p->kept = shape->kept;
    p->reduced = shape->reduced;
    p->outputs = (uint32_t)shape->outputs;
    p->terms = (uint32_t)shape->terms;
    p->first = reduce->kind == MICA_REDUCE_MAX_ABS ? 0 : first_of(kind_of(reduce->kind), x->dtype);
    p->x_type = type_of(x->dtype);
    p->y_type = type_of(y->dtype);
    p->mean = reduce->kind == MICA_REDUCE_MEAN;
    p->correction = reduce->correction;
    cut(shape, p);
    return MICA_OK;
}

static void add_constants(const mica__record *record, mica__plan *plan)
{
    const mica_reduce_params *reduce = record->params;
    mica__gpu_plan_constant(plan, "KIND", kind_of(reduce->kind));
    mica__gpu_plan_constant(plan, "R", registers_of(record->operand[MICA__REDUCE_X].dtype));
    if (reduce->kind == MICA_REDUCE_SUM_SQUARES || reduce->kind == MICA_REDUCE_MAX_ABS)
        mica__gpu_plan_constant(plan, "CHANGE", reduce->kind == MICA_REDUCE_MAX_ABS ? 2 : 1);
}

mica_status mica__gpu_plan_reduce(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    const mica_reduce_params *reduce = record->params;
    const mica__operand *x = &record->operand[MICA__REDUCE_X];
    mica__reduction shape;
    mk_reduce_params p;
    (void)info;
    mica__reduction_of(x, &record->operand[MICA__REDUCE_Y], reduce->axes, reduce->keep_dims != 0, &shape);
    mica_status status = describe(record, &shape, &p);
    if (status != MICA_OK)
        return status;
    const uint32_t across = MICA__MK_WG / p.lanes;
    const uint64_t known = (uint64_t)p.outputs * p.parts * PARTIAL_BYTES;
    status =
        mica__gpu_plan_next(plan, "reduce/reduce", ((uint64_t)p.outputs + across - 1) / across * p.parts);
    if (status != MICA_OK)
        return status;
    add_constants(record, plan);
    mica__gpu_plan_operand(plan, record, MICA__REDUCE_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__REDUCE_Y, 0);
    if (p.parts == 1)
        mica__gpu_plan_operand(plan, record, MICA__REDUCE_Y, 0);
    else
        mica__gpu_plan_scratch(plan, 0, known, MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    if (p.parts == 1)
        return MICA_OK;
    status =
        mica__gpu_plan_next(plan, "reduce/join", ((uint64_t)p.outputs * SUB + MICA__MK_WG - 1) / MICA__MK_WG);
    if (status != MICA_OK)
        return status;
    add_constants(record, plan);
    mica__gpu_plan_scratch(plan, 0, known, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, MICA__REDUCE_Y, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
