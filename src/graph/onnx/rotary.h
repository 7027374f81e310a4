/* rotary.h - rotation by tables of cosines and sines, for RotaryEmbedding and for attention that does it itself. */
#ifndef MICA_GRAPH_ONNX_ROTARY_H
#define MICA_GRAPH_ONNX_ROTARY_H

#include "graph/onnx/importer.h"

typedef struct mica__ox_rotary {
    mica_tensor cos, sin; /* [positions, half], or without `at` [batch, tokens, half] */
    mica_tensor at;       /* positions [batch, tokens], integers; 0: none */
    bool interleaved;     /* pairs are neighbours; else half a head apart */
} mica__ox_rotary;

/* x [batch, heads, tokens, d]; the first 2 half of each d are rotated, the rest stays. */
mica_status mica__ox_rotate(mica__ox_op *o, const mica__ox_rotary *by, mica_tensor *x);

#endif
