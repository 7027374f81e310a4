/* difference.h - everything in which two models differ, found before anything is printed. */
#ifndef TOOL_FILE_DIFFERENCE_H
#define TOOL_FILE_DIFFERENCE_H

#include "file/compare.h"

typedef enum tool_change {
    TOOL_CHANGE_NONE,
    TOOL_CHANGE_VALUES, /* one type and shape, other values */
    TOOL_CHANGE_TYPE,   /* one shape, another type; the values are compared */
    TOOL_CHANGE_SHAPE,
    TOOL_CHANGE_ONLY_A,
    TOOL_CHANGE_ONLY_B,
    TOOL_CHANGE_UNKNOWN, /* the values cannot be read */
    TOOL_CHANGE_COUNT
} tool_change;

const char *tool_change_name(tool_change change);

/* A tensor of A, of B, or of both; `weights` NULL in the side that has none. */
typedef struct tool_tensor_change {
    tool_change change;
    tool_tensor side[2];
    tool_distance distance;
} tool_tensor_change;

/* A metadata value that differs; NULL in the side that has none. */
typedef struct tool_key_change {
    const char *key;
    const mica_value *side[2];
} tool_key_change;

typedef struct tool_difference {
    mica_weights *weights[2];
    mica_weights_info info[2];
    tool_key_change *key;
    uint64_t key_count;
    tool_tensor_change *tensor; /* all of A in its order, then what B alone has */
    uint64_t tensor_count;
    uint64_t count[TOOL_CHANGE_COUNT]; /* tensors of each kind */
    int config;                        /* 1: the texts of config.json differ, or one has none */
    char reason[512];                  /* why the first unknown one could not be compared */
} tool_difference;

/* Opens both and compares. The caller ends it, also after a failure. */
mica_status tool_difference_find(const char *a, const char *b, tool_progress *progress, tool_difference *out);
void tool_difference_end(tool_difference *difference);

#endif
