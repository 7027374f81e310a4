/*
 * loop.h - nodes of control, run: a choice, or a loop whose carried tensors lie in buffers of their own from round to round.
 */
#ifndef MICA_GRAPH_LOOP_H
#define MICA_GRAPH_LOOP_H

#include "graph/exec/schedule.h"

typedef struct mica__loop mica__loop;

/* `fixed`: buffers of the node's inputs, and of those of its outputs that somebody wants; all contiguous. */
mica_status mica__loop_create(const mica__schedule_desc *outer, const mica__node *node,
                              mica_buffer *const *fixed, mica__loop **out);
void mica__loop_release(mica__loop *loop);
/* Runs it to its end and waits. */
mica_status mica__loop_run(mica__loop *loop);
void mica__loop_count(const mica__loop *loop, mica_executable_stats *stats);

#endif
