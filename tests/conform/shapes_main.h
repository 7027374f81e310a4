/*
 * shapes_main.h - the families of fixed shapes as a cmocka program for one kind of device.
 *
 *   test_backend_shapes [FAMILY [NUMBER]]     all of them, those of one family, or one of its lines, which a report names
 */
#ifndef SHAPES_MAIN_H
#define SHAPES_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_shapes.h"
#include "support/need.h"
#include "support/sanitizer.h"

static conform_suite shapes_suite;
static const char *shapes_device;
static uint32_t shapes_first, shapes_step = 1;

/* Two threads of each instruction set, in the first place: what shapes decide is the same on one and three, which the drawn cases have. */
static int shapes_open(void **state)
{
    (void)state;
    if (conform_suite_open(&shapes_suite, shapes_device) != MICA_OK) {
        print_error("%s: %s\n", shapes_device, mica_status_message());
        return -1;
    }
    for (uint32_t i = 0; strcmp(shapes_device, "cpu") == 0 && i < CONFORM_ISAS; i++) {
        mica_device **form = shapes_suite.device[i];

        mica_device_release(form[0]);
        mica_device_release(form[2]);
        form[0] = form[1];
        form[1] = form[2] = NULL;
    }
    conform_kernels = strcmp(shapes_device, "cpu") != 0;
    return 0;
}

static int shapes_close(void **state)
{
    (void)state;
    conform_suite_close(&shapes_suite);
    return mica_host_bytes() == 0 ? 0 : -1;
}

/* What shapes decide is decided before the kernels: lines take the cpu's instruction sets by turns, all of them where a family has
 * fewer lines than there are, or one line was asked for. */
static conform_suite shapes_turn(uint32_t line, uint32_t lines)
{
    conform_suite turn = shapes_suite;
    uint32_t sets = 0;

    for (uint32_t i = 0; i < CONFORM_ISAS; i++)
        sets += shapes_suite.device[i][0] != NULL;
    for (uint32_t i = 0, set = 0; i < CONFORM_ISAS && lines >= sets; i++)
        if (shapes_suite.device[i][0] != NULL && set++ != line % sets)
            turn.device[i][0] = NULL;
    return turn;
}

static void shapes_test_family(void **state)
{
    const conform_family *family = *state;
    conform_lines lines = {NULL, 0, 0};
    char why[CONFORM_TEXT];

    family->lines(&lines);
    for (uint32_t i = shapes_first, done = 0; i < lines.count; i += shapes_step, done++) {
        const conform_suite turn = shapes_turn(done, lines.count / shapes_step);

        if (!conform_line_run(&turn, &lines.at[i], i, why))
            fail_msg("line %u of '%s': %s", i, family->name, why);
    }
    conform_lines_free(&lines);
}

/* `step`: every so many lines of a family. */
static int shapes_main(const char *device, uint32_t step, int argc, char **argv)
{
    static const conform_family *const lists[] = {conform_dense_shapes, conform_row_shapes,
                                                  conform_image_shapes, conform_attention_shapes,
                                                  conform_defect_shapes};
    struct CMUnitTest tests[64];
    uint32_t count = 0;
    const int missing = test_need(device);

    if (missing != 0)
        return missing;
    shapes_device = device;
    shapes_first = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    shapes_step = argc > 2 ? UINT32_MAX / 2 : argc > 1 ? 1 : step;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const conform_family *family = lists[l]; family->name != NULL; family++) {
            if (argc > 1 && strcmp(argv[1], family->name) != 0)
                continue;
            tests[count] =
                (struct CMUnitTest)cmocka_unit_test_prestate(shapes_test_family, (void *)(uintptr_t)family);
            tests[count++].name = family->name;
        }
    return count == 0 ? 1
                      : _cmocka_run_group_tests("backend_shapes", tests, count, shapes_open, shapes_close);
}

#endif
