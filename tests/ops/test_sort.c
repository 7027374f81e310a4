/*
 * test_sort.c - order, scans, padding and picking against numpy and PyTorch (tests/golden/sort.txt, which scripts/golden_sort.py makes) on every device;
 * and what these ops refuse.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "support/each_device.h"

enum { A = 4, B = 6, C = 7, ALL = A * B * C, MOST = 2048 };

/* As the script's values(). */
static void fill(uint64_t slot, uint64_t count, float *out)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t mixed = ((i + 1) * 2654435761u + slot * 40503) % 4294967296u;

        out[i] = slot == 1 && i % 11 == 3 ? NAN : (float)(mixed / 65536 % 33) / 2 - 8;
    }
}

static mica_buffer *given(mica_device *device, uint64_t slot, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;
    float values[MOST];
    uint64_t count = 1;

    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    fill(slot, count, values);
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, ndim, shape, &buffer));
    must(mica_buffer_write(buffer, 0, values, count * sizeof *values));
    return buffer;
}

/* As the script's indices(). */
static mica_buffer *picked(mica_device *device, uint64_t slot, uint64_t below, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;
    uint32_t ids[MOST];
    const uint64_t count = shape[0] * shape[1] * shape[2];

    for (uint64_t i = 0; i < count; i++)
        ids[i] = (uint32_t)(((i + 1) * 2654435761u + slot * 40503) % 4294967296u / 65536 % below);
    must(mica_buffer_alloc(device, MICA_DTYPE_U32, 3, shape, &buffer));
    must(mica_buffer_write(buffer, 0, ids, count * sizeof *ids));
    return buffer;
}

static mica_buffer *empty(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

/* Ends the encoder and compares what it wrote with the case: exact, but for `room` times the number. Releases the buffer. */
static void compare(const char *name, mica_buffer *got, double room)
{
    FILE *file = fopen("tests/golden/sort.txt", "rb");
    char word[64] = "";
    unsigned long long count = 0;
    mica_buffer_info info;
    float values[MOST];
    uint32_t ids[MOST];
    double want = 0;

    end();
    assert_non_null(file);
    while (fscanf(file, "%63s %llu", word, &count) == 2 && strcmp(word, name) != 0)
        for (; count > 0; count--)
            assert_int_equal(fscanf(file, "%lf", &want), 1);
    assert_string_equal(word, name);
    must(mica_buffer_get_info(got, &info));
    assert_int_equal(info.element_count, count);
    must(mica_buffer_read(got, 0, info.dtype == MICA_DTYPE_F32 ? (void *)values : ids, info.byte_length));
    for (uint64_t i = 0; i < count; i++) {
        const double is = info.dtype == MICA_DTYPE_F32 ? (double)values[i] : (double)ids[i];

        assert_int_equal(fscanf(file, "%lf", &want), 1);
        if (!(fabs(is - want) <= room * fabs(want)) && !(isnan(is) && isnan(want)))
            fail_msg("%s: result %llu is %.9g, wanted %.9g", name, (unsigned long long)i, is, want);
    }
    fclose(file);
    mica_buffer_release(got);
}

static void test_order(void **state)
{
    static const mica_sort_params down = {.descending = 1};

    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        mica_device *device = devices[d];

        if (device == NULL)
            continue;
        mica_buffer *x = given(device, 0, 3, SHAPE(A, B, C)), *holes = given(device, 1, 3, SHAPE(A, B, C)),
                    *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, B, C)),
                    *ids = empty(device, MICA_DTYPE_U32, 3, SHAPE(A, B, C));
        begin(device);
        must(mica_sort(encoder, holes, NULL, y));
        compare("sort", y, 0);
        begin(device);
        must(mica_argsort(encoder, x, NULL, ids));
        compare("argsort", ids, 0);
        ids = empty(device, MICA_DTYPE_U32, 3, SHAPE(A, B, C));
        begin(device);
        must(mica_argsort(encoder, x, &down, ids));
        compare("argsort_descending", ids, 0);
        y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, B, 3));
        begin(device);
        must(mica_top_k(encoder, x, y, NULL));
        compare("top_3", y, 0);
        for (int least = 0; least < 2; least++) {
            ids = empty(device, MICA_DTYPE_U32, 2, SHAPE(A, B));
            begin(device);
            must((least ? mica_argmin : mica_argmax)(encoder, x, ids));
            compare(least ? "argmin" : "argmax", ids, 0);
        }
        mica_buffer_release(x);
        mica_buffer_release(holes);
    }
}

/* Sums of halves are exact; a product of seven is rounded six times, and the file has 9 digits. */
static void test_scans(void **state)
{
    static const struct {
        const char *name;
        mica_scan_params params;
        uint64_t slot;
        double room;
    } cases[] = {{"cumsum", {MICA_SCAN_SUM, 0, 0}, 0, 0},
                 {"cumsum_reverse", {MICA_SCAN_SUM, 0, 1}, 0, 0},
                 {"cumsum_exclusive", {MICA_SCAN_SUM, 1, 0}, 0, 0},
                 {"cumprod", {MICA_SCAN_PROD, 0, 0}, 0, 6 * 0x1p-24 + 1e-9},
                 {"cummax", {MICA_SCAN_MAX, 0, 0}, 1, 0},
                 {"cummin", {MICA_SCAN_MIN, 0, 0}, 1, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ON_EACH(device)
        {
            mica_buffer *x = given(device, cases[i].slot, 3, SHAPE(A, B, C)),
                        *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, B, C));

            must(mica_scan(encoder, x, &cases[i].params, y));
            compare(cases[i].name, y, cases[i].room);
            mica_buffer_release(x);
        }
}

static void test_pads(void **state)
{
    static const char *const names[] = {"pad_constant", "pad_edge", "pad_reflect", "pad_symmetric",
                                        "pad_wrap"};

    (void)state;
    for (uint32_t mode = MICA_PAD_CONSTANT; mode <= MICA_PAD_WRAP; mode++)
        ON_EACH(device)
        {
            const mica_pad_params params = {.mode = mode, .low = {1, 3, 2}, .high = {2, 0, 4}};
            mica_buffer *x = given(device, 0, 3, SHAPE(A, B, C)),
                        *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A + 3, B + 3, C + 6));

            must(mica_pad(encoder, x, &params, y));
            compare(names[mode], y, 0);
            mica_buffer_release(x);
        }
    ON_EACH(device)
    {
        mica_buffer *x = given(device, 0, 3, SHAPE(A, B, C)),
                    *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, B, C));

        must(mica_roll(encoder, x, 1, -2, y));
        compare("roll", y, 0);
        begin(device);
        y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, B, C));
        must(mica_flip(encoder, x, 1u << 0 | 1u << 2, y));
        compare("flip", y, 0);
        begin(device);
        y = empty(device, MICA_DTYPE_F32, 3, SHAPE(2 * A, B, 3 * C));
        must(mica_tile(encoder, x, y));
        compare("tile", y, 0);
        mica_buffer_release(x);
    }
}

/* Sums of halves are exact; no place has more than nine factors. */
static void test_picks(void **state)
{
    static const struct {
        const char *name;
        uint32_t mode;
        double room;
    } cases[] = {{"scatter_add", MICA_SCATTER_ADD, 0},
                 {"scatter_multiply", MICA_SCATTER_MUL, 9 * 0x1p-24 + 1e-9},
                 {"scatter_maximum", MICA_SCATTER_MAX, 0},
                 {"scatter_minimum", MICA_SCATTER_MIN, 0}};

    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x = given(device, 0, 3, SHAPE(A, B, C)), *ids = picked(device, 2, B, SHAPE(A, 5, C)),
                    *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, 5, C));

        must(mica_gather(encoder, x, ids, &(mica_gather_params){.axis = 1}, y));
        compare("gather", y, 0);
        mica_buffer_release(x);
        mica_buffer_release(ids);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ON_EACH(device)
        {
            const mica_scatter_params params = {.axis = 1, .mode = cases[i].mode};
            mica_buffer *updates = given(device, 4, 3, SHAPE(A, 9, C)),
                        *ids = picked(device, 3, B, SHAPE(A, 9, C)), *y = given(device, 0, 3, SHAPE(A, B, C));

            must(mica_scatter(encoder, updates, ids, &params, y));
            compare(cases[i].name, y, cases[i].room);
            mica_buffer_release(updates);
            mica_buffer_release(ids);
        }
}

/* x where it is not below 3 in size, else 0. */
static void fill_sparse(float *out)
{
    fill(0, ALL, out);
    for (int i = 0; i < ALL; i++)
        out[i] = fabsf(out[i]) < 3 ? 0 : out[i];
}

static void test_coordinates(void **state)
{
    static const struct {
        const char *name;
        uint32_t mode;
        double room;
    } cases[] = {{"scatter_nd_set", MICA_SCATTER_SET, 0},
                 {"scatter_nd_add", MICA_SCATTER_ADD, 0},
                 {"scatter_nd_multiply", MICA_SCATTER_MUL, 9 * 0x1p-24 + 1e-9},
                 {"scatter_nd_maximum", MICA_SCATTER_MAX, 0},
                 {"scatter_nd_minimum", MICA_SCATTER_MIN, 0}};

    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x = given(device, 0, 3, SHAPE(A, B, C)), *ids = picked(device, 5, A, SHAPE(3, 5, 2)),
                    *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(3, 5, C));

        must(mica_gather_nd(encoder, x, ids, NULL, y));
        compare("gather_nd", y, 0);
        mica_buffer_release(ids);
        ids = picked(device, 6, B, SHAPE(A, 3, 1));
        y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, 3, C));
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_gather_nd(encoder, x, ids, &(mica_gather_nd_params){.batch_dims = 1}, y));
        compare("gather_nd_batch", y, 0);
        mica_buffer_release(x);
        mica_buffer_release(ids);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ON_EACH(device)
        {
            mica_buffer *updates = given(device, 7, 3, SHAPE(3, 5, C)),
                        *ids = picked(device, 5, A, SHAPE(3, 5, 2)), *y = given(device, 0, 3, SHAPE(A, B, C));

            must(mica_scatter_nd(encoder, updates, ids, &(mica_scatter_nd_params){.mode = cases[i].mode}, y));
            compare(cases[i].name, y, cases[i].room);
            mica_buffer_release(updates);
            mica_buffer_release(ids);
        }
}

static double product_of(mica_buffer *a, mica_buffer *b, int count)
{
    float x[MOST], y[MOST];
    double sum = 0;

    must(mica_buffer_read(a, 0, x, (size_t)count * sizeof *x));
    must(mica_buffer_read(b, 0, y, (size_t)count * sizeof *y));
    for (int i = 0; i < count; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Scattering what reaches what was gathered is the gradient: both products are the same number, of halves to the bit. */
static void test_gradient_of_places(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        static const float zeros[ALL];
        mica_buffer *x = given(device, 0, 3, SHAPE(A, B, C)), *ids = picked(device, 5, A, SHAPE(3, 5, 2)),
                    *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(3, 5, C)),
                    *dy = given(device, 7, 3, SHAPE(3, 5, C)),
                    *dx = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, B, C));
        const mica_scatter_nd_params add = {.mode = MICA_SCATTER_ADD};

        must(mica_buffer_write(dx, 0, zeros, sizeof zeros));
        must(mica_gather_nd(encoder, x, ids, NULL, y));
        must(mica_scatter_nd(encoder, dy, ids, &add, dx));
        end();
        assert_true(product_of(y, dy, 3 * 5 * C) == product_of(x, dx, ALL));
        mica_buffer *const all[] = {x, ids, y, dy, dx};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            mica_buffer_release(all[i]);
    }
}

/* As many as numpy found, without room for more. */
static void test_chosen(void **state)
{
    float sparse[ALL], column[B];
    uint32_t found = 0, kept = 0, count = 0;

    (void)state;
    fill_sparse(sparse);
    for (int i = 0; i < ALL; i++)
        found += sparse[i] != 0;
    for (int b = 0; b < B; b++)
        kept += (column[b] = sparse[b * C]) != 0;
    ON_EACH(device)
    {
        mica_buffer *x = given(device, 0, 3, SHAPE(A, B, C)), *holes = NULL, *condition = NULL,
                    *counted = empty(device, MICA_DTYPE_U32, 1, SHAPE(1)),
                    *places = empty(device, MICA_DTYPE_U32, 2, SHAPE(found, 3)),
                    *y = empty(device, MICA_DTYPE_F32, 3, SHAPE(A, kept, C)),
                    *flat = empty(device, MICA_DTYPE_F32, 1, SHAPE(found));

        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 3, SHAPE(A, B, C), &holes));
        must(mica_buffer_write(holes, 0, sparse, sizeof sparse));
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, SHAPE(B), &condition));
        must(mica_buffer_write(condition, 0, column, sizeof column));
        must(mica_nonzero(encoder, holes, places, counted));
        compare("nonzero", places, 0);
        must(mica_buffer_read(counted, 0, &count, sizeof count));
        assert_int_equal(count, found);
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_compress(encoder, x, condition, &(mica_compress_params){.axis = 1}, y, counted));
        compare("compress", y, 0);
        must(mica_buffer_read(counted, 0, &count, sizeof count));
        assert_int_equal(count, kept);
        mica_buffer_release(condition);
        must(mica_buffer_view(holes, MICA_DTYPE_F32, 1, SHAPE(ALL), NULL, 0, &condition));
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_compress(encoder, x, condition, &(mica_compress_params){.flat = 1}, flat, counted));
        compare("compress_flat", flat, 0);
        mica_buffer_release(condition);
        mica_buffer_release(x);
        mica_buffer_release(holes);
        mica_buffer_release(counted);
    }
}

/* Nothing to choose from is chosen: zeros, -1, a count of 0. */
static void test_chosen_nothing(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        const uint32_t ones[6] = {1, 1, 1, 1, 1, 1};
        uint32_t places[4], counts[2];
        float values[6];
        mica_buffer *x = empty(device, MICA_DTYPE_F32, 2, SHAPE(0, 3)),
                    *condition = empty(device, MICA_DTYPE_BOOL, 1, SHAPE(0)),
                    *y = empty(device, MICA_DTYPE_F32, 2, SHAPE(2, 3)),
                    *found = empty(device, MICA_DTYPE_U32, 2, SHAPE(2, 2)),
                    *count = empty(device, MICA_DTYPE_U32, 1, SHAPE(1)),
                    *counted = empty(device, MICA_DTYPE_U32, 1, SHAPE(1));

        must(mica_buffer_write(y, 0, ones, sizeof ones));
        must(mica_buffer_write(count, 0, ones, sizeof *ones));
        must(mica_buffer_write(counted, 0, ones, sizeof *ones));
        must(mica_nonzero(encoder, x, found, count));
        must(mica_compress(encoder, x, condition, NULL, y, counted));
        end();
        must(mica_buffer_read(found, 0, places, sizeof places));
        must(mica_buffer_read(count, 0, counts, sizeof *counts));
        must(mica_buffer_read(counted, 0, counts + 1, sizeof *counts));
        must(mica_buffer_read(y, 0, values, sizeof values));
        assert_true(counts[0] == 0 && counts[1] == 0);
        for (int i = 0; i < 4; i++)
            assert_int_equal(places[i], UINT32_MAX);
        for (int i = 0; i < 6; i++)
            assert_true(values[i] == 0);
        mica_buffer *const all[] = {x, condition, y, found, count, counted};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            mica_buffer_release(all[i]);
    }
}

/* Coordinates of which one is outside its own dimension though another would take it, shapes that do not fit. */
static void test_refused_places(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x = given(device, 0, 2, SHAPE(A, C)), *y = empty(device, MICA_DTYPE_F32, 1, SHAPE(3)),
                    *ids = empty(device, MICA_DTYPE_U32, 2, SHAPE(3, 3)),
                    *pairs = empty(device, MICA_DTYPE_U32, 2, SHAPE(3, 2)),
                    *many = empty(device, MICA_DTYPE_F32, 1, SHAPE(C + 1)),
                    *count = empty(device, MICA_DTYPE_U32, 1, SHAPE(1)),
                    *scale = empty(device, MICA_DTYPE_E8M0, 1, SHAPE(C));
        const mica_status wrong = MICA_ERR_INVALID_ARGUMENT;

        refused(mica_gather_nd(encoder, x, ids, NULL, y), wrong, "coordinates");
        refused(mica_gather_nd(encoder, x, pairs, &(mica_gather_nd_params){.batch_dims = 2}, y), wrong,
                "batch_dims");
        refused(mica_gather_nd(encoder, x, pairs, &(mica_gather_nd_params){.batch_dims = 1}, y), wrong,
                "coordinates");
        refused(mica_scatter_nd(encoder, x, pairs, NULL, x), wrong, "ids");
        refused(mica_scatter_nd(encoder, y, pairs, &(mica_scatter_nd_params){.mode = 9}, x), wrong, "mode");
        refused(mica_compress(encoder, x, many, &(mica_compress_params){.axis = 1}, x, count), wrong,
                "condition");
        refused(mica_compress(encoder, x, y, &(mica_compress_params){.axis = 2}, x, count), wrong, "axis");
        refused(mica_compress(encoder, x, y, &(mica_compress_params){.flat = 2}, x, count), wrong, "flat");
        refused(mica_nonzero(encoder, scale, NULL, count), wrong, "e8m0");
        refused(mica_nonzero(encoder, x, NULL, NULL), wrong, "count");
        end();
        mica_buffer *const all[] = {x, y, ids, pairs, many, count, scale};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            mica_buffer_release(all[i]);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x = given(device, 0, 2, SHAPE(A, C)), *y = empty(device, MICA_DTYPE_F32, 2, SHAPE(A, C)),
                    *ids = empty(device, MICA_DTYPE_U32, 2, SHAPE(A, C)),
                    *more = empty(device, MICA_DTYPE_F32, 2, SHAPE(A, C + 1)),
                    *words = empty(device, MICA_DTYPE_I32, 2, SHAPE(A, C));
        const mica_status wrong = MICA_ERR_INVALID_ARGUMENT;

        refused(mica_scan(encoder, x, &(mica_scan_params){.kind = 9}, y), wrong, "kind");
        refused(mica_scan(encoder, x, &(mica_scan_params){.exclusive = 2}, y), wrong, "exclusive");
        refused(mica_scan(encoder, x, &(mica_scan_params){.reverse = 2}, y), wrong, "reverse");
        refused(mica_scan(encoder, x, NULL, words), wrong, "y");
        refused(mica_sort(encoder, x, &(mica_sort_params){.descending = 2}, y), wrong, "descending");
        refused(mica_sort(encoder, x, NULL, words), wrong, "values");
        refused(mica_sort(encoder, x, NULL, more), wrong, "last dimension");
        refused(mica_argsort(encoder, x, NULL, y), wrong, "ids");
        refused(mica_top_k(encoder, x, more, NULL), wrong, "last dimension");
        refused(mica_top_k(encoder, x, NULL, NULL), wrong, "NULL");
        refused(mica_argmax(encoder, x, ids), wrong, "ids");
        refused(mica_argmin(encoder, NULL, ids), wrong, "x is NULL");
        end();
        mica_buffer_release(x);
        mica_buffer_release(y);
        mica_buffer_release(ids);
        mica_buffer_release(more);
        mica_buffer_release(words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),          cmocka_unit_test(test_scans),
        cmocka_unit_test(test_pads),           cmocka_unit_test(test_picks),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_coordinates),
        cmocka_unit_test(test_chosen),         cmocka_unit_test(test_refused_places),
        cmocka_unit_test(test_chosen_nothing), cmocka_unit_test(test_gradient_of_places),
    };

    return cmocka_run_group_tests_name("sort", tests, open_devices, close_devices);
}
