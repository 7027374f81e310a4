/*
 * ops_sample.h - images of one to three dimensions sampled between their places, in nodes of other ops: what no op does (volumes, windows that are bent, regions),
 * and what is differentiated twice.
 *
 * Coordinates are counted in places, from 0, one vector [P] for each dimension; an image is a table [places, C] of its rows of channels.
 */
#ifndef MICA_GRAPH_OPS_SAMPLE_H
#define MICA_GRAPH_OPS_SAMPLE_H

#include "graph/ir.h"
#include "mica/ops.h"

#define MICA__SAMPLE_TAPS 4u

/* What a coordinate reads of a dimension. */
typedef struct mica__taps {
    uint32_t count;
    uint64_t size;
    mica_tensor place[MICA__SAMPLE_TAPS];  /* [P] i32, within the dimension */
    mica_tensor weight[MICA__SAMPLE_TAPS]; /* [P] of the coordinate's type; 0: one */
    mica_tensor inside[MICA__SAMPLE_TAPS]; /* [P] bool: else zero is read; 0: always */
} mica__taps;

/* Mode and padding as mica_grid_params has them. */
void mica__sample_taps(mica_graph *graph, mica_tensor at, uint64_t size, const mica_grid_params *params,
                       mica__taps *out);
/* How many places `dims` dimensions read together, and what they read at one of these, with its weight: [P, C]. `first` [P] i32: the row of the table at which
 * the image begins; 0: the first. */
uint32_t mica__sample_count(const mica__taps *taps, uint32_t dims);
mica_tensor mica__sample_term(mica_graph *graph, mica_tensor table, mica_tensor first, const mica__taps *taps,
                              uint32_t dims, uint32_t which);
/* The sum of them all. */
mica_tensor mica__sample_sum(mica_graph *graph, mica_tensor table, mica_tensor first, const mica__taps *taps,
                             uint32_t dims);
/* x [N, C, ..] as a table [N * places, C], and the row at which the image of each of [N, each] points begins, [N * each]. Sizes are numbers. */
mica_tensor mica__sample_table(mica_graph *graph, mica_tensor x);
mica_tensor mica__sample_first(mica_graph *graph, uint64_t images, uint64_t each, uint64_t places);
/* mica_grid_sample of x [N, C, ..] at grid [N, .., dims], in one to three dimensions; CUBIC in any of them. Both of one type, f32 or f64, of sizes that are numbers. */
mica_tensor mica__sample_grid(mica_graph *graph, mica_tensor x, mica_tensor grid,
                              const mica_grid_params *params);

#endif
