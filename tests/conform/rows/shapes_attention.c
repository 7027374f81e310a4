/*
 * shapes_attention.c - shapes of attention over every size of head and type of cache, of routing, of convolutions and scans with a state, of
 * the gated delta rule: those of the list that llama.cpp's test-backend-ops evaluates, slowest dimension first.
 */
#include <stdio.h>

#include "conform/conform_shapes.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define NONE MICA_DTYPE_NONE

/* ---- attention ---- */

typedef struct heads {
    unsigned k, v, kv_heads, times; /* sizes of keys and values; query heads are times as many */
} heads;

typedef struct seen {
    bool mask, sinks, slopes, views;
    float softcap;
} seen;

static void add_attention(conform_lines *lines, mica_dtype k, mica_dtype v, const heads *h, unsigned tokens,
                          unsigned keys, const seen *s)
{
    char mask[40] = "-", sinks[40] = "-", slopes[40] = "-";
    const unsigned count = h->kv_heads * h->times;
    const char *view = s->views ? "/" : "";

    if (s->mask)
        snprintf(mask, sizeof mask, "mask f16 %ux%u m", tokens, keys);
    if (s->sinks)
        snprintf(sinks, sizeof sinks, "sinks f32 %u", count);
    if (s->slopes)
        snprintf(slopes, sizeof slopes, "slopes f32 %u u", count);
    conform_line *line = conform_line_add(
        lines, "attention more", k,
        "q%s f32 %ux%ux%u, k%s T %ux%ux%u, v%s %s %ux%ux%u, positions i32 %u .%u, lengths i32 1 =%u, -, -, "
        "%s, y f32 %ux%ux%u >, %s, %s, -, -",
        view, tokens, count, h->k, view, keys, h->kv_heads, h->k, view, mica_dtype_name(v), keys, h->kv_heads,
        h->v, tokens, keys, keys, mask, tokens, count, h->v, sinks, slopes);
    line->params.attention.softcap = s->softcap;
    line->params.attention.bidirectional = 1;
}

/* Every size of head over few and many keys, for one query and for several; what is added to scores takes turns. */
static void attention(conform_lines *lines)
{
    static const heads sizes[] = {{40, 40, 4, 1},   {64, 64, 4, 4},    {72, 72, 4, 1},   {80, 80, 4, 4},
                                  {96, 96, 4, 1},   {128, 128, 4, 12}, {192, 128, 4, 8}, {192, 192, 4, 16},
                                  {256, 256, 4, 4}, {320, 256, 1, 32}, {512, 512, 4, 1}, {576, 512, 1, 20}};
    static const unsigned tokens[] = {1, 3, 32, 75}, keys[] = {113, 512, 1024};
    unsigned turn = 0;

    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t t = 0; t < COUNT(tokens); t++)
            for (size_t k = 0; k < COUNT(keys); k++, turn++) {
                heads h = sizes[i];
                const bool mask = turn % 3 != 0;
                const seen s = {mask, turn / 2 % 2 != 0, mask && turn % 4 == 1, turn % 5 == 0,
                                h.k == 128 && turn % 2 != 0 ? 10.0f : 0};

                if (tokens[t] > 3 && keys[k] == 1024)
                    continue;
                if (tokens[t] > 3) {
                    h.kv_heads = 1;
                    h.times = turn % 2 == 0 ? 1 : 4;
                }
                add_attention(lines, MICA_DTYPE_F16, MICA_DTYPE_F16, &h, tokens[t], keys[k], &s);
            }
}

static void caches(conform_lines *lines)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32,  MICA_DTYPE_BF16, MICA_DTYPE_Q8_0, MICA_DTYPE_Q5_1,
                                       MICA_DTYPE_Q5_0, MICA_DTYPE_Q4_1, MICA_DTYPE_Q4_0, MICA_DTYPE_IQ4_NL};
    static const unsigned tokens[] = {1, 3, 32};
    unsigned turn = 0;

    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t n = 0; n < COUNT(tokens); n++)
            for (unsigned size = 64; size <= 96; size += 32, turn++) {
                const heads h = {size, size, 2, turn % 2 == 0 ? 1 : 4};
                const seen s = {turn % 2 == 0, turn % 3 == 0, turn % 4 == 0, turn % 3 == 1, 0};

                add_attention(lines, types[t], types[t], &h, tokens[n], n == 1 ? 512 : 113, &s);
            }
}

/* Keys of one type and values of another; long caches. */
static void mixed_caches(conform_lines *lines)
{
    static const seen masked = {.mask = true}, plain = {.mask = false}, all = {true, true, true, false, 30},
                      views = {.mask = true, .views = true};
    static const heads small = {64, 64, 4, 1}, middle = {128, 128, 4, 1}, large = {256, 256, 2, 16},
                       grouped = {256, 256, 2, 4};

    add_attention(lines, MICA_DTYPE_Q8_0, MICA_DTYPE_Q4_0, &small, 2, 128, &masked);
    add_attention(lines, MICA_DTYPE_Q4_0, MICA_DTYPE_F16, &small, 2, 128, &masked);
    add_attention(lines, MICA_DTYPE_Q4_0, MICA_DTYPE_Q8_0, &small, 2, 96, &masked);
    add_attention(lines, MICA_DTYPE_F16, MICA_DTYPE_F32, &small, 2, 96, &masked);
    add_attention(lines, MICA_DTYPE_F16, MICA_DTYPE_Q4_0, &middle, 1, 256, &plain);
    add_attention(lines, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, &large, 1, 113, &masked);
    add_attention(lines, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, &large, 1, 1024, &views);
    add_attention(lines, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, &large, 1, 1025, &all);
    add_attention(lines, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, &grouped, 64, 257, &views);
    add_attention(lines, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, &grouped, 1, 16384, &masked);
    add_attention(lines, MICA_DTYPE_F16, MICA_DTYPE_F16, &middle, 1, 16384, &masked);
    add_attention(lines, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, &small, 75, 512, &masked);
}

/* ---- routing ---- */

static void routing(conform_lines *lines)
{
    static const unsigned sizes[][3] = {{8, 22, 4},   {31, 22, 8},   {32, 22, 8},   {40, 22, 8},
                                        {71, 22, 8},  {128, 1, 128}, {129, 1, 128}, {160, 4, 160},
                                        {256, 22, 6}, {288, 22, 8}};

    for (size_t i = 0; i < COUNT(sizes); i++)
        for (unsigned bits = 0; bits < 16; bits++) {
            const unsigned e = sizes[i][0], t = sizes[i][1], k = sizes[i][2];
            char bias[40] = "-";

            if ((bits & 8) != 0)
                snprintf(bias, sizeof bias, "bias f32 %u =0.25", e);
            conform_line_add(lines, "route", NONE,
                             "logits f32 %ux%u d, %s, -, ids i32 %ux%u ~, weights f32 %ux%u >", t, e, bias, t,
                             k, t, k)
                ->params.route = (mica_route_params){.softmax_first = bits & 1,
                                                     .scoring = (bits & 1) != 0 ? 0 : bits >> 1 & 1,
                                                     .normalise = bits >> 2 & 1,
                                                     .scale = (bits & 2) != 0 ? 2 : 0};
        }
}

/* ---- states ---- */

static void conv_with_state(conform_lines *lines)
{
    static const unsigned widths[] = {3, 4, 9}, channels[] = {1024, 1536, 2048},
                          tokens[][2] = {{1, 1}, {5, 1}, {1, 4}, {64, 1}, {64, 4}};
    unsigned turn = 0;

    for (size_t w = 0; w < COUNT(widths); w++)
        for (size_t c = 0; c < COUNT(channels); c++)
            for (size_t t = 0; t < COUNT(tokens); t++, turn++) {
                const unsigned k = widths[w], n = channels[c], all = tokens[t][0] * tokens[t][1];
                char bias[40] = "-";

                if (turn % 2 == 0)
                    snprintf(bias, sizeof bias, "bias f32 %u", n);
                conform_line_add(lines, "ssm_conv", NONE,
                                 "x f32 %ux%u, weight f32 %ux%u, %s, state f32 %ux%ux%u, -, -, -, y f32 "
                                 "%ux%u >, next_state f32 %ux%ux%u ~",
                                 all, n, n, k, bias, tokens[t][1], n, k - 1, all, n, tokens[t][1], n, k - 1)
                    ->params.ssm_conv.activation = turn % 3 != 0 ? MICA_SSM_SILU : MICA_SSM_NONE;
            }
}

static void add_delta(conform_lines *lines, const char *view, unsigned sequences, unsigned tokens,
                      const unsigned size[4], const mica_delta_params *params)
{
    const unsigned all = sequences * tokens, groups = size[0], values = size[1], d = size[2], v = size[3];

    conform_line_add(lines, "delta_net", NONE,
                     "q%s f32 %ux%ux%u, k%s f32 %ux%ux%u, v%s f32 %ux%ux%u, g f32 %ux%u n, beta f32 %ux%u u, "
                     "-, state f32 %ux%ux%ux%u, -, -, -, y f32 %ux%ux%u >, next_state f32 %ux%ux%ux%u ~",
                     view, all, groups, d, view, all, groups, d, view, all, values, v, all, values, all,
                     values, sequences, values, d, v, all, values, v, sequences, values, d, v)
        ->params.delta = *params;
}

/* Key heads, value heads, sizes; tokens, sequences. Long ones token by token and in chunks. */
static void delta_rule(conform_lines *lines)
{
    static const unsigned cases[][6] = {
        {32, 32, 128, 128, 1, 1}, {32, 32, 16, 16, 1, 1}, {16, 16, 64, 64, 1, 2}, {4, 4, 64, 64, 4, 1},
        {4, 4, 64, 64, 4, 2},     {8, 16, 32, 32, 4, 2},  {4, 4, 64, 64, 64, 1},  {4, 4, 64, 64, 127, 1},
        {4, 4, 64, 64, 256, 1},   {4, 4, 64, 64, 65, 1},  {4, 4, 64, 64, 100, 1}, {4, 4, 64, 64, 200, 1},
        {4, 4, 64, 64, 127, 2},   {4, 4, 16, 16, 2, 1},   {8, 8, 128, 128, 4, 1}};

    for (size_t i = 0; i < COUNT(cases); i++)
        for (uint32_t form = 0; form < 3; form++) {
            const mica_delta_params params = {.normalise = 1, .eps = 1e-6f, .form = form};

            add_delta(lines, i % 3 == 1 ? "/" : "", cases[i][5], cases[i][4], cases[i], &params);
        }
}

/* Selective scans of Mamba 1, and of Mamba 2, which is the delta rule without its correction. */
static void scans(conform_lines *lines)
{
    static const unsigned cases[][6] = {{2, 16, 128, 64, 32, 4},  {2, 8, 256, 64, 32, 4},
                                        {4, 4, 128, 128, 16, 2},  {1, 8, 128, 80, 256, 1},
                                        {8, 16, 128, 64, 300, 2}, {2, 16, 128, 64, 4, 2}};

    conform_line_add(lines, "selective_scan", NONE,
                     "x f32 128x1024, dt f32 128x1024, a f32 1024x16 n, b f32 128x1x16, c f32 128x1x16, -, "
                     "-, -, state f32 4x1024x16, -, -, -, y f32 128x1024 >, "
                     "next_state f32 4x1024x16 ~")
        ->params.selective.softplus = 1;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (uint32_t form = 0; form < 3; form++) {
            const mica_delta_params params = {.rule = MICA_DELTA_ADD, .scale = 1, .form = form};

            if (form == 1 && i == 4)
                continue;
            add_delta(lines, "", cases[i][5], cases[i][4], cases[i], &params);
        }
}

const conform_family conform_attention_shapes[] = {{"attention", attention},
                                                   {"caches", caches},
                                                   {"mixed caches", mixed_caches},
                                                   {"routing", routing},
                                                   {"conv with state", conv_with_state},
                                                   {"delta rule", delta_rule},
                                                   {"scans", scans},
                                                   {NULL, NULL}};
