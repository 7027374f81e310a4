/* cpu_kernel_rows.c - which plan serves which op: mica__cpu_plan_<op>, of every op of the table. */
#include "backend/cpu/cpu_plan.h"

static const mica__kernel_row rows[] = {
#define OP(op, name, ...) {MICA_OP_##op, #name, NULL, mica__cpu_plan_##name},
#include "backend/ops.def"
};

const mica__kernel_row *mica__cpu_kernel_rows(uint32_t *out_count)
{
    *out_count = (uint32_t)(sizeof rows / sizeof rows[0]);
    return rows;
}
