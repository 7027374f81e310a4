/*
 * region.c - elementwise work: a program of scalar functions that runs over tiles of its operands.
 *
 * The plan has collapsed the views and given every value a place. Each entry is one call over a tile that stays in the
 * first-level cache, so that operands are read and written once. Of a tile all inputs are read before any output is
 * written that may lie where they do: the plan sees to that.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/region_blocks.h"
#include "backend/cpu/kernels/region_moves.h"
#include "backend/cpu/kernels/walk.h"

typedef struct region_run {
    const mica__cpu_view *view;
    uint32_t views;
    uint64_t tile, room;                                   /* room: elements that a slot ever holds at once */
    uint64_t stride[MICA__CPU_REGION_VIEWS];               /* along a row */
    const unsigned char *repeated[MICA__CPU_REGION_VIEWS]; /* what row loads have in their slots */
    unsigned char *place[MICA__CPU_REGION_PLACES];         /* of a view: where the next tile begins */
    const mica__cpu_region_entry *kind[MICA__CPU_REGION_KINDS + 1]; /* entries of kind k end at k + 1 */
    region_block block[MICA__CPU_REGION_BLOCKS];
    walk walk;
} region_run;

typedef const mica__cpu_region_entry *region_entry;

static void begin(region_run *run, const mica__cpu_args *args)
{
    const mica__cpu_region *region = args->params;
    const uint64_t row = args->view->shape[args->view->ndim - 1];
    run->view = args->view;
    run->views = args->view_count;
    run->tile = region->tile;
    run->room = row < region->tile ? row : region->tile;
    for (uint32_t v = 0; v < run->views; v++) {
        run->stride[v] = args->view[v].stride[args->view->ndim - 1];
        run->repeated[v] = NULL;
    }
    for (uint32_t s = 0; s < region->slots; s++)
        run->place[run->views + s] = (unsigned char *)args->local + (uint64_t)s * region->slot_bytes;
    run->kind[0] = region->entry;
    for (uint32_t k = 0; k < MICA__CPU_REGION_KINDS; k++)
        run->kind[k + 1] = region->entry + region->end[k];
    for (region_entry e = run->kind[MICA__CPU_REGION_FILL]; e < run->kind[MICA__CPU_REGION_FILL + 1]; e++)
        region_indices[e->function](run->place[e->to], e->bits, 0, run->room);
    region_block *block = run->block;
    for (region_entry e = run->kind[MICA__CPU_REGION_BLOCK]; e < run->kind[MICA__CPU_REGION_BLOCK + 1]; e++)
        *block++ = (region_block){region_blocks[e->function], e->from[0]};
}

/* What the row repeats. */
static void begin_row(region_run *run)
{
    region_entry e = run->kind[MICA__CPU_REGION_ROW_INDEX];
    for (; e < run->kind[MICA__CPU_REGION_ROW_INDEX + 1]; e++)
        region_indices[e->function](run->place[e->to], run->walk.index[e->view], 0, run->room);
    for (; e < run->kind[MICA__CPU_REGION_ROW_LOAD + 1]; e++) {
        if (e->offset == 0 && run->repeated[e->view] == run->place[e->view])
            continue;
        if (e->offset == 0)
            run->repeated[e->view] = run->place[e->view];
        region_loads[e->function](run->place[e->to], run->place[e->view] + e->offset, 0, run->room);
    }
}

static inline void advance(region_run *run, uint64_t n)
{
    for (uint32_t v = 0; v < run->views; v++)
        run->place[v] += n * run->stride[v];
}

static void run_tile(region_run *run, uint64_t column, uint64_t n)
{
    unsigned char **place = run->place;
    region_entry e = run->kind[MICA__CPU_REGION_INDEX];
    for (; e < run->kind[MICA__CPU_REGION_INDEX + 1]; e++)
        region_indices[e->function](place[e->to], column, 1, n);
    for (; e < run->kind[MICA__CPU_REGION_LOAD + 1]; e++)
        region_loads[e->function](place[e->to], place[e->view] + e->offset, run->stride[e->view], n);
    for (; e < run->kind[MICA__CPU_REGION_STEP + 1]; e++)
        region_steps[e->function](place[e->to], place[e->from[0]], place[e->from[1]], place[e->from[2]], n);
    for (; e < run->kind[MICA__CPU_REGION_STORE + 1]; e++)
        region_stores[e->function](place[e->view] + e->offset, run->stride[e->view], place[e->from[0]], n);
    advance(run, n);
}

/* The whole blocks of n elements; gives their number of elements. */
static uint64_t run_blocks(region_run *run, uint64_t n)
{
#define BLOCK_START(j) const vf v##j = vf_zero(); /* nothing: a block begins with a load */
    BLOCK_EACH(BLOCK_START)
    const uint64_t whole = n - n % BLOCK;
    for (uint64_t i = 0; i < whole; i += BLOCK) {
        run->block->run(run->block, run->place, BLOCK_ARGUMENTS);
        advance(run, BLOCK);
    }
    return whole;
}

/* Columns [column, stop) of the row that the walk stands at. */
static void run_row(region_run *run, uint64_t column, uint64_t stop)
{
    for (uint32_t v = 0; v < run->views; v++)
        run->place[v] = walk_at(&run->walk, v) + column * run->stride[v];
    begin_row(run);
    if (run->kind[MICA__CPU_REGION_BLOCK] < run->kind[MICA__CPU_REGION_BLOCK + 1])
        column += run_blocks(run, stop - column);
    while (column < stop) {
        const uint64_t n = stop - column < run->tile ? stop - column : run->tile;
        run_tile(run, column, n);
        column += n;
    }
}

void MICA__ISA(region)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    region_run run;
    begin(&run, args);
    const uint64_t elements = ((const mica__cpu_region *)args->params)->elements;
    const uint64_t row = run.view->shape[run.view->ndim - 1];
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    end = end < elements ? end : elements;
    uint64_t column = i < row ? i : i % row; /* without a division in the most usual case */
    walk_begin(&run.walk, run.view, run.views, run.view->ndim - 1u, i < row ? 0 : i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        run_row(&run, column, column + n);
        walk_next(&run.walk);
        column = 0;
        i += n;
    }
    if (((const mica__cpu_region *)args->params)->far != 0)
        block_fence();
}
