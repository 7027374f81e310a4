/*
 * ops_boxes.c - NonMaxSuppression: boxes in the order of their scores, of which each round takes the first that is left and drops what it covers. As many rows as the run finds (rows.h): those behind
 * them are -1.
 */
#include <string.h>

#include "graph/onnx/body.h"
#include "graph/onnx/operators.h"
#include "graph/onnx/rows.h"

enum { LOW_Y, LOW_X, HIGH_Y, HIGH_X, EDGES };
#define MOST_ROUNDS 65536

typedef struct boxes {
    uint64_t batch, classes, count, rounds;
    mica_tensor edge[EDGES];    /* [batch, classes, count], in the order of the scores */
    mica_tensor order, live;    /* which box that is (i32); 1 where it may be taken */
    mica_tensor most;           /* one number: what two boxes may share */
    const mica__ox_found *rows; /* of the boxes, where the run finds how many there are; NULL */
} boxes;

static mica_tensor binary(mica_graph *graph, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return a == 0 || b == 0 ? 0 : mica_graph_scalar(graph, scalar, a, b, 0);
}

static mica_tensor above(mica_graph *graph, mica_tensor x, double number)
{
    return x == 0 ? 0
                  : binary(graph, MICA_SCALAR_GREATER, x,
                           mica_graph_number(graph, mica__type_of(graph, x)->dtype, number));
}

/* boxes [batch, count, 4] as their four edges [batch, 1, count]. */
static void edges_of(mica__ox_op *o, const boxes *b, bool centred, mica_tensor *edge)
{
    mica_tensor part[4];
    const mica_tensor all = mica__ox_in(o, 0);
    for (uint32_t i = 0; i < 4; i++)
        part[i] = mica__ox_reshape(o, mica__ox_slice(o, all, 2, i, 1), 3,
                                   (const uint64_t[]){b->batch, 1, b->count});
    for (uint32_t d = 0; d < 2; d++) { /* corners: y, x, y, x; centred: x, y, width, height */
        if (centred) {
            const mica_tensor half =
                binary(o->graph, MICA_SCALAR_DIV, part[3 - d], mica__ox_number(o, part[3 - d], 2));
            edge[LOW_Y + d] = binary(o->graph, MICA_SCALAR_SUB, part[1 - d], half);
            edge[HIGH_Y + d] = binary(o->graph, MICA_SCALAR_ADD, part[1 - d], half);
        } else {
            edge[LOW_Y + d] = binary(o->graph, MICA_SCALAR_MIN, part[d], part[2 + d]);
            edge[HIGH_Y + d] = binary(o->graph, MICA_SCALAR_MAX, part[d], part[2 + d]);
        }
    }
}

/* Which of all boxes the one with `mine` covers by more than `most`. */
static mica_tensor covered(mica_graph *graph, const mica_tensor *mine, const mica_tensor *all,
                           mica_tensor most)
{
    mica_tensor inner[2], own[2], other[2], holds;
    for (uint32_t d = 0; d < 2; d++) {
        const mica_tensor low = binary(graph, MICA_SCALAR_MAX, mine[d], all[d]);
        const mica_tensor high = binary(graph, MICA_SCALAR_MIN, mine[2 + d], all[2 + d]);
        inner[d] = binary(graph, MICA_SCALAR_SUB, high, low);
        own[d] = binary(graph, MICA_SCALAR_SUB, mine[2 + d], mine[d]);
        other[d] = binary(graph, MICA_SCALAR_SUB, all[2 + d], all[d]);
    }
    const mica_tensor shared = binary(graph, MICA_SCALAR_MUL, inner[1], inner[0]);
    const mica_tensor left = binary(graph, MICA_SCALAR_MUL, own[1], own[0]),
                      right = binary(graph, MICA_SCALAR_MUL, other[1], other[0]);
    const mica_tensor together =
        binary(graph, MICA_SCALAR_SUB, binary(graph, MICA_SCALAR_ADD, left, right), shared);
    const mica_tensor positive[] = {inner[0], inner[1], shared, left, right, together};
    holds = binary(graph, MICA_SCALAR_GREATER, binary(graph, MICA_SCALAR_DIV, shared, together), most);
    for (uint32_t i = 0; i < sizeof positive / sizeof positive[0]; i++)
        holds = binary(graph, MICA_SCALAR_BIT_AND, holds, above(graph, positive[i], 0));
    return holds;
}

/* One round: which box of each class is taken (its place in the order, -1: none), and who is left. */
static void build_round(mica_graph *body, const boxes *b, const mica_tensor *in)
{
    const uint64_t shape[] = {b->batch, b->classes, b->count};
    const mica_tensor live = in[0], none = mica_graph_number(body, MICA_DTYPE_I32, -1),
                      zero = mica_graph_number(body, MICA_DTYPE_I32, 0);
    mica_tensor mine[EDGES];
    const mica_tensor first = mica_graph_argmax(body, live, 2, 1);
    const mica_tensor found = above(body, mica_graph_take_along_axis(body, live, first, 2), 0);
    for (uint32_t i = 0; i < EDGES; i++)
        mine[i] = mica_graph_take_along_axis(body, in[1 + i], first, 2);
    const mica_tensor index = mica_graph_index(body, MICA_DTYPE_I32, 3, shape, 2);
    const mica_tensor gone = binary(body, MICA_SCALAR_BIT_OR, covered(body, mine, in + 1, in[1 + EDGES]),
                                    binary(body, MICA_SCALAR_EQUAL, index, first));
    (void)mica_graph_output(body, "live", mica_graph_select(body, gone, zero, live));
    (void)mica_graph_output(body, "taken", mica_graph_select(body, found, first, none));
}

/* All rounds: [rounds, batch, classes, 1]. */
static mica_status take_boxes(mica__ox_op *o, const boxes *b, mica_tensor *out)
{
    mica_graph *body = NULL;
    mica_tensor inputs[2 + EDGES], in[2 + EDGES], outputs[2] = {0, 0};
    const mica_scan_desc desc = {.carried = 1, .others = 1 + EDGES, .length = b->rounds};
    inputs[0] = b->live;
    memcpy(inputs + 1, b->edge, sizeof b->edge);
    inputs[1 + EDGES] = b->most;
    MICA__TRY(mica_graph_status(o->graph));
    MICA__TRY(mica_graph_create(&body));
    for (uint32_t i = 0; i < 2 + EDGES; i++) {
        const mica__type type = mica__ox_type(o, inputs[i]);
        const char name[] = {(char)('a' + i), 0};
        in[i] = mica_graph_input(body, name, type.dtype, type.ndim, type.shape);
    }
    build_round(body, b, in);
    const mica_status status = mica_graph_status(body);
    if (status == MICA_OK)
        (void)mica_graph_scan(o->graph, body, &desc, inputs, outputs, 2);
    mica_graph_release(body);
    *out = outputs[1];
    return status == MICA_OK ? mica_graph_status(o->graph) : status;
}

/* Rows of batch, class, box: those that were taken, in this order, then rows of -1. */
static mica_status give_boxes(mica__ox_op *o, const boxes *b, mica_tensor taken)
{
    const uint64_t shape[] = {b->batch, b->classes, b->rounds}, rows = b->batch * b->classes * b->rounds,
                   line[] = {rows, 1};
    mica_tensor column[3], count = 0;
    taken = mica__ox_move(
        o, mica__ox_reshape(o, taken, 3, (const uint64_t[]){b->rounds, b->batch, b->classes}), 0, 2);
    const mica_tensor none = mica__ox_number(o, taken, -1), zero = mica__ox_number(o, taken, 0);
    const mica_tensor there = binary(o->graph, MICA_SCALAR_GREATER, taken, none);
    const mica_tensor place = binary(o->graph, MICA_SCALAR_MAX, taken, zero);
    column[0] = mica__ox_iota(o, 3, shape, 0, MICA_DTYPE_I32);
    column[1] = mica__ox_iota(o, 3, shape, 1, MICA_DTYPE_I32);
    column[2] = place == 0 ? 0 : mica_graph_take_along_axis(o->graph, b->order, place, 2);
    for (uint32_t i = 0; i < 3; i++)
        column[i] = mica__ox_reshape(o, column[i], 2, line);
    const mica_tensor all = mica_graph_concat(o->graph, column, 3, 1);
    const mica_tensor kept =
        mica_graph_compress(o->graph, all, mica__ox_reshape(o, there, 1, &rows), 0, &count);
    if (kept == 0)
        return mica_graph_status(o->graph);
    const mica__ox_found *found = NULL;
    MICA__TRY(mica__ox_rows_counted(o, kept, NULL, rows, count, &found));
    mica__ox_out(o, 0, mica__ox_cast(o, mica__ox_masked(o, kept, found, 0, none), MICA_DTYPE_I64));
    o->out[0].rows = found;
    return MICA_OK;
}

/* The scores' order, and what follows it. */
static mica_status rank_boxes(mica__ox_op *o, boxes *b, bool centred)
{
    const uint64_t shape[] = {b->batch, b->classes, b->count};
    const mica_tensor scores = mica__ox_in(o, 1), one = mica_graph_number(o->graph, MICA_DTYPE_I32, 1),
                      zero = mica_graph_number(o->graph, MICA_DTYPE_I32, 0);
    mica_tensor edge[EDGES];
    edges_of(o, b, centred, edge);
    b->order = mica_graph_argsort(o->graph, scores, 2, 1);
    for (uint32_t i = 0; i < EDGES && edge[i] != 0; i++)
        b->edge[i] =
            mica_graph_take_along_axis(o->graph, mica_graph_expand(o->graph, edge[i], 3, shape), b->order, 2);
    b->live = mica_graph_expand(o->graph, one, 3, shape);
    if (mica__ox_has(o, 4)) {
        const mica_tensor least = mica__ox_reshape(o, mica__ox_in(o, 4), 0, NULL);
        const mica_tensor ranked = mica_graph_take_along_axis(o->graph, scores, b->order, 2);
        b->live = mica__ox_select(o, binary(o->graph, MICA_SCALAR_GREATER, ranked, least), one, zero);
    }
    if (b->rows != NULL) /* boxes that are not there are never taken */
        b->live =
            mica__ox_select(o, binary(o->graph, MICA_SCALAR_LESS, b->order, b->rows->count), b->live, zero);
    b->most = mica__ox_has(o, 3) ? mica__ox_reshape(o, mica__ox_in(o, 3), 0, NULL)
                                 : mica_graph_number(o->graph, MICA_DTYPE_F32, 0);
    return mica_graph_status(o->graph);
}

/* boxes [batch, count, 4], scores [batch, classes, count], max_output_boxes_per_class, iou_threshold, score_threshold */
mica_status mica__ox_non_max_suppression(mica__ox_op *o)
{
    static const int64_t nothing = 0;
    const mica__type all = mica__ox_in_type(o, 0), scores = mica__ox_in_type(o, 1);
    const int64_t centred = mica__ox_int(o, "center_point_box", 0);
    int64_t most = 0;
    mica_tensor taken = 0;
    if (mica__ox_has(o, 2))
        MICA__TRY(mica__ox_need_int(o, 2, &most));
    if (all.ndim != 3 || scores.ndim != 3 || centred < 0 || centred > 1)
        return mica__ox_fail(o, "of such shapes, or center_point_box");
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 0), "boxes"));
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 1), "scores"));
    boxes b = {
        .batch = all.shape[0], .classes = scores.shape[1], .count = all.shape[1], .rows = o->in[1].rows};
    if (all.shape[2] != 4 || scores.shape[0] != b.batch || scores.shape[2] != b.count)
        return mica__ox_fail(o, "of such shapes");
    b.rounds = most <= 0 ? 0 : (uint64_t)most < b.count ? (uint64_t)most : b.count;
    if (b.rounds == 0 || b.batch == 0 || b.classes == 0)
        return mica__ox_out_host(o, 0, MICA_DTYPE_I64, 2, (const uint64_t[]){0, 3}, &nothing);
    if (b.rounds > MOST_ROUNDS || b.count > INT32_MAX || b.classes > INT32_MAX / 3 / b.rounds / b.batch)
        return mica__ox_fail(o, "of up to %llu boxes of a class", (unsigned long long)b.rounds);
    MICA__TRY(rank_boxes(o, &b, centred != 0));
    MICA__TRY(take_boxes(o, &b, &taken));
    return give_boxes(o, &b, taken);
}
