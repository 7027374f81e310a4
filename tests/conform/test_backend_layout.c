/*
 * test_backend_layout.c - what is made of copies, regions and views at the shapes of llama.cpp's test-backend-ops: joining along every dimension, writing into
 * a part, triangles, ranges, constants. Bit for bit, on every device that there is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/each_device.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_I8,
                                   MICA_DTYPE_I16, MICA_DTYPE_I32, MICA_DTYPE_I64};
enum { TYPES = sizeof types / sizeof *types };

/* A buffer of random bytes with `view` dimensions of storage in another order, and its elements in the order of its shape. */
typedef struct filled {
    mica_buffer *storage, *view;
    uint8_t *bytes;
} filled;

static uint64_t count_of(const uint64_t *shape)
{
    return shape[0] * shape[1] * shape[2] * shape[3];
}

/* Permuted: the storage has the two first dimensions exchanged. */
static filled made(mica_device *device, test_random *random, mica_dtype dtype, const uint64_t *shape,
                   bool permuted)
{
    static const uint32_t order[4] = {1, 0, 2, 3};
    const uint64_t unit = mica_dtype_block_bytes(dtype), turned[4] = {shape[1], shape[0], shape[2], shape[3]},
                   row = shape[2] * shape[3] * unit;
    filled f = {.bytes = test_alloc(count_of(shape), unit)};
    uint8_t *image = test_alloc(count_of(shape), unit);

    for (uint64_t i = 0; i < count_of(shape) * unit; i++)
        image[i] = (uint8_t)test_random_next(random);
    must(mica_buffer_alloc(device, dtype, 4, permuted ? turned : shape, &f.storage));
    must(mica_buffer_write(f.storage, 0, image, count_of(shape) * unit));
    if (permuted)
        must(mica_buffer_permute(f.storage, order, &f.view));
    else
        f.view = mica_buffer_retain(f.storage);
    for (uint64_t a = 0; a < shape[0]; a++)
        for (uint64_t b = 0; b < shape[1]; b++)
            memcpy(f.bytes + (a * shape[1] + b) * row,
                   image + (permuted ? b * shape[0] + a : a * shape[1] + b) * row, row);
    free(image);
    return f;
}

static void drop(filled *f)
{
    mica_buffer_release(f->storage);
    mica_buffer_release(f->view);
    free(f->bytes);
}

/* Parts of `from` behind each other along `axis` of y, the first at `at`. */
static void place(uint8_t *y, const uint64_t *whole, uint32_t axis, uint64_t at, const uint8_t *from,
                  uint64_t size, uint64_t unit)
{
    uint64_t outer = 1, inner = unit;

    for (uint32_t d = 0; d < axis; d++)
        outer *= whole[d];
    for (uint32_t d = axis + 1; d < 4; d++)
        inner *= whole[d];
    for (uint64_t o = 0; o < outer; o++)
        memcpy(y + (o * whole[axis] + at) * inner, from + o * size * inner, size * inner);
}

static void check_concat(mica_device *device, mica_dtype dtype, uint32_t axis, uint32_t views)
{
    test_random random = test_random_from(axis * 4 + views);
    uint64_t first[4] = {14, 13, 12, 11}, second[4] = {14, 13, 12, 11}, whole[4] = {14, 13, 12, 11};
    const uint64_t unit = mica_dtype_block_bytes(dtype);

    second[axis] = 7;
    whole[axis] += 7;
    filled a = made(device, &random, dtype, first, (views & 1) != 0),
           b = made(device, &random, dtype, second, (views & 2) != 0);
    uint8_t *want = test_alloc(count_of(whole), unit), *got = test_alloc(count_of(whole), unit);
    mica_buffer *y;

    must(mica_buffer_alloc(device, dtype, 4, whole, &y));
    must(mica_concat(encoder, (mica_buffer *const[]){a.view, b.view}, 2, axis, y));
    end();
    must(mica_buffer_read(y, 0, got, count_of(whole) * unit));
    place(want, whole, axis, 0, a.bytes, first[axis], unit);
    place(want, whole, axis, first[axis], b.bytes, 7, unit);
    assert_memory_equal(got, want, count_of(whole) * unit);
    mica_buffer_release(y);
    drop(&a);
    drop(&b);
    free(want);
    free(got);
}

static void test_concat(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TYPES; t++)
        for (uint32_t axis = 0; axis < 4; axis++)
            for (uint32_t views = 0; views < 4; views++)
                ON_EACH(device) check_concat(device, types[t], axis, views);
}

/* A part of the destination takes the source, the rest stays. */
static void test_set(void **state)
{
    const uint64_t whole[4] = {3, 4, 5, 6};

    (void)state;
    for (uint32_t axis = 0; axis < 3; axis++)
        ON_EACH(device)
        {
            test_random random = test_random_from(axis);
            uint64_t part[4] = {3, 4, 5, 6};
            uint8_t got[360 * 4];

            part[axis]--;
            filled y = made(device, &random, MICA_DTYPE_I32, whole, false),
                   x = made(device, &random, MICA_DTYPE_I32, part, true);
            mica_buffer *slice;

            must(mica_buffer_slice(y.view, axis, 1, part[axis], &slice));
            must(mica_copy(encoder, x.view, slice));
            end();
            must(mica_buffer_read(y.view, 0, got, sizeof got));
            place(y.bytes, whole, axis, 1, x.bytes, part[axis], 4);
            assert_memory_equal(got, y.bytes, sizeof got);
            mica_buffer_release(slice);
            drop(&x);
            drop(&y);
        }
}

/* With and without the diagonal, of either half. */
static void test_triangles(void **state)
{
    enum { ALL = 12 * 10 * 10 };
    static const int32_t diagonals[] = {0, -1, 1, 5};
    float x[ALL], y[ALL];

    (void)state;
    for (int i = 0; i < ALL; i++)
        x[i] = (float)(i + 1);
    for (int k = 0; k < 8; k++)
        ON_EACH(device)
        {
            mica_buffer *from, *to;

            must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, SHAPE(3, 4, 10, 10), &from));
            must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, SHAPE(3, 4, 10, 10), &to));
            must(mica_buffer_write(from, 0, x, sizeof x));
            must((k < 4 ? mica_tril : mica_triu)(encoder, from, diagonals[k % 4], to));
            end();
            must(mica_buffer_read(to, 0, y, sizeof y));
            for (int i = 0; i < ALL; i++) {
                const int off = i % 10 - i / 10 % 10 - diagonals[k % 4];

                assert_true(y[i] == ((k < 4 ? off <= 0 : off >= 0) ? x[i] : 0));
            }
            mica_buffer_release(from);
            mica_buffer_release(to);
        }
}

static void test_ranges(void **state)
{
    const uint64_t million = 1048576, shape[4] = {3, 11, 207, 303};
    float *y = test_alloc(count_of(shape), sizeof *y);

    (void)state;
    ON_EACH(device)
    {
        mica_buffer *range, *constant;

        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &million, &range));
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, shape, &constant));
        must(mica_arange(encoder, 0, 1, range));
        must(mica_fill(encoder, -152, constant));
        end();
        must(mica_buffer_read(range, 0, y, million * sizeof *y));
        for (uint64_t i = 0; i < million; i++)
            assert_true(y[i] == (float)i);
        must(mica_buffer_read(constant, 0, y, count_of(shape) * sizeof *y));
        for (uint64_t i = 0; i < count_of(shape); i++)
            assert_true(y[i] == -152);
        mica_buffer_release(range);
        mica_buffer_release(constant);
    }
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_concat), cmocka_unit_test(test_set),
                                       cmocka_unit_test(test_triangles), cmocka_unit_test(test_ranges)};

    return cmocka_run_group_tests_name("backend_layout", tests, open_devices, close_devices);
}
