/*
 * backend.h - THE contract between the device room and the backends.
 *
 * A backend is a bootstrap that can be asked cheaply (mica__backend) and a table of functions for an open
 * device (mica__backend_table). It sees memory, kernels and dispatches; it knows no op, no buffer handle, no
 * hazard. Its kernel rows turn op records into dispatches. Entries marked "may be absent" may be NULL: the
 * device room then answers "unsupported". New entries go to the end, and `version` grows.
 *
 * Threads: every function may be called from any thread at once, except that one encoder is used by one
 * thread at a time. Errors: mica_status with the thread's sentence set; dispatch and barrier return
 * nothing, latch the first error, and encoder_end reports it.
 */
#ifndef MICA_BACKEND_BACKEND_H
#define MICA_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mica/device.h"
#include "backend/record.h"

#define MICA__BACKEND_VERSION 5u

typedef struct mica__device mica__device;     /* an open device */
typedef struct mica__program mica__program;   /* compiled text, or the built-in functions of the cpu */
typedef struct mica__kernel mica__kernel;     /* one entry of a program */
typedef struct mica__encoding mica__encoding; /* commands being written */
typedef struct mica__commands mica__commands; /* commands ready to submit */
typedef struct mica__queue mica__queue;       /* NULL: queue 0 */

/* Every backend's allocation begins with this. */
struct mica__memory {
    void *native; /* host pointer (cpu, null), CUdeviceptr, cl_mem, MTLBuffer */
    uint64_t bytes;
};

/* What a plan may know about the device. Filled once by `info`. */
typedef struct mica__device_info {
    mica_device_properties properties;
    uint32_t threads;      /* cpu: team size */
    uint32_t isa;          /* cpu: index of the instruction set variant */
    uint32_t max_group;    /* work-items per group */
    uint32_t local_bytes;  /* of a group */
    uint32_t params_bytes; /* largest parameter block; a larger one lies in a buffer: MICA__PARAMS */
    uint32_t edges;        /* 1: dispatch wants its dependencies, not barriers */
    uint32_t in_order;     /* 1: one-shot commands run in the order of encoding, and want neither */
    uint64_t cache_bytes;  /* per core or per device: what a tile should fit */
    void *native;          /* the driver's own device or context; NULL on the cpu */
    int32_t dlpack_device; /* DLPack's number for this kind of device */
    /* GPUs only. */
    const char *target;  /* target word of the kernel text ("MK_OPENCL"); NULL: kernels are built in */
    char identity[512];  /* whatever compiled code depends on: device, driver, options; of the cache's key */
    uint32_t features;   /* MICA__FEATURE_* */
    uint32_t compute;    /* compute capability as 10 * major + minor; 0: no such thing */
    uint32_t processors; /* multiprocessors or compute units */
} mica__device_info;

#define MICA__FEATURE_SUBGROUPS 1u    /* shuffles among properties.subgroup_width work-items */
#define MICA__FEATURE_SLOW_BARRIER 2u /* work-items are loops on a CPU: prefer few of them and few barriers */
#define MICA__FEATURE_PTX 4u          /* the compiler of this OpenCL device takes PTX in its text */
#define MICA__FEATURE_F64 8u          /* arithmetic in f64 */

/* ---- planning ---- */

#define MICA__SCRATCH 0xffffu /* binding source: the record's scratch */
#define MICA__FAULT 0xfffeu   /* binding source: the submission's fault word, u32 (MICA__BIND_FAULT) */
#define MICA__PARAMS 0xfffdu  /* binding source: the dispatch's parameters (MICA__BIND_PARAMS) */

typedef struct mica__plan_binding {
    uint16_t source; /* operand slot, MICA__SCRATCH, MICA__FAULT or MICA__PARAMS */
    uint16_t access;
    uint64_t offset, length; /* scratch: range in it; operand: unused (whole view) */
} mica__plan_binding;

typedef struct mica__plan_dispatch {
    const char *kernel;  /* name; static */
    mica__kernel *found; /* filled in by the registry */
    uint32_t groups[3], local[3];
    uint32_t grain;       /* cpu: groups that one claim takes */
    uint32_t local_bytes; /* cpu: bytes of per-thread memory the kernel wants; GPUs: dynamic local memory */
    uint32_t constants;   /* place in mica__plan.text: specialisation "A=1|B=2", in a fixed order; 0: "" */
    uint32_t first_binding, binding_count; /* in mica__plan.binding */
    uint32_t params_offset, params_size;   /* in mica__plan.params, 16-byte aligned */
} mica__plan_dispatch;

/* As many dispatches, bindings and bytes as its record needs: arrays that planning.h fills, which grow and are used again. All
 * zero is one without arrays. */
typedef struct mica__plan {
    mica__plan_dispatch *dispatch;
    mica__plan_binding *binding;
    unsigned char *params;
    char *text; /* begins with "" */
    uint32_t dispatch_count, dispatch_capacity;
    uint32_t binding_count, binding_capacity;
    uint32_t params_used, params_capacity;
    uint32_t text_used, text_capacity;
    bool reusable;      /* for commands that are submitted many times; whoever asks for the plan says so */
    mica_status status; /* latched: there was no memory, or something a device does not take */
    uint64_t scratch_bytes; /* one range for the whole record, 64-byte aligned */
} mica__plan;

/* A kernel row: which records it serves and how. The registry tries the rows of an op in order; the first whose
 * `serves` (NULL = all) says yes plans it. Refusal in `plan` is a status. Where a kernel of the plan cannot be had
 * because there is no compiler (KERNEL_NOT_FOUND), the next row is tried. */
typedef struct mica__kernel_row {
    uint16_t op; /* mica_op */
    const char *name;
    bool (*serves)(const mica__record *record, const mica__device_info *info);
    mica_status (*plan)(const mica__record *record, const mica__device_info *info, mica__plan *plan);
} mica__kernel_row;

/* ---- what a backend sees ---- */

#define MICA__BIND_FAULT 4u /* access of the binding of the fault word: the backend puts its own there */
/* Of a binding of the dispatch's parameters, which are then no argument: as above. */
#define MICA__BIND_PARAMS 16u
/* Read, perhaps before the dispatches that this one depends on are over: its kernel waits for them by itself before it touches
 * any other binding, in every work-item. A backend may start a dispatch with such bindings early if nothing before it writes
 * them; to one that does not they are bindings like others. */
#define MICA__BIND_AHEAD 8u

typedef struct mica__binding {
    mica__memory *memory; /* NULL: absent, the fault word, or the parameters */
    uint64_t offset, length;
    uint32_t access;
} mica__binding;

/* What a program is made of. The first of these that is there and works is taken: binary, text, portable. */
typedef struct mica__program_desc {
    const char *name;      /* for sentences */
    mica_host_kernel host; /* the cpu's */
    const char *text;      /* target word, constants, prelude and kernels in one string */
    const void *binary;    /* what program_binary once gave on a device of the same identity */
    uint64_t binary_bytes;
    const char *portable; /* made when mica was built, for where there is a driver and no compiler (PTX) */
    uint64_t portable_bytes;
    bool foreign; /* a user's: how many arguments its entries take is known to nobody yet */
} mica__program_desc;

typedef struct mica__dispatch {
    mica__kernel *kernel; /* NULL: copies the bytes of binding 0 to binding 1, of equal lengths */
    uint32_t groups[3], local[3];
    uint32_t grain, local_bytes;
    const mica__binding *bindings;
    uint32_t binding_count;
    const void *params; /* copied by the backend */
    uint32_t params_size;
    const uint32_t *dependencies; /* indices of earlier dispatches of this encoding; only if info.edges */
    uint32_t dependency_count;
    uint16_t op; /* for profiles, as what follows */
    float bytes,
        operations; /* that its record costs, where this dispatch is the one that touches most of it; else 0 */
    const char *label; /* copied */
} mica__dispatch;

#define MICA__ENCODE_REUSABLE 1u /* commands that are submitted many times */

typedef struct mica__completion {
    mica_status status;        /* of the submission */
    uint32_t fault;            /* 0, or 1 + mica_op of a record with an index out of range: cpu, the first */
    uint64_t begin_ns, end_ns; /* device clock */
} mica__completion;

/* What `timestamps` gives, of the caller, in memory of alloc.h: the last dispatches, oldest first; all of them in sums. */
typedef struct mica__profile {
    mica_profile_entry *entry;
    mica_profile_bucket *bucket;
    uint64_t entry_count, bucket_count;
} mica__profile;

typedef struct mica__backend_table {
    uint32_t version;
    void (*close)(mica__device *); /* waits for idle, frees all */
    void (*info)(mica__device *, mica__device_info *out);
    void (*memory)(mica__device *, uint64_t *out_free, uint64_t *out_total);
    mica_status (*buffer_create)(mica__device *, uint64_t bytes, mica__memory **out); /* not zeroed */
    mica_status (*buffer_import)(mica__device *, void *pointer, uint64_t bytes,
                                 mica__memory **out);                      /* may be absent */
    void (*buffer_destroy)(mica__device *, mica__memory *);                /* nothing uses it any more */
    mica_status (*buffer_map)(mica__device *, mica__memory *, void **out); /* may be absent */
    void (*buffer_unmap)(mica__device *, mica__memory *);                  /* may be absent */
    mica_status (*upload)(mica__device *, mica__memory *, uint64_t offset, const void *, uint64_t bytes);
    mica_status (*download)(mica__device *, mica__memory *, uint64_t offset, void *, uint64_t bytes);
    /* KERNEL_COMPILATION with the compiler's log; KERNEL_NOT_FOUND where nothing of `desc` can be used here. */
    mica_status (*program_create)(mica__device *, const mica__program_desc *desc, mica__program **out);
    /* Bytes for the disk cache, freed with mica__free. May be absent. */
    mica_status (*program_binary)(mica__program *, void **out, uint64_t *out_bytes);
    void (*program_destroy)(mica__device *, mica__program *);
    mica_status (*kernel_get)(mica__device *, mica__program *, const char *name,
                              mica__kernel **out); /* program NULL: built in; lives as long as its program */
    mica_status (*encoder_begin)(mica__device *, uint32_t flags, mica__encoding **out);
    void (*dispatch)(mica__encoding *, const mica__dispatch *);
    void (*barrier)(mica__encoding *);
    mica_status (*encoder_end)(mica__encoding *, bool discard,
                               mica__commands **out); /* the encoding is gone */
    /* One-shot commands are consumed, also on failure. `out_value` grows by one per submission of the queue. */
    mica_status (*submit)(mica__device *, mica__queue *, mica__commands *, uint64_t *out_value);
    void (*commands_destroy)(mica__device *, mica__commands *); /* not in flight */
    /* TIMEOUT if not done by then, without a sentence: polling (0) must not touch the thread's. Else MICA_OK with
     * `out` filled. */
    mica_status (*wait)(mica__device *, mica__queue *, uint64_t value, uint64_t timeout_ns,
                        mica__completion *out);
    mica_status (*queue_create)(mica__device *, mica__queue **out); /* may be absent */
    void (*queue_destroy)(mica__device *, mica__queue *);           /* may be absent */
    mica_status (*commands_update)(mica__commands *, uint32_t dispatch, uint32_t binding,
                                   const mica__binding *);
    mica_status (*timestamps)(mica__device *, bool enable, mica__profile *out);
    mica_status (*cancel)(mica__device *, mica__queue *, uint64_t value); /* may be absent */
    /* What is submitted to `queue` from now on starts after submission `value` of queue `after`. Does not wait; may be
     * absent: then the device room does, on the host. */
    mica_status (*queue_order)(mica__device *, mica__queue *queue, mica__queue *after, uint64_t value);
    /* Sets every byte to `byte` and waits. May be absent: then it is mapped or written. */
    mica_status (*buffer_fill)(mica__device *, mica__memory *, uint8_t byte);
} mica__backend_table;

/* Kept results: `wait` answers for any value already handed out by `submit`, however old, with the status of that
 * submission if it is among the last 64 of its queue and MICA_OK otherwise. */

typedef struct mica__backend {
    uint32_t version;
    const char *name;
    /* How many devices there are; 0 with a sentence in `reason` when the library or hardware is missing. */
    uint32_t (*probe)(char *reason, size_t reason_bytes);
    mica_status (*describe)(uint32_t index, char *name, size_t name_bytes);
    mica_status (*open)(uint32_t index, const mica_device_options *, mica__device **out,
                        const mica__backend_table **out_table);
    const mica__kernel_row *(*kernel_rows)(uint32_t *out_count);
    /* The layout matmul reads fastest for this weight: CANONICAL if no other. */
    mica_layout (*weight_layout)(const mica__operand *weight, const mica__device_info *);
    /* Whether a convolution reads this weight faster where its outputs are the dimension whose neighbours lie side by side. May be absent: it does not. */
    bool (*outputs_inner)(const mica__operand *weight, uint32_t groups, const mica__device_info *);
    /* Looks for the libraries that are opened when they are needed, and says what was found. May be absent: there are none. */
    void (*libraries)(char *out, size_t out_bytes);
    /* How many devices, from the first on, "auto" may take. May be absent: as many as there are. */
    uint32_t (*automatic)(void);
} mica__backend;

extern const mica__backend mica__backend_cpu;
extern const mica__backend mica__backend_opencl;
extern const mica__backend mica__backend_cuda;
extern const mica__backend mica__backend_null;

#endif
