/*
 * scatter.c - updates to the places that ids name.
 *
 * First every line of ids is linked: each id to the next equal one. Then whoever is first of its kind takes all of them together, in their
 * order, whatever thread it is on; where elements are only set, the last one alone writes.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/places.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

#define TILE 256

/* ---- links ---- */

/* A slot of the thread's table: the last place that had the id; place NOWHERE: it is free. */
typedef struct seen {
    uint32_t id, place;
} seen;

static void link_line(const mica__cpu_args *args, const unsigned char *ids, uint64_t stride, uint32_t n,
                      uint32_t *link)
{
    const mica__cpu_scatter_link *params = args->params;
    seen *table = args->local;
    for (uint32_t s = 0; s < params->slots; s++)
        table[s].place = MICA__LINK_NOWHERE;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = id_at(ids + i * stride);
        link[i] = MICA__LINK_NOWHERE;
        if (id >= params->count) {
            mica__cpu_fault(args);
            continue;
        }
        uint32_t s = id * 0x9e3779b1u >> params->shift;
        while (table[s].place != MICA__LINK_NOWHERE && table[s].id != id)
            s = (s + 1) & (params->slots - 1);
        const uint32_t before = table[s].place;
        link[i] = before != MICA__LINK_NOWHERE ? MICA__LINK_LATER : 0;
        if (before != MICA__LINK_NOWHERE)
            link[before] |= i - before;
        table[s] = (seen){id, i};
    }
}

void MICA__ISA(scatter_link)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_view *view = args->view; /* ids, link */
    const uint32_t inner = view->ndim - 1u;
    walk w;
    walk_begin(&w, view, 2, inner, first);
    for (uint32_t line = first; line < last; line++, walk_next(&w))
        link_line(args, walk_at(&w, 0), view->stride[inner], (uint32_t)view->shape[inner],
                  (uint32_t *)(void *)walk_at(&w, 1));
}

/* ---- updates ---- */

enum { IDS, LINK, Y, UPDATES };

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define EACH(T, formula)                 \
    for (uint64_t i = 0; i < n; i++) {   \
        const T a = sum[i], b = more[i]; \
        sum[i] = (T)formula(a, b);       \
    }                                    \
    break;
/* sum = sum and more, element for element. */
#define COMBINE(T)                                                                              \
    static void combine_##T(T *restrict sum, const T *restrict more, uint64_t n, uint32_t mode) \
    {                                                                                           \
        switch (mode) {                                                                         \
        case MICA_SCATTER_ADD: EACH(T, ADD)                                                     \
        case MICA_SCATTER_MUL: EACH(T, MUL)                                                     \
        case MICA_SCATTER_MAX: EACH(T, MAX)                                                     \
        default: EACH(T, MIN)                                                                   \
        }                                                                                       \
    }
COMBINE(double)
COMBINE(uint32_t)
COMBINE(uint64_t)
COMBINE(int32_t)
COMBINE(int64_t)

typedef union columns {
    double f64[TILE];
    uint32_t u32[TILE];
    int32_t i32[TILE];
    uint64_t u64[TILE];
    int64_t i64[TILE];
} columns;

static bool is_small_float(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16 || dtype == MICA_DTYPE_F32;
}

/* Floats become f64: however many there are, their sum is as if it rounded once. */
static void load(const unsigned char *from, int64_t stride, uint16_t dtype, uint32_t bytes, uint64_t n,
                 columns *out)
{
    float room[TILE];
    if (!is_small_float(dtype)) {
        move_places((unsigned char *)out, bytes, from, stride, bytes, n);
        return;
    }
    const float *values = row_f32_strided(from, dtype, (uint64_t)stride, n, room);
    for (uint64_t i = 0; i < n; i++)
        out->f64[i] = (double)values[i];
}

static void store(unsigned char *to, int64_t stride, uint16_t dtype, uint32_t bytes, uint64_t n,
                  const columns *values)
{
    float room[TILE];
    if (!is_small_float(dtype)) {
        move_places(to, stride, (const unsigned char *)values, bytes, bytes, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        room[i] = (float)values->f64[i];
    row_store_strided(to, dtype, (uint64_t)stride, room, n);
}

/* Sums and products of signed integers wrap, as those of unsigned ones do. */
static void combine(columns *sum, const columns *more, uint16_t dtype, uint32_t mode, uint64_t n)
{
    const bool wraps = mode == MICA_SCATTER_ADD || mode == MICA_SCATTER_MUL;
    if (is_small_float(dtype) || dtype == MICA_DTYPE_F64)
        combine_double(sum->f64, more->f64, n, mode);
    else if (dtype == MICA_DTYPE_U32 || (dtype == MICA_DTYPE_I32 && wraps))
        combine_uint32_t(sum->u32, more->u32, n, mode);
    else if (dtype == MICA_DTYPE_I32)
        combine_int32_t(sum->i32, more->i32, n, mode);
    else if (dtype == MICA_DTYPE_U64 || wraps)
        combine_uint64_t(sum->u64, more->u64, n, mode);
    else
        combine_int64_t(sum->i64, more->i64, n, mode);
}

/* sum and more of one lane type; as COMBINE has it. */
static inline vf combined(vf a, vf b, uint32_t mode)
{
    switch (mode) {
    case MICA_SCATTER_ADD: return vf_add(a, b);
    case MICA_SCATTER_MUL: return vf_mul(a, b);
    case MICA_SCATTER_MAX: return vf_select(vf_eq(b, b), vf_select(vf_lt(a, b), b, a), b);
    default: return vf_select(vf_eq(b, b), vf_select(vf_lt(b, a), b, a), b);
    }
}

/* A row of floats side by side with one update: one rounding in f32 is what f64 would give. Meanwhile as many bytes at `next` come. The type and the
 * mode are constants in each call of this. */
static inline __attribute__((always_inline)) void update_once(unsigned char *to, const unsigned char *from,
                                                              uint16_t dtype, uint32_t mode, uint64_t n,
                                                              const unsigned char *next)
{
    const uint64_t bytes = row_element_bytes(dtype);
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        __builtin_prefetch(next + i * bytes, 1);
        if (left == VW)
            row_store_n(to + i * bytes, dtype,
                        combined(row_load_n(to + i * bytes, dtype, VW),
                                 row_load_n(from + i * bytes, dtype, VW), mode),
                        VW);
        else
            row_store_n(to + i * bytes, dtype,
                        combined(row_load_n(to + i * bytes, dtype, left),
                                 row_load_n(from + i * bytes, dtype, left), mode),
                        left);
    }
}

static void update_row(unsigned char *to, const unsigned char *from, uint16_t dtype, uint32_t mode,
                       uint64_t n, const unsigned char *next)
{
    if (dtype == MICA_DTYPE_F32 && mode == MICA_SCATTER_ADD)
        update_once(to, from, MICA_DTYPE_F32, MICA_SCATTER_ADD, n, next);
    else if (dtype == MICA_DTYPE_F32)
        update_once(to, from, MICA_DTYPE_F32, mode, n, next);
    else if (dtype == MICA_DTYPE_F16)
        update_once(to, from, MICA_DTYPE_F16, mode, n, next);
    else if (mode == MICA_SCATTER_ADD)
        update_once(to, from, MICA_DTYPE_BF16, MICA_SCATTER_ADD, n, next);
    else
        update_once(to, from, MICA_DTYPE_BF16, mode, n, next);
}

/* At most TILE elements of y and all their updates, the first of which is here. */
static void update(const mica__cpu_args *args, unsigned char *to, const unsigned char *from,
                   const unsigned char *link, uint64_t n)
{
    const mica__cpu_scatter *p = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t last = view->ndim - 1u;
    const uint16_t dtype = view[Y].dtype;
    const int64_t y_stride = (int64_t)view[Y].stride[last], stride = (int64_t)view[UPDATES].stride[last];
    columns sum, more;
    uint64_t further = 0;
    load(to, y_stride, dtype, p->element_bytes, n, &sum);
    do {
        from += further * p->updates_step;
        link += further * p->link_step;
        load(from, stride, dtype, p->element_bytes, n, &more);
        combine(&sum, &more, dtype, p->mode, n);
        further = id_at(link) & ~MICA__LINK_LATER;
    } while (further != 0);
    store(to, y_stride, dtype, p->element_bytes, n, &sum);
}

/* n elements of one id; what lies at `next`, as long, is asked for. */
static void scatter_run(const mica__cpu_args *args, const unsigned char *ids, const unsigned char *link,
                        unsigned char *to, const unsigned char *from, uint64_t n, const unsigned char *next)
{
    const mica__cpu_scatter *p = args->params;
    const uint32_t last = args->view->ndim - 1u, linked = id_at(link);
    const uint16_t dtype = args->view[Y].dtype;
    const int64_t y_stride = (int64_t)args->view[Y].stride[last],
                  stride = (int64_t)args->view[UPDATES].stride[last], bytes = p->element_bytes;
    if (linked == MICA__LINK_NOWHERE)
        return;
    to += id_at(ids) * p->y_step;
    if (p->mode == MICA_SCATTER_SET) {
        if ((linked & ~MICA__LINK_LATER) == 0)
            move_places(to, y_stride, from, stride, p->element_bytes, n);
        return;
    }
    if (linked == 0 && is_small_float(dtype) && y_stride == bytes && stride == bytes) {
        update_row(to, from, dtype, p->mode, n, next != NULL ? next : to);
        return;
    }
    for (uint64_t k = 0; k < n && (linked & MICA__LINK_LATER) == 0; k += TILE)
        update(args, to + (int64_t)k * y_stride, from + (int64_t)k * stride, link,
               n - k < TILE ? n - k : TILE);
}

#define LONG 256u /* bytes of a row from which on the next one is asked for */

/* Where the row behind that of `w` goes, whose ids are one for all of it; NULL: nowhere. */
static const unsigned char *next_row(const mica__cpu_args *args, walk w)
{
    const mica__cpu_scatter *params = args->params;
    walk_next(&w);
    return id_at(walk_at(&w, LINK)) == MICA__LINK_NOWHERE
               ? NULL
               : walk_at(&w, Y) + id_at(walk_at(&w, IDS)) * params->y_step;
}

void MICA__ISA(scatter)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_scatter *params = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t inner = view->ndim - 1u;
    const uint64_t row = view->shape[inner];
    const bool together = view[LINK].stride[inner] == 0;
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    end = end < params->elements ? end : params->elements;
    uint64_t column = i % row;
    walk w;
    walk_begin(&w, view, 4, inner, i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i, each = together ? n : 1;
        const unsigned char *next = NULL;
        if (together && column + n == row && i + n < params->elements && row * params->element_bytes >= LONG)
            next = next_row(args, w);
        for (uint64_t k = column; k < column + n; k += each)
            scatter_run(args, walk_at(&w, IDS) + k * view[IDS].stride[inner],
                        walk_at(&w, LINK) + k * view[LINK].stride[inner],
                        walk_at(&w, Y) + k * view[Y].stride[inner],
                        walk_at(&w, UPDATES) + k * view[UPDATES].stride[inner], each, next);
        walk_next(&w);
        column = 0;
        i += n;
    }
}
