/* gpu_plan_frames.c - plans of what goes over frames: pooling, im2col and its inverse, resizing, sampling by a grid. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "backend/windows.h"
#include "base/status.h"

#define MOST 0x3fffffffu /* elements, places: kernels count them in 32 bits */

static uint64_t groups_for(uint64_t items)
{
    return (items + MICA__MK_WG - 1) / MICA__MK_WG;
}

static mica_status check_size(const mica__record *record, uint64_t size)
{
    if (size <= MOST)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %llu elements or places, 2^30 - 1 are served on GPUs",
                      mica_op_name((mica_op)record->op), (unsigned long long)size);
}

static uint64_t volume(const uint64_t *n)
{
    return n[0] * n[1] * n[2];
}

static mica_status set_frames(const mica__record *record, const mica__frames *frames, uint32_t operands,
                              mk_frames *f)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < operands && status == MICA_OK; i++) {
        for (uint32_t d = 0; d < MICA_SPATIAL_DIMS && status == MICA_OK; d++)
            status = check_size(record, frames->grid[i][d]);
        if (status == MICA_OK)
            status = check_size(record, frames->count);
        if (status == MICA_OK && frames->grid[i][0] * frames->grid[i][1] > MOST)
            status = check_size(record, frames->grid[i][0] * frames->grid[i][1]);
        if (status == MICA_OK && volume(frames->grid[i]) > MOST / frames->count)
            status = check_size(record, (uint64_t)MOST + 1);
        for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
            f->step[i][d] = frames->step[i][d];
            f->grid[i][d] = (uint32_t)frames->grid[i][d];
        }
        for (uint32_t d = 0; d < frames->ndim; d++)
            f->stride[i][d] = frames->stride[i][d];
    }
    for (uint32_t d = 0; d < frames->ndim; d++)
        f->shape[d] = (uint32_t)frames->shape[d];
    f->ndim = frames->ndim;
    f->count = (uint32_t)frames->count;
    return status;
}

static mica_status set_windows(const mica__record *record, const mica__windows *from, mk_windows *w)
{
    mica_status status = MICA_OK;
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS && status == MICA_OK; d++) {
        status = check_size(record, from->in[d] + from->low[d] + from->high[d] +
                                        (uint64_t)from->kernel[d] * from->dilation[d] + from->stride[d]);
        w->in[d] = (uint32_t)from->in[d];
        w->out[d] = (uint32_t)from->out[d];
        w->taps[d] = from->kernel[d];
        w->stride[d] = from->stride[d];
        w->dilation[d] = from->dilation[d];
        w->low[d] = from->low[d];
        w->high[d] = from->high[d];
    }
    const uint64_t taps = (uint64_t)from->kernel[0] * from->kernel[1];
    if (status == MICA_OK)
        status = check_size(record, taps > MOST ? taps : taps * from->kernel[2]);
    return status;
}

static mica_status plan_pool(const mica__record *record, mica__plan *plan, bool backward)
{
    const mica_pool_windows_params *pool = record->params;
    mica__frames frames;
    mica__windows windows;
    mk_pool_params p;
    memset(&p, 0, sizeof p);
    mica__frames_of(record->operand, MICA__POOL_SLOTS, pool->dims, &frames);
    mica__windows_of_pool(pool, frames.grid[0], frames.grid[1], &windows);
    p.has_indices = !backward && mica__operand_present(&record->operand[MICA__POOL_INDICES]);
    mica_status status = set_frames(record, &frames, backward || p.has_indices != 0 ? 3 : 2, &p.f);
    if (status == MICA_OK)
        status = set_windows(record, &windows, &p.w);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, backward ? "frames/pool_backward" : "frames/pool",
                                     groups_for(frames.count * volume(backward ? windows.in : windows.out)));
    if (status != MICA_OK)
        return status;
    p.kind = pool->kind;
    p.count_padding = pool->count_padding;
    for (uint32_t i = 0; i < (backward ? 3u : 2u); i++)
        p.type[i] = mica__gpu_type(record->operand[i].dtype);
    for (uint32_t slot = 0; slot < MICA__POOL_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

_Static_assert((int)MICA__POOL_SLOTS == (int)MICA__POOL_BACKWARD_SLOTS && MICA__POOL_SLOTS == 3,
               "three operands each");

mica_status mica__gpu_plan_pool_windows(const mica__record *record, const mica__device_info *info,
                                        mica__plan *plan)
{
    (void)info;
    return plan_pool(record, plan, false);
}

mica_status mica__gpu_plan_pool_windows_backward(const mica__record *record, const mica__device_info *info,
                                                 mica__plan *plan)
{
    (void)info;
    return plan_pool(record, plan, true);
}

/* `image` and `columns` are slots; a work-item is an element of what is written. */
static mica_status plan_im2col(const mica__record *record, mica__plan *plan, const char *kernel,
                               uint32_t image, uint32_t columns)
{
    const mica__operand *written = &record->operand[1];
    uint64_t shape[MICA__WINDOW_DIMS];
    mica__windows windows;
    mk_im2col_params p;
    memset(&p, 0, sizeof p);
    mica__windows_operand(&record->operand[image], shape, p.image);
    mica__windows_of_im2col(record->params, shape + 2, &windows);
    mica_status status = set_windows(record, &windows, &p.w);
    p.elements = 1;
    for (uint32_t d = 0; d < written->ndim; d++)
        p.elements *= written->shape[d];
    if (status == MICA_OK)
        status = check_size(record, volume(windows.out) > volume(windows.in) ? volume(windows.out)
                                                                             : volume(windows.in));
    if (status == MICA_OK)
        status = check_size(record, shape[1]);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, kernel, groups_for(p.elements));
    if (status != MICA_OK)
        return status;
    for (uint32_t d = 0; d < 3; d++)
        p.columns[d] = record->operand[columns].stride[d];
    p.channels = (uint32_t)shape[1];
    p.bytes = mica_dtype_block_bytes((mica_dtype)record->operand[0].dtype);
    if (image == 1) {
        p.x_type = mica__gpu_type(record->operand[0].dtype);
        p.y_type = mica__gpu_type(record->operand[1].dtype);
    }
    mica__gpu_plan_operand(plan, record, 0, 0);
    mica__gpu_plan_operand(plan, record, 1, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_im2col(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    (void)info;
    return plan_im2col(record, plan, "frames/im2col", MICA__IM2COL_X, MICA__IM2COL_Y);
}

mica_status mica__gpu_plan_col2im(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    (void)info;
    return plan_im2col(record, plan, "frames/col2im", MICA__COL2IM_Y, MICA__COL2IM_X);
}

static mica_status plan_resize(const mica__record *record, mica__plan *plan, bool backward)
{
    const mica_resize_params *r = record->params;
    mica__frames frames;
    mk_resize_params p;
    memset(&p, 0, sizeof p);
    mica__frames_of(record->operand, 2, r->dims, &frames);
    mica_status status = set_frames(record, &frames, 2, &p.f);
    if (status == MICA_OK)
        status =
            mica__gpu_plan_next(plan, "resize/resize", groups_for(frames.count * volume(frames.grid[1])));
    if (status != MICA_OK)
        return status;
    p.mode = r->mode;
    p.corners = r->corners;
    p.antialias = r->antialias;
    p.backward = backward;
    for (uint32_t i = 0; i < 2; i++)
        p.type[i] = mica__gpu_type(record->operand[i].dtype);
    mica__gpu_plan_operand(plan, record, 0, 0);
    mica__gpu_plan_operand(plan, record, 1, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_resize(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    (void)info;
    return plan_resize(record, plan, false);
}

mica_status mica__gpu_plan_resize_backward(const mica__record *record, const mica__device_info *info,
                                           mica__plan *plan)
{
    (void)info;
    return plan_resize(record, plan, true);
}

/* `y` has a number for each channel and place of the grid. */
static mica_status describe_grid(const mica__record *record, const mica__operand *x, const mica__operand *g,
                                 const mica__operand *y, mk_grid_params *p)
{
    const mica_grid_params *grid = record->params;
    memset(p, 0, sizeof *p);
    for (uint32_t d = 0; d < 4; d++)
        MICA__TRY(check_size(record, x->shape[d] > y->shape[d] ? x->shape[d] : y->shape[d]));
    MICA__TRY(check_size(record, y->shape[0] * y->shape[2] > MOST ? y->shape[0] * y->shape[2]
                                                                  : y->shape[0] * y->shape[2] * y->shape[3]));
    memcpy(p->x_stride, x->stride, sizeof p->x_stride);
    memcpy(p->grid_stride, g->stride, sizeof p->grid_stride);
    memcpy(p->y_stride, y->stride, sizeof p->y_stride);
    p->batch = (uint32_t)x->shape[0];
    p->channels = (uint32_t)x->shape[1];
    p->height = (uint32_t)x->shape[2];
    p->width = (uint32_t)x->shape[3];
    p->rows = (uint32_t)y->shape[2];
    p->columns = (uint32_t)y->shape[3];
    p->mode = grid->mode;
    p->padding = grid->padding;
    p->align_corners = grid->align_corners;
    p->x_type = mica__gpu_type(x->dtype);
    p->grid_type = mica__gpu_type(g->dtype);
    p->y_type = mica__gpu_type(y->dtype);
    return MICA_OK;
}

mica_status mica__gpu_plan_grid_sample(const mica__record *record, const mica__device_info *info,
                                       mica__plan *plan)
{
    const mica__operand *y = &record->operand[MICA__GRID_Y];
    mk_grid_params p;
    (void)info;
    MICA__TRY(
        describe_grid(record, &record->operand[MICA__GRID_X], &record->operand[MICA__GRID_GRID], y, &p));
    MICA__TRY(
        mica__gpu_plan_next(plan, "resize/grid_sample", groups_for(y->shape[0] * y->shape[2] * y->shape[3])));
    for (uint32_t slot = 0; slot < MICA__GRID_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* Rows of dx, each by one work-item, which adds up in its part of the scratch. */
static mica_status plan_grid_back_x(const mica__record *record, mica__plan *plan)
{
    const mica__operand *dx = &record->operand[MICA__GRID_BACKWARD_DX];
    const uint64_t rows = dx->shape[0] * dx->shape[1];
    mk_grid_params p;
    MICA__TRY(describe_grid(record, dx, &record->operand[MICA__GRID_BACKWARD_GRID],
                            &record->operand[MICA__GRID_BACKWARD_DY], &p));
    MICA__TRY(check_size(record, rows > MOST ? rows : rows * dx->shape[2]));
    MICA__TRY(mica__gpu_plan_next(plan, "resize/grid_back_x", groups_for(rows * dx->shape[2])));
    mica__gpu_plan_operand(plan, record, MICA__GRID_BACKWARD_GRID, 0);
    mica__gpu_plan_operand(plan, record, MICA__GRID_BACKWARD_DY, 0);
    mica__gpu_plan_operand(plan, record, MICA__GRID_BACKWARD_DX, 0);
    mica__gpu_plan_scratch(plan, 0, 4 * rows * dx->shape[2] * dx->shape[3],
                           MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_grid_sample_backward(const mica__record *record, const mica__device_info *info,
                                                mica__plan *plan)
{
    const mica__operand *dy = &record->operand[MICA__GRID_BACKWARD_DY],
                        *dgrid = &record->operand[MICA__GRID_BACKWARD_DGRID];
    mk_grid_params p;
    (void)info;
    if (mica__operand_present(&record->operand[MICA__GRID_BACKWARD_DX]))
        MICA__TRY(plan_grid_back_x(record, plan));
    if (!mica__operand_present(dgrid))
        return MICA_OK;
    MICA__TRY(describe_grid(record, &record->operand[MICA__GRID_BACKWARD_X],
                            &record->operand[MICA__GRID_BACKWARD_GRID], dy, &p));
    memcpy(p.to_stride, dgrid->stride, sizeof p.to_stride);
    p.to_type = mica__gpu_type(dgrid->dtype);
    MICA__TRY(mica__gpu_plan_next(plan, "resize/grid_back_grid",
                                  groups_for(dy->shape[0] * dy->shape[2] * dy->shape[3])));
    mica__gpu_plan_operand(plan, record, MICA__GRID_BACKWARD_X, 0);
    mica__gpu_plan_operand(plan, record, MICA__GRID_BACKWARD_GRID, 0);
    mica__gpu_plan_operand(plan, record, MICA__GRID_BACKWARD_DY, 0);
    mica__gpu_plan_operand(plan, record, MICA__GRID_BACKWARD_DGRID, 0);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
