/* cpu_plan_frames.c - plans of what goes over frames: pooling, im2col and its inverse, resizing, sampling by a grid. */
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/kernels/image/image.h"
#include "base/status.h"
#include "quant/dtype.h"

static uint64_t real_bytes(const mica__record *record)
{
    return record->operand[0].dtype == MICA_DTYPE_F64 ? 8 : 4;
}

#define UNITS_PER_THREAD 4u   /* so that the last ones even out */
#define BATCH_FLOATS 4096u    /* sums of rows that wait, in the first cache */
#define LANES_MOST (1u << 26) /* bytes of a table of a resized dimension by lanes */
#define SAMPLE_MOST \
    (1u << 15) /* places of an image whose channels are turned: about as many as the second cache holds */
#define BACK_MOST (1u << 19) /* the same where the other way is much slower */

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Ends the dispatch: per-thread memory and grain. */
static mica_status finish(const mica__record *record, mica__plan *plan, uint64_t units, uint64_t local_bytes,
                          double unit_ns)
{
    mica__plan_dispatch *dispatch = &plan->dispatch[plan->dispatch_count - 1];
    if (units > UINT32_MAX || local_bytes > UINT32_MAX)
        return mica__fail(
            MICA_ERR_UNSUPPORTED, "%s on the cpu: %llu parts with %llu bytes each are more than it takes",
            mica_op_name((mica_op)record->op), (unsigned long long)units, (unsigned long long)local_bytes);
    dispatch->local_bytes = (uint32_t)local_bytes;
    mica__cpu_plan_grain(dispatch, unit_ns);
    return MICA_OK;
}

static uint64_t taps_of(const mica__windows *w)
{
    return (uint64_t)w->kernel[0] * w->kernel[1] * w->kernel[2];
}

/* How many rows of x are looked at together. */
static uint32_t pool_rows_kept(const mica__record *record, const mica__windows *w)
{
    const uint64_t rows = (uint64_t)w->kernel[0] * w->kernel[1];
    return record->operand[0].dtype != MICA_DTYPE_F64 && rows <= MICA__CPU_POOL_ROWS ? (uint32_t)rows : 0;
}

mica_status mica__cpu_plan_pool_windows(const mica__record *record, const mica__device_info *info,
                                        mica__plan *plan)
{
    const mica_pool_windows_params *pool = record->params;
    mica__cpu_pool p = {.kind = pool->kind, .count_padding = pool->count_padding};
    (void)info;
    mica__frames_of(record->operand, MICA__POOL_SLOTS, pool->dims, &p.frames);
    mica__windows_of_pool(pool, p.frames.grid[0], p.frames.grid[1], &p.windows);
    const mica__windows *w = &p.windows;
    p.kept = pool_rows_kept(record, w);
    const uint64_t units = p.frames.count * w->out[0] * w->out[1];
    (void)mica__cpu_plan_next(plan, "pool", units);
    mica__cpu_plan_operands(plan, record, MICA__POOL_SLOTS);
    mica__cpu_plan_params(plan, &p, sizeof p);
    const uint64_t local = mica__cpu_pool_rows(&p, 1) * real_bytes(record) + w->out[2] * sizeof(uint32_t);
    return finish(record, plan, units, local,
                  20 + (p.kept > 0 ? 0.1 : 0.5) * (double)(w->out[2] * taps_of(w)));
}

mica_status mica__cpu_plan_pool_windows_backward(const mica__record *record, const mica__device_info *info,
                                                 mica__plan *plan)
{
    const mica_pool_windows_params *pool = record->params;
    mica__cpu_pool p = {.kind = pool->kind, .count_padding = pool->count_padding};
    (void)info;
    mica__frames_of(record->operand, MICA__POOL_BACKWARD_SLOTS, pool->dims, &p.frames);
    mica__windows_of_pool(pool, p.frames.grid[0], p.frames.grid[1], &p.windows);
    const mica__windows *w = &p.windows;
    const uint64_t volume = w->in[0] * w->in[1] * w->in[2], windows = w->out[0] * w->out[1] * w->out[2];
    const bool chooses = p.kind == MICA_POOL_MAX || p.kind == MICA_POOL_MIN;
    if (chooses && volume >= UINT32_MAX)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "pool_windows_backward: a frame of x has %llu places; the kernel takes up to 2^32 - 2",
            (unsigned long long)volume);
    p.kept = pool_rows_kept(record, w);
    const uint64_t row = mica__cpu_pool_rows(&p, 2) * real_bytes(record) + w->out[2] * sizeof(uint32_t);
    const uint64_t values = volume * real_bytes(record);
    (void)mica__cpu_plan_next(plan, "pool_backward", p.frames.count);
    mica__cpu_plan_operands(plan, record, MICA__POOL_BACKWARD_SLOTS);
    mica__cpu_plan_params(plan, &p, sizeof p);
    return finish(record, plan, p.frames.count,
                  taps_of(w) * sizeof(uint64_t) + values + (p.kind == MICA_POOL_PROD ? values : row),
                  20 + (p.kind == MICA_POOL_PROD ? 3.0 : 0.3) * (double)(windows * taps_of(w)));
}

/* `image` and `columns` are slots. */
static void describe_im2col(const mica__record *record, uint32_t image, uint32_t columns, mica__cpu_im2col *p)
{
    uint64_t shape[MICA__WINDOW_DIMS];
    mica__windows_operand(&record->operand[image], shape, p->image);
    mica__windows_of_im2col(record->params, shape + 2, &p->windows);
    p->channels = shape[1];
    p->taps = taps_of(&p->windows);
    for (uint32_t d = 0; d < 3; d++)
        p->columns[d] = record->operand[columns].stride[d];
    p->element_bytes = mica_dtype_block_bytes((mica_dtype)record->operand[image].dtype);
}

mica_status mica__cpu_plan_im2col(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__cpu_im2col p = {.channels = 0};
    (void)info;
    describe_im2col(record, MICA__IM2COL_X, MICA__IM2COL_Y, &p);
    const mica__windows *w = &p.windows;
    const uint64_t units = record->operand[MICA__IM2COL_X].shape[0] * p.channels * p.taps;
    (void)mica__cpu_plan_next(plan, "im2col", units);
    mica__cpu_plan_operands(plan, record, MICA__IM2COL_SLOTS);
    mica__cpu_plan_params(plan, &p, sizeof p);
    return finish(record, plan, units, 0, 20 + 0.1 * (double)(w->out[0] * w->out[1] * w->out[2]));
}

mica_status mica__cpu_plan_col2im(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__cpu_im2col p = {.channels = 0};
    (void)info;
    describe_im2col(record, MICA__COL2IM_Y, MICA__COL2IM_X, &p);
    const mica__windows *w = &p.windows;
    const uint64_t units = record->operand[MICA__COL2IM_X].shape[0] * p.channels;
    (void)mica__cpu_plan_next(plan, "col2im", units);
    mica__cpu_plan_operands(plan, record, MICA__COL2IM_SLOTS);
    mica__cpu_plan_params(plan, &p, sizeof p);
    return finish(record, plan, units, (w->in[0] * w->in[1] * w->in[2] + w->out[2]) * real_bytes(record),
                  20 + 0.1 * (double)(w->out[0] * w->out[1] * w->out[2] * p.taps));
}

/* Taps of a place of the smaller or larger side, at most. */
static uint64_t most_taps(const mica_resize_params *r, uint64_t n, uint64_t m)
{
    const uint64_t reach = r->mode == MICA_RESIZE_CUBIC ? 4 : r->mode == MICA_RESIZE_LINEAR ? 2 : 1;
    return r->antialias != 0 ? reach * (n > m ? (n + m - 1) / m : 1) + 1 : reach;
}

/* The same of a place of x, of how many places of the result it is a tap: those whose positions lie less than the reach away. */
static uint64_t most_taps_back(const mica_resize_params *r, uint64_t n, uint64_t m)
{
    const uint64_t reach = r->mode == MICA_RESIZE_CUBIC ? 4 : r->mode == MICA_RESIZE_LINEAR ? 2 : 1;
    const uint64_t taps = ceil_of(reach * m, n > 1 ? n - 1 : 1) + (r->antialias != 0 ? reach : 0) + 2;
    return taps < m ? taps : m;
}

static mica_status plan_resize(const mica__record *record, mica__plan *plan, bool backward)
{
    const mica_resize_params *r = record->params;
    mica__cpu_resize p = {
        .mode = r->mode, .corners = r->corners, .antialias = r->antialias, .backward = backward};
    uint64_t local = 0;
    double taps = 1;
    mica__frames_of(record->operand, 2, r->dims, &p.frames);
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        const uint64_t n = p.frames.grid[backward ? 1 : 0][d], m = p.frames.grid[backward ? 0 : 1][d];
        p.entries[d] = most_taps(r, n, m) * m;
        local += mica__resize_table_bytes(&p, d);
        taps *= d < 2 ? (double)most_taps(r, n, m) : 1;
    }
    const uint64_t units = p.frames.count * p.frames.grid[1][0] * p.frames.grid[1][1];
    const uint64_t read = p.frames.grid[0][2], written = p.frames.grid[1][2];
    const bool wide = record->operand[0].dtype == MICA_DTYPE_F64;
    p.taps = backward ? most_taps_back(r, written, read) : most_taps(r, read, written);
    if (wide || mica__resize_lanes_bytes(&p, p.taps) > LANES_MOST)
        p.taps = 0;
    local += mica__resize_lanes_bytes(&p, p.taps);
    p.batch = BATCH_FLOATS / (read + MICA__CPU_RESIZE_SLACK);
    p.batch = p.batch < 1 ? 1 : p.batch < MICA__CPU_RESIZE_BATCH ? p.batch : MICA__CPU_RESIZE_BATCH;
    local += (p.batch * (read + MICA__CPU_RESIZE_SLACK) + MICA__CPU_RESIZE_ROWS * read + written) *
             real_bytes(record);
    (void)mica__cpu_plan_next(plan, "resize", units);
    mica__cpu_plan_operands(plan, record, 2);
    mica__cpu_plan_params(plan, &p, sizeof p);
    return finish(record, plan, units, local,
                  50 + (wide ? 0.3 : 0.03) * taps * (double)read +
                      (wide ? 4 : 0.1 * (double)p.taps) * (double)written);
}

mica_status mica__cpu_plan_resize(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    (void)info;
    return plan_resize(record, plan, false);
}

mica_status mica__cpu_plan_resize_backward(const mica__record *record, const mica__device_info *info,
                                           mica__plan *plan)
{
    (void)info;
    return plan_resize(record, plan, true);
}

/* `y` has a number for each channel and place of the grid. */
static mica__cpu_grid describe_grid(const mica_grid_params *grid, const mica__operand *y)
{
    const mica__cpu_grid p = {.channels = y->shape[1],
                              .rows = y->shape[2],
                              .columns = y->shape[3],
                              .mode = grid->mode,
                              .padding = grid->padding,
                              .align_corners = grid->align_corners,
                              .groups = ceil_of(y->shape[1], MICA__CPU_GRID_LANES),
                              .unit_rows = 1};
    return p;
}

/* Whether channels go in lanes: where an image's planes are not worth turning for so few places, or there are too few groups for all threads, or too
 * large, there are other ways. */
static bool in_lanes(const mica__record *record, const mica__cpu_grid *p, uint64_t most, bool always,
                     uint32_t threads)
{
    const mica__operand *x = &record->operand[MICA__GRID_X];
    const uint64_t plane = x->shape[2] * x->shape[3];
    return x->dtype != MICA_DTYPE_F64 && plane <= most &&
           (always || (plane <= 2 * p->rows * p->columns && x->shape[0] * p->groups >= threads));
}

static mica_status plan_grid_lanes(const mica__record *record, const mica__cpu_grid *p, uint64_t units,
                                   mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__GRID_X];
    (void)mica__cpu_plan_next(plan, "grid_sample_lanes", units);
    mica__cpu_plan_operands(plan, record, MICA__GRID_SLOTS);
    mica__cpu_plan_params(plan, p, sizeof *p);
    const uint64_t plane = x->shape[2] * x->shape[3];
    return finish(record, plan, units, mica__cpu_grid_floats(p->mode, plane, false) * sizeof(float),
                  20 + 5.0 * (double)(plane + p->rows * p->columns));
}

mica_status mica__cpu_plan_grid_sample(const mica__record *record, const mica__device_info *info,
                                       mica__plan *plan)
{
    const mica__operand *y = &record->operand[MICA__GRID_Y];
    mica__cpu_grid p = describe_grid(record->params, y);
    const uint64_t most = MICA__CPU_GRID_PLACES(p.mode);
    if (in_lanes(record, &p, SAMPLE_MOST, false, info->threads))
        return plan_grid_lanes(record, &p, y->shape[0] * p.groups, plan);
    p.unit_rows = p.columns > 0 && p.columns < most ? (uint32_t)(most / p.columns) : 1;
    while (y->shape[0] * ceil_of(p.rows, p.unit_rows) < (uint64_t)info->threads * UNITS_PER_THREAD &&
           p.unit_rows > 1)
        p.unit_rows /= 2;
    const uint64_t units = y->shape[0] * ceil_of(p.rows, p.unit_rows);
    (void)mica__cpu_plan_next(plan, "grid_sample", units);
    mica__cpu_plan_operands(plan, record, MICA__GRID_SLOTS);
    mica__cpu_plan_params(plan, &p, sizeof p);
    return finish(record, plan, units, 3 * MICA__CPU_GRID_READS * sizeof(float),
                  20 + (double)(p.unit_rows * p.columns) * (20 + 2 * (double)p.channels));
}

/* Channels in lanes: dx and what each group gives to dgrid, which is then added up. */
static mica_status plan_back_lanes(const mica__record *record, const mica__cpu_grid *p, mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__GRID_BACKWARD_X];
    const uint64_t places = p->rows * p->columns, plane = x->shape[2] * x->shape[3],
                   units = x->shape[0] * p->groups, bytes = units * places * 2 * sizeof(float);
    const bool joined = mica__operand_present(&record->operand[MICA__GRID_BACKWARD_DGRID]);
    (void)mica__cpu_plan_next(plan, "grid_back_lanes", units);
    mica__cpu_plan_operands(plan, record, MICA__GRID_BACKWARD_SLOTS);
    if (joined)
        mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_WRITE);
    mica__cpu_plan_params(plan, p, sizeof *p);
    MICA__TRY(finish(record, plan, units, mica__cpu_grid_floats(p->mode, plane, true) * sizeof(float),
                     20 + 10.0 * (double)(plane + 2 * places)));
    if (!joined)
        return MICA_OK;
    (void)mica__cpu_plan_next(plan, "grid_back_join", x->shape[0] * p->rows);
    mica__cpu_plan_operand(plan, record, MICA__GRID_BACKWARD_DGRID, 0);
    mica__cpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__cpu_plan_params(plan, p, sizeof *p);
    return finish(record, plan, x->shape[0] * p->rows, 0, 20 + 2.0 * (double)(p->columns * p->groups));
}

mica_status mica__cpu_plan_grid_sample_backward(const mica__record *record, const mica__device_info *info,
                                                mica__plan *plan)
{
    const mica__operand *x = &record->operand[MICA__GRID_BACKWARD_X],
                        *dy = &record->operand[MICA__GRID_BACKWARD_DY];
    const mica__cpu_grid p = describe_grid(record->params, dy);
    if (in_lanes(record, &p, BACK_MOST, true, info->threads))
        return plan_back_lanes(record, &p, plan);
    const uint64_t places = p.rows * p.columns, units[2] = {dy->shape[0] * p.channels, dy->shape[0] * p.rows};
    const double unit_ns[2] = {30.0 * (double)places, (double)(p.columns * (30 + 20 * p.channels))};
    for (uint32_t part = 0; part < 2; part++) {
        if (!mica__operand_present(&record->operand[MICA__GRID_BACKWARD_DX + part]))
            continue;
        (void)mica__cpu_plan_next(plan, part == 0 ? "grid_back_x" : "grid_back_grid", units[part]);
        mica__cpu_plan_operands(plan, record, MICA__GRID_BACKWARD_SLOTS);
        mica__cpu_plan_params(plan, &p, sizeof p);
        const uint64_t plane = x->shape[2] * x->shape[3];
        if (plane > UINT32_MAX)
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "grid_sample_backward on the cpu: x has %llu places, 2^32 - 1 are served",
                              (unsigned long long)plane);
        MICA__TRY(finish(record, plan, units[part], part == 0 ? plane * real_bytes(record) : 0,
                         20 + unit_ns[part]));
    }
    return MICA_OK;
}
