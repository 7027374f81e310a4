/* gpu_plan_embedding.c - the plan of embedding: rows of a table of any type and layout. */
#include <string.h>

#include "backend/gpu/gpu_plan_weight.h"
#include "base/status.h"

mica_status mica__gpu_plan_embedding(const mica__record *record, const mica__device_info *info,
                                     mica__plan *plan)
{
    const mica__operand *table = &record->operand[MICA__EMBEDDING_TABLE];
    const mica__operand *ids = &record->operand[MICA__EMBEDDING_IDS],
                        *y = &record->operand[MICA__EMBEDDING_Y];
    mk_embedding_params p;
    (void)info;
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
