/* gpu_plan_product.c - the plan of a product of two dense matrices: a group for each tile of y. */
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define TILE 64u

static bool is_whole(uint16_t dtype)
{
    return dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_U8 || dtype == MICA_DTYPE_I32;
}

static uint32_t type_of(uint16_t dtype)
{
    if (!is_whole(dtype))
        return mica__gpu_type(dtype);
    return dtype == MICA_DTYPE_I32 ? 4 : dtype == MICA_DTYPE_U8 ? 2 : 1;
}

/* Bytes between neighbours along dimension `back` from the last; 0 where the operand repeats. */
static uint64_t stride_back(const mica__operand *o, uint32_t back)
{
    const uint32_t d = o->ndim - 1u - back;
    return mica__operand_present(o) && back < o->ndim && o->shape[d] != 1 ? o->stride[d] : 0;
}

static mica_status describe(const mica__record *record, mk_product_params *p)
{
    const mica__operand *a = &record->operand[MICA__PRODUCT_A], *b = &record->operand[MICA__PRODUCT_B],
                        *add = &record->operand[MICA__PRODUCT_ADD], *y = &record->operand[MICA__PRODUCT_Y],
                        *a_zero = &record->operand[MICA__PRODUCT_A_ZERO],
                        *b_zero = &record->operand[MICA__PRODUCT_B_ZERO];
    const uint64_t rows = y->shape[y->ndim - 2], columns = y->shape[y->ndim - 1], k = a->shape[a->ndim - 1];
    if (rows > INT32_MAX || columns > INT32_MAX || k > INT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "product: a size is over 2^31 - 1");
    memset(p, 0, sizeof *p);
    p->a_row = stride_back(a, 1);
    p->a_k = stride_back(a, 0);
    p->b_k = stride_back(b, 1);
    p->b_column = stride_back(b, 0);
    p->add_row = stride_back(add, 1);
    p->add_column = stride_back(add, 0);
    p->y_row = stride_back(y, 1);
    p->y_column = stride_back(y, 0);
    p->a_zero_row = stride_back(a_zero, 1);
    p->b_zero_column = stride_back(b_zero, 0);
    p->batches = y->ndim - 2u;
    for (uint32_t d = 0; d < p->batches; d++) {
        const uint32_t back = y->ndim - 1u - d;
        p->shape[d] = (uint32_t)y->shape[d];
        p->a_stride[d] = stride_back(a, back);
        p->b_stride[d] = stride_back(b, back);
        p->add_stride[d] = stride_back(add, back);
        p->y_stride[d] = stride_back(y, back);
        p->a_zero_stride[d] = stride_back(a_zero, back);
        p->b_zero_stride[d] = stride_back(b_zero, back);
    }
    p->rows = (uint32_t)rows;
    p->columns = (uint32_t)columns;
    p->k = (uint32_t)k;
    p->row_tiles = (p->rows + TILE - 1) / TILE;
    p->column_tiles = (p->columns + TILE - 1) / TILE;
    p->a_type = type_of(a->dtype);
    p->b_type = type_of(b->dtype);
    p->add_type = type_of(add->dtype);
    p->y_type = type_of(y->dtype);
    p->a_zero_type = type_of(a_zero->dtype);
    p->b_zero_type = type_of(b_zero->dtype);
    p->has_add = mica__operand_present(add);
    p->has_a_zero = mica__operand_present(a_zero);
    p->has_b_zero = mica__operand_present(b_zero);
    return MICA_OK;
}

mica_status mica__gpu_plan_product(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan)
{
    const mica__operand *a = &record->operand[MICA__PRODUCT_A], *y = &record->operand[MICA__PRODUCT_Y];
    mk_product_params params;
    uint64_t groups;
    (void)info;
    mica_status status = describe(record, &params);
    if (status != MICA_OK)
        return status;
    groups = (uint64_t)params.row_tiles * params.column_tiles;
    for (uint32_t d = 0; d < params.batches && groups <= INT32_MAX; d++)
        groups *= y->shape[d];
    if (groups > INT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "product: more than 2^31 - 1 tiles");
    status = mica__gpu_plan_next(plan, "product/product", groups);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "WHOLE", is_whole(a->dtype));
    for (uint32_t o = 0; o < MICA__PRODUCT_SLOTS; o++) /* zero points are bound with integers alone */
        if (is_whole(a->dtype) || (o != MICA__PRODUCT_A_ZERO && o != MICA__PRODUCT_B_ZERO))
            mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
