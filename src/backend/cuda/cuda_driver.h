/*
 * cuda_driver.h - NVIDIA's libraries as mica sees them: found at run time, a few types and functions declared here.
 *
 * Handles (context, stream, event, module, function, graph, node, pool) are all void *; device addresses are uint64_t.
 * The structs have the layout of the driver's ABI. Nothing here knows mica's devices.
 */
#ifndef MICA_CUDA_DRIVER_H
#define MICA_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/dl.h"

/* A kernel node's parameters, first version: every driver with graphs has it. */
typedef struct mica__cuda_launch {
    void *function;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
} mica__cuda_launch;

/* One end of a copy of up to three dimensions. */
typedef struct mica__cuda_copy_end {
    size_t x, y, z, lod;
    int type; /* MICA__CUDA_MEMORY_DEVICE */
    const void *host;
    uint64_t device;
    void *array, *reserved;
    size_t pitch, height;
} mica__cuda_copy_end;

typedef struct mica__cuda_copy {
    mica__cuda_copy_end from, to;
    size_t width, height, depth;
} mica__cuda_copy;

/* How the node at the end of an edge waits for the one at its beginning. */
typedef struct mica__cuda_edge {
    unsigned char from_port, to_port, type, reserved[5];
} mica__cuda_edge;

typedef struct mica__cuda_pool_desc {
    int allocation, handles, location, device;
    void *security;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} mica__cuda_pool_desc;

/* What cuBLASLt's search gives: the algorithm and how much it wants. */
typedef struct mica__cuda_heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} mica__cuda_heuristic;

_Static_assert(sizeof(mica__cuda_launch) == 56, "CUDA_KERNEL_NODE_PARAMS_v1");
_Static_assert(sizeof(mica__cuda_copy) == 200, "CUDA_MEMCPY3D_v2");
_Static_assert(sizeof(mica__cuda_edge) == 8, "CUgraphEdgeData");
_Static_assert(sizeof(mica__cuda_pool_desc) == 88, "CUmemPoolProps_v1");
_Static_assert(sizeof(mica__cuda_heuristic) == 96, "cublasLtMatmulHeuristicResult_t");

/* Numbers of the ABI. */
enum {
    MICA__CUDA_ERROR_MEMORY = 2,
    MICA__CUDA_ERROR_NOT_READY = 600,
    MICA__CUDA_MEMORY_DEVICE = 2,
    MICA__CUDA_ALLOCATION_PINNED = 1,
    MICA__CUDA_LOCATION_DEVICE = 1,
    MICA__CUDA_POOL_RELEASE_THRESHOLD = 4,
    MICA__CUDA_HOST_PORTABLE = 1,
    MICA__CUDA_HOST_MAPPED = 2,
    MICA__CUDA_STREAM_NON_BLOCKING = 1,
    MICA__CUDA_EVENT_UNTIMED = 2,
    MICA__CUDA_CAPTURE_RELAXED = 2,
    MICA__CUDA_PORT_PROGRAMMATIC = 1, /* of a kernel: its groups said that others may start */
    MICA__CUDA_EDGE_PROGRAMMATIC = 1, /* the kernel waits by itself */
    MICA__CUDA_FUNCTION_THREADS = 0,
    MICA__CUDA_FUNCTION_SHARED = 1,
    MICA__CUDA_FUNCTION_DYNAMIC = 8,
    MICA__CUDA_JIT_ERROR_LOG = 5,
    MICA__CUDA_JIT_ERROR_LOG_BYTES = 6
};
/* Attributes of devices. */
enum {
    MICA__CUDA_DEVICE_THREADS = 1,
    MICA__CUDA_DEVICE_PROCESSORS = 16,
    MICA__CUDA_DEVICE_CACHE = 38,
    MICA__CUDA_DEVICE_MAJOR = 75,
    MICA__CUDA_DEVICE_MINOR = 76,
    MICA__CUDA_DEVICE_SHARED = 97, /* of a group that asked for it */
    MICA__CUDA_DEVICE_POOLS = 115
};

typedef struct mica__cuda_driver {
    mica__dl *library;
#define CUDA_NEED(name, symbol, arguments) int(*name) arguments;
#define CUDA_MAY(name, symbol, arguments) int(*name) arguments;
#include "backend/cuda/cuda_symbols.def"
#undef CUDA_NEED
#undef CUDA_MAY
} mica__cuda_driver;

typedef struct mica__cuda_compiler {
    mica__dl *library;
#define NVRTC_NEED(name, symbol, arguments) int(*name) arguments;
#define NVRTC_MAY(name, symbol, arguments) int(*name) arguments;
#include "backend/cuda/cuda_symbols.def"
#undef NVRTC_NEED
#undef NVRTC_MAY
} mica__cuda_compiler;

typedef struct mica__cuda_blas {
    mica__dl *library;
#define BLAS_NEED(name, symbol, arguments) int(*name) arguments;
#include "backend/cuda/cuda_symbols.def"
#undef BLAS_NEED
} mica__cuda_blas;

/* Each opens its library and finds its symbols; one that is too old, or a compiler of a newer major version than the driver's
 * (cuDriverGetVersion; 0: not known), is passed over for the next name. UNSUPPORTED, with what was looked for or why what was found
 * does not do. Closed with mica__dl_close(out->library), which is NULL on failure. */
mica_status mica__cuda_driver_open(mica__cuda_driver *out);
mica_status mica__cuda_compiler_open(int driver_version, mica__cuda_compiler *out);
mica_status mica__cuda_blas_open(mica__cuda_blas *out);

#endif
