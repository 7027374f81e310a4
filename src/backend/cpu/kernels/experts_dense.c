/*
 * experts_dense.c - expert-routed matmul with f32, f16 or bf16 weights.
 *
 * Few slots: each is a mat-vec with the matrix of its expert. Many: the map of experts.h brings the slots
 * of one expert together; their rows of x are packed in that order, then tiles of them meet column blocks
 * of the expert. The arithmetic is gemm.h's, so a row of y has the bits of mica_matmul with that expert's
 * matrix.
 */
#include "backend/cpu/kernels/experts.h"
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/kernels.h"

/* A column block of every expert's matrix. */
typedef struct expert_columns {
    uint64_t first, count;
} expert_columns;

static expert_columns columns_of(const mica__cpu_args *args, uint64_t index, uint64_t step)
{
    const mica__experts_dense_params *p = args->params;
    const uint64_t n = args->view[MICA__EXPERTS_WEIGHT].shape[1];
    const uint64_t first = mica__dense_step_cut(n, step, p->column_blocks, index);
    return (expert_columns){first, mica__dense_step_cut(n, step, p->column_blocks, index + 1) - first};
}

/* x is [T, K], read by every slot of a token, or [T, S, K]. */
static const unsigned char *x_row(const mica__cpu_args *args, uint64_t slot)
{
    const mica__cpu_view *x = &args->view[MICA__EXPERTS_X];
    return mica__dense_row(x, x->ndim == 2 ? slot / args->view[MICA__EXPERTS_IDS].shape[1] : slot);
}

static unsigned char *y_row(const mica__cpu_args *args, uint64_t slot, uint64_t column)
{
    const mica__cpu_view *y = &args->view[MICA__EXPERTS_Y];
    return mica__dense_row(y, slot) + column * row_element_bytes(y->dtype);
}

static const unsigned char *expert_rows(const mica__cpu_args *args, uint64_t expert, uint64_t column)
{
    const mica__cpu_view *w = &args->view[MICA__EXPERTS_WEIGHT];
    return w->data + expert * w->stride[0] + column * w->stride[1];
}

/* Per-thread memory is a row of x, then results. */
static void slot_unit(const mica__cpu_args *args, uint64_t slot, expert_columns c)
{
    const mica__cpu_view *w = &args->view[MICA__EXPERTS_WEIGHT], *x = &args->view[MICA__EXPERTS_X];
    const mica__cpu_view *y = &args->view[MICA__EXPERTS_Y];
    const int64_t expert = mica__experts_id(&args->view[MICA__EXPERTS_IDS], slot, w->shape[0]);
    const uint64_t k = w->shape[2];
    if (expert < 0) {
        mica__cpu_fault(args);
        memset(y_row(args, slot, c.first), 0, c.count * row_element_bytes(y->dtype));
        return;
    }
    float *row = args->local, *out = row + mica__dense_row_floats(k);
    const gemm_dots dots = {.x = row_f32(x_row(args, slot), x->dtype, k, row),
                            .k = k,
                            .w = expert_rows(args, (uint64_t)expert, c.first),
                            .w_stride = w->stride[1],
                            .dtype = w->dtype,
                            .out = out,
                            .ld = c.count};
    gemm_dot(&dots, 1, c.count);
    row_store(y_row(args, slot, c.first), y->dtype, out, c.count);
}

/* A tile of the map with the slots in it and their packed rows; no rows if the map has no such tile. */
typedef struct tile_rows {
    uint64_t expert, count;
    const uint32_t *slot;
    float *packed;
} tile_rows;

static tile_rows tile_at(const mica__cpu_args *args, uint64_t index)
{
    void *map = args->view[MICA__EXPERTS_SLOTS].data;
    const mica__experts_head *head = map;
    if (index >= head->tile_count)
        return (tile_rows){0};
    const mica__experts_tile *tile = &mica__experts_tiles(map)[index];
    const uint64_t row_floats = gemm_steps(args->view[MICA__EXPERTS_WEIGHT].shape[2]) * VW;
    float *packed = (float *)(void *)args->view[MICA__EXPERTS_SLOTS + 1].data;
    return (tile_rows){tile->expert, tile->count, mica__experts_slots(map) + tile->first,
                       packed + tile->first * row_floats};
}

/* A tile of few rows is mat-vec work: its panels are single rows. */
static uint64_t panels_of(uint64_t rows)
{
    return rows <= MICA__DENSE_DOTS ? rows : gemm_row_panels(rows);
}

static void pack_unit(const mica__cpu_args *args, tile_rows t)
{
    const mica__cpu_view *x = &args->view[MICA__EXPERTS_X];
    const uint64_t k = args->view[MICA__EXPERTS_WEIGHT].shape[2], steps = gemm_steps(k),
                   panels = panels_of(t.count);
    for (uint64_t panel = 0; panel < panels; panel++) {
        const uint64_t from = mica__dense_cut(t.count, panels, panel),
                       to = mica__dense_cut(t.count, panels, panel + 1);
        for (uint64_t i = from; i < to; i++)
            gemm_pack_row(x_row(args, t.slot[i]), x->dtype, k, (uint32_t)(i - from), (uint32_t)(to - from),
                          t.packed + from * steps * VW);
    }
}

static void store_rows(const mica__cpu_args *args, const uint32_t *slot, uint64_t rows, expert_columns c,
                       const float *out, uint64_t ld)
{
    for (uint64_t i = 0; i < rows; i++)
        row_store(y_row(args, slot[i], c.first), args->view[MICA__EXPERTS_Y].dtype, out + i * ld, c.count);
}

/* Per-thread memory is results, rows of w, partial sums. */
static void tile_unit(const mica__cpu_args *args, tile_rows t, expert_columns c)
{
    const mica__experts_dense_params *p = args->params;
    const mica__cpu_view *w = &args->view[MICA__EXPERTS_WEIGHT];
    const uint64_t k = w->shape[2], ld = gemm_out_stride(c.count);
    float *out = args->local, *lines = out + mica__dense_out_floats(p->block_rows, p->block_columns);
    const gemm_block b = {.x = t.packed,
                          .rows = t.count,
                          .k = k,
                          .w = expert_rows(args, t.expert, c.first),
                          .columns = c.count,
                          .w_stride = w->stride[1],
                          .dtype = w->dtype,
                          .lines = lines,
                          .partial = lines + mica__dense_lines_floats(k),
                          .out = out};
    if (t.count <= MICA__DENSE_DOTS) {
        const gemm_dots dots = {t.packed, gemm_steps(k) * VW, k, b.w, b.w_stride, b.dtype, out, ld};
        gemm_dot(&dots, t.count, c.count);
    } else {
        gemm_run(&b);
    }
    store_rows(args, t.slot, t.count, c, out, ld);
}

void MICA__ISA(experts_dense)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__experts_dense_params *p = args->params;
    for (uint64_t unit = first; unit < last; unit++) {
        const uint64_t index = p->mode == MICA__EXPERTS_PACK ? unit : unit / p->column_blocks;
        if (p->mode == MICA__EXPERTS_FEW) {
            slot_unit(args, index, columns_of(args, unit % p->column_blocks, mica__dense_few_step(1)));
            continue;
        }
        const tile_rows t = tile_at(args, index);
        if (t.count == 0)
            return; /* tiles in use come first */
        if (p->mode == MICA__EXPERTS_PACK)
            pack_unit(args, t);
        else
            tile_unit(args, t, columns_of(args, unit % p->column_blocks, MICA__DENSE_TILE_STEP));
    }
}
