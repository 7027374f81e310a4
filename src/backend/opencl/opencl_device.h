/*
 * opencl_device.h - the objects of the OpenCL backend, shared by its files.
 *
 * A binding is a cl_mem and a 64-bit byte offset, two arguments of the kernel; the parameter block is the last argument.
 * Queues are in order, so a barrier is nothing. Every dispatch has a cl_kernel of its own while its commands live:
 * arguments stick to that object, so a replay only enqueues. Every failure of the driver becomes a status through
 * mica__opencl_fail; a device once lost answers DEVICE_LOST, and so does any in the child of a fork.
 */
#ifndef MICA_OPENCL_DEVICE_H
#define MICA_OPENCL_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/encode.h"
#include "backend/far.h"
#include "backend/opencl/opencl_symbols.h"
#include "backend/spares.h"
#include "backend/times.h"
#include "base/status.h"
#include "base/thread.h"

#define MICA__OPENCL_RESULTS 64u /* submissions kept per queue */

/* ---- the devices of the machine: opencl_list.c ---- */

#define MICA__OPENCL_MOST_DEVICES 64u

typedef struct mica__opencl_entry {
    cl_platform_id platform;
    cl_device_id device;
    uint32_t rank; /* 0 GPU, 1 accelerator, 2 CPU and others, 3 not usable */
} mica__opencl_entry;

typedef struct mica__opencl_list {
    mica__opencl_symbols cl;
    uint32_t count;
    mica__opencl_entry entry[MICA__OPENCL_MOST_DEVICES]; /* by rank, then as the driver lists them */
} mica__opencl_list;

/* All devices of all platforms. DEVICE_NOT_FOUND or UNSUPPORTED with a sentence when there is none. */
mica_status mica__opencl_list_fill(mica__opencl_list *list);
/* UNSUPPORTED with a sentence when mica cannot use the device. */
mica_status mica__opencl_entry_check(const mica__opencl_list *list, uint32_t index);
/* A text that the driver has; "" when it does not answer. */
void mica__opencl_device_text(const mica__opencl_symbols *cl, cl_device_id device, cl_uint what, char *out,
                              size_t bytes);
/* A number of at most 64 bits; `otherwise` when the driver does not answer. */
uint64_t mica__opencl_device_number(const mica__opencl_symbols *cl, cl_device_id device, cl_uint what,
                                    uint64_t otherwise);

/* "OpenCL 1.2 ...": 12; 0 for any other text. */
unsigned mica__opencl_device_version(const mica__opencl_symbols *cl, cl_device_id device);

/* ---- objects ---- */

typedef struct mica__opencl_memory {
    mica__memory head; /* native: the cl_mem */
    void *mapped;      /* under the device's lock, as is the count */
    uint32_t maps;
} mica__opencl_memory;

/* An entry and its spare cl_kernels. */
struct mica__kernel {
    mica__kernel *next; /* of the same program */
    mica__program *program;
    cl_kernel *spare; /* under the device's lock */
    uint32_t spare_count, spare_capacity;
    uint32_t made;               /* cl_kernels that exist, spare or in commands */
    size_t most_items;           /* work-items of a group */
    char entry[MICA_NAME_BYTES]; /* in the program */
    char name[MICA_NAME_BYTES];  /* for profiles and sentences: "file/entry" */
};

struct mica__program {
    mica__device *device;
    cl_program program;
    mica__kernel *kernels; /* under the device's lock */
    char name[MICA_NAME_BYTES];
};

/* One command. A copy has no kernel. */
typedef struct mica__opencl_step {
    mica__kernel *kernel;
    cl_kernel object;
    size_t global[3], local[3];
    mica__binding from, to; /* of a copy */
    uint64_t far_place;     /* of its parameters in the commands' buffer */
    uint32_t far;           /* 1 + the binding that is them (MICA__BIND_PARAMS); 0: they are an argument */
    uint32_t binding_count;
    uint16_t op;
    float bytes, operations; /* for profiles */
    char label[64];
} mica__opencl_step;

struct mica__encoding {
    mica__commands *commands;
    mica__latch latch;
};

struct mica__commands {
    _Atomic uint32_t references; /* the owner's, and one of each submission in flight */
    bool reusable;
    bool raises; /* some step has the fault word */
    mica__device *device;
    cl_mem fault; /* u32; made when first asked for, kept */
    mica__opencl_step *step;
    uint32_t step_count;
    uint64_t step_capacity;
    mica__far far;
    mica__encoding encoding;
};

typedef struct mica__opencl_submission {
    uint64_t value;
    bool resolved;
    cl_event begin, end;      /* of the first and the last command; NULL once resolved */
    cl_event *step_event;     /* of each step; only while times are taken */
    mica__commands *commands; /* counted; NULL once resolved */
    uint32_t fault;           /* the device writes it here before `end` */
    mica__completion completion;
} mica__opencl_submission;

struct mica__queue {
    pthread_mutex_t lock; /* guards all; held while commands are enqueued */
    mica__fork_guard guard;
    cl_command_queue queue;
    uint64_t submitted;
    mica__opencl_submission submission[MICA__OPENCL_RESULTS]; /* value % MICA__OPENCL_RESULTS */
};

struct mica__device {
    mica__opencl_symbols cl;
    uint32_t index, generation;
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue transfers; /* uploads, downloads, maps: beside the work */
    cl_mem nothing;             /* bound where an operand is absent */
    char options[56];           /* of the compiler */
    mica__queue queue;
    mica__device_info info;
    _Atomic uint32_t lost;
    _Atomic uint64_t owned; /* bytes */
    mica__spares spares;
    pthread_mutex_t lock; /* guards what follows, kernels' lists and maps */
    mica__fork_guard guard;
    mica__times times;
};

/* ---- opencl.c ---- */

/* DEVICE_LOST once it is lost, or in the child of a fork. */
mica_status mica__opencl_check(mica__device *device);
/* Whether the driver may be called at all: not in the child of a fork. */
bool mica__opencl_alive(const mica__device *device);
/* The status of a failed call on `what`, with a sentence. A code that means the device is gone marks it lost. */
mica_status mica__opencl_fail(mica__device *device, cl_int code, const char *call, const char *what);

/* ---- opencl_memory.c ---- */

void mica__opencl_memory_amount(mica__device *device, uint64_t *out_free, uint64_t *out_total);
mica_status mica__opencl_buffer_create(mica__device *device, uint64_t bytes, mica__memory **out);
void mica__opencl_buffer_destroy(mica__device *device, mica__memory *memory);
mica_status mica__opencl_buffer_map(mica__device *device, mica__memory *memory, void **out);
void mica__opencl_buffer_unmap(mica__device *device, mica__memory *memory);
mica_status mica__opencl_upload(mica__device *device, mica__memory *memory, uint64_t offset, const void *from,
                                uint64_t bytes);
mica_status mica__opencl_download(mica__device *device, mica__memory *memory, uint64_t offset, void *to,
                                  uint64_t bytes);
mica_status mica__opencl_buffer_fill(mica__device *device, mica__memory *memory, uint8_t byte);

/* ---- opencl_program.c ---- */

mica_status mica__opencl_program_create(mica__device *device, const mica__program_desc *desc,
                                        mica__program **out);
mica_status mica__opencl_program_binary(mica__program *program, void **out, uint64_t *out_bytes);
void mica__opencl_program_destroy(mica__device *device, mica__program *program);
mica_status mica__opencl_kernel_get(mica__device *device, mica__program *program, const char *name,
                                    mica__kernel **out);
/* A cl_kernel that nobody else sets arguments of, until it is given back. */
mica_status mica__opencl_kernel_take(mica__kernel *kernel, cl_kernel *out);
void mica__opencl_kernel_give(mica__kernel *kernel, cl_kernel object);

/* ---- opencl_subgroups.c ---- */

/* The width of the sub-groups that kernels may use, by a kernel that looks at them, compiled with the device's options; 0 where
 * they are none, or not such as kernels expect. Needs the parts of an open device. */
uint32_t mica__opencl_subgroup_width(mica__device *device);

/* ---- opencl_ptx.c ---- */

/* The PTX with the groups that MK_BOUNDS of its text wants to fit on a multiprocessor said of every entry, and its bytes with
 * the NUL; freed by the caller. NULL where the text wants none, the PTX has no entry of a fixed size, or memory is short. */
char *mica__opencl_ptx_bound(const char *ptx, const char *text, size_t *out_bytes);

/* ---- opencl_commands.c ---- */

mica_status mica__opencl_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out);
void mica__opencl_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch);
void mica__opencl_barrier(mica__encoding *encoding);
mica_status mica__opencl_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out);
mica_status mica__opencl_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                         const mica__binding *to);
void mica__opencl_commands_destroy(mica__device *device, mica__commands *commands);
/* Gives one reference back; the last one keeps the object for the next encoding. */
void mica__opencl_commands_unref(mica__commands *commands);
/* Frees the spare ones. */
void mica__opencl_commands_forget(mica__device *device);

/* ---- opencl_queue.c ---- */

mica_status mica__opencl_queue_init(mica__device *device, mica__queue *queue);
/* Waits for its work. */
void mica__opencl_queue_close(mica__device *device, mica__queue *queue);
mica_status mica__opencl_queue_create(mica__device *device, mica__queue **out);
void mica__opencl_queue_destroy(mica__device *device, mica__queue *queue);
mica_status mica__opencl_submit(mica__device *device, mica__queue *queue, mica__commands *commands,
                                uint64_t *out_value);
mica_status mica__opencl_wait(mica__device *device, mica__queue *queue, uint64_t value, uint64_t timeout_ns,
                              mica__completion *out);
mica_status mica__opencl_queue_order(mica__device *device, mica__queue *queue, mica__queue *after,
                                     uint64_t value);

/* ---- opencl_times.c ---- */

/* Both times of a command that is done, 0 where the driver has none. */
void mica__opencl_event_times(const mica__device *device, cl_event event, uint64_t *out_begin_ns,
                              uint64_t *out_end_ns);
/* Keeps the times of the steps of a submission that is done. */
void mica__opencl_times_add(mica__device *device, const mica__opencl_submission *submission);
mica_status mica__opencl_timestamps(mica__device *device, bool enable, mica__profile *out);

#endif
