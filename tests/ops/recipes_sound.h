/*
 * recipes_sound.h - the log-mel spectrum as a composition of public calls in double, and its gradient with respect to the sound. mica_log_mel is the same
 * in f32.
 */
#ifndef TEST_RECIPES_SOUND_H
#define TEST_RECIPES_SOUND_H

#include "ops/recipe_rig.h"

enum { SAMPLES = 40, WINDOW = 8, HOP = 4, FRAMES = 1 + SAMPLES / HOP, BINS = WINDOW / 2 + 1, BANDS = 3 };

/* What lies between the sound and its spectrum. */
typedef struct spectrum {
    mica_buffer *window, *filters, *parts, *mel, *l, *greatest, *floor;
} spectrum;

static const mica_pad_params mirrored = {.low = {WINDOW / 2}, .high = {WINDOW / 2}, .mode = MICA_PAD_REFLECT};
static const mica_im2col_params framing = {
    .dims = 1, .kernel = {WINDOW}, .stride = {HOP}, .size = {SAMPLES + WINDOW}};
static const mica_fft_params real = {.kind = MICA_FFT_REAL};

static inline mica_buffer *constants(tape *t, shape s, double (*of)(uint64_t i))
{
    mica_buffer *buffer = room(t, s);
    numbers n = {.count = count_of(s)};

    for (uint64_t i = 0; i < n.count; i++)
        n.value[i] = of(i);
    put(buffer, t->type, &n);
    return buffer;
}

static inline double window_at(uint64_t i)
{
    return 0.5 - 0.5 * cos(2 * 3.14159265358979323846 * (double)i / WINDOW);
}
static inline double filter_at(uint64_t i)
{
    return 0.1 + (double)(i * 7 % 11) / 5;
}
/* The first part of the sound is so quiet that the floor of 8 decades below the greatest holds there. */
static inline double loudness_at(uint64_t i)
{
    return i < SAMPLES / 2 ? 1e-7 : 1;
}

static inline mica_buffer *permuted(tape *t, mica_buffer *of)
{
    static const uint32_t order[2] = {1, 0};
    mica_buffer *view = NULL;

    must(mica_buffer_permute(of, order, &view));
    return keep(t, view);
}

/* y of sound, and what the gradient needs again. */
static spectrum hear(tape *t, mica_buffer *sound, mica_buffer *y)
{
    spectrum s = {constants(t, S1(WINDOW), window_at),
                  constants(t, S2(BANDS, BINS), filter_at),
                  room(t, S3(FRAMES, BINS, 2)),
                  room(t, S2(BANDS, FRAMES)),
                  room(t, S2(BANDS, FRAMES)),
                  room(t, S2(1, 1)),
                  room(t, S2(1, 1))};
    mica_buffer *loud = room(t, S1(SAMPLES)), *wide = room(t, S1(SAMPLES + WINDOW)),
                *columns = room(t, S3(1, WINDOW, FRAMES)), *frames = room(t, S2(FRAMES, WINDOW)),
                *squares = room(t, S3(FRAMES, BINS, 2)), *power = room(t, S2(FRAMES, BINS));

    must(mica_mul(t->encoder, sound, constants(t, S1(SAMPLES), loudness_at), loud));
    must(mica_pad(t->encoder, loud, &mirrored, wide));
    must(mica_im2col(t->encoder, as_shape(t, wide, S3(1, 1, SAMPLES + WINDOW)), &framing, columns));
    must(mica_mul(t->encoder, permuted(t, as_shape(t, columns, S2(WINDOW, FRAMES))), s.window, frames));
    must(mica_fft(t->encoder, frames, &real, s.parts));
    must(mica_mul(t->encoder, s.parts, s.parts, squares));
    must(mica_reduce(t->encoder, squares, &(mica_reduce_params){.axes = 1}, power));
    must(mica_product(t->encoder, s.filters, permuted(t, power), NULL, s.mel));
    must(mica_log10(t->encoder, s.mel, s.l));
    must(mica_reduce(t->encoder, s.l, &(mica_reduce_params){.kind = MICA_REDUCE_MAX, .keep_dims = 1},
                     s.greatest));
    must(mica_sub(t->encoder, s.greatest, filled(t, S1(1), 8), s.floor));
    must(mica_max(t->encoder, s.l, s.floor, y));
    must(mica_add(t->encoder, y, filled(t, S1(1), 4), y));
    must(mica_mul(t->encoder, y, filled(t, S1(1), 0.25), y));
    return s;
}

FORWARD(log_mel_forward)
{
    (void)r;
    (void)hear(t, in[0], y);
}

/* What reaches the logarithms: those under the floor send theirs to the greatest. */
static mica_buffer *to_logarithms(tape *t, const spectrum *s, mica_buffer *dy)
{
    const shape all = S2(BANDS, FRAMES);
    mica_buffer *above = room_of(t, MICA_DTYPE_BOOL, all), *one = room(t, all), *dl = room(t, all),
                *rest = room(t, all), *sum = room(t, S2(1, 1));

    must(mica_greater_equal(E, s->l, s->floor, above));
    must(mica_cast(E, above, one));
    must(mica_mul(E, dy, filled(t, S1(1), 0.25), rest));
    must(mica_mul(E, rest, one, dl));
    must(mica_sub(E, rest, dl, rest));
    must(mica_reduce(E, rest, &(mica_reduce_params){.keep_dims = 1}, sum));
    must(mica_equal(E, s->l, s->greatest, above));
    must(mica_cast(E, above, one));
    must(mica_mul(E, one, sum, one));
    must(mica_add(E, dl, one, dl));
    return dl;
}

/* What reaches the frames of the sound, for what reaches their powers [FRAMES, BINS]. */
static mica_buffer *to_frames(tape *t, const spectrum *s, mica_buffer *dpower)
{
    const mica_pad_params behind = {.high = {0, WINDOW - BINS, 0}};
    const mica_fft_params back = {.inverse = 1, .norm = MICA_FFT_FORWARD};
    mica_buffer *parts = room(t, S3(FRAMES, BINS, 2)), *whole = room(t, S3(FRAMES, WINDOW, 2)),
                *frames = room(t, S2(FRAMES, WINDOW)), *first = NULL;

    must(mica_add(E, s->parts, s->parts, parts));
    must(mica_mul(E, parts, as_shape(t, dpower, S3(FRAMES, BINS, 1)), parts));
    must(mica_pad(E, parts, &behind, whole));
    must(mica_fft(E, whole, &back, whole));
    must(mica_buffer_slice(whole, 2, 0, 1, &first));
    must(mica_copy(E, keep(t, first), as_shape(t, frames, S3(FRAMES, WINDOW, 1))));
    must(mica_mul(E, frames, s->window, frames));
    return frames;
}

BACKWARD(log_mel_backward)
{
    mica_buffer *again = room(t, r->y);
    const spectrum s = hear(t, in[0], again);
    mica_buffer *dmel = to_logarithms(t, &s, dy), *dpower = room(t, S2(FRAMES, BINS)),
                *columns = room(t, S3(1, WINDOW, FRAMES)), *wide = room(t, S1(SAMPLES + WINDOW)),
                *from = room_of(t, MICA_DTYPE_I32, S1(SAMPLES)),
                *number = room_of(t, MICA_DTYPE_I32, S1(SAMPLES + WINDOW));

    UNUSED(y);
    must(mica_div(E, dmel, s.mel, dmel));
    must(mica_mul(E, dmel, filled(t, S1(1), 1 / log(10)), dmel));
    must(mica_product(E, permuted(t, dmel), s.filters, NULL, dpower));
    must(mica_copy(E, permuted(t, to_frames(t, &s, dpower)), as_shape(t, columns, S2(WINDOW, FRAMES))));
    must(mica_col2im(E, columns, &framing, as_shape(t, wide, S3(1, 1, SAMPLES + WINDOW))));
    must(mica_arange(E, 0, 1, from));
    must(mica_pad(E, from, &mirrored, number));
    must(mica_fill(E, 0, d[0]));
    must(mica_scatter(E, wide, number, &(mica_scatter_params){.mode = MICA_SCATTER_ADD}, d[0]));
    must(mica_mul(E, d[0], constants(t, S1(SAMPLES), loudness_at), d[0]));
}

#endif
