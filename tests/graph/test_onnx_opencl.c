/* test_onnx_opencl.c - the smallest node test of each ONNX operator through OpenCL. What needs f64, or 64-bit integers in order, is the cpu's and says so. */
#include "graph/onnx_nodes.h"

int main(void)
{
    mica_device *device = NULL;
    if (mica_device_open("opencl", NULL, &device) != MICA_OK) {
        printf("no OpenCL here: %s\n", mica_status_message());
        return 77;
    }
    const uint32_t unserved = nodes_run_all(device, MICA_MODE_COMPILED, NODES_FILE);
    printf("%u cases are the cpu's alone\n", unserved);
    mica_device_release(device);
    return unserved <= 12 ? 0 : 1;
}
