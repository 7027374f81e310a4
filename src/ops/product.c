/* product.c - the product of two dense matrices. */
#include "ops/check.h"

static bool is_float(uint32_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

static bool is_byte(uint32_t dtype)
{
    return dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_U8;
}

/* Whether `dtype` may stand beside the type of a; results are of another type than bytes. */
static bool goes_with(uint32_t a, uint32_t dtype, bool result)
{
    if (is_float(a))
        return is_float(dtype);
    if (is_byte(a))
        return result ? dtype == MICA_DTYPE_I32 : is_byte(dtype);
    return dtype == a;
}

/* A zero point repeats along the dimension `back` from the last, which the other operand has. */
static void check_zero(mica__op_builder *op, uint32_t slot, uint32_t back)
{
    const mica__operand *zero = &op->record.operand[slot];
    const uint32_t a = op->record.operand[MICA__PRODUCT_A].dtype;
    if (!mica__op_ok(op) || !mica__op_has(op, slot))
        return;
    mica__op_require(op, is_byte(a) || a == MICA_DTYPE_I32,
                     "%s is given, but a is %s, which has no zero points", mica__op_argument(op, slot),
                     mica_dtype_name((mica_dtype)a));
    mica__op_require(op, zero->ndim <= back || zero->shape[zero->ndim - 1 - back] == 1,
                     "%s: shape[%u] is %llu, not 1", mica__op_argument(op, slot), zero->ndim - 1u - back,
                     (unsigned long long)zero->shape[zero->ndim - 1 - back]);
    if (mica__op_ok(op))
        mica__op_broadcast(op, slot, MICA__PRODUCT_Y);
}

static void check_types(mica__op_builder *op)
{
    const uint32_t a = op->record.operand[MICA__PRODUCT_A].dtype;
    mica__operand *y = &op->record.operand[MICA__PRODUCT_Y];
    if (is_byte(a) && y->ndim == MICA_RANK_UNKNOWN) /* asked for */
        y->dtype = MICA_DTYPE_I32;
    static const uint32_t slots[] = {MICA__PRODUCT_B, MICA__PRODUCT_ADD, MICA__PRODUCT_Y};
    for (uint32_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        const uint32_t slot = slots[i];
        if (mica__op_has(op, slot) && op->record.operand[slot].dtype != MICA_DTYPE_NONE)
            mica__op_require(op, goes_with(a, op->record.operand[slot].dtype, slot != MICA__PRODUCT_B),
                             "%s is %s, which does not go with a, which is %s", mica__op_argument(op, slot),
                             mica_dtype_name((mica_dtype)op->record.operand[slot].dtype),
                             mica_dtype_name((mica_dtype)a));
    }
}

/* Size of dimension `back` from the last, 1 where there is none. */
static uint64_t size_back(const mica__operand *o, uint32_t back)
{
    return back < o->ndim ? o->shape[o->ndim - 1 - back] : 1;
}

/* What both inputs give y, which either of them may have got wrong. */
static void check_result(mica__op_builder *op, uint32_t ndim, const uint64_t *shape)
{
    const mica__operand *y = &op->record.operand[MICA__PRODUCT_Y];
    if (!mica__op_ok(op) || !mica__op_has(op, MICA__PRODUCT_Y) || y->ndim == MICA_RANK_UNKNOWN)
        return;
    mica__op_require(op, y->ndim == ndim, "y has %u dimensions, but a and b give it %u", y->ndim, ndim);
    for (uint32_t d = 0; d < ndim && mica__op_ok(op); d++)
        mica__op_require(op, mica__sizes_agree(y->shape[d], shape[d]),
                         "y: shape[%u] is %llu, but a and b give it %llu", d, (unsigned long long)y->shape[d],
                         (unsigned long long)shape[d]);
}

/* What two sizes that broadcast become; of a size that is not known and 1 the one that is not known. */
static uint64_t joined(uint64_t left, uint64_t right)
{
    if (left == 1 || right == 1)
        return left == 1 ? right : left;
    if (left == right || mica__size_known(left))
        return left;
    return mica__size_known(right) ? right : MICA_SIZE_UNKNOWN;
}

void mica__rule_product(mica__op_builder *op)
{
    const mica__operand *a = &op->record.operand[MICA__PRODUCT_A], *b = &op->record.operand[MICA__PRODUCT_B];
    uint64_t shape[MICA_MAX_DIMS] = {0};
    const uint32_t ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    mica__op_require(op, a->ndim >= 2, "a has %u dimensions, not 2 or more", a->ndim);
    mica__op_require(op, b->ndim >= 2, "b has %u dimensions, not 2 or more", b->ndim);
    if (!mica__op_ok(op))
        return;
    check_types(op);
    mica__op_require(op, mica__sizes_agree(size_back(a, 0), size_back(b, 1)),
                     "b: shape[%u] is %llu, but shape[%u] of a is %llu", b->ndim - 2u,
                     (unsigned long long)size_back(b, 1), a->ndim - 1u, (unsigned long long)size_back(a, 0));
    for (uint32_t back = 2; back < ndim; back++) {
        const uint64_t left = size_back(a, back), right = size_back(b, back);
        mica__op_require(op, left == 1 || right == 1 || mica__sizes_agree(left, right),
                         "b: a size before the matrix is %llu, but that of a is %llu",
                         (unsigned long long)right, (unsigned long long)left);
        shape[ndim - 1 - back] = joined(left, right);
    }
    shape[ndim - 2] = size_back(a, 1);
    shape[ndim - 1] = size_back(b, 0);
    check_result(op, ndim, shape);
    mica__op_shape(op, MICA__PRODUCT_Y, ndim, shape);
    if (mica__op_ok(op) && mica__op_has(op, MICA__PRODUCT_ADD))
        mica__op_broadcast(op, MICA__PRODUCT_ADD, MICA__PRODUCT_Y);
    check_zero(op, MICA__PRODUCT_A_ZERO, 0);
    check_zero(op, MICA__PRODUCT_B_ZERO, 1);
}

mica_status mica_product(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *add,
                         mica_buffer *y)
{
    return mica__op_call(encoder, MICA_OP_PRODUCT, NULL, (mica_buffer *const[]){a, b, add, NULL, NULL, y});
}

mica_status mica_product_codes(mica_encoder *encoder, mica_buffer *a, mica_buffer *a_zero, mica_buffer *b,
                               mica_buffer *b_zero, mica_buffer *add, mica_buffer *y)
{
    return mica__op_call(encoder, MICA_OP_PRODUCT, NULL,
                         (mica_buffer *const[]){a, b, add, a_zero, b_zero, y});
}
