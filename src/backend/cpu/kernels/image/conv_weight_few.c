/*
 * conv_weight_few.c - the gradient of a convolution with respect to its weight, where a group has few outputs: rows of dy against rows of x, as far
 * apart as the tap says.
 *
 * The products of an output are added image by image: in vectors along the rows, in rising place, then the vector's lanes, then f64 from
 * image to image.
 */
#include "backend/cpu/kernels/image/conv.h"

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"

enum { N, C, Z, Y, X };

typedef struct sums {
    const mica__cpu_conv_weight *p;
    float *x, *dy;  /* rows; places of x that are a stride apart are neighbours */
    double *total;  /* [output][tap] */
    float *vectors; /* the same of one image, VW of each */
} sums;

/* Row iy of plane iz of x with its padding, zeros outside; false where all of it is outside. */
static bool fill_row(const sums *s, const mica__cpu_view *x, const unsigned char *channel, int64_t iz,
                     int64_t iy)
{
    const mica__windows *w = &s->p->windows;
    const uint64_t step = w->stride[2], apart = s->p->row_floats / step, low = w->low[2];
    if (iz < 0 || iz >= (int64_t)x->shape[Z] || iy < 0 || iy >= (int64_t)x->shape[Y])
        return false;
    const unsigned char *row = channel + (uint64_t)iz * x->stride[Z] + (uint64_t)iy * x->stride[Y];
    memset(s->x, 0, s->p->row_floats * sizeof *s->x);
    for (uint64_t i = 0; i < x->shape[X] && i + low < s->p->row_floats; i++)
        s->x[(i + low) % step * apart + (i + low) / step] = row_element(row + i * x->stride[X], x->dtype);
    return true;
}

/* The row of x against a row of each output's dy. `tap` is the first of the kernel's row. */
static void add_row(const sums *s, const mica__cpu_view *dy, const unsigned char *outputs, uint64_t tap)
{
    const mica__windows *w = &s->p->windows;
    const uint64_t step = w->stride[2], apart = s->p->row_floats / step, taps = mica__conv_taps(w),
                   n = w->out[2];
    for (uint64_t o = 0; o < s->p->outputs; o++) {
        const float *row = row_f32_strided(outputs + o * dy->stride[C], dy->dtype, dy->stride[X], n, s->dy);
        float *to = s->vectors + (o * taps + tap) * VW;
        for (uint64_t k = 0; k < w->kernel[2]; k++, to += VW) {
            const uint64_t at = k * w->dilation[2];
            const float *x = s->x + at % step * apart + at / step;
            vf sum = vf_load(to);
            uint64_t i = 0;
            for (; i + VW <= n; i += VW)
                sum = vf_fma(vf_load(row + i), vf_load(x + i), sum);
            if (i < n)
                sum = vf_fma(vf_load_n(row + i, n - i), vf_load_n(x + i, n - i), sum);
            vf_store(to, sum);
        }
    }
}

static void add_image(const sums *s, const mica__cpu_args *args, uint64_t image, uint64_t group, uint64_t c)
{
    const mica__cpu_view *x = &args->view[MICA__CONV_WEIGHT_X], *dy = &args->view[MICA__CONV_WEIGHT_DY];
    const mica__windows *w = &s->p->windows;
    const uint64_t count = s->p->outputs * mica__conv_taps(w);
    const unsigned char *channel =
        x->data + image * x->stride[N] + (group * s->p->channels + c) * x->stride[C];
    const unsigned char *outputs = dy->data + image * dy->stride[N] + group * s->p->outputs * dy->stride[C];
    memset(s->vectors, 0, count * VW * sizeof *s->vectors);
    for (uint64_t oz = 0; oz < w->out[0]; oz++)
        for (uint64_t oy = 0; oy < w->out[1]; oy++)
            for (uint64_t kz = 0; kz < w->kernel[0]; kz++)
                for (uint64_t ky = 0; ky < w->kernel[1]; ky++) {
                    const int64_t iz = (int64_t)(oz * w->stride[0] + kz * w->dilation[0]) - w->low[0],
                                  iy = (int64_t)(oy * w->stride[1] + ky * w->dilation[1]) - w->low[1];
                    if (fill_row(s, x, channel, iz, iy))
                        add_row(s, dy, outputs + oz * dy->stride[Z] + oy * dy->stride[Y],
                                (kz * w->kernel[1] + ky) * w->kernel[2]);
                }
    for (uint64_t i = 0; i < count; i++)
        s->total[i] += (double)vf_sum(vf_load(s->vectors + i * VW));
}

static void store(const sums *s, const mica__cpu_view *w, uint64_t group, uint64_t c)
{
    const double *total = s->total;
    for (uint64_t o = 0; o < s->p->outputs; o++)
        for (uint64_t z = 0; z < w->shape[Z]; z++)
            for (uint64_t y = 0; y < w->shape[Y]; y++)
                for (uint64_t x = 0; x < w->shape[X]; x++) {
                    const float value = (float)*total++;
                    row_store_strided(w->data + (group * s->p->outputs + o) * w->stride[N] +
                                          c * w->stride[C] + z * w->stride[Z] + y * w->stride[Y] +
                                          x * w->stride[X],
                                      w->dtype, 0, &value, 1);
                }
}

void MICA__ISA(conv_weight_few)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv_weight *p = args->params;
    const uint64_t count = p->outputs * mica__conv_taps(&p->windows);
    sums s = {.p = p, .x = args->local};
    s.dy = s.x + mica__conv_round(p->row_floats + MICA__CONV_SLACK, 16);
    s.total = (double *)(void *)(s.dy + mica__conv_round(p->windows.out[2] + 16, 16));
    s.vectors = (float *)(void *)(s.total + mica__conv_round(count, 16));
    for (uint64_t unit = first; unit < last; unit++) {
        memset(s.total, 0, count * sizeof *s.total);
        for (uint64_t image = 0; image < p->batch; image++)
            add_image(&s, args, image, unit / p->channels, unit % p->channels);
        store(&s, &args->view[MICA__CONV_WEIGHT_DWEIGHT], unit / p->channels, unit % p->channels);
    }
}
