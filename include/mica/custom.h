/*
 * custom.h - ops of one's own as nodes of graphs: a function over the host's memory, or one that encodes kernels
 * and ops of the device, and a gradient.
 *
 *     static mica_status cube(void *context, mica_custom_call *call)
 *     {
 *         const float *x = call->input_data[0];
 *         float *y = call->output_data[0];
 *         for (uint64_t i = 0; i < call->input[0].shape[0]; i++)
 *             y[i] = x[i] * x[i] * x[i];
 *         return MICA_OK;
 *     }
 *     const mica_custom op = {.name = "cube", .host = cube};
 *     mica_tensor y = mica_graph_custom(graph, &op, &x, 1, gradient, NULL, 1);
 *
 * What a node does. With `encode` it is asked for the work when a plan is made (COMPILED), with each run (LAZY) or
 * at its turn (EAGER), and what it encoded runs like every other node's. With `host` alone the run stops there: what
 * came before is waited for, the function sees the inputs and fills the outputs, on any device, and what follows
 * goes on. Inputs and outputs lie in a row. A node runs once in a run that needs what it gives: it is neither merged
 * with equal ones nor computed beforehand.
 *
 * Failure. What a function returns is the status of the call that asked: of the builder, of mica_graph_custom_bind
 * or of the run; what it wrote into call->sentence is the sentence, behind the names of node and op; where it wrote
 * nothing, that of the call of mica's that failed in it.
 *
 * Life. Functions and context are the caller's: they live as long as graphs, copies of them and executables that
 * have the node. Threads: a function is called by the thread that builds, compiles or runs, several at a time where
 * the caller does so; it calls no function on the executable that runs it.
 *
 * Text and files have name and parameters of a node, not its functions: `custom(%1) name=cube params=x0a00`. A graph
 * that was parsed or loaded gets them by mica_graph_custom_bind, and is not compiled before: UNSUPPORTED names the
 * op.
 */
#ifndef MICA_CUSTOM_H
#define MICA_CUSTOM_H

#include "mica/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MICA_CUSTOM_NAME_BYTES 64u    /* its end included; letters, digits, '_', '.', '-', '/' */
#define MICA_CUSTOM_PARAM_BYTES 4096u /* of a node at the most */
#define MICA_CUSTOM_TENSORS 24u       /* inputs, or outputs, of a node at the most */

/* What a function is asked for. Lives as long as the call. */
typedef struct mica_custom_call {
    const void *params; /* the node's; aligned to 16 */
    uint32_t params_bytes;
    uint32_t input_count, output_count;
    const mica_operand_desc
        *input;                /* types and shapes; in `infer` sizes may be symbols and MICA_SIZE_UNKNOWN */
    mica_operand_desc *output; /* `infer` fills in dtype, ndim and shape; the others read them */
    mica_encoder *encoder;     /* `encode`: takes dispatches and ops, and is not committed */
    mica_buffer *const *input_buffer, *const *output_buffer; /* `encode`: borrowed */
    const void *const *input_data;                           /* `host`: NULL where there are no elements */
    void *const *output_data;
    char sentence[256]; /* "" or why it failed */
} mica_custom_call;

typedef mica_status (*mica_custom_function)(void *context, mica_custom_call *call);

typedef struct mica_custom {
    uint64_t size; /* sizeof this struct, or 0 */
    const char *name;
    void *context;
    const void *params; /* copied into the node */
    uint32_t params_bytes;
    /* Types and shapes of the outputs, and whether the inputs fit. Called when a node is added and again when sizes
     * are known; sizes that it passes on may be symbols, what it computes of such is MICA_SIZE_UNKNOWN. NULL: each
     * output is like the first input. */
    mica_custom_function infer;
    mica_custom_function encode; /* or NULL */
    mica_custom_function host;   /* used where `encode` is NULL */
} mica_custom;

/* A node of the caller's op. `gradient` NULL (a derivative through it is refused by name), or a sub-graph, which is
 * copied: of the inputs, then the outputs, then what reaches each output; it gives what reaches each input
 * (mica_graph_call). `outputs` may be NULL, else gets `output_count` values; returns the first. */
MICA_API mica_tensor mica_graph_custom(mica_graph *graph, const mica_custom *op, const mica_tensor *inputs,
                                       uint32_t input_count, const mica_graph *gradient, mica_tensor *outputs,
                                       uint32_t output_count);
/* Gives functions to all nodes of the op's name, in sub-graphs too; their parameters stay. `out_count`, or NULL: how
 * many there were. INVALID_ARGUMENT, and nothing is changed, where `infer` gives other types or shapes than a node
 * has. */
MICA_API mica_status mica_graph_custom_bind(mica_graph *graph, const mica_custom *op, uint32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
