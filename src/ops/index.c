/* index.c - regions of casts and of the places of elements: conversions, one-hot rows, triangles, ranges. */
#include <math.h>

#include "ops/programs.h"

#define NONE MICA_REGION_NONE

static const char *const x_names[] = {"x"};
static const char *const ids_names[] = {"ids"};
static const char *const y_names[] = {"y"};

static mica_register register_of(const mica_buffer *buffer)
{
    return buffer != NULL ? mica__register_of(buffer->dtype) : MICA_REGISTER_NONE;
}

static uint8_t cast(mica__region_program *program, uint8_t value, mica_register from, mica_register to)
{
    return from == to ? value : mica__region_step(program, MICA_SCALAR_CAST, to, value, NONE, NONE);
}

static uint8_t index_along(mica__region_program *program, mica_register type, uint8_t axis)
{
    const uint8_t value = mica__region_step(program, MICA_SCALAR_INDEX, type, NONE, NONE, NONE);
    program->step[value - program->input_count].axis = axis;
    program->axes |= (uint8_t)(1u << axis);
    program->special = 1;
    return value;
}

/* Block types have no registers; what is NULL is found where all operands are looked at. */
static mica_status check_plain(const char *call, const char *name, const mica_buffer *buffer, bool complex)
{
    if (buffer != NULL && (mica__register_of(buffer->dtype) == MICA_REGISTER_NONE ||
                           (!complex && buffer->dtype == MICA_DTYPE_C64)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is %s, which it does not take", call, name,
                          mica_dtype_name(buffer->dtype));
    return MICA_OK;
}

mica_status mica_cast(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    static const mica__region_names names = {"cast", x_names, y_names};
    mica__region_small small;
    mica__region_program *program = &small.program;
    const mica_register from = register_of(x), to = register_of(y);
    MICA__TRY(check_plain("cast", "x", x, true));
    MICA__TRY(check_plain("cast", "y", y, true));
    mica__region_begin(program, 1, 1);
    program->input[0] = (uint8_t)from;
    program->output[0] = cast(program, 0, from, to);
    if (y != NULL && y->dtype == MICA_DTYPE_C64) {
        const bool both = x != NULL && x->dtype == MICA_DTYPE_C64;
        program->special = both;
        program->output_imag[0] = both
                                      ? mica__region_step(program, MICA_SCALAR_IMAG, to, 0, NONE, NONE)
                                      : mica__region_constant(program, to, (mica__scalar_value){.f32 = 0.0f});
    }
    return mica__region_add(encoder, &names, program, &x, false, &y);
}

mica_status mica_one_hot(mica_encoder *encoder, mica_buffer *ids, mica_buffer *y)
{
    static const mica__region_names names = {"one_hot", ids_names, y_names};
    mica__region_small small;
    mica__region_program *program = &small.program;
    const mica_register type = register_of(ids);
    mica_buffer *column = NULL;
    MICA__TRY(check_plain("one_hot", "y", y, false));
    if (ids == NULL || (ids->dtype != MICA_DTYPE_U32 && ids->dtype != MICA_DTYPE_I32))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "one_hot: ids is %s, not u32 or i32",
                          ids != NULL ? mica_dtype_name(ids->dtype) : "NULL");
    if (y == NULL || y->ndim != ids->ndim + 1)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "one_hot: y has not one dimension more than ids");
    for (uint32_t d = 0; d < ids->ndim; d++)
        if (ids->shape[d] != y->shape[d])
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "one_hot: shape[%u] of y differs from that of ids",
                              d);
    uint64_t shape[MICA_MAX_DIMS] = {0}, stride[MICA_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < y->ndim; d++) {
        shape[d] = d < ids->ndim ? ids->shape[d] : 1;
        stride[d] = d < ids->ndim ? ids->stride[d] : 0;
    }
    mica__region_begin(program, 1, 1);
    program->input[0] = (uint8_t)type;
    const uint8_t place = index_along(program, type, 0);
    const uint8_t hit = mica__region_step(program, MICA_SCALAR_EQUAL, MICA_REGISTER_BOOL, 0, place, NONE);
    program->output[0] = cast(program, hit, MICA_REGISTER_BOOL, register_of(y));
    MICA__TRY(mica_buffer_view(ids, ids->dtype, y->ndim, shape, stride, 0, &column));
    const mica_status status = mica__region_add(encoder, &names, program, &column, false, &y);
    mica_buffer_release(column);
    return status;
}

/* c - r in i64, compared with the diagonal; what lies outside is 0. */
void mica__triangle_program(bool upper, mica_register from, mica_register to, int32_t diagonal,
                            mica__region_program *out)
{
    mica__region_begin(out, 1, 1);
    out->input[0] = (uint8_t)from;
    const uint8_t value = cast(out, 0, from, to);
    const uint8_t zero = mica__region_constant(out, to, (mica__scalar_value){.u64 = 0});
    const uint8_t column = index_along(out, MICA_REGISTER_I64, 0);
    const uint8_t row = index_along(out, MICA_REGISTER_I64, 1);
    const uint8_t off = mica__region_step(out, MICA_SCALAR_SUB, MICA_REGISTER_I64, column, row, NONE);
    const uint8_t bound =
        mica__region_constant(out, MICA_REGISTER_I64, (mica__scalar_value){.i64 = diagonal});
    const uint8_t in = mica__region_step(out, MICA_SCALAR_LESS_EQUAL, MICA_REGISTER_BOOL, upper ? bound : off,
                                         upper ? off : bound, NONE);
    out->output[0] = mica__region_step(out, MICA_SCALAR_SELECT, to, in, value, zero);
}

static mica_status triangle(mica_encoder *encoder, const char *call, bool upper, mica_buffer *x,
                            int32_t diagonal, mica_buffer *y)
{
    const mica__region_names names = {call, x_names, y_names};
    mica__region_room room;
    MICA__TRY(check_plain(call, "x", x, false));
    MICA__TRY(check_plain(call, "y", y, false));
    mica__triangle_program(upper, register_of(x), register_of(y), diagonal, &room.program);
    return mica__region_add(encoder, &names, &room.program, &x, false, &y);
}

mica_status mica_tril(mica_encoder *encoder, mica_buffer *x, int32_t diagonal, mica_buffer *y)
{
    return triangle(encoder, "tril", false, x, diagonal, y);
}

mica_status mica_triu(mica_encoder *encoder, mica_buffer *x, int32_t diagonal, mica_buffer *y)
{
    return triangle(encoder, "triu", true, x, diagonal, y);
}

static mica__scalar_value number(mica_register type, double value)
{
    if (type == MICA_REGISTER_I64)
        return (mica__scalar_value){.i64 = (int64_t)value};
    if (type == MICA_REGISTER_F64)
        return (mica__scalar_value){.f64 = value};
    return (mica__scalar_value){.f32 = (float)value};
}

mica_status mica_arange(mica_encoder *encoder, double start, double step, mica_buffer *y)
{
    static const mica__region_names names = {"arange", NULL, y_names};
    mica__region_room room;
    mica__region_program *program = &room.program;
    const mica_register to = register_of(y);
    const bool whole = (MICA__SET_INTEGER >> to & 1) != 0;
    const mica_register type = whole ? MICA_REGISTER_I64 : to;
    MICA__TRY(check_plain("arange", "y", y, false));
    if (to == MICA_REGISTER_BOOL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "arange: y is bool, which it does not take");
    if (!isfinite(start) || !isfinite(step) ||
        (whole &&
         (start != trunc(start) || step != trunc(step) || fabs(start) >= 0x1p63 || fabs(step) >= 0x1p63)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "arange: start %g or step %g is not a number of y's type", start, step);
    mica__region_begin(program, 0, 1);
    const uint8_t place = index_along(program, MICA_REGISTER_I64, 0);
    const uint8_t at = cast(program, place, MICA_REGISTER_I64, type);
    const uint8_t by = mica__region_constant(program, type, number(type, step));
    const uint8_t far = mica__region_step(program, MICA_SCALAR_MUL, type, at, by, NONE);
    const uint8_t first = mica__region_constant(program, type, number(type, start));
    const uint8_t sum = mica__region_step(program, MICA_SCALAR_ADD, type, far, first, NONE);
    program->output[0] = cast(program, sum, type, to);
    return mica__region_add(encoder, &names, program, NULL, false, &y);
}
