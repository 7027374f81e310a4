/*
 * conform_table.c - THE table: each op, its oracle, its tolerance and why that is the right one.
 *
 * A tolerance is `factor` roundings of f32 on the oracle's error measure (oracle_ops.h), plus the one rounding of the
 * store. An op whose f32 result has one right value has factor 0 and is compared to the bit.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#define ROW(text, id, op, weight, factor, reason) MADE(text, id, op, op, weight, factor, reason)
#define MADE(text, id, make, op, weight, factor, reason)                                   \
    {                                                                                      \
        text, MICA_OP_##id, MICA_DTYPE_##weight, conform_make_##make, conform_encode_##op, \
            conform_oracle_##op, factor, reason, NULL                                      \
    }

#define BITS(text, id, op) BITS_BY(text, id, op, conform_encode_##op)
#define BITS_BY(text, id, op, call)                                                           \
    {                                                                                         \
        text, MICA_OP_##id, MICA_DTYPE_NONE, conform_make_##op, call, conform_oracle_##op, 0, \
            "moved bit for bit", conform_judge_bits                                           \
    }
#define TURBO(text, weight)                                                                        \
    {                                                                                              \
        text, MICA_OP_KV_WRITE, MICA_DTYPE_##weight, conform_make_kv_write, conform_encode_op,     \
            conform_oracle_kv_write, 0, "the nearest level for the best of nine scales, to a tie", \
            conform_judge_turbo                                                                    \
    }
#define DOT                                                                                                 \
    "f32 sums of k terms in any fixed order: sqrt(k)/4 + 1 roundings of the absolute sum, times 4 for the " \
    "tail"
#define RISING "f32 sums in rising n: the root of the squares of all that is rounded, times 4 for the tail"
#define FFT                                                                                            \
    "log2(n) levels of sums and turns, each a rounding or two of the root of all squares; one of the " \
    "greatest"
#define LINEAR(id, make, op)                                                                               \
    {                                                                                                      \
#op, MICA_OP_##id, MICA_DTYPE_NONE, conform_make_##make, conform_encode_op, conform_oracle_linear, \
            4,                                                                                             \
            "f64 arithmetic; each factor rounds once on store, f64 ones have their sides' roundings: "     \
            "of the product of their lengths",                                                             \
            conform_judge_linear                                                                           \
    }
/* Operands by the table of ops, called by its number; functions of such ops have tests of their own. */
#define DRAWN(text, id, op, weight, factor, reason) DRAWN_AS(text, id, op, op, weight, factor, reason)
#define DRAWN_AS(text, id, make, op, weight, factor, reason)                             \
    {                                                                                    \
        text, MICA_OP_##id, MICA_DTYPE_##weight, conform_make_##make, conform_encode_op, \
            conform_oracle_##op, factor, reason, NULL                                    \
    }
#define TAPE                                                                                               \
    "what each step of the formula rounds, carried on, four times: in f32 by kernels, in f64 on the cpu, " \
    "where the oracle is off as much"
#define DECODED "as attention: a decoded value is exact"
#define TURNED "as attention: a decoded value is a sum of 64, or q and y are turned, which rounds as much"
#define TURNED_BACK "two products, and six sums that each round at most the absolute sum of a block"
#define DECODE "a decoded value takes at most three f32 products and one sum"

#define WEIGHT_ROWS(text, id, op, factor, reason)                                                           \
    ROW(text " f32", id, op, F32, factor, reason), ROW(text " f16", id, op, F16, factor, reason),           \
        ROW(text " bf16", id, op, BF16, factor, reason), ROW(text " q4_0", id, op, Q4_0, factor, reason),   \
        ROW(text " q4_1", id, op, Q4_1, factor, reason), ROW(text " q5_0", id, op, Q5_0, factor, reason),   \
        ROW(text " q5_1", id, op, Q5_1, factor, reason), ROW(text " q8_0", id, op, Q8_0, factor, reason),   \
        ROW(text " q8_1", id, op, Q8_1, factor, reason), ROW(text " q2_k", id, op, Q2_K, factor, reason),   \
        ROW(text " q3_k", id, op, Q3_K, factor, reason), ROW(text " q4_k", id, op, Q4_K, factor, reason),   \
        ROW(text " q5_k", id, op, Q5_K, factor, reason), ROW(text " q6_k", id, op, Q6_K, factor, reason),   \
        ROW(text " q8_k", id, op, Q8_K, factor, reason), ROW(text " iq1_s", id, op, IQ1_S, factor, reason), \
        ROW(text " iq1_m", id, op, IQ1_M, factor, reason),                                                  \
        ROW(text " iq2_xxs", id, op, IQ2_XXS, factor, reason),                                              \
        ROW(text " iq2_xs", id, op, IQ2_XS, factor, reason),                                                \
        ROW(text " iq2_s", id, op, IQ2_S, factor, reason),                                                  \
        ROW(text " iq3_xxs", id, op, IQ3_XXS, factor, reason),                                              \
        ROW(text " iq3_s", id, op, IQ3_S, factor, reason),                                                  \
        ROW(text " iq4_nl", id, op, IQ4_NL, factor, reason),                                                \
        ROW(text " iq4_xs", id, op, IQ4_XS, factor, reason),                                                \
        ROW(text " tq1_0", id, op, TQ1_0, factor, reason),                                                  \
        ROW(text " tq2_0", id, op, TQ2_0, factor, reason),                                                  \
        ROW(text " mxfp4", id, op, MXFP4, factor, reason),                                                  \
        ROW(text " nvfp4", id, op, NVFP4, factor, reason),                                                  \
        ROW(text " affine2", id, op, AFFINE2, factor, reason),                                              \
        ROW(text " affine3", id, op, AFFINE3, factor, reason),                                              \
        ROW(text " affine4", id, op, AFFINE4, factor, reason),                                              \
        ROW(text " affine5", id, op, AFFINE5, factor, reason),                                              \
        ROW(text " affine6", id, op, AFFINE6, factor, reason),                                              \
        ROW(text " affine8", id, op, AFFINE8, factor, reason),                                              \
        ROW(text " fp4", id, op, FP4, factor, reason), ROW(text " f8_e4m3", id, op, F8_E4M3, factor, reason)

/* One of each kind that native/dot_blocks.cu takes apart, and one of dot_planes.cu. */
#define STREAM_ROWS(text, factor, reason)                                                                   \
    STREAM(text " q4_0", Q4_0, factor, reason), STREAM(text " q4_1", Q4_1, factor, reason),                 \
        STREAM(text " q5_0", Q5_0, factor, reason), STREAM(text " q2_k", Q2_K, factor, reason),             \
        STREAM(text " q3_k", Q3_K, factor, reason), STREAM(text " q5_k", Q5_K, factor, reason),             \
        STREAM(text " iq4_nl", IQ4_NL, factor, reason), STREAM(text " iq4_xs", IQ4_XS, factor, reason),     \
        STREAM(text " mxfp4", MXFP4, factor, reason), STREAM(text " nvfp4", NVFP4, factor, reason),         \
        STREAM(text " affine2", AFFINE2, factor, reason), STREAM(text " affine3", AFFINE3, factor, reason), \
        STREAM(text " affine4", AFFINE4, factor, reason), STREAM(text " affine8", AFFINE8, factor, reason), \
        STREAM(text " fp4", FP4, factor, reason)
#define STREAM(text, weight, factor, reason) MADE(text, MATMUL, matmul_stream, matmul, weight, factor, reason)

const conform_row conform_table[] = {
    ROW("copy", COPY, copy, NONE, 0, "a conversion rounds once: known to the bit"),
    {"region", MICA_OP_REGION, MICA_DTYPE_NONE, conform_make_region, conform_encode_region,
     conform_oracle_region, 1, "each step strays as its scalar does, carried through the steps behind it",
     conform_judge_region},
    {"scalar", MICA_OP_REGION, MICA_DTYPE_NONE, conform_make_scalar, conform_encode_scalar,
     conform_oracle_region, 1, "as oracle_scalar.c says of each", conform_judge_region},
    ROW("rms_norm", RMS_NORM, rms_norm, NONE, 4, "root, quotient and products after a sum of squares"),
    ROW("layer_norm", LAYER_NORM, layer_norm, NONE, 4,
        "root, quotient, products and a sum after the sums of two passes"),
    MADE("reduce", REDUCE, reduce, reduce, NONE, 4,
         "sums of n terms in any fixed order: sqrt(n)/4 + 1 roundings of the absolute sum, times 4 for the "
         "tail; exp and log"),
    MADE("reduce long", REDUCE, reduce_long, reduce, NONE, 4, "as reduce"),
    ROW("softmax", SOFTMAX, softmax, NONE, 4,
        "the rounded argument moves exp by its own size; then a sum and a quotient"),
    ROW("rope", ROPE, rope, NONE, 4, "the angle is rounded in f32 and moves the result by its own size"),
    ROW("rope f64", ROPE, rope, F64, 4, "as rope, roundings of f64"),
    DRAWN("kv_write", KV_WRITE, kv_write, NONE, 0, "a conversion rounds once: known to the bit"),
    DRAWN("kv_write q8_0", KV_WRITE, kv_write, Q8_0, 0,
          "codes and scales of f32 arithmetic: known to the bit"),
    ROW("attention", ATTENTION, attention, NONE, 2,
        "scores as a sum of products, exp of them, a weighted sum"),
    ROW("attention q8_0", ATTENTION, attention, Q8_0, 2, DECODED),
    MADE("attention f16", ATTENTION, prompt, attention, F16, 2, DECODED),
    MADE("attention bf16", ATTENTION, prompt, attention, BF16, 2, DECODED),
    MADE("attention f32", ATTENTION, prompt, attention, F32, 2, DECODED),
    MADE("attention prompt q8_0", ATTENTION, prompt, attention, Q8_0, 2, DECODED),
    WEIGHT_ROWS("matmul", MATMUL, matmul, 2, DOT),
    DRAWN("matmul several f32", MATMUL, matmul_several, F32, 2, DOT),
    DRAWN("matmul several f16", MATMUL, matmul_several, F16, 2, DOT),
    DRAWN("matmul several q4_0", MATMUL, matmul_several, Q4_0, 2, DOT),
    MADE("matmul tiles q4_0", MATMUL, matmul_tiles, matmul, Q4_0, 2, DOT),
    MADE("matmul tiles f32", MATMUL, matmul_tiles, matmul, F32, 2, DOT),
    MADE("matmul tiles f16", MATMUL, matmul_tiles, matmul, F16, 2, DOT),
    MADE("matmul tiles q5_k", MATMUL, matmul_tiles, matmul, Q5_K, 2, DOT),
    MADE("matmul tiles affine4", MATMUL, matmul_tiles, matmul, AFFINE4, 2, DOT),
    STREAM_ROWS("matmul stream", 2, DOT),
    MADE("matmul library f32", MATMUL, matmul_library, matmul, F32, 2, DOT),
    WEIGHT_ROWS("experts", MATMUL_EXPERTS, matmul_experts, 2, DOT),
    MADE("experts tiles q4_k", MATMUL_EXPERTS, experts_tiles, matmul_experts, Q4_K, 2, DOT),
    MADE("experts tiles f16", MATMUL_EXPERTS, experts_tiles, matmul_experts, F16, 2, DOT),
    MADE("experts tiles q5_k", MATMUL_EXPERTS, experts_tiles, matmul_experts, Q5_K, 2, DOT),
    MADE("experts tiles affine4", MATMUL_EXPERTS, experts_tiles, matmul_experts, AFFINE4, 2, DOT),
    WEIGHT_ROWS("embedding", EMBEDDING, embedding, 2, DECODE),
    BITS("pad", PAD, pad),
    BITS_BY("gather", GATHER, gather, conform_encode_op),
    BITS_BY("scatter", SCATTER, scatter, conform_encode_op),
    {"scatter add", MICA_OP_SCATTER, MICA_DTYPE_NONE, conform_make_scatter_add, conform_encode_op,
     conform_oracle_scatter_add, 2, "f32 in the order of ids: " DOT, NULL},
    BITS("gather_nd", GATHER_ND, gather_nd),
    BITS("scatter_nd", SCATTER_ND, scatter_nd),
    {"scatter_nd add", MICA_OP_SCATTER_ND, MICA_DTYPE_NONE, conform_make_scatter_nd_add,
     conform_encode_scatter_nd, conform_oracle_scatter_nd_add, 2, "as scatter add", NULL},
    ROW("nonzero", NONZERO, nonzero, NONE, 0, "whole numbers"),
    {"compress", MICA_OP_COMPRESS, MICA_DTYPE_NONE, conform_make_compress, conform_encode_compress,
     conform_oracle_compress, 0, "moved bit for bit; whole numbers", conform_judge_compress},
    ROW("penalize", PENALIZE, penalize, NONE, 4, "a sum for each bias, then a product, a sum, a difference"),
    ROW("sample", SAMPLE, sample, NONE, 0, "whole numbers; no decision is near its bound"),
    ROW("sample log", SAMPLE, sample_log, NONE, 4, "exp and a sum, a logarithm, two differences"),
    ROW("sample settings", SAMPLE, sample_settings, NONE, 0, "whole numbers"),
    ROW("sample history", SAMPLE, sample_history, NONE, 0, "whole numbers"),
    /* ---- sorting, scans, random numbers ---- */
    ROW("scan", SCAN, scan, NONE, 2,
        DOT "; products of as many factors in twice that; greatest and least are exact"),
    MADE("scan long", SCAN, scan_long, scan, NONE, 2, "as scan"),
    DRAWN("argmax", ARGMAX, argmax, NONE, 0, "whole numbers"),
    ROW("sort", SORT, sort, NONE, 0, "moved bit for bit; whole numbers"),
    MADE("sort long", SORT, sort_long, sort, NONE, 0, "as sort"),
    /* ---- norms ---- */
    ROW("normalize", NORMALIZE, normalize, NONE, 4,
        "root, quotient, products and a sum after the sums of two passes"),
    ROW("normalize_backward", NORMALIZE_BACKWARD, normalize_backward, NONE, 4,
        "the same, two sums of products of what came out, and the sums over rows"),
    DRAWN("softmax_backward", SOFTMAX_BACKWARD, softmax_backward, NONE, 4,
          "a sum of products, a difference, products; exp of what softmax gave"),
    ROW("masked_softmax", SOFTMAX, masked_softmax, NONE, 4,
        "as softmax; the argument is rounded twice, by the size of either"),
    DRAWN("log_softmax", SOFTMAX, log_softmax, NONE, 4,
          "the rounded argument moves exp by its own size; a sum, a logarithm, two differences"),
    /* ---- rotary embeddings ---- */
    /* ---- matrices ---- */
    ROW("product", PRODUCT, product, NONE, 2, DOT),
    WEIGHT_ROWS("transposed", MATMUL_TRANSPOSED, matmul_transposed, 4, RISING),
/* ---- attention ---- */
#define CODES "the codes of the reference quantiser, found in f32: known to the bit"
    DRAWN("kv_write q4_0", KV_WRITE, kv_write, Q4_0, 0, CODES),
    DRAWN("kv_write q4_1", KV_WRITE, kv_write, Q4_1, 0, CODES),
    DRAWN("kv_write q5_0", KV_WRITE, kv_write, Q5_0, 0, CODES),
    DRAWN("kv_write q5_1", KV_WRITE, kv_write, Q5_1, 0, CODES),
    DRAWN("kv_write iq4_nl", KV_WRITE, kv_write, IQ4_NL, 0, CODES),
    MADE("attention more", ATTENTION, attention_more, attention, NONE, 2,
         "as attention; a sink is one weight more"),
    MADE("attention q4_0", ATTENTION, attention_more, attention, Q4_0, 2, DECODED),
    MADE("attention q4_1", ATTENTION, attention_more, attention, Q4_1, 2,
         "as attention: a decoded value rounds once"),
    MADE("attention q5_0", ATTENTION, attention_more, attention, Q5_0, 2, DECODED),
    MADE("attention q5_1", ATTENTION, attention_more, attention, Q5_1, 2,
         "as attention: a decoded value rounds once"),
    MADE("attention iq4_nl", ATTENTION, attention_more, attention, IQ4_NL, 2, DECODED),
    MADE("attention prompt q4_0", ATTENTION, prompt, attention, Q4_0, 2, DECODED),
    MADE("attention f64", ATTENTION, attention_more, attention, F64, 2, "as attention, roundings of f64"),
    ROW("attention_backward", ATTENTION_BACKWARD, attention_backward, NONE, 2,
        "weights out of scores as attention's, differences of two sums of products, sums over keys or "
        "queries"),
    MADE("attention_backward long", ATTENTION_BACKWARD, attention_backward_long, attention_backward, NONE, 2,
         "as attention_backward"),
    ROW("attention_backward f64", ATTENTION_BACKWARD, attention_backward, F64, 2,
        "as attention_backward, roundings of f64"),
    /* ---- experts ---- */
    ROW("route", ROUTE, route, NONE, 4,
        "softmax over the experts, a sum of the chosen, a quotient, two products"),
    MADE("route scored", ROUTE, route_scored, route, NONE, 4, "as route; no decision is near its bound"),
    ROW("expert_sum", EXPERT_SUM, expert_sum, NONE, 4,
        "a sum of products in the order of the slots; a sigmoid"),
    ROW("route_backward", ROUTE_BACKWARD, route_backward, NONE, 4,
        "as route; then differences of sums of products of what it made, in roundings of their sizes"),
    ROW("expert_places", EXPERT_PLACES, expert_places, NONE, 0, "whole numbers"),
    /* ---- recurrence: state space, linear attention, cells ---- */
    MADE("route f64", ROUTE, route, route, F64, 4, "as route, roundings of f64"),
    MADE("route scored f64", ROUTE, route_scored, route, F64, 4, "as route, roundings of f64"),
    ROW("expert_sum f64", EXPERT_SUM, expert_sum, F64, 4, "as expert_sum, roundings of f64"),
    ROW("experts f64", MATMUL_EXPERTS, matmul_experts, F64, 4, "as experts, roundings of f64"),
    ROW("ssm_conv", SSM_CONV, ssm_conv, NONE, 4,
        "a sum of as many products as the filter is wide, perhaps silu; states are moved"),
    ROW("delta_net", DELTA_NET, delta_net, NONE, 2,
        "roundings of each token, carried on by the norm of what multiplies the state"),
    MADE("delta_net tiles", DELTA_NET, delta_tiles, delta_net, NONE, 2,
         "roundings of each token, carried on by the norm of what multiplies the state"),
    ROW("selective_scan", SELECTIVE_SCAN, selective_scan, NONE, 4,
        "roundings of each place and token, carried on by the decays; a sum over the places"),
    ROW("rnn", RNN, rnn, NONE, 2,
        "sums of products and functions of them, carried from token to token by the sizes of the weights"),
    ROW("ssm_conv_backward", SSM_CONV_BACKWARD, ssm_conv_backward, NONE, 1, TAPE),
    ROW("delta_net_backward", DELTA_NET_BACKWARD, delta_net_backward, NONE, 1, TAPE),
    ROW("selective_scan_backward", SELECTIVE_SCAN_BACKWARD, selective_scan_backward, NONE, 1, TAPE),
    ROW("rnn_backward", RNN_BACKWARD, rnn_backward, NONE, 1, TAPE),
    /* ---- rotation and coding of caches ---- */
    DRAWN("hadamard", HADAMARD, hadamard, NONE, 2, DOT),
    DRAWN_AS("hadamard long", HADAMARD, hadamard_long, hadamard, NONE, 2, DOT),
    TURBO("kv_write turbo2", TURBO2),
    TURBO("kv_write turbo2_5", TURBO2_5),
    TURBO("kv_write turbo3", TURBO3),
    TURBO("kv_write turbo4", TURBO4),
    TURBO("kv_write turbo5", TURBO5),
    TURBO("kv_write turbo6", TURBO6),
    TURBO("kv_write turbo8", TURBO8),
    MADE("attention turbo2", ATTENTION, attention_more, attention, TURBO2, 2, TURNED),
    MADE("attention turbo2_5", ATTENTION, attention_more, attention, TURBO2_5, 2, TURNED),
    MADE("attention turbo3", ATTENTION, attention_more, attention, TURBO3, 2, TURNED),
    MADE("attention turbo4", ATTENTION, attention_more, attention, TURBO4, 2, TURNED),
    MADE("attention turbo5", ATTENTION, attention_more, attention, TURBO5, 2, TURNED),
    MADE("attention turbo6", ATTENTION, attention_more, attention, TURBO6, 2, TURNED),
    MADE("attention turbo8", ATTENTION, attention_more, attention, TURBO8, 2, TURNED),
    ROW("embedding turbo2", EMBEDDING, embedding, TURBO2, 8, TURNED_BACK),
    ROW("embedding turbo2_5", EMBEDDING, embedding, TURBO2_5, 8, TURNED_BACK),
    ROW("embedding turbo3", EMBEDDING, embedding, TURBO3, 8, TURNED_BACK),
    ROW("embedding turbo4", EMBEDDING, embedding, TURBO4, 8, TURNED_BACK),
    ROW("embedding turbo5", EMBEDDING, embedding, TURBO5, 8, TURNED_BACK),
    ROW("embedding turbo6", EMBEDDING, embedding, TURBO6, 8, TURNED_BACK),
    ROW("embedding turbo8", EMBEDDING, embedding, TURBO8, 8, TURNED_BACK),
    MADE("attention prompt turbo4", ATTENTION, prompt, attention, TURBO4, 2, TURNED),
    /* without what only the portable kernel knows: CUDA reads these blocks where they lie */
    MADE("attention plain turbo2_5", ATTENTION, attention, attention, TURBO2_5, 2, TURNED),
    MADE("attention plain turbo4", ATTENTION, attention, attention, TURBO4, 2, TURNED),
    MADE("attention plain turbo8", ATTENTION, attention, attention, TURBO8, 2, TURNED),
    /* ---- convolution, pooling, resizing ---- */
    ROW("conv", CONV, conv, NONE, 2, DOT),
    ROW("conv_weight_backward", CONV_WEIGHT_BACKWARD, conv_weight_backward, NONE, 2, DOT),
    ROW("pool_windows", POOL_WINDOWS, pool_windows, NONE, 2, "taken as they are, or " DOT),
    ROW("pool_windows_backward", POOL_WINDOWS_BACKWARD, pool_windows_backward, NONE, 2, DOT),
    ROW("im2col", IM2COL, im2col, NONE, 0, "moved"),
    ROW("col2im", COL2IM, col2im, NONE, 2, DOT),
    ROW("resize", RESIZE, resize, NONE, 2,
        "weights are f32: of linear ones a rounding of 1, of cubic ones of terms of about 4; then a sum of "
        "products"),
    ROW("resize_backward", RESIZE_BACKWARD, resize_backward, NONE, 2, "as resize"),
    ROW("grid_sample", GRID_SAMPLE, grid_sample, NONE, 2,
        "as resize, and coordinates are f32: three roundings of their greatest term"),
    ROW("grid_sample_backward", GRID_SAMPLE_BACKWARD, grid_sample_backward, NONE, 2,
        "as grid_sample, sums over the grid, or over the channels of slopes of weights"),
    /* ---- transforms ---- */
    {"fft", MICA_OP_FFT, MICA_DTYPE_NONE, conform_make_fft, conform_encode_fft, conform_oracle_fft, 2, FFT,
     conform_judge_fft},
    {"fft long", MICA_OP_FFT, MICA_DTYPE_NONE, conform_make_fft_long, conform_encode_fft, conform_oracle_fft,
     2, FFT, conform_judge_fft},
    /* ---- linear algebra ---- */
    LINEAR(TRIANGULAR_SOLVE, triangular_solve, triangular_solve),
    LINEAR(CHOLESKY, cholesky, cholesky),
    LINEAR(SOLVE, factors, solve),
    LINEAR(INVERSE, inverse, inverse),
    LINEAR(DETERMINANT, determinant, determinant),
    LINEAR(QR, factors, qr),
    LINEAR(EIGH, factors, eigh),
    LINEAR(SVD, factors, svd),
    /* ---- quantisation ---- */
    /* ---- training: losses, gradients, optimisers ---- */
    ROW("cross_entropy", CROSS_ENTROPY, cross_entropy, NONE, 4,
        "as reduce's logarithm of a sum, then differences; the mean of logits is a sum in any fixed order"),
    ROW("cross_entropy_backward", CROSS_ENTROPY_BACKWARD, cross_entropy_backward, NONE, 4,
        "the rounded argument moves exp by its own size; then products and a difference"),
};

const uint32_t conform_table_count = sizeof conform_table / sizeof *conform_table;
