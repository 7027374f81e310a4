/* test_golden.c - every checkpoint of tests/model/golden on the cpu: golden_models.h. */
#include "golden_models.h"

static void agrees(void **state)
{
    golden_agrees(*state, "cpu");
}

int main(void)
{
    struct CMUnitTest tests[GOLDEN_COUNT];
    for (size_t i = 0; i < GOLDEN_COUNT; i++)
        tests[i] = (struct CMUnitTest){golden_checkpoints[i].name, agrees, NULL, NULL,
                                       (void *)(uintptr_t)&golden_checkpoints[i]};
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
