/* catalogue.c - the rows, and how their operands are made of a line. */
#include "bench/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/weights.h"

/* ---- operands ---- */

typedef struct operand_text {
    char type[16], shape[64], how[24];
} operand_text;

/* Matrices of n columns, symmetric, with so much on the diagonal that they have inverses. */
static mica_status eye_create(mica_device *device, uint32_t ndim, const uint64_t *shape, mica_buffer **out)
{
    const uint64_t n = shape[ndim - 1];
    uint64_t count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    float *values = malloc(count * sizeof *values);
    if (values == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t row = i / n % n, column = i % n;
        values[i] = row == column ? 2.0f : 0.5f / (float)n * (float)((row + column) % 7) / 7.0f;
    }
    mica_status status = mica_buffer_alloc(device, MICA_DTYPE_F32, ndim, shape, out);
    if (status == MICA_OK)
        status = mica_buffer_write(*out, 0, values, count * sizeof *values);
    free(values);
    return status;
}

static uint32_t read_shape(const char *text, uint64_t shape[MICA_MAX_DIMS])
{
    uint32_t ndim = 0;
    for (char *end = NULL; ndim < MICA_MAX_DIMS; text = end + 1) {
        shape[ndim++] = strtoull(text, &end, 10);
        if (*end != 'x')
            break;
    }
    return ndim;
}

static mica_status operand_create(mica_device *device, const operand_text *text, mica_dtype row_type,
                                  mica_buffer **out)
{
    uint64_t shape[MICA_MAX_DIMS];
    const uint32_t ndim = read_shape(text->shape, shape);
    const mica_dtype type = strcmp(text->type, "T") == 0 ? row_type : mica_dtype_from_name(text->type);
    const double value = text->how[0] != '\0' ? strtod(text->how + 1, NULL) : 0;
    if (text->how[0] == '=')
        return tool_constant_create(device, type, ndim, shape, value, out);
    if (text->how[0] == '<')
        return tool_ids_create(device, ndim, shape, (uint64_t)value, out);
    if (text->how[0] == '.')
        return tool_positions_create(device, shape[0], out);
    if (text->how[0] == 'e')
        return eye_create(device, ndim, shape, out);
    return tool_weight_create(device, type, ndim, shape, 1, out);
}

const bench_listed *bench_listed_of(const bench_case *c)
{
    size_t count = 0;
    const bench_listed *rows = bench_catalogue(&count);
    for (size_t i = 0; i < count; i++)
        if (c->family == &rows[i].family)
            return &rows[i];
    return NULL;
}

static mica_status listed_create(mica_device *device, const bench_case *c, bench_set *set)
{
    const char *at = bench_listed_of(c)->operands;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; at != NULL && i < BENCH_BUFFERS && status == MICA_OK; i++) {
        operand_text text = {"", "", ""};
        if (*at != '-') {
            sscanf(at, "%15[^ ] %63[0-9x] %23[^,]", text.type, text.shape, text.how);
            status = operand_create(device, &text, c->type, &set->buffer[i]);
        }
        at = strchr(at, ',');
        at = at != NULL ? at + 2 : NULL;
    }
    return status;
}

/* ---- the rows ---- */

#define ROW(op, type, params, shape, operands)                                             \
    {                                                                                      \
        {listed_create, params, 1}, MICA_OP_##op, MICA_DTYPE_##type, 0, 0, shape, operands \
    }
#define LARGE(op, type, params, shape, operands)                                           \
    {                                                                                      \
        {listed_create, params, 1}, MICA_OP_##op, MICA_DTYPE_##type, 1, 0, shape, operands \
    }
#define HOST(op, type, params, shape, operands)                                            \
    {                                                                                      \
        {listed_create, params, 1}, MICA_OP_##op, MICA_DTYPE_##type, 0, 1, shape, operands \
    }

static const mica_scan_params sums = {.kind = MICA_SCAN_SUM};
static const mica_sort_params descending = {.descending = 1};
static const mica_scatter_nd_params added = {.mode = MICA_SCATTER_ADD};
static const mica_softmax_params softmax = {.scale = 1};
static const mica_route_params route = {.softmax_first = 1, .normalise = 1};
static const mica_expert_places_params places = {.capacity = 64};
static const mica_ssm_conv_params silu = {.activation = MICA_SSM_SILU};
static const mica_delta_params delta = {.normalise = 1, .eps = 1e-6f};
static const mica_delta_params delta_tokens = {.normalise = 1, .eps = 1e-6f, .form = MICA_DELTA_SEQUENTIAL};
static const mica_delta_params delta_chunks = {.normalise = 1, .eps = 1e-6f, .form = MICA_DELTA_CHUNKED};
static const mica_selective_params softplus = {.softplus = 1};
static const mica_rnn_params lstm = {.kind = MICA_RNN_LSTM};
static const mica_hadamard_params hadamard = {.scale = 0.125f};
static const mica_conv_params same = {.low = {1, 1}, .high = {1, 1}};
static const mica_conv_params depthwise = {.low = {1, 1}, .high = {1, 1}, .groups = 256};
static const mica_conv_params same_3x3 = {.low = {1, 1}, .high = {1, 1}, .kernel = {3, 3}};
static const mica_pool_windows_params max_2x2 = {.kind = MICA_POOL_MAX, .kernel = {2, 2}};
static const mica_im2col_params patches = {.kernel = {3, 3}, .low = {1, 1}, .high = {1, 1}};
static const mica_resize_params linear = {.mode = MICA_RESIZE_LINEAR};
static const mica_grid_params grid = {.mode = MICA_RESIZE_LINEAR};
static const mica_cross_entropy_params losses = {.smoothing = 0.1f};

#define IMAGE "f32 8x64x56x56"
#define SMALL "f32 16x64x64"
#define MATRIX "f32 512x512"

static const bench_listed rows[] = {
    ROW(SCAN, F32, &sums, "1024 x 2048", "T 1024x2048, T 1024x2048"),
    ROW(SCAN, F32, &sums, "1 x 10^7", "T 1x10000000, T 1x10000000"),
    ROW(ARGMAX, F32, NULL, "1024 x 2048", "T 1024x2048, u32 1024"),
    ROW(SORT, F32, NULL, "1 x 10^7", "T 1x10000000, T 1x10000000, -"),
    ROW(SORT, F32, &descending, "8 x 128256, first 40", "T 8x128256, T 8x40, u32 8x40"),
    ROW(GATHER_ND, F32, NULL, "4096 of 64 x 64 rows of 512", "T 64x64x512, u32 4096x2 <64, T 4096x512"),
    ROW(SCATTER_ND, F32, &added, "4096 of 64 x 64 rows of 512", "T 4096x512, u32 4096x2 <64, T 64x64x512"),
    ROW(NONZERO, F32, NULL, "1024 x 2048", "T 1024x2048, u32 2097152x2, u32 1"),
    ROW(COMPRESS, F32, NULL, "8192 rows of 512", "T 8192x512, T 8192, T 8192x512, u32 1"),
    ROW(SOFTMAX_BACKWARD, F32, &softmax, "1024 x 2048", "T 1024x2048, T 1024x2048, T 1024x2048"),
    ROW(PRODUCT, F32, NULL, "8 x 512 x 512 x 512", "T 8x512x512, T 8x512x512, -, -, -, T 8x512x512"),
    ROW(PRODUCT, I8, NULL, "512 x 512 x 512", "T 512x512, T 512x512, -, -, -, i32 512x512"),
    ROW(MATMUL_TRANSPOSED, F32, NULL, "128 x 2048 x 2048", "f32 128x2048, -, T 2048x2048, f32 128x2048"),
    ROW(MATMUL_TRANSPOSED, Q4_K, NULL, "128 x 2048 x 2048", "f32 128x2048, -, T 2048x2048, f32 128x2048"),
    ROW(ATTENTION_BACKWARD, F32, NULL, "256, 8 heads of 64",
        "f32 256x8x64, f32 256x8x64, f32 256x8x64, u32 256 .., u32 1 =256, -, -, -, f32 256x8x64, f32 256x8 "
        "=8, "
        "f32 256x8x64, f32 256x8x64, f32 256x8x64, f32 256x8x64, -"),
    ROW(ROUTE_BACKWARD, F32, &route, "512 x 8 x 128",
        "f32 512x128, -, u32 512x8 <128, f32 512x8, f32 512x128"),
    ROW(EXPERT_PLACES, U32, &places, "512 x 8, 128", "T 512x8 <128, T 512x8, T 128"),
    ROW(SSM_CONV, F32, &silu, "512 x 8192, 4", "T 512x8192, f32 8192x4, f32 8192, -, -, -, -, T 512x8192, -"),
    ROW(DELTA_NET, F32, &delta, "1, 32 heads of 128",
        "f32 1x16x128, f32 1x16x128, f32 1x32x128, f32 1x32 =-0.1, f32 1x32 =0.5, -, f32 1x32x128x128, -, -, "
        "-, "
        "f32 1x32x128, f32 1x32x128x128"),
    ROW(DELTA_NET, F32, &delta, "512, 32 heads of 128",
        "f32 512x16x128, f32 512x16x128, f32 512x32x128, f32 512x32 =-0.1, f32 512x32 =0.5, -, f32 "
        "1x32x128x128, -, "
        "-, -, f32 512x32x128, f32 1x32x128x128"),
    ROW(DELTA_NET, F32, &delta_tokens, "512 one by one",
        "f32 512x16x128, f32 512x16x128, f32 512x32x128, f32 512x32 =-0.1, f32 512x32 =0.5, -, f32 "
        "1x32x128x128, -, "
        "-, -, f32 512x32x128, f32 1x32x128x128"),
    LARGE(DELTA_NET, F32, &delta, "64 sequences of 1",
          "f32 64x16x128, f32 64x16x128, f32 64x32x128, f32 64x32 =-0.1, f32 64x32 =0.5, -, f32 "
          "64x32x128x128, -, -, "
          "-, f32 64x32x128, f32 64x32x128x128"),
    LARGE(DELTA_NET, BF16, &delta, "4096, 32 heads of 128",
          "T 4096x16x128, T 4096x16x128, T 4096x32x128, f32 4096x32 =-0.1, f32 4096x32 =0.5, -, f32 "
          "1x32x128x128, -, "
          "-, -, T 4096x32x128, f32 1x32x128x128"),
    LARGE(DELTA_NET, BF16, &delta_tokens, "4096 one by one",
          "T 4096x16x128, T 4096x16x128, T 4096x32x128, f32 4096x32 =-0.1, f32 4096x32 =0.5, -, f32 "
          "1x32x128x128, -, "
          "-, -, T 4096x32x128, f32 1x32x128x128"),
    LARGE(DELTA_NET, BF16, &delta_chunks, "4096 in chunks",
          "T 4096x16x128, T 4096x16x128, T 4096x32x128, f32 4096x32 =-0.1, f32 4096x32 =0.5, -, f32 "
          "1x32x128x128, -, "
          "-, -, T 4096x32x128, f32 1x32x128x128"),
    ROW(SELECTIVE_SCAN, F32, &softplus, "512 x 4096, 16",
        "f32 512x4096, f32 512x4096, f32 4096x16 =-1, f32 512x1x16, f32 512x1x16, f32 4096, f32 4096, -, f32 "
        "1x4096x16, "
        "-, -, -, f32 512x4096, f32 1x4096x16"),
    ROW(RNN, F32, &lstm, "128 x 512",
        "f32 128x2048, f32 2048x512, f32 2048, f32 1x2x512, -, -, -, f32 128x512, f32 1x2x512"),
    ROW(HADAMARD, F32, &hadamard, "16384 x 64", "T 16384x64, -, T 16384x64"),
    ROW(HADAMARD, F32, &hadamard, "512 x 4096", "T 512x4096, f32 4096, T 512x4096"),
    ROW(CONV, F32, &same, "3x3, 64, 56x56", "T 1x64x56x56, T 64x64x3x3, -, T 1x64x56x56"),
    ROW(CONV, F32, &same, "8 of 3x3, 64, 56x56", IMAGE ", T 64x64x3x3, -, " IMAGE),
    ROW(CONV, F32, &depthwise, "depthwise, 256", "T 1x256x56x56, T 256x1x3x3, -, T 1x256x56x56"),
    ROW(CONV_WEIGHT_BACKWARD, F32, &same_3x3, "3x3, 64, 56x56", "T 1x64x56x56, T 1x64x56x56, T 64x64x3x3"),
    ROW(POOL_WINDOWS, F32, &max_2x2, "2x2, 8x64x56x56", IMAGE ", f32 8x64x28x28, -"),
    ROW(POOL_WINDOWS_BACKWARD, F32, &max_2x2, "2x2, 8x64x56x56", IMAGE ", f32 8x64x28x28, " IMAGE),
    ROW(IM2COL, F32, &patches, "3x3, 64, 56x56", "T 1x64x56x56, T 1x576x3136"),
    ROW(COL2IM, F32, &patches, "3x3, 64, 56x56", "T 1x576x3136, T 1x64x56x56"),
    ROW(RESIZE, F32, &linear, "8x64, 56x56 to 112x112", IMAGE ", f32 8x64x112x112"),
    ROW(RESIZE_BACKWARD, F32, &linear, "8x64, 112x112 to 56x56", "f32 8x64x112x112, " IMAGE),
    ROW(GRID_SAMPLE, F32, &grid, "8x64x56x56", IMAGE ", f32 8x56x56x2, " IMAGE),
    ROW(GRID_SAMPLE_BACKWARD, F32, &grid, "8x64x56x56",
        IMAGE ", f32 8x56x56x2, " IMAGE ", " IMAGE ", f32 8x56x56x2"),
    ROW(FFT, C64, NULL, "2^20", "T 1x1048576, T 1x1048576"),
    ROW(FFT, C64, NULL, "1024 x 1024", "T 1024x1024, T 1024x1024"),
    HOST(SSM_CONV_BACKWARD, F32, &silu, "512 x 1024, 4",
         "T 512x1024, f32 1024x4, f32 1024, -, -, -, T 512x1024, -, T 512x1024, f32 1024x4, f32 1024, -"),
    HOST(DELTA_NET_BACKWARD, F32, &delta, "256, 4 heads of 128",
         "T 256x4x128, T 256x4x128, T 256x4x128, f32 256x4 =-1, f32 256x4 =0.5, -, -, -, -, T 256x4x128, -, "
         "T 256x4x128, T 256x4x128, T 256x4x128, f32 256x4, f32 256x4, -, -"),
    HOST(SELECTIVE_SCAN_BACKWARD, F32, &softplus, "256 x 512, 16",
         "T 256x512, T 256x512, f32 512x16 =-1, T 256x1x16, T 256x1x16, -, -, -, -, -, -, T 256x512, -, "
         "T 256x512, T 256x512, f32 512x16, T 256x1x16, T 256x1x16, -, -, -, -"),
    HOST(RNN_BACKWARD, F32, &lstm, "64 x 256",
         "T 64x1024, f32 1024x256, -, -, -, -, T 64x256, -, T 64x1024, f32 1024x256, -, -"),
    HOST(TRIANGULAR_SOLVE, F32, NULL, "512 x 512", MATRIX " eye, " MATRIX ", " MATRIX),
    HOST(CHOLESKY, F32, NULL, "512 x 512", MATRIX " eye, " MATRIX),
    HOST(SOLVE, F32, NULL, "512 x 512", MATRIX " eye, " MATRIX ", " MATRIX),
    HOST(INVERSE, F32, NULL, "512 x 512", MATRIX " eye, " MATRIX),
    HOST(DETERMINANT, F32, NULL, "16 of 64 x 64", SMALL " eye, f32 16"),
    HOST(QR, F32, NULL, "16 of 64 x 64", SMALL " eye, " SMALL ", " SMALL),
    HOST(EIGH, F32, NULL, "16 of 64 x 64", SMALL " eye, f32 16x64, " SMALL),
    HOST(SVD, F32, NULL, "16 of 64 x 64", SMALL " eye, " SMALL ", f32 16x64, " SMALL),
    ROW(CROSS_ENTROPY, F32, &losses, "512 x 32000", "T 512x32000, u32 512 <32000, -, -, f32 512, f32 512"),
    ROW(CROSS_ENTROPY_BACKWARD, F32, &losses, "512 x 32000",
        "T 512x32000, u32 512 <32000, -, -, f32 512 =10, f32 512, T 512x32000"),
};

const bench_listed *bench_catalogue(size_t *out_count)
{
    *out_count = sizeof rows / sizeof *rows;
    return rows;
}
