/* gpu_plan_embedding.c - the plan of embedding: rows of a table of any type and layout. */
#include <string.h>

#include "backend/gpu/gpu_plan_weight.h"
#include "base/status.h"
#include "quant/dtype.h"

/* Blocks of 64 rotated values, which a text of their own turns back. */
static mica_status plan_turbo(const mica__record *record, mica__plan *plan)
{
    const mica__operand *table = &record->operand[MICA__EMBEDDING_TABLE];
    const mica__operand *ids = &record->operand[MICA__EMBEDDING_IDS],
                        *y = &record->operand[MICA__EMBEDDING_Y];
    mk_turbo_rows_params p;
    MICA__TRY(mica__gpu_check_floats(record, 1u << MICA__EMBEDDING_Y));
    if (table->shape[0] > INT32_MAX || table->shape[1] > INT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "embedding: a table of %llu rows of %llu, 2^31 - 1 are served",
                          (unsigned long long)table->shape[0], (unsigned long long)table->shape[1]);
    MICA__TRY(mica__gpu_plan_next(plan, "turbo_rows/gather", ids->shape[0]));
    mica__gpu_plan_constant(plan, "TURBO", 1);
    memset(&p, 0, sizeof p);
    p.table_stride = table->stride[0];
    p.ids_stride = ids->stride[0];
    p.y_stride = y->stride[0];
    p.rows = (uint32_t)table->shape[0];
    p.dim = (uint32_t)table->shape[1];
    p.type = mica__gpu_cache_type(table->dtype);
    p.y_type = mica__gpu_type(y->dtype);
    p.fault_code = mica__gpu_fault_code(record);
    mica__gpu_plan_operand(plan, record, MICA__EMBEDDING_TABLE, 0);
    mica__gpu_plan_operand(plan, record, MICA__EMBEDDING_IDS, 0);
    mica__gpu_plan_operand(plan, record, MICA__EMBEDDING_Y, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

mica_status mica__gpu_plan_embedding(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    const mica__operand *table = &record->operand[MICA__EMBEDDING_TABLE];
    const mica__operand *ids = &record->operand[MICA__EMBEDDING_IDS],
                        *y = &record->operand[MICA__EMBEDDING_Y];
    mk_embedding_params p;
    (void)info;
    if (mica__dtype_is_turbo(table->dtype))
        return plan_turbo(record, plan);
    mica_status status = mica__gpu_weight_check(record, table);
    if (status == MICA_OK)
        status = mica__gpu_check_floats(record, 1u << MICA__EMBEDDING_Y);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "embedding/gather", ids->shape[0]);
    if (status != MICA_OK)
        return status;
    memset(&p, 0, sizeof p);
    p.weight = mica__gpu_weight_describe(table);
    p.weight_stride = table->stride[0];
    p.scale_stride =
        mica__operand_present(&table[MICA__WEIGHT_SCALES]) ? table[MICA__WEIGHT_SCALES].stride[0] : 0;
    p.bias_stride =
        mica__operand_present(&table[MICA__WEIGHT_BIASES]) ? table[MICA__WEIGHT_BIASES].stride[0] : 0;
    p.ids_stride = ids->stride[0];
    p.y_stride = y->stride[0];
    p.rows = (uint32_t)table->shape[0];
    p.y_type = mica__gpu_type(y->dtype);
    p.fault_code = mica__gpu_fault_code(record);
    mica__gpu_weight_constants(plan, table, false);
    mica__gpu_weight_bind(plan, record, MICA__EMBEDDING_TABLE);
    mica__gpu_plan_operand(plan, record, MICA__EMBEDDING_IDS, 0);
    mica__gpu_plan_operand(plan, record, MICA__EMBEDDING_Y, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
