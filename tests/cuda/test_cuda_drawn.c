/* test_cuda_drawn.c - what the conformance table draws for a GPU reaches the kernels that its rows are there for. The stand-in
 * says that it is a Hopper and computes nothing; what the kernels compute is for test_conform_cuda on a real one. */
#include "cuda_rig.h"

#include "conform/conform_suite.h"
#include "mica/mica.h"
#include "support/sanitizer.h"

#define MOST_ENTRIES 8

static const conform_row *row_named(const char *name)
{
    for (uint32_t i = 0; i < conform_table_count; i++)
        if (strcmp(conform_table[i].name, name) == 0)
            return &conform_table[i];
    fail_msg("the table has no row \"%s\"", name);
    return NULL;
}

/* Runs the case and gives the name of its last kernel; [m, n] of its output in `shape`. */
static void run_case(mica_device *device, const conform_row *row, uint64_t seed, mica_profile_entry *out,
                     uint64_t shape[2])
{
    mica_profile_entry entries[MOST_ENTRIES];
    mica_encoder *encoder = NULL;
    uint64_t count = 0;
    conform_case c;
    conform_case_make(&c, row, seed, false);
    must(conform_case_upload(&c, device));
    must(mica_profile_begin(device));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(row->encode(&c, encoder));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_profile_end(device));
    must(mica_profile_entries(device, entries, MOST_ENTRIES, &count));
    assert_in_range(count, 1, MOST_ENTRIES);
    *out = entries[count - 1];
    memcpy(shape, conform_tensor(&c, c.output)->shape, 2 * sizeof *shape);
    conform_case_free(&c);
}

/* As many tiles as cuda_plan_gemm.c leaves whole on 132 multiprocessors, in a column and in a row, and fewer, which it halves. */
static void test_tiles(void **state)
{
    const conform_row *row = row_named("matmul tiles q4_0");
    uint32_t halves = 0, whole_rows = 0, whole_columns = 0;
    mica_device *device = NULL;
    (void)state;
    fake_reset();
    must(mica_device_open("cuda:0", NULL, &device));
    for (uint64_t i = 0; i < CONFORM_GPU_CASES; i++) {
        mica_profile_entry last;
        uint64_t shape[2];
        run_case(device, row, CONFORM_SEED + i, &last, shape);
        const uint64_t rows = (shape[0] + 127) / 128, columns = (shape[1] + 255) / 256;
        assert_string_equal(last.kernel, "gemm");
        halves += rows * columns <= 66;
        whole_rows += rows > 66 && rows * columns <= 132;
        whole_columns += columns > 66 && rows * columns <= 132;
    }
    assert_true(halves > 0);
    if (!TEST_ANY_SANITIZER)
        assert_true(whole_rows > 0 && whole_columns > 0);
    mica_device_release(device);
    rig_check_clean();
}

static void test_library(void **state)
{
    const conform_row *row = row_named("matmul library f32");
    mica_device *device = NULL;
    (void)state;
    fake_reset();
    must(mica_device_open("cuda:0", NULL, &device));
    for (uint64_t i = 0; i < CONFORM_GPU_CASES; i++) {
        mica_profile_entry last;
        uint64_t shape[2];
        run_case(device, row, CONFORM_SEED + i, &last, shape);
        assert_string_equal(last.kernel, "cublaslt");
    }
    mica_device_release(device);
    rig_check_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles), cmocka_unit_test(test_library)};
    return cmocka_run_group_tests_name("cuda_drawn", tests, NULL, NULL);
}
