/* pool.c - pooling: rows of windows, tap by tap over rows of x; and its gradient, frame by frame in the order of the windows. */
#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/image/real.h"
#include "backend/cpu/kernels/kernels.h"

#define REAL float
#define FN(name) name##_float
#include "backend/cpu/kernels/image/pool_body.h"
#undef REAL
#undef FN
#define REAL double
#define FN(name) name##_double
#include "backend/cpu/kernels/image/pool_body.h"
#undef REAL
#undef FN

#include "backend/cpu/kernels/image/pool_rows.h"

/* The places that MAX or MIN take. `tmp` has the rows of x that are needed together. */
static void find_places_float(const mica__cpu_pool *p, const unsigned char *x, uint16_t dtype, uint64_t oz,
                              uint64_t oy, float *tmp, float *best, uint32_t *place)
{
    pool_rows rows;
    if (p->kept == 0) {
        pool_row_float(p, x, dtype, oz, oy, tmp, best, place);
        return;
    }
    pool_collect(p, x, dtype, oz, oy, tmp, &rows);
    pool_fill(p, &rows, best, place);
}

#define find_places_double pool_row_double

#define REAL float
#define FN(name) name##_float
#include "backend/cpu/kernels/image/pool_back_body.h"
#undef REAL
#undef FN
#define REAL double
#define FN(name) name##_double
#include "backend/cpu/kernels/image/pool_back_body.h"

/* A row of windows: where it stands, and where its frame lies in each operand. */
typedef struct pool_at {
    uint64_t frame, oz, oy;
    unsigned char *x, *y, *indices;
} pool_at;

static void find_frame(const mica__cpu_args *args, pool_at *at)
{
    const mica__cpu_pool *p = args->params;
    const mica__cpu_view *view = args->view;
    at->x = view[MICA__POOL_X].data + mica__frame_at(&p->frames, 0, at->frame);
    at->y = view[MICA__POOL_Y].data + mica__frame_at(&p->frames, 1, at->frame);
    at->indices = view[MICA__POOL_INDICES].data;
    if (at->indices != NULL)
        at->indices += mica__frame_at(&p->frames, 2, at->frame);
}

/* Written where it belongs, unless that has another type or stride. */
static void pool_row_kept(const mica__cpu_args *args, const pool_at *at)
{
    const mica__cpu_pool *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__POOL_X], *y = &args->view[MICA__POOL_Y];
    const uint64_t n = p->windows.out[2], *y_step = p->frames.step[1], *place_step = p->frames.step[2];
    unsigned char *to = at->y + at->oz * y_step[0] + at->oy * y_step[1], *places = at->indices;
    float *tmp = args->local, *out = tmp + p->kept * p->windows.in[2];
    uint32_t *place = at->indices != NULL ? (uint32_t *)(void *)(out + n) : NULL;
    const bool plain = y->dtype == MICA_DTYPE_F32 && y_step[2] == sizeof(float),
               plain_places = place != NULL && place_step[2] == sizeof *place;
    pool_rows rows;
    if (places != NULL)
        places += at->oz * place_step[0] + at->oy * place_step[1];
    pool_collect(p, at->x, x->dtype, at->oz, at->oy, tmp, &rows);
    if (plain)
        out = (float *)(void *)to;
    if (plain_places)
        place = (uint32_t *)(void *)places;
    pool_fill(p, &rows, out, place);
    if (!plain)
        row_store_strided(to, y->dtype, y_step[2], out, n);
    for (uint64_t i = 0; place != NULL && !plain_places && i < n; i++)
        memcpy(places + i * place_step[2], &place[i], sizeof place[i]);
}

void MICA__ISA(pool)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_pool *p = args->params;
    const uint64_t *out = p->windows.out;
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    pool_at at = {.frame = first / out[1] / out[0], .oz = first / out[1] % out[0], .oy = first % out[1]};
    for (uint64_t unit = first; unit < last && p->kept == 0; unit++)
        (wide ? pool_unit_double : pool_unit_float)(args, unit);
    if (p->kept == 0)
        return;
    find_frame(args, &at);
    for (uint64_t unit = first; unit < last; unit++) {
        pool_row_kept(args, &at);
        if (++at.oy < out[1])
            continue;
        at.oy = 0;
        if (++at.oz < out[0])
            continue;
        at.oz = 0;
        at.frame++;
        if (unit + 1 < last)
            find_frame(args, &at);
    }
}

void MICA__ISA(pool_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? backward_unit_double : backward_unit_float)(args, unit);
}
