/*
 * folding.c - what follows from small constants alone is computed once, by the ops themselves: the nodes become a graph of their own, which an executable of the cpu runs
 * as it was written; what the others read of it becomes constants. Views stay views. Where the cpu does not serve it, or an index points outside, the nodes stay, and fail where
 * they run.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/passes/passes.h"

#define MOST_BYTES (64u << 10) /* of a tensor that is folded, or from which one is */

typedef struct folding {
    uint8_t *known;    /* by tensor: it follows from small constants */
    uint8_t *handed;   /* by tensor: what is not folded reads it */
    mica_tensor *made; /* by tensor: number of its output + 1 */
    mica_array *array; /* by output */
    uint32_t count;
} folding;

static bool is_view(const mica__node *node)
{
    return node->kind == MICA_NODE_RESHAPE || node->kind == MICA_NODE_PERMUTE ||
           node->kind == MICA_NODE_SLICE || node->kind == MICA_NODE_EXPAND;
}

static bool is_small(const mica__type *type)
{
    return mica__type_elements(type) != MICA_SIZE_UNKNOWN && mica_dtype_block_elements(type->dtype) == 1 &&
           type->group_size == 0 && mica__type_bytes(type) <= MOST_BYTES;
}

static void find_known(const mica_graph *from, folding *state)
{
    for (uint32_t n = 0; n < from->node_count; n++) {
        const mica__node *node = &from->node[n];
        bool known = node->kind != MICA_NODE_INPUT && node->kind != MICA_NODE_PARAMETER &&
                     node->kind < MICA_NODE_CALL && node->round == 0;
        for (uint32_t i = 0; i < node->input_count && known; i++) {
            const mica_tensor in = mica__node_inputs(from, node)[i];
            known = in == 0 || state->known[in] != 0;
        }
        for (uint32_t i = 0; i < node->output_count && known; i++) {
            const mica_tensor out = mica__node_outputs(from, node)[i];
            known = out == 0 || is_small(mica__type_of(from, out));
        }
        for (uint32_t i = 0; i < node->output_count; i++)
            state->known[mica__node_outputs(from, node)[i]] = known;
        state->known[0] = 0;
    }
}

/* What is read by others, or through views that are: backwards. */
static void find_handed(const mica_graph *from, folding *state)
{
    for (uint32_t i = 0; i < from->outputs.count; i++)
        state->handed[from->outputs.list[i].tensor] = 1;
    for (uint32_t n = from->node_count; n-- > 0;) {
        const mica__node *node = &from->node[n];
        const mica_tensor *outputs = mica__node_outputs(from, node);
        bool stays = false;
        for (uint32_t i = 0; i < node->output_count && !stays; i++)
            stays = outputs[i] != 0 &&
                    (state->known[outputs[i]] == 0 || (is_view(node) && state->handed[outputs[i]] != 0));
        for (uint32_t i = 0; i < node->input_count && stays; i++)
            state->handed[mica__node_inputs(from, node)[i]] = 1;
    }
    for (mica_tensor t = 1; t < from->tensor_count; t++) {
        const mica__node *node = mica__node_of(from, t);
        const bool folded = state->known[t] != 0 && state->handed[t] != 0 && !is_view(node) &&
                            node->kind != MICA_NODE_CONSTANT && node->kind != MICA_NODE_INDEX;
        state->handed[t] = folded;
        state->count += folded;
    }
}

/* The nodes that are folded, as a graph whose outputs are what is handed over. */
static mica_status write_folded(const mica_graph *from, const folding *state, mica_graph **out)
{
    mica__rewrite rewrite;
    *out = NULL;
    mica_status status = mica__rewrite_begin(&rewrite, from, NULL);
    for (uint32_t n = 0; status == MICA_OK && n < from->node_count; n++) {
        const mica__node *node = &from->node[n];
        bool known = false;
        for (uint32_t i = 0; i < node->output_count; i++)
            known |= state->known[mica__node_outputs(from, node)[i]] != 0;
        if (known && !mica__graph_again(&rewrite, n))
            break;
    }
    for (uint32_t n = 0; status == MICA_OK && n < rewrite.to->node_count; n++)
        rewrite.to->node[n].place = 0; /* computed here and now, wherever it is wanted */
    for (mica_tensor t = 1; status == MICA_OK && t < from->tensor_count; t++)
        if (state->made[t] != 0)
            (void)mica_graph_output(rewrite.to, state->array[state->made[t] - 1].name, rewrite.map[t]);
    if (status == MICA_OK)
        status = mica_graph_status(rewrite.to);
    mica__free(rewrite.map);
    if (status == MICA_OK)
        *out = rewrite.to;
    else
        mica_graph_release(rewrite.to);
    return status;
}

/* Memory and names for what is handed over: one block. */
static mica_status make_arrays(const mica_graph *from, folding *state)
{
    enum { NAME = 16 };
    uint64_t bytes = 0, at = 0;
    for (mica_tensor t = 1; t < from->tensor_count; t++)
        if (state->handed[t] != 0)
            bytes += (mica__type_bytes(mica__type_of(from, t)) + 63) / 64 * 64 + NAME;
    const size_t head = (state->count * sizeof(mica_array) + 63) / 64 * 64;
    state->array = mica__calloc(1, head + (size_t)bytes);
    if (state->array == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %llu bytes of constants",
                          (unsigned long long)bytes);
    char *memory = (char *)state->array + head, *names = memory + bytes - (uint64_t)state->count * NAME;
    uint32_t made = 0;
    for (mica_tensor t = 1; t < from->tensor_count; t++) {
        const mica__type *type = mica__type_of(from, t);
        if (state->handed[t] == 0)
            continue;
        char *name = names + (size_t)made * NAME;
        snprintf(name, NAME, "%u", t);
        state->array[made] = (mica_array){.name = name, .data = memory + at, .bytes = mica__type_bytes(type)};
        at += (mica__type_bytes(type) + 63) / 64 * 64;
        state->made[t] = ++made;
    }
    return MICA_OK;
}

static mica_status run_folded(const mica_graph *folded, mica_device *given, folding *state)
{
    const mica_device_options one = {.threads = 1};
    const mica_compile_options options = {.mode = MICA_MODE_LAZY, .flags = MICA_COMPILE_AS_WRITTEN};
    mica_device *device = mica_device_retain(given);
    mica_executable *executable = NULL;
    mica_status status = device != NULL ? MICA_OK : mica_device_open("cpu", &one, &device);
    if (status == MICA_OK)
        status = mica_graph_compile(folded, device, &options, &executable);
    if (status == MICA_OK)
        status = mica_executable_run(executable, NULL, 0, state->array, state->count);
    mica_executable_release(executable);
    mica_device_release(device);
    return status;
}

static bool begin(mica__walk *walk)
{
    const mica_graph *from = walk->rewrite.from;
    mica_graph *folded = NULL;
    folding *state = walk->state = mica__calloc(1, sizeof *state);
    if (state != NULL) {
        state->known = mica__calloc(from->tensor_count, 1);
        state->handed = mica__calloc(from->tensor_count, 1);
        state->made = mica__calloc(from->tensor_count, sizeof *state->made);
    }
    if (state == NULL || state->known == NULL || state->handed == NULL || state->made == NULL) {
        walk->status =
            mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors", from->tensor_count);
        return false;
    }
    find_known(from, state);
    find_handed(from, state);
    if (state->count == 0)
        return true;
    mica_status status = make_arrays(from, state);
    if (status == MICA_OK)
        status = write_folded(from, state, &folded);
    if (status == MICA_OK)
        status = run_folded(folded, walk->options != NULL ? walk->options->folds : NULL, state);
    mica_graph_release(folded);
    if (status == MICA_ERR_OUT_OF_MEMORY || status == MICA_ERR_CANCELLED)
        walk->status = status;
    else if (status != MICA_OK) /* it stays, and fails where it runs */
        memset(state->made, 0, from->tensor_count * sizeof *state->made);
    return walk->status == MICA_OK;
}

static void end(mica__walk *walk)
{
    folding *state = walk->state;
    if (state == NULL)
        return;
    mica__free(state->known);
    mica__free(state->handed);
    mica__free(state->made);
    mica__free(state->array);
    mica__free(state);
}

static mica__visit visit(mica__walk *walk, uint32_t at)
{
    const folding *state = walk->state;
    const mica__node *node = mica__walk_node(walk, at);
    const mica_tensor *outputs = mica__node_outputs(walk->rewrite.from, node);
    bool all = node->output_count != 0;
    for (uint32_t i = 0; i < node->output_count; i++)
        all = all && (outputs[i] == 0 || state->made[outputs[i]] != 0 || walk->uses[outputs[i]] == 0);
    for (uint32_t i = 0; i < node->output_count && all; i++) {
        if (outputs[i] == 0 || state->made[outputs[i]] == 0)
            continue;
        const mica_array *array = &state->array[state->made[outputs[i]] - 1];
        const mica__type *type = mica__type_of(walk->rewrite.from, outputs[i]);
        walk->rewrite.map[outputs[i]] = mica_graph_constant(walk->rewrite.to, type->dtype, type->ndim,
                                                            type->shape, array->data, array->bytes);
        all = walk->rewrite.map[outputs[i]] != 0;
    }
    bool any = false;
    for (uint32_t i = 0; i < node->output_count; i++)
        any |= state->made[outputs[i]] != 0;
    return all && any ? MICA__VISIT_CHANGED : MICA__VISIT_LEFT;
}

static bool concerns(const mica__node *node, const mica__pass_options *options)
{
    (void)options;
    return node->kind == MICA_NODE_CONSTANT;
}

const mica__graph_pass mica__graph_pass_folding = {
    "folding", "what follows from small constants is computed once", concerns, visit, begin, end};
