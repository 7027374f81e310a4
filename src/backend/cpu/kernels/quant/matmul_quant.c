/*
 * matmul_quant.c - matmul with quantised weights: up to four that share x, with what fusion hangs on either end.
 *
 * Few rows of x: every thread normalises and quantises them for itself before its first unit. More: the kernel
 * matmul_activation has done so. The bits are the same.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/quant/matmul_quant.h"
#include "backend/cpu/kernels/quant/quant_activation.h"
#include "backend/cpu/kernels/quant/quant_rows.h"

/* Units that follow each other in one weight and share their rows of x, with their place in per-thread memory. */
typedef struct unit {
    uint32_t weight;
    uint64_t blocks;          /* units left */
    uint64_t group;           /* of rows of x, and which weight matrix */
    uint64_t row;             /* first row of the weight, of the first panel */
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

static unit unit_at(const mica__cpu_args *args, uint64_t index, uint64_t last)
{
    const mica__matmul_quant_params *p = args->params;
    const uint32_t weights = p->matmul.gate != MICA__GATE_NONE ? 1 : p->matmul.weight_count;
    const uint64_t blocks = p->end_block[weights - 1], block = index % blocks, columns = index / blocks;
    const uint64_t first = columns % p->column_blocks * p->columns;
    unit u = {0};
    while (block >= p->end_block[u.weight])
        u.weight++;
    u.row = (block - (u.weight > 0 ? p->end_block[u.weight - 1] : 0)) * MICA__PACKED_ROWS;
    u.blocks = p->end_block[u.weight] - block < last - index ? p->end_block[u.weight] - block : last - index;
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

/* A weight and the form in which it reads the unit's rows of x. */
typedef struct factor {
    mica__quant_weight weight;
    bool f32;
} factor;

static factor factor_of(const mica__cpu_args *args, const unit *u, uint32_t weight)
{
    const mica__matmul_quant_params *p = args->params;
    const mica__cpu_view *part = &args->view[MICA__MATMUL_SLOT(weight, 0)];
    const factor f = {mica__quant_weight_of(&part[MICA__WEIGHT_DATA], &part[MICA__WEIGHT_SCALES],
                                            &part[MICA__WEIGHT_BIASES], u->group),
                      p->form[weight] == MICA__QUANT_F32};
    return f;
}

static void multiply(const mica__cpu_args *args, const unit *u, const factor *f, float *result)
{
    const mica__matmul_quant_params *p = args->params;
    const uint32_t activations = MICA__MATMUL_OPERANDS(p->matmul.weight_count);
    const unsigned char *rows = p->prepared ? args->local : args->view[activations].data;
    const uint64_t row_bytes = mica__quant_activation_bytes(&p->activation);
    rows += u->column * row_bytes + (f->f32 ? mica__quant_f32_offset(&p->activation) : 0);
    for (uint64_t c = 0; c < u->columns; c++)
        u->x[c] = rows + c * row_bytes;
    if (f->f32)
        MICA__ISA(quant_rows_f32)(&f->weight, u->row, u->x, u->columns, u->work, result);
    else
        MICA__ISA(quant_rows_q8)(&f->weight, u->row, u->x, u->columns, u->work, result);
}

/* The sixteen values `o` as fusion asked for; `up` are those of a gate's second weight. `residual` is NULL or sixteen too. */
static void finish(const mica__matmul_record *m, float *o, const float *up, const float *residual)
{
    if (m->gate == MICA__GATE_NONE && m->softcap == 0 && residual == NULL)
        return;
    for (uint64_t i = 0; i < MICA__QUANT_ROWS; i += VW) {
        vf v = vf_load(o + i);
        if (m->gate != MICA__GATE_NONE)
            v = vf_mul(m->gate == MICA__GATE_SILU ? vf_silu(v) : vf_gelu(v), vf_load(up + i));
        if (m->softcap != 0)
            v = vf_softcap(v, vf_set1(m->softcap));
        if (residual != NULL)
            v = vf_add(v, vf_load(residual + i));
        vf_store(o + i, v);
    }
}

static void store(const mica__cpu_args *args, const unit *u)
{
    static const mica__matmul_record plain = {0};
    const mica__matmul_quant_params *p = args->params;
    const mica__cpu_view *y = &args->view[MICA__MATMUL_SLOT(u->weight, MICA__WEIGHT_Y)];
    const mica__cpu_view *residual = &args->view[MICA__MATMUL_RESIDUAL];
    const bool add = u->weight == 0 && residual->data != NULL;
    const uint64_t n = y->shape[y->ndim - 1u];
    for (uint64_t c = 0; c < u->columns; c++) {
        float *o = u->result[0] + c * MICA__QUANT_ROWS, r[MICA__QUANT_ROWS] = {0};
        if (add)
            quant_load_unit(quant_row_at(residual, u->column + c), residual->dtype, n, u->row, r);
        finish(u->weight == 0 ? &p->matmul : &plain, o, u->result[1] + c * MICA__QUANT_ROWS, add ? r : NULL);
        quant_store_unit(quant_row_at(y, u->column + c), y->dtype, n, u->row, o);
    }
}

void MICA__ISA(matmul_quant)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__matmul_quant_params *p = args->params;
    const bool gate = p->matmul.gate != MICA__GATE_NONE;
    for (uint64_t index = first; index < last;) {
        unit u = unit_at(args, index, last);
        const factor f = factor_of(args, &u, u.weight), up = factor_of(args, &u, gate ? 1 : u.weight);
        index += u.blocks;
        for (; u.blocks > 0; u.blocks--, u.row += MICA__PACKED_ROWS) {
            multiply(args, &u, &f, u.result[0]);
            if (gate)
                multiply(args, &u, &up, u.result[1]);
            store(args, &u);
        }
    }
}
