/* footprint.h - how much memory a model will take at a context length, from what its file says of its shape. */
#ifndef TOOL_FILE_FOOTPRINT_H
#define TOOL_FILE_FOOTPRINT_H

#include "mica/mica.h"

typedef struct tool_footprint {
    uint64_t context;     /* positions that were asked for */
    uint64_t trained;     /* the model's own longest context; 0: not said */
    uint64_t cache_bytes; /* keys and values as f16 */
    int known;            /* 0: cache_bytes is not known, and `note` says what is missing */
    char note[160];       /* of what the cache is made */
} tool_footprint;

void tool_footprint_estimate(const mica_weights *weights, uint64_t context, tool_footprint *out);

#endif
