/*
 * target.h - what one file becomes: the tensors to write, where their values come from, and the metadata.
 *
 * Quantise and convert make a target out of an archive; target_stream.c carries it out, piece by piece, on several threads.
 * Knows archives and the writer, no family and no mix. A target is one thread's until it is carried out.
 */
#ifndef MICA_FORMAT_CONVERT_TARGET_H
#define MICA_FORMAT_CONVERT_TARGET_H

#include "format/archive.h"
#include "format/writer.h"

/* What happens to the values on their way. The head rows of rotary embeddings come in two orders: the two halves of a
 * head one after the other (HF), or the partners side by side (GGUF's llama). */
typedef enum mica__transform {
    MICA__TRANSFORM_NONE = 0,
    MICA__TRANSFORM_PAIR,      /* rows of each of `heads` heads: halves become partners */
    MICA__TRANSFORM_UNPAIR,    /* and back */
    MICA__TRANSFORM_TRANSPOSE, /* the source is [row, rows] */
    MICA__TRANSFORM_ADD_ONE,
    MICA__TRANSFORM_SUBTRACT_ONE
} mica__transform;

/* Which part of a value's coding a tensor holds: MLX keeps words, scales and biases in three. */
typedef enum mica__target_part {
    MICA__TARGET_WHOLE = 0,
    MICA__TARGET_WORDS,
    MICA__TARGET_SCALES,
    MICA__TARGET_BIASES
} mica__target_part;

typedef struct mica__target_tensor {
    const char *name;
    mica_dtype dtype;              /* as it is written */
    uint32_t ndim;                 /* as it is written */
    uint64_t shape[MICA_MAX_DIMS]; /* slowest first */
    /* [source_count], their rows one after the other; all of one type and shape */
    const mica__tensor *const *source;
    uint32_t source_count;
    const float *constant; /* [rows, row] of an f32 tensor that no file holds; then there is no source */
    uint64_t rows, row; /* rows that are made, values of each; row is 1 where single values change places */
    uint64_t first_row; /* in the one source, of row 0 */
    uint8_t transform;  /* mica__transform */
    uint8_t part;       /* mica__target_part */
    mica_dtype coding;  /* of parts: the affine type */
    uint32_t group;     /* of parts: values that share a scale */
    mica_dtype scales;  /* of parts: the type of scales and biases */
    uint32_t heads;     /* of PAIR and UNPAIR */
    const float *importance;   /* [importance_count, row], or NULL */
    uint64_t importance_count; /* each serves rows / importance_count rows */
} mica__target_tensor;

typedef struct mica__target {
    const mica__archive *archive;
    mica__target_tensor *tensor;
    uint32_t tensor_count, tensor_capacity;
    mica__meta *meta;
    uint32_t meta_count, meta_capacity;
    mica__name_set keys;        /* of meta, and those that were unset */
    struct mica__chunk *chunks; /* memory that lives as long as the target */
    mica__accepted accepted;    /* keys of config.json that the caller takes as they come */
} mica__target;

typedef struct mica__target_run {
    uint32_t threads; /* 0 = one a core */
    mica_progress progress;
    void *context;
    void (*ready)(void *ready_context); /* called when all is written and nothing has its name; may be NULL */
    void *ready_context;
} mica__target_run;

/* A file beside the weights. */
typedef struct mica__side_file {
    const char *path; /* in the target's memory */
    void *data;       /* a NUL behind `size` bytes; who asked for it frees it */
    size_t size;
} mica__side_file;

/* Frees what the target holds; a zeroed target is fine. */
void mica__target_free(mica__target *target);

/* A tensor that is written as it is in the archive: name, type and shape of `source`; not added yet. */
mica_status mica__target_same(mica__target *target, const mica__tensor *source,
                              mica__target_tensor *out_tensor);
/* Makes it PAIR or UNPAIR over that many heads; of a vector the values move. MALFORMED_FILE if they do not divide it. */
mica_status mica__target_pair(mica__target_tensor *tensor, mica__transform transform, uint32_t heads);
/* Makes it TRANSPOSE. MALFORMED_FILE unless it is a matrix. */
mica_status mica__target_transpose(mica__target_tensor *tensor);
/* The type of the source's values. */
mica_dtype mica__target_source_type(const mica__target_tensor *tensor);
/* Appends a tensor. What it points to must live as long as the target. */
mica_status mica__target_add(mica__target *target, const mica__target_tensor *tensor);
/* Whether each tensor's values can be had and be written as its type; UNSUPPORTED names the tensor. */
mica_status mica__target_check(const mica__target *target);

/* Sets a value, replacing one of that key. Key and value are not copied: they live as long as the target. */
mica_status mica__target_set(mica__target *target, const char *key, const mica_value *value);
mica_status mica__target_set_u32(mica__target *target, const char *key, uint64_t number);
mica_status mica__target_set_f32(mica__target *target, const char *key, double number);
mica_status mica__target_set_bool(mica__target *target, const char *key, bool truth);
mica_status mica__target_set_string(mica__target *target, const char *key, const char *text);
/* Forgets a key; that it is not there is fine. */
void mica__target_unset(mica__target *target, const char *key);
/* The value of a key, or NULL. */
const mica_value *mica__target_get(const mica__target *target, const char *key);
/* A whole number, the first one of an array; `otherwise` where there is none. */
uint64_t mica__target_get_number(const mica__target *target, const char *key, uint64_t otherwise);
/* Text in the target's memory, as printf; NULL with the status set if there is none. */
char *mica__target_text(mica__target *target, const char *format, ...) MICA__PRINTF(2, 3);
/* Reads the file `name` of a folder, of at most 128 MiB. That there is none is fine: then out->data is NULL. */
mica_status mica__target_read_side(mica__target *target, const char *folder, const char *name,
                                   mica__side_file *out);

/* Bytes the writer will get, and bytes that are read for them. */
uint64_t mica__target_bytes_out(const mica__target *target);
uint64_t mica__target_bytes_in(const mica__target *target);

/* Declares everything to the writer, streams it, and finishes the writer, which is gone afterwards. CANCELLED if
 * progress says so; then, as after any failure, nothing is left. */
mica_status mica__target_write(const mica__target *target, mica_writer *writer, const mica__target_run *run);

#endif
