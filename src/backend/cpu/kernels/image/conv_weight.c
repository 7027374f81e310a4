/*
 * conv_weight.c - the gradient of a convolution with respect to its weight: dy, a vector's outputs side by side, against single elements of x. It is the
 * product of a convolution (conv_tile.h) with taps and places exchanged: taps of channels are what sums stand at, places of dy are added up.
 *
 * The products of an output are added piece by piece of dy: in rising place within a piece, then f64 from piece to piece.
 */
#include "backend/cpu/kernels/image/conv_tile.h"

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/simd/transpose.h"

enum { N, C, Z, Y, X };

/* A unit and its memory; a piece of dy. */
typedef struct weight_work {
    const mica__cpu_conv_weight *p;
    const mica__cpu_view *x, *dy, *dweight;
    uint64_t group, channel, channels, output, outputs; /* within the group, how many */
    uint64_t extent[MICA_SPATIAL_DIMS], image_floats;
    uint32_t vectors;
    float *tile, *sums, *lanes;
    double *total;
    uint64_t *step, *tap;
} weight_work;

typedef struct dy_piece {
    uint64_t image, plane, row, column; /* from, and how many */
    uint64_t images, rows, columns;
} dy_piece;

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- x ---- */

/* The part of dimension d of the tile that begins at place `origin` of x and lies inside. */
static void inside(const weight_work *s, uint32_t d, int64_t origin, uint64_t *begin, uint64_t *end)
{
    const int64_t left = (int64_t)s->x->shape[Z + d] - origin, extent = (int64_t)s->extent[d];
    *begin = origin < 0 ? least((uint64_t)-origin, s->extent[d]) : 0;
    *end = left < (int64_t)*begin ? *begin : (uint64_t)(left < extent ? left : extent);
}

static void fill_row(const mica__cpu_view *x, const unsigned char *row, uint64_t n, float *to)
{
    uint64_t at = 0;
    if (x->dtype != MICA_DTYPE_F32 || x->stride[X] != sizeof *to) {
        const float *values = row_f32_strided(row, x->dtype, x->stride[X], n, to);
        if (values != to)
            memcpy(to, values, n * sizeof *to);
        return;
    }
    for (; at + VW <= n; at += VW)
        vf_store(to + at, vf_load(row + at * sizeof *to));
    if (at < n)
        vf_store_n(to + at, vf_load_n(row + at * sizeof *to, n - at), n - at);
}

/* What a piece meets, zeros outside of x. */
static void fill_tile(const weight_work *s, const dy_piece *piece)
{
    const mica__windows *w = &s->p->windows;
    const uint64_t from[] = {piece->plane, piece->row, piece->column};
    int64_t origin[MICA_SPATIAL_DIMS];
    uint64_t begin[MICA_SPATIAL_DIMS], end[MICA_SPATIAL_DIMS];
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        origin[d] = (int64_t)(from[d] * w->stride[d]) - w->low[d];
        inside(s, d, origin[d], &begin[d], &end[d]);
    }
    memset(s->tile, 0, s->channels * s->p->images * s->image_floats * sizeof *s->tile);
    if (end[2] <= begin[2])
        return;
    for (uint64_t c = 0; c < s->channels; c++)
        for (uint64_t i = 0; i < piece->images; i++) {
            const unsigned char *image = s->x->data + (piece->image + i) * s->x->stride[N] +
                                         (s->group * s->p->channels + s->channel + c) * s->x->stride[C] +
                                         (uint64_t)(origin[2] + (int64_t)begin[2]) * s->x->stride[X];
            float *to = s->tile + (c * s->p->images + i) * s->image_floats + begin[2];
            for (uint64_t z = begin[0]; z < end[0]; z++)
                for (uint64_t y = begin[1]; y < end[1]; y++)
                    fill_row(s->x,
                             image + (uint64_t)(origin[0] + (int64_t)z) * s->x->stride[Z] +
                                 (uint64_t)(origin[1] + (int64_t)y) * s->x->stride[Y],
                             end[2] - begin[2], to + (z * s->extent[1] + y) * s->extent[2]);
        }
}

/* ---- dy ---- */

/* `n` places that follow one another, of the outputs of one vector, lane by lane to `to`. */
static void turn_run(const weight_work *s, const unsigned char *from, uint64_t outputs, uint64_t n, float *to)
{
    const uint64_t width = s->vectors * VW, step = s->dy->stride[X], bytes = row_element_bytes(s->dy->dtype);
    for (uint64_t at = 0; at < n; at += VW) {
        const uint64_t count = least(VW, n - at);
        const unsigned char *line = from + at * step;
        vf v[VW];
        for (uint64_t o = 0; o < VW; o++, line += s->dy->stride[C]) {
            float values[VW];
            if (o >= outputs)
                v[o] = vf_zero();
            else if (step == bytes)
                v[o] = row_load_n(line, s->dy->dtype, count);
            else
                v[o] = vf_load_n(row_f32_strided(line, s->dy->dtype, step, count, values), count);
        }
        vf_transpose(v);
        for (uint64_t i = 0; i < count; i++)
            vf_store(to + (at + i) * width, v[i]);
    }
}

static void turn_piece(const weight_work *s, const dy_piece *piece)
{
    const mica__cpu_view *dy = s->dy;
    const uint64_t width = s->vectors * VW;
    const bool whole = piece->rows == 1 || dy->stride[Y] == piece->columns * dy->stride[X];
    const uint64_t runs = whole ? 1 : piece->rows, n = whole ? piece->rows * piece->columns : piece->columns;
    float *to = s->lanes;
    for (uint64_t i = 0; i < piece->images; i++) {
        const unsigned char *image = dy->data + (piece->image + i) * dy->stride[N] +
                                     (s->group * s->p->outputs + s->output) * dy->stride[C] +
                                     piece->plane * dy->stride[Z] + piece->row * dy->stride[Y] +
                                     piece->column * dy->stride[X];
        for (uint64_t run = 0; run < runs; run++, to += n * width)
            for (uint32_t v = 0; v < s->vectors; v++)
                turn_run(s, image + run * dy->stride[Y] + v * VW * dy->stride[C], s->outputs - v * VW, n,
                         to + v * VW);
    }
}

/* ---- sums ---- */

static void list_taps(const weight_work *s)
{
    const mica__windows *w = &s->p->windows;
    uint64_t count = 0;
    for (uint64_t c = 0; c < s->channels; c++)
        for (uint64_t z = 0; z < w->kernel[0]; z++)
            for (uint64_t y = 0; y < w->kernel[1]; y++)
                for (uint64_t x = 0; x < w->kernel[2]; x++)
                    s->tap[count++] =
                        c * s->p->images * s->image_floats +
                        ((z * w->dilation[0]) * s->extent[1] + y * w->dilation[1]) * s->extent[2] +
                        x * w->dilation[2];
    for (uint64_t fill = 0; fill < 16; fill++)
        s->tap[count + fill] = s->tap[count - 1];
}

static void list_places(const weight_work *s, const dy_piece *piece)
{
    const mica__windows *w = &s->p->windows;
    uint64_t count = 0;
    for (uint64_t i = 0; i < piece->images; i++)
        for (uint64_t y = 0; y < piece->rows; y++)
            for (uint64_t x = 0; x < piece->columns; x++)
                s->step[count++] = i * s->image_floats + y * w->stride[1] * s->extent[2] + x * w->stride[2];
}

static void add_piece(const weight_work *s, const dy_piece *piece, bool first)
{
    const uint64_t taps = s->channels * mica__conv_taps(&s->p->windows);
    fill_tile(s, piece);
    turn_piece(s, piece);
    list_places(s, piece);
    const conv_tile t = {.x = s->tile,
                         .place = s->tap,
                         .step = s->step,
                         .places = taps,
                         .steps = piece->images * piece->rows * piece->columns,
                         .w_step = s->vectors * VW,
                         .first = true};
    conv_block(&t, s->lanes, s->sums, s->vectors);
    for (uint64_t i = 0; i < taps * s->vectors * VW; i++)
        s->total[i] = (first ? 0 : s->total[i]) + (double)s->sums[i];
}

/* Every piece of dy, in their order. */
static void add_pieces(const weight_work *s)
{
    const mica__cpu_conv_weight *p = s->p;
    const uint64_t *out = p->windows.out;
    dy_piece piece = {.image = 0};
    bool first = true;
    for (; piece.image < p->batch; piece.image += p->images) {
        piece.images = least(p->images, p->batch - piece.image);
        for (piece.plane = 0; piece.plane < out[0]; piece.plane++)
            for (piece.row = 0; piece.row < out[1]; piece.row += p->rows) {
                piece.rows = least(p->rows, out[1] - piece.row);
                for (piece.column = 0; piece.column < out[2]; piece.column += p->columns) {
                    piece.columns = least(p->columns, out[2] - piece.column);
                    add_piece(s, &piece, first);
                    first = false;
                }
            }
    }
    if (first) /* no image */
        memset(s->total, 0, s->channels * mica__conv_taps(&p->windows) * s->vectors * VW * sizeof *s->total);
}

/* ---- dweight ---- */

/* Values [at, at + n) of channels and taps, of the outputs of one vector; values of an output lie side by side. */
static void store_square(const weight_work *s, uint32_t vector, uint64_t at, uint64_t n, unsigned char *to)
{
    const mica__cpu_view *w = s->dweight;
    const uint64_t width = s->vectors * VW, outputs = least(VW, s->outputs - vector * VW);
    vf v[VW];
    for (uint64_t i = 0; i < VW; i++)
        v[i] = i < n ? vf_load(s->sums + (at + i) * width + vector * VW) : vf_zero();
    vf_transpose(v);
    to += at * row_element_bytes(w->dtype);
    for (uint64_t o = 0; o < outputs; o++, to += w->stride[N])
        row_store_n(to, w->dtype, v[o], n);
}

static void store_any(const weight_work *s, unsigned char *to)
{
    const mica__cpu_view *w = s->dweight;
    const float *sums = s->sums;
    for (uint64_t c = 0; c < s->channels; c++)
        for (uint64_t z = 0; z < w->shape[Z]; z++)
            for (uint64_t y = 0; y < w->shape[Y]; y++)
                for (uint64_t x = 0; x < w->shape[X]; x++, sums += s->vectors * VW)
                    row_store_strided(to + c * w->stride[C] + z * w->stride[Z] + y * w->stride[Y] +
                                          x * w->stride[X],
                                      w->dtype, w->stride[N], sums, s->outputs);
}

static void store_unit(const weight_work *s)
{
    const mica__cpu_view *w = s->dweight;
    const uint64_t taps = s->channels * mica__conv_taps(&s->p->windows);
    uint64_t dense = row_element_bytes(w->dtype);
    bool whole = true;
    unsigned char *to =
        w->data + (s->group * s->p->outputs + s->output) * w->stride[N] + s->channel * w->stride[C];
    for (uint64_t i = 0; i < taps * s->vectors * VW; i++)
        s->sums[i] = (float)s->total[i];
    for (uint32_t d = X + 1; d-- > C; dense *= w->shape[d])
        whole = whole && (w->shape[d] == 1 || w->stride[d] == dense);
    if (!whole) {
        store_any(s, to);
        return;
    }
    for (uint32_t v = 0; v < s->vectors; v++)
        for (uint64_t at = 0; at < taps; at += VW)
            store_square(s, v, at, least(VW, taps - at), to + v * VW * w->stride[N]);
}

void MICA__ISA(conv_weight)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv_weight *p = args->params;
    const mica__conv_weight_local l = mica__conv_weight_local_of(p);
    const uint64_t parts = (p->channels + p->depth - 1) / p->depth,
                   blocks = (p->outputs + MICA__CONV_OUTPUTS - 1) / MICA__CONV_OUTPUTS;
    float *local = args->local;
    for (uint64_t unit = first; unit < last; unit++) {
        const uint64_t channel = unit % parts * p->depth, block = unit / parts % blocks;
        weight_work s = {.p = p,
                         .x = &args->view[MICA__CONV_WEIGHT_X],
                         .dy = &args->view[MICA__CONV_WEIGHT_DY],
                         .dweight = &args->view[MICA__CONV_WEIGHT_DWEIGHT],
                         .group = unit / parts / blocks,
                         .channel = channel,
                         .channels = least(p->depth, p->channels - channel),
                         .tile = local,
                         .sums = local + l.sums,
                         .lanes = local + l.dy,
                         .total = (double *)(void *)(local + l.total),
                         .step = (uint64_t *)(void *)(local + l.step),
                         .tap = (uint64_t *)(void *)(local + l.tap)};
        const uint64_t extent[] = {1, p->rows, p->columns};
        s.image_floats = 1;
        for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++)
            s.image_floats *= s.extent[d] = mica__conv_weight_extent(&p->windows, d, extent[d]);
        list_taps(&s);
        for (uint64_t o = block * MICA__CONV_OUTPUTS, end = least(o + MICA__CONV_OUTPUTS, p->outputs);
             o < end; o += CONV_BLOCK) {
            s.output = o;
            s.outputs = least(CONV_BLOCK, end - o);
            s.vectors = (uint32_t)((s.outputs + VW - 1) / VW);
            add_pieces(&s);
            store_unit(&s);
        }
    }
}
