/*
 * cuda_device.h - the objects of the CUDA backend, shared by its files.
 *
 * One primary context per device, made current for the length of each call (enter .. leave). Queues are streams; one-shot
 * commands are a list of launches, reusable ones a graph besides. Knows no op.
 */
#ifndef MICA_CUDA_DEVICE_H
#define MICA_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/cuda/cuda_driver.h"
#include "backend/encode.h"
#include "backend/far.h"
#include "backend/spares.h"
#include "backend/times.h"
#include "base/status.h"
#include "base/thread.h"

#define MICA__CUDA_SLOTS 128u           /* submissions of a queue on their way or remembered */
#define MICA__CUDA_STAGINGS 4u          /* transfers side by side */
#define MICA__CUDA_CHUNK (4u << 20)     /* bytes of one piece of a transfer */
#define MICA__CUDA_ARGUMENT_BYTES 4096u /* of a kernel: pointers and parameters */
#define MICA__CUDA_ARGUMENTS (MICA__CUDA_ARGUMENT_BYTES / 8)
#define MICA__CUDA_MARKED 63u   /* bindings with a bit of their own; later ones share the last */
#define MICA__CUDA_FAULTS 1024u /* fault words of a page */
/* Of every compilation, beside what a text asks for; part of the identity, so that code made with others is made again. */
#define MICA__CUDA_OPTIONS "--fmad=false --std=c++17 --disable-warnings"

/* A kernel of a program, or a built-in one that encodes itself into a stream. `bindings` are device addresses. */
struct mica__kernel {
    char name[64];
    void *function;
    uint32_t most_threads, shared; /* of a group; static local bytes */
    uint32_t argument_count;       /* of a user's kernel; 0: one of ours, or the driver cannot say */
    uint32_t params_bytes;         /* size of the last argument, where argument_count is known */
    mica_status (*encode)(mica__device *device, const uint64_t *bindings, const void *params, void *stream);
    mica__kernel *next; /* of the same program */
};

struct mica__program {
    mica__device *device;
    void *module;
    bool foreign;
    mica__kernel *kernels; /* guarded by the device's lock */
    void *binary;          /* for the disk cache, until program_binary takes it; NULL: none */
    uint64_t binary_bytes;
    char name[160];
};

/* A dispatch or a copy. Its block in the blob: device addresses, then parameters (a copy's: its length). */
typedef struct mica__cuda_node {
    mica__kernel *kernel; /* NULL: a copy */
    unsigned grid[3], block[3], shared;
    uint32_t binding_count, params_size;
    uint64_t bindings, params, label; /* places in the blob */
    uint32_t first_dependency, dependency_count;
    uint32_t group;          /* barriers before it */
    uint64_t written, ahead; /* bits of bindings: written; read before the kernel waits (MICA__BIND_AHEAD) */
    uint32_t far; /* 1 + the binding that is the parameters (MICA__BIND_PARAMS); 0: they are an argument */
    float bytes, operations; /* for profiles */
    uint16_t op;
    bool early;   /* may start before what it waits for is over */
    void *handle; /* in the graph */
} mica__cuda_node;

/* A u32 of pinned host memory that the device writes. 0 while no submission that uses it is on its way. */
typedef struct mica__cuda_fault {
    struct mica__cuda_fault *next;
    _Atomic uint32_t *host;
    uint64_t device;
} mica__cuda_fault;

typedef struct mica__cuda_fault_page {
    struct mica__cuda_fault_page *next;
    void *host;
    mica__cuda_fault fault[MICA__CUDA_FAULTS];
} mica__cuda_fault_page;

struct mica__encoding {
    mica__commands *commands;
    mica__latch latch;
    bool open;   /* something was encoded since the last barrier */
    bool serial; /* debug word: a barrier after each */
};

/* Device addresses. */
typedef struct mica__cuda_range {
    uint64_t begin, end;
} mica__cuda_range;

struct mica__commands {
    _Atomic uint32_t references;
    mica__device *device;
    bool reusable, stale; /* stale: the graph no longer says what the list does */
    /* a node may start early; none does: that was refused, or operands have changed since */
    bool early, plain;
    mica__cuda_node *node;
    uint32_t *dependency;
    mica__cuda_range *written; /* by its nodes */
    uint32_t node_count, dependency_count, written_count, group;
    uint64_t node_capacity, dependency_capacity, written_capacity;
    mica__blob blob;
    mica__far far;
    mica__cuda_fault *fault;
    void *graph, *executable; /* NULL: one-shot, or a driver without graphs */
    mica__encoding encoding;
};

/* A submission. Events are made once and used again. */
typedef struct mica__cuda_slot {
    uint64_t value;
    mica__commands *commands; /* counted, until resolved */
    void *begin, *end;
    void **times; /* [commands->node_count + 1] events of a timed submission; NULL: not timed */
    mica__completion completion;
} mica__cuda_slot;

struct mica__queue {
    pthread_mutex_t lock;
    mica__fork_guard guard;
    void *stream;
    uint64_t submitted, done;
    void *origin; /* an event, and the time at which it happened */
    uint64_t origin_ns;
    mica__cuda_slot slot[MICA__CUDA_SLOTS]; /* value % MICA__CUDA_SLOTS */
};

/* A stream with two pinned pieces that take turns; made at its first use. */
typedef struct mica__cuda_staging {
    pthread_mutex_t lock;
    mica__fork_guard guard;
    void *stream;
    void *event[2];
    unsigned char *piece[2];
} mica__cuda_staging;

struct mica__device {
    mica__cuda_driver driver;
    uint32_t index, generation; /* fork generation of its birth */
    int ordinal;
    void *context;
    int version; /* of the driver */
    atomic_bool lost;
    mica__device_info info;
    uint32_t shared;          /* most local bytes of a group */
    void *pool, *pool_stream; /* NULL: plain allocation */
    uint64_t dummy;           /* what absent operands show: 256 bytes */
    mica__queue queue;
    mica__cuda_staging staging[MICA__CUDA_STAGINGS];
    uint32_t staging_count; /* whose locks are ready */
    atomic_uint next_staging;
    mica__spares spares;
    pthread_mutex_t lock; /* guards what follows */
    mica__fork_guard guard;
    mica__cuda_fault_page *fault_pages;
    mica__cuda_fault *free_fault;
    mica__times times;
    /* Opened on first use, under their own lock: that takes long. */
    pthread_mutex_t library_lock;
    mica__fork_guard library_guard;
    mica__cuda_compiler compiler;
    char compiler_missing[256]; /* why there is none; "": not looked for, or there */
    mica__cuda_blas blas;
    struct mica__cuda_blas_state *blas_state; /* NULL: not opened */
    bool blas_missing;
    mica__kernel blas_kernel;
};

/* ---- cuda_device.c ---- */

/* DEVICE_LOST for a lost device and in the child of a fork; else the context is current until mica__cuda_leave. */
mica_status mica__cuda_enter(mica__device *device);
void mica__cuda_leave(mica__device *device);
/* For giving things back: also on a lost device. False: nothing of the driver may be touched. */
bool mica__cuda_enter_quietly(mica__device *device);
/* 0 is MICA_OK; else a sentence "cuda:0: what: name of the error", and DEVICE_LOST for errors that end a context,
 * OUT_OF_MEMORY, or `code`. */
mica_status mica__cuda_check(mica__device *device, int result, mica_status code, const char *what);

/* ---- cuda_memory.c ---- */

void mica__cuda_memory_amount(mica__device *device, uint64_t *out_free, uint64_t *out_total);
mica_status mica__cuda_buffer_create(mica__device *device, uint64_t bytes, mica__memory **out);
void mica__cuda_buffer_destroy(mica__device *device, mica__memory *memory);
mica_status mica__cuda_upload(mica__device *device, mica__memory *memory, uint64_t offset, const void *from,
                              uint64_t bytes);
mica_status mica__cuda_download(mica__device *device, mica__memory *memory, uint64_t offset, void *to,
                                uint64_t bytes);
mica_status mica__cuda_buffer_fill(mica__device *device, mica__memory *memory, uint8_t byte);
/* Context current. */
mica_status mica__cuda_memory_open(mica__device *device);
/* `driver` false: only what is the host's. */
void mica__cuda_memory_close(mica__device *device, bool driver);
uint64_t mica__cuda_address(const mica__memory *memory);

/* ---- cuda_program.c ---- */

mica_status mica__cuda_program_create(mica__device *device, const mica__program_desc *desc,
                                      mica__program **out);
mica_status mica__cuda_program_binary(mica__program *program, void **out, uint64_t *out_bytes);
void mica__cuda_program_destroy(mica__device *device, mica__program *program);
mica_status mica__cuda_kernel_get(mica__device *device, mica__program *program, const char *name,
                                  mica__kernel **out);

/* ---- cuda_compiler.c ---- */

/* Text -> machine code, or PTX for a device newer than the compiler; freed with mica__free. KERNEL_NOT_FOUND where there
 * is no compiler or it does not know the device. */
mica_status mica__cuda_compile(mica__device *device, const char *name, const char *text, void **out,
                               uint64_t *out_bytes);

/* ---- cuda_blas.c ---- */

/* Finds cuBLASLt on first use and gives the built-in kernel "cublaslt". KERNEL_NOT_FOUND where it is missing. */
mica_status mica__cuda_blas_kernel(mica__device *device, mica__kernel **out);
void mica__cuda_blas_close(mica__device *device, bool driver);

/* ---- cuda_fault.c ---- */

/* A word that is 0. Context current. */
mica_status mica__cuda_fault_take(mica__device *device, mica__cuda_fault **out);
void mica__cuda_fault_give(mica__device *device, mica__cuda_fault *fault);
void mica__cuda_faults_close(mica__device *device, bool driver);

/* ---- cuda_commands.c ---- */

mica_status mica__cuda_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out);
void mica__cuda_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch);
void mica__cuda_barrier(mica__encoding *encoding);
mica_status mica__cuda_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out);
mica_status mica__cuda_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                       const mica__binding *to);
void mica__cuda_commands_destroy(mica__device *device, mica__commands *commands);
/* Gives a reference back; the last one keeps the object for the next encoding, or frees it. */
void mica__cuda_commands_unref(mica__commands *commands);
void mica__cuda_commands_forget(mica__device *device);

/* ---- cuda_graph.c ---- */

bool mica__cuda_has_graphs(const mica__device *device);
/* Makes graph and executable from the list, in place of those that were. Context current. */
mica_status mica__cuda_graph_build(mica__commands *commands);
/* Tells the executable of a changed binding of one node. False: it has to be built again. Context current. */
bool mica__cuda_graph_update(mica__commands *commands, mica__cuda_node *node);
void mica__cuda_graph_drop(mica__commands *commands);
/* Issues one node on a stream. Context current. */
mica_status mica__cuda_launch_node(mica__commands *commands, const mica__cuda_node *node, void *stream);

/* ---- cuda_queue.c ---- */

/* Context current for these two. */
mica_status mica__cuda_queue_open(mica__device *device, mica__queue *queue);
void mica__cuda_queue_close(mica__device *device, mica__queue *queue, bool driver);
mica_status mica__cuda_submit(mica__device *device, mica__queue *queue, mica__commands *commands,
                              uint64_t *out_value);
mica_status mica__cuda_wait(mica__device *device, mica__queue *queue, uint64_t value, uint64_t timeout_ns,
                            mica__completion *out);
mica_status mica__cuda_queue_create(mica__device *device, mica__queue **out);
void mica__cuda_queue_destroy(mica__device *device, mica__queue *queue);
mica_status mica__cuda_queue_order(mica__device *device, mica__queue *queue, mica__queue *after,
                                   uint64_t value);
mica_status mica__cuda_timestamps(mica__device *device, bool enable, mica__profile *out);

/* ---- cuda_times.c ---- */

/* Keeps the times of a timed submission, if `read`, and gives its events back. Context current. */
void mica__cuda_times_resolve(mica__device *device, mica__cuda_slot *slot, bool read);

/* ---- cuda_kernel_rows.c ---- */

const mica__kernel_row *mica__cuda_kernel_rows(uint32_t *out_count);

#endif
