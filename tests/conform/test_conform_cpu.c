/* test_conform_cpu.c - the conformance table on the cpu device, on each instruction set, 1, 2 and 3 threads. */
#include "conform/conform_main.h"
#include "support/sanitizer.h"

int main(int argc, char **argv)
{
    const conform_program program = {.name = "conform_cpu",
                                     .id = "cpu",
                                     .cases = TEST_ANY_SANITIZER ? 4 : 16,
                                     .edges = CONFORM_ATTENTION_EDGES};

    return conform_main(&program, argc, argv);
}
