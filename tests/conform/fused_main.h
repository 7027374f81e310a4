/*
 * fused_main.h - a cmocka program that compares records which a device may join with the same ops one after the other, over
 * random cases on one device: the first argument, else the cpu.
 */
#ifndef FUSED_MAIN_H
#define FUSED_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/random.h"
#include "support/sanitizer.h"
#include "support/status.h"

#define FUSED_CASES (TEST_ANY_SANITIZER ? 20u : 120u)

/* Draws case `number`, fails the test where bits differ, and says whether the ops became one record. */
typedef bool (*fused_case)(mica_device *device, test_random *random, uint32_t number);

/* cmocka hands a test one pointer that is no function: the program stands here. */
static struct {
    fused_case compare;
    uint64_t seed;
    const char *device_id;
} fused_running = {.device_id = "cpu"};

static void same_bits(void **state)
{
    test_random random = test_random_from(fused_running.seed);
    mica_device *device = NULL;
    uint32_t fused = 0;
    (void)state;
    must(mica_device_open(fused_running.device_id, NULL, &device));
    for (uint32_t i = 0; i < FUSED_CASES; i++)
        fused += fused_running.compare(device, &random, i);
    print_message("%s: %u of %u cases in one record\n", fused_running.device_id, fused, FUSED_CASES);
    mica_device_release(device);
}

static int fused_main(fused_case compare, uint64_t seed, int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    fused_running.compare = compare;
    fused_running.seed = seed;
    if (argc > 1)
        fused_running.device_id = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
