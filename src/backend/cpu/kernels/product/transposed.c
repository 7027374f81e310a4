/*
 * transposed.c - rows of x times a weight of any type, as it lies: y [.., K] = x [.., N] . weight [N, K].
 *
 * A unit is a block of y: some rows by some columns. For each part of N the columns of the weight's rows are decoded into panels, x is packed,
 * and tiles add up the block's sums. Every sum is in rising n, so that blocks and threads change no bit.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/dense.h"
#include "backend/cpu/kernels/experts.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/product/product_tile.h"
#include "backend/cpu/kernels/rows.h"
#include "quant/packed.h"
#include "quant/quant.h"

enum { X = MICA__TRANSPOSED_X, WEIGHT = MICA__TRANSPOSED_WEIGHT, Y = MICA__TRANSPOSED_Y };

#define N_PART MICA__CPU_TRANSPOSED_N
#define ROOM MICA__CPU_TRANSPOSED_ROOM

_Static_assert(MICA__CPU_TRANSPOSED_ROWS % ROWS == 0, "blocks are whole panels");
_Static_assert((MICA__CPU_TRANSPOSED_COLUMNS + COLUMNS - 1) / COLUMNS * COLUMNS <= ROOM, "panels fit");

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
                   column = unit % p->column_units * MICA__CPU_TRANSPOSED_COLUMNS;
    y_block t = {.column = column,
                 .columns =
                     k - column < MICA__CPU_TRANSPOSED_COLUMNS ? k - column : MICA__CPU_TRANSPOSED_COLUMNS};
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
    const uint64_t row = row_unit % p->row_units * MICA__CPU_TRANSPOSED_ROWS;
    t.batch = row_unit / p->row_units;
    t.first = t.batch * p->rows + row;
    t.rows = p->rows - row < MICA__CPU_TRANSPOSED_ROWS ? p->rows - row : MICA__CPU_TRANSPOSED_ROWS;
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
        for (uint64_t j = 0; j < t->columns; j += COLUMNS) {
            const uint64_t count = t->columns - j < COLUMNS ? t->columns - j : COLUMNS;
            float *panel = b + j * n + s * COLUMNS;
            memcpy(panel, values + j, count * sizeof *panel);
            if (count < COLUMNS)
                memset(panel + count, 0, (COLUMNS - count) * sizeof *panel);
        }
    }
}

/* Columns [from, from + n) of the block's rows of x as panels of rows; rows that are not there are zeros. */
static void pack_x(const mica__cpu_args *args, const y_block *t, uint64_t from, uint64_t n, float *a)
{
    const mica__cpu_view *x = &args->view[X];
    float tmp[N_PART];
    for (uint64_t i = 0; i < t->rows; i += ROWS, a += n * ROWS) {
        const uint64_t count = t->rows - i < ROWS ? t->rows - i : ROWS;
        if (count < ROWS)
            memset(a, 0, n * ROWS * sizeof *a);
        for (uint64_t r = 0; r < count; r++) {
            const unsigned char *row = mica__dense_row(x, row_number(t, i + r));
            const float *values = row_f32(row + from * row_element_bytes(x->dtype), x->dtype, n, tmp);
            for (uint64_t s = 0; s < n; s++)
                a[s * ROWS + r] = values[s];
        }
    }
}

static void run_block(const mica__cpu_args *args, const y_block *t)
{
    const mica__cpu_view *w = &args->view[WEIGHT], *y = &args->view[Y];
    const uint64_t n_all = w->shape[w->ndim - 2], panels = (t->rows + ROWS - 1) / ROWS * ROWS;
    float *a = args->local, *b = a + MICA__CPU_TRANSPOSED_ROWS * N_PART, *sums = b + ROOM * N_PART,
          *tmp = sums + MICA__CPU_TRANSPOSED_ROWS * ROOM;
    memset(sums, 0, panels * ROOM * sizeof *sums);
    for (uint64_t from = 0; from < n_all; from += N_PART) {
        const uint64_t n = n_all - from < N_PART ? n_all - from : N_PART;
        pack_weight(args, t, from, n, b, tmp);
        pack_x(args, t, from, n, a);
        for (uint64_t j = 0; j < t->columns; j += COLUMNS)
            for (uint64_t i = 0; i < t->rows; i += ROWS)
                product_tile(a + i * n, b + j * n, n, sums + i * ROOM + j, ROOM);
    }
    for (uint64_t i = 0; i < t->rows; i++)
        row_store(mica__dense_row(y, row_number(t, i)) + t->column * row_element_bytes(y->dtype), y->dtype,
                  sums + i * ROOM, t->columns);
}

void MICA__ISA(matmul_transposed)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    for (uint64_t unit = first; unit < last; unit++) {
        const y_block t = block_of(args, unit);
        if (t.rows != 0)
            run_block(args, &t);
    }
}
