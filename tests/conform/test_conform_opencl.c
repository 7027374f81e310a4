/* test_conform_opencl.c - the conformance table on the first OpenCL device: a GPU, or PoCL. Sanitizers see the host's part
 * alone, which is the same in every case. */
#include <stdlib.h>

#include "conform/conform_main.h"
#include "support/sanitizer.h"

int main(int argc, char **argv)
{
    const conform_program program = {.name = "conform_opencl",
                                     .id = "opencl",
                                     .cases = TEST_ANY_SANITIZER ? 1 : CONFORM_GPU_CASES,
                                     .edges = TEST_ANY_SANITIZER ? 4 : CONFORM_ATTENTION_EDGES};

    /* Half the time of a run was PoCL's optimiser. What it makes of the same texts is run by the tests of models, of the tool and of
     * stress, and all of it here when the variable is set to nothing. */
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);
    return conform_main(&program, argc, argv);
}
