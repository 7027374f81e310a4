/*
 * test_load_resident.c - memory as the operating system counts it: loading 400 MB, by every way and also while it goes
 * on, stays within 1.05 times the tensors plus 64 MB; opening touches next to nothing. Linux alone says such things.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "support/sanitizer.h"
#include "mica/mica.h"
#include "support/model_file.h"
#include "support/resident.h"

#define TENSORS 6u
#define SLACK ((uint64_t)64 << 20)

static const uint64_t shape_of[TENSORS][3] = {{40, 4096, 320}, {32000, 4096}, {11008, 4096},
                                              {4096, 11008},   {64, 4096},    {100000, 4096}};
static const uint32_t dims_of[TENSORS] = {3, 2, 2, 2, 2, 2};

static int watch(void *context, const char *what, uint64_t done, uint64_t total)
{
    uint64_t *peak = context, now = test_resident();

    (void)what;
    (void)done;
    (void)total;
    if (now > *peak)
        *peak = now;
    return 0;
}

/* Reads all of it, as the first token would. */
static void touch(mica_buffer *buffer)
{
    mica_buffer_info info;
    void *base;
    uint64_t offset, sum = 0;

    assert_int_equal(mica_buffer_get_info(buffer, &info), MICA_OK);
    assert_int_equal(mica_buffer_native(buffer, &base, &offset), MICA_OK);
    for (uint64_t at = 0; at < info.byte_length; at += 512)
        sum += ((volatile unsigned char *)base)[offset + at];
    assert_true(sum < UINT64_MAX);
}

static void load(const char *path, uint32_t open, uint32_t flags)
{
    static const uint64_t order[TENSORS] = {5, 0, 1, 2, 3, 4};
    mica_weights_options options = {.flags = open};
    mica_weights *weights;
    mica_device *device;
    mica_weights_info info;
    mica_buffer *buffers[TENSORS];
    uint64_t before = test_resident(), peak = before, limit;

    assert_int_equal(mica_device_open("cpu", NULL, &device), MICA_OK);
    assert_int_equal(mica_weights_open(path, &options, &weights), MICA_OK);
    assert_int_equal(mica_weights_get_info(weights, &info), MICA_OK);
    limit = before + info.tensor_bytes / 20 * 21 + SLACK;
    assert_int_equal(mica_weights_load_all(weights, order, TENSORS, device, flags, watch, &peak, buffers),
                     MICA_OK);
    for (uint32_t i = 0; i < TENSORS; i++)
        touch(buffers[i]);
    watch(&peak, "", 0, 0);
    print_message("open %u load %u: %.1f MB of tensors, peak %.1f MB more than before\n", open, flags,
                  (double)info.tensor_bytes / 1e6, (double)(peak - before) / 1e6);
    for (uint32_t i = 0; i < TENSORS; i++)
        mica_buffer_release(buffers[i]);
    mica_weights_release(weights);
    mica_device_release(device);
    assert_true(peak <= limit);
}

static void test_loading(void **state)
{
    char path[128];
    test_gguf gguf = {0};

    (void)state;
    if (TEST_ANY_SANITIZER || test_resident() == 0) /* sanitizers take memory of their own */
        skip();
    test_file_path(path, sizeof path, "resident.gguf");
    for (uint32_t t = 0; t < TENSORS; t++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", t);
        test_gguf_tensor(&gguf, name, MICA_DTYPE_Q4_0, dims_of[t], shape_of[t]);
    }
    test_gguf_write(&gguf, path);
    load(path, 0, 0);
    load(path, 0, MICA_LOAD_PACK);
    load(path, MICA_WEIGHTS_NO_MAP, 0);
    load(path, MICA_WEIGHTS_NO_MAP, MICA_LOAD_PACK);
    test_gguf_free(&gguf);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loading)};
    return cmocka_run_group_tests_name("load_resident", tests, NULL, NULL);
}
