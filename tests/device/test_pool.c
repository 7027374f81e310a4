/* Pools: power-of-two buckets, newest first, nothing recycled under a holder. */
#include "device_test.h"

#include "support/random.h"

static mica_buffer_desc bytes_desc(uint64_t bytes)
{
    return (mica_buffer_desc){.dtype = MICA_DTYPE_U8, .ndim = 1, .shape = {bytes}};
}

static mica_buffer *take(mica_pool *pool, uint64_t bytes)
{
    mica_buffer *buffer = NULL;
    mica_buffer_desc desc = bytes_desc(bytes);
    must(mica_pool_alloc(pool, &desc, &buffer));
    return buffer;
}

static void *address_of(mica_buffer *buffer)
{
    void *handle = NULL;
    uint64_t offset = 0;
    must(mica_buffer_native(buffer, &handle, &offset));
    return (char *)handle + offset;
}

static mica_pool_stats stats_of(mica_pool *pool)
{
    mica_pool_stats stats;
    must(mica_pool_get_stats(pool, &stats));
    return stats;
}

static void buckets_are_powers_of_two(void **state)
{
    (void)state;
    const struct {
        uint64_t asked, bucket;
    } row[] = {{1, 1}, {2, 2}, {3, 4}, {4, 4}, {1000, 1024}, {1024, 1024}, {1025, 2048}, {40000, 65536}};
    mica_device *device = open_device("cpu", 1);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        mica_pool *pool = NULL;
        must(mica_pool_create(device, &pool));
        mica_buffer *buffer = take(pool, row[i].asked);
        mica_buffer_info info;
        must(mica_buffer_get_info(buffer, &info));
        assert_int_equal(info.byte_length, row[i].asked);
        assert_int_equal(info.storage_bytes, row[i].bucket);
        mica_pool_stats stats = stats_of(pool);
        assert_true(stats.in_use_count == 1 && stats.in_use_bytes == row[i].bucket);
        assert_true(stats.misses == 1 && stats.hits == 0 && stats.free_count == 0);
        mica_buffer_release(buffer);
        must(mica_pool_reset(pool));
        stats = stats_of(pool);
        assert_true(stats.free_count == 1 && stats.free_bytes == row[i].bucket && stats.in_use_count == 0);
        mica_pool_release(pool);
    }
    mica_device_release(device);
}

static void newest_storage_comes_first_and_dirty(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_pool *pool = NULL;
    unsigned char mark = 0x5a, seen = 0;
    must(mica_pool_create(device, &pool));
    mica_buffer *a = take(pool, 100), *b = take(pool, 120);
    void *place_b = address_of(b);
    must(mica_buffer_read(a, 99, &seen, 1));
    assert_int_equal(seen, 0); /* fresh storage is zero */
    must(mica_buffer_write(b, 0, &mark, 1));
    mica_buffer_release(a);
    mica_buffer_release(b);
    must(mica_pool_reset(pool));
    mica_buffer *c = take(pool, 65); /* the same bucket of 128 */
    assert_ptr_equal(address_of(c), place_b);
    must(mica_buffer_read(c, 0, &seen, 1));
    assert_int_equal(seen, mark); /* recycled storage is as it was left */
    assert_int_equal(stats_of(pool).hits, 1);
    mica_buffer_release(c);
    mica_pool_release(pool);
    mica_device_release(device);
}

static void held_storage_survives_a_reset(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_pool *pool = NULL;
    must(mica_pool_create(device, &pool));
    mica_buffer *held = take(pool, 64), *view = NULL, *other;
    unsigned char mark = 0x33, seen = 0;
    must(mica_buffer_write(held, 8, &mark, 1));
    must(mica_buffer_slice(held, 0, 8, 8, &view));
    mica_buffer_release(held); /* a view is a holder too */
    must(mica_pool_reset(pool));
    mica_pool_stats stats = stats_of(pool);
    assert_true(stats.outlived == 1 && stats.in_use_count == 1 && stats.free_count == 0);
    other = take(pool, 64);
    assert_ptr_not_equal(address_of(other), (char *)address_of(view) - 8);
    must(mica_buffer_read(view, 0, &seen, 1));
    assert_int_equal(seen, mark);
    mica_buffer_release(view);
    mica_buffer_release(other);
    must(mica_pool_reset(pool));
    assert_int_equal(stats_of(pool).free_count, 2);
    mica_pool_release(pool);
    mica_device_release(device);
}

/* Random takes, releases and resets: two live buffers never share a byte. */
static void live_buffers_never_overlap(void **state)
{
    (void)state;
    enum { LIVE = 40 };
    mica_device *device = open_device("cpu", 1);
    mica_pool *pool = NULL;
    test_random random = test_random_from(9);
    mica_buffer *live[LIVE] = {NULL};
    uint64_t size[LIVE] = {0};
    must(mica_pool_create(device, &pool));
    for (int step = 0; step < 3000; step++) {
        int i = (int)test_random_below(&random, LIVE);
        mica_buffer_release(live[i]);
        live[i] = NULL;
        if (test_random_one_in(&random, 3))
            must(mica_pool_reset(pool));
        if (test_random_one_in(&random, 50))
            must(mica_pool_clear(pool));
        if (test_random_one_in(&random, 5))
            continue;
        size[i] = test_random_size(&random, 600);
        live[i] = take(pool, size[i]);
        char *begin = address_of(live[i]), *end = begin + size[i];
        for (int j = 0; j < LIVE; j++) {
            if (j == i || live[j] == NULL)
                continue;
            char *other = address_of(live[j]);
            assert_true(end <= other || other + size[j] <= begin);
        }
    }
    for (int i = 0; i < LIVE; i++)
        mica_buffer_release(live[i]);
    mica_pool_release(pool);
    mica_device_release(device);
}

static void batch_is_all_or_nothing(void **state)
{
    (void)state;
    mica_device *device = open_device("null", 1);
    mica_pool *pool = NULL;
    mica_buffer_desc descs[4] = {bytes_desc(10), bytes_desc(100), bytes_desc(1000), bytes_desc(10000)};
    mica_buffer *out[4];
    must(mica_pool_create(device, &pool));
    must(mica_pool_alloc_batch(pool, descs, 4, out));
    assert_int_equal(stats_of(pool).in_use_count, 4);
    for (int i = 0; i < 4; i++)
        mica_buffer_release(out[i]);
    must(mica_pool_reset(pool));
    must(mica_pool_clear(pool));
    assert_int_equal(stats_of(pool).free_count, 0);

    mica_null_faults faults = {.fail_alloc = 3};
    must(mica_null_inject(device, &faults));
    assert_int_equal(mica_pool_alloc_batch(pool, descs, 4, out), MICA_ERR_OUT_OF_MEMORY);
    for (int i = 0; i < 4; i++)
        assert_null(out[i]);
    must(mica_pool_reset(pool));
    assert_int_equal(stats_of(pool).in_use_count, 0);
    descs[3].shape[0] = 0;
    must(mica_pool_alloc_batch(pool, descs, 4, out));
    for (int i = 0; i < 4; i++)
        mica_buffer_release(out[i]);
    descs[3].shape[0] = UINT64_MAX;
    refused(mica_pool_alloc_batch(pool, descs, 4, out), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_pool_alloc_batch(pool, NULL, 4, out), MICA_ERR_INVALID_ARGUMENT, "descs");
    refused(mica_pool_alloc_batch(pool, descs, 4, NULL), MICA_ERR_INVALID_ARGUMENT, "out_buffers");
    refused(mica_pool_alloc_batch(NULL, descs, 1, out), MICA_ERR_INVALID_ARGUMENT, "pool");
    mica_pool_release(pool);
    mica_device_release(device);
}

static void foreign_buffers_register_once(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1), *elsewhere = open_device("cpu", 1);
    mica_pool *pool = NULL;
    must(mica_pool_create(device, &pool));
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_F32, 8),
                *strange = new_vector(elsewhere, MICA_DTYPE_F32, 8);
    must(mica_pool_register(pool, buffer));
    must(mica_pool_register(pool, buffer));
    assert_int_equal(stats_of(pool).registered, 1);
    must(mica_pool_reset(pool));
    mica_buffer *fresh = take(pool, 32);
    assert_ptr_not_equal(address_of(fresh), address_of(buffer)); /* never recycled */
    refused(mica_pool_register(pool, strange), MICA_ERR_INVALID_ARGUMENT, "another device");
    refused(mica_pool_register(pool, NULL), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_pool_register(NULL, buffer), MICA_ERR_INVALID_ARGUMENT, "pool");
    mica_buffer_release(fresh);
    mica_buffer_release(buffer);
    mica_buffer_release(strange);
    mica_pool_release(pool);
    mica_device_release(elsewhere);
    mica_device_release(device);
}

static void pool_and_buffers_outlive_each_other(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_pool *pool = NULL;
    must(mica_pool_create(device, &pool));
    mica_device_release(device); /* the pool keeps it */
    mica_buffer *buffer = take(pool, 16);
    mica_pool_release(pool);
    unsigned char seen = 1;
    must(mica_buffer_read(buffer, 15, &seen, 1)); /* the buffer keeps its storage and the device */
    assert_int_equal(seen, 0);
    mica_buffer_release(buffer);
    mica_pool_release(NULL);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_pool *pool = NULL;
    mica_buffer *buffer = (mica_buffer *)&pool;
    mica_buffer_desc desc = bytes_desc(8);
    mica_pool_stats stats;
    refused(mica_pool_create(NULL, &pool), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_pool_create(device, NULL), MICA_ERR_INVALID_ARGUMENT, "out_pool");
    must(mica_pool_create(device, &pool));
    refused(mica_pool_alloc(NULL, &desc, &buffer), MICA_ERR_INVALID_ARGUMENT, "pool");
    assert_null(buffer);
    refused(mica_pool_alloc(pool, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT, "desc");
    refused(mica_pool_alloc(pool, &desc, NULL), MICA_ERR_INVALID_ARGUMENT, "out_buffer");
    desc.dtype = MICA_DTYPE_NONE;
    refused(mica_pool_alloc(pool, &desc, &buffer), MICA_ERR_INVALID_ARGUMENT, "dtype");
    refused(mica_pool_reset(NULL), MICA_ERR_INVALID_ARGUMENT, "pool");
    refused(mica_pool_clear(NULL), MICA_ERR_INVALID_ARGUMENT, "pool");
    refused(mica_pool_get_stats(NULL, &stats), MICA_ERR_INVALID_ARGUMENT, "pool");
    refused(mica_pool_get_stats(pool, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    mica_pool_release(pool);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(buckets_are_powers_of_two),
        test(newest_storage_comes_first_and_dirty),
        test(held_storage_survives_a_reset),
        test(live_buffers_never_overlap),
        test(batch_is_all_or_nothing),
        test(foreign_buffers_register_once),
        test(pool_and_buffers_outlive_each_other),
        test(wrong_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
