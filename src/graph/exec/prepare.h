/*
 * prepare.h - what follows from parameters and constants alone is computed once, not with each run: a graph is parted into one that makes such tensors and one that takes
 * them as parameters.
 */
#ifndef MICA_GRAPH_PREPARE_H
#define MICA_GRAPH_PREPARE_H

#include "graph/exec/schedule.h"

typedef struct mica__prepared {
    mica_graph *main;   /* what runs; its parameters are some of the graph's, and those that `before` makes */
    mica_graph *before; /* outputs are what is prepared; NULL: nothing is */
    mica_buffer **ready;  /* of each output of `before`; NULL: not there yet, or packed */
    mica_buffer **packed; /* the same as what reads it takes it fastest; NULL: as it is */
    uint32_t count;
    bool stale; /* parameters have changed since */
} mica__prepared;

/* Parts `graph`. `changes` by leaf tensor: 1 for parameters that runs change (states), on which nothing is prepared. `all` false: nothing is prepared at all. */
mica_status mica__prepare_part(const mica_graph *graph, const uint8_t *changes, bool all,
                               mica__prepared *out);
void mica__prepare_release(mica__prepared *prepared);
/* Computes what is prepared; `held` by name: the buffer of a parameter of the graph, or NULL and a status. */
mica_status mica__prepare_run(mica__prepared *prepared, mica_device *const *device, uint32_t device_count,
                              mica_status (*held)(void *context, const char *name, mica_buffer **out),
                              void *context);
/* Which output of `before` a parameter of `main` is; UINT32_MAX: it is one of the graph's own. */
uint32_t mica__prepare_index(const mica__prepared *prepared, const char *name);
/* What a leaf lies in as all that reads it takes it fastest: weights of matmuls packed, those of convolutions with their outputs side by side, which is left out where others than the executable
 * (`ours` false) may write to it. Another reference to `buffer` where that is as it lies. */
mica_status mica__prepare_weight(const mica_graph *graph, mica_tensor leaf, mica_buffer *buffer, bool ours,
                                 mica_buffer **out);

#endif
