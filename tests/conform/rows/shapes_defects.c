/*
 * shapes_defects.c - cases in which another implementation was wrong once, a family for each mistake: docs/defects.md has the list.
 */
#include <stdio.h>

#include "conform/conform_shapes.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define NONE MICA_DTYPE_NONE

static const char *const floats[] = {"f32", "f16", "bf16"};

/* ---- experts ---- */

/* Ids that 16 bits do not hold. */
static void many_experts(conform_lines *lines)
{
    conform_line_add(lines, "experts f32", MICA_DTYPE_F16,
                     "x f32 9x16, weight W 70000x2x16, ids i32 9x4 <70000, y f32 9x4x2 >");
    conform_line_add(lines, "experts f32", MICA_DTYPE_F16,
                     "x f32 5x16, weight W 66000x1x16, ids u32 5x1 .66000, y f32 5x1x1 >");
}

/* More tokens than a signed number of 16 bits counts. */
static void many_tokens(conform_lines *lines)
{
    conform_line_add(lines, "experts f32", MICA_DTYPE_F16,
                     "x f32 40000x16, weight W 3x2x16, ids i32 40000x2 <3, y f32 40000x2x2 >");
    conform_line_add(lines, "experts f32", MICA_DTYPE_Q8_0,
                     "x f32 33000x32, weight W 2x1x32, ids u32 33000x1 <2, y f32 33000x1x1 >");
}

/* One expert in every slot of a token. */
static void repeated_experts(conform_lines *lines)
{
    for (unsigned tokens = 1; tokens < 100; tokens = 3 * tokens + 2) {
        conform_line_add(lines, "experts f32", MICA_DTYPE_F16,
                         "x f32 %ux64, weight W 4x17x64, ids i32 %ux4 =3, y f32 %ux4x17 >", tokens, tokens,
                         tokens);
        conform_line_add(lines, "experts f32", MICA_DTYPE_Q4_0,
                         "x f32 %ux3x64, weight W 4x17x64, ids i32 %ux3 <2, y f32 %ux3x17 >", tokens, tokens,
                         tokens);
    }
}

/* Every number of experts around powers of two, more than eight of them, and all. */
static void numbers_of_experts(conform_lines *lines)
{
    static const unsigned sizes[] = {1, 2, 3, 5, 7, 31, 33, 60, 100, 127, 129, 200, 257};

    for (size_t i = 0; i < COUNT(sizes); i++)
        for (unsigned part = 1; part <= 4; part++) {
            const unsigned e = sizes[i], k = (e * part + 3) / 4;

            for (unsigned tokens = 1; tokens <= 5; tokens += 4)
                conform_line_add(lines, "route", NONE,
                                 "logits f32 %ux%u d, -, -, ids i32 %ux%u ~, weights f32 %ux%u >", tokens, e,
                                 tokens, k, tokens, k)
                    ->params.route =
                    (mica_route_params){.softmax_first = part & 1, .normalise = part >> 1 & 1};
        }
}

/* ---- products ---- */

/* Rows of a weight that no group of rows divides, of a type whose kernel takes several at once. */
static void odd_rows(conform_lines *lines)
{
    static const mica_dtype types[] = {MICA_DTYPE_Q6_K, MICA_DTYPE_Q4_K, MICA_DTYPE_Q8_0, MICA_DTYPE_Q5_K,
                                       MICA_DTYPE_IQ4_XS};

    for (size_t t = 0; t < COUNT(types); t++)
        for (unsigned n = 1; n < 20; n += 2)
            conform_line_add(lines, "matmul f32", types[t], "x f32 %ux256, weight W %ux256, y f32 %ux%u >",
                             1 + n % 3, n, 1 + n % 3, n);
}

/* One row times a dense weight, K of every remainder: no element is left out. */
static void odd_columns(conform_lines *lines)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16};

    for (size_t t = 0; t < COUNT(types); t++)
        for (unsigned k = 1; k < 40; k += k < 10 ? 1 : 5)
            conform_line_add(lines, "matmul f32", types[t], "x f32 1x%u, weight W 7x%u, y f32 1x7 >", k, k);
}

/* ---- attention and softmax ---- */

/* Columns of which half hides, rows of every width. */
static void half_masks(conform_lines *lines)
{
    static const unsigned tokens[] = {1, 17, 64}, keys[] = {64, 100, 128, 200};

    for (size_t t = 0; t < COUNT(tokens); t++)
        for (size_t k = 0; k < COUNT(keys); k++)
            conform_line_add(lines, "attention more", MICA_DTYPE_F16,
                             "q f32 %ux2x64, k T %ux2x64, v T %ux2x64, positions i32 %u .%u, lengths i32 1 "
                             "=%u, -, -, mask f16 %ux%u h, y f32 %ux2x64 >, -, -, -, -",
                             tokens[t], keys[k], keys[k], tokens[t],
                             keys[k] > tokens[t] ? keys[k] : tokens[t], keys[k], tokens[t], keys[k],
                             tokens[t])
                ->params.attention.bidirectional = 1;
}

/* Whole rows that see nothing give zeros, rows whose width no vector divides are whole. */
static void masked_rows(conform_lines *lines)
{
    for (unsigned n = 1; n < 70; n += n < 36 ? 5 : 11)
        for (size_t t = 0; t < COUNT(floats); t++) {
            conform_line_add(lines, "masked_softmax", NONE, "x %s 5x%u, mask f32 5x%u m, y f32 5x%u >",
                             floats[t], n, n, n)
                ->params.softmax.scale = 0.5f;
            conform_line_add(lines, "masked_softmax", NONE, "x %s 3x%u, mask bool %u =0, y f32 3x%u >",
                             floats[t], n, n, n)
                ->params.softmax.scale = 1;
        }
}

/* Behind the last key there is no number: nobody may read it. */
static void behind_the_keys(conform_lines *lines)
{
    static const unsigned tokens[] = {1, 5, 40}, lengths[] = {1, 31, 33, 97};

    for (size_t t = 0; t < COUNT(tokens); t++)
        for (size_t l = 0; l < COUNT(lengths); l++)
            conform_line_add(lines, "attention more", MICA_DTYPE_F16,
                             "q f32 %ux4x64, k T 130x2x64 X%u, v T 130x2x64 X%u, positions i32 %u =%u, "
                             "lengths i32 1 =%u, -, -, -, y f32 %ux4x64 >, -, -, -, -",
                             tokens[t], lengths[l], lengths[l], tokens[t], lengths[l] - 1, lengths[l],
                             tokens[t]);
}

/* A window of a few keys for queries that are the last of many. */
static void window_behind_keys(conform_lines *lines)
{
    static const unsigned tokens[] = {1, 3, 20}, keys[] = {20, 41, 300};

    for (size_t t = 0; t < COUNT(tokens); t++)
        for (size_t k = 0; k < COUNT(keys); k++)
            for (uint32_t window = 1; window < 30; window += 9) {
                const unsigned n = tokens[t], m = keys[k];
                conform_line *line =
                    conform_line_add(lines, "attention more", MICA_DTYPE_F16,
                                     "q f32 %ux2x32, k T %ux2x32, v T %ux2x32, positions i32 %u .%u, lengths "
                                     "i32 1 =%u, -, -, -, y f32 %ux2x32 >, -, -, -, -",
                                     n, m, m, n, m, m, n);
                line->params.attention.window = window;
            }
}

/* ---- rows ---- */

/* Lengths that are no power of two, with -inf in them: no place behind the row comes out. */
static void ordered_infinities(conform_lines *lines)
{
    static const unsigned widths[] = {1, 3, 5, 33, 100, 1000, 1025, 3000, 5000};

    for (size_t w = 0; w < COUNT(widths); w++)
        for (uint32_t descending = 0; descending < 2; descending++) {
            conform_line_add(lines, "sort", NONE, "x f32 3x%u m, -, ids i32 3x%u >", widths[w], widths[w])
                ->params.sort.descending = descending;
            conform_line_add(lines, "sort", NONE, "x f16 2x%u =-inf, values f16 2x%u >, ids u32 2x%u >",
                             widths[w], widths[w], widths[w])
                ->params.sort.descending = descending;
        }
}

/* Equal ones in the order in which they stand, the greatest first. */
static void ordered_ties(conform_lines *lines)
{
    for (unsigned n = 2; n < 3000; n = 3 * n + 1)
        for (unsigned k = 1; k <= n; k = 4 * k + 1)
            conform_line_add(lines, "sort", NONE, "x f32 5x%u <3, values f32 5x%u >, ids i32 5x%u >", n, k, k)
                ->params.sort.descending = 1;
}

/* Norms of more elements than 256, which a kernel of 16 bits once had no room for. */
static void long_norms(conform_lines *lines)
{
    static const unsigned widths[] = {255, 257, 512, 1000, 4099};

    for (size_t w = 0; w < COUNT(widths); w++)
        for (size_t t = 0; t < COUNT(floats); t++)
            conform_line_add(lines, "rms_norm", NONE, "x %s 3x%u, weight %s %u, y %s 3x%u >", floats[t],
                             widths[w], floats[t], widths[w], floats[t], widths[w])
                ->params.real = 1e-6f;
}

/* Part of a head turns: by frequencies of that part, or of the whole head. */
static void partial_ropes(conform_lines *lines)
{
    static const uint32_t parts[] = {2, 20, 32, 64, 96};

    for (size_t p = 0; p < COUNT(parts); p++)
        for (uint32_t mode = MICA_ROPE_STANDARD; mode <= MICA_ROPE_NEOX; mode++)
            for (uint32_t whole = 0; whole < 2; whole++)
                conform_line_add(lines, "rope", NONE,
                                 "x f32 7x3x96, positions i32 7 <3000, -, y f32 7x3x96 >")
                    ->params.rope = (mica_rope_params){.mode = (mica_rope_mode)mode,
                                                       .rotary_dims = parts[p],
                                                       .theta = 10000,
                                                       .frequency_dims = whole != 0 ? 96 : 0};
}

/* Places beyond 2^24, which f32 does not count. */
static void places_beyond_f32(conform_lines *lines)
{
    conform_line_add(lines, "gather", NONE, "x u8 16777300 <250, ids u32 40 .16777300, y u8 40 >");
    conform_line_add(lines, "argmax", NONE, "x i32 1x16777250 .16777250, ids u32 1 >");
}

/* ---- images ---- */

/* Batches of several images in what once had the stride of one. */
static void batches_of_images(conform_lines *lines)
{
    static const unsigned groups[][2] = {{1, 6}, {2, 3}, {3, 2}, {6, 1}};

    for (size_t g = 0; g < COUNT(groups); g++)
        for (unsigned view = 0; view < 2; view++) {
            conform_line *line = conform_line_add(
                lines, "normalize", NONE,
                "x%s f32 5x%ux%ux7x3, weight f32 %ux%ux1x1, bias f32 %ux%ux1x1, y f32 5x%ux%ux7x3 >, -, -",
                view != 0 ? "*" : "", groups[g][0], groups[g][1], groups[g][0], groups[g][1], groups[g][0],
                groups[g][1], groups[g][0], groups[g][1]);
            line->params.normalize = (mica_normalize_params){.dims = 3, .eps = 1e-5f};
        }
    for (uint32_t mode = MICA_RESIZE_NEAREST; mode <= MICA_RESIZE_CUBIC; mode++)
        conform_line_add(lines, "resize", NONE, "x f32 3x2x5x7, y f32 3x2x10x14 >")->params.resize =
            (mica_resize_params){
                .mode = mode, .dims = 2, .corners = mode == MICA_RESIZE_NEAREST ? MICA_RESIZE_ASYMMETRIC : 0};
    conform_line *line = conform_line_add(lines, "normalize", NONE,
                                          "x* f32 4x9x5x6, weight f32 6, bias f32 6, y* f32 4x9x5x6 >, -, -");
    line->params.normalize =
        (mica_normalize_params){.dims = 1, .eps = 1e-5f}; /* channels, the last of a permuted view */
}

/* Each kind over one to three dimensions, with places of padding and without. */
static void kinds_of_pools(conform_lines *lines)
{
    static const char *const shapes[][2] = {
        {"3x2x11", "3x2x6"}, {"2x3x11x9", "2x3x6x5"}, {"2x2x7x5x9", "2x2x4x3x5"}};

    for (uint32_t dims = 1; dims <= 3; dims++)
        for (uint32_t kind = MICA_POOL_MAX; kind <= MICA_POOL_PROD; kind++)
            for (uint32_t count = 0; count < 2; count++) {
                const mica_pool_windows_params params = {.kind = kind,
                                                         .dims = dims,
                                                         .kernel = {3, 3, 3},
                                                         .stride = {2, 2, 2},
                                                         .low = {1, 1, 1},
                                                         .high = {1, 1, 1},
                                                         .count_padding = count};

                conform_line_add(lines, "pool_windows", NONE, "x f32 %s, y f32 %s >, -", shapes[dims - 1][0],
                                 shapes[dims - 1][1])
                    ->params.pool = params;
                conform_line_add(lines, "pool_windows_backward", NONE, "x f32 %s, dy f32 %s, dx f32 %s >",
                                 shapes[dims - 1][0], shapes[dims - 1][1], shapes[dims - 1][0])
                    ->params.pool = params;
            }
}

/* (in - 1) stride - 2 padding + dilation (kernel - 1) + 1 + more: what comes out of a transposed convolution. */
static void transposed_sizes(conform_lines *lines)
{
    for (uint32_t stride = 1; stride <= 3; stride++)
        for (uint32_t padding = 0; padding <= 2; padding++)
            for (uint32_t more = 0; more < stride; more++)
                for (uint32_t dilation = 1; dilation <= 2; dilation++) {
                    const unsigned h = 4 * stride - 2 * padding + 2 * dilation + 1 + more,
                                   w = 6 * stride - 2 * padding + 3 * dilation + 1 + more;
                    conform_line *line = conform_line_add(
                        lines, "conv", NONE, "x f32 2x4x5x7, weight f32 4x3x3x4, -, y f32 2x6x%ux%u >", h, w);

                    line->params.conv = (mica_conv_params){.transposed = 1, .groups = 2};
                    for (uint32_t d = 0; d < 2; d++) {
                        line->params.conv.stride[d] = stride;
                        line->params.conv.low[d] = line->params.conv.high[d] = padding;
                        line->params.conv.output_padding[d] = more;
                        line->params.conv.dilation[d] = dilation;
                    }
                }
}

/* ---- elementwise ---- */

/* Sizes that divide those of y without being its last ones: channels of an image. */
static void channels_that_repeat(conform_lines *lines)
{
    static const char *const small[] = {"1x4x1x1", "4x1x1",   "2x1x1x1", "1x1x6x1",
                                        "2x4x1x1", "1x4x1x8", "8",       "1"};
    char b[32];

    for (size_t i = 0; i < COUNT(small); i++) {
        snprintf(b, sizeof b, " f32 %s", small[i]);
        conform_line_scalar(lines, MICA_SCALAR_SUB, false, "f32", " f32 2x4x6x8", b, "2x4x6x8");
    }
}

const conform_family conform_defect_shapes[] = {{"many experts", many_experts},
                                                {"many tokens", many_tokens},
                                                {"repeated experts", repeated_experts},
                                                {"numbers of experts", numbers_of_experts},
                                                {"odd rows", odd_rows},
                                                {"odd columns", odd_columns},
                                                {"half masks", half_masks},
                                                {"masked rows", masked_rows},
                                                {"behind the keys", behind_the_keys},
                                                {"window behind keys", window_behind_keys},
                                                {"ordered infinities", ordered_infinities},
                                                {"ordered ties", ordered_ties},
                                                {"long norms", long_norms},
                                                {"partial ropes", partial_ropes},
                                                {"places beyond f32", places_beyond_f32},
                                                {"batches of images", batches_of_images},
                                                {"kinds of pools", kinds_of_pools},
                                                {"transposed sizes", transposed_sizes},
                                                {"channels that repeat", channels_that_repeat},
                                                {NULL, NULL}};
