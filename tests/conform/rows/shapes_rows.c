/*
 * shapes_rows.c - shapes of elementwise work, norms, softmax, ropes, orders, sums and recurrences: those of the list that llama.cpp's
 * test-backend-ops evaluates, slowest dimension first.
 */
#include <stdio.h>

#include "conform/conform_shapes.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define NONE MICA_DTYPE_NONE

static const char *const halves[] = {"f32", "f16"};

/* ---- elementwise ---- */

static void unary(conform_lines *lines)
{
    static const char *const shapes[] = {"2x2x2x128", "13x11x7x5"};
    static const mica_scalar scalars[] = {
        MICA_SCALAR_ABS,          MICA_SCALAR_SIGN,       MICA_SCALAR_NEG,   MICA_SCALAR_TANH,
        MICA_SCALAR_RELU,         MICA_SCALAR_SIGMOID,    MICA_SCALAR_GELU,  MICA_SCALAR_GELU_ERF,
        MICA_SCALAR_SILU,         MICA_SCALAR_QUICK_GELU, MICA_SCALAR_EXP,   MICA_SCALAR_EXPM1,
        MICA_SCALAR_SOFTPLUS,     MICA_SCALAR_SQUARE,     MICA_SCALAR_SIN,   MICA_SCALAR_HARD_SWISH,
        MICA_SCALAR_HARD_SIGMOID, MICA_SCALAR_COS,        MICA_SCALAR_FLOOR, MICA_SCALAR_CEIL,
        MICA_SCALAR_ROUND,        MICA_SCALAR_TRUNC};
    char a[64];

    for (size_t s = 0; s < COUNT(scalars); s++)
        for (size_t h = 0; h < 2; h++)
            for (size_t v = 0; v < 4; v++) {
                snprintf(a, sizeof a, "%s %s %s", v < 2 ? "" : "*", halves[h], shapes[v % 2]);
                conform_line_scalar(lines, scalars[s], false, halves[h], a, NULL, shapes[v % 2]);
            }
}

/* The second operand repeats, as often as the list says in each dimension. */
static void binary(conform_lines *lines)
{
    static const mica_scalar scalars[] = {MICA_SCALAR_ADD, MICA_SCALAR_SUB, MICA_SCALAR_MUL, MICA_SCALAR_DIV};
    static const char *const pairs[][2] = {
        {"1x8x1x1", "1x8x1x1"},         {"1x1x1x32", "1x1x1x1"},        {"320x320x1x1", "320x320x1x1"},
        {"1x1x5x10", "1x1x5x10"},       {"1x4x5x10", "1x4x5x10"},       {"3x4x5x10", "3x4x5x10"},
        {"3x4x5x20", "3x4x5x1"},        {"3x4x10x10", "3x4x1x10"},      {"3x8x5x10", "3x1x5x10"},
        {"6x4x5x10", "1x4x5x10"},       {"6x8x5x10", "1x1x5x10"},       {"6x8x10x10", "1x1x1x10"},
        {"6x8x10x20", "1x1x1x1"},       {"1x16x16x1280", "1x1x1x1280"}, {"1x1280x16x16", "1x1280x1x1"},
        {"1x1x256x5120", "1x1x1x5120"}, {"1x640x32x32", "1x640x1x1"},   {"1x1x65536x64", "1x1x1x64"}};
    char a[64], b[64];

    for (size_t s = 0; s < COUNT(scalars); s++)
        for (size_t p = 0; p < COUNT(pairs); p++)
            for (size_t v = 0; v < (p < 13 ? 4 : 1); v++) {
                if (p >= 13 && s % 2 != p % 2)
                    continue;
                snprintf(a, sizeof a, "%s %s %s", v < 2 ? "" : "*", halves[v % 2], pairs[p][0]);
                snprintf(b, sizeof b, "%s %s %s", v < 2 ? "" : "*", halves[v % 2], pairs[p][1]);
                conform_line_scalar(lines, scalars[s], false, halves[v % 2], a, b, pairs[p][0]);
            }
}

/* Both halves of one buffer, or two. */
static void gated(conform_lines *lines)
{
    static const mica_scalar acts[] = {MICA_SCALAR_RELU,     MICA_SCALAR_GELU,       MICA_SCALAR_SILU,
                                       MICA_SCALAR_GELU_ERF, MICA_SCALAR_QUICK_GELU, MICA_SCALAR_SIGMOID,
                                       MICA_SCALAR_SOFTPLUS};
    static const char *const shapes[] = {"2x2x2x64", "13x11x7x5"};
    char a[64];

    for (size_t s = 0; s < COUNT(acts); s++)
        for (size_t v = 0; v < 8; v++) {
            snprintf(a, sizeof a, "%s %s %s", v < 4 ? "" : "/", halves[v % 2], shapes[v / 2 % 2]);
            conform_line_scalar(lines, acts[s], true, halves[v % 2], a, a, shapes[v / 2 % 2]);
        }
}

/* ---- copies ---- */

static void copies(conform_lines *lines)
{
    static const char *const types[] = {"f32", "f16", "bf16", "i32", "i16"};
    static const char *const shapes[] = {"4x3x2x256",     "1x5x10x10",    "1x10x10x10", "1x7x5x33",
                                         "1x65x3x64",     "1x65x33x1000", "7x5x3x2",    "1x17x8x1",
                                         "1x1x2097121x2", "3360x1x1x1",   "32x7x5x3",   "3x2x1x10"};
    static const mica_dtype blocks[] = {MICA_DTYPE_Q4_0, MICA_DTYPE_Q4_1, MICA_DTYPE_Q8_0, MICA_DTYPE_MXFP4,
                                        MICA_DTYPE_IQ4_NL};

    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t t = 0; t < COUNT(types); t++) {
            conform_line *line = NULL;

            if (s == 8 && t > 0)
                continue;
            line = conform_line_add(lines, "copy", NONE, "x* %s %s, y %s %s >", types[t], shapes[s], types[t],
                                    shapes[s]);
            line = conform_line_add(lines, "copy", NONE, "x %s %s, y* %s %s >", types[t], shapes[s],
                                    t < 3 ? types[(t + s) % 3] : types[t], shapes[s]);
            (void)line;
        }
    for (size_t t = 0; t < COUNT(blocks); t++)
        for (unsigned k = 1; k < 4; k++)
            conform_line_add(lines, "copy", blocks[t], "x T 4x3x2x%u, y T 4x3x2x%u >", 32 * k, 32 * k);
}

typedef struct pads {
    const char *x, *y;
    int low[4], high[4]; /* slowest first */
    uint32_t mode;
} pads;

/* Zeros and circles at the ends, mirrored rows, rolls, repeats of the whole. */
static void padding(conform_lines *lines)
{
    static const pads cases[] = {
        {"1x2x17x33", "1x2x20x37", {0}, {0, 0, 3, 4}, MICA_PAD_WRAP},
        {"1x3x512x512", "3x5x514x514", {1, 1, 1, 1}, {1, 1, 1, 1}, MICA_PAD_CONSTANT},
        {"1x1x512x512", "1x1x513x513", {0}, {0, 0, 1, 1}, MICA_PAD_CONSTANT},
        {"1x1x512x512", "1x1x513x513", {0}, {0, 0, 1, 1}, MICA_PAD_WRAP},
        {"44x33x22x11", "59x44x29x14", {7, 5, 3, 1}, {8, 6, 4, 2}, MICA_PAD_CONSTANT},
        {"44x33x22x11", "59x44x29x14", {7, 5, 3, 1}, {8, 6, 4, 2}, MICA_PAD_WRAP},
        {"1x1x1x1024", "1x1x1x1025", {0}, {0, 0, 0, 1}, MICA_PAD_CONSTANT},
        {"1x1x16x1024", "1x1x17x1024", {0}, {0, 0, 1, 0}, MICA_PAD_CONSTANT},
        {"1x1x8x1023", "1x1x8x1024", {0}, {0, 0, 0, 1}, MICA_PAD_CONSTANT},
        {"1x1x8x1025", "1x1x8x1026", {0}, {0, 0, 0, 1}, MICA_PAD_CONSTANT},
        {"1x1x1x2049", "1x1x1x2050", {0}, {0, 0, 0, 1}, MICA_PAD_CONSTANT},
        {"1x1x1x100", "1x1x1x200", {0}, {0, 0, 0, 100}, MICA_PAD_CONSTANT},
        {"1x1x1x100", "1x1x101x100", {0}, {0, 0, 100, 0}, MICA_PAD_CONSTANT},
        {"1x1x100x100", "1x1x150x150", {0}, {0, 0, 50, 50}, MICA_PAD_CONSTANT},
        {"1x4x38x300", "1x4x38x315", {0, 0, 0, 7}, {0, 0, 0, 8}, MICA_PAD_REFLECT},
        {"1x4x5x10", "1x4x5x10", {0, 1, 0, 3}, {0, -1, 0, -3}, MICA_PAD_WRAP},
        {"3x4x5x10", "3x4x5x20", {0}, {0, 0, 0, 10}, MICA_PAD_WRAP},
        {"3x4x5x10", "3x4x10x10", {0}, {0, 0, 5, 0}, MICA_PAD_WRAP},
        {"3x4x5x10", "3x8x5x10", {0}, {0, 4, 0, 0}, MICA_PAD_WRAP},
        {"1x4x5x10", "2x4x5x10", {0}, {1, 0, 0, 0}, MICA_PAD_WRAP}};
    static const char *const types[] = {"f32", "f16", "bf16", "i32", "i16"};

    for (size_t p = 0; p < COUNT(cases); p++)
        for (size_t t = 0; t < (p < 15 ? 2 : COUNT(types)); t++) {
            conform_line *line =
                conform_line_add(lines, "pad", NONE, "x%s %s %s, y %s %s >", t % 2 == 0 ? "" : "*",
                                 types[p < 15 ? 0 : t], cases[p].x, types[p < 15 ? 0 : t], cases[p].y);

            line->params.pad.mode = cases[p].mode;
            for (uint32_t d = 0; d < 4; d++) {
                line->params.pad.low[d] = cases[p].low[d];
                line->params.pad.high[d] = cases[p].high[d];
            }
        }
}

/* ---- norms, softmax ---- */

static void norms(conform_lines *lines)
{
    static const float eps[] = {0, 1e-6f, 1e-4f, 1e-1f, 10};
    static const unsigned widths[] = {64, 1025, 33, 132, 260}, long_rows[] = {1, 511, 8192, 16896};

    for (size_t e = 0; e < COUNT(eps); e++)
        for (size_t w = 0; w < COUNT(widths); w++)
            for (unsigned view = 0; view < 2; view++) {
                const char *at = view != 0 ? "/" : "";
                const unsigned n = widths[w];

                conform_line_add(lines, "rms_norm", NONE, "x%s f32 3x4x5x%u, weight f32 %u, y f32 3x4x5x%u >",
                                 at, n, n, n)
                    ->params.real = eps[e];
                conform_line_add(lines, "layer_norm", NONE, "x%s f32 3x4x5x%u, -, -, y f32 3x4x5x%u >", at, n,
                                 n)
                    ->params.real = eps[e];
                conform_line *line = conform_line_add(
                    lines, "normalize", NONE, "x%s f32 3x4x5x%u, -, -, y f32 3x4x5x%u >, -, -", at, n, n);
                line->params.normalize = (mica_normalize_params){.kind = MICA_NORMALIZE_L2, .eps = eps[e]};
                line = conform_line_add(
                    lines, "normalize_backward", NONE,
                    "x f32 3x4x5x%u, dy f32 3x4x5x%u, weight f32 %u, dx f32 3x4x5x%u >, -, -", n, n, n, n);
                line->params.normalize = (mica_normalize_params){.kind = MICA_NORMALIZE_RMS, .eps = eps[e]};
            }
    for (size_t w = 0; w < COUNT(long_rows); w++)
        conform_line_add(lines, "rms_norm", NONE, "x f32 1x%u, weight f32 %u, y f32 1x%u >", long_rows[w],
                         long_rows[w], long_rows[w])
            ->params.real = 1e-6f;
    conform_line *line = conform_line_add(
        lines, "normalize", NONE,
        "x f32 1x32x10x64x64, weight f32 32x10x1x1, bias f32 32x10x1x1, y f32 1x32x10x64x64 >, -, -");
    line->params.normalize = (mica_normalize_params){.dims = 3, .eps = 1e-6f}; /* 32 groups of 320 channels */
    line = conform_line_add(lines, "normalize", NONE,
                            "x f32 2x32x40x9x9, weight f32 32x40x1x1, -, y f32 2x32x40x9x9 >, -, -");
    line->params.normalize = (mica_normalize_params){.dims = 3, .eps = 1e-6f};
}

static void softmax(conform_lines *lines)
{
    static const unsigned sizes[] = {16, 15, 1024, 1023};
    static const float scales[] = {1, 0.1f};

    for (size_t a = 0; a < COUNT(sizes); a++)
        for (size_t b = 0; b < COUNT(sizes); b++)
            for (size_t s = 0; s < 2; s++) {
                const unsigned n = sizes[a], m = sizes[b];

                conform_line_add(lines, "softmax", NONE, "x f32 %ux%u, y f32 %ux%u >", m, n, m, n)
                    ->params.real = scales[s];
                conform_line_add(lines, "masked_softmax", NONE,
                                 "x f32 1x1x%ux%u, mask %s %ux%u m, y f32 1x1x%ux%u >", m, n,
                                 halves[(a + s) % 2], m, n, m, n)
                    ->params.softmax.scale = scales[s];
                conform_line_add(lines, "softmax_backward", NONE,
                                 "y f32 %ux%u u, dy f32 %ux%u, dx f32 %ux%u >", m, n, m, n, m, n)
                    ->params.softmax.scale = scales[s];
            }
    static const char *const lone[][2] = {{"3x1x16x16", "1x1x16x16"},
                                          {"3x2x15x15", "1x1x15x15"},
                                          {"1x32x2x16", "1x1x2x16"},
                                          {"1x32x2x32", "1x32x2x32"},
                                          {"1x3x2x200001", "1x1x2x200001"}};
    for (size_t i = 0; i < COUNT(lone); i++)
        for (size_t h = 0; h < 2; h++)
            conform_line_add(lines, "masked_softmax", NONE, "x f32 %s, mask %s %s m, y f32 %s >", lone[i][0],
                             halves[h], lone[i][1], lone[i][0])
                ->params.softmax.scale = 0.1f;
    conform_line_add(lines, "softmax", NONE, "x f32 4x200000, y f32 4x200000 >")->params.real = 1;
    conform_line_add(lines, "softmax", NONE, "x f32 3x643251, y f32 3x643251 >")->params.real = 1;
}

/* ---- ropes ---- */

typedef struct rope_shape {
    unsigned dim, heads, tokens, rotated;
    uint32_t mode, axes, count, sections[4];
} rope_shape;

static void ropes(conform_lines *lines)
{
    enum { N = MICA_ROPE_STANDARD, X = MICA_ROPE_NEOX };
    static const rope_shape shapes[] = {{128, 32, 2, 128, N, 0, 0, {0}},
                                        {128, 40, 2, 128, N, 0, 0, {0}},
                                        {128, 52, 2, 128, N, 0, 0, {0}},
                                        {128, 64, 2, 128, N, 0, 0, {0}},
                                        {16, 16, 8192, 16, N, 0, 0, {0}},
                                        {64, 1, 2, 64, X, 0, 0, {0}},
                                        {64, 71, 2, 64, X, 0, 0, {0}},
                                        {64, 8, 2, 64, X, 0, 0, {0}},
                                        {80, 32, 2, 20, N, 0, 0, {0}},
                                        {80, 32, 4, 32, N, 0, 0, {0}},
                                        {80, 32, 2, 20, X, 0, 0, {0}},
                                        {80, 32, 4, 32, X, 0, 0, {0}},
                                        {64, 128, 2, 64, X, 0, 0, {0}},
                                        {36, 16, 2457, 36, N, 0, 0, {0}},
                                        {36, 16, 2457, 36, X, 0, 0, {0}},
                                        {128, 12, 2, 128, X, 1, 4, {16, 24, 24, 0}},
                                        {128, 28, 2, 128, X, 1, 3, {16, 24, 24, 0}},
                                        {128, 12, 2, 20, X, 1, 4, {2, 4, 4, 0}},
                                        {128, 28, 2, 32, X, 1, 4, {4, 6, 6, 0}},
                                        {128, 12, 2, 128, X, 2, 3, {24, 20, 20, 0}},
                                        {128, 28, 2, 128, X, 2, 4, {22, 21, 21, 0}},
                                        {128, 12, 2, 20, X, 2, 3, {4, 3, 3, 0}},
                                        {80, 16, 2, 80, X, 3, 2, {20, 20, 0, 0}},
                                        {16, 16, 8192, 16, X, 2, 3, {3, 3, 2, 0}}};
    static const float scales[][2] = {{0, 0}, {0.7020007f, 1.4245f}};

    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t v = 0; v < 8; v++) {
            const rope_shape *r = &shapes[s];
            char positions[48], factors[48] = "-";

            if (r->tokens > 100 && v != 0 && v != 7)
                continue;
            snprintf(positions, sizeof positions, r->count != 0 ? "%ux%u" : "%u",
                     r->count != 0 ? r->count : r->tokens, r->tokens);
            if (v % 2 != 0)
                snprintf(factors, sizeof factors, "factors f32 %u =1.5", r->rotated / 2);
            conform_line *line = conform_line_add(
                lines, "rope", NONE, "x%s %s %ux%ux%u, positions i32 %s <512, %s, y %s %ux%ux%u >",
                v < 4 ? "" : "/", halves[v / 2 % 2], r->tokens, r->heads, r->dim, positions, factors,
                halves[v / 2 % 2], r->tokens, r->heads, r->dim);
            line->params.rope = (mica_rope_params){
                .mode = (mica_rope_mode)r->mode,
                .rotary_dims = r->rotated,
                .theta = 10000,
                .position_scale = scales[v % 2][0],
                .attention_scale = scales[v % 2][1],
                .axes = r->axes,
                .sections = {r->sections[0], r->sections[1], r->sections[2], r->sections[3]}};
        }
}

/* ---- orders, sums ---- */

static void add_sort(conform_lines *lines, uint32_t descending, const char *rows, unsigned n, unsigned k,
                     bool values)
{
    conform_line *line =
        values ? conform_line_add(lines, "sort", NONE, "x f32 %sx%u, values f32 %sx%u >, ids i32 %sx%u >",
                                  rows, n, rows, k, rows, k)
               : conform_line_add(lines, "sort", NONE, "x f32 %sx%u, -, ids i32 %sx%u >", rows, n, rows, k);

    line->params.sort.descending = descending;
}

static void orders(conform_lines *lines)
{
    static const char *const rows[] = {"10x10x10", "10x10x10", "3x1x2", "3x1x2", "3x1x2",
                                       "1x1x256",  "3x1x2",    "3x1x2", "3x1x2", "1x8192x8"};
    static const unsigned widths[] = {16, 60, 1023, 1024, 1025, 1025, 2047, 2048, 2049, 2};
    static const unsigned picks[] = {1, 2, 3, 7, 15, 100, 500, 1023, 9999};

    for (uint32_t d = 0; d < 2; d++) {
        for (unsigned n = 4; n <= 65536; n *= 2) {
            add_sort(lines, d, "1", n - 1, n - 1, false);
            add_sort(lines, d, "1", n, n, false);
        }
        for (size_t w = 0; w < COUNT(widths); w++)
            add_sort(lines, d, rows[w], widths[w], widths[w], d != 0);
    }
    for (unsigned n = 1; n < 5; n++)
        for (unsigned k = 1; k <= n; k++)
            add_sort(lines, 1, "3x1x2", n, k, true);
    for (unsigned power = 0; power < 18; power++)
        for (size_t p = 0; p < COUNT(picks); p++)
            if (picks[p] <= 1u << power && (power % 3 == p % 3 || power > 15)) {
                add_sort(lines, 1, "1", 1u << power, picks[p], false);
                add_sort(lines, 1, "1x2", (1u << power) + 11, picks[p], true);
            }
    for (size_t w = 0; w < 9; w++)
        add_sort(lines, 1, rows[w], widths[w], 7, false);
}

static void maxima(conform_lines *lines)
{
    static const unsigned rows[] = {1, 513, 10, 10, 12, 10, 3},
                          widths[] = {32, 32, 100, 1024, 1024, 2000, 5438};

    for (size_t i = 0; i < COUNT(rows); i++)
        conform_line_add(lines, "argmax", NONE, "x f32 %ux%u, ids i32 %u >", rows[i], widths[i], rows[i]);
}

static void sums(conform_lines *lines)
{
    static const unsigned widths[] = {10, 127, 128, 255, 256, 511, 512, 1023, 1024, 2047, 2048};
    static const unsigned rows[][2] = {{1, 33},   {256, 33},  {1, 32769}, {1, 32},
                                       {256, 32}, {1, 32768}, {1024, 33}};

    for (size_t w = 0; w < COUNT(widths); w++)
        conform_line_add(lines, "scan", NONE, "x f32 3x4x5x%u, y f32 3x4x5x%u >", widths[w], widths[w]);
    conform_line_add(lines, "scan", NONE, "x f32 4x4x128x128, y f32 4x4x128x128 >");
    conform_line_add(lines, "scan", NONE, "x f32 1x242004, y f32 1x242004 >");
    conform_line_add(lines, "scan", NONE, "x f32 1x375960, y f32 1x375960 >");
    conform_line_add(lines, "scan", NONE, "x f32 4x20481, y f32 4x20481 >");
    for (size_t i = 0; i < COUNT(rows); i++)
        for (uint32_t kind = MICA_REDUCE_SUM; kind <= MICA_REDUCE_MEAN; kind++)
            for (uint32_t whole = 0; whole < 2; whole++) {
                char y[32] = "1x1";

                if (whole == 0)
                    snprintf(y, sizeof y, "%ux1", rows[i][0]);
                conform_line_add(lines, "reduce", NONE, "x f32 %ux%u, y f32 %s >", rows[i][0], rows[i][1], y)
                    ->params.reduce =
                    (mica_reduce_params){.kind = kind, .axes = whole != 0 ? 0 : 1, .keep_dims = 1};
            }
    for (unsigned n = 11; n <= 16; n += 5)
        for (uint32_t axes = 0; axes < 2; axes++)
            conform_line_add(lines, "reduce", NONE, "x* f32 3x6x5x%u, y f32 %s >", n,
                             axes != 0 ? "3x6x5x1" : "1x1x1x1")
                ->params.reduce = (mica_reduce_params){.axes = axes, .keep_dims = 1};
}

/* ---- losses, triangles, rotations ---- */

static void others(conform_lines *lines)
{
    static const unsigned triangles[][4] = {{1, 1, 11, 5},  {4, 2, 17, 9},   {1, 7, 30, 8},   {2, 5, 42, 10},
                                            {2, 2, 64, 64}, {3, 5, 79, 417}, {2, 4, 128, 32}, {8, 2, 80, 79},
                                            {8, 8, 80, 81}, {4, 4, 100, 41}};
    static const char *const turned[][2] = {{"1", "128"},   {"1", "64"},   {"1", "256"},
                                            {"1", "512"},   {"32", "128"}, {"3x2x4", "128"},
                                            {"512", "256"}, {"1", "32"},   {"1", "1024"}};
    static const char *const classes[] = {"3x4x5x10", "1x1x1x30000"};

    for (size_t i = 0; i < COUNT(triangles); i++) {
        const unsigned *t = triangles[i];

        conform_line_add(lines, "triangular_solve", NONE,
                         "a f32 %ux%ux%ux%u t, b f32 %ux%ux%ux%u, x f32 %ux%ux%ux%u >", t[0], t[1], t[2],
                         t[2], t[0], t[1], t[2], t[3], t[0], t[1], t[2], t[3]);
    }
    for (size_t i = 0; i < COUNT(turned); i++)
        conform_line_add(lines, "hadamard", NONE, "x f32 %sx%s, -, y f32 %sx%s >", turned[i][0], turned[i][1],
                         turned[i][0], turned[i][1]);
    for (size_t i = 0; i < COUNT(classes); i++) {
        const char *rows = i == 0 ? "3x4x5" : "1x1x1";

        conform_line_add(lines, "cross_entropy", NONE,
                         "logits f32 %s, -, targets f32 %s u, -, loss f32 %s >, -", classes[i], classes[i],
                         rows);
        conform_line_add(
            lines, "cross_entropy_backward", NONE,
            "logits f32 %s, -, targets f32 %s u, -, lse f32 %s =12, dloss f32 %s, dlogits f32 %s >",
            classes[i], classes[i], rows, rows, classes[i]);
    }
}

const conform_family conform_row_shapes[] = {
    {"unary", unary}, {"binary", binary},   {"gated", gated}, {"copies", copies}, {"padding", padding},
    {"norms", norms}, {"softmax", softmax}, {"ropes", ropes}, {"orders", orders}, {"maxima", maxima},
    {"sums", sums},   {"others", others},   {NULL, NULL}};
