/*
 * elementwise.c - ops whose elements do not see one another: add mul silu_mul gelu softcap fill advance.
 *
 * The plan has brought the views to one shape, collapsed. The work is cut into tiles that stay in the first
 * cache: inputs are brought to f32 (where they are not), the formula runs on whole vectors, the result is
 * rounded to its place.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

#define TILE 256

typedef vf (*vector_op)(vf a, vf b);

static inline vf op_add(vf a, vf b)
{
    return vf_add(a, b);
}

static inline vf op_mul(vf a, vf b)
{
    return vf_mul(a, b);
}

static inline vf op_silu_mul(vf gate, vf up)
{
    return vf_mul(vf_silu(gate), up);
}

static inline vf op_gelu(vf x, vf unused)
{
    (void)unused;
    return vf_gelu(x);
}

static inline vf op_softcap(vf x, vf cap)
{
    return vf_softcap(x, cap);
}

/* y = op(a, b), or op(a, scalar) where b is NULL. */
static inline void map_tile(vector_op op, const float *a, const float *b, vf scalar, uint64_t n, float *y)
{
    uint64_t i = 0;
    for (; i + VW <= n; i += VW)
        vf_store(y + i, op(vf_load(a + i), b != NULL ? vf_load(b + i) : scalar));
    if (i < n) {
        const vf last = b != NULL ? vf_load_n(b + i, n - i) : scalar;
        vf_store_n(y + i, op(vf_load_n(a + i, n - i), last), n - i);
    }
}

/* One piece of a row: views are (a, b, y) or (x, y), `at` their bytes. */
static inline void map_piece(vector_op op, const mica__cpu_view *view, uint32_t count,
                             unsigned char *const *at, vf scalar, uint64_t n)
{
    const uint32_t last = view->ndim - 1u;
    const mica__cpu_view *a = view, *b = view + 1, *y = view + count - 1;
    const uint64_t a_stride = a->stride[last], b_stride = b->stride[last], y_stride = y->stride[last];
    const bool direct = y->dtype == MICA_DTYPE_F32 && y_stride == sizeof(float);
    float a_tile[TILE], b_tile[TILE], y_tile[TILE];
    for (uint64_t i = 0; i < n; i += TILE) {
        const uint64_t part = n - i < TILE ? n - i : TILE;
        const float *from = row_f32_strided(at[0] + i * a_stride, a->dtype, a_stride, part, a_tile);
        const float *other = NULL;
        if (count == 3)
            other = row_f32_strided(at[1] + i * b_stride, b->dtype, b_stride, part, b_tile);
        unsigned char *to = at[count - 1] + i * y_stride;
        /* cppcheck-suppress legacyUninitvar ; y_tile is written through result */
        float *result = direct ? (float *)(void *)to : y_tile;
        map_tile(op, from, other, scalar, part, result);
        if (!direct)
            row_store_strided(to, y->dtype, y_stride, result, part);
    }
}

static inline void map(vector_op op, const mica__cpu_args *args, uint32_t count, uint32_t first,
                       uint32_t last)
{
    const mica__cpu_elementwise *params = args->params;
    const mica__cpu_view *view = args->view;
    const uint64_t row = view->shape[view->ndim - 1];
    const vf scalar = vf_set1(params->value);
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    end = end < params->elements ? end : params->elements;
    uint64_t column = i % row;
    walk w;
    walk_begin(&w, view, count, view->ndim - 1u, i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        unsigned char *at[3];
        for (uint32_t v = 0; v < count; v++)
            at[v] = walk_at(&w, v) + column * view[v].stride[view->ndim - 1];
        map_piece(op, view, count, at, scalar, n);
        walk_next(&w);
        column = 0;
        i += n;
    }
}

void MICA__ISA(add)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    map(op_add, args, 3, first, last);
}

void MICA__ISA(mul)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    map(op_mul, args, 3, first, last);
}

void MICA__ISA(silu_mul)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    map(op_silu_mul, args, 3, first, last);
}

void MICA__ISA(gelu)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    map(op_gelu, args, 2, first, last);
}

void MICA__ISA(softcap)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    map(op_softcap, args, 2, first, last);
}

/* The elements of the units one by one, for what only fill and advance need. */
static inline void each(const mica__cpu_args *args, uint32_t first, uint32_t last,
                        void (*change)(unsigned char *at, uint64_t stride, uint64_t n, uint32_t bits))
{
    const mica__cpu_elementwise *params = args->params;
    const mica__cpu_view *y = args->view;
    const uint64_t row = y->shape[y->ndim - 1], stride = y->stride[y->ndim - 1];
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    end = end < params->elements ? end : params->elements;
    uint64_t column = i % row;
    walk w;
    walk_begin(&w, y, 1, y->ndim - 1u, i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        change(walk_at(&w, 0) + column * stride, stride, n, params->bits);
        walk_next(&w);
        column = 0;
        i += n;
    }
}

static inline void fill_2(unsigned char *at, uint64_t stride, uint64_t n, uint32_t bits)
{
    const uint16_t element = (uint16_t)bits;
    for (uint64_t i = 0; i < n; i++)
        memcpy(at + i * stride, &element, sizeof element);
}

static inline void fill_4(unsigned char *at, uint64_t stride, uint64_t n, uint32_t bits)
{
    for (uint64_t i = 0; i < n; i++)
        memcpy(at + i * stride, &bits, sizeof bits);
}

static inline void advance_4(unsigned char *at, uint64_t stride, uint64_t n, uint32_t bits)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t counter;
        memcpy(&counter, at + i * stride, sizeof counter);
        counter += bits;
        memcpy(at + i * stride, &counter, sizeof counter);
    }
}

void MICA__ISA(fill)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const uint16_t dtype = args->view->dtype;
    if (dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16)
        each(args, first, last, fill_2);
    else
        each(args, first, last, fill_4);
}

void MICA__ISA(advance)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    each(args, first, last, advance_4);
}
