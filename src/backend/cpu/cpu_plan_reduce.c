/*
 * cpu_plan_reduce.c - plans of reductions: one output at a time where its terms are neighbours in memory, many side by side where the outputs'
 * are. Few outputs of many terms are cut into parts, by their number alone, so that every thread has some.
 */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/cpu_params.h"
#include "base/status.h"

#define FEW_TERMS 32u        /* of an output that is better one of many columns than alone */
#define FEW_COLUMNS 8u       /* that are better taken one by one */
#define PART_ELEMENTS 65536u /* of x in a part, at the least */
#define MOST_PARTS 64u       /* of all outputs together */

static bool has_columns(const mica__reduction *shape)
{
    const uint64_t columns = shape->shape[shape->kept - 1];
    const uint64_t across = shape->x_stride[shape->kept - 1],
                   along = shape->reduced_stride[shape->reduced - 1];
    if (columns < FEW_COLUMNS)
        return false;
    return along <= across ? shape->terms < FEW_TERMS : true;
}

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static void cut(mica__cpu_reduce *params)
{
    const mica__reduction *shape = &params->shape;
    const uint64_t last = shape->shape[shape->kept - 1];
    params->columns = has_columns(shape);
    params->tile = params->columns == 0           ? 1
                   : last < MICA__CPU_REDUCE_TILE ? (uint32_t)last
                                                  : MICA__CPU_REDUCE_TILE;
    params->tiles = ceil_of(last, params->tile);
    const uint64_t tiles = shape->outputs / last * params->tiles;
    uint64_t parts = shape->terms / (1 + (PART_ELEMENTS - 1) / params->tile);
    parts = parts < MOST_PARTS / tiles ? parts : MOST_PARTS / tiles;
    parts = parts > 1 ? parts : 1;
    params->part = ceil_of(ceil_of(shape->terms, parts), MICA__CPU_REDUCE_BLOCK) * MICA__CPU_REDUCE_BLOCK;
    params->parts = shape->terms > 0 ? ceil_of(shape->terms, params->part) : 1;
    params->range.rows = tiles * params->parts;
    params->range.rows_per_unit = 1 + params->range.rows / UINT32_MAX;
}

static double term_ns(uint32_t kind)
{
    return kind == MICA_REDUCE_LOGSUMEXP ? 0.7 : kind == MICA_REDUCE_VAR ? 0.3 : 0.15;
}

static void end(mica__plan *plan, mica__plan_dispatch *dispatch, const mica__cpu_reduce *params,
                double unit_ns)
{
    mica__cpu_plan_params(plan, params, sizeof *params);
    dispatch->local_bytes = (uint32_t)mica__cpu_reduce_bytes(params);
    mica__cpu_plan_grain(dispatch, unit_ns);
}

mica_status mica__cpu_plan_reduce(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    (void)info;
    mica__cpu_reduce params = {.reduce = *(const mica_reduce_params *)record->params};
    mica__reduction_of(&record->operand[MICA__REDUCE_X], &record->operand[MICA__REDUCE_Y], params.reduce.axes,
                       params.reduce.keep_dims != 0, &params.shape);
    cut(&params);
    const uint64_t units = ceil_of(params.range.rows, params.range.rows_per_unit);
    const uint64_t scratch = params.range.rows * params.tile * 2 * sizeof(double);
    const uint64_t terms = params.shape.terms < params.part ? params.shape.terms : params.part;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "reduce", units);
    mica__cpu_plan_operands(plan, record, MICA__REDUCE_SLOTS);
    if (params.parts > 1)
        mica__cpu_plan_scratch(plan, 0, scratch, MICA_ACCESS_WRITE);
    end(plan, dispatch, &params, 10 + term_ns(params.reduce.kind) * (double)(terms * params.tile));
    if (params.parts == 1)
        return MICA_OK;
    mica__cpu_reduce join = params;
    join.range.rows /= params.parts;
    dispatch = mica__cpu_plan_next(plan, "reduce_join", join.range.rows);
    mica__cpu_plan_operands(plan, record, MICA__REDUCE_SLOTS);
    mica__cpu_plan_scratch(plan, 0, scratch, MICA_ACCESS_READ);
    end(plan, dispatch, &join, 20 + 5 * (double)(params.parts * params.tile));
    return MICA_OK;
}
