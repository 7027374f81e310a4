/* test_backend_shapes_opencl_slow.c - the same shapes on the first OpenCL device: every fifth line of a family, all of one that is named. Sanitizers
 * see the host's part alone, which few lines reach. */
#include "conform/shapes_main.h"

int main(int argc, char **argv)
{
    return shapes_main("opencl", TEST_ANY_SANITIZER ? 64 : 5, argc, argv);
}
