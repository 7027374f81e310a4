/* test_conform_opencl.c - the conformance table on the first OpenCL device: a GPU, or PoCL. */
#include "conform/conform_main.h"

int main(int argc, char **argv)
{
    const conform_program program = {
        .name = "conform_opencl", .id = "opencl", .cases = 4, .edges = CONFORM_ATTENTION_EDGES};

    return conform_main(&program, argc, argv);
}
