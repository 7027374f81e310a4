/* test_conform_opencl.c - the conformance table on the first OpenCL device: a GPU, or PoCL. Sanitizers see the host's part
 * alone, which is the same in every case. */
#include <stdio.h>
#include <stdlib.h>

#include "conform/conform_main.h"
#include "support/sanitizer.h"

/* Half the time of a run was PoCL's optimiser. What it makes of the same texts is run by the tests of models, of the tool and of
 * stress, which must not find these programs in their cache; and all of it here when the variable is set to nothing. */
static void leave_pocl_plain(void)
{
    const char *cache = getenv("MICA_CACHE_DIR");
    char plain[4096];
    if (getenv("POCL_EXTRA_BUILD_FLAGS") != NULL)
        return;
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 1);
    if (cache != NULL && snprintf(plain, sizeof plain, "%s/plain", cache) < (int)sizeof plain)
        setenv("MICA_CACHE_DIR", plain, 1);
}

int main(int argc, char **argv)
{
    const conform_program program = {.name = "conform_opencl",
                                     .id = "opencl",
                                     .cases = TEST_ANY_SANITIZER ? 1 : CONFORM_GPU_CASES,
                                     .edges = TEST_ANY_SANITIZER ? 4 : CONFORM_ATTENTION_EDGES};

    leave_pocl_plain();
    return conform_main(&program, argc, argv);
}
