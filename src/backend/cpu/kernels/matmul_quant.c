/*
 * matmul_quant.c - matmul with quantised weights: up to four that share x, with what fusion hangs on either end.
 *
 * Few rows of x: every thread normalises and quantises them for itself before its first unit. More: the kernel
 * matmul_activation has done so. The bits are the same.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/matmul_quant.h"
#include "backend/cpu/kernels/quant_activation.h"
#include "backend/cpu/kernels/quant_rows.h"

/* A unit with its place in per-thread memory. */
typedef struct unit {
    uint32_t weight;
    uint64_t group;           /* of rows of x, and which weight matrix */
    uint64_t row;             /* first row of the weight */
    uint64_t column, columns; /* rows of x, numbered over all groups */
    const void **x;           /* [columns] */
    float *result[2];         /* [columns][16] */
    unsigned char *work;
} unit;

static uint64_t prepared_bytes(const mica__matmul_quant_params *p)
{
    return p->prepared ? p->groups * p->rows * mica__quant_activation_bytes(&p->activation) : 0;
}

void MICA__ISA(matmul_quant_prepare)(const mica__cpu_args *args)
{
    const mica__matmul_quant_params *p = args->params;
    if (!p->prepared)
        return;
    unsigned char *local = args->local;
    float *tmp = (float *)(void *)(local + prepared_bytes(p)); /* where the units will work */
    for (uint64_t r = 0; r < p->groups * p->rows; r++)
        quant_activate(&p->activation, &args->view[MICA__MATMUL_X], &args->view[MICA__MATMUL_NORM_WEIGHT], r,
                       tmp, local + r * mica__quant_activation_bytes(&p->activation));
}

static unit unit_at(const mica__cpu_args *args, uint64_t index)
{
    const mica__matmul_quant_params *p = args->params;
    const uint32_t weights = p->matmul.gate != MICA__GATE_NONE ? 1 : p->matmul.weight_count;
    const uint64_t blocks = p->end_block[weights - 1], block = index % blocks, columns = index / blocks;
    const uint64_t first = columns % p->column_blocks * p->columns;
    unit u = {0};
    while (block >= p->end_block[u.weight])
        u.weight++;
    u.row = (block - (u.weight > 0 ? p->end_block[u.weight - 1] : 0)) * MICA__QUANT_ROWS;
    u.group = columns / p->column_blocks;
    u.column = u.group * p->rows + first;
    u.columns = p->rows - first < p->columns ? p->rows - first : p->columns;
    unsigned char *local = (unsigned char *)args->local + prepared_bytes(p);
    u.x = (const void **)(void *)local;
    u.result[0] = (float *)(void *)(local + mica__quant_results_offset(p->columns));
    u.result[1] = u.result[0] + (uint64_t)p->columns * MICA__QUANT_ROWS;
    u.work = local + mica__quant_work_offset(p->columns);
    return u;
}

static mica__quant_weight weight_of(const mica__cpu_args *args, const unit *u, uint32_t weight)
{
    const mica__cpu_view *part = &args->view[MICA__MATMUL_SLOT(weight, 0)];
    return mica__quant_weight_of(&part[MICA__WEIGHT_DATA], &part[MICA__WEIGHT_SCALES],
                                 &part[MICA__WEIGHT_BIASES], u->group);
}

static void multiply(const mica__cpu_args *args, unit *u, uint32_t weight, float *result)
{
    const mica__matmul_quant_params *p = args->params;
    const mica__quant_weight w = weight_of(args, u, weight);
    const uint32_t activations = MICA__MATMUL_SLOTS(p->matmul.weight_count);
    const unsigned char *rows = p->prepared ? args->local : args->view[activations].data;
    const uint64_t row_bytes = mica__quant_activation_bytes(&p->activation);
    const bool f32 = p->form[weight] == MICA__QUANT_F32;
    rows += u->column * row_bytes + (f32 ? mica__quant_f32_offset(&p->activation) : 0);
    for (uint64_t c = 0; c < u->columns; c++)
        u->x[c] = rows + c * row_bytes;
    if (f32)
        MICA__ISA(quant_rows_f32)(&w, u->row, u->x, u->columns, u->work, result);
    else
        MICA__ISA(quant_rows_q8)(&w, u->row, u->x, u->columns, u->work, result);
}

/* The values of one row of y as fusion asked for, in `o` [16]. `residual` is NULL or the same place of that operand. */
static void finish(const mica__matmul_record *m, float *o, const float *up, const unsigned char *residual,
                   uint16_t residual_dtype, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t lanes = n - i < VW ? n - i : VW;
        vf v = vf_load(o + i);
        if (m->gate != MICA__GATE_NONE)
            v = vf_mul(m->gate == MICA__GATE_SILU ? vf_silu(v) : vf_gelu(v), vf_load(up + i));
        if (m->softcap != 0)
            v = vf_softcap(v, vf_set1(m->softcap));
        if (residual != NULL)
            v = vf_add(v,
                       row_load_n(residual + i * row_element_bytes(residual_dtype), residual_dtype, lanes));
        vf_store(o + i, v);
    }
}

static void store(const mica__cpu_args *args, const unit *u)
{
    const mica__matmul_quant_params *p = args->params;
    const mica__cpu_view *y = &args->view[MICA__MATMUL_SLOT(u->weight, MICA__WEIGHT_Y)];
    const mica__cpu_view *residual = &args->view[MICA__MATMUL_RESIDUAL];
    const bool plain = u->weight > 0 || (p->matmul.gate == MICA__GATE_NONE && p->matmul.softcap == 0 &&
                                         residual->data == NULL);
    const uint64_t left = y->shape[y->ndim - 1u] - u->row,
                   n = left < MICA__QUANT_ROWS ? left : MICA__QUANT_ROWS;
    for (uint64_t c = 0; c < u->columns; c++) {
        float *o = u->result[0] + c * MICA__QUANT_ROWS;
        const unsigned char *r = NULL;
        if (!plain && residual->data != NULL)
            r = quant_row_at(residual, u->column + c) + u->row * row_element_bytes(residual->dtype);
        if (!plain)
            finish(&p->matmul, o, u->result[1] + c * MICA__QUANT_ROWS, r, residual->dtype, n);
        row_store(quant_row_at(y, u->column + c) + u->row * row_element_bytes(y->dtype), y->dtype, o, n);
    }
}

void MICA__ISA(matmul_quant)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__matmul_quant_params *p = args->params;
    for (uint64_t index = first; index < last; index++) {
        unit u = unit_at(args, index);
        multiply(args, &u, u.weight, u.result[0]);
        if (p->matmul.gate != MICA__GATE_NONE)
            multiply(args, &u, 1, u.result[1]);
        store(args, &u);
    }
}
