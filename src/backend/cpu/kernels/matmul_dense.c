/*
 * matmul_dense.c - matmul with f32, f16 or bf16 weights, and what fusion may put around it.
 *
 * Few rows of x: they are widened (and normed) into per-thread memory, once per thread, and w is streamed
 * past them. Many: x is packed into scratch by a dispatch of its own, then blocks of y are made by gemm.h.
 * Either way a block of plain f32 results comes out, and one function writes it to y: gate, softcap,
 * residual, rounding.
 */
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/kernels.h"

/* A column block of a weight. */
typedef struct dense_columns {
    uint32_t weight;
    uint64_t first, count;
} dense_columns;

static const mica__cpu_view *weight_view(const mica__cpu_args *args, uint32_t weight, uint32_t part)
{
    return &args->view[MICA__MATMUL_SLOT(weight, part)];
}

/* Rows of w from `column` on, of the matrix that group meets. */
static const unsigned char *weight_rows(const mica__cpu_view *w, uint64_t group, uint64_t column)
{
    const uint64_t matrix = w->ndim > 2 ? group * w->stride[w->ndim - 3] : 0;
    return w->data + matrix + column * w->stride[w->ndim - 2];
}

/* Column block `index`, counted through the weights; `step` is what blocks begin at multiples of. */
static dense_columns columns_of(const mica__cpu_args *args, uint64_t index, uint64_t step)
{
    const mica__dense_params *p = args->params;
    uint32_t weight = 0;
    while (index >= p->column_blocks[weight])
        index -= p->column_blocks[weight++];
    const mica__cpu_view *w = weight_view(args, weight, MICA__WEIGHT_DATA);
    const uint64_t n = w->shape[w->ndim - 2], blocks = p->column_blocks[weight];
    const uint64_t first = mica__dense_step_cut(n, step, blocks, index);
    return (dense_columns){weight, first, mica__dense_step_cut(n, step, blocks, index + 1) - first};
}

static uint64_t column_blocks(const mica__dense_params *p)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < MICA__MAX_WEIGHTS; i++)
        count += p->column_blocks[i];
    return count;
}

/* o = act(o) * up, or softcap(o). */
static void activate(const mica__matmul_record *record, float *o, const float *up, uint64_t n)
{
    if (record->gate == MICA__GATE_NONE && record->softcap == 0)
        return;
    const vf cap = vf_set1(record->softcap);
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t lanes = n - i < VW ? n - i : VW;
        vf v = vf_load_n(o + i, lanes);
        if (record->gate == MICA__GATE_SILU)
            v = vf_mul(vf_silu(v), vf_load_n(up + i, lanes));
        else if (record->gate == MICA__GATE_GELU)
            v = vf_mul(vf_gelu(v), vf_load_n(up + i, lanes));
        if (record->softcap != 0)
            v = vf_softcap(v, cap);
        vf_store_n(o + i, v, lanes);
    }
}

/* Writes results of a column block to their row of y; `up` are those of the second weight of a gate. Both are
 * overwritten. */
static void finish_row(const mica__cpu_args *args, dense_columns c, uint64_t row, float *o, float *up)
{
    const mica__dense_params *p = args->params;
    const mica__cpu_view *y = weight_view(args, c.weight, MICA__WEIGHT_Y),
                         *r = &args->view[MICA__MATMUL_RESIDUAL];
    if (c.weight == 0) {
        activate(&p->matmul, o, up, c.count);
        if (r->data != NULL) {
            const uint64_t stride = r->stride[r->ndim - 1];
            const unsigned char *from = mica__dense_row(r, row) + c.first * stride;
            row_add(o, row_f32_strided(from, r->dtype, stride, c.count, up), c.count, o);
        }
    }
    row_store(mica__dense_row(y, row) + c.first * row_element_bytes(y->dtype), y->dtype, o, c.count);
}

/* Row `row` of x as f32, normed if the record says so: in `work`, or where it lies if it needs nothing. */
static const float *x_row(const mica__cpu_args *args, uint64_t row, const float *norm_weight, float *work)
{
    const mica__dense_params *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__MATMUL_X];
    const float *values = row_f32(mica__dense_row(x, row), x->dtype, p->k, work);
    if (!p->matmul.norm)
        return values;
    row_rms_norm(values, norm_weight, p->matmul.eps, p->k, work);
    return work;
}

/* The norm's weight as f32 at the head of per-thread memory, NULL if there is none; x follows it. */
static const float *norm_weight(const mica__cpu_args *args, float *work)
{
    const mica__dense_params *p = args->params;
    const mica__cpu_view *w = &args->view[MICA__MATMUL_NORM_WEIGHT];
    return w->data != NULL ? row_f32_strided(w->data, w->dtype, w->stride[w->ndim - 1], p->k, work) : NULL;
}

/* ROWS: per-thread memory is the norm's weight, the rows of x, two blocks of results. */
static void load_group(const mica__cpu_args *args, uint64_t group)
{
    const mica__dense_params *p = args->params;
    const uint64_t stride = mica__dense_row_floats(p->k);
    float *local = args->local, *x = local + stride;
    const float *weight = norm_weight(args, local);
    for (uint64_t i = 0; i < p->rows; i++, x += stride) {
        const float *row = x_row(args, group * p->rows + i, weight, x);
        if (row != x)
            memcpy(x, row, p->k * sizeof x[0]);
    }
}

/* All rows of x against rows of w, few of x at a time: w comes from memory once and then from the cache. */
static void rows_dot(const mica__cpu_args *args, uint32_t weight, uint64_t group, dense_columns c, float *out)
{
    const mica__dense_params *p = args->params;
    const mica__cpu_view *w = weight_view(args, weight, MICA__WEIGHT_DATA);
    const uint64_t stride = mica__dense_row_floats(p->k),
                   parts = (p->rows + MICA__DENSE_DOTS - 1) / MICA__DENSE_DOTS;
    const float *x = (const float *)args->local + stride;
    for (uint64_t i = 0; i < parts; i++) {
        const uint64_t row = mica__dense_cut(p->rows, parts, i);
        const gemm_dots dots = {.x = x + row * stride,
                                .x_stride = stride,
                                .k = p->k,
                                .w = weight_rows(w, group, c.first),
                                .w_stride = w->stride[w->ndim - 2],
                                .dtype = w->dtype,
                                .out = out + row * p->block_columns,
                                .ld = p->block_columns};
        gemm_dot(&dots, mica__dense_cut(p->rows, parts, i + 1) - row, c.count);
    }
}

static void rows_unit(const mica__cpu_args *args, uint64_t group, dense_columns c)
{
    const mica__dense_params *p = args->params;
    float *out = (float *)args->local + (1 + p->rows) * mica__dense_row_floats(p->k);
    float *up = out + p->rows * p->block_columns;
    rows_dot(args, c.weight, group, c, out);
    if (p->matmul.gate != MICA__GATE_NONE)
        rows_dot(args, c.weight + 1, group, c, up);
    for (uint64_t i = 0; i < p->rows; i++)
        finish_row(args, c, group * p->rows + i, out + i * p->block_columns, up + i * p->block_columns);
}

static void run_rows(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__dense_params *p = args->params;
    const uint64_t blocks = column_blocks(p);
    uint64_t loaded = p->groups == 1 ? 0 : UINT64_MAX;
    for (uint64_t unit = first; unit < last; unit++) {
        if (unit / blocks != loaded)
            load_group(args, loaded = unit / blocks);
        rows_unit(args, loaded, columns_of(args, unit % blocks, mica__dense_few_step(p->rows)));
    }
}

/* PACK: one of the pieces of a row block. Per-thread memory is the norm's weight, then a row of x. */
static void pack_unit(const mica__cpu_args *args, uint64_t block, uint64_t piece)
{
    const mica__dense_params *p = args->params;
    const uint64_t group = block / p->row_blocks,
                   first = mica__dense_cut(p->rows, p->row_blocks, block % p->row_blocks);
    const uint64_t rows = mica__dense_cut(p->rows, p->row_blocks, block % p->row_blocks + 1) - first;
    const uint64_t panels = gemm_row_panels(rows), steps = gemm_steps(p->k);
    const uint64_t end = mica__dense_cut(panels, p->pieces, piece + 1);
    float *local = args->local, *packed = (float *)(void *)args->view[args->view_count - 1].data;
    const float *weight = norm_weight(args, local);
    for (uint64_t panel = mica__dense_cut(panels, p->pieces, piece); panel < end; panel++) {
        const uint64_t from = mica__dense_cut(rows, panels, panel),
                       to = mica__dense_cut(rows, panels, panel + 1);
        const uint64_t row = group * p->rows + first + from;
        for (uint64_t i = 0; i < to - from; i++) {
            const float *x = x_row(args, row + i, weight, local + mica__dense_row_floats(p->k));
            gemm_pack_row(x, MICA_DTYPE_F32, p->k, (uint32_t)i, (uint32_t)(to - from),
                          packed + row * steps * VW);
        }
    }
}

/* TILES: per-thread memory is the results for each weight of a unit, rows of w, partial sums. */
static void tile_unit(const mica__cpu_args *args, uint64_t block, dense_columns c)
{
    const mica__dense_params *p = args->params;
    const uint64_t index = block % p->row_blocks, first = mica__dense_cut(p->rows, p->row_blocks, index);
    const uint64_t rows = mica__dense_cut(p->rows, p->row_blocks, index + 1) - first;
    const uint64_t group = block / p->row_blocks, row = group * p->rows + first;
    const uint64_t ld = gemm_out_stride(c.count),
                   out_floats = mica__dense_out_floats(p->block_rows, p->block_columns);
    const float *x = (const float *)(const void *)args->view[args->view_count - 1].data;
    float *out = args->local, *up = out + out_floats, *lines = up + out_floats;
    for (uint32_t i = 0; i < (p->matmul.gate != MICA__GATE_NONE ? 2 : 1); i++) {
        const mica__cpu_view *w = weight_view(args, c.weight + i, MICA__WEIGHT_DATA);
        const gemm_block b = {.x = x + row * gemm_steps(p->k) * VW,
                              .rows = rows,
                              .k = p->k,
                              .w = weight_rows(w, group, c.first),
                              .columns = c.count,
                              .w_stride = w->stride[w->ndim - 2],
                              .dtype = w->dtype,
                              .lines = lines,
                              .partial = lines + mica__dense_lines_floats(p->k),
                              .out = i == 0 ? out : up};
        gemm_run(&b);
    }
    for (uint64_t i = 0; i < rows; i++)
        finish_row(args, c, row + i, out + i * ld, up + i * ld);
}

void MICA__ISA(matmul_dense_prepare)(const mica__cpu_args *args)
{
    const mica__dense_params *p = args->params;
    if (p->mode == MICA__DENSE_ROWS && p->groups == 1)
        load_group(args, 0);
}

void MICA__ISA(matmul_dense)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__dense_params *p = args->params;
    const uint64_t blocks = column_blocks(p);
    if (p->mode == MICA__DENSE_ROWS)
        run_rows(args, first, last);
    else if (p->mode == MICA__DENSE_PACK)
        for (uint64_t unit = first; unit < last; unit++)
            pack_unit(args, unit / p->pieces, unit % p->pieces);
    else
        for (uint64_t unit = first; unit < last; unit++)
            tile_unit(args, unit / blocks, columns_of(args, unit % blocks, MICA__DENSE_TILE_STEP));
}
