/*
 * elementwise.c - ops whose elements do not see one another: add mul silu_mul gelu_mul gelu gelu_erf softcap, chains of
 * them, fill, advance.
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

static inline vf op_gelu_mul(vf gate, vf up)
{
    return vf_mul(vf_gelu(gate), up);
}

static inline vf op_gelu(vf x, vf unused)
{
    (void)unused;
    return vf_gelu(x);
}

static inline vf op_gelu_erf(vf x, vf unused)
{
    (void)unused;
    return vf_gelu_erf(x);
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

/* A part of one row, n elements long, whose views' bytes begin at `at`. */
typedef void (*piece_run)(const mica__cpu_args *args, unsigned char *const *at, uint64_t n);

/* Cuts units [first, last) of `elements` into pieces. There are `count` views. */
static inline void pieces(const mica__cpu_args *args, uint64_t elements, uint32_t count, uint32_t first,
                          uint32_t last, piece_run run)
{
    const mica__cpu_view *view = args->view;
    const uint64_t row = view->shape[view->ndim - 1];
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    end = end < elements ? end : elements;
    uint64_t column = i % row;
    walk w;
    walk_begin(&w, view, count, view->ndim - 1u, i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        unsigned char *at[WALK_VIEWS];
        for (uint32_t v = 0; v < count; v++)
            at[v] = walk_at(&w, v) + column * view[v].stride[view->ndim - 1];
        run(args, at, n);
        walk_next(&w);
        column = 0;
        i += n;
    }
}

/* Whether the results for y can go straight to their place. */
static inline bool stores_directly(const mica__cpu_view *y)
{
    return y->dtype == MICA_DTYPE_F32 && y->stride[y->ndim - 1] == sizeof(float);
}

/* Views are (a, b, y) or (x, y). */
static inline void map(vector_op op, const mica__cpu_args *args, uint32_t count, unsigned char *const *at,
                       uint64_t n)
{
    const uint32_t last = args->view->ndim - 1u;
    const mica__cpu_view *a = args->view, *b = a + 1, *y = a + count - 1;
    const uint64_t a_stride = a->stride[last], b_stride = b->stride[last], y_stride = y->stride[last];
    const vf scalar = vf_set1(((const mica__cpu_elementwise *)args->params)->value);
    const bool direct = stores_directly(y);
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

static inline void add_piece(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    map(op_add, args, 3, at, n);
}

static inline void mul_piece(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    map(op_mul, args, 3, at, n);
}

static inline void silu_mul_piece(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    map(op_silu_mul, args, 3, at, n);
}

static inline void gelu_mul_piece(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    map(op_gelu_mul, args, 3, at, n);
}

static inline void gelu_piece(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    map(op_gelu, args, 2, at, n);
}

static inline void gelu_erf_piece(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    map(op_gelu_erf, args, 2, at, n);
}

static inline void softcap_piece(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    map(op_softcap, args, 2, at, n);
}

static inline uint64_t elements_of(const mica__cpu_args *args)
{
    return ((const mica__cpu_elementwise *)args->params)->elements;
}

void MICA__ISA(add)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, elements_of(args), 3, first, last, add_piece);
}

void MICA__ISA(mul)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, elements_of(args), 3, first, last, mul_piece);
}

void MICA__ISA(silu_mul)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, elements_of(args), 3, first, last, silu_mul_piece);
}

void MICA__ISA(gelu_mul)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, elements_of(args), 3, first, last, gelu_mul_piece);
}

void MICA__ISA(gelu)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, elements_of(args), 2, first, last, gelu_piece);
}

void MICA__ISA(gelu_erf)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, elements_of(args), 2, first, last, gelu_erf_piece);
}

void MICA__ISA(softcap)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, elements_of(args), 2, first, last, softcap_piece);
}

/* y may be v or other, which a step of one operand does not look at. */
static void chain_step(const mica__chain_step *step, const float *v, const float *other, uint64_t n, float *y)
{
    const float *a = step->swapped ? other : v, *b = step->swapped ? v : other;
    const vf scalar = vf_set1(step->value);
    switch (step->op) {
    case MICA_OP_ADD: map_tile(op_add, a, b, scalar, n, y); break;
    case MICA_OP_MUL: map_tile(op_mul, a, b, scalar, n, y); break;
    case MICA_OP_SILU_MUL: map_tile(op_silu_mul, a, b, scalar, n, y); break;
    case MICA_OP_GELU_MUL: map_tile(op_gelu_mul, a, b, scalar, n, y); break;
    case MICA_OP_GELU: map_tile(op_gelu, v, NULL, scalar, n, y); break;
    case MICA_OP_GELU_ERF: map_tile(op_gelu_erf, v, NULL, scalar, n, y); break;
    default: map_tile(op_softcap, v, NULL, scalar, n, y);
    }
}

/* y may be any input's view: of a tile all inputs are read before y is written. */
static inline void chain_piece(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    const mica__chain_record *chain = &((const mica__cpu_chain *)args->params)->chain;
    const mica__cpu_view *view = args->view, *y = view + args->view_count - 1;
    const uint32_t last = view->ndim - 1u;
    const bool direct = stores_directly(y);
    _Alignas(64) float v_tile[TILE], other_tile[TILE];
    for (uint64_t i = 0; i < n; i += TILE) {
        const uint64_t part = n - i < TILE ? n - i : TILE;
        unsigned char *to = at[args->view_count - 1] + i * y->stride[last];
        const float *v =
            row_f32_strided(at[0] + i * view->stride[last], view->dtype, view->stride[last], part, v_tile);
        uint32_t next = 1;
        for (uint32_t s = 0; s < chain->step_count; s++) {
            const uint16_t op = chain->step[s].op;
            const float *other = NULL;
            if (op != MICA_OP_GELU && op != MICA_OP_GELU_ERF && op != MICA_OP_SOFTCAP) {
                const mica__cpu_view *o = &view[next];
                other = row_f32_strided(at[next++] + i * o->stride[last], o->dtype, o->stride[last], part,
                                        other_tile);
            }
            float *result = direct && s + 1 == chain->step_count ? (float *)(void *)to : v_tile;
            chain_step(&chain->step[s], v, other, part, result);
            v = result;
        }
        if (!direct)
            row_store_strided(to, y->dtype, y->stride[last], v, part);
    }
}

void MICA__ISA(chain)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, ((const mica__cpu_chain *)args->params)->elements, args->view_count, first, last,
           chain_piece);
}

/* fill and advance: the last stride of y and the bits of the parameters. */
static inline uint64_t stride_of(const mica__cpu_args *args)
{
    return args->view->stride[args->view->ndim - 1];
}

static inline uint32_t bits_of(const mica__cpu_args *args)
{
    return ((const mica__cpu_elementwise *)args->params)->bits;
}

static inline void fill_2(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    const uint64_t stride = stride_of(args);
    const uint16_t element = (uint16_t)bits_of(args);
    for (uint64_t i = 0; i < n; i++)
        memcpy(at[0] + i * stride, &element, sizeof element);
}

static inline void fill_4(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    const uint64_t stride = stride_of(args);
    const uint32_t element = bits_of(args);
    for (uint64_t i = 0; i < n; i++)
        memcpy(at[0] + i * stride, &element, sizeof element);
}

static inline void advance_4(const mica__cpu_args *args, unsigned char *const *at, uint64_t n)
{
    const uint64_t stride = stride_of(args);
    const uint32_t delta = bits_of(args);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t counter;
        memcpy(&counter, at[0] + i * stride, sizeof counter);
        counter += delta;
        memcpy(at[0] + i * stride, &counter, sizeof counter);
    }
}

void MICA__ISA(fill)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const uint16_t dtype = args->view->dtype;
    if (dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16)
        pieces(args, elements_of(args), 1, first, last, fill_2);
    else
        pieces(args, elements_of(args), 1, first, last, fill_4);
}

void MICA__ISA(advance)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    pieces(args, elements_of(args), 1, first, last, advance_4);
}
