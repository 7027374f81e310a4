/* test_backend_shapes_opencl_slow.c - the same shapes on the first OpenCL device: some lines of a family, all of one that is named. Not under sanitizers, which
 * would see the host's part alone. Regions are interpreted: a kernel made for each program would take most of the time, and
 * test_conform_opencl makes them. */
#include "conform/shapes_main.h"

int main(int argc, char **argv)
{
    if (setenv("MICA_DEBUG", "interpret", 0) != 0)
        return 1;
    return shapes_main("opencl", 27, argc, argv);
}
