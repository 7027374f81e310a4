/* test_conform_cuda.c - the conformance table on the first CUDA device. Skipped where there is none, unless MICA_GPU is set,
 * as `make test-gpu` does: then it fails. */
#include <stdio.h>

#include "conform/conform_main.h"

#define SKIPPED 77

int main(int argc, char **argv)
{
    const conform_program program = {
        .name = "conform_cuda", .id = "cuda", .cases = 4, .edges = CONFORM_ATTENTION_EDGES};
    mica_device *device = NULL;

    if (mica_device_open("cuda", NULL, &device) != MICA_OK) {
        fprintf(stderr, "skipped: no CUDA device: %s\n", mica_status_message());
        return getenv("MICA_GPU") != NULL ? 1 : SKIPPED;
    }
    mica_device_release(device);
    return conform_main(&program, argc, argv);
}
