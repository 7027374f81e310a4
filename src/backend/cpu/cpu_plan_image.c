/*
 * cpu_plan_image.c - plans of convolution: tiles of places whose part of x fits the second cache, few enough that every thread has several.
 */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/kernels/image/conv.h"
#include "base/status.h"

#define UNITS_PER_THREAD 4u /* so that the last ones even out */
#define TILE_PLACES 256u    /* beyond which a tile gains nothing */
#define TILE_BYTES 262144u  /* of x */
#define FLOPS_PER_NS 40.0   /* of one thread, for the grain */

/* The view that was added last gets five dimensions: [.., .., three spatial ones]. */
static void widen(mica__plan *plan, const mica__record *record, uint32_t slot, uint32_t access)
{
    mica__cpu_plan_operand(plan, record, slot, access);
    mica__cpu_view *view =
        &mica__cpu_plan_views(plan)[plan->dispatch[plan->dispatch_count - 1].binding_count - 1];
    if (!mica__operand_present(&record->operand[slot]) || record->operand[slot].ndim < 3)
        return;
    mica__windows_operand(&record->operand[slot], view->shape, view->stride);
    view->ndim = MICA__WINDOW_DIMS;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Floats of x that `rows` by `columns` places meet, of the phase that meets most. */
static uint64_t tile_floats(const mica__cpu_conv *p, uint64_t rows, uint64_t columns)
{
    uint64_t most[MICA_SPATIAL_DIMS] = {0};
    const uint64_t count[] = {1, rows, columns};
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++)
        for (uint32_t phase = 0; phase < p->phases[d]; phase++) {
            const mica__conv_axis a = mica__conv_axis_of(&p->windows, p->transposed != 0, d, phase);
            const uint64_t floats =
                d == 2 ? mica__conv_row_floats(&a, count[d]) : mica__conv_extent(&a, count[d]);
            most[d] = most[d] > floats ? most[d] : floats;
        }
    return p->channels * most[0] * most[1] * most[2];
}

/* Places of y along a dimension in the phase that has most. */
static uint64_t places_of(const mica__cpu_conv *p, uint32_t d)
{
    const uint64_t size = p->transposed != 0 ? p->windows.in[d] : p->windows.out[d];
    return ceil_of(size, p->phases[d]);
}

/* Columns first, since neighbours share what they read; then rows. */
static void cut(mica__cpu_conv *p, const mica__device_info *info)
{
    const uint64_t width = places_of(p, 2), height = places_of(p, 1);
    const uint64_t wanted = (uint64_t)info->threads * UNITS_PER_THREAD;
    p->planes = places_of(p, 0);
    p->columns = least(width, TILE_PLACES);
    while (p->columns > 8 && tile_floats(p, 1, p->columns) * sizeof(float) > TILE_BYTES)
        p->columns = (p->columns + 1) / 2;
    p->column_tiles = ceil_of(width, p->columns);
    const uint64_t others = p->batch * p->groups * p->planes * p->column_tiles *
                            ((uint64_t)p->phases[0] * p->phases[1] * p->phases[2]);
    p->rows = least(height, TILE_PLACES / p->columns);
    while (p->rows > 1 && (tile_floats(p, p->rows, p->columns) * sizeof(float) > TILE_BYTES ||
                           others * ceil_of(height, p->rows) < wanted))
        p->rows = (p->rows + 1) / 2;
    p->row_tiles = ceil_of(height, p->rows);
    const uint64_t blocks = ceil_of(p->outputs, MICA__CONV_LANES * MICA__CONV_VECTORS);
    p->parts =
        p->outputs > MICA__CONV_FEW ? (uint32_t)least(blocks, ceil_of(wanted, others * p->row_tiles)) : 1;
    p->tile_floats = tile_floats(p, p->rows, p->columns);
}

static void describe(const mica__record *record, mica__cpu_conv *p)
{
    const mica_conv_params *conv = record->params;
    const mica__operand *x = &record->operand[MICA__CONV_X], *y = &record->operand[MICA__CONV_Y];
    const bool transposed = conv->transposed != 0;
    mica__windows_of_conv(conv, transposed ? y : x, &record->operand[MICA__CONV_WEIGHT], transposed ? x : y,
                          &p->windows);
    p->batch = x->shape[0];
    p->groups = conv->groups;
    p->channels = x->shape[1] / conv->groups;
    p->outputs = y->shape[1] / conv->groups;
    p->transposed = conv->transposed;
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++)
        p->phases[d] = transposed ? p->windows.stride[d] : 1;
}

static void plan_f64(const mica__record *record, const mica__cpu_conv *p, mica__plan *plan)
{
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "conv_f64", p->batch * p->groups * p->outputs);
    for (uint32_t slot = 0; slot < MICA__CONV_SLOTS; slot++)
        widen(plan, record, slot, 0);
    mica__cpu_plan_params(plan, p, sizeof *p);
    dispatch->grain = 1;
}

static mica_status check_local(const mica__record *record, uint64_t floats, uint64_t units)
{
    if (floats > UINT32_MAX / sizeof(float) || units > UINT32_MAX)
        return mica__fail(
            MICA_ERR_UNSUPPORTED, "%s on the cpu: %llu tiles of %llu values each are more than it takes",
            mica_op_name((mica_op)record->op), (unsigned long long)units, (unsigned long long)floats);
    return MICA_OK;
}

mica_status mica__cpu_plan_conv(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__cpu_conv p = {.batch = 0};
    describe(record, &p);
    if (record->operand[MICA__CONV_X].dtype == MICA_DTYPE_F64) {
        plan_f64(record, &p, plan);
        return MICA_OK;
    }
    cut(&p, info);
    const uint64_t scratch = p.groups * mica__conv_packed_floats(&p) * sizeof(float);
    const uint64_t taps = mica__conv_taps(&p.windows),
                   phases = (uint64_t)p.phases[0] * p.phases[1] * p.phases[2];
    const uint64_t units = p.batch * p.groups * phases * p.planes * p.row_tiles * p.column_tiles * p.parts;
    const mica_status status = check_local(record, mica__conv_local_floats(&p), units);
    if (status != MICA_OK)
        return status;
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, "conv_pack", p.groups * ceil_of(p.outputs, MICA__CONV_LANES));
    widen(plan, record, MICA__CONV_WEIGHT, 0);
    mica__cpu_plan_scratch(plan, 0, scratch, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, &p, sizeof p);
    mica__cpu_plan_grain(dispatch, (double)(p.channels * taps * MICA__CONV_LANES));
    dispatch = mica__cpu_plan_next(plan, "conv", units);
    for (uint32_t slot = 0; slot < MICA__CONV_SLOTS; slot++)
        widen(plan, record, slot, 0);
    mica__cpu_plan_scratch(plan, 0, scratch, MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, &p, sizeof p);
    dispatch->local_bytes = (uint32_t)(mica__conv_local_floats(&p) * sizeof(float));
    const double products = (double)(p.rows * p.columns * p.channels * taps) / (double)phases;
    mica__cpu_plan_grain(dispatch, 200 + products * (double)ceil_of(p.outputs, p.parts) * 2 / FLOPS_PER_NS);
    return MICA_OK;
}

mica_status mica__cpu_plan_conv_weight_backward(const mica__record *record, const mica__device_info *info,
                                                mica__plan *plan)
{
    const mica_conv_params *conv = record->params;
    const mica__operand *x = &record->operand[MICA__CONV_WEIGHT_X],
                        *dy = &record->operand[MICA__CONV_WEIGHT_DY];
    const bool wide = x->dtype == MICA_DTYPE_F64;
    mica__cpu_conv_weight p = {.batch = x->shape[0], .groups = conv->groups};
    (void)info;
    mica__windows_of_conv(conv, x, &record->operand[MICA__CONV_WEIGHT_DWEIGHT], dy, &p.windows);
    p.channels = x->shape[1] / conv->groups;
    p.outputs = dy->shape[1] / conv->groups;
    const mica__conv_axis axis = mica__conv_axis_of(&p.windows, false, 2, 0);
    p.row_floats = mica__conv_row_floats(&axis, p.windows.out[2]);
    const uint64_t units = wide ? dy->shape[1] : x->shape[1];
    const mica_status status = check_local(record, mica__conv_weight_local_floats(&p), units);
    if (status != MICA_OK)
        return status;
    mica__plan_dispatch *dispatch =
        mica__cpu_plan_next(plan, wide ? "conv_weight_f64" : "conv_weight", units);
    for (uint32_t slot = 0; slot < MICA__CONV_WEIGHT_SLOTS; slot++)
        widen(plan, record, slot, 0);
    mica__cpu_plan_params(plan, &p, sizeof p);
    dispatch->local_bytes = wide ? 0 : (uint32_t)(mica__conv_weight_local_floats(&p) * sizeof(float));
    const double products = (double)(p.batch * p.outputs * mica__conv_taps(&p.windows)) *
                            (double)(p.windows.out[0] * p.windows.out[1] * p.windows.out[2]);
    mica__cpu_plan_grain(dispatch, 200 + products * 2 / 10);
    return MICA_OK;
}
