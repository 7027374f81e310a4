/*
 * product.c - the product of two dense matrices with any strides. Every element of y is one sum in rising k, so that the blocks
 * below, which keep operands near, change no bit.
 *
 * A unit is a block of y. For each part of K both operands are packed: panels of ROWS rows of a and of COLUMNS columns of b, k by k,
 * and a tile multiplies two panels into the block's sums. Of few rows the sums take b where it lies.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/product/product_block.h"
#include "backend/cpu/kernels/product/product_pack.h"
#include "backend/cpu/kernels/rows.h"

#define K_PART 256 /* a panel of b stays in the first-level cache, the block's in the second */

_Static_assert(MICA__CPU_PRODUCT_ROWS % VW == 0, "blocks are whole panels");
_Static_assert(MICA__CPU_PRODUCT_COLUMNS % COLUMNS == 0, "blocks are whole panels");
_Static_assert(MICA__CPU_PRODUCT_K == K_PART, "the plan reserves the memory");

/* ---- floats ---- */

/* A row of sums, with what is added to it, to y. */
static void store_row(const product_block *t, uint16_t add_type, uint16_t y_type, uint64_t row, float *sums)
{
    const unsigned char *add = t->add != NULL ? t->add + row * t->add_row : NULL;
    unsigned char *y = t->y + row * t->y_row;
    for (uint64_t j = 0; add != NULL && j < t->columns; j++)
        sums[j] += row_element(add + j * t->add_column, add_type);
    if (t->y_column == row_element_bytes(y_type) || t->columns == 1) {
        row_store(y, y_type, sums, t->columns);
        return;
    }
    for (uint64_t j = 0; j < t->columns; j++)
        row_store_n(y + j * t->y_column, y_type, vf_load_n(sums + j, 1), 1);
}

static void float_block(const mica__cpu_args *args, const product_block *t)
{
    const uint64_t ld = MICA__CPU_PRODUCT_COLUMNS;
    float *a = args->local, *b = a + MICA__CPU_PRODUCT_ROWS * K_PART, *sums = b + ld * K_PART;
    /* with a tile's rows that are not there, which add zeros */
    memset(sums, 0, (t->rows + ROWS - 1) / ROWS * ROWS * ld * sizeof *sums);
    for (uint64_t from = 0; from < t->k; from += K_PART) {
        const uint64_t k = t->k - from < K_PART ? t->k - from : K_PART;
        const product_lines rows = {t->a + from * t->a_k,       t->a_row, t->a_k, t->rows, k,
                                    args->view[PRODUCT_A].dtype},
                            columns = {t->b + from * t->b_k, t->b_column, t->b_k,
                                       t->columns,           k,           args->view[PRODUCT_B].dtype};
        pack_lines(&rows, ROWS, a);
        if (product_few(a, &columns, t->rows, sums, ld))
            continue;
        for (uint64_t j = 0; j < t->columns; j += COLUMNS) {
            product_lines panel = columns;
            panel.from += j * t->b_column;
            panel.count = t->columns - j < COLUMNS ? t->columns - j : COLUMNS;
            pack_lines(&panel, COLUMNS, b + j * k);
            for (uint64_t i = 0; i < t->rows; i += ROWS)
                product_tile(a + i * k, b + j * k, k, sums + i * ld + j, ld);
        }
    }
    for (uint64_t i = 0; i < t->rows; i++)
        store_row(t, args->view[PRODUCT_ADD].dtype, args->view[PRODUCT_Y].dtype, i, sums + i * ld);
}

/* ---- doubles: one sum after the other ---- */

static double double_at(const unsigned char *p)
{
    double value;
    memcpy(&value, p, sizeof value);
    return value;
}

static void double_block(const product_block *t)
{
    for (uint64_t i = 0; i < t->rows; i++) {
        for (uint64_t j = 0; j < t->columns; j++) {
            const unsigned char *a = t->a + i * t->a_row, *b = t->b + j * t->b_column;
            double sum = 0;
            for (uint64_t s = 0; s < t->k; s++, a += t->a_k, b += t->b_k)
                sum += double_at(a) * double_at(b);
            if (t->add != NULL)
                sum += double_at(t->add + i * t->add_row + j * t->add_column);
            memcpy(t->y + i * t->y_row + j * t->y_column, &sum, sizeof sum);
        }
    }
}

/* ---- integers of 32 bits ---- */

/* As bits of an i32, which wrap. */
static inline uint32_t whole_at(const unsigned char *p, uint16_t dtype)
{
    uint32_t bits;
    if (dtype == MICA_DTYPE_I8)
        return (uint32_t)(int32_t)(int8_t)*p;
    if (dtype == MICA_DTYPE_U8)
        return *p;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* `count` values, `stride` bytes apart, less `zero`. */
static void widen(const unsigned char *from, uint16_t dtype, uint64_t stride, uint64_t count, uint32_t zero,
                  uint32_t *to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = whole_at(from + i * stride, dtype) - zero;
}

/* Columns of b, k by k, each less its zero point. */
static void widen_columns(const mica__cpu_args *args, const product_block *t, uint64_t from, uint64_t k,
                          uint32_t *to)
{
    const uint16_t dtype = args->view[PRODUCT_B].dtype, zero_type = args->view[PRODUCT_B_ZERO].dtype;
    uint32_t zero[MICA__CPU_PRODUCT_COLUMNS] = {0};
    if (t->b_zero != NULL)
        widen(t->b_zero, zero_type, t->b_zero_column, t->columns, 0, zero);
    for (uint64_t s = 0; s < k; s++, to += MICA__CPU_PRODUCT_COLUMNS) {
        widen(t->b + (from + s) * t->b_k, dtype, t->b_column, t->columns, 0, to);
        for (uint64_t j = 0; j < t->columns; j++)
            to[j] -= zero[j];
    }
}

static void whole_block(const mica__cpu_args *args, const product_block *t)
{
    const uint64_t ld = MICA__CPU_PRODUCT_COLUMNS;
    uint32_t *a = args->local, *b = a + MICA__CPU_PRODUCT_ROWS * K_PART, *sums = b + ld * K_PART;
    for (uint64_t i = 0; i < t->rows; i++)
        for (uint64_t j = 0; j < t->columns; j++)
            sums[i * ld + j] =
                t->add == NULL ? 0 : whole_at(t->add + i * t->add_row + j * t->add_column, MICA_DTYPE_I32);
    for (uint64_t from = 0; from < t->k; from += K_PART) {
        const uint64_t k = t->k - from < K_PART ? t->k - from : K_PART;
        widen_columns(args, t, from, k, b);
        for (uint64_t i = 0; i < t->rows; i++) {
            uint32_t *restrict sum = sums + i * ld;
            const uint32_t zero =
                t->a_zero == NULL ? 0
                                  : whole_at(t->a_zero + i * t->a_zero_row, args->view[PRODUCT_A_ZERO].dtype);
            widen(t->a + i * t->a_row + from * t->a_k, args->view[PRODUCT_A].dtype, t->a_k, k, zero, a);
            for (uint64_t s = 0; s < k; s++)
                for (uint64_t j = 0; j < t->columns; j++)
                    sum[j] += a[s] * b[s * ld + j];
        }
    }
    for (uint64_t i = 0; i < t->rows; i++)
        for (uint64_t j = 0; j < t->columns; j++)
            memcpy(t->y + i * t->y_row + j * t->y_column, &sums[i * ld + j], sizeof sums[0]);
}

void MICA__ISA(product)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_product *params = args->params;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    for (uint64_t number = mica__cpu_rows_begin(&params->range, first); number < end; number++) {
        const product_block t = product_block_of(args, params, number);
        switch (args->view[PRODUCT_A].dtype) {
        case MICA_DTYPE_F64: double_block(&t); break;
        case MICA_DTYPE_I32: whole_block(args, &t); break;
        default: float_block(args, &t); break;
        }
    }
}
