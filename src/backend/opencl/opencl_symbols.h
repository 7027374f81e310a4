/*
 * opencl_symbols.h - the part of OpenCL that mica uses, declared here: types, numbers, a table of functions found at run
 * time. Knows no device of mica.
 *
 * bool-like and bit-field parameters are declared by their width (cl_uint, cl_ulong), which is what they are.
 */
#ifndef MICA_OPENCL_SYMBOLS_H
#define MICA_OPENCL_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "base/dl.h"

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef struct mica__cl_platform *cl_platform_id;
typedef struct mica__cl_device *cl_device_id;
typedef struct mica__cl_context *cl_context;
typedef struct mica__cl_queue *cl_command_queue;
typedef struct mica__cl_mem *cl_mem;
typedef struct mica__cl_program *cl_program;
typedef struct mica__cl_kernel *cl_kernel;
typedef struct mica__cl_event *cl_event;

/* Codes that mica treats apart; all that it names are in opencl_errors.def. */
enum {
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_OUT_OF_RESOURCES = -5,
    CL_INVALID_VALUE = -30,
    CL_INVALID_KERNEL_NAME = -46,
    CL_PLATFORM_NOT_FOUND_KHR = -1001
};

enum {
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_ADDRESS_BITS = 0x100d,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101b,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101e,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    CL_DEVICE_AVAILABLE = 0x1027,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    CL_DEVICE_NAME = 0x102b,
    CL_DRIVER_VERSION = 0x102d,
    CL_DEVICE_VERSION = 0x102f,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_WARP_SIZE_NV = 0x4003,
    CL_PLATFORM_NAME = 0x0902,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11b0,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11d3,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283
};

#define CL_DEVICE_TYPE_CPU 2u
#define CL_DEVICE_TYPE_GPU 4u
#define CL_DEVICE_TYPE_ACCELERATOR 8u
#define CL_DEVICE_TYPE_ALL 0xffffffffu
#define CL_QUEUE_PROFILING_ENABLE 2u
#define CL_MEM_READ_WRITE 1u
#define CL_MAP_READ_WRITE 3u
#define CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT 0x80u
#define CL_COMPLETE 0 /* execution status; below it: the code of a failure */

typedef struct mica__opencl_symbols {
#define OPENCL_STATUS(name, parameters, arguments) cl_int(*name) parameters;
#define OPENCL_OBJECT(type, name, parameters, arguments) type(*name) parameters;
#include "backend/opencl/opencl_symbols.def"
#undef OPENCL_STATUS
#undef OPENCL_OBJECT
} mica__opencl_symbols;

/* Loads the library, or takes what a test has put in its place. UNSUPPORTED with what was looked for. The library stays
 * loaded for the life of the process; the table is the caller's. */
mica_status mica__opencl_symbols_load(mica__opencl_symbols *out);
/* The same from the first of `names` that loads. */
mica_status mica__opencl_symbols_load_from(const char *const *names, mica__opencl_symbols *out);
/* For tests: devices listed and opened from now on call these functions; NULL: the library's again. Not while another
 * thread lists or opens devices. */
void mica__opencl_symbols_replace(const mica__opencl_symbols *symbols);

/* "CL_OUT_OF_RESOURCES"; "unknown code" for a number that has no name here. */
const char *mica__opencl_error_name(cl_int code);
/* What a call that failed with this code gives: OUT_OF_MEMORY, DEVICE_LOST ...; SUBMISSION for an unknown one. */
mica_status mica__opencl_error_status(cl_int code);

#endif
