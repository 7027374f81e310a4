/*
 * host_call.h - nodes of the caller's ops, run: encoded among others, or called on the host between steps.
 */
#ifndef MICA_GRAPH_HOST_CALL_H
#define MICA_GRAPH_HOST_CALL_H

#include "graph/exec/emit.h"

typedef struct mica__host_call mica__host_call;

/* The call of node `at`. `fixed`: buffers of its inputs and outputs, contiguous. `graph` is borrowed while the call lives. */
mica_status mica__host_call_create(const mica_graph *graph, uint32_t at, mica_buffer *const *fixed,
                                   mica__host_call **out);
void mica__host_call_release(mica__host_call *call);
/* Makes the call, behind what was waited for. */
mica_status mica__host_call_run(mica__host_call *host);
/* Lets the caller's function encode the node. */
mica_status mica__emit_custom(mica__emitter *emitter, const mica__node *node);

#endif
