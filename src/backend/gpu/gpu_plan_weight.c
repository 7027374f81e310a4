/* gpu_plan_weight.c - weights, rows and prepared activations in the words of the portable kernels. */
#include "backend/gpu/gpu_plan_weight.h"

#include <string.h>

#include "base/status.h"
#include "quant/block.h"
#include "quant/packed.h"
#include "quant/planes.h"
#include "quant/quant.h"

#define PIECE (8u * MICA__MK_WG) /* values of a row that a group of activation.kc takes */

#define SUB 32u            /* MK_SUB */
#define MOST_SLICE_BITS 1u /* more of them only cost their ends */
#define LEAST_RUNS 6u      /* of a lane of a slice */

#define SAME(name) _Static_assert((int)MK_W_##name == (int)MICA_DTYPE_##name, "number of " #name)
SAME(F32);
SAME(F16);
SAME(BF16);
SAME(F8_E4M3);
SAME(Q4_0);
SAME(Q8_1);
SAME(Q8_K);
SAME(IQ1_S);
SAME(IQ3_S);
SAME(IQ4_XS);
SAME(TQ2_0);
SAME(NVFP4);
SAME(AFFINE2);
SAME(AFFINE8);
SAME(FP4);

/* Fields of the types that have no planes, in the order that blocks.kc reads them; one entry: the block as a whole. */
static uint32_t second_field(uint16_t dtype, uint32_t *out_first)
{
    *out_first = 0;
    switch (dtype) {
    case MICA_DTYPE_Q8_1: *out_first = 4; return 0;
    case MICA_DTYPE_Q8_K: *out_first = 4; return 0;
    case MICA_DTYPE_TQ2_0: return 64;
    default: return 0;
    }
}

mica_status mica__gpu_weight_check(const mica__record *record, const mica__operand *weight)
{
    const char *op = mica_op_name((mica_op)record->op);
    const uint16_t dtype = weight->dtype;
    (void)op; /* messages alone have it */
    if (!mica__gpu_is_float(dtype) && !mica__quant_known(dtype) && !mica__dtype_is_grouped(dtype))
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: weight is %s, which no kernel serves", op,
                          mica_dtype_name((mica_dtype)dtype));
    if (weight->layout == MICA_LAYOUT_ROWS8)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: weight is packed for a cpu", op);
    if (mica__dtype_is_grouped(dtype) &&
        (!mica__operand_present(&weight[MICA__WEIGHT_SCALES]) || weight->group_size == 0 ||
         (mica__dtype_is_affine(dtype) && !mica__operand_present(&weight[MICA__WEIGHT_BIASES]))))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: weight is %s without scales or biases", op,
                          mica_dtype_name((mica_dtype)dtype));
    for (uint32_t d = 0; d < weight->ndim; d++)
        if (weight->shape[d] > INT32_MAX / 4)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: weight: shape[%u] is %llu, at most %d are served",
                              op, d, (unsigned long long)weight->shape[d], INT32_MAX / 4);
    return MICA_OK;
}

static uint32_t scale_type(uint16_t dtype)
{
    if (dtype == MICA_DTYPE_E8M0)
        return MK_E8M0;
    return dtype == MICA_DTYPE_F8_E4M3 ? MK_E4M3 : mica__gpu_type(dtype);
}

static void describe_blocks(const mica__operand *weight, uint64_t blocks, mk_fields *fields)
{
    const mica__planes planes = mica__planes_of(weight->dtype);
    const uint32_t bytes = mica_dtype_block_bytes((mica_dtype)weight->dtype);
    uint64_t start = 0;
    if (planes.count == 0) {
        fields->base[1] = second_field(weight->dtype, &fields->base[0]);
        fields->stride[0] = fields->stride[1] = bytes;
    }
    for (uint32_t f = 0; f < planes.count; f++) {
        const bool planar = weight->layout == MICA_LAYOUT_PLANES;
        fields->base[f] = planar ? (uint32_t)start : planes.field[f].offset;
        fields->stride[f] = planar ? planes.field[f].bytes : bytes;
        start += blocks * planes.field[f].bytes;
    }
}

mk_weight mica__gpu_weight_describe(const mica__operand *weight)
{
    mk_weight out;
    const uint64_t k = weight->shape[weight->ndim - 1];
    const uint64_t blocks = k / mica_dtype_block_elements((mica_dtype)weight->dtype);
    memset(&out, 0, sizeof out);
    out.k = (uint32_t)k;
    if (mica__dtype_is_grouped(weight->dtype)) {
        out.fields.stride[0] = (uint32_t)(blocks * mica_dtype_block_bytes((mica_dtype)weight->dtype));
        out.group_size = weight->group_size;
        out.groups = (uint32_t)((k + weight->group_size - 1) / weight->group_size);
        out.scale_type = scale_type(weight[MICA__WEIGHT_SCALES].dtype);
    } else if (!mica__gpu_is_float(weight->dtype)) {
        describe_blocks(weight, blocks, &out.fields);
    }
    return out;
}

bool mica__gpu_weight_alike(const mica__operand *a, const mica__operand *b)
{
    return a->dtype == b->dtype && a->layout == b->layout && a->group_size == b->group_size &&
           a[MICA__WEIGHT_SCALES].dtype == b[MICA__WEIGHT_SCALES].dtype;
}

bool mica__gpu_weight_takes_codes(const mica__operand *weight, uint32_t precision)
{
    const mica__operand *scales = weight + MICA__WEIGHT_SCALES;
    mica__packed_form form;
    if (precision == MICA_PRECISION_F32 || precision == MICA_PRECISION_F16 ||
        !mica__packed_form_of(weight->dtype, weight->group_size, &form))
        return false;
    return !mica__operand_present(scales) ||
           mica__packed_scales(weight->dtype, weight->group_size, scales->dtype);
}

bool mica__gpu_weight_reads_codes(const mica__operand *weight, uint32_t precision)
{
    return mica__gpu_weight_takes_codes(weight, precision) &&
           (weight->layout == MICA_LAYOUT_PLANES || mica__dtype_is_grouped(weight->dtype));
}

const char *mica__gpu_weight_entry(uint32_t count, uint32_t rows, const mica__device_info *info,
                                   uint32_t *out_sides)
{
    /* MK_CPU has no entry for one */
    const bool alone = count == 1 && rows == 1 && (info->features & MICA__FEATURE_SLOW_BARRIER) == 0;
    *out_sides = alone ? 1 : MK_MATVEC_WEIGHTS;
    return alone ? "matvec/one" : rows == 1 ? "matvec/one_of" : "matvec/some";
}

uint32_t mica__gpu_weight_slice_bits(const mica__operand *weight, const mica__device_info *info)
{
    const uint64_t run = mica__gpu_is_float(weight->dtype) ? 8 : 32;
    const uint64_t runs = weight->shape[weight->ndim - 1] / run;
    uint32_t bits = 0;
    if ((info->features & MICA__FEATURE_SLOW_BARRIER) != 0)
        return 0;
    while (bits < MOST_SLICE_BITS && runs >= (uint64_t)LEAST_RUNS * 2 * SUB << bits)
        bits++;
    return bits;
}

uint32_t mica__gpu_weight_groups(uint32_t units, uint32_t slice_bits)
{
    const uint32_t each = MICA__MK_WG / SUB >> slice_bits;
    return (units + each - 1) / each;
}

void mica__gpu_weight_constants(mica__plan *plan, const mica__operand *weight, bool codes)
{
    mica__gpu_plan_constant(plan, "W", weight->dtype);
    if (mica__dtype_is_grouped(weight->dtype) && weight->group_size % 16 != 0)
        mica__gpu_plan_constant(plan, "RAGGED", 1);
    if (codes && !mica__dtype_is_grouped(weight->dtype))
        mica__gpu_plan_constant(plan, "PLANES", 1);
    if (codes)
        mica__gpu_plan_constant(plan, "Q8", 1);
}

void mica__gpu_weight_bind(mica__plan *plan, const mica__record *record, uint32_t slot)
{
    const bool tables = mica__dtype_is_grouped(record->operand[slot].dtype);
    for (uint32_t part = MICA__WEIGHT_DATA; part <= (tables ? MICA__WEIGHT_BIASES : MICA__WEIGHT_DATA);
         part++)
        mica__gpu_plan_operand(plan, record, slot + part, MICA_ACCESS_READ);
}

uint32_t mica__gpu_rows_add(mica__gpu_rows *rows, const mica__operand *operand)
{
    mica__gpu_view *view = &rows->view[rows->count];
    *view = mica__gpu_view_of(operand);
    view->ndim--;
    rows->rows = 1;
    for (uint32_t d = 0; d < view->ndim; d++)
        rows->rows *= view->shape[d];
    return rows->count++;
}

mica_status mica__gpu_rows_merge(mica__gpu_rows *rows, const mica__record *record)
{
    mica__gpu_view_collapse(rows->view, rows->count, 0);
    if (rows->view[0].ndim > MK_ROW_DIMS || rows->rows > INT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: x has %llu rows in %u dimensions",
                          mica_op_name((mica_op)record->op), (unsigned long long)rows->rows,
                          rows->view[0].ndim);
    return MICA_OK;
}

void mica__gpu_rows_shape(const mica__gpu_rows *rows, mk_u32 shape[MK_ROW_DIMS], mk_u32 *out_ndim)
{
    const mica__gpu_view *view = &rows->view[0];
    *out_ndim = view->ndim;
    for (uint32_t d = 0; d < MK_ROW_DIMS; d++)
        shape[d] = 1;
    for (uint32_t d = 0; d < view->ndim; d++)
        shape[MK_ROW_DIMS - view->ndim + d] = (uint32_t)view->shape[d];
}

void mica__gpu_rows_strides(const mica__gpu_rows *rows, uint32_t view, mk_u64 stride[MK_ROW_DIMS])
{
    const mica__gpu_view *from = &rows->view[view];
    memset(stride, 0, MK_ROW_DIMS * sizeof stride[0]);
    for (uint32_t d = 0; d < from->ndim; d++)
        stride[MK_ROW_DIMS - from->ndim + d] = from->stride[d];
}

mica__gpu_activation mica__gpu_activation_of(uint64_t rows, uint64_t k, uint32_t forms)
{
    const uint64_t padded = (k + 31) / 32 * 32;
    mica__gpu_activation a = {.rows = rows, .k = k, .padded = padded, .forms = forms};
    uint64_t at = 0;
    a.codes = at;
    at += (forms & MK_FORM_CODES) != 0 ? (rows * padded + 63) / 64 * 64 : 0;
    a.meta = at;
    at += (forms & MK_FORM_CODES) != 0 ? (rows * padded / 4 + 63) / 64 * 64 : 0;
    a.plain = at;
    at += (forms & MK_FORM_PLAIN) != 0 ? rows * padded * sizeof(float) : 0;
    a.rounded = at;
    at += (forms & MK_FORM_ROUNDED) != 0 ? rows * padded * sizeof(float) : 0;
    a.end = at;
    return a;
}

void mica__gpu_activation_bind_codes(mica__plan *plan, const mica__gpu_activation *a, mk_u64 *out_meta)
{
    *out_meta = a->meta - a->codes;
    mica__gpu_plan_scratch(plan, a->codes, *out_meta + a->rows * a->padded / 4, MICA_ACCESS_READ);
}

mica_status mica__gpu_plan_activation(const mica__record *record, const mica__gpu_activation *a,
                                      const mica__gpu_rows *rows, uint32_t view, uint32_t x_slot,
                                      uint32_t norm_slot, mica__plan *plan)
{
    const mica__matmul_record *matmul = record->params;
    const mica__operand *norm = &record->operand[norm_slot];
    mk_activation_params p;
    memset(&p, 0, sizeof p);
    mica__gpu_rows_shape(rows, p.shape, &p.ndim);
    mica__gpu_rows_strides(rows, view, p.stride);
    p.k = (uint32_t)a->k;
    p.padded = (uint32_t)a->padded;
    p.type = mica__gpu_type(record->operand[x_slot].dtype);
    p.norm = matmul->norm;
    p.has_weight = matmul->norm != 0 && mica__operand_present(norm);
    p.norm_type = mica__gpu_type(norm->dtype);
    p.forms = a->forms;
    p.codes = a->codes;
    p.meta = a->meta;
    p.plain = a->plain;
    p.rounded = a->rounded;
    p.eps = matmul->eps;
    mica_status status = mica__gpu_plan_next(plan, "activation/prepare", a->rows);
    if (status == MICA_OK)
        status = mica__gpu_plan_groups(plan, (a->padded + PIECE - 1) / PIECE, 1);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_operand(plan, record, x_slot, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, p.has_weight ? norm_slot : x_slot, MICA_ACCESS_READ);
    mica__gpu_plan_scratch(plan, 0, a->end, MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
