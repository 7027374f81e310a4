/*
 * model_graph.h - a model as a graph: whole texts in, the logits of every token out, no cache. For training and for
 * whoever looks at a model as at any other graph; of the library libmica-model.
 *
 *     mica_adapter_create(model, NULL, &adapter);
 *     mica_adapter_use use = {adapter, 1};
 *     mica_model_graph_desc desc = {.batch = 4, .length = 128, .adapters = &use, .adapter_count = 1};
 *     mica_model_graph(model, &desc, &graph);
 *     loss = mica_graph_cross_entropy(graph, mica_graph_find(graph, "logits"), ..);
 *     mica_graph_optimize(graph, loss, ..);     // train.h; the adapter's tensors are parameters, by their names
 *     mica_trainer_create(graph, device, ..);
 *     mica_model_graph_set(model, &desc, graph, mica_trainer_executable(trainer));
 *
 * The graph is made of the family's own forward function (mica_graph_from_recording), the one that contexts run.
 */
#ifndef MICA_MODEL_GRAPH_H
#define MICA_MODEL_GRAPH_H

#include "mica/adapter.h"
#include "mica/graph.h"
#include "mica/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_model_graph_desc {
    uint64_t size;   /* sizeof this struct, or 0 */
    uint32_t batch;  /* texts; 0: 1 */
    uint32_t length; /* tokens of each; at least 1 */
    /* of the context that it stands for, where rotary scaling hangs on that; 0: `length` */
    uint32_t capacity;
    const mica_adapter_use *adapters; /* [adapter_count] */
    uint32_t adapter_count;
} mica_model_graph_desc;

/* Input "tokens" u32 [batch * length], text after text, each at positions 0 to length - 1; output "logits" f32
 * [batch * length, vocabulary], of encoders "states" [batch * length, width]. A shorter text is filled up at its
 * end: no token sees those behind it (of encoders all do: give texts of full length). Weights are parameters with
 * the names that GGUF has for them, the tensors of the first adapter with theirs ("blk.0.attn_q.weight.lora_a"),
 * those of the second behind "1:", and so on; weights of block types have no gradient, what goes through them has
 * one. INVALID_ARGUMENT: more positions than the model has, an adapter of another model; BUDGET, OUT_OF_MEMORY,
 * CANCELLED. The caller releases *out_graph. */
MICA_API mica_status mica_model_graph(mica_model *model, const mica_model_graph_desc *desc,
                                      mica_graph **out_graph);
/* Sets every parameter of the graph that has the name of a tensor of the model, or of an adapter of `desc`: the
 * model's own buffers, which are shared, not copied; of adapters a copy. */
MICA_API mica_status mica_model_graph_set(mica_model *model, const mica_model_graph_desc *desc,
                                          const mica_graph *graph, mica_executable *executable);

#ifdef __cplusplus
}
#endif
#endif
