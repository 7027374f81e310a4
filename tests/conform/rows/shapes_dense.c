/*
 * shapes_dense.c - the shapes on which other implementations found their mistakes: products, routed products, rows by index, caches. Sizes
 * and types are those of the list that llama.cpp's test-backend-ops evaluates, slowest dimension first.
 */
#include <stdio.h>

#include "conform/conform_shapes.h"
#include "oracle/oracle_number.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const mica_dtype all[] = {MICA_DTYPE_F32,     MICA_DTYPE_F16,     MICA_DTYPE_BF16,   MICA_DTYPE_Q4_0,
                                 MICA_DTYPE_Q4_1,    MICA_DTYPE_Q5_0,    MICA_DTYPE_Q5_1,   MICA_DTYPE_Q8_0,
                                 MICA_DTYPE_MXFP4,   MICA_DTYPE_NVFP4,   MICA_DTYPE_Q2_K,   MICA_DTYPE_Q3_K,
                                 MICA_DTYPE_Q4_K,    MICA_DTYPE_Q5_K,    MICA_DTYPE_Q6_K,   MICA_DTYPE_TQ1_0,
                                 MICA_DTYPE_TQ2_0,   MICA_DTYPE_IQ2_XXS, MICA_DTYPE_IQ2_XS, MICA_DTYPE_IQ2_S,
                                 MICA_DTYPE_IQ3_XXS, MICA_DTYPE_IQ3_S,   MICA_DTYPE_IQ1_S,  MICA_DTYPE_IQ1_M,
                                 MICA_DTYPE_IQ4_NL,  MICA_DTYPE_IQ4_XS};
static const mica_dtype base[] = {MICA_DTYPE_F32,   MICA_DTYPE_F16,   MICA_DTYPE_Q8_0,
                                  MICA_DTYPE_Q4_0,  MICA_DTYPE_Q4_1,  MICA_DTYPE_Q4_K,
                                  MICA_DTYPE_MXFP4, MICA_DTYPE_NVFP4, MICA_DTYPE_IQ2_XXS};

/* y [n, m] = x [n, k] . weight [m, k]^T */
static conform_line *add_matmul(conform_lines *lines, mica_dtype weight, const char *x, unsigned m,
                                unsigned n, unsigned k)
{
    return conform_line_add(lines, "matmul f32", weight, "x %s %ux%u, weight W %ux%u, y f32 %ux%u >", x, n, k,
                            m, k, n, m);
}

static void matmul(conform_lines *lines)
{
    static const unsigned tall[] = {1, 7, 8, 9, 16, 128, 512};
    static const unsigned odd[] = {65, 80, 588};

    for (size_t t = 0; t < COUNT(all); t++) {
        for (unsigned n = 1; n < 10; n++)
            add_matmul(lines, all[t], "f32", 16, n, 256);
        add_matmul(lines, all[t], "f32", 1, 64, 256);
        if (oracle_block_values(all[t]) != 256)
            add_matmul(lines, all[t], "f32", 16, 1, (unsigned)oracle_block_values(all[t]));
    }
    for (size_t i = 0; i < COUNT(tall); i++)
        add_matmul(lines, MICA_DTYPE_F32, "f32", 1, tall[i], 2048);
    for (size_t i = 0; i < COUNT(odd); i++) {
        add_matmul(lines, MICA_DTYPE_F16, "f16", 64, 32, odd[i]);
        add_matmul(lines, MICA_DTYPE_F32, "f32", 64, 32, odd[i]);
    }
    for (unsigned more = 0; more < 2; more++) {
        add_matmul(lines, MICA_DTYPE_F16, "f32", 1056 + more, 1, 128 + more);
        add_matmul(lines, MICA_DTYPE_BF16, "f32", 128 + more, 1, 1056 + more);
        add_matmul(lines, MICA_DTYPE_F32, "f32", 128 + more, 1, 1056 + more);
    }
    add_matmul(lines, MICA_DTYPE_F16, "f32", 1056, 1, 193);
    add_matmul(lines, MICA_DTYPE_F16, "f32", 1056, 1, 67);
    add_matmul(lines, MICA_DTYPE_Q4_0, "f32", 576, 512, 576);
    add_matmul(lines, MICA_DTYPE_Q4_0, "f32", 1, 2048, 8192);
    add_matmul(lines, MICA_DTYPE_MXFP4, "f32", 288, 32, 2880);
    add_matmul(lines, MICA_DTYPE_Q8_0, "f32", 6, 512, 5120);
}

/* Batches: one weight for each, or for some of them; rows of x that do not follow each other. */
static void matmul_batches(conform_lines *lines)
{
    static const unsigned rows[] = {1, 4, 8, 16}, batches[][2] = {{1, 2}, {3, 1}, {3, 2}, {6, 2}};

    for (size_t t = 0; t < COUNT(base); t++)
        for (size_t n = 0; n < COUNT(rows); n++)
            for (size_t b = 0; b < COUNT(batches); b++) {
                const unsigned weights = batches[b][0], times = batches[b][1];

                conform_line_add(
                    lines, "matmul f32", base[t], "x/ %s %ux%ux256, weight W %ux16x256, y/ f32 %ux%ux16 >",
                    b % 2 == 0 ? "f32" : "f16", weights * times, rows[n], weights, weights * times, rows[n]);
            }
    for (size_t t = 0; t < 2; t++)
        conform_line_add(lines, "matmul f32", base[t], "x f32 3x8x1024, weight W 3x16x1024, y f32 3x8x16 >");
    conform_line_add(lines, "matmul f32", MICA_DTYPE_F16,
                     "x f32 256x8x256, weight W 256x16x256, y f32 256x8x16 >");
    conform_line_add(lines, "matmul f32", MICA_DTYPE_F16,
                     "x f32 32x2x128, weight W 8x83x128, y f32 32x2x83 >");
    conform_line_add(lines, "matmul f32", MICA_DTYPE_F16,
                     "x f32 32x45x64, weight W 8x128x64, y f32 32x45x128 >");
    conform_line_add(lines, "matmul f32", MICA_DTYPE_F32,
                     "x f32 12x77x77, weight W 12x64x77, y f32 12x77x64 >");
}

/* Both operands dense: batches of two dimensions that repeat in either, transposed and permuted ones; outer products. */
static void product(conform_lines *lines)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    static const unsigned inner[] = {4, 256}, rows[] = {1, 4, 16};

    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t k = 0; k < COUNT(inner); k++)
            for (size_t n = 0; n < COUNT(rows); n++) {
                conform_line_add(lines, "product", MICA_DTYPE_NONE,
                                 "a* %s 2x1x3x1x16x%u, b* f32 2x2x3x2x%ux%u, -, -, -, y f32 2x2x3x2x16x%u >",
                                 types[t], inner[k], inner[k], rows[n], rows[n]);
                conform_line_add(lines, "product", MICA_DTYPE_NONE,
                                 "a* %s 3x2x16x%u, b* %s 3x2x%ux%u, -, -, -, y* f32 3x2x16x%u >", types[t],
                                 inner[k], types[t], inner[k], rows[n], rows[n]);
            }
    for (unsigned k = 1; k <= 16; k += 15)
        for (unsigned n = 1; n <= 16; n += 15)
            for (unsigned batch = 1; batch <= 3; batch += 2)
                conform_line_add(lines, "product", MICA_DTYPE_NONE,
                                 "a* f32 %ux1x256x%u, b* f16 %ux2x%ux%u, -, -, -, y f32 %ux2x256x%u >", batch,
                                 k, batch, k, n, batch, n);
    for (unsigned batch = 8; batch <= 32; batch *= 2)
        conform_line_add(lines, "product", MICA_DTYPE_NONE,
                         "a f32 %ux256x16, b f32 1x16x16, -, -, -, y f32 %ux256x16 >", batch, batch);
}

static void add_experts(conform_lines *lines, mica_dtype weight, unsigned experts, unsigned used, bool shared,
                        unsigned m, unsigned n, unsigned k)
{
    char x[48];

    snprintf(x, sizeof x, shared ? "%ux%u" : "%ux%ux%u", n, shared ? k : used, k);
    conform_line_add(lines, "experts f32", weight,
                     "x f32 %s, weight W %ux%ux%u, ids i32 %ux%u <%u, y f32 %ux%ux%u >", x, experts, m, k, n,
                     used, experts, n, used, m);
}

static void experts(conform_lines *lines)
{
    static const unsigned tokens[] = {1, 4, 5, 17, 32, 129}, used[] = {1, 2, 4};

    for (size_t t = 0; t < COUNT(all); t++) {
        add_experts(lines, all[t], 4, 2, false, 64, 16, 3 * (unsigned)oracle_block_values(all[t]));
        add_experts(lines, all[t], 4, 2, false, 512, 1, 256);
        add_experts(lines, all[t], 4, 2, false, 64, 32, 256);
    }
    for (size_t t = 0; t < COUNT(base); t++)
        for (size_t i = 0; i < COUNT(tokens); i++)
            add_experts(lines, base[t], i % 2 == 0 ? 4 : 8, used[i % 3], (i + t) % 2 != 0,
                        tokens[i] < 32 ? 512 : 64, tokens[i], 256);
    for (unsigned shared = 0; shared < 2; shared++) {
        add_experts(lines, MICA_DTYPE_F16, 16, 16, shared != 0, 32, 1024, 16);
        add_experts(lines, MICA_DTYPE_BF16, 16, 16, shared != 0, 50, 200, 64);
        add_experts(lines, MICA_DTYPE_F16, 2, 2, shared != 0, 32, 8192, 64);
    }
    add_experts(lines, MICA_DTYPE_F16, 1, 1, false, 8, 16, 1);
    add_experts(lines, MICA_DTYPE_MXFP4, 32, 2, false, 288, 32, 2880);
    add_experts(lines, MICA_DTYPE_Q4_0, 32, 2, false, 288, 32, 2880);
    add_experts(lines, MICA_DTYPE_Q4_K, 128, 8, false, 96, 4, 2048);
}

static void rows_by_id(conform_lines *lines)
{
    for (size_t t = 0; t < COUNT(all); t++)
        for (unsigned batch = 1; batch <= 7; batch += 6)
            conform_line_add(lines, "embedding f32", all[t], "table W %ux256, ids i32 %u <%u, y f32 %ux256 >",
                             5 * batch, 4 * batch, 5 * batch, 4 * batch);
    for (unsigned t = 0; t < 2; t++) {
        const mica_dtype type = t == 0 ? MICA_DTYPE_F32 : MICA_DTYPE_Q4_0;

        conform_line_add(lines, "embedding f32", type, "table W 10x76800, ids i32 8 <10, y f32 8x76800 >");
        conform_line_add(lines, "embedding f32", type,
                         "table W 20000x256, ids i32 17500 <20000, y f32 17500x256 >");
    }
    conform_line_add(lines, "embedding f32", MICA_DTYPE_F32, "table W 8x1, ids i32 2 <8, y f32 2x1 >");
    conform_line_add(lines, "gather", MICA_DTYPE_NONE, "x* i32 7x5x256, ids i32 7x4x1 <5, y* i32 7x4x256 >")
        ->params.gather.axis = 1;
    conform_line_add(lines, "gather", MICA_DTYPE_NONE,
                     "x f32 80000x8, ids i32 70000 <80000, y f32 70000x8 >");
}

/* Rows that are added to others, rows that are put in the place of others. */
static void rows_to_id(conform_lines *lines)
{
    static const char *const types[] = {"f32", "f16", "bf16"};

    conform_line_add(lines, "scatter add", MICA_DTYPE_NONE, "updates f32 2x1, ids i32 2 <8, y f32 8x1 #")
        ->params.scatter.mode = MICA_SCATTER_ADD;
    conform_line_add(lines, "scatter add", MICA_DTYPE_NONE,
                     "updates f32 4x1, ids i32 4 <70000, y f32 70000x1 #")
        ->params.scatter.mode = MICA_SCATTER_ADD;
    conform_line_add(lines, "scatter add", MICA_DTYPE_NONE, "updates* f32 4x256, ids i32 4 <5, y f32 5x256 #")
        ->params.scatter.mode = MICA_SCATTER_ADD;
    for (size_t t = 0; t < COUNT(types); t++) {
        conform_line *line =
            conform_line_add(lines, "scatter", MICA_DTYPE_NONE,
                             "updates %s 3x1x2x1, ids i32 1x1x2x1 <8, y %s 3x1x8x1 #", types[t], types[t]);
        line->params.scatter.axis = 2;
        line = conform_line_add(lines, "scatter", MICA_DTYPE_NONE,
                                "updates* %s 7x1x7x256, ids i32 7x1x7x1 <11, y %s 7x1x11x256 #", types[t],
                                types[t]);
        line->params.scatter.axis = 2;
        line = conform_line_add(lines, "scatter", MICA_DTYPE_NONE,
                                "updates* %s 1x7x2x31, ids i32 1x7x2x1 <3, y* %s 1x7x3x31 #", types[t],
                                types[t]);
        line->params.scatter.axis = 2;
        line =
            conform_line_add(lines, "scatter", MICA_DTYPE_NONE,
                             "updates %s 1x1x1x33, ids i32 1x1x1x1 <5, y %s 1x1x5x33 #", types[t], types[t]);
        line->params.scatter.axis = 2;
    }
}

/* Into caches, which is how rows of blocks are written. */
static void cache_rows(conform_lines *lines)
{
    static const mica_dtype caches[] = {MICA_DTYPE_F32,  MICA_DTYPE_F16,  MICA_DTYPE_BF16,
                                        MICA_DTYPE_Q8_0, MICA_DTYPE_Q4_0, MICA_DTYPE_Q4_1,
                                        MICA_DTYPE_Q5_0, MICA_DTYPE_Q5_1, MICA_DTYPE_IQ4_NL};

    for (size_t t = 0; t < COUNT(caches); t++)
        for (unsigned heads = 1; heads <= 7; heads += 6)
            for (unsigned half = 0; half < 2; half++) {
                const char *type = half != 0 ? "f16" : "f32";

                conform_line_add(lines, "kv_write", caches[t],
                                 "x/ %s 5x%ux256, positions i32 5 .9, -, -, cache T 11x%ux256 #", type, heads,
                                 heads);
                conform_line_add(lines, "kv_write", caches[t],
                                 "x %s 2x%ux96, positions i32 2 .3, -, -, cache T 3x%ux96 #", type, heads,
                                 heads);
            }
}

const conform_family conform_dense_shapes[] = {{"matmul", matmul},
                                               {"matmul of batches", matmul_batches},
                                               {"product", product},
                                               {"experts", experts},
                                               {"rows by id", rows_by_id},
                                               {"rows to an id", rows_to_id},
                                               {"rows of caches", cache_rows},
                                               {NULL, NULL}};
