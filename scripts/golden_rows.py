#!/usr/bin/env python3
"""Models with rows of which the run finds how many, and what ONNX Runtime makes of them: tests/golden/onnx/rows.bin, an archive as scripts/onnx_nodes.py packs it, for
tests/graph/test_onnx_rows.c. Each model comes with none, one, some and all of its rows there. `--list` prints the cases; where ONNX Runtime itself fails a case is left out,
and named."""
import argparse
import os
import struct
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import onnx_nodes

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "onnx")
F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
rng = np.random.default_rng(5)


class Model:
    """Nodes by short words: a name for each result."""

    def __init__(self, opset=17, **inputs):
        self.nodes, self.constants, self.outputs, self.opset = [], [], [], opset
        self.inputs = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]

    def const(self, value, dtype=np.int64):
        name = "c%d" % len(self.constants)
        self.constants.append(onnx.numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def __call__(self, op, *inputs, out=None, outs=1, **attributes):
        names = [out or "v%d" % (len(self.nodes) * 4 + i) for i in range(outs)] if out is None else [out]
        inputs = [i if isinstance(i, str) else self.const(i) for i in inputs]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outs == 1 else names

    def out(self, dtype, *values):
        for value in values:
            name = "y%d" % len(self.outputs)
            self.nodes.append(helper.make_node("Identity", [value], [name]))
            self.outputs.append(helper.make_tensor_value_info(name, dtype, None))

    def proto(self):
        graph = helper.make_graph(self.nodes, "rows", self.inputs, self.outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


CASES = []


def case(name, model, feeds, atol=1e-5):
    CASES.append((name, model.proto(), feeds, atol))


def several(name, model, feeds_of, atol=1e-5):
    """Once with none, one, some and all."""
    for which in ("none", "one", "some", "all"):
        case("%s_%s" % (name, which), model, feeds_of(which), atol)


def holds(which, n):
    mask = {"none": np.zeros(n, bool), "all": np.ones(n, bool)}.get(which)
    if mask is None:
        mask = np.zeros(n, bool)
        mask[rng.permutation(n)[:1 if which == "one" else max(2, n // 2)]] = True
    return mask


def filtered(m, x="x", mask="mask", axis=0):
    return m("Compress", x, mask, axis=axis)


N = 7


def feeds(which, width=5):
    return {"x": rng.standard_normal((N, width)).astype(np.float32), "mask": holds(which, N)}


def small():
    def fresh(width=5, **more):
        return Model(x=(F, [N, width]), mask=(B, [N]), **more)

    # where elements are
    m = Model(x=(F, [3, 4]))
    places = m("NonZero", "x")
    m.out(I, places)
    m.out(F, m("GatherND", "x", m("Transpose", places, perm=[1, 0])))
    m.out(F, m("Cast", m("Mul", places, m.const(3)), to=F))
    several("nonzero", m, lambda w: {"x": (holds(w, 12) * rng.standard_normal(12)).reshape(3, 4).astype(np.float32)})

    m = Model(x=(F, [6, 4]), mask=(B, [4]), flat=(B, [20]), short=(B, [3]))
    m.out(F, m("Compress", "x", "mask", axis=1), m("Compress", "x", "flat"), m("Compress", "x", "short", axis=-2))
    several("compress", m, lambda w: {"x": rng.standard_normal((6, 4)).astype(np.float32), "mask": holds(w, 4), "flat": holds(w, 20), "short": holds(w, 3)})

    # element by element, and other shapes
    m = fresh()
    y = filtered(m)
    z = m("Add", m("Relu", y), m("Mul", filtered(m), m.const([1, 2, 3, 4, 5], np.float32)))
    z = m("Where", m("Greater", z, m.const(0, np.float32)), z, m("Neg", z))
    z = m("Clip", z, m.const(-1, np.float32), m.const(3, np.float32))
    t = m("Transpose", z, perm=[1, 0])
    u = m("Unsqueeze", t, m.const([0, 2]))
    m.out(F, z, t, u, m("Squeeze", u, m.const([0])), m("Flatten", m("Unsqueeze", z, m.const([1])), axis=2))
    m.out(F, m("Concat", z, y, axis=1), m("Reshape", z, m.const([-1, 5, 1])), m("Reshape", z, m.const([-1])),
          m("Reshape", m("Reshape", z, m.const([-1])), m.const([-1, 5])))
    m.out(F, *m("Split", z, m.const([2, 3]), outs=2, axis=1))
    m.out(F, m("Pad", z, m.const([0, 1, 0, 2])), m("Tile", z, m.const([1, 2])))
    m.out(F, m("Slice", z, m.const([1]), m.const([4]), m.const([0])), m("Slice", z, m.const([0, 1]), m.const([2, 9]), m.const([0, 1])))
    several("shapes", m, feeds)

    m = fresh()  # of no rows ONNX Runtime does not say what is left
    y = filtered(m)
    n1 = m("Slice", m("Shape", y), m.const([0]), m.const([1]))
    m.out(F, m("Reshape", y, m.const([0, -1])), m("Reshape", y, m("Concat", n1, m.const([5, -1]), axis=0)), m("MatMul", y, m.const([1, 0, 2, 0, 3], np.float32)))
    several("left_open", m, feeds)

    # sums and order along the rows
    m = fresh()
    y = m("Add", filtered(m), m.const(0.5, np.float32))  # what is not there is not 0
    for op in ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
        if op == "ReduceSum":
            m.out(F, m(op, y, m.const([0])), m(op, y, m.const([1]), keepdims=0), m(op, y))
        else:
            m.out(F, m(op, y, axes=[0]), m(op, y, axes=[1], keepdims=0))  # -1 of no rows is nothing to ONNX Runtime
    m.out(F, m("Softmax", y, axis=0), m("LogSoftmax", y, axis=1), m("Softmax", m("Transpose", y, perm=[1, 0]), axis=-1))
    m.out(F, m("CumSum", y, m.const(0)), m("CumSum", y, m.const(0), reverse=1), m("CumSum", y, m.const(1), exclusive=1))
    m.out(I, m("ArgMax", y, axis=1), m("ArgMin", y, axis=1, keepdims=0))
    several("sums", m, feeds)

    m = fresh()
    y = m("Sub", filtered(m), m.const(8, np.float32))  # all of them below what a zero would be
    z = m("Neg", y)
    m.out(F, m("ReduceMax", y, axes=[0]), m("ReduceMin", z, axes=[0]), m("ReduceMean", y, axes=[0]), m("ReduceMean", y, axes=[0, 1], keepdims=0),
          m("ReduceLogSumExp", y, axes=[0]), m("ReduceProd", z, axes=[0]), m("ReduceLogSum", z, axes=[0]))
    i = m("Cast", y, to=TensorProto.INT32)
    m.out(TensorProto.INT32, m("ReduceMax", i, axes=[0]), m("ReduceMin", m("Neg", i), axes=[0]))
    for w in ("one", "some", "all"):
        case("extremes_%s" % w, m, feeds(w), 1e-4)

    m = fresh()
    y = m("Sub", filtered(m), m.const(8, np.float32))
    k = m("ReduceMin", m("Concat", m.const([3]), m("Slice", m("Shape", y), m.const([0]), m.const([1])), axis=0), keepdims=1)
    value, place = m("TopK", y, k, outs=2, axis=0)
    low, where = m("TopK", m("Gather", y, m.const(2), axis=1), k, outs=2, axis=0, largest=0)
    m.out(F, value, low, m("Gather", y, where, axis=0))
    m.out(I, place, where)
    several("top_k", m, feeds)

    m = fresh(k=(I, [1]))  # of rows that are there all, but so many
    value, place = m("TopK", m("Sub", "x", m.const(8, np.float32)), "k", outs=2, axis=0)
    m.out(F, value, m("ReduceSum", value, m.const([0])), m("Compress", "x", "mask", axis=0))
    m.out(I, place)
    for k in (1, 4, N):
        case("first_%d" % k, m, dict(feeds("some"), k=np.array([k], np.int64)))

    # products of rows
    m = fresh(w=(F, [5, 3]))
    y = m("Add", filtered(m), m.const(0.5, np.float32))
    m.out(F, m("MatMul", y, "w"), m("Gemm", y, "w", m.const([1, 2, 3], np.float32)), m("MatMul", m("Transpose", "w", perm=[1, 0]), m("Transpose", y, perm=[1, 0])),
          m("MatMul", m("Unsqueeze", y, m.const([1])), "w"))
    several("products", m, lambda w: dict(feeds(w), w=rng.standard_normal((5, 3)).astype(np.float32)))

    # shapes in which their number stands
    m = fresh()
    y = filtered(m)
    shape = m("Shape", y)
    n = m("Gather", shape, m.const(0), axis=0)
    n1 = m("Unsqueeze", n, m.const([0]))
    m.out(I, shape, n, m("Size", y), m("Add", n, m.const(10)), m("Range", m.const(0), n, m.const(1)))
    zero = m("ConstantOfShape", m("Concat", n1, m.const([2]), axis=0), value=helper.make_tensor("v", F, [1], [7]))
    m.out(F, zero, m("Expand", m.const([[1, 2, 3]], np.float32), m("Concat", n1, m.const([3]), axis=0)), m("Expand", y, m.const([2, 1, 5])))
    m.out(F, m("Reshape", y, m("Concat", n1, m.const([5, 1]), axis=0)), m("Slice", "x", m.const([0]), n1, m.const([0])), m("Slice", y, m.const([0]), n1, m.const([0])))
    wished = m("Concat", n1, m.const([-1]), axis=0)
    full = m("Where", m("Equal", wished, m.const([-1, -1])), m.const([1, 5]), wished)
    m.out(F, m("Expand", y, full), m("Concat", zero, y, axis=1))
    m.out(I, m("Cast", m("Mul", m("Cast", n, to=F), m.const(0.5, np.float32)), to=I), m("Concat", m("Range", m.const(0), n, m.const(1)), m.const([100, 101]), axis=0))
    several("sizes", m, feeds)

    # rows behind rows
    m = fresh(other=(B, [N]), fixed=(F, [2, 5]))
    a, b = filtered(m), m("Compress", "x", "other", axis=0)
    both = m("Concat", a, "fixed", b, axis=0)
    again = m("Concat", m("Gather", a, m.const([1]), axis=1), m("Gather", "fixed", m.const([1]), axis=1), m("Gather", b, m.const([1]), axis=1), axis=0)
    m.out(F, both, m("Add", both, again), m("ReduceSum", both, m.const([0])))
    for w, v in (("none", "none"), ("none", "all"), ("one", "some"), ("all", "one"), ("some", "some"), ("all", "all")):
        case("joined_%s_%s" % (w, v), m, dict(feeds(w), other=holds(v, N), fixed=rng.standard_normal((2, 5)).astype(np.float32)))

    # rows of rows
    m = fresh()
    y = filtered(m)
    good = m("Greater", m("Gather", y, m.const(0), axis=1), m.const(0, np.float32))
    at = m("Squeeze", m("NonZero", good), m.const([0]))
    z = m("Gather", y, at, axis=0)
    m.out(F, z, m("Compress", y, good, axis=0), m("GatherND", y, m("Unsqueeze", at, m.const([1]))), m("GatherElements", y, m("Expand", m("Unsqueeze", at, m.const([1])), m.const([1, 5])), axis=0))
    m.out(I, at, m("NonZero", m("Greater", y, m.const(0.5, np.float32))))
    several("twice", m, feeds)

    # and back to where they came from
    m = fresh(base=(F, [N, 5]))
    at = m("Squeeze", m("NonZero", "mask"), m.const([0]))
    y = m("Mul", m("Gather", "x", at, axis=0), m.const(2, np.float32))
    tuples = m("Unsqueeze", at, m.const([1]))
    m.out(F, m("ScatterND", "base", tuples, y), m("ScatterElements", "base", m("Expand", tuples, m.const([1, 5])), y, axis=0),
          m("ScatterND", "base", m("Sub", tuples, m.const([[N]])), y))
    several("scatter", m, lambda w: dict(feeds(w), base=rng.standard_normal((N, 5)).astype(np.float32)))

    # images, of which so many
    m = Model(x=(F, [N, 2, 4, 4]), mask=(B, [N]), w=(F, [3, 2, 3, 3]))
    y = m("MaxPool", m("Relu", m("Conv", filtered(m), "w", pads=[1, 1, 1, 1])), kernel_shape=[2, 2], strides=[2, 2])
    m.out(F, y, m("GlobalAveragePool", y), m("Softmax", m("Flatten", y), axis=1))
    several("images", m, lambda w: {"x": rng.standard_normal((N, 2, 4, 4)).astype(np.float32), "mask": holds(w, N), "w": rng.standard_normal((3, 2, 3, 3)).astype(np.float32)})


def boxes_of(which, n, classes, batch=1):
    """Boxes far apart, or all the same; scores above the threshold of none, one, some or all."""
    corner = rng.uniform(0, 60, (batch, n, 2))
    size = rng.uniform(4, 30, (batch, n, 2))
    boxes = np.concatenate([corner, corner + size], 2).astype(np.float32)
    scores = rng.uniform(0.01, 0.2, (batch, classes, n))
    if which == "all":
        boxes = np.concatenate([np.arange(n)[None, :, None] * [100.0, 0], np.arange(n)[None, :, None] * [100.0, 0] + 10], 2).repeat(batch, 0).astype(np.float32)
        scores = rng.uniform(0.4, 0.9, scores.shape)
    elif which == "some":
        scores = rng.uniform(0.0, 0.9, scores.shape)
    elif which == "one":
        scores[0, 0, n // 3] = 0.8
    return boxes, scores.astype(np.float32)


def yolo():
    """The raw output of a head, [1, 4 + classes, n] with centred boxes: boxes, class and score of what is chosen, as one table."""
    n, classes = 20, 3
    m = Model(raw=(F, [1, 4 + classes, n]))
    table = m("Transpose", "raw", perm=[0, 2, 1])
    centre, size, score = m("Split", table, m.const([2, 2, classes]), outs=3, axis=2)
    half = m("Mul", size, m.const(0.5, np.float32))
    boxes = m("Concat", m("Sub", centre, half), m("Add", centre, half), axis=2)
    chosen = m("NonMaxSuppression", boxes, m("Transpose", score, perm=[0, 2, 1]), m.const([100]), m.const([0.45], np.float32), m.const([0.25], np.float32))
    batch = m("Gather", chosen, m.const([0]), axis=1)
    kind = m("Gather", chosen, m.const([1]), axis=1)
    box = m("Gather", chosen, m.const([2]), axis=1)
    at = m("Concat", batch, box, axis=1)
    picked = m("GatherND", boxes, at)
    value = m("Unsqueeze", m("GatherND", m("Transpose", score, perm=[0, 2, 1]), chosen), m.const([1]))
    m.out(F, m("Concat", m("Cast", batch, to=F), picked, m("Cast", kind, to=F), value, axis=1))
    m.out(I, chosen)

    def feed(which):
        boxes, scores = boxes_of(which, n, classes)
        return {"raw": np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2], scores.transpose(0, 2, 1)], 2).transpose(0, 2, 1).copy()}
    several("yolo", m, feed)


def ssd():
    """Scores of softmax, chosen boxes in the order of their scores, at most 10 of them, as an SSD is exported."""
    n, classes = 24, 4
    m = Model(boxes=(F, [1, n, 4]), scores=(F, [1, classes, n]))
    chosen = m("NonMaxSuppression", "boxes", "scores", m.const([6]), m.const([0.5], np.float32), m.const([0.3], np.float32))
    flat = m("Squeeze", m("Slice", chosen, m.const([2]), m.const([3]), m.const([1])), m.const([1]))
    label = m("Squeeze", m("Slice", chosen, m.const([1]), m.const([2]), m.const([1])), m.const([1]))
    score = m("Gather", m("Reshape", "scores", m.const([-1])), m("Add", m("Mul", label, m.const(n)), flat), axis=0)
    k = m("ReduceMin", m("Concat", m.const([10]), m("Shape", score), axis=0), keepdims=1)
    best, order = m("TopK", score, k, outs=2, axis=-1)
    picked = m("Gather", m("Squeeze", "boxes", m.const([0])), m("Gather", flat, order, axis=0), axis=0)
    count = m("Shape", order)
    m.out(F, m("Unsqueeze", picked, m.const([0])), m("Unsqueeze", best, m.const([0])))
    m.out(I, m("Gather", label, order, axis=0), count, m("Cast", m("ReduceSum", m("Cast", m("Greater", best, m.const(0.5, np.float32)), to=I)), to=I))
    several("ssd", m, lambda w: dict(zip(("boxes", "scores"), boxes_of(w, n, classes))))


def two_stages():
    """Proposals of a first stage, features of their regions, a head over them, boxes of all classes, and a second choice among them: as a Faster R-CNN is exported."""
    n, classes, top = 16, 3, 8
    m = Model(16, image=(F, [1, 2, 24, 24]), boxes=(F, [1, n, 4]), scores=(F, [1, 1, n]), w=(F, [8, classes]), d=(F, [8, 4 * classes]))
    kept = m("Squeeze", m("Gather", m("NonMaxSuppression", "boxes", "scores", m.const([n]), m.const([0.6], np.float32), m.const([0.3], np.float32)), m.const([2]), axis=1), m.const([1]))
    kept = m("Slice", kept, m.const([0]), m.const([top]), m.const([0]))
    proposals = m("Gather", m("Squeeze", "boxes", m.const([0])), kept, axis=0)
    count = m("Gather", m("Shape", proposals), m.const([0]), axis=0)
    ids = m("ConstantOfShape", count, value=helper.make_tensor("v", I, [1], [0]))
    large = m("Greater", m("Sub", m("Gather", proposals, m.const(2), axis=1), m("Gather", proposals, m.const(0), axis=1)), m.const(12, np.float32))
    results = m("ConstantOfShape", m("Concat", count, m.const([2, 2, 2]), axis=0), value=helper.make_tensor("v", F, [1], [0]))
    for level, scale in ((m("Not", large), 0.25), (large, 0.125)):  # each proposal from the level of its size
        at = m("Squeeze", m("NonZero", level), m.const([0]))
        part = m("RoiAlign", "image", m("Gather", proposals, at, axis=0), m("Gather", ids, at, axis=0), output_height=2, output_width=2, sampling_ratio=2, spatial_scale=scale)
        index = m("Expand", m("Reshape", at, m.const([-1, 1, 1, 1])), m("Concat", m("Shape", at), m.const([2, 2, 2]), axis=0))
        results = m("ScatterElements", results, index, part, axis=0)
    features = m("Relu", m("Flatten", results, axis=1))
    scores = m("Softmax", m("MatMul", features, "w"), axis=1)
    deltas = m("Reshape", m("Gemm", features, "d"), m("Concat", count, m.const([classes, 4]), axis=0))
    size = m("Concat", m.const([[0, 0]], np.float32), m("Sub", m("Slice", proposals, m.const([2]), m.const([4]), m.const([1])), m("Slice", proposals, m.const([0]), m.const([2]), m.const([1]))), axis=1) \
        if False else m("Sub", m("Slice", proposals, m.const([2]), m.const([4]), m.const([1])), m("Slice", proposals, m.const([0]), m.const([2]), m.const([1])))
    shift = m("Mul", m("Tanh", m("Slice", deltas, m.const([0]), m.const([2]), m.const([2]))), m("Unsqueeze", size, m.const([1])))
    low = m("Add", m("Unsqueeze", m("Slice", proposals, m.const([0]), m.const([2]), m.const([1])), m.const([1])), shift)
    grown = m("Mul", m("Exp", m("Clip", m("Slice", deltas, m.const([2]), m.const([4]), m.const([2])), m.const(-1, np.float32), m.const(1, np.float32))), m("Unsqueeze", size, m.const([1])))
    all_boxes = m("Reshape", m("Concat", low, m("Add", low, grown), axis=2), m.const([-1, 4]))
    all_scores = m("Reshape", scores, m.const([-1]))
    kinds = m("Reshape", m("Expand", m("Reshape", m.const(list(range(classes))), m.const([1, -1])), m("Concat", count, m.const([classes]), axis=0)), m.const([-1]))
    good = m("Squeeze", m("NonZero", m("Greater", all_scores, m.const(0.25, np.float32))), m.const([0]))
    boxes, scores, kinds = m("Gather", all_boxes, good, axis=0), m("Gather", all_scores, good, axis=0), m("Gather", kinds, good, axis=0)
    far = m("Mul", m("Cast", kinds, to=F), m.const(1000, np.float32))  # classes do not meet
    apart = m("Add", boxes, m("Unsqueeze", far, m.const([1])))
    chosen = m("NonMaxSuppression", m("Unsqueeze", apart, m.const([0])), m("Unsqueeze", scores, m.const([0, 1])), m.const([1000]), m.const([0.5], np.float32))
    final = m("Slice", m("Squeeze", m("Gather", chosen, m.const([2]), axis=1), m.const([1])), m.const([0]), m.const([10]), m.const([0]))
    m.out(F, m("Gather", boxes, final, axis=0), m("Gather", scores, final, axis=0))
    m.out(I, m("Gather", kinds, final, axis=0), m("Shape", final))

    def feed(which):
        boxes, scores = boxes_of(which, n, 1)
        boxes = boxes % 96 if which != "all" else boxes / 17
        boxes[..., 2:] = np.maximum(boxes[..., 2:], boxes[..., :2] + 2)
        return {"image": rng.standard_normal((1, 2, 24, 24)).astype(np.float32), "boxes": boxes, "scores": scores, "w": rng.standard_normal((8, classes)).astype(np.float32),
                "d": (0.2 * rng.standard_normal((8, 4 * classes))).astype(np.float32)}
    several("two_stages", m, feed, 1e-4)


REFUSED = []


def refused(sentence, op, *inputs, **attributes):
    """An operator that must not be read: y are rows of x, other ones z, at their places."""
    m = Model(x=(F, [N, 5]), mask=(B, [N]), other=(B, [N]), square=(F, [N, N]), which=(B, []))
    m.nodes.append(helper.make_node("Compress", ["x", "mask"], ["y"], axis=0))
    m.nodes.append(helper.make_node("Compress", ["x", "other"], ["z"], axis=0))
    m.nodes.append(helper.make_node("NonZero", ["mask"], ["at"]))
    m.nodes.append(helper.make_node("Shape", ["y"], ["shape"]))
    m.nodes.append(helper.make_node("Gather", ["shape", m.const(0)], ["n"]))
    result = m(op, *[m.const(i, np.float32 if isinstance(i, float) else np.int64) if not isinstance(i, str) else i for i in inputs], **attributes)
    m.out(F, result)
    REFUSED.append((sentence, m.proto()))


def refusals():
    refused('"z" has as many rows as the run finds, and not those of another input', "Add", "y", "z")
    refused('"x" has a size where another one has as many rows as the run finds', "Mul", "y", "x")
    refused('"y" has as many rows as the run finds, over which the product sums', "MatMul", "square", "y")
    refused('"z" has as many rows as the run finds, and so has the other factor', "MatMul", "y", "z")
    refused('"y" has as many rows as the run finds, over which the product sums', "Gemm", "y", "square", transA=1)
    refused('"y" has as many rows as the run finds along its axis', "ArgMax", "y", axis=0)
    refused('"y" has as many rows as the run finds along its axis', "LayerNormalization", "y", [1.0, 1, 1, 1, 1], axis=0)
    refused('"y" has as many rows as the run finds along its axis', "LpNormalization", "y", axis=0)
    refused('"y" has as many rows as the run finds along its axis', "Split", "y", [3, 4], axis=0)
    refused('"y" has as many rows as the run finds, and is cut from its end or in steps', "Slice", "y", [0], [-1], [0])
    refused('"y" has as many rows as the run finds, and is cut from its end or in steps', "Slice", "y", [0], [7], [0], [2])
    refused('"y" has as many rows as the run finds, and is cut from its end or in steps', "Slice", "y", [-2], [1 << 40], [0])
    refused('"y" has as many rows as the run finds, and the new shape has numbers', "Reshape", "y", [7, 5])
    refused('"y" has as many rows as the run finds, which the new shape cuts or joins', "Reshape", "y", [5, -1])
    refused('rows in groups, of a number that the run finds', "Reshape", "y", [-1, 35])
    refused('"y" has as many rows as the run finds, and the new shape a number', "Expand", "y", [7, 5])
    refused('"y" has as many rows as the run finds and is repeated along them', "Tile", "y", [2, 1])
    refused('"y" has as many rows as the run finds, and may be padded along them', "Pad", "y", [0, 0, 1, 0])
    refused('"at" has as many rows as the run finds, and so has the table in another dimension', "Gather", "y", "at", axis=1)
    refused('"y" has as many rows as the run finds, and another input in another dimension', "Concat", "at", "y", axis=1)
    refused('"y" has as many rows as the run finds, and not those of the condition', "Compress", "y", "mask", axis=0)
    refused('"y" has as many rows as the run finds, which this operator does not read', "Einsum", "y", equation="ij->j")
    refused('"y" has as many rows as the run finds, which this operator does not read', "Trilu", "y")
    refused('"at" has as many rows as the run finds and not as its batch', "GlobalAveragePool", "at")
    refused('"shape" must be known while importing', "Tile", "x", "shape")
    refused('to a number of rows that the run finds, but not from 0 in steps of 1', "Range", 1, "n", 1)
    refused('"y" has as many rows as the run finds, and no body reads it', "If", "which",
            then_branch=helper.make_graph([helper.make_node("Neg", ["y"], ["b"])], "b", [], [helper.make_tensor_value_info("b", F, None)]),
            else_branch=helper.make_graph([helper.make_node("Abs", ["y"], ["b"])], "b", [], [helper.make_tensor_value_info("b", F, None)]))
    refused('"b" has as many rows as the run finds, and no body gives it', "If", "which",
            then_branch=helper.make_graph([helper.make_node("Compress", ["x", "mask"], ["b"], axis=0)], "b", [], [helper.make_tensor_value_info("b", F, None)]),
            else_branch=helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "b", [], [helper.make_tensor_value_info("b", F, None)]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    small()
    yolo()
    ssd()
    two_stages()

    def text(data):
        return struct.pack("<I", len(data)) + data

    def array(a):
        a = np.asarray(a)
        return struct.pack("<II%dQ" % a.ndim, onnx_nodes.NAMES.index(onnx_nodes.NUMPY[a.dtype.name]), a.ndim, *a.shape) + text(np.ascontiguousarray(a).tobytes())
    kept = []
    onnxruntime.set_default_logger_severity(4)
    for name, model, values, atol in CASES:
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            wanted = session.run(None, values)
        except Exception as error:  # what ONNX Runtime refuses has no golden figures
            print("left out:", name, str(error).splitlines()[0][:200])
            continue
        if options.list:
            print(name, [list(np.shape(w)) for w in wanted])
        order = [i.name for i in model.graph.input]
        kept.append(text(name.encode()) + struct.pack("<Bdd", 0, 1e-5, atol) + text(model.SerializeToString()) + struct.pack("<II", len(order), len(wanted)) +
                    b"".join(array(values[n]) for n in order) + b"".join(array(w) for w in wanted))
    path = os.path.join(HERE, "rows.bin")
    with open(path, "wb") as file:
        file.write(b"nodes\n" + struct.pack("<I", len(kept)) + b"".join(kept))
    print("%s: %d cases, %d bytes" % (os.path.normpath(path), len(kept), os.path.getsize(path)))
    refusals()
    with open(os.path.join(HERE, "rows_refused.bin"), "wb") as file:
        shapes = b"".join(array(np.zeros(s, t)) for s, t in (([N, 5], np.float32), ([N], bool), ([N], bool), ([N, N], np.float32), ([], bool)))
        file.write(b"nodes\n" + struct.pack("<I", len(REFUSED)) +
                   b"".join(text(s.encode()) + struct.pack("<Bdd", 0, 0, 0) + text(m.SerializeToString()) + struct.pack("<II", 5, 0) + shapes for s, m in REFUSED))


if __name__ == "__main__":
    sys.exit(main())
