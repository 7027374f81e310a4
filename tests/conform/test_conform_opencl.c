/* test_conform_opencl.c - the conformance table on the first OpenCL device: a GPU, or PoCL. Sanitizers see the host's part
 * alone, which is the same in every case. */
#include "conform/conform_main.h"
#include "support/plain_pocl.h"
#include "support/sanitizer.h"

int main(int argc, char **argv)
{
    const conform_program program = {.name = "conform_opencl",
                                     .id = "opencl",
                                     .cases = TEST_ANY_SANITIZER ? 1 : CONFORM_GPU_CASES,
                                     .edges = TEST_ANY_SANITIZER ? 4 : CONFORM_ATTENTION_EDGES};

    leave_pocl_plain();
    return conform_main(&program, argc, argv);
}
