/*
 * tensor.c - layouts, sentinels and values of test tensors.
 */
#include "support/tensor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"

#define GUARD 64u

void *test_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);

    if (!memory)
        abort();
    return memory;
}

static uint8_t sentinel(uint64_t place)
{
    return (uint8_t)(0x5a ^ (place * 29));
}

/* The order of dimensions in memory, innermost first. */
static void memory_order(const test_tensor *tensor, test_random *random, test_layout layout, uint32_t *order)
{
    uint32_t fixed = layout == TEST_ROWS || layout == TEST_ROWS_REPEAT ? 1 : 0;

    for (uint32_t i = 0; i < tensor->ndim; i++)
        order[i] = tensor->ndim - 1 - i;
    if (layout <= TEST_ALIGNED || test_random_one_in(random, 3))
        return;
    for (uint32_t i = tensor->ndim; i > fixed + 1; i--) {
        uint32_t other = fixed + (uint32_t)test_random_below(random, i - fixed);
        uint32_t kept = order[i - 1];

        order[i - 1] = order[other];
        order[other] = kept;
    }
}

/* Strides for the layout; returns the bytes from the first element to the end of the last. */
static uint64_t lay_out(test_tensor *tensor, test_random *random, test_layout layout)
{
    uint64_t block = oracle_block_values(tensor->dtype), unit = oracle_block_bytes(tensor->dtype);
    uint64_t next = unit, end = unit;
    uint32_t order[MICA_MAX_DIMS];

    memory_order(tensor, random, layout, order);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        uint32_t dim = order[i];
        uint64_t size = dim == tensor->ndim - 1 ? tensor->shape[dim] / block : tensor->shape[dim];
        bool row = i == 0 && (layout == TEST_ROWS || layout == TEST_ROWS_REPEAT);
        bool keep = layout <= TEST_ALIGNED || row;
        bool repeats = layout == TEST_REPEAT || (layout == TEST_ROWS_REPEAT && !row);

        if (repeats && test_random_one_in(random, 3)) {
            tensor->stride[dim] = 0;
            continue;
        }
        if (!keep && test_random_one_in(random, 2))
            next += unit * (1 + test_random_below(random, 5));
        tensor->stride[dim] = next;
        end += (size - 1) * next;
        next *= size;
    }
    return end;
}

void test_tensor_init(test_tensor *tensor, test_random *random, const char *name, mica_dtype dtype,
                      uint32_t ndim, const uint64_t *shape, test_layout layout)
{
    uint64_t unit = oracle_block_bytes(dtype);
    uint64_t step = layout == TEST_ALIGNED ? 16 : oracle_is_block(dtype) ? 4 : unit;
    uint64_t length;

    memset(tensor, 0, sizeof *tensor);
    tensor->name = name;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    tensor->count = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        tensor->shape[i] = shape[i];
        tensor->count *= shape[i];
    }
    length = lay_out(tensor, random, layout);
    tensor->offset = GUARD + step * test_random_below(random, 16);
    tensor->bytes = tensor->offset + length + GUARD + test_random_below(random, 16);
    tensor->walled = layout != TEST_ALIGNED && ((tensor->offset / step ^ tensor->count) & 1) != 0;
    if (tensor->walled)
        tensor->bytes = tensor->offset + length;
    tensor->image = test_alloc(tensor->bytes, 1);
    tensor->after = test_alloc(tensor->bytes, 1);
    for (uint64_t i = 0; i < tensor->bytes; i++)
        tensor->image[i] = sentinel(i);
    for (uint64_t i = 0; i < tensor->count; i += oracle_block_values(dtype))
        memset(tensor->image + test_tensor_place(tensor, i), 0xff, unit);
}

void test_tensor_free(test_tensor *tensor)
{
    test_tensor_unload(tensor);
    free(tensor->image);
    free(tensor->after);
    memset(tensor, 0, sizeof *tensor);
}

uint64_t test_tensor_place(const test_tensor *tensor, uint64_t index)
{
    uint64_t place = tensor->offset, block = oracle_block_values(tensor->dtype);

    for (uint32_t i = tensor->ndim; i-- > 0; block = 1) {
        place += index % tensor->shape[i] / block * tensor->stride[i];
        index /= tensor->shape[i];
    }
    return place;
}

void test_tensor_set(test_tensor *tensor, uint64_t index, double value)
{
    oracle_put(tensor->dtype, value, tensor->image + test_tensor_place(tensor, index));
}

double test_tensor_get(const test_tensor *tensor, uint64_t index)
{
    return oracle_get(tensor->dtype, tensor->image + test_tensor_place(tensor, index));
}

void test_tensor_normal(test_tensor *tensor, test_random *random, double spread)
{
    for (uint64_t i = 0; i < tensor->count; i++)
        test_tensor_set(tensor, i, spread * test_random_normal(random));
}

void test_tensor_uniform(test_tensor *tensor, test_random *random, double low, double high)
{
    for (uint64_t i = 0; i < tensor->count; i++)
        test_tensor_set(tensor, i, test_random_uniform(random, low, high));
}

void test_tensor_indices(test_tensor *tensor, test_random *random, uint64_t below)
{
    for (uint64_t i = 0; i < tensor->count; i++)
        test_tensor_set(tensor, i, (double)test_random_below(random, below));
}

void test_tensor_bytes(test_tensor *tensor, test_random *random)
{
    for (uint64_t i = 0; i < tensor->count; i++) {
        uint8_t *element = tensor->image + test_tensor_place(tensor, i);

        for (uint64_t b = 0; b < oracle_block_bytes(tensor->dtype); b++)
            element[b] = (uint8_t)test_random_next(random);
    }
}

/* Where a block keeps its scales, of which type, and how large they are for values of about 1. Scales of u8 are codes of
 * a small float. */
static const struct {
    mica_dtype dtype, kind;
    size_t offset;
    double low, high;
} block_scales[] = {
    {MICA_DTYPE_Q4_0, MICA_DTYPE_F16, 0, 0.05, 0.2},
    {MICA_DTYPE_Q4_1, MICA_DTYPE_F16, 0, 0.05, 0.2},
    {MICA_DTYPE_Q4_1, MICA_DTYPE_F16, 2, -1, 0.2},
    {MICA_DTYPE_Q5_0, MICA_DTYPE_F16, 0, 0.02, 0.1},
    {MICA_DTYPE_Q5_1, MICA_DTYPE_F16, 0, 0.02, 0.1},
    {MICA_DTYPE_Q5_1, MICA_DTYPE_F16, 2, -1, 0.2},
    {MICA_DTYPE_Q8_0, MICA_DTYPE_F16, 0, 0.005, 0.02},
    {MICA_DTYPE_Q8_1, MICA_DTYPE_F16, 0, 0.005, 0.02},
    {MICA_DTYPE_Q2_K, MICA_DTYPE_F16, 80, 0.02, 0.05},
    {MICA_DTYPE_Q2_K, MICA_DTYPE_F16, 82, 0.02, 0.1},
    {MICA_DTYPE_Q3_K, MICA_DTYPE_F16, 108, 0.005, 0.02},
    {MICA_DTYPE_Q4_K, MICA_DTYPE_F16, 0, 0.001, 0.005},
    {MICA_DTYPE_Q4_K, MICA_DTYPE_F16, 2, 0.01, 0.04},
    {MICA_DTYPE_Q5_K, MICA_DTYPE_F16, 0, 0.0005, 0.002},
    {MICA_DTYPE_Q5_K, MICA_DTYPE_F16, 2, 0.01, 0.04},
    {MICA_DTYPE_Q6_K, MICA_DTYPE_F16, 208, 0.0002, 0.001},
    {MICA_DTYPE_Q8_K, MICA_DTYPE_F32, 0, 0.005, 0.02},
    {MICA_DTYPE_IQ1_S, MICA_DTYPE_F16, 0, 0.05, 0.2},
    {MICA_DTYPE_IQ1_M, MICA_DTYPE_U8, 55, 0x20, 0x30}, /* the upper bits of the scale are the upper bits here */
    {MICA_DTYPE_IQ2_XXS, MICA_DTYPE_F16, 0, 0.005, 0.02},
    {MICA_DTYPE_IQ2_XS, MICA_DTYPE_F16, 0, 0.005, 0.02},
    {MICA_DTYPE_IQ2_S, MICA_DTYPE_F16, 0, 0.005, 0.02},
    {MICA_DTYPE_IQ3_XXS, MICA_DTYPE_F16, 0, 0.002, 0.01},
    {MICA_DTYPE_IQ3_S, MICA_DTYPE_F16, 0, 0.002, 0.01},
    {MICA_DTYPE_IQ4_NL, MICA_DTYPE_F16, 0, 0.005, 0.02},
    {MICA_DTYPE_IQ4_XS, MICA_DTYPE_F16, 0, 0.0003, 0.001},
    {MICA_DTYPE_TQ1_0, MICA_DTYPE_F16, 52, 0.5, 2},
    {MICA_DTYPE_TQ2_0, MICA_DTYPE_F16, 64, 0.5, 2},
    {MICA_DTYPE_MXFP4, MICA_DTYPE_U8, 0, 120, 128},
    {MICA_DTYPE_TURBO2, MICA_DTYPE_F16, 0, 0.5, 2},
    {MICA_DTYPE_TURBO2_5, MICA_DTYPE_F16, 0, 0.5, 2},
    {MICA_DTYPE_TURBO3, MICA_DTYPE_F16, 0, 0.5, 2},
    {MICA_DTYPE_TURBO4, MICA_DTYPE_F16, 0, 0.5, 2},
    {MICA_DTYPE_TURBO5, MICA_DTYPE_F16, 0, 0.5, 2},
    {MICA_DTYPE_TURBO6, MICA_DTYPE_F16, 0, 0.5, 2},
    {MICA_DTYPE_TURBO8, MICA_DTYPE_F16, 0, 0.5, 2},
    {MICA_DTYPE_NVFP4, MICA_DTYPE_U8, 0, 0x18, 0x38},
    {MICA_DTYPE_NVFP4, MICA_DTYPE_U8, 1, 0x18, 0x38},
    {MICA_DTYPE_NVFP4, MICA_DTYPE_U8, 2, 0x01, 0x38},
    {MICA_DTYPE_NVFP4, MICA_DTYPE_U8, 3, 0x18, 0x38},
};

/* Random codes everywhere, NaN left out, then scales that keep the values in bounds. */
void test_blocks_fill(mica_dtype dtype, uint8_t *data, uint64_t blocks, test_random *random, double spread)
{
    size_t bytes = oracle_block_bytes(dtype);
    uint64_t total = blocks * bytes;

    for (uint64_t i = 0; i < total; i += 8) {
        uint64_t word = test_random_next(random);

        memcpy(data + i, &word, total - i < 8 ? total - i : 8);
    }
    for (uint64_t i = 0; dtype == MICA_DTYPE_F8_E4M3 && i < total; i++)
        data[i] ^= (data[i] & 127) == 127;
    for (size_t s = 0; s < sizeof block_scales / sizeof *block_scales; s++) {
        if (block_scales[s].dtype != dtype)
            continue;
        for (uint64_t b = 0; b < blocks; b++) {
            double scale = test_random_uniform(random, block_scales[s].low, block_scales[s].high);

            if (block_scales[s].kind != MICA_DTYPE_U8)
                scale *= spread;
            oracle_put(block_scales[s].kind, scale, data + b * bytes + block_scales[s].offset);
        }
    }
}

void test_tensor_blocks(test_tensor *tensor, test_random *random)
{
    uint64_t row = tensor->shape[tensor->ndim - 1];
    double spread = test_random_one_in(random, 2) ? -1 : 1;

    for (uint64_t i = 0; i < tensor->count; i += row)
        test_blocks_fill(tensor->dtype, tensor->image + test_tensor_place(tensor, i),
                         row / oracle_block_values(tensor->dtype), random, spread);
}

double *test_tensor_values(const test_tensor *tensor, bool after)
{
    const uint8_t *from = after ? tensor->after : tensor->image;
    double *values = test_alloc(tensor->count, sizeof *values), magnitude[256];
    uint64_t block = oracle_block_values(tensor->dtype);

    for (uint64_t i = 0; block > 1 && !oracle_has_scales(tensor->dtype) && i < tensor->count; i += block)
        oracle_decode_row(tensor->dtype, from + test_tensor_place(tensor, i), block, NULL, values + i,
                          magnitude);
    for (uint64_t i = 0; block == 1 && i < tensor->count; i++)
        values[i] = oracle_get(tensor->dtype, from + test_tensor_place(tensor, i));
    return values;
}

typedef struct walled {
    void *pages;
    size_t bytes; /* with the page behind them */
} walled;

static void drop_walled(void *context, void *pointer)
{
    walled *memory = context;

    (void)pointer;
    munmap(memory->pages, memory->bytes);
    free(memory);
}

/* Memory that ends at a page which nobody may touch; UNSUPPORTED where the device does not use the host's. */
static mica_status alloc_walled(test_tensor *tensor, mica_device *device)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (tensor->bytes + page - 1) / page * page;
    const mica_buffer_desc desc = {.dtype = MICA_DTYPE_U8, .ndim = 1, .shape = {tensor->bytes}};
    walled *memory = test_alloc(1, sizeof *memory);
    mica_status status;

    memory->bytes = used + page;
    memory->pages = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory->pages == MAP_FAILED || mprotect((uint8_t *)memory->pages + used, page, PROT_NONE) != 0)
        abort();
    status = mica_buffer_import(device, (uint8_t *)memory->pages + used - tensor->bytes, tensor->bytes, &desc,
                                drop_walled, memory, &tensor->whole);
    if (status != MICA_OK)
        drop_walled(memory, NULL);
    return status;
}

mica_status test_tensor_upload(test_tensor *tensor, mica_device *device)
{
    mica_status status = tensor->walled ? alloc_walled(tensor, device) : MICA_ERR_UNSUPPORTED;

    if (status == MICA_ERR_UNSUPPORTED)
        status = mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &tensor->bytes, &tensor->whole);
    if (status == MICA_OK)
        status = mica_buffer_view(tensor->whole, tensor->dtype, tensor->ndim, tensor->shape, tensor->stride,
                                  tensor->offset, &tensor->view);
    return status == MICA_OK ? test_tensor_restore(tensor) : status;
}

mica_status test_tensor_restore(test_tensor *tensor)
{
    return mica_buffer_write(tensor->whole, 0, tensor->image, tensor->bytes);
}

mica_status test_tensor_fetch(test_tensor *tensor)
{
    return mica_buffer_read(tensor->whole, 0, tensor->after, tensor->bytes);
}

void test_tensor_unload(test_tensor *tensor)
{
    mica_buffer_release(tensor->view);
    mica_buffer_release(tensor->whole);
    tensor->view = tensor->whole = NULL;
}

uint64_t test_tensor_stray(const test_tensor *tensor, bool written)
{
    const uint64_t unit = oracle_block_bytes(tensor->dtype);
    uint8_t *after = tensor->after;
    uint64_t stray = 0;

    if (written) { /* what came out, its elements put back as they were */
        after = test_alloc(tensor->bytes, 1);
        memcpy(after, tensor->after, tensor->bytes);
        for (uint64_t i = 0; i < tensor->count; i += oracle_block_values(tensor->dtype)) {
            const uint64_t place = test_tensor_place(tensor, i);
            memcpy(after + place, tensor->image + place, unit);
        }
    }
    if (memcmp(after, tensor->image, tensor->bytes) == 0)
        stray = UINT64_MAX;
    while (stray < tensor->bytes && after[stray] == tensor->image[stray])
        stray++;
    if (written)
        free(after);
    return stray;
}
