/*
 * product_codes.c - the product of two matrices of codes of 8 bits with any strides and zero points, in integers that wrap.
 *
 * sum (a - z)(b - w) = sum ab - z sum b - w sum a + K z w, exact in integers that wrap: the tiles multiply codes as they are, and the rest is
 * put in where a block is done. A unit is a block of y; for each part of K rows of a and panels of columns of b are packed.
 */
#include <stdbool.h>

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/product/product_block.h"
#include "backend/cpu/kernels/product/product_codes.h"

#define K_PART MICA__CPU_CODES_K

_Static_assert(K_PART % CODE_STEP == 0 && MICA__CPU_CODES_LEAST % CODE_PANEL == 0,
               "parts are whole steps and panels");
_Static_assert(MICA__CPU_CODES_ROWS % CODE_ROWS == 0, "blocks are whole tiles");

/* A block's memory, `columns` being whole panels. */
typedef struct code_memory {
    left_code *a;   /* rows K_PART apart */
    right_code *b;  /* a panel */
    uint32_t *sums; /* [rows, columns] */
    uint32_t *a_sums, *b_sums, *b_zero;
    uint64_t columns;
} code_memory;

static inline int32_t code_at(const unsigned char *p, bool is_signed)
{
    return is_signed ? (int8_t)*p : *p;
}

static uint32_t zero_at(const unsigned char *p, uint16_t dtype)
{
    uint32_t bits;
    if (dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_U8)
        return (uint32_t)code_at(p, dtype == MICA_DTYPE_I8);
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* Inlined for strides and signs that are constants. */
static inline __attribute__((always_inline)) uint32_t pack_codes(const unsigned char *from, uint64_t stride,
                                                                 bool is_signed, int32_t shift, uint64_t k,
                                                                 left_code *to)
{
    uint32_t sum = 0;
    for (uint64_t s = 0; s < k; s++) {
        const int32_t code = code_at(from + s * stride, is_signed) + shift;
        to[s] = (left_code)code;
        sum += (uint32_t)code;
    }
    return sum;
}

/* Rows [.., from + k) of a, filled up to a whole step, and what they add up to. */
static void pack_a(const product_block *t, uint16_t dtype, uint64_t from, uint64_t k, const code_memory *m)
{
    const bool is_signed = dtype == MICA_DTYPE_I8;
    for (uint64_t i = 0; i < t->rows; i++) {
        const unsigned char *row = t->a + i * t->a_row + from * t->a_k;
        left_code *to = m->a + i * K_PART;
        m->a_sums[i] += t->a_k != 1 ? pack_codes(row, t->a_k, is_signed, left_shift(dtype), k, to)
                        : is_signed ? pack_codes(row, 1, true, left_shift(MICA_DTYPE_I8), k, to)
                                    : pack_codes(row, 1, false, left_shift(MICA_DTYPE_U8), k, to);
        for (uint64_t s = k; s % CODE_STEP != 0; s++)
            to[s] = 0;
    }
}

/* Columns [j, j + CODE_PANEL) of rows [from, from + k) of b; those that are not there are zeros. */
static void pack_panel(const product_block *t, uint16_t dtype, uint64_t from, uint64_t k, uint64_t j,
                       right_code *to)
{
    const bool is_signed = dtype == MICA_DTYPE_I8;
    const unsigned char *b = t->b + from * t->b_k + j * t->b_column;
    const uint64_t columns = t->columns - j < CODE_PANEL ? t->columns - j : CODE_PANEL;
    for (uint64_t s = 0; s < k; s += CODE_STEP, to += CODE_PANEL * CODE_STEP) {
        const uint64_t steps = k - s < CODE_STEP ? k - s : CODE_STEP;
        uint64_t i = 0;
        for (; t->b_column == 1 && steps == CODE_STEP && i + CODE_LANES <= columns; i += CODE_LANES)
            code_interleave(b + s * t->b_k + i, t->b_k, is_signed, to + i * CODE_STEP);
        for (; t->b_k == 1 && steps == CODE_STEP && i < columns; i++)
            code_run(b + s + i * t->b_column, is_signed, to + i * CODE_STEP);
        for (; i < columns; i++)
            for (uint64_t n = 0; n < CODE_STEP; n++)
                to[i * CODE_STEP + n] =
                    n < steps ? (right_code)(code_at(b + (s + n) * t->b_k + i * t->b_column, is_signed) +
                                             right_shift(dtype))
                              : 0;
        if (columns < CODE_PANEL)
            memset(to + columns * CODE_STEP, 0, (CODE_PANEL - columns) * CODE_STEP * sizeof *to);
    }
}

/* What the columns of a panel add up to. */
static void add_columns(const right_code *panel, uint64_t steps, uint32_t *sums)
{
    left_code ones[CODE_STEP];
    uint32_t codes;
    vc sum[CODE_VECTORS];
    for (int i = 0; i < CODE_STEP; i++)
        ones[i] = 1;
    memcpy(&codes, ones, sizeof codes);
    for (int j = 0; j < CODE_VECTORS; j++)
        sum[j] = vc_load(sums + (uint64_t)j * CODE_LANES);
    for (uint64_t s = 0; s < steps; s++)
        for (int j = 0; j < CODE_VECTORS; j++)
            sum[j] = vc_dot(sum[j], vc_spread(codes),
                            vc_load(panel + (s * CODE_PANEL + (uint64_t)j * CODE_LANES) * CODE_STEP));
    for (int j = 0; j < CODE_VECTORS; j++)
        vc_store(sums + (uint64_t)j * CODE_LANES, sum[j]);
}

static code_memory memory_of(const mica__cpu_args *args, const mica__cpu_product *p)
{
    code_memory m = {.a = args->local, .columns = p->block_columns};
    m.b = (right_code *)(m.a + p->block_rows * K_PART);
    m.sums = (uint32_t *)(void *)(m.b + CODE_PANEL * K_PART);
    m.a_sums = m.sums + p->block_rows * m.columns;
    m.b_sums = m.a_sums + p->block_rows;
    m.b_zero = m.b_sums + m.columns;
    return m;
}

/* A row of sums, with what its codes are away from zero points and what is added, to y. */
static void finish_row(const mica__cpu_args *args, const product_block *t, uint64_t row, const code_memory *m)
{
    const uint16_t dtype = args->view[PRODUCT_A].dtype;
    const uint32_t zero =
        (uint32_t)left_shift(dtype) +
        (t->a_zero != NULL ? zero_at(t->a_zero + row * t->a_zero_row, args->view[PRODUCT_A_ZERO].dtype) : 0);
    const uint32_t rest = m->a_sums[row] - (uint32_t)t->k * zero;
    uint32_t *restrict sum = m->sums + row * m->columns;
    const uint32_t *restrict b_sums = m->b_sums, *restrict b_zero = m->b_zero;
    for (uint64_t j = 0; j < t->columns; j++)
        sum[j] -= zero * b_sums[j] + rest * b_zero[j];
    for (uint64_t j = 0; t->add != NULL && j < t->columns; j++)
        sum[j] += zero_at(t->add + row * t->add_row + j * t->add_column, MICA_DTYPE_I32);
    unsigned char *y = t->y + row * t->y_row;
    if (t->y_column == sizeof *sum) {
        memcpy(y, sum, t->columns * sizeof *sum);
        return;
    }
    for (uint64_t j = 0; j < t->columns; j++)
        memcpy(y + j * t->y_column, &sum[j], sizeof *sum);
}

static void run_block(const mica__cpu_args *args, const product_block *t)
{
    const mica__cpu_product *p = args->params;
    const uint16_t a_type = args->view[PRODUCT_A].dtype, b_type = args->view[PRODUCT_B].dtype;
    const code_memory m = memory_of(args, p);
    memset(m.sums, 0, ((t->rows + CODE_ROWS - 1) / CODE_ROWS * CODE_ROWS) * m.columns * sizeof *m.sums);
    memset(m.a_sums, 0, t->rows * sizeof *m.a_sums);
    memset(m.b_sums, 0, m.columns * sizeof *m.b_sums);
    for (uint64_t j = 0; j < t->columns; j++)
        m.b_zero[j] =
            (uint32_t)right_shift(b_type) +
            (t->b_zero != NULL ? zero_at(t->b_zero + j * t->b_zero_column, args->view[PRODUCT_B_ZERO].dtype)
                               : 0);
    for (uint64_t from = 0; from < t->k; from += K_PART) {
        const uint64_t k = t->k - from < K_PART ? t->k - from : K_PART,
                       steps = (k + CODE_STEP - 1) / CODE_STEP;
        pack_a(t, a_type, from, k, &m);
        for (uint64_t j = 0; j < t->columns; j += CODE_PANEL) {
            pack_panel(t, b_type, from, k, j, m.b);
            add_columns(m.b, steps, m.b_sums + j);
            for (uint64_t i = 0; i < t->rows; i += CODE_ROWS)
                code_tile(m.a + i * K_PART, K_PART, m.b, steps, m.sums + i * m.columns + j, m.columns);
        }
    }
    for (uint64_t i = 0; i < t->rows; i++)
        finish_row(args, t, i, &m);
}

void MICA__ISA(product_codes)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_product *params = args->params;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    for (uint64_t number = mica__cpu_rows_begin(&params->range, first); number < end; number++) {
        const product_block t = product_block_of(args, params, number);
        run_block(args, &t);
    }
}
