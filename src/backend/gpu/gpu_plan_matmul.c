/*
 * gpu_plan_matmul.c - plans of matmul: x made ready once, then few rows by matvec.kc, many by matmul.kc.
 *
 * Weights that are alike share a dispatch of matvec.kc; the two of a gate always do if they are, and else leave their sums in
 * the scratch for gate.kc.
 */
#include <string.h>

#include "backend/gpu/gpu_plan_weight.h"
#include "base/status.h"

_Static_assert(MK_MATVEC_WEIGHTS == MICA__MAX_WEIGHTS, "weights of a record");

typedef struct matmul_job {
    const mica__record *record;
    const mica__device_info *info;
    const mica__matmul_record *matmul;
    mica__plan *plan;
    uint64_t batches, rows; /* weights of a batch, rows of x for each */
    mica__gpu_rows views;
    uint32_t x_view, residual_view, y_view[MICA__MAX_WEIGHTS];
    mica__gpu_activation activation;
    bool few, direct; /* by matvec.kc; x is read where it lies */
    bool apart;       /* a gate of two types: sums go to the scratch first */
} matmul_job;

static uint32_t weight_slot(uint32_t i)
{
    return (uint32_t)MICA__MATMUL_SLOT(i, MICA__WEIGHT_DATA);
}

static const mica__operand *weight_of(const matmul_job *j, uint32_t i)
{
    return &j->record->operand[weight_slot(i)];
}

static const mica__operand *y_of(const matmul_job *j, uint32_t i)
{
    return &j->record->operand[MICA__MATMUL_SLOT(i, MICA__WEIGHT_Y)];
}

static bool takes_codes(const matmul_job *j, uint32_t i)
{
    return mica__gpu_weight_takes_codes(weight_of(j, i), j->matmul->precision);
}

static bool reads_codes(const matmul_job *j, uint32_t i)
{
    return j->few && mica__gpu_weight_reads_codes(weight_of(j, i), j->matmul->precision);
}

/* All weights are floats: fusion never mixes them with others. */
static bool is_dense(const matmul_job *j)
{
    return mica__gpu_is_float(weight_of(j, 0)->dtype);
}

static mica_status check(const matmul_job *j)
{
    uint32_t floats = 1u << MICA__MATMUL_X | 1u << MICA__MATMUL_NORM_WEIGHT | 1u << MICA__MATMUL_RESIDUAL;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < j->matmul->weight_count && status == MICA_OK; i++) {
        floats |= 1u << MICA__MATMUL_SLOT(i, MICA__WEIGHT_Y);
        status = mica__gpu_weight_check(j->record, weight_of(j, i));
    }
    return status == MICA_OK ? mica__gpu_check_floats(j->record, floats) : status;
}

/* Which forms of x the weights want. */
static uint32_t forms_of(const matmul_job *j)
{
    uint32_t forms = 0;
    for (uint32_t i = 0; i < j->matmul->weight_count; i++) {
        if (takes_codes(j, i))
            forms |= reads_codes(j, i) ? MK_FORM_CODES : MK_FORM_ROUNDED;
        else if (!j->direct)
            forms |= MK_FORM_PLAIN;
    }
    return forms;
}

/* Tiles of rows and weights of a batch are dimensions of the grid of matmul.kc, and those end. matvec.kc has room for all. */
static bool overflows(const matmul_job *j)
{
    return j->batches > MICA__GPU_MOST_GROUPS_YZ ||
           (j->rows + MK_TILE - 1) / MK_TILE > MICA__GPU_MOST_GROUPS_YZ;
}

static mica_status look(matmul_job *j)
{
    const mica__operand *x = &j->record->operand[MICA__MATMUL_X], *w = weight_of(j, 0);
    const mica__operand *residual = &j->record->operand[MICA__MATMUL_RESIDUAL];
    j->x_view = mica__gpu_rows_add(&j->views, x);
    if (mica__operand_present(residual))
        j->residual_view = mica__gpu_rows_add(&j->views, residual);
    for (uint32_t i = 0; i < j->matmul->weight_count; i++)
        if (mica__operand_present(y_of(j, i)))
            j->y_view[i] = mica__gpu_rows_add(&j->views, y_of(j, i));
    const mica_status status = mica__gpu_rows_merge(&j->views, j->record);
    if (status != MICA_OK)
        return status;
    j->batches = w->ndim == 3 ? w->shape[0] : 1;
    j->rows = j->views.rows / j->batches;
    j->few = j->rows <= MK_MATVEC_ROWS || overflows(j);
    j->direct = j->rows == 1 && j->matmul->norm == 0 && j->views.view[0].ndim <= 1 && is_dense(j);
    j->apart = j->matmul->gate != MICA__GATE_NONE && !mica__gpu_weight_alike(w, weight_of(j, 1));
    j->activation = mica__gpu_activation_of(j->views.rows, x->shape[x->ndim - 1], forms_of(j));
    return MICA_OK;
}

/* Bytes of the sums of one side of a gate of two types, and where they lie. */
static uint64_t sums_bytes(const matmul_job *j)
{
    return j->views.rows * weight_of(j, 0)->shape[0] * sizeof(float);
}

static uint64_t sums_at(const matmul_job *j, uint32_t i)
{
    return j->activation.end + i * ((sums_bytes(j) + 63) / 64 * 64);
}

/* y of weight i, or its sums where a gate joins them later. Strides and type go where they belong. */
static void bind_y(const matmul_job *j, uint32_t i)
{
    if (j->apart)
        mica__gpu_plan_scratch(j->plan, sums_at(j, i), sums_bytes(j), MICA_ACCESS_WRITE);
    else
        mica__gpu_plan_operand(j->plan, j->record, (uint32_t)MICA__MATMUL_SLOT(i, MICA__WEIGHT_Y), 0);
}

static void y_strides(const matmul_job *j, uint32_t i, mk_u64 stride[MK_ROW_DIMS], mk_u32 *out_type)
{
    mk_u32 shape[MK_ROW_DIMS], ndim;
    *out_type = j->apart ? (uint32_t)MICA__MK_F32 : mica__gpu_type(y_of(j, i)->dtype);
    if (!j->apart) {
        mica__gpu_rows_strides(&j->views, j->y_view[i], stride);
        return;
    }
    mica__gpu_rows_shape(&j->views, shape, &ndim);
    uint64_t bytes = weight_of(j, 0)->shape[0] * sizeof(float);
    for (uint32_t d = MK_ROW_DIMS; d-- > 0; bytes *= shape[d])
        stride[d] = bytes;
}

/* Binds rows of x as floats, as weight i wants them; gives their stride. */
static uint64_t bind_x(const matmul_job *j, uint32_t i, mk_u32 *out_type)
{
    const mica__gpu_activation *a = &j->activation;
    const mica__operand *x = &j->record->operand[MICA__MATMUL_X];
    *out_type = MICA__MK_F32;
    if (j->direct) {
        mica__gpu_plan_operand(j->plan, j->record, MICA__MATMUL_X, 0);
        *out_type = mica__gpu_type(x->dtype);
        return j->views.view[0].ndim == 0 ? 0 : j->views.view[0].stride[0];
    }
    mica__gpu_plan_scratch(j->plan, takes_codes(j, i) ? a->rounded : a->plain,
                           a->rows * a->padded * sizeof(float), MICA_ACCESS_READ);
    return a->padded * sizeof(float);
}

/* ---- few rows ---- */

/* Sides [first, first + count) of the record, all alike, as the sides of one dispatch; gives its groups. */
static uint32_t fill_sides(const matmul_job *j, uint32_t first, uint32_t count, mk_matvec_params *p)
{
    const bool gate = j->matmul->gate != MICA__GATE_NONE && !j->apart;
    uint32_t groups = 0;
    p->slice_bits = mica__gpu_weight_slice_bits(weight_of(j, first), j->info);
    memset(p->end_group, 0xff, sizeof p->end_group);
    for (uint32_t s = 0; s < count; s++) {
        const mica__operand *w = weight_of(j, first + s);
        const uint64_t n = w->shape[w->ndim - 2];
        p->weight_stride[s] = w->stride[w->ndim - 2];
        if (mica__operand_present(&w[MICA__WEIGHT_SCALES]))
            p->scale_stride[s] = w[MICA__WEIGHT_SCALES].stride[w->ndim - 2];
        if (mica__operand_present(&w[MICA__WEIGHT_BIASES]))
            p->bias_stride[s] = w[MICA__WEIGHT_BIASES].stride[w->ndim - 2];
        if (!gate || s == 0)
            groups += mica__gpu_weight_groups((uint32_t)(gate ? n : (n + 1) / 2), p->slice_bits);
        if (!gate && s + 1 < count)
            p->end_group[s] = groups;
        p->n[s] = (uint32_t)n;
        if (mica__operand_present(y_of(j, first + s)) || j->apart)
            y_strides(j, first + s, p->y_stride[s], &p->y_type[s]);
    }
    return groups;
}

/* Gives the groups of the dispatch. */
static uint32_t fill_matvec(const matmul_job *j, uint32_t first, uint32_t count, mk_matvec_params *p)
{
    const mica__operand *w = weight_of(j, first);
    const bool last_words = first == 0 && !j->apart; /* softcap, residual and gate are of y_0 */
    memset(p, 0, sizeof *p);
    p->weight = mica__gpu_weight_describe(w);
    const uint32_t groups = fill_sides(j, first, count, p);
    if (w->ndim == 3) {
        p->weight_batch = w->stride[0];
        p->scale_batch =
            mica__operand_present(&w[MICA__WEIGHT_SCALES]) ? w[MICA__WEIGHT_SCALES].stride[0] : 0;
        p->bias_batch = mica__operand_present(&w[MICA__WEIGHT_BIASES]) ? w[MICA__WEIGHT_BIASES].stride[0] : 0;
    }
    mica__gpu_rows_shape(&j->views, p->shape, &p->ndim);
    /* at most, and as many for everybody */
    p->rows = is_dense(j) || reads_codes(j, first) ? MK_MATVEC_ROWS : 1;
    while (j->rows % p->rows != 0)
        p->rows--;
    p->share = (uint32_t)(j->rows / p->rows);
    p->batches = (uint32_t)j->batches * p->share;
    if (last_words) {
        p->gate = j->matmul->gate;
        p->softcap = j->matmul->softcap;
    }
    if (last_words && mica__operand_present(&j->record->operand[MICA__MATMUL_RESIDUAL])) {
        p->has_residual = 1;
        p->residual_type = mica__gpu_type(j->record->operand[MICA__MATMUL_RESIDUAL].dtype);
        mica__gpu_rows_strides(&j->views, j->residual_view, p->residual_stride);
    }
    return groups;
}

/* Binds side s of the dispatch: weight i, or in its place weight `first`, which is not read again. */
static void bind_side(const matmul_job *j, uint32_t i, uint32_t first, bool there)
{
    mica__gpu_weight_bind(j->plan, j->record, weight_slot(there ? i : first));
    if (there && (mica__operand_present(y_of(j, i)) || j->apart))
        bind_y(j, i);
    else
        bind_y(j, first);
}

static mica_status plan_few(const matmul_job *j, uint32_t first, uint32_t count)
{
    mk_matvec_params p;
    const bool codes = reads_codes(j, first);
    const uint32_t groups = fill_matvec(j, first, count, &p);
    uint32_t sides = 0;
    const char *entry = mica__gpu_weight_entry(count, p.rows, j->info, &sides);
    mica_status status = mica__gpu_plan_next(j->plan, entry, groups);
    if (status == MICA_OK)
        status = mica__gpu_plan_places(j->plan, p.batches);
    if (status != MICA_OK)
        return status;
    mica__gpu_weight_constants(j->plan, weight_of(j, first), codes);
    p.x_k = (uint32_t)(j->direct && !codes ? j->activation.k : j->activation.padded);
    if (codes)
        mica__gpu_activation_bind_codes(j->plan, &j->activation, &p.x_meta);
    else
        p.x_stride = bind_x(j, first, &p.x_type);
    for (uint32_t s = 0; s < sides; s++)
        bind_side(j, first + s, first, s < count);
    mica__gpu_plan_operand(j->plan, j->record,
                           p.has_residual ? (uint32_t)MICA__MATMUL_RESIDUAL : weight_slot(first), 0);
    mica__gpu_plan_params(j->plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- many rows ---- */

static void fill_matmul(const matmul_job *j, uint32_t i, mk_matmul_params *p)
{
    const mica__operand *w = weight_of(j, i);
    const bool last_words = i == 0 && !j->apart, gate = last_words && j->matmul->gate != MICA__GATE_NONE;
    memset(p, 0, sizeof *p);
    p->weight = mica__gpu_weight_describe(w);
    for (uint32_t s = 0; s < (gate ? 2u : 1u); s++) {
        const mica__operand *side = weight_of(j, i + s);
        p->weight_stride[s] = side->stride[side->ndim - 2];
        if (mica__operand_present(&side[MICA__WEIGHT_SCALES]))
            p->scale_stride[s] = side[MICA__WEIGHT_SCALES].stride[side->ndim - 2];
        if (mica__operand_present(&side[MICA__WEIGHT_BIASES]))
            p->bias_stride[s] = side[MICA__WEIGHT_BIASES].stride[side->ndim - 2];
    }
    if (w->ndim == 3) {
        p->weight_batch = w->stride[0];
        p->scale_batch =
            mica__operand_present(&w[MICA__WEIGHT_SCALES]) ? w[MICA__WEIGHT_SCALES].stride[0] : 0;
        p->bias_batch = mica__operand_present(&w[MICA__WEIGHT_BIASES]) ? w[MICA__WEIGHT_BIASES].stride[0] : 0;
    }
    mica__gpu_rows_shape(&j->views, p->shape, &p->ndim);
    y_strides(j, i, p->y_stride, &p->y_type);
    p->n = (uint32_t)w->shape[w->ndim - 2];
    p->rows = (uint32_t)j->rows;
    p->gate = gate ? j->matmul->gate : 0;
    p->softcap = last_words ? j->matmul->softcap : 0;
    if (last_words && mica__operand_present(&j->record->operand[MICA__MATMUL_RESIDUAL])) {
        p->has_residual = 1;
        p->residual_type = mica__gpu_type(j->record->operand[MICA__MATMUL_RESIDUAL].dtype);
        mica__gpu_rows_strides(&j->views, j->residual_view, p->residual_stride);
    }
}

static mica_status plan_many(const matmul_job *j, uint32_t i)
{
    mk_matmul_params p;
    mk_u32 x_type = 0;
    fill_matmul(j, i, &p);
    const uint32_t columns = p.gate != 0 ? MK_TILE / 2 : MK_TILE;
    mica_status status = mica__gpu_plan_next(j->plan, "matmul/tile", (p.n + columns - 1) / columns);
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(j->plan, (j->rows + MK_TILE - 1) / MK_TILE, j->batches);
    if (status != MICA_OK)
        return status;
    mica__gpu_weight_constants(j->plan, weight_of(j, i), false);
    p.x_stride = bind_x(j, i, &x_type);
    mica__gpu_weight_bind(j->plan, j->record, weight_slot(i));
    mica__gpu_weight_bind(j->plan, j->record, weight_slot(p.gate != 0 ? i + 1 : i));
    mica__gpu_plan_operand(j->plan, j->record,
                           p.has_residual ? (uint32_t)MICA__MATMUL_RESIDUAL : (uint32_t)MICA__MATMUL_X, 0);
    mica__gpu_plan_operand(j->plan, j->record, MICA__MATMUL_X, 0); /* no map */
    bind_y(j, i);
    mica__gpu_plan_params(j->plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- all of it ---- */

static mica_status plan_gate(const matmul_job *j)
{
    mk_matmul_params p;
    memset(&p, 0, sizeof p);
    p.n = (uint32_t)weight_of(j, 0)->shape[0];
    p.rows = (uint32_t)j->views.rows;
    p.gate = j->matmul->gate;
    p.y_type = mica__gpu_type(y_of(j, 0)->dtype);
    mica__gpu_rows_shape(&j->views, p.shape, &p.ndim);
    mica__gpu_rows_strides(&j->views, j->y_view[0], p.y_stride);
    const mica_status status =
        mica__gpu_plan_next(j->plan, "gate/join", (j->views.rows * p.n + MICA__MK_WG - 1) / MICA__MK_WG);
    if (status != MICA_OK)
        return status;
    for (uint32_t i = 0; i < 2; i++)
        mica__gpu_plan_scratch(j->plan, sums_at(j, i), sums_bytes(j), MICA_ACCESS_READ);
    mica__gpu_plan_operand(j->plan, j->record, (uint32_t)MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y), 0);
    mica__gpu_plan_params(j->plan, &p, sizeof p);
    return MICA_OK;
}

/* How many weights from i on one dispatch takes. */
static uint32_t together(const matmul_job *j, uint32_t i)
{
    const uint32_t all = j->matmul->weight_count;
    uint32_t count = 1;
    if (j->apart || !j->few)
        return j->matmul->gate != MICA__GATE_NONE && !j->apart ? 2 : 1;
    while (i + count < all && mica__gpu_weight_alike(weight_of(j, i), weight_of(j, i + count)))
        count++;
    return count;
}

mica_status mica__gpu_plan_matmul(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    matmul_job j = {.record = record, .info = info, .matmul = record->params, .plan = plan};
    mica_status status = check(&j);
    if (status == MICA_OK)
        status = look(&j);
    if (status == MICA_OK && j.activation.forms != 0)
        status = mica__gpu_plan_activation(record, &j.activation, &j.views, j.x_view, MICA__MATMUL_X,
                                           MICA__MATMUL_NORM_WEIGHT, plan);
    for (uint32_t i = 0, count; i < j.matmul->weight_count && status == MICA_OK; i += count) {
        count = together(&j, i);
        status = j.few ? plan_few(&j, i, count) : plan_many(&j, i);
    }
    return status == MICA_OK && j.apart ? plan_gate(&j) : status;
}
