/*
 * test_conform_cpu.c - the conformance table on the cpu device.
 *
 *   test_conform_cpu                        the fixed seeds
 *   test_conform_cpu SEED [ROW [COUNT]]     one case of each row, or of the row that a report names, or COUNT of them
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_suite.h"
#include "support/sanitizer.h"

#define MOST_ROWS 128

static conform_suite suite;
static uint64_t seed = CONFORM_SEED;
static uint32_t cases = TEST_THREAD_SANITIZER ? 4 : 16;

static int open_devices(void **state)
{
    (void)state;
    return conform_suite_open(&suite, "cpu") == MICA_OK ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    conform_suite_close(&suite);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static void test_row(void **state)
{
    char why[CONFORM_TEXT];

    if (!conform_suite_row(&suite, *state, seed, cases, why))
        fail_msg("%s", why);
}

static void test_edges(void **state)
{
    char why[CONFORM_TEXT];

    (void)state;
    if (!conform_suite_row(&suite, &conform_attention_edges, 0, CONFORM_ATTENTION_EDGES, why))
        fail_msg("%s", why);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[MOST_ROWS];
    uint32_t count = 0;

    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
        cases = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;
    }
    for (uint32_t i = 0; i < conform_table_count && count < MOST_ROWS - 1; i++) {
        if (argc > 2 && strcmp(argv[2], conform_table[i].name) != 0)
            continue;
        tests[count] =
            (struct CMUnitTest)cmocka_unit_test_prestate(test_row, (void *)(uintptr_t)&conform_table[i]);
        tests[count++].name = conform_table[i].name;
    }
    if (argc < 3)
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_edges);
    return _cmocka_run_group_tests("conform_cpu", tests, count, open_devices, close_devices);
}
