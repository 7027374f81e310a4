/* opencl_list.c - the devices of all platforms, best first, and whether mica can use them. Opens none. */
#include <stdio.h>
#include <string.h>

#include "backend/opencl/opencl_device.h"

#define MOST_PLATFORMS 16u
#define RANK_UNUSABLE 3u

void mica__opencl_device_text(const mica__opencl_symbols *cl, cl_device_id device, cl_uint what, char *out,
                              size_t bytes)
{
    char text[8192] = ""; /* a driver refuses a place that is too small; extensions are long */
    if (cl->clGetDeviceInfo(device, what, sizeof text - 1, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    text[sizeof text - 1] = '\0';
    const char *begin = text + strspn(text, " ");
    snprintf(out, bytes, "%s", begin);
}

uint64_t mica__opencl_device_number(const mica__opencl_symbols *cl, cl_device_id device, cl_uint what,
                                    uint64_t otherwise)
{
    uint64_t value = 0; /* the driver fills 4 or 8 bytes of it */
    return cl->clGetDeviceInfo(device, what, sizeof value, &value, NULL) == CL_SUCCESS ? value : otherwise;
}

unsigned mica__opencl_device_version(const mica__opencl_symbols *cl, cl_device_id device)
{
    char text[MICA_NAME_BYTES];
    unsigned major = 0, minor = 0;
    mica__opencl_device_text(cl, device, CL_DEVICE_VERSION, text, sizeof text);
    return sscanf(text, "OpenCL %2u.%2u", &major, &minor) == 2 ? major * 10 + minor : 0;
}

mica_status mica__opencl_entry_check(const mica__opencl_list *list, uint32_t index)
{
    const mica__opencl_symbols *cl = &list->cl;
    if (index >= list->count)
        return mica__fail(MICA_ERR_DEVICE_NOT_FOUND, "opencl:%u does not exist, the last one is opencl:%u",
                          index, list->count - 1);
    cl_device_id device = list->entry[index].device;
    const char *why = NULL;
    if (mica__opencl_device_number(cl, device, CL_DEVICE_AVAILABLE, 0) == 0)
        why = "the driver says that it is not available";
    else if (mica__opencl_device_number(cl, device, CL_DEVICE_COMPILER_AVAILABLE, 0) == 0)
        why = "it has no compiler";
    else if (mica__opencl_device_number(cl, device, CL_DEVICE_ENDIAN_LITTLE, 0) == 0)
        why = "it is big-endian";
    else if (mica__opencl_device_version(cl, device) < 12)
        why = "it offers less than OpenCL 1.2";
    return why == NULL ? MICA_OK : mica__fail(MICA_ERR_UNSUPPORTED, "opencl:%u: %s", index, why);
}

static uint32_t rank_of(const mica__opencl_list *list, uint32_t index)
{
    const uint64_t type = mica__opencl_device_number(&list->cl, list->entry[index].device, CL_DEVICE_TYPE, 0);
    if (mica__opencl_entry_check(list, index) != MICA_OK)
        return RANK_UNUSABLE;
    return (type & CL_DEVICE_TYPE_GPU) != 0 ? 0 : (type & CL_DEVICE_TYPE_ACCELERATOR) != 0 ? 1 : 2;
}

/* Stable: devices of one rank stay as they were. */
static void sort_by_rank(mica__opencl_list *list)
{
    for (uint32_t i = 1; i < list->count; i++) {
        const mica__opencl_entry entry = list->entry[i];
        uint32_t at = i;
        for (; at > 0 && list->entry[at - 1].rank > entry.rank; at--)
            list->entry[at] = list->entry[at - 1];
        list->entry[at] = entry;
    }
}

static void add_platform(mica__opencl_list *list, cl_platform_id platform)
{
    cl_device_id device[MICA__OPENCL_MOST_DEVICES];
    cl_uint found = 0;
    if (list->cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MICA__OPENCL_MOST_DEVICES, device, &found) !=
        CL_SUCCESS)
        return; /* a platform without devices is no failure of the others */
    found = found < MICA__OPENCL_MOST_DEVICES ? found : MICA__OPENCL_MOST_DEVICES;
    for (cl_uint i = 0; i < found && list->count < MICA__OPENCL_MOST_DEVICES; i++) {
        const uint32_t index = list->count++;
        list->entry[index] = (mica__opencl_entry){platform, device[i], 0};
        list->entry[index].rank = rank_of(list, index);
    }
}

mica_status mica__opencl_list_fill(mica__opencl_list *list)
{
    cl_platform_id platform[MOST_PLATFORMS];
    cl_uint platforms = 0;
    memset(list, 0, sizeof *list);
    const mica_status status = mica__opencl_symbols_load(&list->cl);
    if (status != MICA_OK)
        return status;
    const cl_int code = list->cl.clGetPlatformIDs(MOST_PLATFORMS, platform, &platforms);
    if (code != CL_SUCCESS && code != CL_PLATFORM_NOT_FOUND_KHR)
        return mica__fail(MICA_ERR_DEVICE_NOT_FOUND, "OpenCL cannot list its platforms: %s (%d)",
                          mica__opencl_error_name(code), code);
    platforms = platforms < MOST_PLATFORMS ? platforms : MOST_PLATFORMS;
    for (cl_uint i = 0; code == CL_SUCCESS && i < platforms; i++)
        add_platform(list, platform[i]);
    sort_by_rank(list);
    if (list->count == 0)
        return mica__fail(MICA_ERR_DEVICE_NOT_FOUND, "OpenCL is installed but has no device (%u platforms)",
                          platforms);
    return MICA_OK;
}
