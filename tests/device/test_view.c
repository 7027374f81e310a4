/* Views: random chains of view, slice, reshape and permute against a model that only knows offsets and strides. */
#include "device_test.h"

#include <stdbool.h>

#include "support/random.h"

enum { BYTES = 6000 };

/* What a view should be: the bytes it sees, by plain arithmetic. */
typedef struct model {
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS], offset;
} model;

static uint64_t count_of(const model *m)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < m->ndim; d++)
        n *= m->shape[d];
    return n;
}

/* Byte address of element `index` in dense order. */
static uint64_t place_of(const model *m, uint64_t index)
{
    uint64_t at = m->offset;
    for (uint32_t d = m->ndim; d-- > 0;) {
        at += index % m->shape[d] * m->stride[d];
        index /= m->shape[d];
    }
    return at;
}

static int is_dense(const model *m)
{
    uint64_t step = 2;
    if (count_of(m) == 0)
        return 1;
    for (uint32_t d = m->ndim; d-- > 0;) {
        if (m->shape[d] > 1 && m->stride[d] != step)
            return 0;
        step *= m->shape[d];
    }
    return 1;
}

static uint64_t hull_of(const model *m)
{
    uint64_t bytes = 2;
    if (count_of(m) == 0)
        return 0;
    for (uint32_t d = 0; d < m->ndim; d++)
        bytes += (m->shape[d] - 1) * m->stride[d];
    return bytes;
}

static void check_equal(mica_buffer *view, const model *m, const uint16_t *image)
{
    mica_buffer_info info;
    must(mica_buffer_get_info(view, &info));
    assert_int_equal(info.ndim, m->ndim);
    assert_int_equal(info.byte_offset, m->offset);
    assert_int_equal(info.byte_length, hull_of(m));
    assert_int_equal(info.element_count, count_of(m));
    assert_int_equal(info.contiguous, is_dense(m));
    assert_memory_equal(info.shape, m->shape, m->ndim * sizeof *m->shape);
    for (uint32_t d = 0; d < m->ndim; d++)
        assert_true(info.stride[d] == m->stride[d] || m->shape[d] == 1 || count_of(m) == 0);
    unsigned char *pointer = NULL;
    must(mica_buffer_map(view, MICA_ACCESS_READ, (void **)&pointer));
    for (uint64_t i = 0; i < count_of(m); i++) {
        uint16_t seen;
        memcpy(&seen, pointer + (place_of(m, i) - m->offset), 2);
        assert_int_equal(seen, image[place_of(m, i) / 2]);
    }
    must(mica_buffer_unmap(view));
    uint16_t *dense = malloc(count_of(m) * 2);
    mica_status status = mica_buffer_read(view, 0, dense, count_of(m) * 2);
    assert_int_equal(status, is_dense(m) ? MICA_OK : MICA_ERR_INVALID_ARGUMENT);
    for (uint64_t i = 0; status == MICA_OK && i < count_of(m); i++)
        assert_int_equal(dense[i], image[place_of(m, i) / 2]);
    free(dense);
}

static mica_status step_slice(test_random *random, mica_buffer *from, model *m, mica_buffer **out)
{
    if (m->ndim == 0) {
        refused(mica_buffer_slice(from, 0, 0, 1, out), MICA_ERR_INVALID_ARGUMENT, "dim");
        *out = mica_buffer_retain(from);
        return MICA_OK;
    }
    uint32_t dim = (uint32_t)test_random_below(random, m->ndim);
    uint64_t start = test_random_below(random, m->shape[dim] + 1);
    uint64_t count = test_random_below(random, m->shape[dim] - start + 1);
    if (count == 0 && !test_random_one_in(random, 8)) /* few, since nothing comes after them */
        start = 0, count = m->shape[dim];
    m->shape[dim] = count;
    m->offset += count_of(m) > 0 ? start * m->stride[dim] : 0;
    return mica_buffer_slice(from, dim, start, count, out);
}

static mica_status step_permute(test_random *random, mica_buffer *from, model *m, mica_buffer **out)
{
    uint32_t order[MICA_MAX_DIMS];
    model old = *m;
    for (uint32_t d = 0; d < m->ndim; d++)
        order[d] = d;
    for (uint32_t d = m->ndim; d-- > 1;) {
        uint32_t other = (uint32_t)test_random_below(random, d + 1), kept = order[d];
        order[d] = order[other];
        order[other] = kept;
    }
    for (uint32_t d = 0; d < m->ndim; d++) {
        m->shape[d] = old.shape[order[d]];
        m->stride[d] = old.stride[order[d]];
    }
    return mica_buffer_permute(from, order, out);
}

/* Splits the element count into two factors when the view is dense, else takes the view again. One element becomes a scalar. */
static mica_status step_reshape(test_random *random, mica_buffer *from, model *m, mica_buffer **out)
{
    uint64_t count = count_of(m), factor = 1 + test_random_below(random, count + 1);
    while (count % factor != 0)
        factor--;
    uint64_t shape[2] = {count / factor, factor};
    if (count == 1) {
        *m = (model){.ndim = 0, .offset = m->offset};
        return mica_buffer_reshape(from, 0, NULL, out);
    }
    if (!is_dense(m)) {
        refused(mica_buffer_reshape(from, 2, shape, out), MICA_ERR_INVALID_ARGUMENT, "contiguous");
        *out = mica_buffer_retain(from);
        return MICA_OK;
    }
    *m = (model){2, {shape[0], shape[1]}, {2 * factor, 2}, m->offset};
    return mica_buffer_reshape(from, 2, shape, out);
}

/* Any strides that stay inside the parent's bytes; zero now and then. */
static mica_status step_view(test_random *random, mica_buffer *from, model *m, mica_buffer **out)
{
    uint64_t room = hull_of(m), at = room > 0 ? test_random_below(random, room / 2) * 2 : 0;
    model next = {.ndim = (uint32_t)test_random_below(random, MICA_MAX_DIMS + 1), .offset = m->offset + at};
    if (room == 0) {
        refused(mica_buffer_view(from, MICA_DTYPE_U16, 0, NULL, NULL, 0, out), MICA_ERR_INVALID_ARGUMENT,
                "past the buffer's 0");
        *out = mica_buffer_retain(from);
        return MICA_OK;
    }
    room -= at + 2;
    for (uint32_t d = 0; d < next.ndim; d++) {
        next.shape[d] = 1 + test_random_below(random, 4);
        next.stride[d] = test_random_below(random, 9) * 2;
        while ((next.shape[d] - 1) * next.stride[d] > room)
            next.shape[d]--;
        room -= (next.shape[d] - 1) * next.stride[d];
    }
    *m = next;
    return mica_buffer_view(from, MICA_DTYPE_U16, next.ndim, next.shape, next.stride, at, out);
}

static void random_chains_compose(void **state)
{
    (void)state;
    mica_status (*const steps[])(test_random *, mica_buffer *, model *,
                                 mica_buffer **) = {step_slice, step_permute, step_reshape, step_view};
    mica_device *device = open_device("cpu", 1);
    uint16_t image[BYTES / 2];
    for (uint32_t i = 0; i < BYTES / 2; i++)
        image[i] = (uint16_t)(i * 7 + 1);
    for (uint64_t seed = 0; seed < 400; seed++) {
        test_random random = test_random_from(seed);
        uint64_t shape[3] = {10, 15, 20};
        model m = {3, {10, 15, 20}, {600, 40, 2}, 0};
        mica_buffer *at = NULL;
        must(mica_buffer_alloc(device, MICA_DTYPE_U16, 3, shape, &at));
        must(mica_buffer_write(at, 0, image, sizeof image));
        for (int depth = 0; depth < 6; depth++) {
            mica_buffer *next = NULL;
            must(steps[test_random_below(&random, 4)](&random, at, &m, &next));
            mica_buffer_release(at); /* the view keeps what it needs */
            at = next;
            check_equal(at, &m, image);
        }
        mica_buffer_release(at);
    }
    mica_device_release(device);
}

/* The bound is the parent view, not its storage. */
static void views_stay_inside_their_parent(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_buffer *whole = new_vector(device, MICA_DTYPE_F32, 100), *part = NULL, *view = NULL;
    must(mica_buffer_slice(whole, 0, 10, 20, &part));
    const struct {
        uint64_t shape[2], stride[2], offset;
        int fits;
    } row[] = {
        {{4, 5}, {20, 4}, 0, 1},
        {{4, 5}, {20, 4}, 4, 0},
        {{20, 1}, {4, 4}, 0, 1},
        {{21, 1}, {4, 4}, 0, 0},
        {{2, 2}, {76, 0}, 0, 1},
        {{2, 2}, {77, 0}, 0, 0},
        {{1, 1}, {4, 4}, 76, 1},
        {{1, 1}, {4, 4}, 77, 0},
        {{1000, 1}, {0, 4}, 0, 1},
        {{1, 1}, {4, 4}, UINT64_MAX - 3, 0},
        {{3, 1}, {UINT64_MAX / 2, 4}, 0, 0},
        {{1ull << 40, 1ull << 40}, {0, 0}, 0, 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        mica_status status =
            mica_buffer_view(part, MICA_DTYPE_F32, 2, row[i].shape, row[i].stride, row[i].offset, &view);
        assert_int_equal(status, row[i].fits ? MICA_OK : MICA_ERR_INVALID_ARGUMENT);
        assert_true((view != NULL) == (row[i].fits != 0));
        mica_buffer_release(view);
    }
    uint64_t shape[2] = {4, 5};
    uint32_t twice[1] = {1};
    refused(mica_buffer_view(NULL, MICA_DTYPE_F32, 2, shape, NULL, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "buffer");
    refused(mica_buffer_view(part, MICA_DTYPE_F32, 2, NULL, NULL, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "shape");
    refused(mica_buffer_view(part, MICA_DTYPE_F32, 2, shape, NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT,
            "out_view");
    refused(mica_buffer_view(part, MICA_DTYPE_NONE, 2, shape, NULL, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "dtype");
    refused(mica_buffer_view(part, MICA_DTYPE_F32, 9, shape, NULL, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "ndim");
    refused(mica_buffer_slice(part, 1, 0, 1, &view), MICA_ERR_INVALID_ARGUMENT, "dim");
    refused(mica_buffer_slice(part, 0, 20, 1, &view), MICA_ERR_INVALID_ARGUMENT, "start");
    refused(mica_buffer_slice(part, 0, 21, 0, &view), MICA_ERR_INVALID_ARGUMENT, "start");
    refused(mica_buffer_slice(part, 0, 1, UINT64_MAX, &view), MICA_ERR_INVALID_ARGUMENT, "count");
    refused(mica_buffer_slice(NULL, 0, 1, 1, &view), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_buffer_permute(part, twice, &view), MICA_ERR_INVALID_ARGUMENT, "order[0]");
    refused(mica_buffer_permute(part, NULL, &view), MICA_ERR_INVALID_ARGUMENT, "order");
    shape[0] = 3;
    refused(mica_buffer_reshape(part, 2, shape, &view), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_buffer_reshape(part, 2, NULL, &view), MICA_ERR_INVALID_ARGUMENT, "shape");
    assert_null(view);
    mica_buffer_release(part);
    mica_buffer_release(whole);
    mica_device_release(device);
}

/* Views that see nothing lie anywhere in their parent, its end included. */
static void empty_views_see_nothing(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_buffer *whole = new_vector(device, MICA_DTYPE_F32, 12), *view = NULL, *again = NULL;
    mica_buffer_info info;
    for (uint64_t at = 0; at <= 52; at += 4) {
        const mica_status status =
            mica_buffer_view(whole, MICA_DTYPE_F32, 2, (uint64_t[]){3, 0}, NULL, at, &view);
        assert_int_equal(status, at <= 48 ? MICA_OK : MICA_ERR_INVALID_ARGUMENT);
        mica_buffer_release(view);
    }
    must(mica_buffer_view(whole, MICA_DTYPE_F32, 2, (uint64_t[]){1ull << 40, 0}, (uint64_t[]){1ull << 40, 4},
                          0, &view));
    must(mica_buffer_reshape(view, 3, (uint64_t[]){0, 7, 1ull << 20}, &again));
    must(mica_buffer_get_info(again, &info));
    assert_true(info.element_count == 0 && info.byte_length == 0 && info.contiguous && info.stride[2] == 4);
    mica_buffer_release(again);
    refused(mica_buffer_reshape(view, 0, NULL, &again), MICA_ERR_INVALID_ARGUMENT, "elements");
    refused(mica_buffer_reshape(whole, 2, (uint64_t[]){12, 0}, &again), MICA_ERR_INVALID_ARGUMENT,
            "elements");
    refused(mica_buffer_reshape(view, 3, (uint64_t[]){0, 1ull << 32, 1ull << 32}, &again),
            MICA_ERR_INVALID_ARGUMENT, "overflows");
    mica_buffer_release(view);
    mica_buffer_release(whole);
    mica_device_release(device);
}

/* Every other column of a slice, and a column that repeats. */
static void steps_and_repeats(void **state)
{
    mica_device *device = open_device("cpu", 1);
    mica_buffer *whole, *slice = NULL, *some = NULL, *column = NULL, *wide = NULL;
    uint64_t shape[2] = {3, 10}, block[1] = {32};
    mica_buffer_info info;

    (void)state;
    must(mica_buffer_alloc(device, MICA_DTYPE_F16, 2, shape, &whole));
    must(mica_buffer_slice(whole, 1, 1, 8, &slice));
    must(mica_buffer_stride(slice, 1, 3, &some));
    must(mica_buffer_get_info(some, &info));
    assert_true(info.shape[0] == 3 && info.shape[1] == 3 && info.stride[0] == 20 && info.stride[1] == 6);
    assert_int_equal(info.byte_offset, 2);
    assert_int_equal(info.byte_length, 2 * 20 + 2 * 6 + 2);
    mica_buffer_release(some);
    must(mica_buffer_stride(slice, 1, UINT64_MAX, &some));
    must(mica_buffer_get_info(some, &info));
    assert_int_equal(info.shape[1], 1);
    refused(mica_buffer_stride(slice, 1, 0, &column), MICA_ERR_INVALID_ARGUMENT, "step");
    refused(mica_buffer_stride(slice, 2, 1, &column), MICA_ERR_INVALID_ARGUMENT, "dim");
    refused(mica_buffer_stride(NULL, 0, 1, &column), MICA_ERR_INVALID_ARGUMENT, "buffer");
    must(mica_buffer_expand(some, 3, (uint64_t[]){5, 3, 7}, &wide));
    must(mica_buffer_get_info(wide, &info));
    assert_true(info.shape[0] == 5 && info.shape[1] == 3 && info.shape[2] == 7);
    assert_true(info.stride[0] == 0 && info.stride[1] == 20 && info.stride[2] == 0);
    refused(mica_buffer_expand(some, 3, (uint64_t[]){5, 4, 7}, &column), MICA_ERR_INVALID_ARGUMENT,
            "shape[1]");
    refused(mica_buffer_expand(some, 1, shape, &column), MICA_ERR_INVALID_ARGUMENT, "ndim");
    refused(mica_buffer_expand(some, 2, NULL, &column), MICA_ERR_INVALID_ARGUMENT, "shape");
    mica_buffer_release(wide);
    mica_buffer_release(some);
    mica_buffer_release(slice);
    mica_buffer_release(whole);
    must(mica_buffer_alloc(device, MICA_DTYPE_Q4_0, 1, block, &whole));
    refused(mica_buffer_stride(whole, 0, 2, &some), MICA_ERR_INVALID_ARGUMENT, "blocks");
    refused(mica_buffer_expand(whole, 1, block, &some), MICA_ERR_INVALID_ARGUMENT, "blocks");
    mica_buffer_release(whole);
    mica_device_release(device);
}

static void blocks_stay_whole(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    uint64_t shape[2] = {8, 128}, part[2] = {2, 64}, stride[2] = {72, 18}, gap[2] = {72, 36};
    uint32_t swapped[2] = {1, 0};
    mica_buffer *weight = NULL, *view = NULL, *row = NULL;
    mica_buffer_info info;
    must(mica_buffer_alloc(device, MICA_DTYPE_Q4_0, 2, shape, &weight));
    must(mica_buffer_slice(weight, 1, 32, 64, &view));
    must(mica_buffer_get_info(view, &info));
    assert_true(info.byte_offset == 18 && info.shape[1] == 64 && info.byte_length == 7 * 72 + 36 &&
                !info.contiguous);
    must(mica_buffer_slice(view, 0, 3, 1, &row));
    must(mica_buffer_get_info(row, &info));
    assert_true(info.byte_offset == 18 + 3 * 72 && info.byte_length == 36 && info.contiguous);
    mica_buffer_release(row);
    mica_buffer_release(view);
    refused(mica_buffer_slice(weight, 1, 16, 32, &view), MICA_ERR_INVALID_ARGUMENT, "32");
    refused(mica_buffer_slice(weight, 1, 32, 33, &view), MICA_ERR_INVALID_ARGUMENT, "32");
    refused(mica_buffer_view(weight, MICA_DTYPE_Q4_0, 2, part, gap, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "stride[1]");
    assert_int_equal(mica_buffer_permute(weight, swapped, &view), MICA_ERR_INVALID_ARGUMENT);
    must(mica_buffer_view(weight, MICA_DTYPE_Q4_0, 2, part, stride, 36, &view));
    mica_buffer_release(view);
    mica_buffer_release(weight);
    mica_device_release(device);
}

/* Elements lie where every device can read them: at multiples of their size, of a block's widest number. */
static void elements_are_aligned(void **state)
{
    static const struct {
        mica_dtype dtype;
        uint64_t count, unit;
    } rows[] = {{MICA_DTYPE_F32, 1, 4},    {MICA_DTYPE_F16, 1, 2},    {MICA_DTYPE_I8, 1, 1},
                {MICA_DTYPE_U64, 1, 8},    {MICA_DTYPE_C64, 1, 8},    {MICA_DTYPE_Q4_0, 32, 2},
                {MICA_DTYPE_Q4_1, 32, 4},  {MICA_DTYPE_Q4_K, 256, 4}, {MICA_DTYPE_MXFP4, 32, 1},
                {MICA_DTYPE_AFFINE4, 8, 4}};
    static _Alignas(64) unsigned char memory[1024];
    mica_device *device = open_device("null", 0);
    mica_buffer *bytes = NULL, *view = NULL, *odd = NULL;
    mica_buffer_desc desc = {MICA_DTYPE_U8, 1, {600}, 0};
    (void)state;
    must(mica_buffer_create(device, &desc, &bytes));
    must(mica_buffer_slice(bytes, 0, 1, 500, &odd));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (uint64_t at = 0; at < 16; at++) {
            const bool fits = at % rows[i].unit == 0, fits_odd = (at + 1) % rows[i].unit == 0;
            assert_int_equal(
                mica_buffer_view(bytes, rows[i].dtype, 1, &rows[i].count, NULL, at, &view) == MICA_OK, fits);
            if (!fits)
                assert_non_null(strstr(mica_status_message(), "byte_offset"));
            mica_buffer_release(view);
            /* It is the place in the storage that counts, not in the parent. */
            assert_int_equal(mica_buffer_view(odd, rows[i].dtype, 1, &rows[i].count, NULL, at, &view) ==
                                 MICA_OK,
                             fits_odd);
            mica_buffer_release(view);
        }
    }
    refused(mica_buffer_view(bytes, MICA_DTYPE_F32, 2, (uint64_t[]){2, 2}, (uint64_t[]){10, 4}, 0, &view),
            MICA_ERR_INVALID_ARGUMENT, "stride[0] is 10, expected a multiple of 4");
    must(mica_buffer_view(bytes, MICA_DTYPE_F32, 2, (uint64_t[]){2, 2}, (uint64_t[]){12, 0}, 8, &view));
    mica_buffer_release(view);
    mica_buffer_release(odd);
    mica_buffer_release(bytes);
    mica_device_release(device);
    must(mica_device_open("cpu", NULL, &device));
    desc.dtype = MICA_DTYPE_F32;
    desc.shape[0] = 4;
    refused(mica_buffer_import(device, memory + 2, 64, &desc, NULL, NULL, &view), MICA_ERR_INVALID_ARGUMENT,
            "pointer");
    must(mica_buffer_import(device, memory + 4, 64, &desc, NULL, NULL, &view));
    mica_buffer_release(view);
    desc.dtype = MICA_DTYPE_U8; /* at an odd address: what is seen there through views counts from it */
    must(mica_buffer_import(device, memory + 3, 64, &desc, NULL, NULL, &bytes));
    mica_buffer_release(bytes);
    desc.shape[0] = 64;
    must(mica_buffer_import(device, memory + 3, 64, &desc, NULL, NULL, &bytes));
    refused(mica_buffer_view(bytes, MICA_DTYPE_F32, 1, (uint64_t[]){4}, NULL, 4, &view),
            MICA_ERR_INVALID_ARGUMENT, "byte_offset");
    must(mica_buffer_view(bytes, MICA_DTYPE_F32, 1, (uint64_t[]){4}, NULL, 1, &view));
    mica_buffer_release(view);
    mica_buffer_release(bytes);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(random_chains_compose), test(views_stay_inside_their_parent),
        test(elements_are_aligned),  test(empty_views_see_nothing),
        test(blocks_stay_whole),     test(steps_and_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
