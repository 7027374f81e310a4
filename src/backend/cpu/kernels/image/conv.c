/*
 * conv.c - convolution, plain and transposed. The weights are packed once, vectors of outputs side by side; then each unit takes the places of x that
 * its tile meets, as f32 and with zeros where there is padding, and multiplies.
 */
#include "backend/cpu/kernels/image/conv_tile.h"

#include "backend/cpu/kernels/kernels.h"

enum { N, C, Z, Y, X };

/* Vectors in block b of a group's outputs. */
static uint32_t vectors_of(const mica__cpu_conv *p, uint64_t block)
{
    const uint64_t left = (p->outputs + VW - 1) / VW - block * CONV_VECTORS;
    return left < CONV_VECTORS ? (uint32_t)left : CONV_VECTORS;
}

static uint64_t blocks_of(const mica__cpu_conv *p)
{
    return (p->outputs + CONV_VECTORS * VW - 1) / (CONV_VECTORS * VW);
}

/* Vector `vector` of a group's outputs; lanes that are filled up have zeros. */
static void pack_vector(const mica__cpu_args *args, uint64_t group, uint64_t vector)
{
    const mica__cpu_conv *p = args->params;
    const mica__cpu_view *w = &args->view[0];
    const uint64_t block = vector / CONV_VECTORS, taps = mica__conv_taps(&p->windows);
    const uint64_t width = vectors_of(p, block) * VW;
    const uint64_t o_step = w->stride[p->transposed != 0 ? 1 : 0],
                   c_step = w->stride[p->transposed != 0 ? 0 : 1];
    const unsigned char *from = w->data +
                                group * (p->transposed != 0 ? p->channels * c_step : p->outputs * o_step) +
                                vector * VW * o_step;
    float *to = (float *)(void *)args->view[1].data + group * mica__conv_packed_floats(p) +
                block * CONV_VECTORS * VW * p->channels * taps + vector % CONV_VECTORS * VW;
    for (uint64_t c = 0; c < p->channels; c++)
        for (uint64_t z = 0; z < w->shape[Z]; z++)
            for (uint64_t y = 0; y < w->shape[Y]; y++)
                for (uint64_t x = 0; x < w->shape[X]; x++, to += width) {
                    const unsigned char *at =
                        from + c * c_step + z * w->stride[Z] + y * w->stride[Y] + x * w->stride[X];
                    for (uint64_t lane = 0; lane < VW; lane++, at += o_step)
                        to[lane] = vector * VW + lane < p->outputs ? row_element(at, w->dtype) : 0.0f;
                }
}

/* A unit is MICA__CONV_LANES outputs of a group. */
void MICA__ISA(conv_pack)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv *p = args->params;
    const uint64_t units = (p->outputs + MICA__CONV_LANES - 1) / MICA__CONV_LANES,
                   each = MICA__CONV_LANES / VW;
    for (uint64_t unit = first; unit < last; unit++)
        for (uint64_t vector = unit % units * each; vector < (unit % units + 1) * each; vector++)
            if (vector * VW < p->outputs)
                pack_vector(args, unit / units, vector);
}

/* What a unit works on. */
typedef struct unit {
    const mica__cpu_conv *p;
    uint64_t image, group, part, plane, row, column, rows, columns; /* counted in places of the phase */
    mica__conv_axis axis[MICA_SPATIAL_DIMS];
    uint64_t tile_rows, row_floats,
        phase_floats; /* of a plane of the tile; of a row; of its places that are x_step apart */
    int64_t origin[MICA_SPATIAL_DIMS]; /* place of x where the tile begins */
} unit;

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* False where the phase has no such places. */
static bool find_unit(const mica__cpu_conv *p, uint64_t index, unit *u)
{
    u->p = p;
    u->part = index % p->parts;
    index /= p->parts;
    u->column = index % p->column_tiles * p->columns;
    index /= p->column_tiles;
    u->row = index % p->row_tiles * p->rows;
    index /= p->row_tiles;
    u->plane = index % p->planes;
    index /= p->planes;
    uint32_t phase[MICA_SPATIAL_DIMS];
    for (uint32_t d = MICA_SPATIAL_DIMS; d-- > 0; index /= p->phases[d])
        phase[d] = (uint32_t)(index % p->phases[d]);
    u->group = index % p->groups;
    u->image = index / p->groups;
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++)
        u->axis[d] = mica__conv_axis_of(&p->windows, p->transposed != 0, d, phase[d]);
    if (u->plane >= u->axis[0].count || u->row >= u->axis[1].count || u->column >= u->axis[2].count)
        return false;
    u->rows = least(p->rows, u->axis[1].count - u->row);
    u->columns = least(p->columns, u->axis[2].count - u->column);
    const uint64_t begin[] = {u->plane, u->row, u->column};
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        const mica__conv_axis *a = &u->axis[d];
        const int64_t back = a->at_step < 0 && a->taps > 0 ? a->at_step * (int64_t)(a->taps - 1) : 0;
        u->origin[d] = (int64_t)(begin[d] * a->x_step) + a->at + back;
    }
    u->tile_rows = mica__conv_extent(&u->axis[1], u->rows);
    u->row_floats = mica__conv_row_floats(&u->axis[2], u->columns);
    u->phase_floats = u->row_floats / u->axis[2].x_step;
    return true;
}

/* Floats of a channel of the tile. */
static uint64_t plane_floats(const unit *u)
{
    return mica__conv_extent(&u->axis[0], 1) * u->tile_rows * u->row_floats;
}

/* One row of the tile: places [origin, origin + extent) of a row of x, zeros outside. */
static void fill_row(const unit *u, const unsigned char *row, const mica__cpu_view *x, float *to)
{
    const int64_t width = (int64_t)x->shape[X], origin = u->origin[2];
    const int64_t extent = (int64_t)mica__conv_extent(&u->axis[2], u->columns);
    const int64_t begin = origin < 0 ? -origin : 0, end = width - origin < extent ? width - origin : extent;
    const uint64_t step = u->axis[2].x_step;
    memset(to, 0, u->row_floats * sizeof *to);
    if (row == NULL || begin >= end)
        return;
    const unsigned char *from = row + (uint64_t)(origin + begin) * x->stride[X];
    if (step == 1) {
        const uint64_t n = (uint64_t)(end - begin);
        const float *values = row_f32_strided(from, x->dtype, x->stride[X], n, to + begin);
        if (values != to + begin)
            memcpy(to + begin, values, n * sizeof *to);
        return;
    }
    uint64_t phase = (uint64_t)begin % step, at = (uint64_t)begin / step;
    for (int64_t i = begin; i < end; i++, from += x->stride[X]) {
        to[phase * u->phase_floats + at] = row_element(from, x->dtype);
        if (++phase == step) {
            phase = 0;
            at++;
        }
    }
}

static void fill_tile(const unit *u, const mica__cpu_view *x, float *to)
{
    const uint64_t planes = mica__conv_extent(&u->axis[0], 1);
    for (uint64_t c = 0; c < u->p->channels; c++) {
        const unsigned char *channel =
            x->data + u->image * x->stride[N] + (u->group * u->p->channels + c) * x->stride[C];
        for (uint64_t z = 0; z < planes; z++)
            for (uint64_t y = 0; y < u->tile_rows; y++, to += u->row_floats) {
                const int64_t iz = u->origin[0] + (int64_t)z, iy = u->origin[1] + (int64_t)y;
                const bool inside =
                    iz >= 0 && iz < (int64_t)x->shape[Z] && iy >= 0 && iy < (int64_t)x->shape[Y];
                fill_row(u,
                         inside ? channel + (uint64_t)iz * x->stride[Z] + (uint64_t)iy * x->stride[Y] : NULL,
                         x, to);
            }
    }
}

/* Place of tap j in the tile, from where tap 0 of a rising axis, or the last one of a falling axis, is. */
static uint64_t tap_place(const mica__conv_axis *a, uint32_t j)
{
    return a->at_step >= 0 ? (uint64_t)a->at_step * j : (uint64_t)-a->at_step * (a->taps - 1 - j);
}

/* In rising order of the kernel's taps. */
static uint64_t list_taps(const unit *u, conv_tap *tap)
{
    const mica__conv_axis *az = &u->axis[0], *ay = &u->axis[1], *ax = &u->axis[2];
    const mica__windows *w = &u->p->windows;
    uint64_t count = 0;
    for (uint32_t z = 0; z < az->taps; z++)
        for (uint32_t y = 0; y < ay->taps; y++)
            for (uint32_t x = 0; x < ax->taps; x++, count++) {
                const uint64_t column = tap_place(ax, x),
                               row = tap_place(az, z) * u->tile_rows + tap_place(ay, y);
                const uint64_t kz = az->tap + (uint64_t)z * az->tap_step,
                               ky = ay->tap + (uint64_t)y * ay->tap_step,
                               kx = ax->tap + (uint64_t)x * ax->tap_step;
                tap[count].at =
                    row * u->row_floats + column % ax->x_step * u->phase_floats + column / ax->x_step;
                tap[count].weight = (kz * w->kernel[1] + ky) * w->kernel[2] + kx;
            }
    return count;
}

static void list_places(const unit *u, uint64_t *place)
{
    uint64_t i = 0;
    for (uint64_t y = 0; y < u->rows; y++)
        for (uint64_t x = 0; x < u->columns; x++)
            place[i++] = y * u->axis[1].x_step * u->row_floats + x;
    for (uint64_t fill = 0; fill < 16; fill++)
        place[i + fill] = place[i - 1];
}

/* Where output o of the group is stored at the first place of row y of the unit. */
static unsigned char *output_row(const unit *u, const mica__cpu_view *view, uint64_t o, uint64_t y)
{
    const mica__conv_axis *a = u->axis;
    return view->data + u->image * view->stride[N] + (u->group * u->p->outputs + o) * view->stride[C] +
           (a[0].first + u->plane * a[0].step) * view->stride[Z] +
           (a[1].first + (u->row + y) * a[1].step) * view->stride[Y] +
           (a[2].first + u->column * a[2].step) * view->stride[X];
}

static float bias_of(const unit *u, const mica__cpu_view *bias, uint64_t o)
{
    return bias->data != NULL
               ? row_element(bias->data + (u->group * u->p->outputs + o) * bias->stride[0], bias->dtype)
               : 0.0f;
}

/* Sums [place][width] of outputs from `first` on to y. */
static void store_block(const mica__cpu_args *args, const unit *u, const conv_tile *t, uint64_t first,
                        uint64_t width, float *row)
{
    const mica__cpu_view *y = &args->view[MICA__CONV_Y];
    const uint64_t step = y->stride[X] * u->axis[2].step;
    for (uint64_t lane = 0; lane < width && first + lane < u->p->outputs; lane++) {
        const float bias = bias_of(u, &args->view[MICA__CONV_BIAS], first + lane);
        const float *from = t->sums + lane;
        for (uint64_t r = 0; r < u->rows; r++) {
            for (uint64_t i = 0; i < u->columns; i++, from += width)
                row[i] = *from + bias;
            row_store_strided(output_row(u, y, first + lane, r), y->dtype, step, row, u->columns);
        }
    }
}

/* Few outputs: vectors of places. */
static void run_rows(const mica__cpu_args *args, const unit *u, const conv_tile *t, const float *w)
{
    const mica__cpu_view *y = &args->view[MICA__CONV_Y];
    for (uint64_t o = 0; o < u->p->outputs; o++) {
        const float bias = bias_of(u, &args->view[MICA__CONV_BIAS], o);
        for (uint64_t r = 0; r < u->rows; r++) {
            conv_row(t, r * u->axis[1].x_step * u->row_floats, w, (uint32_t)o, u->columns, t->sums);
            for (uint64_t i = 0; i < u->columns; i++)
                t->sums[i] += bias;
            row_store_strided(output_row(u, y, o, r), y->dtype, y->stride[X] * u->axis[2].step, t->sums,
                              u->columns);
        }
    }
}

static void run_unit(const mica__cpu_args *args, const unit *u)
{
    const mica__cpu_conv *p = u->p;
    const uint64_t places = u->rows * u->columns, taps = mica__conv_taps(&p->windows);
    float *tile = args->local, *sums = tile + mica__conv_round(p->tile_floats + MICA__CONV_SLACK, 16);
    conv_tap *tap =
        (conv_tap *)(void *)(sums + (p->rows * p->columns + 16) * MICA__CONV_LANES * MICA__CONV_VECTORS);
    uint64_t *place = (uint64_t *)(void *)(tap + mica__conv_round(taps, 16));
    float *row = (float *)(void *)(place + mica__conv_round(p->rows * p->columns + 16, 16));
    const float *w = (const float *)(const void *)args->view[MICA__CONV_SLOTS].data +
                     u->group * mica__conv_packed_floats(p);
    conv_tile t = {.x = tile,
                   .plane = plane_floats(u),
                   .channels = p->channels,
                   .tap = tap,
                   .all_taps = taps,
                   .place = place,
                   .places = places,
                   .sums = sums};
    t.taps = list_taps(u, tap);
    if (t.taps > 0)
        fill_tile(u, &args->view[MICA__CONV_X], tile);
    if (p->outputs <= MICA__CONV_FEW) {
        run_rows(args, u, &t, w);
        return;
    }
    list_places(u, place);
    const uint64_t blocks = blocks_of(p), end = blocks * (u->part + 1) / p->parts;
    for (uint64_t b = blocks * u->part / p->parts; b < end; b++) {
        const uint32_t vectors = vectors_of(p, b);
        conv_block(&t, w + b * CONV_VECTORS * VW * p->channels * taps, vectors);
        store_block(args, u, &t, b * CONV_VECTORS * VW, vectors * VW, row);
    }
}

void MICA__ISA(conv)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    for (uint64_t index = first; index < last; index++) {
        unit u;
        if (find_unit(args->params, index, &u))
            run_unit(args, &u);
    }
}
