/*
 * format.h - what model files hold besides tensors, and writing and rewriting them.
 *
 * Reading goes through weights.h, which opens every kind of file alike. Here: metadata values, the writer, and the
 * two jobs that turn one file into another, quantise and convert.
 *
 * Failure: a status with a sentence that names the file and the field. Nothing is ever left half written: a file
 * appears whole under its name or not at all.
 */
#ifndef MICA_FORMAT_H
#define MICA_FORMAT_H

#include "mica/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mica_format {
    MICA_FORMAT_NONE = 0,
    MICA_FORMAT_GGUF,        /* one file, or all of name-00001-of-000NN.gguf */
    MICA_FORMAT_SAFETENSORS, /* one file, or a folder with one file or with model.safetensors.index.json */
    MICA_FORMAT_MLX,         /* a safetensors folder whose config.json has a quantization */
    MICA_FORMAT_NPY,
    MICA_FORMAT_NPZ
} mica_format;

/* "gguf", "safetensors", "mlx", "npy", "npz"; "none" for an unknown value. Any thread. */
MICA_API const char *mica_format_name(mica_format format);

/* ---- metadata ----------------------------------------------------------------------------------------- */

/* The numbers are GGUF's. */
typedef enum mica_value_type {
    MICA_VALUE_U8 = 0,
    MICA_VALUE_I8,
    MICA_VALUE_U16,
    MICA_VALUE_I16,
    MICA_VALUE_U32,
    MICA_VALUE_I32,
    MICA_VALUE_F32,
    MICA_VALUE_BOOL,
    MICA_VALUE_STRING,
    MICA_VALUE_ARRAY,
    MICA_VALUE_U64,
    MICA_VALUE_I64,
    MICA_VALUE_F64,
    MICA_VALUE_TYPE_COUNT
} mica_value_type;

/* "u8" .. "f64", "string", "array"; "none" for an unknown value. Any thread. */
MICA_API const char *mica_value_type_name(mica_value_type type);

/* Bytes that a NUL follows, which is not counted. GGUF does not promise UTF-8 in values, so neither do we. */
typedef struct mica_string {
    const char *data;
    uint64_t length;
} mica_string;

/* One metadata value. Numbers are widened: unsigned types and bool to u, signed to i, f32 and f64 to f. */
typedef struct mica_value {
    mica_value_type type;
    mica_value_type item_type; /* of an array */
    uint64_t count;            /* of an array */
    union {
        uint64_t u;
        int64_t i;
        double f;
        mica_string string;
        /* numbers: packed in their own type (bool a byte); strings: mica_string[]; arrays:
         * mica_value[]. Aligned for its type. */
        const void *items;
    } as;
} mica_value;

/* ---- progress and cancelling -------------------------------------------------------------------------- */

/* Called at least ten times a second on the calling thread, and once with done == total at the end. `what` names the
 * tensor or file in work. Any other result than 0 stops the work with MICA_ERR_CANCELLED. */
typedef int (*mica_progress)(void *context, const char *what, uint64_t done_bytes, uint64_t total_bytes);

/* ---- the writer --------------------------------------------------------------------------------------- */

typedef struct mica_writer mica_writer;

typedef struct mica_writer_options {
    uint64_t size;      /* sizeof(mica_writer_options); 0 = this version's */
    mica_format format; /* NONE: by the ending of the path */
    uint32_t alignment; /* GGUF: of tensors, a power of two of 8 and up; 0 = 32 */
    uint32_t overwrite; /* 1: a file that exists is replaced; else it is refused */
    /* safetensors and GGUF: no file gets more tensor data than this, unless one tensor has;
     * 0 = one file */
    uint64_t split_bytes;
} mica_writer_options;

/* Starts a file (GGUF, safetensors, npy, npz). `options` may be NULL. Nothing is written yet. One thread at a time.
 * IO if `path` exists and may not be replaced, or its folder cannot be written. */
MICA_API mica_status mica_writer_create(const char *path, const mica_writer_options *options,
                                        mica_writer **out_writer);
/* Adds a metadata value; copied. Before the first data. GGUF takes all; safetensors strings alone; npy and npz none:
 * UNSUPPORTED. A key that is there already, an array deeper than 8: INVALID_ARGUMENT. */
MICA_API mica_status mica_writer_metadata(mica_writer *writer, const char *key, const mica_value *value);
/* The same for a string that a NUL ends. */
MICA_API mica_status mica_writer_string(mica_writer *writer, const char *key, const char *text);
/* The same for a number. */
MICA_API mica_status mica_writer_u32(mica_writer *writer, const char *key, uint32_t number);
/* Declares the next tensor: shape slowest first, data canonical and contiguous. All tensors are declared before the
 * first data. A name that is there already, a last dimension that is no multiple of the block, a type that the format
 * cannot hold, a second tensor in npy: INVALID_ARGUMENT or UNSUPPORTED. */
MICA_API mica_status mica_writer_tensor(mica_writer *writer, const char *name, mica_dtype dtype,
                                        uint32_t ndim, const uint64_t *shape);
/* Streams the bytes of the declared tensors in their order, in pieces of any size; the padding between them is the
 * writer's. More than was declared: INVALID_ARGUMENT. */
MICA_API mica_status mica_writer_write(mica_writer *writer, const void *bytes, uint64_t size);
/* Completes the file and puts it in its place. STATE if tensor data is missing. The writer is gone afterwards, also
 * on failure, when nothing appears. */
MICA_API mica_status mica_writer_finish(mica_writer *writer);
/* Gives up: no trace is left. NULL is fine. */
MICA_API void mica_writer_discard(mica_writer *writer);

/* ---- quantise and convert ----------------------------------------------------------------------------- */

/* Tensors whose name matches `pattern` (with * and ?) get `type` instead of what the mix says. */
typedef struct mica_keep_rule {
    const char *pattern;
    mica_dtype type;
} mica_keep_rule;

typedef struct mica_quantize_options {
    uint64_t size;       /* sizeof(mica_quantize_options); 0 = this version's */
    const char *type;    /* a type ("q4_0") or a mix ("q4_k_m"), any case */
    const char *imatrix; /* path of an importance matrix (GGUF), or NULL */
    const mica_keep_rule *keep;
    uint32_t keep_count;
    uint32_t threads;       /* 0 = one a core */
    uint32_t overwrite;     /* 1: an output that exists is replaced */
    uint32_t pure;          /* 1: every matrix gets `type`, no mix */
    mica_progress progress; /* may be NULL */
    void *context;
    const char *const *accept_keys; /* [accept_key_count] keys of config.json: as in mica_weights_options */
    uint32_t accept_key_count;
} mica_quantize_options;

typedef struct mica_quantize_report {
    uint64_t tensors;
    uint64_t quantized; /* got another type, and one of blocks */
    uint64_t fallbacks; /* rows that the block does not divide got another type */
    uint64_t bytes_in, bytes_out;
    /* of the quantized, those that had a type of blocks before: the errors of both add up */
    uint64_t requantized;
    uint64_t plain; /* got another type, and one without blocks, such as f16 */
} mica_quantize_report;

/* Reads `input` (any kind that weights.h opens), writes `output`. Matrices become `type` by the documented mix
 * (docs/formats.md), vectors stay as they are. `out_report` may be NULL. CANCELLED (by the progress callback, or
 * as work.h says) leaves nothing. */
MICA_API mica_status mica_quantize(const char *input, const char *output,
                                   const mica_quantize_options *options, mica_quantize_report *out_report);

typedef struct mica_convert_options {
    uint64_t size;          /* sizeof(mica_convert_options); 0 = this version's */
    mica_format format;     /* NONE: by the ending of the output; a path without one is a folder */
    mica_dtype type;        /* of matrices in the output; NONE: as they are where the output can hold it */
    uint32_t threads;       /* 0 = one a core */
    uint32_t overwrite;     /* 1: an output that exists is replaced */
    mica_progress progress; /* may be NULL */
    void *context;
    uint32_t group_size;            /* of affine types: values that share a scale, 32, 64 or 128; 0 = 64 */
    uint32_t without_tokenizer;     /* 1: the output gets none, also where it could */
    const char *const *accept_keys; /* [accept_key_count] keys of config.json: as in mica_weights_options */
    uint32_t accept_key_count;
} mica_convert_options;

/* Tensor data, metadata and the tokenizer, between safetensors, MLX folders and GGUF. Names of the known families are
 * mapped (docs/formats.md); of an unknown one they stay, and the GGUF says so in general.architecture. A folder that
 * is made of a GGUF reads to the same numbers, tokens and vectors elsewhere; UNSUPPORTED names a key, a tensor, a
 * pooling or a tokenizer that it has no words for. A folder that was not there appears whole; into one that is there
 * config.json comes last. A single safetensors file holds tensors and texts alone. */
MICA_API mica_status mica_convert(const char *input, const char *output, const mica_convert_options *options);

#define MICA_HF_QUERY_HEADS 1u
#define MICA_HF_KEY_HEADS 2u

/* The name that GGUF has for a matrix or vector of an HF checkpoint, "blk.0.attn_q.weight" for
 * "model.layers.0.self_attn.q_proj.weight", of the family that general.architecture says; cut at `size` it is refused.
 * `out_heads` (may be NULL): 0, or MICA_HF_*: its rows are rotary heads whose halves are partners, pairs in a GGUF.
 * UNSUPPORTED: a family or a name that is not known, or one of a single expert. */
MICA_API mica_status mica_tensor_name_of_hf(const char *architecture, const char *name, char *out,
                                            uint64_t size, uint32_t *out_heads);

#ifdef __cplusplus
}
#endif
#endif
