/*
 * weights.c - a product with what follows from parameters, or is a constant, becomes a matmul: its weight [N, K] is put into the order that the device reads fastest, once
 * (executables prepare what follows from parameters alone). Where parameters change with each run only a weight that lies that way already is taken.
 */
#include <string.h>

#include "base/alloc.h"
#include "graph/passes/match.h"
#include "mica/ops.h"

enum {
    VARIES,
    CONSTANT,
    STEADY
}; /* what a tensor follows from: inputs, constants alone, parameters and constants */

static bool begin(mica__walk *walk)
{
    const mica_graph *from = walk->rewrite.from;
    uint8_t *kind = walk->state = mica__calloc(from->tensor_count, 1);
    if (kind == NULL) {
        walk->status =
            mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors", from->tensor_count);
        return false;
    }
    for (uint32_t n = 0; n < from->node_count; n++) {
        const mica__node *node = &from->node[n];
        uint8_t is = node->kind == MICA_NODE_PARAMETER                        ? STEADY
                     : node->kind == MICA_NODE_CONSTANT                       ? CONSTANT
                     : node->input_count == 0 || node->kind >= MICA_NODE_CALL ? VARIES
                                                                              : CONSTANT;
        for (uint32_t i = 0; i < node->input_count && is != VARIES; i++) {
            const mica_tensor in = mica__node_inputs(from, node)[i];
            is = in == 0 || kind[in] == is ? is : kind[in] == VARIES ? VARIES : STEADY;
        }
        for (uint32_t i = 0; i < node->output_count; i++)
            kind[mica__node_outputs(from, node)[i]] = is;
    }
    return true;
}

static void end(mica__walk *walk)
{
    mica__free(walk->state);
}

/* [rows, columns] of elements of `size` bytes as [columns, rows], in squares that a cache holds lines of. */
static void transpose(const char *from, uint64_t rows, uint64_t columns, size_t size, char *to)
{
    enum { SIDE = 32 };
    for (uint64_t r = 0; r < rows; r += SIDE)
        for (uint64_t c = 0; c < columns; c += SIDE)
            for (uint64_t j = c; j < columns && j < c + SIDE; j++)
                for (uint64_t i = r; i < rows && i < r + SIDE; i++)
                    if (size == sizeof(float)) /* of most weights: one instruction */
                        memcpy(to + (j * rows + i) * sizeof(float), from + (i * columns + j) * sizeof(float),
                               sizeof(float));
                    else
                        memcpy(to + (j * rows + i) * size, from + (i * columns + j) * size, size);
}

/* A constant [K, N] as [N, K]; 0 for want of memory. */
static mica_tensor transposed_constant(mica__walk *walk, mica_tensor tensor)
{
    const mica__type *type = mica__type_of(walk->rewrite.to, tensor);
    const mica__blob *blob =
        ((const mica__constant_data *)mica__node_of(walk->rewrite.to, tensor)->data)->blob;
    const uint64_t rows = type->shape[0], columns = type->shape[1];
    const size_t size = mica_dtype_block_bytes(type->dtype);
    mica__type transposed = *type;
    transposed.shape[0] = columns;
    transposed.shape[1] = rows;
    mica__blob *out = mica__blob_create(NULL, blob->bytes);
    if (out == NULL)
        return 0;
    transpose(blob->data, rows, columns, size, (char *)(uintptr_t)out->data);
    return mica__graph_constant_blob(walk->rewrite.to, &transposed, out);
}

/* The weight [N, K] that b [K, N] is when it is transposed; 0: it is none. */
static mica_tensor weight_of(mica__walk *walk, mica_tensor b)
{
    static const uint32_t swap[] = {1, 0};
    const uint8_t *kind = walk->state;
    const mica__node *node = mica__match_node(walk, b);
    const mica_tensor now = walk->rewrite.map[b];
    if (node->kind == MICA_NODE_PERMUTE && ((const mica__permute_data *)node->data)->order[0] == 1)
        return walk->rewrite.map[mica__match_input(walk, node, 0)];
    if (kind[b] == CONSTANT && node->kind == MICA_NODE_CONSTANT)
        return transposed_constant(walk, now);
    const bool changes = (walk->options->flags & MICA_COMPILE_TRAINING) != 0;
    return kind[b] == STEADY && !changes ? mica_graph_permute(walk->rewrite.to, now, swap) : 0;
}

/* x [.., M, K] times the weight, where that fits. */
static mica_tensor product(mica__walk *walk, const mica__node *node)
{
    const mica_graph *from = walk->rewrite.from;
    const uint8_t *kind = walk->state;
    const mica_tensor x = mica__match_input(walk, node, 0), b = mica__match_input(walk, node, 1);
    const mica__type *left = mica__type_of(from, x), *right = mica__type_of(from, b);
    if (right->ndim != 2 || kind[b] == VARIES || kind[x] != VARIES || left->ndim < 2 || left->ndim > 4 ||
        !mica__size_known(right->shape[0]) || !mica__size_known(right->shape[1]) || right->shape[0] == 0 ||
        !mica__is_small_float(left->dtype) || !mica__is_small_float(right->dtype) ||
        mica__match_input(walk, node, 3) != 0 || mica__match_input(walk, node, 4) != 0)
        return 0;
    const mica_operand_desc asked = mica__match_asked(walk, node);
    const mica_tensor add = walk->rewrite.map[mica__match_input(walk, node, 2)];
    const mica_tensor weight = weight_of(walk, b);
    if (weight == 0)
        return 0;
    /* A product takes each operand as it is; a matmul may round x to the 16 bits of its weight. */
    const bool rounds = left->dtype == MICA_DTYPE_F32 && right->dtype != MICA_DTYPE_F32;
    const mica_matmul_params params = {.precision = rounds ? MICA_PRECISION_F32 : MICA_PRECISION_DEFAULT};
    const mica_tensor inputs[] = {walk->rewrite.map[x], weight};
    if (add == 0)
        return mica_graph_op(walk->rewrite.to, MICA_OP_MATMUL, &params, inputs, 2, 1, &asked, NULL, 1);
    const mica_operand_desc wide = {.dtype = MICA_DTYPE_F32,
                                    .ndim = MICA_RANK_UNKNOWN}; /* rounded once, behind the sum */
    const mica_tensor y =
        mica_graph_op(walk->rewrite.to, MICA_OP_MATMUL, &params, inputs, 2, 1, &wide, NULL, 1);
    return mica_graph_cast(walk->rewrite.to, mica_graph_add(walk->rewrite.to, y, add), asked.dtype);
}

static mica__visit visit(mica__walk *walk, uint32_t at)
{
    const mica__node *node = mica__walk_node(walk, at);
    if (node->kind != MICA_NODE_OP || node->code != MICA_OP_PRODUCT)
        return MICA__VISIT_LEFT;
    return mica__walk_gives(walk, node, product(walk, node));
}

static bool concerns(const mica__node *node, const mica__pass_options *options)
{
    (void)options;
    return node->kind == MICA_NODE_OP && node->code == MICA_OP_PRODUCT;
}

const mica__graph_pass mica__graph_pass_weights = {
    "weights", "products with parameters and constants become matmuls", concerns, visit, begin, end};
