/*
 * gguf.h - what the GGUF reader and writer share: the type table, and one file while it is read.
 *
 * A header is walked twice by the same code: once to find where it ends, through a small window, keeping nothing;
 * then in memory, keeping everything. So no count from the file decides an allocation before the bytes it speaks of
 * were seen to be there.
 */
#ifndef MICA_FORMAT_GGUF_H
#define MICA_FORMAT_GGUF_H

#include "format/archive.h"
#include "format/cursor.h"

#define MICA__GGUF_MAGIC "GGUF"
#define MICA__GGUF_VERSION 3
#define MICA__GGUF_ALIGNMENT 32     /* where general.alignment is missing */
#define MICA__GGUF_DEPTH 8          /* of arrays in arrays */
#define MICA__GGUF_NAME_BYTES 65535 /* of a key, by the specification; of a tensor's name, by us */
#define MICA__GGUF_HEADER_BYTES ((uint64_t)1 << 30) /* more is no header */

typedef struct mica__gguf_type {
    uint32_t id;
    const char *name; /* ggml's word */
    mica_dtype dtype; /* NONE: known by name alone */
} mica__gguf_type;

/* The row of a type id, or NULL. */
const mica__gguf_type *mica__gguf_type_by_id(uint32_t id);
/* The row of a type, or NULL where GGUF has no number for it. */
const mica__gguf_type *mica__gguf_type_by_dtype(mica_dtype dtype);

/* One file while it is read. */
typedef struct mica__gguf_part {
    mica__archive *archive;
    uint32_t file; /* in archive->file */
    mica__cursor cursor;
    bool keep; /* the second walk */
    bool big_endian;
    uint32_t version;
    uint64_t tensor_count, meta_count;
    uint64_t expected;     /* second walk: the tensor count of the first, for which there is room */
    uint64_t debt, seen;   /* steps that are not spent yet; bytes for which steps are allowed */
    uint64_t header_bytes; /* up to the end of the last tensor's description */
    mica__meta *meta;      /* second walk: meta_count entries */
    mica__tensor *tensor;  /* second walk: this file's part of archive->tensor */
    /* Where the walk is, for sentences. */
    const char *what; /* "metadata", "tensor" or NULL: the head */
    uint64_t index;
    char label[64]; /* key or name, cut to fit; "" before it is known */
} mica__gguf_part;

/* Walks the header once; `cursor` and `keep` say how. */
mica_status mica__gguf_walk(mica__gguf_part *part);
/* A sentence that begins with the file and where the walk is. */
mica_status mica__gguf_fail(const mica__gguf_part *part, mica_status code, const char *format, ...)
    MICA__PRINTF(3, 4);

/* After the second walk: keys are unique, tensors lie inside the file, in their alignment, on no other's bytes. Their
 * offsets become offsets in the file, and tensors of unknown type get their sizes. */
mica_status mica__gguf_place(mica__gguf_part *part);
/* After all files: their split.* agree. */
mica_status mica__gguf_check_split(const mica__gguf_part *parts, uint32_t count, uint64_t tensor_count);

/* The value of a key of this file, or NULL. */
const mica_value *mica__gguf_meta(const mica__gguf_part *part, const char *key);

#endif
