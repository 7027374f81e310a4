/*
 * weights.h - model files of every kind, read alike, and their tensors as buffers on a device.
 *
 * mica_weights_open takes a file or a folder and reads its headers into memory of its own; whatever the file says is
 * checked against the file before it is used. Tensors stay on the disk until they are asked for.
 *
 * A file that another program cuts short while it is open: everything that reads (mica_weights_read, uploads,
 * packing without a map, quantise, convert) ends with MALFORMED_FILE. A buffer that was imported without a copy shows
 * the file itself, and touching a page that is gone kills the process with SIGBUS, as for every program that maps
 * files; MICA_WEIGHTS_NO_MAP avoids that at the cost of a copy.
 *
 * Threads: after open everything here may be called from any thread at once. Buffers live on without the weights.
 */
#ifndef MICA_WEIGHTS_H
#define MICA_WEIGHTS_H

#include "mica/device.h"
#include "mica/format.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_weights mica_weights;

#define MICA_WEIGHTS_NO_MAP 1u /* read tensors into memory of our own, never map */
/* Keep the memory of loaded tensors from being swapped out (mlock): imported ones as long as their file is mapped,
 * copies until their memory goes back to the system. A load that would pass the process's limit ends with IO. Memory of
 * a GPU is never swapped, so there it changes nothing. */
#define MICA_WEIGHTS_LOCK 2u

/* A checkpoint (safetensors, MLX folder) of a known family shows the names, metadata and tokenizer that it would have
 * as a GGUF, so that a program knows one convention; tokenizer.json is tokenizer.huggingface.json. The types stay,
 * and so does the order of the rows of rotary heads: where "mica.rope_halves" is true, partners lie half a head apart
 * although GGUF has them side by side. Tensors that GGUF has in another form (norms, transposed matrices, stacked
 * experts) are rewritten in memory. Other files are as without it. */
#define MICA_WEIGHTS_AS_GGUF 4u

typedef struct mica_weights_options {
    uint64_t size;  /* sizeof(mica_weights_options); 0 = this version's */
    uint32_t flags; /* MICA_WEIGHTS_* */
    /* With AS_GGUF: keys of config.json, [accept_key_count], that are passed over though mica does not
     * know them, or knows only other values of them. Without them such a key is UNSUPPORTED, since it may
     * change what the model computes. */
    const char *const *accept_keys;
    uint32_t accept_key_count;
} mica_weights_options;

typedef struct mica_weights_info {
    mica_format format;
    uint32_t version;    /* GGUF: 2 or 3; else 0 */
    uint32_t big_endian; /* 1: metadata can be read, tensors not */
    uint32_t file_count;
    uint64_t tensor_count, metadata_count;
    uint64_t tensor_bytes; /* of all tensors together */
    uint64_t file_bytes;
    /* of its matrices: the mix that general.file_type names where some have its type ("q4_k_m"), else the type
     * that most of their bytes have ("q8_0"); "none" without one */
    char type[32];
} mica_weights_info;

typedef struct mica_tensor_info {
    const char *name;      /* lives as long as the weights */
    mica_dtype dtype;      /* NONE: not known to mica; such a tensor can be listed, not used */
    const char *type_name; /* the file's own word for the type */
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS]; /* slowest first */
    uint64_t bytes;                /* in the file, scales and biases of MLX weights included */
    uint32_t group_size;           /* MLX weights: values per scale; else 0 */
    uint32_t file;                 /* which of the files, from 0 */
    uint64_t file_offset;          /* of its data there */
} mica_tensor_info;

/* Opens a file or a folder. `options` may be NULL. IO, MALFORMED_FILE, UNSUPPORTED (a kind of file mica does not
 * know), QUANT_CONFIG; BUDGET and CANCELLED as work.h says: no number that the file merely states decides how much
 * memory is taken. The caller releases *out_weights. */
MICA_API mica_status mica_weights_open(const char *path, const mica_weights_options *options,
                                       mica_weights **out_weights);
/* The same for a file that is in memory: `bytes` stay, unchanged, as long as the weights and every buffer of them. */
MICA_API mica_status mica_weights_open_bytes(const void *bytes, uint64_t size,
                                             const mica_weights_options *options, mica_weights **out_weights);
/* NULL is fine. Buffers that were handed out stay valid. */
MICA_API void mica_weights_release(mica_weights *weights);
/* What was opened. INVALID_ARGUMENT for NULL. Any thread. */
MICA_API mica_status mica_weights_get_info(const mica_weights *weights, mica_weights_info *out);

/* Tensor `index` of tensor_count, in the order of the files. */
MICA_API mica_status mica_weights_tensor(const mica_weights *weights, uint64_t index, mica_tensor_info *out);
/* The index of the tensor of that name. NOT_FOUND offers near names in its sentence. */
MICA_API mica_status mica_weights_find(const mica_weights *weights, const char *name, uint64_t *out_index);
/* Entry `index` of metadata_count, in the order of the file. Borrowed from the weights. */
MICA_API mica_status mica_weights_metadata(const mica_weights *weights, uint64_t index, mica_string *out_key,
                                           const mica_value **out_value);
/* The value of a key. NOT_FOUND if there is none. Borrowed from the weights. */
MICA_API mica_status mica_weights_get(const mica_weights *weights, const char *key,
                                      const mica_value **out_value);
/* The config.json of a folder as text, NUL after it; NOT_FOUND if there is none. Borrowed from the weights. */
MICA_API mica_status mica_weights_config(const mica_weights *weights, const char **out_json,
                                         uint64_t *out_length);

/* The bytes [offset, offset + bytes) of a tensor as the file holds them (of MLX weights: the packed words). */
MICA_API mica_status mica_weights_read(const mica_weights *weights, uint64_t index, uint64_t offset,
                                       void *out_bytes, uint64_t bytes);
/* Values [first, first + count) of a tensor of floats or blocks as f32, counted over the whole tensor; both multiples
 * of the row length, or for a vector any. UNSUPPORTED for integers. */
MICA_API mica_status mica_weights_decode(const mica_weights *weights, uint64_t index, uint64_t first,
                                         uint64_t count, float *out_values);

/* ---- onto a device ------------------------------------------------------------------------------------ */

/* In the layout the device's matmul reads fastest (mica_buffer_pack), where it has one; the file's pages are given
 * back. */
#define MICA_LOAD_PACK 1u

/* How a tensor gets onto a device. */
typedef enum mica_placement {
    MICA_PLACEMENT_IMPORT = 0, /* the mapped file itself: no copy, the ledger's mapped column */
    MICA_PLACEMENT_COPY,       /* read into memory of the device: the owned column */
    MICA_PLACEMENT_PACK,       /* rewritten into the packed layout: the owned column */
    MICA_PLACEMENT_NONE        /* the tensor cannot be used: its type, byte order or number of dimensions */
} mica_placement;

typedef struct mica_fit {
    uint64_t mapped_bytes, owned_bytes; /* what loading all tensors adds to the two columns */
    uint64_t largest_bytes;             /* of the largest single buffer */
    uint64_t unusable;                  /* tensors with MICA_PLACEMENT_NONE */
    /* 1: owned_bytes, and what packing needs for a moment, are within the budget and the free memory
     * as they are now, and both columns together within the device's memory */
    uint32_t fits;
} mica_fit;

/* Where one tensor would go, and how many bytes of that column. */
MICA_API mica_status mica_weights_place(const mica_weights *weights, uint64_t index, mica_device *device,
                                        uint32_t flags, mica_placement *out_placement, uint64_t *out_bytes);
/* What loading every tensor would take, without loading any. `flags` is MICA_LOAD_*. */
MICA_API mica_status mica_weights_fit(const mica_weights *weights, mica_device *device, uint32_t flags,
                                      mica_fit *out);
/* One tensor as a buffer, of its own rank and as empty as it is. MLX weights come with their scales
 * (mica_buffer_affine), an imported buffer is read-only. `flags` is MICA_LOAD_*. UNSUPPORTED for a tensor that cannot
 * be used, BUDGET, OUT_OF_MEMORY, IO, MALFORMED_FILE. */
MICA_API mica_status mica_weights_load(mica_weights *weights, uint64_t index, mica_device *device,
                                       uint32_t flags, mica_buffer **out_buffer);
/* The same by name, checked: `dtype` (NONE = any) and `shape` (ndim 0 = any) must be the tensor's. */
MICA_API mica_status mica_weights_load_named(mica_weights *weights, const char *name, mica_device *device,
                                             uint32_t flags, mica_dtype dtype, uint32_t ndim,
                                             const uint64_t *shape, mica_buffer **out_buffer);
/* `count` tensors or none: in the order they lie on the disk, read ahead, with progress over their bytes after each few
 * megabytes and each tensor. out_buffers[i] is tensor index[i]; NULL all of them on failure. */
MICA_API mica_status mica_weights_load_all(mica_weights *weights, const uint64_t *index, uint64_t count,
                                           mica_device *device, uint32_t flags, mica_progress progress,
                                           void *context, mica_buffer **out_buffers);

#ifdef __cplusplus
}
#endif
#endif
