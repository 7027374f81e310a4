/* json_reader.h: JSON item by item, for documents too large to keep as nodes; json_read.c makes its nodes with it.
 *
 * The text comes from a range of a file through a window that is no longer than its longest member, so that a header
 * of a million tensors costs a window of memory. Grammar, UTF-8, numbers, depth and repeated keys are checked as
 * json.h says. One thread at a time. */
#ifndef MICA_BASE_JSON_READER_H
#define MICA_BASE_JSON_READER_H

#include "base/file/file.h"
#include "base/json/json.h"

typedef enum mica__json_event {
    MICA__JSON_EVENT_DONE = 0, /* the document ended as it must */
    MICA__JSON_EVENT_VALUE,    /* null, a truth value, a number or a string */
    MICA__JSON_EVENT_OPEN,     /* an array or an object begins */
    MICA__JSON_EVENT_CLOSE     /* it ends; the item has its type and child_count, no key */
} mica__json_event;

/* An open container. */
typedef struct mica__json_level {
    uint32_t items; /* elements or members so far */
    uint32_t keys;  /* records of the containers around it: where its own begin */
    bool object;
} mica__json_level;

/* The keys of the open objects, innermost last (json_keys.c). All zero is empty. */
typedef struct mica__json_keys {
    char *text; /* all keys, one behind the other */
    size_t text_length, text_capacity;
    struct mica__json_key *record; /* [count] */
    uint32_t count, capacity;
} mica__json_keys;

/* Fields are the reader's own, but for the two that a caller may set between begin and the first item. */
typedef struct mica__json_reader {
    /* objects this deep or less may repeat keys: their reader finds out by itself */
    uint32_t unchecked_levels;
    bool constants; /* NaN, Infinity and -Infinity, which Python writes, are read as the number 0 */

    char *text;  /* the window, NULs behind it */
    char *at;    /* where reading goes on */
    char *end;   /* the first NUL behind the window */
    char *token; /* the item that is being read and stays in the window; NULL between items */
    /* bytes that fit before the NULs; a test makes it small between begin and the first item */
    size_t window;
    uint32_t debt; /* items since steps were spent for them */
    uint64_t base; /* of the window in the document */
    const mica__file *file;
    uint64_t file_at, left; /* what is not in the window yet */
    mica__json_limits limits;
    uint32_t values, depth, level_capacity;
    mica__json_level *level; /* [depth], outermost first */
    mica__json_keys keys;
} mica__json_reader;

/* Begins with `size` bytes at `offset` of the file, which stays open until the end. limits may be NULL; max_nodes of 0
 * is no limit here. mica__json_reader_end must follow, also after a failure. MICA_ERR_BUDGET, MICA_ERR_OUT_OF_MEMORY. */
mica_status mica__json_reader_begin(mica__json_reader *reader, const mica__file *file, uint64_t offset,
                                    uint64_t size, const mica__json_limits *limits);

/* The same with a copy of text in memory. */
mica_status mica__json_reader_begin_text(mica__json_reader *reader, const void *bytes, size_t size,
                                         const mica__json_limits *limits);
/* After begin_text and MICA__JSON_EVENT_DONE: the copy with its strings decoded in place, so that all texts of all
 * items are alive again. The caller frees it with mica__free. */
char *mica__json_reader_take_text(mica__json_reader *reader);
void mica__json_reader_end(mica__json_reader *reader);

/* The next event. Key, string and number of the item are as in a node; its texts die with the next call.
 * MICA_ERR_MALFORMED_FILE, MICA_ERR_BUDGET, MICA_ERR_OUT_OF_MEMORY, or what reading the file gave; then only
 * mica__json_reader_end may follow. */
mica_status mica__json_reader_next(mica__json_reader *reader, mica__json_event *out_event,
                                   mica__json_node *out_item);

/* After MICA__JSON_EVENT_OPEN: goes to the end of that container, which is read and checked. */
mica_status mica__json_reader_skip(mica__json_reader *reader);

/* ---- for the files that read JSON ---------------------------------------------------------------------------- */

#define MICA__JSON_PADDING 8 /* NULs: the end shows itself, and strings are read 8 bytes at a time */

/* MICA_ERR_MALFORMED_FILE with the offset of `at`. */
mica_status mica__json_malformed(const mica__json_reader *reader, const char *at, const char *what);

/* More of the file into the window, of which everything from `token` on stays; all pointers into it move.
 * reader->left must not be 0. */
mica_status mica__json_refill(mica__json_reader *reader);

/* reader->at is behind the opening quote; it ends behind the closing one. The text, decoded in place, begins
 * *out_offset bytes behind reader->token. */
mica_status mica__json_scan_string(mica__json_reader *reader, size_t *out_offset, size_t *out_length);

/* reader->at is on the first character of a number; fills type, exact and value of the item. */
mica_status mica__json_scan_number(mica__json_reader *reader, mica__json_node *out_item);

/* Adds a key, which is at `offset` of the document, to the innermost object. MICA_ERR_OUT_OF_MEMORY. */
mica_status mica__json_keys_add(mica__json_keys *keys, const char *text, size_t length, uint64_t offset);
/* The innermost object, whose keys begin at record `first`, ends: refuses it if a key is there twice, and forgets
 * them. MICA_ERR_MALFORMED_FILE, MICA_ERR_OUT_OF_MEMORY. */
mica_status mica__json_keys_drop(mica__json_keys *keys, uint32_t first);
void mica__json_keys_free(mica__json_keys *keys);

#endif
