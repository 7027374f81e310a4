/* products.c - products that are several records: with an adapter of low rank, and of codes with scales. */
#include <math.h>

#include "device/objects.h"
#include "ops/region.h"

#define REFUSE(...) mica__fail(MICA_ERR_INVALID_ARGUMENT, __VA_ARGS__)

/* The view of a buffer with its last two dimensions exchanged. */
static mica_status transposed(const char *op, const char *name, mica_buffer *buffer, mica_buffer **out)
{
    uint32_t order[MICA_MAX_DIMS];
    if (buffer->ndim < 2)
        return REFUSE("%s: %s has %u dimensions, not 2 or more", op, name, buffer->ndim);
    for (uint32_t d = 0; d < buffer->ndim; d++)
        order[d] = d;
    order[buffer->ndim - 1] = buffer->ndim - 2u;
    order[buffer->ndim - 2] = buffer->ndim - 1u;
    return mica_buffer_permute(buffer, order, out);
}

/* y = a . b^T + add */
static mica_status product_with(mica_encoder *encoder, const char *op, const char *name, mica_buffer *a,
                                mica_buffer *b, mica_buffer *add, mica_buffer *y)
{
    mica_buffer *b_transposed = NULL;
    MICA__TRY(transposed(op, name, b, &b_transposed));
    const mica_status status = mica_product(encoder, a, b_transposed, add, y);
    mica_buffer_release(b_transposed);
    return status;
}

static mica_status scale_in_place(mica_encoder *encoder, mica_buffer *x, float scale)
{
    static const char *const operands[] = {"low"};
    static const mica__region_names names = {"matmul_lora", operands, operands};
    mica__region_small small;
    mica__region_program *program = &small.program;
    if (scale == 1.0f)
        return MICA_OK;
    mica__region_begin(program, 1, 1);
    program->input[0] = MICA_REGISTER_F32;
    const uint8_t by = mica__region_constant(program, MICA_REGISTER_F32, (mica__scalar_value){.f32 = scale});
    program->output[0] =
        mica__region_step(program, MICA_SCALAR_MUL, MICA_REGISTER_F32, 0, by, MICA_REGION_NONE);
    return mica__region_add(encoder, &names, program, &x, true, &x);
}

mica_status mica_matmul_lora(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *a,
                             mica_buffer *b, float scale, mica_buffer *low, mica_buffer *y)
{
    if (a == NULL || b == NULL || low == NULL)
        return REFUSE("matmul_lora: %s is NULL", a == NULL ? "a" : b == NULL ? "b" : "low");
    if (!isfinite(scale))
        return REFUSE("matmul_lora: scale is %g, not finite", (double)scale);
    MICA__TRY(mica_matmul(encoder, x, weight, NULL, y));
    MICA__TRY(mica_matmul(encoder, x, a, NULL, low));
    MICA__TRY(scale_in_place(encoder, low, scale));
    return product_with(encoder, "matmul_lora", "b", low, b, y, y);
}

static mica_status check_scaled(const mica_scaled *side, const char *name)
{
    if (side == NULL || side->codes == NULL || side->by == NULL || side->values == NULL)
        return REFUSE("product_scaled: %s%s is NULL", name,
                      side == NULL          ? ""
                      : side->codes == NULL ? ".codes"
                      : side->by == NULL    ? ".by"
                                            : ".values");
    return MICA_OK;
}

mica_status mica_product_scaled(mica_encoder *encoder, const mica_scaled *a, const mica_scaled *b,
                                mica_buffer *add, mica_buffer *y)
{
    MICA__TRY(check_scaled(a, "a"));
    MICA__TRY(check_scaled(b, "b"));
    MICA__TRY(mica_dequantize_codes(encoder, a->codes, a->by, a->values));
    MICA__TRY(mica_dequantize_codes(encoder, b->codes, b->by, b->values));
    return product_with(encoder, "product_scaled", "b.values", a->values, b->values, add, y);
}
