/* train_data.h - what `mica train` learns from: tokens of a text or of prompts and completions, and what a step takes of them. */
#ifndef TOOL_MODEL_TRAIN_DATA_H
#define TOOL_MODEL_TRAIN_DATA_H

#include "model/model.h"

/* One text of a file of them; of a plain text the only one. */
typedef struct tool_example {
    uint32_t *ids;
    uint32_t count;
    uint32_t prompt; /* tokens that are given, not learned */
} tool_example;

typedef struct tool_train_data {
    tool_example *example;
    uint32_t count, capacity;
    uint32_t longest;
    int is_list; /* .jsonl */
} tool_train_data;

/* Reads and encodes a file. Returns the exit status. */
int tool_train_data_read(const char *path, const tool_model *model, tool_train_data *out);
void tool_train_data_free(tool_train_data *data);
/* A row of a step: `length` tokens and the labels that follow them, and 1 for each label that is learned, else 0. Which text and where
 * hangs on `draw` alone. Returns the number of labels that are learned. */
uint32_t tool_train_row(const tool_train_data *data, uint64_t draw, uint32_t length, uint32_t *tokens,
                        uint32_t *labels, float *learned);

#endif
