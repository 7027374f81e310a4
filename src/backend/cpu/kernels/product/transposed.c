/*
 * transposed.c - rows of x times a weight of any type, as it lies: y [.., K] = x [.., N] . weight [N, K].
 *
 * A unit is a block of y: some rows by some columns. For each part of N the columns of the weight's rows are decoded into panels, x is packed,
 * and tiles add up the block's sums. Every sum is in rising n, so that blocks and threads change no bit.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/dense.h"
#include "backend/cpu/kernels/experts.h"
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/outer.h"
#include "quant/packed.h"
#include "quant/quant.h"

enum { X = MICA__TRANSPOSED_X, WEIGHT = MICA__TRANSPOSED_WEIGHT, Y = MICA__TRANSPOSED_Y };

#define N_PART MICA__CPU_TRANSPOSED_N
#define PANEL (OUTER_VECTORS * VW) /* columns of the weight that stay in the first cache for all rows of x */
#define STRIP (4 * OUTER_ROWS)     /* rows between two times that lines of the weight are asked for */

typedef struct y_block {
    uint64_t batch;       /* which weight */
    const uint32_t *list; /* numbers of the rows of x and y; NULL: those from `first` on */
    uint64_t first, rows, column, columns;
} y_block;

/* No rows: there are fewer tiles than the plan has units for. */
static y_block block_of(const mica__cpu_args *args, uint64_t unit)
{
    const mica__cpu_transposed *p = args->params;
    const mica__cpu_view *w = &args->view[WEIGHT];
    const uint64_t k = w->shape[w->ndim - 1], row_unit = unit / p->column_units,
                   column = unit % p->column_units * p->block_columns;
    y_block t = {.column = column, .columns = k - column < p->block_columns ? k - column : p->block_columns};
    if (p->routed != 0) {
        void *map = args->view[MICA__TRANSPOSED_SLOTS].data;
        const mica__experts_head *head = map;
        if (row_unit >= head->tile_count)
            return t;
        const mica__experts_tile *tile = mica__experts_tiles(map) + row_unit;
        t.batch = tile->expert;
        t.list = mica__experts_slots(map) + tile->first;
        t.rows = tile->count;
        return t;
    }
    const uint64_t row = row_unit % p->row_units * p->block_rows;
    t.batch = row_unit / p->row_units;
    t.first = t.batch * p->rows + row;
    t.rows = p->rows - row < p->block_rows ? p->rows - row : p->block_rows;
    return t;
}

static uint64_t row_number(const y_block *t, uint64_t i)
{
    return t->list != NULL ? t->list[i] : t->first + i;
}

/* Row `row` of weight `batch` of a weight or of one of its tables; `whole` rows of it lie together. */
static const unsigned char *row_of(const mica__cpu_view *view, uint64_t batch, uint64_t row)
{
    return view->data + (view->ndim == 3 ? batch * view->stride[0] : 0) + row * view->stride[view->ndim - 2];
}

/* The block's columns of row n of the weight, in `tmp` unless they are f32 where they lie. Types of blocks are decoded from a multiple of the
 * step on. */
static const float *decode_columns(const mica__cpu_args *args, const y_block *t, uint64_t n, float *tmp)
{
    const mica__cpu_transposed *p = args->params;
    const mica__cpu_view *w = &args->view[WEIGHT], *scales = w + MICA__WEIGHT_SCALES,
                         *biases = w + MICA__WEIGHT_BIASES;
    const mica_dtype dtype = (mica_dtype)w->dtype;
    const uint64_t k = w->shape[w->ndim - 1], from = t->column / p->step * p->step,
                   end = (t->column + t->columns + p->step - 1) / p->step * p->step,
                   count = (end < k ? end : k) - from;
    const unsigned char *row = row_of(w, t->batch, n);
    if (w->layout == MICA_LAYOUT_ROWS8) {
        const uint64_t in_group = n % MICA__PACKED_ROWS;
        mica__packed_decode_part(w->dtype, row_of(w, t->batch, n - in_group), (uint32_t)in_group, from, count,
                                 w->group_size, tmp);
    } else if (mica__quant_known(w->dtype)) {
        row += from / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
        mica__quant_decode_row(w->dtype, row, tmp, count);
    } else if (mica__dtype_is_grouped(w->dtype)) {
        const uint64_t table = from / w->group_size * mica_dtype_block_bytes((mica_dtype)scales->dtype);
        row += from / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
        mica__affine_decode_row(w->dtype, row, row_of(scales, t->batch, n) + table,
                                biases->data == NULL ? NULL : row_of(biases, t->batch, n) + table,
                                scales->dtype, w->group_size, tmp, count);
    } else {
        return row_f32(row + t->column * row_element_bytes(w->dtype), w->dtype, t->columns, tmp);
    }
    return tmp + (t->column - from);
}

/* Rows [from, from + n) of the weight as panels of columns, row by row; columns that are not there are zeros. */
static void pack_weight(const mica__cpu_args *args, const y_block *t, uint64_t from, uint64_t n, float *b,
                        float *tmp)
{
    for (uint64_t s = 0; s < n; s++) {
        const float *values = decode_columns(args, t, from + s, tmp);
        for (uint64_t j = 0; j < t->columns; j += PANEL) {
            const uint64_t count = t->columns - j < PANEL ? t->columns - j : PANEL;
            float *panel = b + j * n + s * PANEL;
            for (uint64_t i = 0; i < PANEL; i += VW)
                vf_store(panel + i, i + VW <= count ? vf_load(values + j + i)
                                    : i < count     ? vf_load_n(values + j + i, count - i)
                                                    : vf_zero());
        }
    }
}

/* Columns [from, from + n) of the block's rows of x; rows up to a whole tile are zeros. */
static void load_x(const mica__cpu_args *args, const y_block *t, uint64_t from, uint64_t n, float *a)
{
    const mica__cpu_view *x = &args->view[X];
    for (uint64_t i = 0; i < t->rows; i++) {
        const unsigned char *row = mica__dense_row(x, row_number(t, i));
        gemm_pack_row(row + from * row_element_bytes(x->dtype), x->dtype, n, 0, 1, a + i * N_PART);
    }
    memset(a + t->rows * N_PART, 0, (mica__dense_round(t->rows, OUTER_ROWS) - t->rows) * N_PART * sizeof *a);
}

/* Asks for a share of the weight's next rows, those that follow [from, from + n), while strip `number` of `strips` is computed. */
static void ask_ahead(const mica__cpu_args *args, const y_block *t, uint64_t from, uint64_t n,
                      uint64_t number, uint64_t strips)
{
    const mica__cpu_view *w = &args->view[WEIGHT];
    const uint64_t all = w->shape[w->ndim - 2], left = all - from - n, next = left < N_PART ? left : N_PART;
    if (w->dtype != MICA_DTYPE_F32 && w->dtype != MICA_DTYPE_F16 && w->dtype != MICA_DTYPE_BF16)
        return; /* decoding takes longer than reading */
    const uint64_t bytes = row_element_bytes(w->dtype);
    for (uint64_t s = mica__dense_cut(next, strips, number); s < mica__dense_cut(next, strips, number + 1);
         s++)
        row_ahead(row_of(w, t->batch, from + n + s) + t->column * bytes, t->columns * bytes);
}

static void run_block(const mica__cpu_args *args, const y_block *t)
{
    const mica__cpu_transposed *p = args->params;
    const mica__cpu_view *w = &args->view[WEIGHT], *y = &args->view[Y];
    const uint64_t n_all = w->shape[w->ndim - 2], room = p->block_columns;
    const uint64_t rows = mica__dense_round(p->block_rows, OUTER_ROWS),
                   strips = (t->rows + STRIP - 1) / STRIP, panels = (t->columns + PANEL - 1) / PANEL;
    float *a = args->local, *b = a + rows * N_PART, *sums = b + room * N_PART, *tmp = sums + rows * room;
    for (uint64_t from = 0; from < n_all; from += N_PART) {
        const uint64_t n = n_all - from < N_PART ? n_all - from : N_PART;
        pack_weight(args, t, from, n, b, tmp);
        load_x(args, t, from, n, a);
        for (uint64_t work = 0; work < panels * strips; work++) {
            const uint64_t panel = work / strips, strip = work % strips, row = strip * STRIP,
                           left = t->rows - row;
            const outer o = {.a = a + row * N_PART,
                             .a_row = N_PART,
                             .a_step = 1,
                             .b = b + panel * PANEL * n,
                             .b_step = PANEL,
                             .steps = n,
                             .sum = sums + row * room + panel * PANEL,
                             .ld = room,
                             .fresh = from == 0};
            ask_ahead(args, t, from, n, work, panels * strips);
            outer_add(&o, left < STRIP ? left : STRIP, PANEL);
        }
    }
    for (uint64_t i = 0; i < t->rows; i++)
        row_store(mica__dense_row(y, row_number(t, i)) + t->column * row_element_bytes(y->dtype), y->dtype,
                  sums + i * room, t->columns);
}

void MICA__ISA(matmul_transposed)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    for (uint64_t unit = first; unit < last; unit++) {
        const y_block t = block_of(args, unit);
        if (t.rows != 0)
            run_block(args, &t);
    }
}
