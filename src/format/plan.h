/*
 * plan.h - what one file becomes: the tensors to write, where their values come from, and the metadata.
 *
 * Quantise and convert make a plan out of an archive; plan_stream.c carries it out, piece by piece, on several threads.
 * Knows archives and the writer, no family and no mix. A plan is one thread's until it is carried out.
 */
#ifndef MICA_FORMAT_PLAN_H
#define MICA_FORMAT_PLAN_H

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
typedef enum mica__plan_part {
    MICA__PLAN_WHOLE = 0,
    MICA__PLAN_WORDS,
    MICA__PLAN_SCALES,
    MICA__PLAN_BIASES
} mica__plan_part;

typedef struct mica__plan_tensor {
    const char *name;
    mica_dtype dtype;              /* as it is written */
    uint32_t ndim;                 /* as it is written */
    uint64_t shape[MICA_MAX_DIMS]; /* slowest first */
    const mica__tensor *const
        *source; /* [source_count], their rows one after the other; all of one type and shape */
    uint32_t source_count;
    const float *constant; /* [rows, row] of an f32 tensor that no file holds; then there is no source */
    uint64_t rows, row; /* rows that are made, values of each; row is 1 where single values change places */
    uint64_t first_row; /* in the one source, of row 0 */
    uint8_t transform;  /* mica__transform */
    uint8_t part;       /* mica__plan_part */
    mica_dtype coding;  /* of parts: the affine type */
    uint32_t group;     /* of parts: values that share a scale */
    mica_dtype scales;  /* of parts: the type of scales and biases */
    uint32_t heads;     /* of PAIR and UNPAIR */
    const float *importance;   /* [importance_count, row], or NULL */
    uint64_t importance_count; /* each serves rows / importance_count rows */
} mica__plan_tensor;

typedef struct mica__plan {
    const mica__archive *archive;
    mica__plan_tensor *tensor;
    uint32_t tensor_count, tensor_capacity;
    mica__meta *meta;
    uint32_t meta_count, meta_capacity;
    mica__name_set keys;        /* of meta, and those that were unset */
    struct mica__chunk *chunks; /* memory that lives as long as the plan */
    mica__accepted accepted;    /* keys of config.json that the caller takes as they come */
} mica__plan;

typedef struct mica__plan_run {
    uint32_t threads; /* 0 = one a core */
    mica_progress progress;
    void *context;
    void (*ready)(void *ready_context); /* called when all is written and nothing has its name; may be NULL */
    void *ready_context;
} mica__plan_run;

/* A file beside the weights. */
typedef struct mica__side_file {
    const char *path; /* in the plan's memory */
    void *data;       /* a NUL behind `size` bytes; who asked for it frees it */
    size_t size;
} mica__side_file;

/* Frees what the plan holds; a zeroed plan is fine. */
void mica__plan_free(mica__plan *plan);

/* A tensor that is written as it is in the archive: name, type and shape of `source`; not added yet. */
mica_status mica__plan_same(mica__plan *plan, const mica__tensor *source, mica__plan_tensor *out_tensor);
/* Makes it PAIR or UNPAIR over that many heads; of a vector the values move. MALFORMED_FILE if they do not divide it. */
mica_status mica__plan_pair(mica__plan_tensor *tensor, mica__transform transform, uint32_t heads);
/* Makes it TRANSPOSE. MALFORMED_FILE unless it is a matrix. */
mica_status mica__plan_transpose(mica__plan_tensor *tensor);
/* The type of the source's values. */
mica_dtype mica__plan_source_type(const mica__plan_tensor *tensor);
/* Appends a tensor. What it points to must live as long as the plan. */
mica_status mica__plan_add(mica__plan *plan, const mica__plan_tensor *tensor);
/* Whether each tensor's values can be had and be written as its type; UNSUPPORTED names the tensor. */
mica_status mica__plan_check(const mica__plan *plan);

/* Sets a value, replacing one of that key. Key and value are not copied: they live as long as the plan. */
mica_status mica__plan_set(mica__plan *plan, const char *key, const mica_value *value);
mica_status mica__plan_set_u32(mica__plan *plan, const char *key, uint64_t number);
mica_status mica__plan_set_f32(mica__plan *plan, const char *key, double number);
mica_status mica__plan_set_bool(mica__plan *plan, const char *key, bool truth);
mica_status mica__plan_set_string(mica__plan *plan, const char *key, const char *text);
/* Forgets a key; that it is not there is fine. */
void mica__plan_unset(mica__plan *plan, const char *key);
/* The value of a key, or NULL. */
const mica_value *mica__plan_get(const mica__plan *plan, const char *key);
/* A whole number, the first one of an array; `otherwise` where there is none. */
uint64_t mica__plan_get_number(const mica__plan *plan, const char *key, uint64_t otherwise);
/* Text in the plan's memory, as printf; NULL with the status set if there is none. */
char *mica__plan_text(mica__plan *plan, const char *format, ...) MICA__PRINTF(2, 3);
/* Reads the file `name` of a folder, of at most 128 MiB. That there is none is fine: then out->data is NULL. */
mica_status mica__plan_read_side(mica__plan *plan, const char *folder, const char *name,
                                 mica__side_file *out);

/* Bytes the writer will get, and bytes that are read for them. */
uint64_t mica__plan_bytes_out(const mica__plan *plan);
uint64_t mica__plan_bytes_in(const mica__plan *plan);

/* Declares everything to the writer, streams it, and finishes the writer, which is gone afterwards. CANCELLED if
 * progress says so; then, as after any failure, nothing is left. */
mica_status mica__plan_write(const mica__plan *plan, mica_writer *writer, const mica__plan_run *run);

#endif
