/*
 * device.h - devices, buffers, pools, kernels, encoders, fences, counters, profiles.
 *
 * The lowest useful layer. Open a device, make buffers on it, encode work, commit it, wait for its fence.
 * Ordering between the pieces of encoded work is found from what each one reads and writes; nobody has to
 * place barriers.
 *
 * Ownership: open/create/begin/commit give one owner; release accepts NULL; a handle is counted and keeps
 * what it stands on (a view its storage, a buffer its device, an encoder and a recording their buffers).
 * Threads: devices, buffers, pools, kernels and fences may be used from any thread at once; an encoder from
 * one thread at a time. Contents of a buffer are the caller's to guard while work on it is in flight.
 * Failure: every call that can fail returns a status and sets mica_status_message(); outputs are NULL then.
 */
#ifndef MICA_DEVICE_H
#define MICA_DEVICE_H

#include "mica/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_device mica_device;
typedef struct mica_buffer mica_buffer;
typedef struct mica_pool mica_pool;
typedef struct mica_kernel mica_kernel;
typedef struct mica_queue mica_queue;
typedef struct mica_encoder mica_encoder;
typedef struct mica_fence mica_fence;

/* ---- devices ------------------------------------------------------------------------------------------ */

#define MICA_NAME_BYTES 128

/* One line of the device list. `usable` 0 means: looked for and not used, `reason` says why. */
typedef struct mica_device_entry {
    char id[32];                  /* what mica_device_open takes: "cpu", "cuda:0" */
    char name[MICA_NAME_BYTES];   /* the hardware's own name */
    char reason[MICA_NAME_BYTES]; /* why not usable, "" when it is */
    uint32_t usable;
} mica_device_entry;

/* Options of mica_device_open; all zero is the default. */
typedef struct mica_device_options {
    uint64_t size;         /* sizeof(mica_device_options); 0 = this version's */
    uint64_t budget_bytes; /* hard limit of the owned column of the ledger; 0 = no limit */
    uint32_t threads;      /* cpu: threads that work, the waiting caller among them; 0 = one a core */
    char isa[16];          /* cpu: "portable", "avx2", "avx512"; "" = the best the machine has */
} mica_device_options;

/* What a device is. All sizes in bytes. */
typedef struct mica_device_properties {
    char id[32];
    char name[MICA_NAME_BYTES];
    char backend[16];
    char driver[MICA_NAME_BYTES]; /* driver version, or the instruction set on the cpu */
    uint64_t total_memory;
    uint64_t max_buffer;
    uint32_t threads;        /* host threads that work; 0 on a GPU */
    uint32_t subgroup_width; /* 0 = none */
    uint32_t unified_memory; /* 1: mapping a buffer is free */
    uint32_t buffer_alignment;
    uint32_t residency;             /* 1: the residency set is real, 0: only counted */
    uint32_t processors;            /* multiprocessors or compute units of a GPU; 0 on the cpu */
    char features[MICA_NAME_BYTES]; /* what a GPU and its driver offer, in words; "" on the cpu */
} mica_device_properties;

/* The ledger. Owned memory is under the budget; mapped (files, imported) and driver memory are reported. */
typedef struct mica_device_memory {
    uint64_t owned_bytes;
    uint64_t owned_peak_bytes;
    uint64_t mapped_bytes;
    uint64_t budget_bytes; /* 0 = no limit */
    uint64_t free_bytes;   /* what the device says is free now */
    uint64_t total_bytes;
    uint64_t buffer_count;
} mica_device_memory;

/* Fills up to `capacity` entries and says how many exist in `out_count`. `entries` may be NULL with
 * capacity 0. Never fails because a library is missing: that is an entry with a reason. Any thread. */
MICA_API mica_status mica_device_list(mica_device_entry *entries, uint32_t capacity, uint32_t *out_count);
/* Opens "auto", "cpu", "null", "cuda:0" ... `options` may be NULL. DEVICE_NOT_FOUND names what exists. */
MICA_API mica_status mica_device_open(const char *id, const mica_device_options *options,
                                      mica_device **out_device);
/* One more reference; gives the device back. NULL is fine. Any thread. */
MICA_API mica_device *mica_device_retain(mica_device *device);
/* Gives one reference back. The last one waits for the work in flight. */
MICA_API void mica_device_release(mica_device *device);
/* What the device is; the same for its whole life. INVALID_ARGUMENT for NULL. Any thread. */
MICA_API mica_status mica_device_get_properties(const mica_device *device, mica_device_properties *out);
/* The ledger now. INVALID_ARGUMENT for NULL. Any thread. */
MICA_API mica_status mica_device_get_memory(const mica_device *device, mica_device_memory *out);
/* Changes the budget. BUDGET if more than `bytes` is owned already; 0 lifts the limit. */
MICA_API mica_status mica_device_set_budget(mica_device *device, uint64_t bytes);
/* Waits until all queues are idle. Returns the first error of what it waited for. */
MICA_API mica_status mica_device_synchronize(mica_device *device);
/* The backend's own device or context pointer (NULL on the cpu), for sharing with other libraries. */
MICA_API mica_status mica_device_native(const mica_device *device, void **out_handle);

/* ---- buffers ------------------------------------------------------------------------------------------ */

#define MICA_BUFFER_UNINITIALIZED 1u /* the caller will overwrite it: do not zero */
#define MICA_BUFFER_READ_ONLY 2u     /* imports: no op may write it */

typedef struct mica_buffer_desc {
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t flags; /* MICA_BUFFER_* */
} mica_buffer_desc;

typedef struct mica_buffer_info {
    mica_dtype dtype;
    mica_layout layout;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
    uint64_t stride[MICA_MAX_DIMS]; /* bytes */
    uint64_t byte_offset;           /* into the storage */
    uint64_t byte_length; /* from the first byte of the view to the last, both included; 0: it is empty */
    uint64_t element_count;
    uint64_t storage_bytes;
    uint32_t contiguous;
    uint32_t read_only;
    uint32_t imported;
    uint32_t group_size; /* affine types: values per scale; else 0 */
} mica_buffer_info;

/* Allocates contiguous storage, zeroed unless MICA_BUFFER_UNINITIALIZED; an empty buffer owns none. INVALID_ARGUMENT
 * for more than MICA_MAX_DIMS dimensions, an unknown dtype, a last dimension that is no multiple of the block, a
 * scalar of a block type, dimensions whose product, those of 0 left out, overflows in bytes; BUDGET,
 * OUT_OF_MEMORY. */
MICA_API mica_status mica_buffer_create(mica_device *device, const mica_buffer_desc *desc,
                                        mica_buffer **out_buffer);
/* The same in one line: shape[0..ndim); of a scalar NULL is fine. */
MICA_API mica_status mica_buffer_alloc(mica_device *device, mica_dtype dtype, uint32_t ndim,
                                       const uint64_t *shape, mica_buffer **out_buffer);
/* One more reference; gives the buffer back. NULL is fine. Any thread. */
MICA_API mica_buffer *mica_buffer_retain(mica_buffer *buffer);
/* Gives one reference back; the last view frees the storage, once no work in flight uses it. NULL is fine. */
MICA_API void mica_buffer_release(mica_buffer *buffer);
/* The facts of the view. INVALID_ARGUMENT for NULL. Any thread. */
MICA_API mica_status mica_buffer_get_info(const mica_buffer *buffer, mica_buffer_info *out);
/* The device it lives on; borrowed, valid while the buffer is. NULL for NULL. */
MICA_API mica_device *mica_buffer_device(const mica_buffer *buffer);

/* A view of a view composes: `byte_offset` counts from the first byte of `buffer`. `stride` NULL means contiguous.
 * The view must lie inside the parent's bytes, and block rows must stay whole. Elements lie where kernels can read
 * them: the place in the storage and the strides are multiples of the type's alignment, which is its size, or for
 * block types the largest of 1, 2 and 4 that divides their block_bytes. The view keeps the storage alive. */
MICA_API mica_status mica_buffer_view(mica_buffer *buffer, mica_dtype dtype, uint32_t ndim,
                                      const uint64_t *shape, const uint64_t *stride, uint64_t byte_offset,
                                      mica_buffer **out_view);
/* Elements [start, start+count) of dimension `dim`; none is fine. */
MICA_API mica_status mica_buffer_slice(mica_buffer *buffer, uint32_t dim, uint64_t start, uint64_t count,
                                       mica_buffer **out_view);
/* Every `step`-th element of dimension `dim`, the first among them; step 1 or more. Not of blocks, nor of packed or
 * affine weights. Behind mica_buffer_slice: a slice with steps. Backwards is mica_flip: strides are not below 0. */
MICA_API mica_status mica_buffer_stride(mica_buffer *buffer, uint32_t dim, uint64_t step,
                                        mica_buffer **out_view);
/* The elements repeated to `shape`, as broadcasting does: dimensions aligned at the last, missing ones
 * and those of size 1 repeat, with stride 0. Only to be read where something repeats. Not of blocks,
 * nor of packed or affine weights. */
MICA_API mica_status mica_buffer_expand(mica_buffer *buffer, uint32_t ndim, const uint64_t *shape,
                                        mica_buffer **out_view);
/* The same elements in another shape; needs a contiguous buffer and an equal element count. */
MICA_API mica_status mica_buffer_reshape(mica_buffer *buffer, uint32_t ndim, const uint64_t *shape,
                                         mica_buffer **out_view);
/* Dimension i of the result is dimension order[i] of `buffer`; of a scalar NULL is fine. */
MICA_API mica_status mica_buffer_permute(mica_buffer *buffer, const uint32_t *order, mica_buffer **out_view);
/* An MLX weight: `data` [.., N, K] of an affine dtype, `scales` and `biases` [.., N, ceil(K/group)] bf16, f16 or f32;
 * or fp4 with scales of e8m0 or f8_e4m3, or f8_e4m3 with scales of e8m0, both with `biases` NULL. The result is used
 * like any weight and keeps all three. group_size 1 and up. */
MICA_API mica_status mica_buffer_affine(mica_buffer *data, mica_buffer *scales, mica_buffer *biases,
                                        uint32_t group_size, mica_buffer **out_buffer);
/* A copy of a weight in the layout that the device's matmul reads fastest. Where that is the canonical one
 * the same buffer comes back with one more reference. The source may be released afterwards. */
MICA_API mica_status mica_buffer_pack(mica_buffer *weight, mica_buffer **out_packed);

/* Called when the last view of imported memory is gone. */
typedef void (*mica_import_release)(void *context, void *pointer);
/* Wraps host memory the caller owns (a mapped file, another library's tensor) without a copy where the device
 * can; UNSUPPORTED where it cannot. `pointer` is aligned for the type, as in mica_buffer_view; with 0 bytes it
 * may be NULL. `release` may be NULL.
 * The ledger's mapped column counts it. */
MICA_API mica_status mica_buffer_import(mica_device *device, void *pointer, uint64_t bytes,
                                        const mica_buffer_desc *desc, mica_import_release release,
                                        void *context, mica_buffer **out_buffer);
/* The native handle behind the buffer: a host pointer (cpu), CUdeviceptr, cl_mem, MTLBuffer, and the byte
 * offset of this view in it. Borrowed: valid while the buffer is. */
MICA_API mica_status mica_buffer_native(const mica_buffer *buffer, void **out_handle, uint64_t *out_offset);

/* DLPack's tensor, field for field (strides in elements). `data` is the native handle. Borrowed. UNSUPPORTED
 * for block types. */
typedef struct mica_dlpack_view {
    void *data;
    int32_t device_type; /* DLPack's kDLCPU = 1, kDLCUDA = 2, kDLOpenCL = 4, kDLMetal = 8 */
    int32_t device_id;
    int32_t ndim;
    uint8_t type_code; /* DLPack's: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool */
    uint8_t type_bits;
    uint16_t type_lanes;
    int64_t shape[MICA_MAX_DIMS];
    int64_t strides[MICA_MAX_DIMS];
    uint64_t byte_offset;
} mica_dlpack_view;
/* Fills the view of a buffer. The memory stays the buffer's: valid while the buffer is. */
MICA_API mica_status mica_buffer_dlpack(const mica_buffer *buffer, mica_dlpack_view *out_view);

/* A host pointer to the view's first byte: free on unified memory, a staged copy elsewhere. Waits for the
 * work in flight on the device. `access` is MICA_ACCESS_*; writing a read-only buffer is refused. Each map
 * needs one unmap, which makes writes visible to later work. Of an empty buffer the pointer is NULL. */
MICA_API mica_status mica_buffer_map(mica_buffer *buffer, uint32_t access, void **out_pointer);
/* Ends a map. INVALID_ARGUMENT for NULL. */
MICA_API mica_status mica_buffer_unmap(mica_buffer *buffer);
/* Blocking copies between the host and a contiguous view, `bytes` at `offset` of it. They wait for work in flight.
 * The host's pointer may be NULL where bytes is 0. */
MICA_API mica_status mica_buffer_write(mica_buffer *buffer, uint64_t offset, const void *source,
                                       uint64_t bytes);
/* The way back: INVALID_ARGUMENT if the range leaves the view or it is not contiguous. */
MICA_API mica_status mica_buffer_read(mica_buffer *buffer, uint64_t offset, void *target, uint64_t bytes);

/* ---- pool --------------------------------------------------------------------------------------------- */

typedef struct mica_pool_stats {
    uint64_t free_count, free_bytes;
    uint64_t in_use_count, in_use_bytes;
    uint64_t hits, misses; /* allocations served from the free lists / from the device */
    uint64_t registered;   /* foreign buffers under the pool's residency */
    uint64_t outlived;     /* debug word "validate": handles still held at a reset */
} mica_pool_stats;

/* A pool recycles storage in power-of-two buckets, newest first. Recycled memory is not zeroed again. Any
 * thread. The pool keeps its device; buffers from it may outlive it. */
MICA_API mica_status mica_pool_create(mica_device *device, mica_pool **out_pool);
/* Gives the free storage back. NULL is fine. No other thread may use the pool any more. */
MICA_API void mica_pool_release(mica_pool *pool);
/* A buffer with one reference for the caller, recycled by the first mica_pool_reset after that reference is
 * given back. Errors as mica_buffer_create. */
MICA_API mica_status mica_pool_alloc(mica_pool *pool, const mica_buffer_desc *desc, mica_buffer **out_buffer);
/* `count` buffers or none; the residency set is touched once. */
MICA_API mica_status mica_pool_alloc_batch(mica_pool *pool, const mica_buffer_desc *descs, uint32_t count,
                                           mica_buffer **out_buffers);
/* Storage that nobody holds any more returns to the free lists. Handles still held stay valid and keep
 * their storage (counted in `outlived`, and logged under the debug word "validate"). */
MICA_API mica_status mica_pool_reset(mica_pool *pool);
/* Drops all free storage. */
MICA_API mica_status mica_pool_clear(mica_pool *pool);
/* Puts a buffer of the same device under the pool's residency accounting; never recycled; once. */
MICA_API mica_status mica_pool_register(mica_pool *pool, mica_buffer *buffer);
/* The pool's figures now. INVALID_ARGUMENT for NULL. */
MICA_API mica_status mica_pool_get_stats(const mica_pool *pool, mica_pool_stats *out);

/* ---- residency ---------------------------------------------------------------------------------------- */

/* The set of allocations the device must keep resident. Changes are gathered and flushed once per
 * submission. Real on Metal, counted elsewhere. */
typedef struct mica_residency_stats {
    uint64_t allocations; /* in the set now */
    uint64_t commits;     /* flushes that published something */
    uint64_t pending;     /* 1: changes wait for the next submission */
} mica_residency_stats;
/* The set's figures now. INVALID_ARGUMENT for NULL. Any thread. */
MICA_API mica_status mica_device_get_residency(const mica_device *device, mica_residency_stats *out);
/* Adds or removes a buffer's storage by hand (every buffer joins on creation and leaves on destruction). */
MICA_API mica_status mica_device_residency_add(mica_device *device, mica_buffer *buffer);
/* Takes a buffer's storage out of the set until it is added again. INVALID_ARGUMENT as above. */
MICA_API mica_status mica_device_residency_remove(mica_device *device, mica_buffer *buffer);

/* ---- kernels: the registry ---------------------------------------------------------------------------- */

/* One binding as a host kernel sees it. */
typedef struct mica_host_binding {
    void *data;
    uint64_t bytes;
} mica_host_binding;
/* A kernel that runs on the cpu backend: works on groups [first, last). Called from several threads at once
 * for disjoint ranges; must not block. */
typedef void (*mica_host_kernel)(const mica_host_binding *bindings, uint32_t binding_count,
                                 const void *params, uint32_t first, uint32_t last);

/* A kernel of one's own. GPUs compile `source`, a text in mica's kernel dialect, the same for CUDA and OpenCL: C with
 * the words MK_KERNEL, MK_IN, MK_OUT, MK_PARAM, MK_BIND and functions mk_*, described in docs/kernels.md (installed
 * in share/doc/mica) and shown in examples/kernel.c. Its entry is MK_KERNEL(name); its bindings come in the order of
 * the dispatch, the parameters last. */
typedef struct mica_kernel_desc {
    const char *name;
    mica_host_kernel host; /* for the cpu */
    const char *source;    /* for GPUs, copied */
} mica_kernel_desc;

/* A specialisation constant: becomes part of the cache key and a #define of the text. */
typedef struct mica_constant {
    const char *name;
    int64_t value;
} mica_constant;

typedef struct mica_registry_stats {
    uint64_t registered; /* kernels registered by name */
    uint64_t rows;       /* kernel rows that serve ops on this device */
    uint64_t cached;     /* compiled kernels in memory, specialisations counted apart */
    uint64_t compilations;
    uint64_t lookups;
} mica_registry_stats;

/* Adds or replaces a named kernel; replacing drops all its compiled forms (handles already given out stay
 * valid). Strings are copied. INVALID_ARGUMENT when it has nothing this device can run, or on a GPU a text in
 * another language than the dialect. */
MICA_API mica_status mica_kernel_register(mica_device *device, const mica_kernel_desc *desc);
/* The compiled kernel, compiled on first use. The order of `constants` does not matter. KERNEL_NOT_FOUND: no such
 * name, or a text without that entry; KERNEL_COMPILATION (with the compiler's text). */
MICA_API mica_status mica_kernel_get(mica_device *device, const char *name, const mica_constant *constants,
                                     uint32_t constant_count, mica_kernel **out_kernel);
/* Gives the handle back. NULL is fine. */
MICA_API void mica_kernel_release(mica_kernel *kernel);
/* "name|a=1|b=2": names sorted. Valid while the kernel is. */
MICA_API const char *mica_kernel_key(const mica_kernel *kernel);
/* 1 if the unspecialised kernel of that name is compiled already, else 0. Any thread. */
MICA_API int mica_kernel_is_cached(mica_device *device, const char *name);
/* The registry's figures now. INVALID_ARGUMENT for NULL. Any thread. */
MICA_API mica_status mica_device_get_registry(const mica_device *device, mica_registry_stats *out);

/* Looks now for the libraries that the device opens only when it needs them (a compiler of kernels, a library of
 * matrix products) and says in words which were found; "" where it needs none. Cut to `out_bytes`, NUL included.
 * INVALID_ARGUMENT for NULL and 0 bytes. Any thread. */
MICA_API mica_status mica_device_find_libraries(const mica_device *device, char *out, uint64_t out_bytes);

/* ---- compiled kernels on disk -------------------------------------------------------------------------- */

/*
 * GPU kernels that were compiled once are kept in a folder shared by all processes of the user:
 * MICA_CACHE_DIR, else mica/ in XDG_CACHE_HOME or ~/.cache. Damaged entries are compiled anew, the oldest go
 * when 256 MB are passed, and a folder that cannot be used only costs time. What another user may have written
 * is not used: the folder and each file in it must belong to the effective user or to root, and nobody else
 * may write them; else a warning says so, once.
 */
typedef struct mica_cache_entry {
    char name[MICA_NAME_BYTES]; /* kernel file and its constants */
    uint64_t bytes;
    uint64_t seconds; /* since it was written */
} mica_cache_entry;

/* The folder; "" if there is no place for one. Lives for ever. Any thread. */
MICA_API const char *mica_cache_folder(void);
/* Fills up to `capacity` entries and says in `out_count` how many there are; a folder that is not there has none. IO
 * where it cannot be read. Any thread. */
MICA_API mica_status mica_cache_list(mica_cache_entry *entries, uint32_t capacity, uint32_t *out_count);
/* Removes all entries, and nothing else that lies there. `out_removed` may be NULL. IO names the first that stays. */
MICA_API mica_status mica_cache_clear(uint32_t *out_removed);

/* ---- queues and fences -------------------------------------------------------------------------------- */

/* A further in-order queue. UNSUPPORTED where the device has only one. */
MICA_API mica_status mica_queue_create(mica_device *device, mica_queue **out_queue);
/* Gives the queue back; its work goes on. NULL is fine. */
MICA_API void mica_queue_release(mica_queue *queue);

#define MICA_WAIT_FOREVER UINT64_MAX

/* Blocks until the submission is done: its result (DEVICE_LOST, SUBMISSION, FAULT, CANCELLED ...), or TIMEOUT.
 * timeout 0 polls. On the cpu the caller works along while it waits. Any thread; may be called again. */
MICA_API mica_status mica_fence_wait(mica_fence *fence, uint64_t timeout_ns);
/* Device clock at begin and end of the submission, ns. STATE while it runs. */
MICA_API mica_status mica_fence_times(mica_fence *fence, uint64_t *out_begin_ns, uint64_t *out_end_ns);
/* The queue's counter value of this submission: grows by one each. 0 for NULL. */
MICA_API uint64_t mica_fence_value(const mica_fence *fence);
/* Asks the submission to stop; it ends with CANCELLED at its next unit of work, or as usual if it was done. */
MICA_API mica_status mica_fence_cancel(mica_fence *fence);
/* Gives the fence back; its work goes on. NULL is fine. */
MICA_API void mica_fence_release(mica_fence *fence);

/* ---- encoders ----------------------------------------------------------------------------------------- */

/* Work goes in through the ops of ops.h, mica_encoder_dispatch, copy and fill. One thread at a time.
 * `queue` NULL is the device's first queue. */
MICA_API mica_status mica_encoder_begin(mica_device *device, mica_queue *queue, mica_encoder **out_encoder);
/* Work not committed is dropped. */
MICA_API void mica_encoder_release(mica_encoder *encoder);
/* The device it encodes for; borrowed. NULL for NULL. */
MICA_API mica_device *mica_encoder_device(const mica_encoder *encoder);

typedef struct mica_binding {
    mica_buffer *buffer;
    uint32_t access; /* MICA_ACCESS_* */
} mica_binding;

typedef struct mica_dispatch_desc {
    mica_kernel *kernel;
    uint32_t groups[3]; /* the cpu sees their product as one range */
    uint32_t local[3];  /* work-items per group; ignored by the cpu; 0 = 1 */
    const mica_binding *bindings;
    uint32_t binding_count;
    const void *params; /* copied */
    uint32_t params_size;
} mica_dispatch_desc;

/* A kernel of one's own. Its bindings' marks order it against everything else. STATE after commit. */
MICA_API mica_status mica_encoder_dispatch(mica_encoder *encoder, const mica_dispatch_desc *desc);

/* Automatic (default): barriers where the marks conflict. Manual: only the caller's. */
typedef enum mica_hazards { MICA_HAZARDS_AUTOMATIC = 0, MICA_HAZARDS_MANUAL = 1 } mica_hazards;
/* Holds from the next record on. UNSUPPORTED for manual in a recording session. */
MICA_API mica_status mica_encoder_set_hazards(mica_encoder *encoder, mica_hazards mode);
/* Everything encoded before is finished before anything after begins. */
MICA_API mica_status mica_encoder_barrier(mica_encoder *encoder);
/* A barrier only if work that reads `reads` and writes `writes` would conflict with what is in flight. Records
 * nothing: the dispatch that follows (or mica_encoder_track) does. `out_emitted` may be NULL. */
MICA_API mica_status mica_encoder_barrier_between(mica_encoder *encoder, mica_buffer *const *reads,
                                                  uint32_t read_count, mica_buffer *const *writes,
                                                  uint32_t write_count, int *out_emitted);
/* Tells the tracker of foreign work on these buffers that goes on now. */
MICA_API mica_status mica_encoder_track(mica_encoder *encoder, mica_buffer *const *reads, uint32_t read_count,
                                        mica_buffer *const *writes, uint32_t write_count);
/* Names what follows in profiles, traces and native captures, until popped. Copied, cut at 63 bytes. */
MICA_API mica_status mica_encoder_label_push(mica_encoder *encoder, const char *label);
/* Ends the newest label. STATE if there is none. */
MICA_API mica_status mica_encoder_label_pop(mica_encoder *encoder);

/* What follows starts only after `fence`, also across queues and devices of one process. */
MICA_API mica_status mica_encoder_wait_fence(mica_encoder *encoder, mica_fence *fence);
/* Submits and returns; the encoder is spent (only release is left). `out_fence` may be NULL. */
MICA_API mica_status mica_encoder_commit(mica_encoder *encoder, mica_fence **out_fence);
/* Submits and waits: the result of the work. The encoder is spent. */
MICA_API mica_status mica_encoder_commit_and_wait(mica_encoder *encoder);
/* Submits what is there as one stage and goes on encoding the next, which starts after it. A stage with no
 * work submits nothing and gives NULL. `out_fence` may be NULL. mica_encoder_label_push names what is in it. */
MICA_API mica_status mica_encoder_commit_stage(mica_encoder *encoder, mica_fence **out_fence);

typedef struct mica_encoder_stats {
    uint64_t records;         /* ops and dispatches encoded */
    uint64_t dispatches;      /* what they were planned into */
    uint64_t barriers;        /* emitted */
    uint64_t barriers_elided; /* dispatches that needed none */
    uint64_t group_sizes[8];  /* how many groups between barriers had 1..7, 8 or more dispatches */
    uint64_t tracker_checks;  /* ranges compared */
    uint64_t tracker_ns;      /* time in the tracker; 0 unless the device is being profiled */
    uint64_t stages;          /* submissions so far */
    uint64_t scratch_bytes;
} mica_encoder_stats;
/* Figures of what was encoded so far, all stages together. INVALID_ARGUMENT for NULL. */
MICA_API mica_status mica_encoder_get_stats(const mica_encoder *encoder, mica_encoder_stats *out);

/* ---- counters, profiles, traces ----------------------------------------------------------------------- */

typedef struct mica_counters {
    uint64_t records, dispatches, barriers, barriers_elided;
    uint64_t submissions, syncs, replays;
    uint64_t bytes_uploaded, bytes_downloaded, bytes_copied;
    uint64_t buffers_created, kernels_compiled, faults;
} mica_counters;
/* `device` NULL: the whole process. Relaxed: exact once the threads that count have been joined or waited for. */
MICA_API mica_status mica_counters_get(const mica_device *device, mica_counters *out);
/* Sets the device's counters (NULL: the process's) to 0. */
MICA_API mica_status mica_counters_reset(mica_device *device);

/* One dispatch as it ran. */
typedef struct mica_profile_entry {
    char kernel[48];
    char label[64];
    mica_op op;
    uint32_t index; /* place in its submission */
    uint64_t submission;
    uint64_t begin_ns, end_ns; /* device clock */
    /* That its op moves and takes at the least (mica_op_route), where this dispatch is the one that touches
     * most of its operands; 0 in the others, in custom kernels, and in work that was encoded before the
     * profile began, recordings excepted. */
    double bytes, operations;
} mica_profile_entry;
/* Sums of an op and kernel. */
typedef struct mica_profile_bucket {
    char kernel[48];
    mica_op op;
    uint64_t count, total_ns, min_ns, max_ns;
    double bytes, operations;
} mica_profile_bucket;

/* From now on each dispatch of the device is timed (dispatches then run one at a time). What was gathered is
 * forgotten, also by a second begin without an end. */
MICA_API mica_status mica_profile_begin(mica_device *device);
/* Stops timing and keeps what was gathered. STATE if it had not begun; OUT_OF_MEMORY. */
MICA_API mica_status mica_profile_end(mica_device *device);
/* Fill up to `capacity`, say how many there are, oldest first: all, or the last 65,536. Kept until the next end. */
MICA_API mica_status mica_profile_entries(mica_device *device, mica_profile_entry *entries, uint64_t capacity,
                                          uint64_t *out_count);
/* All that ran, summed per op and kernel, however many there are; most time first. */
MICA_API mica_status mica_profile_buckets(mica_device *device, mica_profile_bucket *buckets,
                                          uint64_t capacity, uint64_t *out_count);
/* Writes the profile as a trace file that Perfetto and chrome://tracing open. Replaced atomically. */
MICA_API mica_status mica_profile_write_trace(mica_device *device, const char *path);
/* The backend's own frame capture (Metal) between begin and end; UNSUPPORTED elsewhere. */
MICA_API mica_status mica_capture_begin(mica_device *device, const char *path);
/* Ends a capture. STATE if none was begun. */
MICA_API mica_status mica_capture_end(mica_device *device);

/* ---- the null device ---------------------------------------------------------------------------------- */

/* What the null device does from now on: fail the n-th call (1 = next) of a kind, once. 0 = off. */
typedef struct mica_null_faults {
    uint32_t fail_alloc;   /* buffer creation: OUT_OF_MEMORY */
    uint32_t fail_submit;  /* submission: DEVICE_LOST, and everything after it */
    uint32_t fail_wait;    /* the n-th submission from now ends with SUBMISSION on its fence */
    uint32_t fail_compile; /* kernel: KERNEL_COMPILATION */
    uint32_t slow_ns;      /* every submission takes at least this long */
} mica_null_faults;
/* Arms the faults of a null device; INVALID_ARGUMENT for any other device. */
MICA_API mica_status mica_null_inject(mica_device *device, const mica_null_faults *faults);

#ifdef __cplusplus
}
#endif
#endif
