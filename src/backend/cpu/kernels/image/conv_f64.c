/* conv_f64.c - convolution and its gradient with respect to the weight in f64, by the formula: what gradients are checked with. */
#include "backend/cpu/kernels/image/conv.h"

#include <string.h>

#include "backend/cpu/kernels/kernels.h"

enum { N, C, Z, Y, X };

static double load(const unsigned char *from)
{
    double value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* Place of x that tap k meets for place p of y; -1: none. */
static int64_t place_of(const mica__windows *w, bool transposed, uint32_t d, uint64_t p, uint64_t k)
{
    const int64_t tap = (int64_t)(k * w->dilation[d]), low = w->low[d], stride = w->stride[d];
    int64_t at = (int64_t)p * stride - low + tap, size = (int64_t)w->in[d];
    if (transposed) {
        const int64_t ahead = (int64_t)p + low - tap;
        at = ahead >= 0 && ahead % stride == 0 ? ahead / stride : -1;
        size = (int64_t)w->out[d];
    }
    return at < size ? at : -1;
}

/* Output o of a group at a place. */
static double output_of(const mica__cpu_args *args, uint64_t image, uint64_t group, uint64_t o,
                        const uint64_t *at)
{
    const mica__cpu_conv *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__CONV_X], *w = &args->view[MICA__CONV_WEIGHT];
    const bool turned = p->transposed != 0;
    double sum = 0;
    for (uint64_t c = 0; c < p->channels; c++) {
        const unsigned char *channel =
            x->data + image * x->stride[N] + (group * p->channels + c) * x->stride[C];
        const unsigned char *kernel =
            w->data + (turned ? group * p->channels + c : group * p->outputs + o) * w->stride[0] +
            (turned ? o : c) * w->stride[1];
        for (uint64_t kz = 0; kz < w->shape[Z]; kz++)
            for (uint64_t ky = 0; ky < w->shape[Y]; ky++)
                for (uint64_t kx = 0; kx < w->shape[X]; kx++) {
                    const int64_t iz = place_of(&p->windows, turned, 0, at[0], kz),
                                  iy = place_of(&p->windows, turned, 1, at[1], ky),
                                  ix = place_of(&p->windows, turned, 2, at[2], kx);
                    if (iz >= 0 && iy >= 0 && ix >= 0)
                        sum += load(kernel + kz * w->stride[Z] + ky * w->stride[Y] + kx * w->stride[X]) *
                               load(channel + (uint64_t)iz * x->stride[Z] + (uint64_t)iy * x->stride[Y] +
                                    (uint64_t)ix * x->stride[X]);
                }
    }
    return sum;
}

/* A unit is an output of an image. */
void MICA__ISA(conv_f64)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv *p = args->params;
    const mica__cpu_view *y = &args->view[MICA__CONV_Y], *bias = &args->view[MICA__CONV_BIAS];
    for (uint64_t unit = first; unit < last; unit++) {
        const uint64_t image = unit / y->shape[C], o = unit % y->shape[C];
        unsigned char *to = y->data + image * y->stride[N] + o * y->stride[C];
        const double add = bias->data != NULL ? load(bias->data + o * bias->stride[0]) : 0;
        uint64_t at[MICA_SPATIAL_DIMS];
        for (at[0] = 0; at[0] < y->shape[Z]; at[0]++)
            for (at[1] = 0; at[1] < y->shape[Y]; at[1]++)
                for (at[2] = 0; at[2] < y->shape[X]; at[2]++) {
                    const double value = output_of(args, image, o / p->outputs, o % p->outputs, at) + add;
                    memcpy(to + at[0] * y->stride[Z] + at[1] * y->stride[Y] + at[2] * y->stride[X], &value,
                           sizeof value);
                }
    }
}

/* One tap of the kernel of output o and channel c, over all images and places. */
static double weight_of(const mica__cpu_args *args, uint64_t o, uint64_t c, const uint64_t *k)
{
    const mica__cpu_conv_weight *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__CONV_WEIGHT_X], *dy = &args->view[MICA__CONV_WEIGHT_DY];
    double sum = 0;
    for (uint64_t image = 0; image < p->batch; image++)
        for (uint64_t oz = 0; oz < dy->shape[Z]; oz++)
            for (uint64_t oy = 0; oy < dy->shape[Y]; oy++)
                for (uint64_t ox = 0; ox < dy->shape[X]; ox++) {
                    const int64_t iz = place_of(&p->windows, false, 0, oz, k[0]),
                                  iy = place_of(&p->windows, false, 1, oy, k[1]),
                                  ix = place_of(&p->windows, false, 2, ox, k[2]);
                    if (iz >= 0 && iy >= 0 && ix >= 0)
                        sum += load(dy->data + image * dy->stride[N] + o * dy->stride[C] +
                                    oz * dy->stride[Z] + oy * dy->stride[Y] + ox * dy->stride[X]) *
                               load(x->data + image * x->stride[N] + c * x->stride[C] +
                                    (uint64_t)iz * x->stride[Z] + (uint64_t)iy * x->stride[Y] +
                                    (uint64_t)ix * x->stride[X]);
                }
    return sum;
}

/* A unit is an output. */
void MICA__ISA(conv_weight_f64)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv_weight *p = args->params;
    const mica__cpu_view *w = &args->view[MICA__CONV_WEIGHT_DWEIGHT];
    for (uint64_t o = first; o < last; o++)
        for (uint64_t c = 0; c < p->channels; c++) {
            uint64_t k[MICA_SPATIAL_DIMS];
            for (k[0] = 0; k[0] < w->shape[Z]; k[0]++)
                for (k[1] = 0; k[1] < w->shape[Y]; k[1]++)
                    for (k[2] = 0; k[2] < w->shape[X]; k[2]++) {
                        const double value = weight_of(args, o, o / p->outputs * p->channels + c, k);
                        memcpy(w->data + o * w->stride[N] + c * w->stride[C] + k[0] * w->stride[Z] +
                                   k[1] * w->stride[Y] + k[2] * w->stride[X],
                               &value, sizeof value);
                    }
        }
}
