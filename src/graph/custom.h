/*
 * custom.h - nodes of the caller's own ops, as this room and the execution of graphs have them.
 */
#ifndef MICA_GRAPH_CUSTOM_H
#define MICA_GRAPH_CUSTOM_H

#include "graph/ir.h"
#include "mica/custom.h"

typedef struct mica__custom_data { /* attributes of MICA_NODE_CUSTOM: node->data */
    char name[MICA_CUSTOM_NAME_BYTES];
    void *context;
    mica_custom_function infer, encode, host; /* all NULL: read from a text, and not bound */
    uint32_t params_bytes;
    _Alignas(16) unsigned char params[];
} mica__custom_data;

/* Of names. */
#define MICA__CUSTOM_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/"

static inline bool mica__custom_is_bound(const mica__custom_data *data)
{
    return data->encode != NULL || data->host != NULL;
}
/* Whether a node stops a run, and is computed by the host. */
static inline bool mica__custom_is_of_host(const mica__node *node)
{
    return node->kind == MICA_NODE_CUSTOM && ((const mica__custom_data *)node->data)->encode == NULL;
}

/* A node over attributes that are there; `stated`: types of the outputs where nobody is bound who infers them. `data` is copied. */
mica_tensor mica__graph_custom_node(mica_graph *graph, const mica__custom_data *data,
                                    const mica_tensor *inputs, uint32_t input_count, const mica__type *stated,
                                    mica_tensor *outputs, uint32_t output_count);
/* UNSUPPORTED names the first node, of sub-graphs too, that nobody bound. */
mica_status mica__custom_check_bound(const mica_graph *graph);
/* Calls one of the functions of `data`: its parameters are set, the sentence of a failure is in call->sentence. */
mica_status mica__custom_ask(const mica__custom_data *data, mica_custom_function function,
                             mica_custom_call *call);

#endif
