/*
 * archive.h - what every reader produces: the tensors and metadata of a model file or folder, checked.
 *
 * Knows bytes, no device. A reader fills an archive; whoever uses one does not ask which reader it was. All names,
 * values and tables are the archive's own memory: nothing points into a map. Immutable after open; any thread.
 *
 * Once a reader has returned MICA_OK, for every tensor: its name is unique, UTF-8 and without NUL; offset + bytes lies
 * inside its file; if `problem` is NONE then bytes is exactly what dtype and shape say.
 */
#ifndef MICA_FORMAT_ARCHIVE_H
#define MICA_FORMAT_ARCHIVE_H

#include <stdbool.h>

#include "base/file/file.h"
#include "format/chunks.h"
#include "format/config/keys.h"
#include "mica/format.h"

/* Why a tensor can be listed but not used. */
typedef enum mica__tensor_problem {
    MICA__TENSOR_FINE = 0,
    MICA__TENSOR_TYPE,      /* its type is not known */
    MICA__TENSOR_DIMS,      /* more than MICA_MAX_DIMS dimensions; ndim is 0 then */
    MICA__TENSOR_BYTE_ORDER /* the file is big endian */
} mica__tensor_problem;

#define MICA__NO_TENSOR UINT32_MAX

typedef struct mica__tensor {
    const char *name;
    uint32_t name_length;
    uint16_t dtype;                /* mica_dtype; NONE: TYPE problem */
    uint8_t ndim, problem;         /* mica__tensor_problem */
    uint64_t shape[MICA_MAX_DIMS]; /* slowest first; of MLX weights the logical shape, [.., N, K] */
    uint64_t offset, bytes;        /* in the file */
    uint32_t file;                 /* index into archive->file */
    /* MLX weights: indices of these tensors, which are hidden; else MICA__NO_TENSOR */
    uint32_t scales, biases;
    uint32_t group_size;   /* MLX weights */
    const char *type_name; /* the file's own word: "Q4_K", "F8_E4M3", "type 99" */
} mica__tensor;

typedef struct mica__meta {
    mica_string key;
    mica_value value;
} mica__meta;

typedef struct mica__archive {
    mica_format format;
    uint32_t version;
    bool big_endian;
    mica__file **file;
    uint32_t file_count;
    uint32_t made_file; /* 1 + the index of the file that is memory of the archive's own; 0: there is none */
    mica__tensor *tensor; /* visible ones first, then hidden ones (scales and biases of MLX weights) */
    uint32_t tensor_count, visible_count;
    uint32_t *by_name; /* indices of visible tensors, sorted by name */
    mica__meta *meta;
    uint32_t meta_count;
    char *config; /* the text of config.json, NUL after it; NULL if there is none */
    size_t config_length;
    struct mica__chunk *chunks; /* the archive's own memory, archive_memory.c */
} mica__archive;

/* Opens a file or folder by what is in it (magic and ending). UNSUPPORTED names what is known. */
mica_status mica__archive_open(const char *path, mica__archive **out);
/* A file that is memory: the caller keeps `bytes` as long as the archive and everything that shows it. */
mica_status mica__archive_open_bytes(const void *bytes, uint64_t size, mica__archive **out);
/* Renames the tensors and rewrites the metadata of a checkpoint as the GGUF of it has them (as_gguf.c); other archives stay
 * as they are. `path` is where it was opened. */
mica_status mica__archive_as_gguf(mica__archive *archive, const char *path, const mica__accepted *accepted);
/* NULL is fine. */
void mica__archive_close(mica__archive *archive);
/* Index of the visible tensor of that name, or MICA__NO_TENSOR. */
uint32_t mica__archive_find(const mica__archive *archive, const char *name, size_t length);
/* MICA_ERR_NOT_FOUND with a sentence that offers up to three near names. */
mica_status mica__archive_not_found(const mica__archive *archive, const char *name);
/* The value of a key, NULL if there is none. */
const mica_value *mica__archive_meta(const mica__archive *archive, const char *key);
/* The mix that a number of general.file_type stands for, "q4_k_m", and the type of most of its matrices; NULL and NONE for a
 * number that is not known. The table is mix.c's. */
const char *mica__file_type_name(uint64_t number, mica_dtype *out_type);
/* UNSUPPORTED with a sentence if the tensor cannot be used. */
mica_status mica__archive_usable(const mica__archive *archive, const mica__tensor *tensor);
/* Bytes [offset, offset + bytes) of the tensor; INVALID_ARGUMENT if that leaves it. */
mica_status mica__archive_read(const mica__archive *archive, const mica__tensor *tensor, uint64_t offset,
                               void *out_bytes, uint64_t bytes);
/* Whole rows [row, row + rows) of a tensor seen as [rows, last dimension], as f32; MLX weights with their scales. */
mica_status mica__archive_decode_rows(const mica__archive *archive, const mica__tensor *tensor, uint64_t row,
                                      uint64_t rows, float *out_values);

/* ---- for readers ---------------------------------------------------------------------------------------- */

/* A new archive without files. The caller closes *out. */
mica_status mica__archive_create(mica__archive **out);
/* Adds an open file, which is the archive's from now on, and closed at once if this fails. */
mica_status mica__archive_add_file(mica__archive *archive, mica__file *file);
/* The same from a path. */
mica_status mica__archive_add_path(mica__archive *archive, const char *path);

/* Each takes a new archive (zeroed but for `file`, which holds the opened files) and fills it; on failure the caller
 * closes the archive. Files may be memory (mica__file_from_bytes), which is how fuzzers come in. */
mica_status mica__gguf_read(mica__archive *archive); /* one file or all parts in order */
/* The archive's one file is that of `path`. Where that ends in -00002-of-00003.gguf, the archive gets all three parts in
 * order; NOT_FOUND names one that is missing. */
mica_status mica__gguf_siblings(mica__archive *archive, const char *path);
mica_status mica__safetensors_read(mica__archive *archive); /* one file or all shards */
mica_status mica__npy_read(mica__archive *archive);         /* one file; the tensor is named "array" */
mica_status mica__npz_read(mica__archive *archive);         /* one file */
/* A folder: finds its files (one *.safetensors, or those of the index), reads them, and config.json; where that has a
 * quantization, joins packed words with their scales (mlx.c). */
mica_status mica__folder_read(mica__archive *archive, const char *path);
/* Joins packed words with scales and biases as config says; the archive becomes MICA_FORMAT_MLX. */
mica_status mica__mlx_join(mica__archive *archive);

/* Memory of the archive, freed with it, 16-byte aligned, not zeroed; NULL with the status set if there is none. */
void *mica__archive_alloc(mica__archive *archive, size_t bytes);
/* A copy with a NUL after it. */
char *mica__archive_text(mica__archive *archive, const void *bytes, size_t length);
/* The name of a file as sentences show it: archive->file[file]. */
const char *mica__archive_path(const mica__archive *archive, uint32_t file);
/* After the tensors are there: builds by_name. MALFORMED_FILE names a tensor that is there twice. */
mica_status mica__archive_index(mica__archive *archive);

#endif
