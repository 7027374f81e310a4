/* im2col.c - windows as columns, element by element of any type; and back, as sums. */
#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/image/real.h"
#include "backend/cpu/kernels/kernels.h"

/* The place that tap k of window p covers along dimension d; -1: outside. */
static int64_t place_of(const mica__windows *w, uint32_t d, uint64_t p, uint64_t k)
{
    const int64_t at = (int64_t)(p * w->stride[d] + k * w->dilation[d]) - w->low[d];
    return at < (int64_t)w->in[d] ? at : -1;
}

/* The windows of a row whose tap k lies in x, and the place of the first of them. */
typedef struct reach {
    uint64_t begin, end, place;
} reach;

static reach reach_of(const mica__windows *w, uint64_t k)
{
    const int64_t at = (int64_t)(k * w->dilation[2]) - w->low[2], s = w->stride[2], n = (int64_t)w->in[2],
                  most = (int64_t)w->out[2];
    const int64_t first = at >= 0 ? 0 : (-at + s - 1) / s, last = n - 1 - at < 0 ? 0 : (n - 1 - at) / s + 1;
    const int64_t end = last < most ? last : most;
    if (first >= end)
        return (reach){0, 0, 0};
    return (reach){(uint64_t)first, (uint64_t)end, (uint64_t)(at + first * s)};
}

#define REAL float
#define FN(name) name##_float
#include "backend/cpu/kernels/image/col2im_body.h"
#undef REAL
#undef FN
#define REAL double
#define FN(name) name##_double
#include "backend/cpu/kernels/image/col2im_body.h"

/* By whole vectors, the last of which may begin in the one before it; the compiler's own copy of short rows is slow. */
static void move_bytes(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    uint64_t i = 0;
    if (bytes < sizeof(vf)) {
        for (; i + 8 <= bytes; i += 8)
            memcpy(to + i, from + i, 8);
        for (; i < bytes; i++)
            to[i] = from[i];
        return;
    }
    for (; i + sizeof(vf) <= bytes; i += sizeof(vf))
        vf_store(to + i, vf_load(from + i));
    if (i < bytes)
        vf_store(to + bytes - sizeof(vf), vf_load(from + bytes - sizeof(vf)));
}

static void copy_element(unsigned char *to, const unsigned char *from, uint32_t bytes)
{
    switch (bytes) {
    case 1: memcpy(to, from, 1); return;
    case 2: memcpy(to, from, 2); return;
    case 4: memcpy(to, from, 4); return;
    default: memcpy(to, from, 8); return;
    }
}

/* n elements of 4 bytes that lie 2 apart, side by side; nothing behind the last is read. */
static void copy_twos(unsigned char *to, const unsigned char *from, uint64_t n)
{
    uint64_t i = 0;
    for (; i + VW < n; i += VW)
        vf_store(to + 4 * i, vf_unzip_even(vf_load(from + 8 * i), vf_load(from + 8 * i + sizeof(vf))));
    for (; i < n; i++)
        memcpy(to + 4 * i, from + 8 * i, 4);
}

/* n elements that lie `from_step` bytes apart, `to_step` apart. */
static void copy_apart(unsigned char *to, uint64_t to_step, const unsigned char *from, uint64_t from_step,
                       uint64_t n, uint32_t bytes)
{
    if (to_step == bytes && from_step == bytes)
        move_bytes(to, from, n * bytes);
    else if (to_step == 4 && from_step == 8 && bytes == 4)
        copy_twos(to, from, n);
    else
        for (uint64_t i = 0; i < n; i++)
            copy_element(to + i * to_step, from + i * from_step, bytes);
}

static void clear_apart(unsigned char *to, uint64_t step, uint64_t n, uint32_t bytes)
{
    for (uint64_t i = 0; i < n; i++)
        copy_element(to + i * step, (const unsigned char[8]){0}, bytes);
}

/* A row of windows: the places of one row of x that are a stride apart, zeros where there is none. */
static void copy_row(const mica__cpu_im2col *p, const unsigned char *row, const reach *r, unsigned char *to)
{
    const uint64_t n = p->windows.out[2], step = p->columns[2];
    const uint64_t begin = row != NULL ? r->begin : n, end = row != NULL ? r->end : n;
    clear_apart(to, step, begin, p->element_bytes);
    if (begin < end)
        copy_apart(to + begin * step, step, row + r->place * p->image[4], p->windows.stride[2] * p->image[4],
                   end - begin, p->element_bytes);
    clear_apart(to + end * step, step, n - end, p->element_bytes);
}

void MICA__ISA(im2col)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_im2col *p = args->params;
    const mica__windows *w = &p->windows;
    for (uint64_t unit = first; unit < last; unit++) {
        const uint64_t tap = unit % p->taps, c = unit / p->taps % p->channels,
                       image = unit / p->taps / p->channels;
        const uint64_t kx = tap % w->kernel[2], ky = tap / w->kernel[2] % w->kernel[1],
                       kz = tap / w->kernel[2] / w->kernel[1];
        const reach r = reach_of(w, kx);
        const unsigned char *from = args->view[0].data + image * p->image[0] + c * p->image[1];
        unsigned char *to = args->view[1].data + image * p->columns[0] + (c * p->taps + tap) * p->columns[1];
        for (uint64_t oz = 0; oz < w->out[0]; oz++)
            for (uint64_t oy = 0; oy < w->out[1]; oy++, to += w->out[2] * p->columns[2]) {
                const int64_t iz = place_of(w, 0, oz, kz), iy = place_of(w, 1, oy, ky);
                const bool inside = iz >= 0 && iy >= 0;
                copy_row(p, inside ? from + (uint64_t)iz * p->image[2] + (uint64_t)iy * p->image[3] : NULL,
                         &r, to);
            }
    }
}

void MICA__ISA(col2im)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? col2im_unit_double : col2im_unit_float)(args, unit);
}
