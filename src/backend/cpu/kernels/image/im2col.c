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

#define REAL float
#define FN(name) name##_float
#include "backend/cpu/kernels/image/col2im_body.h"
#undef REAL
#undef FN
#define REAL double
#define FN(name) name##_double
#include "backend/cpu/kernels/image/col2im_body.h"

static void copy_element(unsigned char *to, const unsigned char *from, uint32_t bytes)
{
    switch (bytes) {
    case 1: memcpy(to, from, 1); return;
    case 2: memcpy(to, from, 2); return;
    case 4: memcpy(to, from, 4); return;
    default: memcpy(to, from, 8); return;
    }
}

/* A row of windows: the places of one row of x that are a stride apart, zeros where there is none. */
static void copy_row(const mica__cpu_im2col *p, const unsigned char *row, uint64_t kx, unsigned char *to)
{
    static const unsigned char zero[8];
    const mica__windows *w = &p->windows;
    const uint64_t n = w->out[2], step = p->columns[2], bytes = p->element_bytes;
    const int64_t first = (int64_t)(kx * w->dilation[2]) - w->low[2];
    if (row != NULL && w->stride[2] == 1 && step == bytes && p->image[4] == bytes && first >= 0 &&
        (uint64_t)first + n <= w->in[2]) {
        memcpy(to, row + (uint64_t)first * bytes, n * bytes);
        return;
    }
    for (uint64_t ox = 0; ox < n; ox++, to += step) {
        const int64_t ix = row != NULL ? place_of(w, 2, ox, kx) : -1;
        copy_element(to, ix >= 0 ? row + (uint64_t)ix * p->image[4] : zero, p->element_bytes);
    }
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
        const unsigned char *from = args->view[0].data + image * p->image[0] + c * p->image[1];
        unsigned char *to = args->view[1].data + image * p->columns[0] + (c * p->taps + tap) * p->columns[1];
        for (uint64_t oz = 0; oz < w->out[0]; oz++)
            for (uint64_t oy = 0; oy < w->out[1]; oy++, to += w->out[2] * p->columns[2]) {
                const int64_t iz = place_of(w, 0, oz, kz), iy = place_of(w, 1, oy, ky);
                const bool inside = iz >= 0 && iy >= 0;
                copy_row(p, inside ? from + (uint64_t)iz * p->image[2] + (uint64_t)iy * p->image[3] : NULL,
                         kx, to);
            }
    }
}

void MICA__ISA(col2im)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? col2im_unit_double : col2im_unit_float)(args, unit);
}
