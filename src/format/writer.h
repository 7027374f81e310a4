/*
 * writer.h - between the writer (format.h) and the formats it writes.
 *
 * writer.c takes declarations, cuts them into files, streams the data and puts the files in their places. A format is
 * one row of functions: what it can hold, and the bytes around the tensors' data. A format function never keeps more
 * than its own tables, and never sees a path that exists.
 */
#ifndef MICA_FORMAT_WRITER_H
#define MICA_FORMAT_WRITER_H

#include "format/archive.h"

typedef struct mica__writer_tensor {
    const char *name;
    uint32_t name_length;
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS]; /* slowest first */
    uint64_t bytes;
} mica__writer_tensor;

/* One file of the output. */
typedef struct mica__writer_file {
    char *path;
    mica__file_writer *file; /* NULL before it is opened */
    uint32_t first, count;   /* its tensors */
} mica__writer_file;

/* What a format gives. Functions that are NULL have nothing to do. All sentences begin with the path. */
typedef struct mica__writer_format {
    mica_format format;
    const char *ending; /* with the dot */
    bool can_split;     /* into <stem>-00001-of-00003<ending> */
    /* Whether a value can be held; UNSUPPORTED. NULL: none can. */
    mica_status (*check_meta)(const mica_writer *writer, const char *key, const mica_value *value);
    /* Whether a tensor can be held after those that are declared. */
    mica_status (*check_tensor)(const mica_writer *writer, const mica__writer_tensor *tensor);
    /* Everything before the first tensor of a file. */
    mica_status (*begin)(mica_writer *writer, const mica__writer_file *part);
    /* Before the bytes of a tensor, as they pass, and after them. Also called for tensors without bytes. */
    mica_status (*before)(mica_writer *writer, const mica__writer_tensor *tensor);
    mica_status (*data)(mica_writer *writer, const void *bytes, uint64_t size);
    mica_status (*after)(mica_writer *writer, const mica__writer_tensor *tensor);
    /* After the last tensor of a file. */
    mica_status (*end)(mica_writer *writer, const mica__writer_file *part);
    /* After the last file, before any gets its name: a place for an index (mica__writer_add_file). */
    mica_status (*finish)(mica_writer *writer);
} mica__writer_format;

extern const mica__writer_format mica__gguf_format, mica__safetensors_format, mica__npy_format,
    mica__npz_format;

/* Names that must not come twice; starts zeroed. */
typedef struct mica__name_set {
    mica_string *slot; /* data NULL: free */
    size_t capacity, count;
    uint64_t seed;
} mica__name_set;

struct mica_writer {
    const mica__writer_format *format;
    char *path;
    mica_writer_options options;
    mica__meta *meta; /* copies, in the order they came */
    uint32_t meta_count, meta_capacity;
    mica__writer_tensor *tensor;
    uint32_t tensor_count, tensor_capacity;
    mica__writer_file *part; /* the files, in the order they get their names; known from the first data on */
    uint32_t part_count, part_capacity;
    uint32_t split_count; /* how many of them hold tensors */
    mica__name_set names, keys;
    uint32_t current, at_part; /* the tensor whose bytes come next, and its file */
    uint64_t written, left;    /* of its bytes; of all bytes that were declared */
    bool started, entered;     /* no more declarations; `before` was called for the current tensor */
    mica_status failed;        /* the first failure while streaming: everything after it fails too */
    void *state;               /* the format's own, from mica__writer_alloc */
    struct mica__chunk *chunks;
};

/* Memory that lives as long as the writer; NULL with the status set if there is none. */
void *mica__writer_alloc(mica_writer *writer, size_t bytes);
/* Bytes into the current file, outside tensor data. */
mica_status mica__writer_put(mica_writer *writer, const void *bytes, size_t size);
/* Zeros into the current file. */
mica_status mica__writer_pad(mica_writer *writer, uint64_t size);
/* Bytes in the current file so far. */
uint64_t mica__writer_position(const mica_writer *writer);
/* One more file, which becomes the current one and gets its name after those before it. */
mica_status mica__writer_add_file(mica_writer *writer, const char *path);

/* A deep copy of a value into chunks; an array deeper than MICA__VALUE_DEPTH, an unknown type or a missing pointer is
 * INVALID_ARGUMENT. `key` names it in sentences. */
#define MICA__VALUE_DEPTH 8
mica_status mica__value_copy(struct mica__chunk **chunks, const char *key, const mica_value *value,
                             mica_value *out_value);
/* Bytes of one item in memory and in GGUF: 1 to 8; 0 for strings, arrays and unknown types. */
uint32_t mica__value_type_bytes(mica_value_type type);

/* Adds a name, whose bytes the caller keeps; *out_new says whether it was not there before. */
mica_status mica__name_set_add(mica__name_set *set, const char *name, size_t length, bool *out_new);
bool mica__name_set_has(const mica__name_set *set, const char *name, size_t length);
/* Frees what the set holds; a zeroed set is fine. */
void mica__name_set_free(mica__name_set *set);

#endif
