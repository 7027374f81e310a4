/* weights.c - random weights, written through a small tile so that gigabytes cost no more than copying them. */
#include "bench/weights.h"

#include <stdbool.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TILE_BYTES ((uint64_t)4 << 20)
#define GROUP 32

/* Where a block keeps its half-precision scales, and how many steps of a scale its largest value is. */
typedef struct block_row {
    mica_dtype dtype;
    double steps;
    uint32_t scale_count, scale_at[2];
} block_row;

static const block_row blocks[] = {
    {MICA_DTYPE_Q4_0, 8, 1, {0, 0}},     {MICA_DTYPE_Q4_1, 15, 2, {0, 2}},
    {MICA_DTYPE_Q5_0, 16, 1, {0, 0}},    {MICA_DTYPE_Q5_1, 31, 2, {0, 2}},
    {MICA_DTYPE_Q8_0, 127, 1, {0, 0}},   {MICA_DTYPE_Q2_K, 45, 2, {80, 82}},
    {MICA_DTYPE_Q3_K, 128, 1, {108, 0}}, {MICA_DTYPE_Q4_K, 240, 2, {0, 2}},
    {MICA_DTYPE_Q5_K, 500, 2, {0, 2}},   {MICA_DTYPE_Q6_K, 1600, 1, {208, 0}},
    {MICA_DTYPE_IQ4_NL, 127, 1, {0, 0}}, {MICA_DTYPE_IQ4_XS, 4064, 1, {0, 0}},
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Half precision by cutting the mantissa; too small becomes 0, too large the largest. */
static uint16_t half_bits(double value)
{
    int exponent = 0;
    uint16_t sign = value < 0 ? 0x8000 : 0;
    double mantissa = frexp(fabs(value), &exponent); /* in [0.5, 1) */
    if (exponent < -13)
        return sign;
    if (exponent > 16)
        return sign | 0x7bff;
    return (uint16_t)(sign | (exponent + 14) << 10 | (int)((mantissa * 2 - 1) * 1024));
}

static void put_value(mica_dtype dtype, double value, unsigned char *at)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    uint16_t narrow = dtype == MICA_DTYPE_F16 ? half_bits(value) : (uint16_t)(bits >> 16);
    if (dtype == MICA_DTYPE_F32)
        memcpy(at, &single, sizeof single);
    else
        memcpy(at, &narrow, sizeof narrow);
}

static void fill_blocks(const block_row *row, double spread, unsigned char *tile, uint64_t bytes,
                        uint64_t *random)
{
    uint64_t size = mica_dtype_block_bytes(row->dtype);
    uint16_t scale = half_bits(2 * spread / row->steps);
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = next_random(random);
        memcpy(tile + i, &word, 8);
    }
    for (uint64_t at = 0; at + size <= bytes; at += size)
        for (uint32_t s = 0; s < row->scale_count; s++)
            memcpy(tile + at + row->scale_at[s], &scale, sizeof scale);
}

static void fill_tile(mica_dtype dtype, double spread, unsigned char *tile, uint64_t bytes)
{
    uint64_t random = dtype, step = mica_dtype_block_bytes(dtype);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i].dtype == dtype) {
            fill_blocks(&blocks[i], spread, tile, bytes, &random);
            return;
        }
    int plain = dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
    for (uint64_t at = 0; at + step <= bytes; at += plain ? step : 1) {
        uint64_t word = next_random(&random);
        if (plain)
            put_value(dtype, spread * ((double)(word >> 11) * 0x1p-53 * 2 - 1) * 1.7, tile + at);
        else
            tile[at] = (unsigned char)word;
    }
}

/* A tile of such values, the same each time. The last one is kept: the sets that a row of 'bench ops' takes in turns want it again and again,
 * and drawing a gigabyte of numbers takes longer than a GPU needs for the whole row. */
static const unsigned char *tile_of(mica_dtype dtype, double spread, uint64_t bytes)
{
    static unsigned char tile[TILE_BYTES + 8];
    static mica_dtype kept_type = MICA_DTYPE_NONE;
    static double kept_spread;
    static uint64_t kept_bytes;
    if (dtype == kept_type && spread == kept_spread && bytes <= kept_bytes)
        return tile;
    fill_tile(dtype, spread, tile, bytes);
    kept_type = dtype;
    kept_spread = spread;
    kept_bytes = bytes;
    return tile;
}

static mica_status fill_buffer(mica_buffer *buffer, mica_dtype dtype, double spread)
{
    mica_buffer_info info;
    mica_status status = mica_buffer_get_info(buffer, &info);
    uint64_t block = mica_dtype_block_bytes(dtype);
    uint64_t tile_bytes = TILE_BYTES / block * block;
    if (status != MICA_OK)
        return status;
    if (tile_bytes > info.byte_length)
        tile_bytes = info.byte_length;
    const unsigned char *tile = tile_of(dtype, spread, tile_bytes);
    for (uint64_t at = 0; at < info.byte_length && status == MICA_OK; at += tile_bytes) {
        uint64_t rest = info.byte_length - at;
        status = mica_buffer_write(buffer, at, tile, rest < tile_bytes ? rest : tile_bytes);
    }
    return status;
}

static uint32_t affine_levels(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_AFFINE4   ? 15
           : dtype == MICA_DTYPE_AFFINE6 ? 63
           : dtype == MICA_DTYPE_AFFINE8 ? 255
                                         : 0;
}

static mica_status plain_create(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                                double spread, mica_buffer **out)
{
    mica_buffer_desc desc = {.dtype = dtype, .ndim = ndim, .flags = MICA_BUFFER_UNINITIALIZED};
    memcpy(desc.shape, shape, ndim * sizeof *shape);
    mica_status status = mica_buffer_create(device, &desc, out);
    if (status == MICA_OK)
        status = fill_buffer(*out, dtype, spread);
    if (status != MICA_OK) {
        mica_buffer_release(*out);
        *out = NULL;
    }
    return status;
}

mica_status tool_constant_create(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                                 double value, mica_buffer **out_buffer)
{
    mica_encoder *encoder = NULL;
    TOOL_TRY(mica_buffer_alloc(device, dtype, ndim, shape, out_buffer));
    mica_status status = mica_encoder_begin(device, NULL, &encoder);
    if (status == MICA_OK)
        status = mica_fill(encoder, value, *out_buffer);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    return status;
}

mica_status tool_positions_create(mica_device *device, uint64_t count, mica_buffer **out_buffer)
{
    uint32_t *positions = malloc(count * sizeof *positions);
    if (positions == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < count; i++)
        positions[i] = (uint32_t)i;
    mica_status status = mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &count, out_buffer);
    if (status == MICA_OK)
        status = mica_buffer_write(*out_buffer, 0, positions, count * sizeof *positions);
    free(positions);
    return status;
}

mica_status tool_ids_create(mica_device *device, uint32_t ndim, const uint64_t *shape, uint64_t below,
                            mica_buffer **out_buffer)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    uint32_t *ids = malloc(count * sizeof *ids);
    if (ids == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < count; i++)
        ids[i] = (uint32_t)(i * 2654435761u % below);
    mica_status status = mica_buffer_alloc(device, MICA_DTYPE_U32, ndim, shape, out_buffer);
    if (status == MICA_OK)
        status = mica_buffer_write(*out_buffer, 0, ids, count * sizeof *ids);
    free(ids);
    return status;
}

mica_status tool_weight_create(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                               double spread, mica_buffer **out_buffer)
{
    mica_buffer *data = NULL, *scales = NULL, *biases = NULL;
    uint64_t groups[MICA_MAX_DIMS];
    double scale = 4 * spread / affine_levels(dtype);
    if (affine_levels(dtype) == 0)
        return plain_create(device, dtype, ndim, shape, spread, out_buffer);
    memcpy(groups, shape, ndim * sizeof *shape);
    groups[ndim - 1] = (shape[ndim - 1] + GROUP - 1) / GROUP;
    mica_status status = plain_create(device, dtype, ndim, shape, spread, &data);
    if (status == MICA_OK)
        status = tool_constant_create(device, MICA_DTYPE_BF16, ndim, groups, scale, &scales);
    if (status == MICA_OK)
        status = tool_constant_create(device, MICA_DTYPE_BF16, ndim, groups, -2 * spread, &biases);
    if (status == MICA_OK)
        status = mica_buffer_affine(data, scales, biases, GROUP, out_buffer);
    mica_buffer_release(data);
    mica_buffer_release(scales);
    mica_buffer_release(biases);
    return status;
}

mica_status tool_weight_packed(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                               double spread, mica_buffer **out_buffer)
{
    mica_buffer *plain = NULL;
    TOOL_TRY(tool_weight_create(device, dtype, ndim, shape, spread, &plain));
    mica_status status = mica_buffer_pack(plain, out_buffer);
    mica_buffer_release(plain);
    return status;
}

uint64_t tool_buffer_bytes(const mica_buffer *buffer)
{
    mica_buffer_info info;
    if (mica_buffer_get_info(buffer, &info) != MICA_OK)
        return 0;
    const bool apart = info.group_size != 0 && info.layout == MICA_LAYOUT_CANONICAL; /* scales and biases */
    return info.byte_length + (apart ? 2 * sizeof(uint16_t) * (info.element_count / info.group_size) : 0);
}
