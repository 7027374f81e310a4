/*
 * test_layout.c - what is made of pads, copies and regions: joined, repeated, rolled, turned, tiled, cast, one-hot, triangles, ranges; and the
 * ends of pad, gather and scatter that the conformance table does not draw. On every device that there is.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "oracle/oracle_number.h"
#include "support/each_device.h"
#include "support/status.h"
#include "support/tensor.h"

enum { ELEMENTS = 4096 };

static mica_buffer *empty(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

/* Element i is first + i. */
static mica_buffer *counting(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                             double first)
{
    mica_buffer *buffer = empty(device, dtype, ndim, shape);
    uint64_t count = 1, bytes = oracle_block_bytes(dtype);
    uint8_t element[8];

    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    for (uint64_t i = 0; i < count; i++) {
        oracle_put(dtype, first + (double)i, element);
        must(mica_buffer_write(buffer, i * bytes, element, bytes));
    }
    return buffer;
}

static void holds(mica_buffer *buffer, const double *wanted, uint64_t count)
{
    mica_buffer_info info;
    uint8_t bytes[8 * ELEMENTS];

    must(mica_buffer_get_info(buffer, &info));
    assert_int_equal(info.element_count, count);
    must(mica_buffer_read(buffer, 0, bytes, info.byte_length));
    for (uint64_t i = 0; i < count; i++) {
        const double got = oracle_get(info.dtype, bytes + i * oracle_block_bytes(info.dtype));

        if (got != wanted[i] && !(isnan(got) && isnan(wanted[i])))
            fail_msg("%s: element %llu is %g, not %g", mica_dtype_name(info.dtype), (unsigned long long)i,
                     got, wanted[i]);
    }
    mica_buffer_release(buffer);
}
#define HOLDS(buffer, ...) \
    holds(buffer, (double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double))

/* ---- concat ---- */

enum { PARTS = 100 };

/* Parts of 0 to 3 columns, of three types; none waits for another. */
static void test_concat(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *part[PARTS];
        double wanted[ELEMENTS] = {0};
        uint64_t columns = 0, before = 0;
        mica_encoder_stats stats;

        for (uint32_t i = 0; i < PARTS; i++) {
            const mica_dtype dtype = i % 3 == 0   ? MICA_DTYPE_F32
                                     : i % 3 == 1 ? MICA_DTYPE_F16
                                                  : MICA_DTYPE_BF16;
            part[i] = counting(device, dtype, 3, SHAPE(2, i % 4, 3), i);
            columns += i % 4;
        }
        mica_buffer *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(2, columns, 3));
        must(mica_concat(encoder, part, PARTS, 1, y));
        must(mica_encoder_get_stats(encoder, &stats));
        assert_int_equal(stats.records, PARTS - PARTS / 4);
        assert_int_equal(stats.barriers, 0);
        end();
        for (uint32_t i = 0; i < PARTS; before += i++ % 4) {
            for (uint64_t e = 0; e < 2 * (i % 4) * 3; e++) {
                const uint64_t a = e / ((i % 4) * 3), rest = e % ((i % 4) * 3);
                wanted[(a * columns + before) * 3 + rest] = (double)(i + e);
            }
            mica_buffer_release(part[i]);
        }
        holds(y, wanted, 2 * columns * 3);
    }
}

static void test_concat_refused(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *a = counting(device, MICA_DTYPE_F32, 2, SHAPE(2, 3), 0),
                    *b = counting(device, MICA_DTYPE_F32, 2, SHAPE(3, 3), 0),
                    *c = counting(device, MICA_DTYPE_I32, 2, SHAPE(2, 3), 0),
                    *y = empty(device, MICA_DTYPE_F32, 2, SHAPE(2, 6)), *in = NULL;
        mica_encoder_stats stats;
        const mica_status bad = MICA_ERR_INVALID_ARGUMENT;

        must(mica_buffer_slice(y, 1, 3, 3, &in));
        refused(mica_concat(encoder, (mica_buffer *[]){a, b}, 2, 1, y), bad, "inputs[1] is 3");
        refused(mica_concat(encoder, (mica_buffer *[]){a, c}, 2, 1, y), bad, "inputs[1] is i32");
        refused(mica_concat(encoder, (mica_buffer *[]){a, NULL}, 2, 1, y), bad, "inputs[1] is NULL");
        refused(mica_concat(encoder, (mica_buffer *[]){a, in}, 2, 1, y), bad, "overlaps inputs[1]");
        refused(mica_concat(encoder, (mica_buffer *[]){a, a, a}, 3, 1, y), bad, "inputs[2]");
        refused(mica_concat(encoder, (mica_buffer *[]){a}, 1, 1, y), bad, "the inputs have 3");
        refused(mica_concat(encoder, (mica_buffer *[]){a, a}, 2, 2, y), bad, "axis");
        refused(mica_concat(NULL, (mica_buffer *[]){a, a}, 2, 1, y), bad, "encoder");
        must(mica_encoder_get_stats(encoder, &stats));
        assert_int_equal(stats.records, 0);
        end();
        mica_buffer_release(a);
        mica_buffer_release(b);
        mica_buffer_release(c);
        mica_buffer_release(in);
        mica_buffer_release(y);
    }
}

/* ---- repeat, roll, flip, tile ---- */

static void test_moves(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x = counting(device, MICA_DTYPE_I16, 2, SHAPE(2, 3), 1), *y[9];

        for (int i = 0; i < 9; i++)
            y[i] = empty(device, MICA_DTYPE_I16, 2,
                         i == 0 || i == 7 ? SHAPE(2, 6)
                         : i == 1         ? SHAPE(4, 3)
                                          : SHAPE(2, 3));
        must(mica_repeat(encoder, x, 1, y[0]));
        must(mica_repeat(encoder, x, 0, y[1]));
        must(mica_roll(encoder, x, 1, 1, y[2]));
        must(mica_roll(encoder, x, 1, -7, y[3]));
        must(mica_flip(encoder, x, 1, y[4]));
        must(mica_flip(encoder, x, 3, y[5]));
        must(mica_roll(encoder, x, 0, INT64_MIN, y[6]));
        must(mica_tile(encoder, x, y[7]));
        must(mica_flip(encoder, x, 0, y[8]));
        refused(mica_flip(encoder, x, 4, y[8]), MICA_ERR_INVALID_ARGUMENT, "axes");
        refused(mica_roll(encoder, x, 2, 1, y[8]), MICA_ERR_INVALID_ARGUMENT, "axis");
        refused(mica_tile(encoder, y[0], y[8]), MICA_ERR_INVALID_ARGUMENT, "no multiple");
        refused(mica_repeat(encoder, y[0], 1, y[8]), MICA_ERR_INVALID_ARGUMENT, "shape[1]");
        end();
        HOLDS(y[0], 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6);
        HOLDS(y[1], 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6);
        HOLDS(y[2], 3, 1, 2, 6, 4, 5);
        HOLDS(y[3], 2, 3, 1, 5, 6, 4);
        HOLDS(y[4], 4, 5, 6, 1, 2, 3);
        HOLDS(y[5], 6, 5, 4, 3, 2, 1);
        HOLDS(y[6], 1, 2, 3, 4, 5, 6);
        HOLDS(y[7], 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6);
        HOLDS(y[8], 1, 2, 3, 4, 5, 6);
        mica_buffer_release(x);
    }
}

/* ---- regions ---- */

static void test_cast(void **state)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_F64,
                                       MICA_DTYPE_I8,  MICA_DTYPE_I16, MICA_DTYPE_I32,  MICA_DTYPE_I64,
                                       MICA_DTYPE_U8,  MICA_DTYPE_U16, MICA_DTYPE_U32,  MICA_DTYPE_U64};
    enum { TYPES = sizeof types / sizeof *types };
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x[TYPES], *y[TYPES][TYPES];

        for (uint32_t i = 0; i < TYPES; i++) {
            x[i] = counting(device, types[i], 1, SHAPE(100), 0);
            for (uint32_t j = 0; j < TYPES; j++) {
                y[i][j] = empty(device, types[j], 1, SHAPE(100));
                must(mica_cast(encoder, x[i], y[i][j]));
            }
        }
        end();
        for (uint32_t i = 0; i < TYPES; i++) {
            double wanted[100];

            for (uint32_t k = 0; k < 100; k++)
                wanted[k] = k;
            for (uint32_t j = 0; j < TYPES; j++)
                holds(y[i][j], wanted, 100);
            mica_buffer_release(x[i]);
        }
    }
}

static void test_cast_edges(void **state)
{
    static const float values[6] = {-1.5f, 300.75f, 3e9f, -3e9f, NAN, 0.25f}, pair[4] = {1.5f, -2, 3, 4};
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x = empty(device, MICA_DTYPE_F32, 1, SHAPE(6)),
                    *z = empty(device, MICA_DTYPE_C64, 1, SHAPE(2));
        mica_buffer *i32 = empty(device, MICA_DTYPE_I32, 1, SHAPE(6)),
                    *u8 = empty(device, MICA_DTYPE_U8, 1, SHAPE(6)),
                    *truth = empty(device, MICA_DTYPE_BOOL, 1, SHAPE(6)),
                    *real = empty(device, MICA_DTYPE_I32, 1, SHAPE(2)),
                    *other = empty(device, MICA_DTYPE_C64, 1, SHAPE(2)),
                    *wide = empty(device, MICA_DTYPE_C64, 1, SHAPE(6)),
                    *blocks = empty(device, MICA_DTYPE_Q8_0, 1, SHAPE(32));
        float got[12];

        must(mica_buffer_write(x, 0, values, sizeof values));
        must(mica_buffer_write(z, 0, pair, sizeof pair));
        must(mica_cast(encoder, x, i32));
        must(mica_cast(encoder, x, u8));
        must(mica_cast(encoder, x, truth));
        must(mica_cast(encoder, z, real));
        must(mica_cast(encoder, z, other));
        must(mica_cast(encoder, x, wide));
        refused(mica_cast(encoder, x, blocks), MICA_ERR_INVALID_ARGUMENT, "y is q8_0");
        refused(mica_cast(encoder, x, NULL), MICA_ERR_INVALID_ARGUMENT, "y is NULL");
        end();
        must(mica_buffer_read(other, 0, got, sizeof pair));
        assert_memory_equal(got, pair, sizeof pair);
        must(mica_buffer_read(wide, 0, got, sizeof got));
        for (uint32_t k = 0; k < 6; k++)
            assert_true(got[2 * k + 1] == 0 && (got[2 * k] == values[k] || k == 4));
        HOLDS(i32, -1, 300, 2147483647, -2147483648.0, 0, 0);
        HOLDS(u8, 0, 44, 0, 0, 0, 0); /* as u32, then its low byte: 3e9 is 0xb2d05e00 */
        HOLDS(truth, 1, 1, 1, 1, 1, 1);
        HOLDS(real, 1, 3);
        mica_buffer_release(x);
        mica_buffer_release(z);
        mica_buffer_release(other);
        mica_buffer_release(wide);
        mica_buffer_release(blocks);
    }
}

static void test_indices(void **state)
{
    static const int32_t some[3] = {2, -1, 0};
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *ids = empty(device, MICA_DTYPE_I32, 1, SHAPE(3)),
                    *x = counting(device, MICA_DTYPE_F16, 2, SHAPE(2, 3), 1);
        mica_buffer *hot = empty(device, MICA_DTYPE_BF16, 2, SHAPE(3, 3)),
                    *low = empty(device, MICA_DTYPE_F16, 2, SHAPE(2, 3)),
                    *high = empty(device, MICA_DTYPE_I32, 2, SHAPE(2, 3)),
                    *range = empty(device, MICA_DTYPE_F32, 2, SHAPE(2, 3)),
                    *bytes = empty(device, MICA_DTYPE_U8, 1, SHAPE(4)),
                    *row = empty(device, MICA_DTYPE_F32, 1, SHAPE(3));

        must(mica_buffer_write(ids, 0, some, sizeof some));
        must(mica_one_hot(encoder, ids, hot));
        must(mica_tril(encoder, x, 0, low));
        must(mica_triu(encoder, x, 1, high));
        must(mica_arange(encoder, 0.5, -0.25, range));
        must(mica_arange(encoder, 254, 1, bytes));
        refused(mica_arange(encoder, 0.5, 1, bytes), MICA_ERR_INVALID_ARGUMENT, "start");
        refused(mica_tril(encoder, row, 0, row), MICA_ERR_INVALID_ARGUMENT, "axis");
        refused(mica_one_hot(encoder, x, hot), MICA_ERR_INVALID_ARGUMENT, "ids");
        refused(mica_one_hot(encoder, ids, row), MICA_ERR_INVALID_ARGUMENT, "one dimension more");
        end();
        HOLDS(hot, 0, 0, 1, 0, 0, 0, 1, 0, 0);
        HOLDS(low, 1, 0, 0, 4, 5, 0);
        HOLDS(high, 0, 2, 3, 0, 0, 6);
        HOLDS(range, 0.5, 0.25, 0, 0.5, 0.25, 0);
        HOLDS(bytes, 254, 255, 0, 1);
        mica_buffer_release(ids);
        mica_buffer_release(x);
        mica_buffer_release(row);
    }
}

/* ---- pad, gather, scatter ---- */

static void test_pad_edges(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *none = empty(device, MICA_DTYPE_F32, 2, SHAPE(2, 0)),
                    *y = empty(device, MICA_DTYPE_F32, 2, SHAPE(2, 3)),
                    *less = empty(device, MICA_DTYPE_F32, 2, SHAPE(0, 1)),
                    *tiny = empty(device, MICA_DTYPE_F8_E4M3, 1, SHAPE(3)),
                    *whole = empty(device, MICA_DTYPE_I8, 1, SHAPE(3));
        mica_pad_params p = {.high = {0, 3}, .value = 7.5};
        mica_encoder_stats stats;

        must(mica_pad(encoder, none, &p, y));
        p.mode = MICA_PAD_EDGE;
        refused(mica_pad(encoder, none, &p, y), MICA_ERR_INVALID_ARGUMENT, "shape[1] is 0");
        p = (mica_pad_params){.low = {-1, -1}, .high = {-1, -1}};
        must(mica_pad(encoder, y, &p, less));
        p.high[0] = -2;
        refused(mica_pad(encoder, y, &p, less), MICA_ERR_INVALID_ARGUMENT, "less than nothing");
        p = (mica_pad_params){.value = 1};
        refused(mica_pad(encoder, tiny, &p, tiny), MICA_ERR_INVALID_ARGUMENT, "value");
        p.value = 200;
        refused(mica_pad(encoder, whole, &p, whole), MICA_ERR_INVALID_ARGUMENT, "value");
        p = (mica_pad_params){.low = {0, 0, 1}};
        refused(mica_pad(encoder, none, &p, y), MICA_ERR_INVALID_ARGUMENT, "dimension 2");
        p = (mica_pad_params){.mode = 5};
        refused(mica_pad(encoder, y, &p, y), MICA_ERR_INVALID_ARGUMENT, "mode");
        p = (mica_pad_params){.low = {INT64_MAX}};
        refused(mica_pad(encoder, y, &p, y), MICA_ERR_INVALID_ARGUMENT, "low[0]");
        must(mica_encoder_get_stats(encoder, &stats));
        assert_int_equal(stats.records, 1);
        end();
        HOLDS(y, 7.5, 7.5, 7.5, 7.5, 7.5, 7.5);
        mica_buffer_release(none);
        mica_buffer_release(less);
        mica_buffer_release(tiny);
        mica_buffer_release(whole);
    }
}

/* One place gets many small numbers after a large one: none may be lost. Integers wrap. Nothing to scatter is no error. */
static void test_scatter_sums(void **state)
{
    enum { MANY = 3000 };
    static float values[MANY];
    static const uint32_t words[3] = {0xffffffffu, 2, 5};
    (void)state;
    for (uint32_t i = 0; i < MANY; i++)
        values[i] = i == 0 ? 16777216.0f : 0.5f;
    ON_EACH(device)
    {
        mica_buffer *updates = empty(device, MICA_DTYPE_F32, 1, SHAPE(MANY)),
                    *ids = empty(device, MICA_DTYPE_U32, 1, SHAPE(MANY)),
                    *y = empty(device, MICA_DTYPE_F32, 1, SHAPE(2)),
                    *u32 = empty(device, MICA_DTYPE_U32, 1, SHAPE(3)),
                    *three = empty(device, MICA_DTYPE_U32, 1, SHAPE(3)),
                    *sum = empty(device, MICA_DTYPE_U32, 1, SHAPE(1)),
                    *none = empty(device, MICA_DTYPE_F32, 1, SHAPE(0)),
                    *no_ids = empty(device, MICA_DTYPE_U32, 1, SHAPE(0)),
                    *f8 = empty(device, MICA_DTYPE_F8_E4M3, 1, SHAPE(3));
        const mica_scatter_params add = {0, MICA_SCATTER_ADD}, axis = {1, 0}, mode = {0, 5};

        must(mica_buffer_write(updates, 0, values, sizeof values));
        must(mica_buffer_write(u32, 0, words, sizeof words));
        must(mica_scatter(encoder, updates, ids, &add, y));
        must(mica_scatter(encoder, u32, three, &add, sum));
        must(mica_scatter(encoder, none, no_ids, &add, y));
        refused(mica_scatter(encoder, f8, three, &add, f8), MICA_ERR_INVALID_ARGUMENT, "updates is f8_e4m3");
        refused(mica_scatter(encoder, u32, three, &axis, sum), MICA_ERR_INVALID_ARGUMENT, "axis");
        refused(mica_scatter(encoder, u32, three, &mode, sum), MICA_ERR_INVALID_ARGUMENT, "mode");
        refused(mica_gather(encoder, u32, three, &(mica_gather_params){1}, sum), MICA_ERR_INVALID_ARGUMENT,
                "axis");
        end();
        HOLDS(y, 16777216.0 + 1500, 0);
        HOLDS(sum, 6);
        mica_buffer_release(updates);
        mica_buffer_release(ids);
        mica_buffer_release(u32);
        mica_buffer_release(three);
        mica_buffer_release(none);
        mica_buffer_release(no_ids);
        mica_buffer_release(f8);
    }
}

/* In double on the cpu; refused by its name elsewhere. */
static void test_scatter_double(void **state)
{
    static const double values[3] = {1, 0x1p-50, -3};
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *updates = empty(device, MICA_DTYPE_F64, 1, SHAPE(3)),
                    *ids = empty(device, MICA_DTYPE_I32, 1, SHAPE(3)),
                    *y = empty(device, MICA_DTYPE_F64, 1, SHAPE(2));
        const mica_scatter_params add = {0, MICA_SCATTER_ADD};

        must(mica_buffer_write(updates, 0, values, sizeof values));
        if (device == devices[0])
            must(mica_scatter(encoder, updates, ids, &add, y));
        else
            refused(mica_scatter(encoder, updates, ids, &add, y), MICA_ERR_UNSUPPORTED, "f64");
        if (device == devices[0]) {
            end();
            HOLDS(y, -2 + 0x1p-50, 0);
        } else {
            mica_encoder_release(encoder);
            mica_buffer_release(y);
        }
        mica_buffer_release(updates);
        mica_buffer_release(ids);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_concat),         cmocka_unit_test(test_concat_refused),
        cmocka_unit_test(test_moves),          cmocka_unit_test(test_cast),
        cmocka_unit_test(test_cast_edges),     cmocka_unit_test(test_indices),
        cmocka_unit_test(test_pad_edges),      cmocka_unit_test(test_scatter_sums),
        cmocka_unit_test(test_scatter_double),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
