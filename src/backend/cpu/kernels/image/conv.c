/*
 * conv.c - convolution, plain and transposed, where a group has more than a few outputs: vectors of outputs against single places.
 *
 * A unit goes through the channels, some at a time: their part of x as f32 with zeros where there is padding, and their weights, a vector's outputs
 * side by side, are both put into the thread's memory once and multiplied into the sums of all its outputs and places. So a weight is read once per
 * tile of places, where it lies, and no copy of all weights is made. Weights that lie so already (mica__cpu_outputs_inner) are multiplied where they are.
 */
#include "backend/cpu/kernels/image/conv_tile.h"
#include "backend/cpu/kernels/image/conv_unit.h"

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/simd/transpose.h"

#define UNUSED UINT64_MAX /* a tap that this phase does not meet */
#define LINES_AHEAD 256   /* bytes: lines of many outputs are more than what prefetches by itself follows */

/* A unit and its memory. */
typedef struct conv_work {
    const conv_unit *u;
    const mica__cpu_args *args;
    uint64_t taps, used;                   /* of the kernel; of this phase */
    uint64_t image_floats, channel_floats; /* of the tile */
    uint64_t block, blocks;                /* of outputs: the first of this part, and one past its last */
    float *tile, *sums, *weights, *lines;
    uint64_t *step, *place, *slot;
    uint64_t
        w_step; /* bytes between two taps of the weight, whose outputs lie side by side; 0: they do not */
} conv_work;

/* Vectors in block b of a group's outputs. */
static uint32_t vectors_of(const mica__cpu_conv *p, uint64_t block)
{
    const uint64_t left = (p->outputs + VW - 1) / VW - block * CONV_VECTORS;
    return left < CONV_VECTORS ? (uint32_t)left : CONV_VECTORS;
}

/* ---- weights ---- */

/* Where the weights of a vector of outputs lie. */
typedef struct lines {
    const unsigned char *from;
    uint64_t o_step, c_step;
    uint64_t outputs; /* of the vector, which are there */
    uint16_t dtype;
} lines;

static vf load_line(const lines *l, uint64_t o, uint64_t at, uint64_t n)
{
    return o < l->outputs
               ? row_load_n(l->from + o * l->o_step + at * row_element_bytes(l->dtype), l->dtype, n)
               : vf_zero();
}

/* VW values of each of VW outputs, f32, where every tap is used. */
static void turn_whole(const lines *l, uint64_t at, float *to, uint64_t width)
{
    const unsigned char *from = l->from + at * sizeof(float);
    vf v[VW];
    CONV_UNROLL
    for (int o = 0; o < VW; o++) {
        v[o] = vf_load(from + (uint64_t)o * l->o_step);
        __builtin_prefetch(from + (uint64_t)o * l->o_step + LINES_AHEAD);
    }
    vf_transpose(v);
    CONV_UNROLL
    for (int i = 0; i < VW; i++)
        vf_store(to + (uint64_t)i * width, v[i]);
}

/* `count` values of each output, from tap 0 of channel `c` on, to [channel, tap][output]. */
static void turn_lines(const conv_work *s, const lines *l, uint64_t c, uint64_t count, float *to,
                       uint64_t width)
{
    uint64_t at = 0;
    to += c * s->used * width;
    if (s->used == s->taps && l->outputs == VW && l->dtype == MICA_DTYPE_F32)
        for (; at + VW <= count; at += VW, to += VW * width)
            turn_whole(l, at, to, width);
    uint64_t tap = at % s->taps;
    to -= tap * width;
    for (; at < count; at += VW) {
        const uint64_t n = least(VW, count - at);
        vf v[VW];
        for (uint64_t o = 0; o < VW; o++)
            v[o] = load_line(l, o, at, n);
        vf_transpose(v);
        for (uint64_t i = 0; i < n; i++) {
            if (s->slot[tap] != UNUSED)
                vf_store(to + s->slot[tap] * width, v[i]);
            if (++tap == s->taps) {
                tap = 0;
                to += s->used * width;
            }
        }
    }
}

/* Outputs lie side by side already. */
static void copy_lines(const conv_work *s, const lines *l, uint64_t channels, float *to, uint64_t width)
{
    const mica__cpu_view *w = &s->args->view[MICA__CONV_WEIGHT];
    for (uint64_t c = 0; c < channels; c++, to += s->used * width) {
        uint64_t tap = 0;
        for (uint64_t z = 0; z < w->shape[Z]; z++)
            for (uint64_t y = 0; y < w->shape[Y]; y++)
                for (uint64_t x = 0; x < w->shape[X]; x++, tap++)
                    if (s->slot[tap] != UNUSED)
                        vf_store(to + s->slot[tap] * width,
                                 row_load_n(l->from + c * l->c_step + z * w->stride[Z] + y * w->stride[Y] +
                                                x * w->stride[X],
                                            l->dtype, l->outputs));
    }
}

/* Taps that do not lie side by side are put there first, as f32. */
static lines gather_lines(const conv_work *s, const lines *l, uint64_t channels)
{
    const mica__cpu_view *w = &s->args->view[MICA__CONV_WEIGHT];
    const uint64_t apart = channels * s->taps;
    for (uint64_t o = 0; o < l->outputs; o++) {
        float *to = s->lines + o * apart;
        for (uint64_t c = 0; c < channels; c++)
            for (uint64_t z = 0; z < w->shape[Z]; z++)
                for (uint64_t y = 0; y < w->shape[Y]; y++)
                    for (uint64_t x = 0; x < w->shape[X]; x++)
                        *to++ = row_element(l->from + o * l->o_step + c * l->c_step + z * w->stride[Z] +
                                                y * w->stride[Y] + x * w->stride[X],
                                            l->dtype);
    }
    return (lines){.from = (const unsigned char *)s->lines,
                   .o_step = apart * sizeof(float),
                   .c_step = s->taps * sizeof(float),
                   .outputs = l->outputs,
                   .dtype = MICA_DTYPE_F32};
}

static bool taps_dense(const mica__cpu_view *w)
{
    uint64_t dense = row_element_bytes(w->dtype);
    for (uint32_t d = X + 1; d-- > Z; dense *= w->shape[d])
        if (w->shape[d] != 1 && w->stride[d] != dense)
            return false;
    return true;
}

/* Vector `vector` of the group's outputs, `channels` from c on; outputs beyond the last are zeros. */
static void pack_vector(const conv_work *s, uint64_t vector, uint64_t c, uint64_t channels, float *to,
                        uint64_t width)
{
    const mica__cpu_conv *p = s->u->p;
    const mica__cpu_view *w = &s->args->view[MICA__CONV_WEIGHT];
    const bool turned = p->transposed != 0;
    const uint64_t bytes = row_element_bytes(w->dtype);
    lines l = {.o_step = w->stride[turned ? 1 : 0],
               .c_step = w->stride[turned ? 0 : 1],
               .outputs = least(VW, p->outputs - vector * VW),
               .dtype = w->dtype};
    l.from = w->data + s->u->group * (turned ? p->channels * l.c_step : p->outputs * l.o_step) +
             vector * VW * l.o_step + c * l.c_step;
    if (l.o_step == bytes) {
        copy_lines(s, &l, channels, to, width);
        return;
    }
    if (!taps_dense(w))
        l = gather_lines(s, &l, channels);
    if (channels == 1 || l.c_step == s->taps * row_element_bytes(l.dtype)) {
        turn_lines(s, &l, 0, channels * s->taps, to, width);
        return;
    }
    for (uint64_t i = 0; i < channels; i++, l.from += l.c_step)
        turn_lines(s, &l, i, s->taps, to, width);
}

/* Bytes from tap to tap, the last one's to the next channel, of a weight of f32 whose outputs are neighbours; 0: it lies otherwise. */
static uint64_t tap_step(const mica__cpu_conv *p, const mica__cpu_view *w)
{
    uint64_t step = 0, next = 0;
    if (p->transposed != 0 || w->dtype != MICA_DTYPE_F32 || w->stride[N] != sizeof(float))
        return 0;
    for (uint32_t d = X + 1; d-- > C;) {
        if (w->shape[d] == 1)
            continue;
        if (step == 0)
            step = next = w->stride[d];
        if (w->stride[d] != next)
            return 0;
        next *= w->shape[d];
    }
    return CONV_FAR && step % sizeof(float) == 0 ? step : 0;
}

/* Weights of block b from channel c on, where they lie; NULL where there are lanes behind the last output, or they do not lie side by side. */
static const float *lanes_in_place(const conv_work *s, uint64_t b, uint64_t c)
{
    const mica__cpu_conv *p = s->u->p;
    const mica__cpu_view *w = &s->args->view[MICA__CONV_WEIGHT];
    const uint64_t first = s->u->group * p->outputs + b * CONV_BLOCK;
    if (s->w_step == 0 || first + vectors_of(p, b) * VW > w->shape[N])
        return NULL;
    return (const float *)(const void *)(w->data + first * sizeof(float) + c * s->taps * s->w_step);
}

/* Weights of block b, `channels` from c on, put side by side. */
static const float *pack_block(const conv_work *s, uint64_t b, uint64_t c, uint64_t channels)
{
    const uint32_t vectors = vectors_of(s->u->p, b);
    for (uint32_t v = 0; v < vectors && s->used > 0; v++)
        pack_vector(s, b * CONV_VECTORS + v, c, channels, s->weights + v * VW, vectors * VW);
    return s->weights;
}

/* ---- places ---- */

/* What lies inside of x; the rest of the tile is zero from the beginning. */
static void fill_tile(const conv_work *s, uint64_t first, uint64_t channels)
{
    const conv_unit *u = s->u;
    const mica__cpu_view *x = &s->args->view[MICA__CONV_X];
    const uint64_t n = u->end[2] - u->begin[2];
    const bool plain = x->dtype == MICA_DTYPE_F32 && x->stride[X] == sizeof(float);
    for (uint64_t i = 0; i < channels * u->images; i++) {
        const unsigned char *from = x->data + (u->image + i % u->images) * x->stride[N] +
                                    (u->group * u->p->channels + first + i / u->images) * x->stride[C] +
                                    (uint64_t)(u->origin[2] + (int64_t)u->begin[2]) * x->stride[X];
        for (uint64_t z = u->begin[0]; z < u->end[0]; z++)
            for (uint64_t y = u->begin[1]; y < u->end[1]; y++) {
                const unsigned char *row = from + (uint64_t)(u->origin[0] + (int64_t)z) * x->stride[Z] +
                                           (uint64_t)(u->origin[1] + (int64_t)y) * x->stride[Y];
                float *to =
                    s->tile + i * s->image_floats + (z * u->extent[1] + y) * u->extent[2] + u->begin[2];
                if (!plain) {
                    const float *values = row_f32_strided(row, x->dtype, x->stride[X], n, to);
                    if (values != to)
                        memcpy(to, values, n * sizeof *to);
                    continue;
                }
                uint64_t at = 0;
                for (; at + VW <= n; at += VW) {
                    __builtin_prefetch(row + at * sizeof *to + x->stride[C]); /* the next channel's */
                    vf_store(to + at, vf_load(row + at * sizeof *to));
                }
                __builtin_prefetch(row + at * sizeof *to + x->stride[C]);
                if (at < n)
                    vf_store_n(to + at, vf_load_n(row + at * sizeof *to, n - at), n - at);
            }
    }
}

/* In rising order of channels and the kernel's taps. */
static void list_steps(const conv_work *s)
{
    const conv_unit *u = s->u;
    const mica__conv_axis *az = &u->axis[0], *ay = &u->axis[1], *ax = &u->axis[2];
    uint64_t count = 0;
    for (uint64_t tap = 0; tap < s->taps; tap++)
        s->slot[tap] = UNUSED;
    for (uint32_t z = 0; z < az->taps; z++)
        for (uint32_t y = 0; y < ay->taps; y++)
            for (uint32_t x = 0; x < ax->taps; x++, count++) {
                s->slot[tap_number(u, z, y, x)] = count;
                s->step[count] =
                    (tap_place(az, z) * u->extent[1] + tap_place(ay, y)) * u->extent[2] + tap_place(ax, x);
            }
    for (; count < u->p->depth * s->used; count++)
        s->step[count] = s->step[count - s->used] + s->channel_floats;
}

static void list_places(const conv_work *s)
{
    const conv_unit *u = s->u;
    uint64_t i = 0;
    for (uint64_t image = 0; image < u->images; image++)
        for (uint64_t y = 0; y < u->rows; y++)
            for (uint64_t x = 0; x < u->columns; x++)
                s->place[i++] =
                    image * s->image_floats + y * u->axis[1].x_step * u->extent[2] + x * u->axis[2].x_step;
    for (uint64_t fill = 0; fill < 16; fill++)
        s->place[i + fill] = s->place[i - 1];
}

/* ---- outputs ---- */

/* Places that follow one another in y, and in the residual. */
typedef struct conv_run {
    unsigned char *to;
    const unsigned char *residual;
    uint64_t step, residual_step, residual_output; /* bytes between places; between outputs */
    uint64_t count;
} conv_run;

/* Sums of one vector of outputs at the places of a run. */
static void store_run(const conv_work *s, const float *sums, uint64_t width, uint64_t first,
                      const conv_run *run)
{
    const mica__cpu_view *y = &s->args->view[MICA__CONV_Y], *bias = &s->args->view[MICA__CONV_BIAS];
    const uint64_t n = run->count, step = run->step;
    const uint64_t bytes = row_element_bytes(y->dtype), outputs = least(VW, s->u->p->outputs - first);
    float add[VW];
    for (uint64_t o = 0; o < outputs; o++)
        add[o] = bias_of(s->u, bias, first + o);
    for (uint64_t at = 0; at < n; at += VW) {
        const uint64_t count = least(VW, n - at);
        unsigned char *row = run->to + at * step;
        const unsigned char *residual = run->residual + at * run->residual_step;
        vf v[VW];
        CONV_UNROLL
        for (int i = 0; i < VW; i++) /* there is room behind the last place */
            v[i] = vf_load(sums + (at + (uint64_t)i) * width);
        vf_transpose(v);
        if (outputs == VW && count == VW && step == sizeof(float) && y->dtype == MICA_DTYPE_F32) {
            CONV_UNROLL
            for (int o = 0; o < VW; o++, row += y->stride[C], residual += run->residual_output)
                vf_store(row, conv_ending(s->args, vf_add(v[o], vf_set1(add[o])), residual,
                                          run->residual_step, VW));
            continue;
        }
        for (uint64_t o = 0; o < outputs; o++, row += y->stride[C], residual += run->residual_output) {
            float values[VW];
            vf_store(values, conv_ending(s->args, vf_add(v[o], vf_set1(add[o])), residual, run->residual_step,
                                         count));
            if (step == bytes)
                row_store_n(row, y->dtype, vf_load(values), count);
            else
                row_store_strided(row, y->dtype, step, values, count);
        }
    }
}

static void store_block(const conv_work *s, const float *sums, uint64_t block, uint32_t vectors)
{
    const conv_unit *u = s->u;
    const bool more = u->p->residual != 0;
    const mica__cpu_view *y = &s->args->view[MICA__CONV_Y],
                         *r = more ? &s->args->view[MICA__CONV_RESIDUAL] : y;
    const uint64_t width = vectors * VW;
    conv_run at = {.step = y->stride[X] * u->axis[2].step,
                   .residual_step = r->stride[X] * u->axis[2].step,
                   .residual_output = r->stride[C]};
    const bool whole = u->rows == 1 || (y->stride[Y] * u->axis[1].step == u->columns * at.step &&
                                        r->stride[Y] * u->axis[1].step == u->columns * at.residual_step);
    const uint64_t runs = whole ? 1 : u->rows;
    at.count = whole ? u->rows * u->columns : u->columns;
    for (uint64_t image = 0; image < u->images; image++)
        for (uint64_t run = 0; run < runs; run++, sums += at.count * width)
            for (uint32_t v = 0; v < vectors; v++) {
                const uint64_t first = block * CONV_BLOCK + v * VW;
                at.to = output_row(u, y, image, first, run);
                at.residual = output_row(u, r, image, first, run);
                store_run(s, sums + v * VW, width, first, &at);
            }
}

static void run_unit(const conv_work *s)
{
    const mica__cpu_conv *p = s->u->p;
    const uint64_t places = s->u->images * s->u->rows * s->u->columns;
    const uint64_t apart = (places + 16) * CONV_BLOCK; /* sums of a block */
    memset(s->tile, 0, p->depth * s->channel_floats * sizeof *s->tile);
    list_steps(s);
    list_places(s);
    for (uint64_t c = 0; c < p->channels; c += p->depth) {
        const uint64_t channels = least(p->depth, p->channels - c);
        conv_tile t = {.x = s->tile,
                       .place = s->place,
                       .step = s->step,
                       .places = places,
                       .steps = channels * s->used,
                       .first = c == 0};
        if (s->used > 0)
            fill_tile(s, c, channels);
        for (uint64_t b = s->block; b < s->blocks; b++) {
            const uint32_t vectors = vectors_of(p, b);
            const float *lanes = lanes_in_place(s, b, c);
            t.ahead = b + 1 < s->blocks            ? lanes_in_place(s, b + 1, c)
                      : c + p->depth < p->channels ? lanes_in_place(s, s->block, c + p->depth)
                                                   : NULL;
            t.w_step = lanes != NULL ? s->w_step / sizeof(float) : vectors * VW;
            conv_block(&t, lanes != NULL ? lanes : pack_block(s, b, c, channels),
                       s->sums + (b - s->block) * apart, vectors);
        }
    }
    for (uint64_t b = s->block; b < s->blocks; b++)
        store_block(s, s->sums + (b - s->block) * apart, b, vectors_of(p, b));
}

void MICA__ISA(conv)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv *p = args->params;
    const mica__conv_local l = mica__conv_local_of(p);
    float *local = args->local;
    const uint64_t blocks = (p->outputs + CONV_BLOCK - 1) / CONV_BLOCK;
    for (uint64_t index = first; index < last; index++) {
        conv_unit u;
        if (!find_unit(p, &args->view[MICA__CONV_X], index, &u))
            continue;
        conv_work s = {.u = &u,
                       .args = args,
                       .taps = mica__conv_taps(&p->windows),
                       .used = phase_taps(&u),
                       .image_floats = u.extent[0] * u.extent[1] * u.extent[2],
                       .block = blocks * u.part / p->parts,
                       .blocks = blocks * (u.part + 1) / p->parts,
                       .tile = local,
                       .sums = local + l.sums,
                       .weights = local + l.weights,
                       .lines = local + l.lines,
                       .step = (uint64_t *)(void *)(local + l.step),
                       .place = (uint64_t *)(void *)(local + l.place),
                       .slot = (uint64_t *)(void *)(local + l.slot),
                       .w_step = tap_step(p, &args->view[MICA__CONV_WEIGHT])};
        s.channel_floats = u.images * s.image_floats;
        run_unit(&s);
    }
}
