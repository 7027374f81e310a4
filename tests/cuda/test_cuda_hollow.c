/* test_cuda_hollow.c - a driver that is too old to be used: every way to it says so, and the rest of mica works. */
#include "device/device_test.h"

static void test_open(void **state)
{
    const char *ids[] = {"cuda", "cuda:0", "cuda:7"};
    mica_device *device = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        refused(mica_device_open(ids[i], NULL, &device), MICA_ERR_DEVICE_NOT_FOUND, "too old");
        assert_null(device);
    }
}

static void test_list(void **state)
{
    mica_device_entry entries[32];
    uint32_t count = 0, shown = 0;
    (void)state;
    must(mica_device_list(entries, 32, &count));
    for (uint32_t i = 0; i < count && i < 32; i++)
        if (strncmp(entries[i].id, "cuda", 4) == 0) {
            shown++;
            assert_false(entries[i].usable);
            assert_non_null(strstr(entries[i].reason, "too old"));
        }
    assert_int_equal(shown, 1);
}

static void test_cpu_works(void **state)
{
    const uint64_t count = 3;
    const float ones[3] = {1, 1, 1};
    float back[3] = {0, 0, 0};
    mica_device *device = NULL;
    mica_buffer *x = NULL, *y = NULL;
    mica_encoder *encoder = NULL;
    (void)state;
    must(mica_device_open("cpu", NULL, &device));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &count, &x));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &count, &y));
    must(mica_buffer_write(x, 0, ones, sizeof ones));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_add(encoder, x, x, y));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_buffer_read(y, 0, back, sizeof back));
    assert_true(back[0] == 2 && back[2] == 2);
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {test(test_open), test(test_list), test(test_cpu_works)};
    return cmocka_run_group_tests_name("a CUDA driver that is too old", tests, NULL, NULL);
}
