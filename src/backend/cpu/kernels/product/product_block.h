/*
 * product_block.h - a block of y of a product, and where the operands that make it lie. Shared by its kernels.
 */
#ifndef MICA_CPU_PRODUCT_BLOCK_H
#define MICA_CPU_PRODUCT_BLOCK_H

#include "backend/cpu/cpu_params.h"

enum {
    PRODUCT_A = MICA__PRODUCT_A,
    PRODUCT_B = MICA__PRODUCT_B,
    PRODUCT_ADD = MICA__PRODUCT_ADD,
    PRODUCT_A_ZERO = MICA__PRODUCT_A_ZERO,
    PRODUCT_B_ZERO = MICA__PRODUCT_B_ZERO,
    PRODUCT_Y = MICA__PRODUCT_Y
};

/* One block of y: where its operands begin, in bytes, and how large it is. */
typedef struct product_block {
    const unsigned char *a, *b, *add, *a_zero, *b_zero;
    unsigned char *y;
    uint64_t a_row, a_k, b_k, b_column, add_row, add_column, a_zero_row, b_zero_column, y_row, y_column;
    uint64_t rows, columns, k;
} product_block;

/* Bytes between neighbours along dimension `back` from the last; 0 where the operand repeats. */
static inline uint64_t stride_back(const mica__cpu_view *view, uint32_t back)
{
    const uint32_t d = view->ndim - 1u - back;
    return back < view->ndim && view->shape[d] != 1 ? view->stride[d] : 0;
}

/* The same of an operand that may be absent. */
static inline uint64_t optional_stride(const mica__cpu_view *view, uint32_t back)
{
    return view->data != NULL ? stride_back(view, back) : 0;
}

static inline product_block product_block_of(const mica__cpu_args *args, const mica__cpu_product *p,
                                             uint64_t number)
{
    const mica__cpu_view *view = args->view, *y = &view[PRODUCT_Y];
    const uint64_t m = y->shape[y->ndim - 2], n = y->shape[y->ndim - 1];
    const uint64_t column = number % p->column_blocks * p->block_columns,
                   row = number / p->column_blocks % p->row_blocks * p->block_rows;
    uint64_t batch = number / p->column_blocks / p->row_blocks, at[PRODUCT_Y + 1];
    product_block t = {.a_row = stride_back(&view[PRODUCT_A], 1),
                       .a_k = stride_back(&view[PRODUCT_A], 0),
                       .b_k = stride_back(&view[PRODUCT_B], 1),
                       .b_column = stride_back(&view[PRODUCT_B], 0),
                       .add_row = optional_stride(&view[PRODUCT_ADD], 1),
                       .add_column = optional_stride(&view[PRODUCT_ADD], 0),
                       .a_zero_row = optional_stride(&view[PRODUCT_A_ZERO], 1),
                       .b_zero_column = optional_stride(&view[PRODUCT_B_ZERO], 0),
                       .y_row = stride_back(y, 1),
                       .y_column = stride_back(y, 0),
                       .rows = m - row < p->block_rows ? m - row : p->block_rows,
                       .columns = n - column < p->block_columns ? n - column : p->block_columns,
                       .k = view[PRODUCT_A].shape[view[PRODUCT_A].ndim - 1]};
    at[PRODUCT_A] = row * t.a_row;
    at[PRODUCT_B] = column * t.b_column;
    at[PRODUCT_ADD] = row * t.add_row + column * t.add_column;
    at[PRODUCT_A_ZERO] = row * t.a_zero_row;
    at[PRODUCT_B_ZERO] = column * t.b_zero_column;
    at[PRODUCT_Y] = row * t.y_row + column * t.y_column;
    for (uint32_t back = 2; back < y->ndim; back++) {
        const uint64_t size = y->shape[y->ndim - 1u - back], index = batch % size;
        for (uint32_t v = PRODUCT_A; v <= PRODUCT_Y; v++)
            at[v] += index * optional_stride(&view[v], back);
        batch /= size;
    }
    t.a = view[PRODUCT_A].data + at[PRODUCT_A];
    t.b = view[PRODUCT_B].data + at[PRODUCT_B];
    t.add = view[PRODUCT_ADD].data != NULL ? view[PRODUCT_ADD].data + at[PRODUCT_ADD] : NULL;
    t.a_zero = view[PRODUCT_A_ZERO].data != NULL ? view[PRODUCT_A_ZERO].data + at[PRODUCT_A_ZERO] : NULL;
    t.b_zero = view[PRODUCT_B_ZERO].data != NULL ? view[PRODUCT_B_ZERO].data + at[PRODUCT_B_ZERO] : NULL;
    t.y = view[PRODUCT_Y].data + at[PRODUCT_Y];
    return t;
}

#endif
