/* test_conform_cuda.c - the conformance table on the first CUDA device. */
#include "conform/conform_main.h"

int main(int argc, char **argv)
{
    const conform_program program = {
        .name = "conform_cuda", .id = "cuda", .cases = CONFORM_GPU_CASES, .edges = CONFORM_ATTENTION_EDGES};

    conform_half_activations = true;
    return conform_main(&program, argc, argv);
}
