/*
 * gpu_plan_experts.c - plans of matmul_experts: few slots by matvec.kc, one after the other; many through a map of tiles that
 * experts.kc builds, so that no id is read on the host.
 */
#include "backend/gpu/gpu_plan_experts.h"

#include <string.h>

#include "backend/gpu/gpu_plan_weight.h"
#include "base/status.h"

#define CUDA_GROUP 1024u
/* Slots for each expert from which tiles are faster than rows: below, most of a tile of 128 is empty. */
#define LEAST_SLOTS 32u

typedef struct experts_job {
    const mica__record *record;
    const mica__device_info *info;
    mica__plan *plan;
    const mica__operand *x, *ids, *w;
    uint64_t slots; /* all of them */
    mica__gpu_rows x_rows, y_rows;
    mica__gpu_activation activation;
    bool codes, few, direct; /* codes: activations are rounded to them */
    bool reads;              /* matvec.kc reads the codes */
} experts_job;

static mica_status look(experts_job *j)
{
    const mica__matmul_record *matmul = j->record->params;
    mica__gpu_rows_add(&j->x_rows, j->x);
    mica__gpu_rows_add(&j->y_rows, &j->record->operand[MICA__EXPERTS_Y]);
    mica_status status = mica__gpu_rows_merge(&j->x_rows, j->record);
    if (status == MICA_OK)
        status = mica__gpu_rows_merge(&j->y_rows, j->record);
    if (status != MICA_OK)
        return status;
    j->slots = j->y_rows.rows;
    j->codes = mica__gpu_weight_takes_codes(j->w, matmul->precision);
    j->reads = mica__gpu_weight_reads_codes(j->w, matmul->precision);
    j->few = j->slots < LEAST_SLOTS * j->w->shape[0];
    j->direct = j->few && mica__gpu_is_float(j->w->dtype) && j->x_rows.view[0].ndim <= 1;
    uint32_t form = MK_FORM_PLAIN;
    if (j->codes)
        form = j->few && j->reads ? MK_FORM_CODES : MK_FORM_ROUNDED;
    j->activation = mica__gpu_activation_of(j->x_rows.rows, j->w->shape[2], j->direct ? 0 : form);
    return MICA_OK;
}

static void ids_strides(const mica__record *record, mk_u64 stride[2])
{
    stride[0] = record->operand[MICA__EXPERTS_IDS].stride[0];
    stride[1] = record->operand[MICA__EXPERTS_IDS].stride[1];
}

static uint64_t table_stride(const mica__operand *table, uint32_t d)
{
    return mica__operand_present(table) ? table->stride[d] : 0;
}

/* ---- one slot after the other ---- */

static void fill_rows(const experts_job *j, mk_matvec_params *p)
{
    const mica__operand *w = j->w;
    memset(p, 0, sizeof *p);
    p->weight = mica__gpu_weight_describe(w);
    p->weight_batch = w->stride[0];
    p->weight_stride[0] = w->stride[1];
    p->scale_batch = table_stride(&w[MICA__WEIGHT_SCALES], 0);
    p->scale_stride[0] = table_stride(&w[MICA__WEIGHT_SCALES], 1);
    p->bias_batch = table_stride(&w[MICA__WEIGHT_BIASES], 0);
    p->bias_stride[0] = table_stride(&w[MICA__WEIGHT_BIASES], 1);
    p->n[0] = (uint32_t)w->shape[1];
    p->slice_bits = mica__gpu_weight_slice_bits(w, j->info);
    memset(p->end_group, 0xff, sizeof p->end_group);
    mica__gpu_rows_shape(&j->y_rows, p->shape, &p->ndim);
    mica__gpu_rows_strides(&j->y_rows, 0, p->y_stride[0]);
    p->y_type[0] = mica__gpu_type(j->record->operand[MICA__EXPERTS_Y].dtype);
    ids_strides(j->record, p->ids_stride);
    p->rows = p->share = 1;
    p->batches = (uint32_t)j->slots;
    p->experts = (uint32_t)w->shape[0];
    p->slots = (uint32_t)j->ids->shape[1];
    p->x_slots = mica__gpu_experts_x_slots(j->record);
    p->fault_code = mica__gpu_fault_code(j->record);
}

static void bind_x(const experts_job *j, mk_matvec_params *p)
{
    const mica__gpu_activation *a = &j->activation;
    p->x_k = (uint32_t)(j->direct ? a->k : a->padded);
    if (j->reads) {
        mica__gpu_activation_bind_codes(j->plan, a, &p->x_meta);
    } else if (j->direct) {
        p->x_type = mica__gpu_type(j->x->dtype);
        p->x_stride = j->x_rows.view[0].ndim == 0 ? 0 : j->x_rows.view[0].stride[0];
        mica__gpu_plan_operand(j->plan, j->record, MICA__EXPERTS_X, 0);
    } else {
        p->x_stride = a->padded * sizeof(float);
        mica__gpu_plan_scratch(j->plan, j->codes ? a->rounded : a->plain, a->rows * a->padded * sizeof(float),
                               MICA_ACCESS_READ);
    }
}

static mica_status plan_rows(const experts_job *j)
{
    mk_matvec_params p;
    fill_rows(j, &p);
    mica_status status = mica__gpu_plan_next(j->plan, "matvec/expert",
                                             mica__gpu_weight_groups((p.n[0] + 1) / 2, p.slice_bits));
    if (status == MICA_OK)
        status = mica__gpu_plan_places(j->plan, j->slots);
    if (status != MICA_OK)
        return status;
    mica__gpu_weight_constants(j->plan, j->w, j->reads);
    bind_x(j, &p);
    mica__gpu_plan_operand(j->plan, j->record, MICA__EXPERTS_IDS, 0);
    mica__gpu_weight_bind(j->plan, j->record, MICA__EXPERTS_WEIGHT);
    mica__gpu_plan_operand(j->plan, j->record, MICA__EXPERTS_Y, 0);
    mica__gpu_plan_fault(j->plan);
    mica__gpu_plan_params(j->plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- tiles ---- */

static uint64_t slots_of(const mica__record *record)
{
    const mica__operand *ids = &record->operand[MICA__EXPERTS_IDS];
    return ids->shape[0] * ids->shape[1];
}

uint32_t mica__gpu_experts_x_slots(const mica__record *record)
{
    return record->operand[MICA__EXPERTS_X].ndim == 3 ? 1u
                                                      : (uint32_t)record->operand[MICA__EXPERTS_IDS].shape[1];
}

uint32_t mica__gpu_experts_tiles(const mica__record *record)
{
    const uint64_t experts = record->operand[MICA__EXPERTS_WEIGHT].shape[0];
    return (uint32_t)((slots_of(record) + MK_TILE - 1) / MK_TILE + experts + 1);
}

uint64_t mica__gpu_experts_map_bytes(const mica__record *record)
{
    const uint64_t experts = record->operand[MICA__EXPERTS_WEIGHT].shape[0];
    const uint64_t tiles = mica__gpu_experts_tiles(record);
    return (4 * tiles + slots_of(record) + 2 * (experts + 1)) * sizeof(uint32_t);
}

mica_status mica__gpu_plan_experts_map(const mica__record *record, const mica__device_info *info,
                                       uint64_t offset, mica__plan *plan)
{
    const mica__operand *ids = &record->operand[MICA__EXPERTS_IDS];
    mk_experts_params p;
    memset(&p, 0, sizeof p);
    ids_strides(record, p.ids_stride);
    p.experts = (uint32_t)record->operand[MICA__EXPERTS_WEIGHT].shape[0];
    p.tokens = (uint32_t)ids->shape[0];
    p.slots = (uint32_t)ids->shape[1];
    p.tiles = mica__gpu_experts_tiles(record);
    p.fault_code = mica__gpu_fault_code(record);
    const mica_status status = mica__gpu_plan_next(plan, "experts/build", 1);
    if (status != MICA_OK)
        return status;
    if (info->compute != 0) /* one group for all slots: as many work-items as it can have */
        mica__gpu_plan_constant(plan, "MK_WG", CUDA_GROUP);
    mica__gpu_plan_operand(plan, record, MICA__EXPERTS_IDS, 0);
    mica__gpu_plan_scratch(plan, offset, mica__gpu_experts_map_bytes(record),
                           MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

static mica_status plan_tiles(const experts_job *j)
{
    const mica__gpu_activation *a = &j->activation;
    const mica__operand *w = j->w;
    const uint32_t tiles = mica__gpu_experts_tiles(j->record);
    mk_matmul_params p;
    memset(&p, 0, sizeof p);
    p.weight = mica__gpu_weight_describe(w);
    p.weight_batch = w->stride[0];
    p.weight_stride[0] = w->stride[1];
    p.scale_batch = table_stride(&w[MICA__WEIGHT_SCALES], 0);
    p.scale_stride[0] = table_stride(&w[MICA__WEIGHT_SCALES], 1);
    p.bias_batch = table_stride(&w[MICA__WEIGHT_BIASES], 0);
    p.bias_stride[0] = table_stride(&w[MICA__WEIGHT_BIASES], 1);
    mica__gpu_rows_shape(&j->y_rows, p.shape, &p.ndim);
    mica__gpu_rows_strides(&j->y_rows, 0, p.y_stride);
    p.y_type = mica__gpu_type(j->record->operand[MICA__EXPERTS_Y].dtype);
    p.x_stride = a->padded * sizeof(float);
    p.n = (uint32_t)w->shape[1];
    p.experts = (uint32_t)w->shape[0];
    p.tiles = tiles;
    p.x_slots = mica__gpu_experts_x_slots(j->record);
    mica_status status = mica__gpu_plan_next(j->plan, "matmul/tile", (p.n + MK_TILE - 1) / MK_TILE);
    if (status == MICA_OK)
        status = mica__gpu_plan_places(j->plan, tiles);
    if (status != MICA_OK)
        return status;
    mica__gpu_weight_constants(j->plan, w, false);
    mica__gpu_plan_scratch(j->plan, j->codes ? a->rounded : a->plain, a->rows * a->padded * sizeof(float),
                           MICA_ACCESS_READ);
    mica__gpu_weight_bind(j->plan, j->record, MICA__EXPERTS_WEIGHT);
    mica__gpu_weight_bind(j->plan, j->record, MICA__EXPERTS_WEIGHT);
    mica__gpu_plan_operand(j->plan, j->record, MICA__EXPERTS_X, 0); /* no residual */
    mica__gpu_plan_scratch(j->plan, a->end, mica__gpu_experts_map_bytes(j->record), MICA_ACCESS_READ);
    mica__gpu_plan_operand(j->plan, j->record, MICA__EXPERTS_Y, 0);
    mica__gpu_plan_params(j->plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_matmul_experts(const mica__record *record, const mica__device_info *info,
                                          mica__plan *plan)
{
    experts_job j = {.record = record,
                     .info = info,
                     .plan = plan,
                     .x = &record->operand[MICA__EXPERTS_X],
                     .ids = &record->operand[MICA__EXPERTS_IDS],
                     .w = &record->operand[MICA__EXPERTS_WEIGHT]};
    if (record->operand_count != MICA__EXPERTS_SLOTS)
        return mica__fail(MICA_ERR_UNSUPPORTED, "matmul_experts: a gate is an op of its own");
    mica_status status = mica__gpu_weight_check(record, j.w);
    if (status == MICA_OK)
        status = mica__gpu_check_floats(record, 1u << MICA__EXPERTS_X | 1u << MICA__EXPERTS_Y);
    if (status == MICA_OK)
        status = look(&j);
    if (status == MICA_OK && j.activation.forms != 0)
        status = mica__gpu_plan_activation(record, &j.activation, &j.x_rows, 0, MICA__EXPERTS_X,
                                           MICA__EXPERTS_X, plan);
    if (status == MICA_OK && j.few)
        return plan_rows(&j);
    if (status == MICA_OK)
        status = mica__gpu_plan_experts_map(record, info, j.activation.end, plan);
    return status == MICA_OK ? plan_tiles(&j) : status;
}
