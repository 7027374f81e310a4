/*
 * conform_main.h - the conformance table as a cmocka program for one kind of device.
 *
 *   test_conform_X                        the fixed seeds
 *   test_conform_X part K N               the same, rows K, K + N, K + 2 N and so on alone: for several processes
 *   test_conform_X SEED [ROW [COUNT]]     one case, or COUNT of them, of the row that a report names; of each row without one or with "all"
 */
#ifndef CONFORM_MAIN_H
#define CONFORM_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_rows.h"
#include "conform/conform_suite.h"
#include "support/need.h"
#include "support/sanitizer.h"

typedef struct conform_program {
    const char *name, *id; /* of the group of tests, of the device */
    uint32_t cases, edges; /* of each row, of the attention's numbered ones */
    uint32_t scalars;      /* of the row that counts through the scalars, at least */
    conform_suite suite;
    uint64_t seed;
} conform_program;

/* Cases that failed once, which the fixed seeds do not draw. */
static const struct {
    const char *row;
    uint64_t seed;
} conform_once_failed[] = {{"scalar", 45 /* silu below -88.7, where e^-x is infinite */}};

/* cmocka hands a test one pointer, the row: the program stands here. */
static conform_program conform_running;

static int conform_open(void **state)
{
    (void)state;
    const mica_status status = conform_suite_open(&conform_running.suite, conform_running.id);
    mica_device_properties properties = {.processors = 0};
    if (status != MICA_OK ||
        mica_device_get_properties(conform_running.suite.device[0][0], &properties) != MICA_OK)
        print_error("%s: %s\n", conform_running.id, mica_status_message());
    conform_kernels = strcmp(conform_running.id, "cpu") != 0;
    conform_few_processors = properties.processors > 0 && properties.processors < 16;
    return status == MICA_OK ? 0 : -1;
}

static int conform_close(void **state)
{
    (void)state;
    conform_suite_close(&conform_running.suite);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static void conform_test_row(void **state)
{
    const conform_row *row = *state;
    const uint32_t least = row->make == conform_make_scalar ? conform_running.scalars : 0;
    char why[CONFORM_TEXT];

    for (size_t i = 0; i < sizeof conform_once_failed / sizeof *conform_once_failed; i++)
        if (strcmp(conform_once_failed[i].row, row->name) == 0 &&
            !conform_suite_case(&conform_running.suite, row, conform_once_failed[i].seed, why))
            fail_msg("%s", why);
    if (!conform_suite_row(&conform_running.suite, row, conform_running.seed,
                           least > conform_running.cases ? least : conform_running.cases, why))
        fail_msg("%s", why);
}

static void conform_test_edges(void **state)
{
    char why[CONFORM_TEXT];

    (void)state;
    if (!conform_suite_row(&conform_running.suite, &conform_attention_edges, 0, conform_running.edges, why))
        fail_msg("%s", why);
}

static int conform_main(const conform_program *program, int argc, char **argv)
{
    struct CMUnitTest *tests;
    uint32_t count = 0;
    const bool part = argc == 4 && strcmp(argv[1], "part") == 0;
    const uint32_t first = part ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    const uint32_t step = part ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;
    const bool all = argc < 3 || part || strcmp(argv[2], "all") == 0;
    const int missing = test_need(program->id);
    int failed;

    if (missing != 0)
        return missing;
    conform_running = *program;
    conform_running.seed = CONFORM_SEED;
    conform_running.scalars = TEST_ANY_SANITIZER ? 0 : conform_scalar_calls;
    if (argc > 1 && !part) {
        conform_running.seed = strtoull(argv[1], NULL, 10);
        conform_running.cases = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;
        conform_running.scalars = 0;
    }
    tests = test_alloc(conform_table_count + 1, sizeof *tests);
    for (uint32_t i = first; i < conform_table_count && step > 0; i += step) {
        if (!all && strcmp(argv[2], conform_table[i].name) != 0)
            continue;
        tests[count] = (struct CMUnitTest)cmocka_unit_test_prestate(conform_test_row,
                                                                    (void *)(uintptr_t)&conform_table[i]);
        tests[count++].name = conform_table[i].name;
    }
    if (all && first == 0 && step > 0)
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(conform_test_edges);
    if (count == 0)
        print_error("no row is called \"%s\"\n", argv[2]);
    failed =
        count == 0 ? 1 : _cmocka_run_group_tests(program->name, tests, count, conform_open, conform_close);
    free(tests);
    return failed;
}

#endif
