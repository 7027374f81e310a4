/*
 * shapes_image.c - shapes of convolution, pooling, windows as columns and resizing: those of the list that llama.cpp's test-backend-ops
 * evaluates, slowest dimension first.
 */
#include <stdio.h>
#include <string.h>

#include "conform/conform_shapes.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define NONE MICA_DTYPE_NONE

static const char *const halves[] = {"f32", "f16"};

static int places_of(int in, int kernel, int stride, int padding, int dilation)
{
    return in + 2 * padding < dilation * (kernel - 1) + 1
               ? 0
               : (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

/* Of one dimension: places, kernel, stride, padding on both sides, dilation. */
typedef struct side {
    int in, kernel, stride, padding, dilation;
} side;

static void set_side(mica_conv_params *p, uint32_t d, const side *s)
{
    p->stride[d] = (uint32_t)s->stride;
    p->low[d] = p->high[d] = (uint32_t)s->padding;
    p->dilation[d] = (uint32_t)s->dilation;
}

static void add_conv_2d(conform_lines *lines, const char *kernel, const char *view, int batch, int channels,
                        int outputs, int groups, const side *h, const side *w)
{
    const int out_h = places_of(h->in, h->kernel, h->stride, h->padding, h->dilation),
              out_w = places_of(w->in, w->kernel, w->stride, w->padding, w->dilation);

    if (out_h <= 0 || out_w <= 0)
        return;
    conform_line *line = conform_line_add(
        lines, "conv", NONE, "x%s f32 %dx%dx%dx%d, weight%s %s %dx%dx%dx%d, -, y f32 %dx%dx%dx%d >", view,
        batch, channels, h->in, w->in, view, kernel, outputs, channels / groups, h->kernel, w->kernel, batch,
        outputs, out_h, out_w);
    line->params.conv.groups = (uint32_t)groups;
    set_side(&line->params.conv, 0, h);
    set_side(&line->params.conv, 1, w);
}

/* Strides and paddings of the two sides differ; every pair of kernels, on images of one row or column too. */
static void conv_2d(conform_lines *lines)
{
    static const int kernels[] = {1, 2, 3, 11}, heights[] = {1, 133}, widths[] = {1, 141};
    unsigned turn = 0;

    for (size_t kh = 0; kh < COUNT(kernels); kh++)
        for (size_t kw = 0; kw < COUNT(kernels); kw++)
            for (size_t at = 0; at < 4; at++)
                for (unsigned twice = 0; twice < 2; twice++, turn++) {
                    const side h = {heights[at / 2], kernels[kh], 5, turn % 4 < 2 ? 2 : 5, 4},
                               w = {widths[at % 2], kernels[kw], turn % 2 == 0 ? 1 : 3, 5, 2};
                    const bool wide = kernels[kh] * kernels[kw] < 40;

                    add_conv_2d(lines, halves[turn / 2 % 2], turn % 3 == 0 ? "*" : "", 2,
                                turn % 5 < 3 || !wide ? 1 : 25, turn % 7 < 3 ? 1 : 12, 1, &h, &w);
                }
    for (size_t t = 0; t < 2; t++)
        for (unsigned view = 0; view < 2; view++) {
            const side tall = {34, 3, 1, 0, 1}, narrow = {17, 3, 1, 0, 1}, low = {8, 3, 2, 1, 1},
                       long_one = {32, 3, 2, 1, 1};
            const side middle = {58, 3, 1, 0, 1};

            add_conv_2d(lines, halves[t], view != 0 ? "*" : "", 1, 9, 9, 9, &tall, &narrow);
            add_conv_2d(lines, halves[t], view != 0 ? "*" : "", 1, 64, 64, 64, &low, &long_one);
            add_conv_2d(lines, halves[t], view != 0 ? "*" : "", 1, 32, 64, 1, &middle, &middle);
        }
}

static void conv_3d(conform_lines *lines)
{
    static const side cubes[][3] = {{{18, 3, 1, 0, 1}, {22, 3, 1, 0, 1}, {20, 3, 1, 0, 1}},
                                    {{18, 3, 2, 1, 2}, {22, 3, 2, 1, 2}, {20, 3, 2, 1, 2}},
                                    {{18, 3, 1, 1, 2}, {22, 1, 1, 0, 1}, {20, 5, 2, 2, 1}},
                                    {{18, 3, 2, 0, 1}, {22, 3, 2, 0, 1}, {20, 3, 2, 0, 1}},
                                    {{8, 1, 1, 0, 1}, {8, 1, 1, 0, 1}, {8, 1, 1, 0, 1}}};
    static const int channels[] = {1, 3}, outputs[] = {1, 4};

    for (size_t i = 0; i < COUNT(cubes); i++)
        for (size_t v = 0; v < 4; v++) {
            const side *s = cubes[i];
            int out[3];

            for (uint32_t d = 0; d < 3; d++)
                out[d] = places_of(s[d].in, s[d].kernel, s[d].stride, s[d].padding, s[d].dilation);
            conform_line *line = conform_line_add(
                lines, "conv", NONE,
                "x f32 %zux%dx%dx%dx%d, weight %s %dx%dx%dx%dx%d, -, y f32 %zux%dx%dx%dx%d >", 1 + v / 2,
                channels[v % 2], s[0].in, s[1].in, s[2].in, halves[v % 2], outputs[v / 2], channels[v % 2],
                s[0].kernel, s[1].kernel, s[2].kernel, 1 + v / 2, outputs[v / 2], out[0], out[1], out[2]);
            for (uint32_t d = 0; d < 3; d++)
                set_side(&line->params.conv, d, &s[d]);
        }
}

static void add_transposed_1d(conform_lines *lines, unsigned places, unsigned channels, unsigned outputs,
                              unsigned kernel, unsigned stride)
{
    conform_line *line = conform_line_add(
        lines, "conv", NONE, "x f32 1x%ux%u, weight f32 %ux%ux%u, -, y f32 1x%ux%u >", channels, places,
        channels, outputs, kernel, outputs, (places - 1) * stride + kernel);

    line->params.conv.transposed = 1;
    line->params.conv.stride[0] = stride;
}

static void transposed(conform_lines *lines)
{
    static const unsigned kernels[] = {1, 3, 1337}, places[] = {1, 2, 13}, channels[] = {1, 7},
                          outputs[] = {1, 9};
    static const unsigned few[][5] = {{3, 2, 3, 2, 3}, {3, 2, 3, 2, 2}, {3, 2, 3, 2, 1}, {3, 2, 2, 3, 2},
                                      {3, 2, 2, 3, 1}, {3, 2, 1, 3, 1}, {2, 1, 1, 3, 1}};
    static const unsigned images[][6] = {{3, 2, 3, 1, 2, 1}, {10, 10, 9, 1, 3, 2}, {63, 12, 35, 48, 3, 1}};

    for (size_t k = 0; k < COUNT(kernels); k++)
        for (size_t l = 0; l < COUNT(places); l++)
            for (unsigned stride = 1; stride <= 3; stride++)
                for (size_t v = 0; v < 4; v++)
                    add_transposed_1d(lines, places[l], channels[v % 2], outputs[v / 2], kernels[k], stride);
    for (size_t i = 0; i < COUNT(few); i++)
        add_transposed_1d(lines, few[i][0], few[i][1], few[i][2], few[i][3], few[i][4]);
    add_transposed_1d(lines, 197, 32, 32, 16, 1);
    for (size_t i = 0; i < COUNT(images); i++)
        for (size_t t = 0; t < 2; t++) {
            const unsigned *s = images[i], k = s[4], stride = s[5];
            conform_line *line = conform_line_add(
                lines, "conv", NONE, "x f32 1x%ux%ux%u, weight %s %ux%ux%ux%u, -, y f32 1x%ux%ux%u >", s[2],
                s[1], s[0], halves[t], s[2], s[3], k, k, s[3], (s[1] - 1) * stride + k,
                (s[0] - 1) * stride + k);
            line->params.conv.transposed = 1;
            line->params.conv.stride[0] = line->params.conv.stride[1] = stride;
        }
}

static void pools(conform_lines *lines)
{
    static const char *const fronts[] = {"2x3x10", "3x1x11", "1x2x128"};
    static const int widths[] = {10, 11, 128};
    static const uint32_t kinds[] = {MICA_POOL_MEAN, MICA_POOL_MAX};

    for (unsigned bits = 0; bits < 128; bits++) {
        const int k[2] = {1 + 2 * (int)(bits & 1), 1 + (int)(bits & 2)},
                  s[2] = {1 + (int)(bits >> 2 & 1), 1 + (int)(bits >> 3 & 1)},
                  p[2] = {(int)(bits >> 4 & 1), (int)(bits >> 5 & 1)};
        conform_line *line =
            conform_line_add(lines, "pool_windows", NONE, "x f32 3x10x10, y f32 3x%dx%d >, -",
                             places_of(10, k[0], s[0], p[0], 1), places_of(10, k[1], s[1], p[1], 1));
        line->params.pool =
            (mica_pool_windows_params){.kind = kinds[bits >> 6], .dims = 2, .count_padding = 1};
        for (uint32_t d = 0; d < 2; d++) {
            line->params.pool.kernel[d] = (uint32_t)k[d];
            line->params.pool.stride[d] = (uint32_t)s[d];
            line->params.pool.low[d] = line->params.pool.high[d] = (uint32_t)p[d];
        }
    }
    for (unsigned i = 0; i < 216; i++) {
        const int k = 1 + (int)(i % 3), s = 1 + (int)(i / 3 % 3), p = (int)(i / 9 % 4);
        const size_t which = i / 36 % 3;
        const int out = places_of(widths[which], k, s, p, 1);
        conform_line *line = conform_line_add(lines, "pool_windows", NONE, "x f32 %s, y f32 %.4s%d >, -",
                                              fronts[which], fronts[which], out);

        line->params.pool = (mica_pool_windows_params){.kind = kinds[i / 108],
                                                       .dims = 1,
                                                       .kernel = {(uint32_t)k},
                                                       .stride = {(uint32_t)s},
                                                       .low = {(uint32_t)p},
                                                       .high = {(uint32_t)p}};
    }
}

/* ---- windows as columns ---- */

static void add_im2col(conform_lines *lines, const char *type, int batch, int channels, uint32_t dims,
                       const side *s)
{
    char image[64] = "";
    int windows = 1, places = 1;
    size_t used = 0;

    for (uint32_t d = 0; d < dims; d++) {
        used += (size_t)snprintf(image + used, sizeof image - used, "x%d", s[d].in);
        windows *= places_of(s[d].in, s[d].kernel, s[d].stride, s[d].padding, s[d].dilation);
        places *= s[d].kernel;
    }
    if (windows <= 0)
        return;
    conform_line *line = conform_line_add(lines, "im2col", NONE, "x %s %dx%d%s <100, y %s %dx%dx%d >", type,
                                          batch, channels, image, type, batch, channels * places, windows);
    line->params.im2col.dims = dims;
    for (uint32_t d = 0; d < dims; d++) {
        line->params.im2col.kernel[d] = (uint32_t)s[d].kernel;
        line->params.im2col.stride[d] = (uint32_t)s[d].stride;
        line->params.im2col.dilation[d] = (uint32_t)s[d].dilation;
        line->params.im2col.low[d] = line->params.im2col.high[d] = (uint32_t)s[d].padding;
    }
}

static int one_or(unsigned bits, unsigned at, int one, int other)
{
    return (bits >> at & 1) != 0 ? other : one;
}

static void columns(conform_lines *lines)
{
    static const side long_row = {3000, 3, 1, 0, 1}, unit = {12, 3, 1, 1, 1},
                      wide[2] = {{128, 33, 1, 1, 1}, {128, 32, 1, 1, 1}},
                      small[2] = {{5, 4, 1, 0, 1}, {5, 3, 1, 0, 1}},
                      pair[2] = {{2, 2, 1, 0, 1}, {2, 2, 1, 0, 1}};
    static const int channels[] = {1, 2, 32, 1024};

    add_im2col(lines, "f32", 1, 128, 1, &long_row);
    add_im2col(lines, "f16", 1, 128, 1, &long_row);
    for (unsigned bits = 0; bits < 64; bits++) {
        const side h = {20, 3, one_or(bits, 1, 1, 3), one_or(bits, 3, 0, 3), one_or(bits, 5, 1, 3)},
                   w = {20, 3, one_or(bits, 0, 1, 3), one_or(bits, 2, 0, 3), one_or(bits, 4, 1, 3)},
                   d = {10, 3, h.stride, w.padding, 1};
        const side two[2] = {h, w}, three[3] = {d, h, w};

        if (bits % 8 == bits / 8)
            add_im2col(lines, "f32", 2, 2, 1, two);
        add_im2col(lines, halves[bits % 2], 2, 2, 2, two);
        if (bits % 4 == 0)
            add_im2col(lines, "f32", 3, 1, 3, three);
    }
    for (size_t i = 0; i < COUNT(channels); i++) {
        const side twice[2] = {unit, unit};

        add_im2col(lines, "f16", channels[i] > 2 ? 1 : 32, channels[i], 2, twice);
    }
    add_im2col(lines, "f16", 32, 1, 2, small);
    add_im2col(lines, "f32", 9, 1536, 2, pair);
    add_im2col(lines, "f16", 1, 2, 2, wide);
}

/* Kernel, outputs, columns, stride, padding: overlaps, gaps, and padding that takes most of what there is. */
static void from_columns(conform_lines *lines)
{
    static const int cases[][5] = {{16, 32, 197, 8, 0}, {4, 3, 7, 2, 0},  {1, 5, 13, 1, 0}, {6, 4, 11, 3, 1},
                                   {2, 3, 9, 3, 0},     {5, 4, 11, 2, 0}, {8, 4, 13, 4, 2}, {4, 3, 1, 2, 0},
                                   {16, 1, 197, 8, 0},  {1, 5, 13, 3, 0}, {8, 2, 3, 2, 5}};
    static const char *const types[] = {"f32", "f16", "bf16"};

    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t t = 0; t < COUNT(types); t++) {
            const int *s = cases[i], out = (s[2] - 1) * s[3] + s[0] - 2 * s[4];
            conform_line *line = conform_line_add(lines, "col2im", NONE, "x %s 1x%dx%d, y %s 1x%dx%d >",
                                                  types[t], s[0] * s[1], s[2], types[t], s[1], out);

            line->params.im2col = (mica_im2col_params){.dims = 1,
                                                       .kernel = {(uint32_t)s[0]},
                                                       .stride = {(uint32_t)s[3]},
                                                       .low = {(uint32_t)s[4]},
                                                       .high = {(uint32_t)s[4]},
                                                       .size = {(uint32_t)out}};
        }
}

static void resizes(conform_lines *lines)
{
    static const char *const pairs[][2] = {{"2x3x24x24", "2x3x48x48"},
                                           {"11x7x5x2", "11x7x7x5"},
                                           {"13x11x7x5", "13x11x5x2"},
                                           {"2x3x4x1", "2x3x8x2"},
                                           {"2x3x1x4", "2x3x1x1"}};
    static const mica_resize_params ways[] = {
        {.mode = MICA_RESIZE_NEAREST, .corners = MICA_RESIZE_ASYMMETRIC},
        {.mode = MICA_RESIZE_LINEAR},
        {.mode = MICA_RESIZE_CUBIC},
        {.mode = MICA_RESIZE_LINEAR, .antialias = 1},
        {.mode = MICA_RESIZE_LINEAR, .corners = MICA_RESIZE_ALIGN_CORNERS},
        {.mode = MICA_RESIZE_CUBIC, .corners = MICA_RESIZE_ALIGN_CORNERS}};

    for (size_t p = 0; p < COUNT(pairs); p++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            conform_line *line = conform_line_add(lines, "resize", NONE, "x%s f32 %s, y f32 %s >",
                                                  w % 2 == 0 ? "" : "*", pairs[p][0], pairs[p][1]);
            line->params.resize = ways[w];
            line->params.resize.dims = 2;
        }
}

const conform_family conform_image_shapes[] = {
    {"conv 2d", conv_2d}, {"conv 3d", conv_3d}, {"conv transposed", transposed},
    {"pools", pools},     {"columns", columns}, {"from columns", from_columns},
    {"resizes", resizes}, {NULL, NULL}};
