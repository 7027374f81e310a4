/*
 * opencl_subgroups.c - whether kernels may use OpenCL's own sub-groups: offered, with shuffles, and cut as kernels expect.
 *
 * The standard leaves it to the driver which work-items of a group make a sub-group. The kernels take them for aligned runs of
 * local ids, so a kernel that looks is run once when the device is opened. How wide they are is asked by each kernel again.
 */
#include <string.h>

#include "backend/opencl/opencl_device.h"

#define GROUP 256u
#define NARROWEST 8u /* of fewer work-items local memory does it as well */

/* out[0]: their width; out[1]: not 0 where a work-item is not in the place of its run that its local id says, or a shuffle gives
 * it another one's value. */
static const char probe[] =
    "__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void look(__global uint *out)\n"
    "{\n"
    "    const uint lid = (uint)get_local_id(0), width = get_max_sub_group_size();\n"
    "    const uint other = sub_group_shuffle_xor(lid, width / 2u);\n"
    "    if (lid == 0u)\n"
    "        out[0] = width;\n"
    "    if (get_sub_group_local_id() != lid % width || get_sub_group_id() != lid / width ||\n"
    "        other != (lid ^ (width / 2u)))\n"
    "        out[1] = 1u;\n"
    "}\n";

/* Runs the kernel once; false where any step of it fails. */
static bool run(mica__device *device, cl_kernel kernel, uint32_t out[2])
{
    const mica__opencl_symbols *cl = &device->cl;
    static const uint32_t zero = 0;
    const size_t items = GROUP;
    return cl->clSetKernelArg(kernel, 0, sizeof device->nothing, &device->nothing) == CL_SUCCESS &&
           cl->clEnqueueFillBuffer(device->transfers, device->nothing, &zero, sizeof zero, 0,
                                   2 * sizeof out[0], 0, NULL, NULL) == CL_SUCCESS &&
           cl->clEnqueueNDRangeKernel(device->transfers, kernel, 1, NULL, &items, &items, 0, NULL, NULL) ==
               CL_SUCCESS &&
           cl->clEnqueueReadBuffer(device->transfers, device->nothing, 1, 0, 2 * sizeof out[0], out, 0, NULL,
                                   NULL) == CL_SUCCESS;
}

uint32_t mica__opencl_subgroup_width(mica__device *device)
{
    const mica__opencl_symbols *cl = &device->cl;
    const char *text = probe;
    uint32_t out[2] = {0, 1};
    cl_int code = CL_SUCCESS;
    cl_program program = cl->clCreateProgramWithSource(device->context, 1, &text, NULL, &code);
    if (program == NULL)
        return 0;
    cl_kernel kernel = NULL;
    if (cl->clBuildProgram(program, 1, &device->id, device->options, NULL, NULL) == CL_SUCCESS)
        kernel = cl->clCreateKernel(program, "look", &code);
    const bool ran = kernel != NULL && run(device, kernel, out);
    if (kernel != NULL)
        cl->clReleaseKernel(kernel);
    cl->clReleaseProgram(program);
    const uint32_t width = out[0];
    const bool fits = width >= NARROWEST && width <= GROUP && (width & (width - 1)) == 0;
    return ran && fits && out[1] == 0 ? width : 0;
}
