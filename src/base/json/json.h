/* json.h: a bounded JSON reader and a writer.
 *
 * The reader takes text that nobody vouches for: size, depth and node count are limited, keys may not
 * repeat in an object, UTF-8 and numbers are checked as the standard says, and nothing recurses. A
 * document is one array of nodes in the order of the text; it is immutable once parsed and may be read by
 * any thread. */
#ifndef MICA_BASE_JSON_H
#define MICA_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum mica__json_type {
    MICA__JSON_NULL = 0,
    MICA__JSON_FALSE,
    MICA__JSON_TRUE,
    MICA__JSON_NUMBER,
    MICA__JSON_STRING,
    MICA__JSON_ARRAY,
    MICA__JSON_OBJECT
} mica__json_type;

/* How a number was written: an integer that fits is kept exactly beside its double. */
typedef enum mica__json_exact {
    MICA__JSON_EXACT_NONE = 0, /* a fraction, an exponent, -0, or too large: only the double */
    MICA__JSON_EXACT_UINT,     /* 0 to 2^64 - 1, in number.uint_value */
    MICA__JSON_EXACT_NEGATIVE  /* -2^63 to -1, in number.int_value */
} mica__json_exact;

typedef struct mica__json_node {
    const char *key; /* decoded, NUL follows; NULL unless the parent is an object */
    union {
        struct {
            const char *data; /* decoded UTF-8, NUL follows; may hold NULs of its own */
            size_t length;
        } string;
        struct {
            double real;
            union {
                int64_t int_value;
                uint64_t uint_value;
            };
        } number;
        struct {
            uint32_t parent, last; /* while parsing: the container around, the newest child (0 = none) */
        } open;
    };
    uint32_t key_length;
    uint32_t next;        /* index of the next sibling, 0 = none; the first child of node i is i + 1 */
    uint32_t child_count; /* array elements or object members */
    uint8_t type;         /* mica__json_type */
    uint8_t exact;        /* mica__json_exact */
} mica__json_node;

/* Zero means the default in brackets. */
typedef struct mica__json_limits {
    size_t max_bytes;   /* [128 MiB]; never more than 4 GiB - 1 */
    uint32_t max_depth; /* containers inside each other [64] */
    uint32_t max_nodes; /* values of all kinds [2^24] */
} mica__json_limits;

typedef struct mica__json {
    mica__json_node *nodes; /* [node_count], the root first */
    uint32_t node_count;
    char *text; /* our copy of the input, strings decoded in place */
} mica__json;

/* Parses one value with nothing but white space around it. limits may be NULL. The bytes are copied. The
 * caller releases *out_json. MICA_ERR_MALFORMED_FILE with the byte offset, MICA_ERR_BUDGET past a limit,
 * or MICA_ERR_OUT_OF_MEMORY. */
mica_status mica__json_parse(const void *bytes, size_t size, const mica__json_limits *limits,
                             mica__json **out_json);

/* The status of JSON that is a file's own header: past a limit of depth or size it is malformed; BUDGET stays when the call has
 * no steps left. Leaves the sentence alone. */
mica_status mica__json_status(mica_status status);

/* NULL is fine. Nodes and strings die with it. */
void mica__json_release(mica__json *json);

static inline const mica__json_node *mica__json_root(const mica__json *json)
{
    return json->nodes;
}

/* The first child of a container, NULL if it has none or `node` is no container. */
static inline const mica__json_node *mica__json_first(const mica__json_node *node)
{
    return node->type >= MICA__JSON_ARRAY && node->child_count != 0 ? node + 1 : NULL;
}

/* The sibling after `node`, NULL after the last. */
static inline const mica__json_node *mica__json_next(const mica__json *json, const mica__json_node *node)
{
    return node->next != 0 ? json->nodes + node->next : NULL;
}

/* The member of that name; NULL when there is none or `object` is NULL or no object. Linear in the
 * members. */
const mica__json_node *mica__json_get(const mica__json *json, const mica__json_node *object, const char *key);

/* What a node is, in words for a sentence: "a string". */
const char *mica__json_type_name(const mica__json_node *node);

/* The value of a node with its type and range checked. `what` names it in the sentence. A NULL node counts
 * as missing. MICA_ERR_MALFORMED_FILE, and *out_value is left alone, when it does not fit. Integers may be
 * written as 8.0 or 1e3. Strings point into the document; out_length may be NULL, but then a NUL inside is
 * refused. */
mica_status mica__json_as_uint(const mica__json_node *node, const char *what, uint64_t min, uint64_t max,
                               uint64_t *out_value);
mica_status mica__json_as_int(const mica__json_node *node, const char *what, int64_t min, int64_t max,
                              int64_t *out_value);
mica_status mica__json_as_double(const mica__json_node *node, const char *what, double min, double max,
                                 double *out_value);
mica_status mica__json_as_bool(const mica__json_node *node, const char *what, bool *out_value);
mica_status mica__json_as_string(const mica__json_node *node, const char *what, const char **out_text,
                                 size_t *out_length);

/* The same for a member that must be there; the sentence names the key. Where a member may be absent, ask
 * mica__json_get first. */
mica_status mica__json_get_uint(const mica__json *json, const mica__json_node *object, const char *key,
                                uint64_t min, uint64_t max, uint64_t *out_value);
mica_status mica__json_get_int(const mica__json *json, const mica__json_node *object, const char *key,
                               int64_t min, int64_t max, int64_t *out_value);
mica_status mica__json_get_double(const mica__json *json, const mica__json_node *object, const char *key,
                                  double min, double max, double *out_value);
mica_status mica__json_get_bool(const mica__json *json, const mica__json_node *object, const char *key,
                                bool *out_value);
mica_status mica__json_get_string(const mica__json *json, const mica__json_node *object, const char *key,
                                  const char **out_text, size_t *out_length);
/* An array or object member. */
mica_status mica__json_get_container(const mica__json *json, const mica__json_node *object, const char *key,
                                     mica__json_type type, const mica__json_node **out_node);

#define MICA__JSON_WRITER_DEPTH 256

/* Builds one JSON text in memory. Calls return nothing: the first error is kept and given by finish. Calls
 * that do not fit the grammar (a value without a key in an object, an end that does not match) are
 * MICA_ERR_STATE. One thread at a time. Start from mica__json_writer_init. */
typedef struct mica__json_writer {
    char *data;
    size_t length, capacity;
    mica_status error;
    uint32_t depth;
    bool after_key, has_root;
    struct {
        bool object, has_items;
    } levels[MICA__JSON_WRITER_DEPTH];
} mica__json_writer;

void mica__json_writer_init(mica__json_writer *writer);
void mica__json_begin_object(mica__json_writer *writer);
void mica__json_end_object(mica__json_writer *writer);
void mica__json_begin_array(mica__json_writer *writer);
void mica__json_end_array(mica__json_writer *writer);
/* Keys and strings must be UTF-8, else MICA_ERR_INVALID_ARGUMENT. */
void mica__json_key(mica__json_writer *writer, const char *key);
void mica__json_key_n(mica__json_writer *writer, const char *key, size_t length);
void mica__json_string(mica__json_writer *writer, const char *text);
void mica__json_string_n(mica__json_writer *writer, const char *text, size_t length);
void mica__json_int(mica__json_writer *writer, int64_t value);
void mica__json_uint(mica__json_writer *writer, uint64_t value);
/* 15 digits, or 16 or 17 where fewer read back as another double; null for what is not finite. */
void mica__json_double(mica__json_writer *writer, double value);
/* The same, but a whole number has a point too, for readers that tell 1.0 from 1. */
void mica__json_real(mica__json_writer *writer, double value);
void mica__json_bool(mica__json_writer *writer, bool value);
void mica__json_null(mica__json_writer *writer);

/* Ends the text. The caller frees *out_text (NUL follows, not in the length) with mica__free. The writer
 * is as after init, whether this succeeds or not. */
mica_status mica__json_writer_finish(mica__json_writer *writer, char **out_text, size_t *out_length);

/* Throws away what was written; for the way out when finish is not called. */
void mica__json_writer_discard(mica__json_writer *writer);

#endif
