/* complex.c - arithmetic of complex numbers, as regions of their parts. */
#include "device/objects.h"
#include "ops/programs.h"

#define NONE MICA_REGION_NONE

static const char *const ab_names[] = {"a", "b"};
static const char *const x_names[] = {"x"};
static const char *const y_names[] = {"y"};

static uint8_t step(mica__region_program *p, mica_scalar scalar, uint8_t a, uint8_t b)
{
    return mica__region_step(p, scalar, MICA_REGISTER_F32, a, b, NONE);
}

/* The imaginary part of an input. */
static uint8_t imag(mica__region_program *p, uint8_t input)
{
    p->special = 1;
    return step(p, MICA_SCALAR_IMAG, input, NONE);
}

static uint8_t constant(mica__region_program *p, float value)
{
    return mica__region_constant(p, MICA_REGISTER_F32, (mica__scalar_value){.f32 = value});
}

static void put(mica__region_program *p, uint8_t re, uint8_t im)
{
    p->output[0] = re;
    p->output_imag[0] = im;
}

/* The greater of the magnitudes of two values. */
static uint8_t greater(mica__region_program *p, uint8_t a, uint8_t b)
{
    const uint8_t size = step(p, MICA_SCALAR_ABS, a, NONE);
    return step(p, MICA_SCALAR_MAX, size, step(p, MICA_SCALAR_ABS, b, NONE));
}

static uint8_t sum_of_products(mica__region_program *p, mica_scalar joined, uint8_t a, uint8_t b, uint8_t c,
                               uint8_t d)
{
    const uint8_t first = step(p, MICA_SCALAR_MUL, a, b);
    return step(p, joined, first, step(p, MICA_SCALAR_MUL, c, d));
}

/* a conj(b / s) / |b / s|^2 / s, s being the greater part of b. */
static void divide(mica__region_program *p, uint8_t ai, uint8_t bi)
{
    const uint8_t s = greater(p, 1, bi);
    const uint8_t re = step(p, MICA_SCALAR_DIV, 1, s), im = step(p, MICA_SCALAR_DIV, bi, s);
    const uint8_t size = sum_of_products(p, MICA_SCALAR_ADD, re, re, im, im);
    const uint8_t top = sum_of_products(p, MICA_SCALAR_ADD, 0, re, ai, im);
    const uint8_t side = sum_of_products(p, MICA_SCALAR_SUB, ai, re, 0, im);
    const uint8_t top_size = step(p, MICA_SCALAR_DIV, top, size),
                  side_size = step(p, MICA_SCALAR_DIV, side, size);
    const uint8_t quotient = step(p, MICA_SCALAR_DIV, top_size, s);
    put(p, quotient, step(p, MICA_SCALAR_DIV, side_size, s));
}

/* s sqrt(1 + (t / s)^2), s the greater and t the lesser part; s itself where it is 0 or infinite. */
static uint8_t magnitude(mica__region_program *p, uint8_t xi)
{
    const mica_register boolean = MICA_REGISTER_BOOL;
    const uint8_t a = step(p, MICA_SCALAR_ABS, 0, NONE), b = step(p, MICA_SCALAR_ABS, xi, NONE);
    const uint8_t s = step(p, MICA_SCALAR_MAX, a, b), t = step(p, MICA_SCALAR_MIN, a, b);
    const uint8_t ratio = step(p, MICA_SCALAR_DIV, t, s), square = step(p, MICA_SCALAR_MUL, ratio, ratio);
    const uint8_t root = step(p, MICA_SCALAR_SQRT, step(p, MICA_SCALAR_ADD, square, constant(p, 1.0f)), NONE);
    const uint8_t size = step(p, MICA_SCALAR_MUL, s, root);
    const uint8_t zero = mica__region_step(p, MICA_SCALAR_EQUAL, boolean, s, constant(p, 0.0f), NONE);
    const uint8_t endless = mica__region_step(p, MICA_SCALAR_ISINF, boolean, s, NONE, NONE);
    const uint8_t plain = mica__region_step(p, MICA_SCALAR_BIT_OR, boolean, zero, endless, NONE);
    return mica__region_step(p, MICA_SCALAR_SELECT, MICA_REGISTER_F32, plain, s, size);
}

void mica__complex_program(mica__complex what, mica__region_program *p)
{
    const bool two = what <= MICA__COMPLEX_DIV;
    mica__region_begin(p, two ? 2 : 1, 1);
    p->input[0] = MICA_REGISTER_F32;
    if (two)
        p->input[1] = MICA_REGISTER_F32;
    const uint8_t ai = imag(p, 0), bi = two ? imag(p, 1) : NONE;
    switch (what) {
    case MICA__COMPLEX_ADD:
    case MICA__COMPLEX_SUB: {
        const mica_scalar scalar = what == MICA__COMPLEX_ADD ? MICA_SCALAR_ADD : MICA_SCALAR_SUB;
        const uint8_t re = step(p, scalar, 0, 1);
        put(p, re, step(p, scalar, ai, bi));
        break;
    }
    case MICA__COMPLEX_MUL: {
        const uint8_t re = sum_of_products(p, MICA_SCALAR_SUB, 0, 1, ai, bi);
        put(p, re, sum_of_products(p, MICA_SCALAR_ADD, 0, bi, ai, 1));
        break;
    }
    case MICA__COMPLEX_DIV: divide(p, ai, bi); break;
    case MICA__COMPLEX_CONJ: put(p, 0, step(p, MICA_SCALAR_NEG, ai, NONE)); break;
    case MICA__COMPLEX_ABS: p->output[0] = magnitude(p, ai); break;
    case MICA__COMPLEX_NORM: p->output[0] = sum_of_products(p, MICA_SCALAR_ADD, 0, 0, ai, ai); break;
    default: p->output[0] = step(p, MICA_SCALAR_ATAN2, ai, 0); break;
    }
}

static mica_status check(const char *call, const char *name, const mica_buffer *buffer, bool complex)
{
    if (buffer == NULL) /* found where all operands are looked at */
        return MICA_OK;
    const bool fits =
        complex ? buffer->dtype == MICA_DTYPE_C64
                : buffer->dtype != MICA_DTYPE_C64 && mica__register_of(buffer->dtype) == MICA_REGISTER_F32;
    if (!fits)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is %s, not %s", call, name,
                          mica_dtype_name(buffer->dtype), complex ? "c64" : "a type that loads to f32");
    return MICA_OK;
}

static mica_status apply(mica_encoder *encoder, const char *call, mica__complex what, mica_buffer *a,
                         mica_buffer *b, mica_buffer *y)
{
    const bool two = what <= MICA__COMPLEX_DIV;
    const mica__region_names names = {call, two ? ab_names : x_names, y_names};
    mica_buffer *const inputs[] = {a, b};
    mica__region_room room;
    MICA__TRY(check(call, two ? "a" : "x", a, true));
    MICA__TRY(check(call, "b", two ? b : NULL, true));
    MICA__TRY(check(call, "y", y, what <= MICA__COMPLEX_CONJ));
    mica__complex_program(what, &room.program);
    return mica__region_add(encoder, &names, &room.program, inputs, false, &y);
}

mica_status mica_complex_add(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y)
{
    return apply(encoder, "complex_add", MICA__COMPLEX_ADD, a, b, y);
}

mica_status mica_complex_sub(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y)
{
    return apply(encoder, "complex_sub", MICA__COMPLEX_SUB, a, b, y);
}

mica_status mica_complex_mul(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y)
{
    return apply(encoder, "complex_mul", MICA__COMPLEX_MUL, a, b, y);
}

mica_status mica_complex_div(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y)
{
    return apply(encoder, "complex_div", MICA__COMPLEX_DIV, a, b, y);
}

mica_status mica_complex_conj(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    return apply(encoder, "complex_conj", MICA__COMPLEX_CONJ, x, NULL, y);
}

mica_status mica_complex_abs(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    return apply(encoder, "complex_abs", MICA__COMPLEX_ABS, x, NULL, y);
}

mica_status mica_complex_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    return apply(encoder, "complex_norm", MICA__COMPLEX_NORM, x, NULL, y);
}

mica_status mica_complex_angle(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    return apply(encoder, "complex_angle", MICA__COMPLEX_ANGLE, x, NULL, y);
}

void mica__complex_join_program(mica__region_program *p)
{
    mica__region_begin(p, 2, 1);
    p->input[0] = p->input[1] = MICA_REGISTER_F32;
    put(p, 0, 1);
}

mica_status mica_complex_join(mica_encoder *encoder, mica_buffer *re, mica_buffer *im, mica_buffer *y)
{
    static const char *const inputs[] = {"re", "im"};
    static const mica__region_names names = {"complex_join", inputs, y_names};
    mica__region_small small;
    MICA__TRY(check("complex_join", "re", re, false));
    MICA__TRY(check("complex_join", "im", im, false));
    MICA__TRY(check("complex_join", "y", y, true));
    mica__complex_join_program(&small.program);
    return mica__region_add(encoder, &names, &small.program, (mica_buffer *const[]){re, im}, false, &y);
}

mica_status mica_complex_part(mica_buffer *x, uint32_t imaginary, mica_buffer **out_view)
{
    if (out_view != NULL)
        *out_view = NULL;
    if (x == NULL || out_view == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "complex_part: %s is NULL",
                          x == NULL ? "x" : "out_view");
    if (x->dtype != MICA_DTYPE_C64 || imaginary > 1)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "complex_part: x is %s and imag %u, not c64 and 0 or 1",
                          mica_dtype_name(x->dtype), imaginary);
    return mica_buffer_view(x, MICA_DTYPE_F32, x->ndim, x->shape, x->stride, 4u * imaginary, out_view);
}
