/*
 * test_load_trouble.c - what goes wrong while loading: the file is cut short, memory may not be locked, every single
 * allocation fails in turn. Always a status, never a trace.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "device/objects.h"
#include "support/meter.h"
#include "support/sanitizer.h"
#include "weights/scene.h"

static void test_shrunk(void **state)
{
    static const struct {
        uint32_t open, load, separate;
    } modes[] = {{MICA_WEIGHTS_NO_MAP, 0, 0},
                 {MICA_WEIGHTS_NO_MAP, MICA_LOAD_PACK, 0},
                 {0, 0, 1},
                 {0, MICA_LOAD_PACK, 1}};
    scene s;
    mica_device *device;

    (void)state;
    assert_int_equal(mica_device_open("cpu", NULL, &device), MICA_OK);
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        mica_weights *weights;
        mica_weights_options options = {.flags = modes[m].open};
        mica_tensor_info info;
        mica_buffer *buffer;
        mica_device_memory memory;
        unsigned char bytes[64];
        scene_make(&s, "shrunk.gguf");
        assert_int_equal(mica_weights_open(s.path, &options, &weights), MICA_OK);
        assert_int_equal(mica_weights_tensor(weights, 6, &info), MICA_OK);
        assert_int_equal(truncate(s.path, (off_t)(info.file_offset + info.bytes / 2)), 0);
        device->info.properties.unified_memory = !modes[m].separate;
        refused(mica_weights_load(weights, 6, device, modes[m].load, &buffer), MICA_ERR_MALFORMED_FILE,
                s.path);
        assert_null(buffer);
        refused(mica_weights_load(weights, 8, device, modes[m].load, &buffer), MICA_ERR_MALFORMED_FILE,
                s.path);
        refused(mica_weights_read(weights, 6, info.bytes - sizeof bytes, bytes, sizeof bytes),
                MICA_ERR_MALFORMED_FILE, s.path);
        assert_int_equal(mica_weights_load(weights, 0, device, modes[m].load, &buffer), MICA_OK);
        mica_buffer_release(buffer);
        assert_int_equal(mica_device_get_memory(device, &memory), MICA_OK);
        assert_int_equal(memory.owned_bytes + memory.mapped_bytes, 0);
        mica_weights_release(weights);
        device->info.properties.unified_memory = 1;
        scene_free(&s);
    }
    mica_device_release(device);
}

/* Kilobytes of locked memory of this process; -1 where the system does not say. */
static long locked_kilobytes(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[128];
    long locked = -1;

    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        sscanf(line, "VmLck: %ld", &locked);
    if (status != NULL)
        fclose(status);
    return locked;
}

/* In a child, since limits last. 0: the load was refused as it should be. */
static int refuse_lock(const scene *s, uint32_t open, uint32_t load)
{
    struct rlimit limit = {65536, 65536};
    mica_weights_options options = {.flags = MICA_WEIGHTS_LOCK | open};
    mica_weights *weights;
    mica_device *device;
    mica_buffer *buffer;

    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (getuid() == 0 && setuid(65534) != 0))
        return 1;
    if (mica_device_open("cpu", NULL, &device) != MICA_OK ||
        mica_weights_open(s->path, &options, &weights) != MICA_OK)
        return 2;
    if (mica_weights_load(weights, 6, device, load, &buffer) != MICA_ERR_IO || buffer != NULL)
        return 3;
    if (strstr(mica_status_message(), "64 KiB") == NULL ||
        strstr(mica_status_message(), "blk.0.big.weight") == NULL)
        return 4;
    if (mica_weights_load(weights, 8, device, load, &buffer) != MICA_OK) /* a page is within the limit */
        return 5;
    mica_buffer_release(buffer);
    mica_weights_release(weights);
    mica_device_release(device);
    return 0;
}

static void test_lock_refused(void **state)
{
    static const uint32_t modes[][2] = {{0, 0}, {MICA_WEIGHTS_NO_MAP, 0}, {0, MICA_LOAD_PACK}};
    scene s;

    (void)state;
    if (TEST_ANY_SANITIZER) /* they turn mlock off */
        skip();
    scene_make(&s, "lock.gguf");
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(refuse_lock(&s, modes[m][0], modes[m][1]));
        assert_true(child > 0 && waitpid(child, &status, 0) == child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    scene_free(&s);
}

static void test_lock(void **state)
{
    static const uint32_t modes[][2] = {{0, 0}, {MICA_WEIGHTS_NO_MAP, 0}, {0, MICA_LOAD_PACK}};
    scene s;
    mica_device *device;
    const long before = locked_kilobytes();

    (void)state;
    if (TEST_ANY_SANITIZER || before < 0)
        skip();
    scene_make(&s, "locked.gguf");
    assert_int_equal(mica_device_open("cpu", NULL, &device), MICA_OK);
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        mica_weights_options options = {.flags = MICA_WEIGHTS_LOCK | modes[m][0]};
        mica_weights *weights;
        mica_buffer *buffer;
        assert_int_equal(mica_weights_open(s.path, &options, &weights), MICA_OK);
        if (mica_weights_load(weights, 6, device, modes[m][1], &buffer) == MICA_OK)
            assert_true(locked_kilobytes() - before >= (long)(s.bytes[6] / 1024));
        else
            assert_non_null(strstr(mica_status_message(), "RLIMIT_MEMLOCK"));
        mica_buffer_release(buffer);
        mica_weights_release(weights);
    }
    mica_device_release(device);
    scene_free(&s);
}

static mica_status whole_load(const char *path, uint32_t flags, bool separate)
{
    static const uint64_t order[] = {5, 4, 3, 2, 1, 0};
    mica_device_options threads = {.threads = 1};
    mica_weights_options options = {.flags = flags};
    mica_device *device = NULL;
    mica_weights *weights = NULL;
    mica_buffer *plain[6] = {NULL}, *packed[6] = {NULL};
    float values[96];

    mica_status status = mica_device_open("cpu", &threads, &device);
    if (status == MICA_OK)
        status = mica_weights_open(path, &options, &weights);
    if (status == MICA_OK) {
        device->info.properties.unified_memory = !separate;
        status = mica_weights_decode(weights, 2, 0, 96, values);
    }
    if (status == MICA_OK)
        status = mica_weights_load_all(weights, order, 6, device, 0, NULL, NULL, plain);
    if (status == MICA_OK)
        status = mica_weights_load_all(weights, order, 6, device, MICA_LOAD_PACK, NULL, NULL, packed);
    for (int i = 0; i < 6; i++) {
        mica_buffer_release(plain[i]);
        mica_buffer_release(packed[i]);
    }
    mica_weights_release(weights);
    mica_device_release(device);
    return status;
}

static void test_no_memory(void **state)
{
    static const struct {
        uint32_t flags;
        bool separate;
    } modes[] = {{0, false}, {MICA_WEIGHTS_NO_MAP, false}, {0, true}};
    scene s;

    (void)state;
    scene_make(&s, "memory.gguf");
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        mica_status status = MICA_ERR_OUT_OF_MEMORY;
        for (uint64_t n = 1; status != MICA_OK; n++) {
            test_meter f = {.fail_at = n};
            assert_int_equal(test_meter_set(&f), MICA_OK);
            status = whole_load(s.path, modes[m].flags, modes[m].separate);
            assert_true(status == MICA_OK || status == MICA_ERR_OUT_OF_MEMORY);
            assert_int_equal(f.live, 0);
            assert_int_equal(mica_set_allocator(NULL), MICA_OK);
            assert_true(n < 5000);
            if (status == MICA_OK && f.calls >= n) /* this one could be done without */
                status = MICA_ERR_OUT_OF_MEMORY;
        }
    }
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shrunk),
        cmocka_unit_test(test_lock_refused),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("load_trouble", tests, NULL, NULL);
}
