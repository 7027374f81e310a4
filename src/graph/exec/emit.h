/*
 * emit.h - nodes of a graph whose sizes are all known become calls of ops on an encoder.
 *
 * Each tensor has a buffer once it is needed: one that was given beforehand (leaves, outputs, what other steps read), a view of another, or a
 * temporary of the session. Knows ops and sessions; nothing of modes, steps or runs.
 */
#ifndef MICA_GRAPH_EMIT_H
#define MICA_GRAPH_EMIT_H

#include "graph/ir.h"
#include "mica/session.h"

typedef struct mica__emitter {
    const mica_graph *graph;
    mica_device *device;
    mica_session *session; /* whose temporaries are used; NULL: buffers of their own */
    mica_encoder *encoder;
    mica_buffer **buffer;     /* by tensor: a reference each, or NULL */
    const uint32_t *root;     /* by tensor: the tensor whose elements it views, or itself */
    const uint32_t *last_use; /* by root: the last node that uses it or a view of it; UINT32_MAX: it stays */
    const uint8_t *computed;  /* by tensor: given before emitting begins (leaves, results of other steps) */
} mica__emitter;

/* Emits node `at`, unless it is a view, which is made when it is needed. The sentence of a failure names the node. */
mica_status mica__emit_node(mica__emitter *emitter, uint32_t at);
/* The buffer of a tensor that is there, or a view of one; borrowed. */
mica_status mica__emit_need(mica__emitter *emitter, mica_tensor tensor, mica_buffer **out);
/* Where a node writes output `tensor`: what was given for it, else a new buffer; borrowed. */
mica_status mica__emit_target(mica__emitter *emitter, mica_tensor tensor, mica_buffer **out);
/* Copies a tensor into a buffer of its type and shape. */
mica_status mica__emit_copy(mica__emitter *emitter, mica_tensor tensor, mica_buffer *to);
/* Nodes that only say where elements of another tensor lie. */
bool mica__is_view(const mica__node *node);
bool mica__is_leaf(const mica__node *node);

/* A contiguous buffer for a tensor of known sizes. */
mica_status mica__buffer_for(mica_device *device, const mica__type *type, mica_buffer **out);
/* The same for a tensor of a graph: the sentence of a failure names its node, the place and the device. */
mica_status mica__buffer_of(mica_device *device, const mica_graph *graph, mica_tensor tensor,
                            mica_buffer **out);
/* The same elements in the shape of another type. */
mica_status mica__buffer_as(mica_buffer *buffer, const mica__type *type, mica_buffer **out);

#endif
