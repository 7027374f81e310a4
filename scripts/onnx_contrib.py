#!/usr/bin/env python3
"""Operators of com.microsoft (and what depends on parameters that a model holds) as test cases: random inputs, and what ONNX Runtime makes of them. onnx_nodes.py runs them beside the node tests of onnx."""
import types

import numpy as np
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.int32): TensorProto.INT32,
         np.dtype(np.int64): TensorProto.INT64, np.dtype(np.uint8): TensorProto.UINT8}
RANDOM = np.random.default_rng(5)


def f32(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def case(name, op, inputs, outputs=1, constants=(), domain="com.microsoft", opset=21, **attributes):
    """One node; inputs that are None are absent, those in `constants` are initialisers."""
    import onnxruntime
    names = ["" if a is None else "i%d" % i for i, a in enumerate(inputs)]
    outs = ["o%d" % i if wanted else "" for i, wanted in enumerate([1] * outputs if isinstance(outputs, int) else outputs)]
    node = helper.make_node(op, names, outs, domain=domain, **attributes)
    fed = [(n, a) for i, (n, a) in enumerate(zip(names, inputs)) if a is not None and i not in constants]
    held = [numpy_helper.from_array(a, n) for i, (n, a) in enumerate(zip(names, inputs)) if a is not None and i in constants]
    graph = helper.make_graph([node], name, [helper.make_tensor_value_info(n, TYPES[a.dtype], a.shape) for n, a in fed],
                              [helper.make_empty_tensor_value_info(n) for n in outs if n], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, dict(fed))
    del graph.output[:]
    graph.output.extend(helper.make_tensor_value_info(n, TYPES[r.dtype], r.shape) for n, r in zip([n for n in outs if n], results))
    model.graph.CopyFrom(graph)
    return types.SimpleNamespace(name="test_contrib_" + name, model=model, data_sets=[([a for _, a in fed], results)], rtol=1e-3, atol=2e-5)


def rotary(positions, half):
    angle = np.arange(positions)[:, None] / 100.0 ** (np.arange(half) / half)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def activations():
    x, bias = f32(2, 5, 12), f32(12)
    yield "gelu", "Gelu", [x], {}
    yield "bias_gelu", "BiasGelu", [x, bias], {}
    yield "fast_gelu", "FastGelu", [x], {}
    yield "fast_gelu_bias", "FastGelu", [x, bias], {}
    yield "quick_gelu", "QuickGelu", [x], {"alpha": 1.5}
    yield "fused_matmul", "FusedMatMul", [f32(2, 4, 3), f32(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}
    yield "skip_layer_norm", "SkipLayerNormalization", [x, f32(2, 5, 12), bias, f32(12), f32(12)], {"epsilon": 1e-5, "outputs": [1, 0, 0, 1]}
    yield "skip_layer_norm_plain", "SkipLayerNormalization", [x, f32(2, 5, 12), bias], {}
    yield "skip_rms_norm", "SkipSimplifiedLayerNormalization", [x, f32(2, 5, 12), bias], {"outputs": [1, 0, 0, 1]}
    yield "batch_norm_held", "BatchNormalization", [f32(2, 5, 3, 4), f32(5), f32(5), f32(5), np.abs(f32(5))], {"domain": "", "constants": (1, 2, 3, 4)}
    yield "rms_norm", "SimplifiedLayerNormalization", [x, bias], {"domain": "", "axis": -1, "epsilon": 1e-6}


def embeddings():
    ids, kinds = RANDOM.integers(0, 11, (2, 5)).astype(np.int32), RANDOM.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [f32(11, 8), f32(7, 8), f32(2, 8), f32(8), f32(8)]
    yield "embed_layer_norm", "EmbedLayerNormalization", [ids, kinds] + tables, {"outputs": [1, 0, 1], "epsilon": 1e-5}
    yield "embed_layer_norm_words", "EmbedLayerNormalization", [ids, None] + tables[:2] + [None] + tables[3:], {"outputs": [1, 0]}
    cosine, sine = rotary(20, 4)
    yield "rotary", "RotaryEmbedding", [f32(2, 3, 5, 8), RANDOM.integers(0, 20, (2, 5)), cosine, sine], {}
    yield "rotary_flat", "RotaryEmbedding", [f32(2, 5, 24), np.array([3]), cosine, sine], {}
    yield "rotary_interleaved", "RotaryEmbedding", [f32(2, 3, 5, 8), RANDOM.integers(0, 20, (2, 5)), cosine, sine], {"interleaved": 1}
    yield "rotary_part", "RotaryEmbedding", [f32(2, 5, 30), np.array([2]), cosine, sine], {"rotary_embedding_dim": 8, "num_heads": 3}


def attentions():
    q, k, v = f32(2, 5, 12), f32(2, 7, 12), f32(2, 7, 12)
    mask = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]], np.int32)
    yield "multi_head", "MultiHeadAttention", [q, k, v], {"num_heads": 3}
    yield "multi_head_bias", "MultiHeadAttention", [q, k, v, f32(36)], {"num_heads": 3, "scale": 0.3}
    yield "multi_head_mask", "MultiHeadAttention", [q, k, v, None, mask], {"num_heads": 3}
    yield "multi_head_added", "MultiHeadAttention", [q, k, v, None, None, f32(1, 3, 5, 7)], {"num_heads": 3}
    yield "multi_head_causal", "MultiHeadAttention", [q, f32(2, 5, 12), f32(2, 5, 12)], {"num_heads": 3, "unidirectional": 1}
    yield "multi_head_past", "MultiHeadAttention", [f32(2, 2, 12), f32(2, 2, 12), f32(2, 2, 12), None, None, None, f32(2, 3, 4, 4), f32(2, 3, 4, 4)], \
        {"num_heads": 3, "outputs": 3}
    yield "attention", "Attention", [q, f32(12, 36), f32(36)], {"num_heads": 3}
    yield "attention_mask", "Attention", [q, f32(12, 36), f32(36), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)], {"num_heads": 3}
    yield "attention_lengths", "Attention", [q, f32(12, 36), f32(36), np.array([3, 5], np.int32)], {"num_heads": 3}
    yield "attention_causal", "Attention", [q, f32(12, 36), f32(36)], {"num_heads": 3, "unidirectional": 1}
    cosine, sine = rotary(32, 8)
    heads = {"num_heads": 4, "kv_num_heads": 2, "outputs": 3}
    total = np.array([6], np.int32)
    plain = [f32(2, 6, 64), f32(2, 6, 32), f32(2, 6, 32), None, None, np.array([5, 5], np.int32), total]
    yield "group_query", "GroupQueryAttention", plain, heads
    yield "group_query_rotary", "GroupQueryAttention", plain + [cosine, sine], dict(heads, do_rotary=1)
    yield "group_query_interleaved", "GroupQueryAttention", plain + [cosine, sine], dict(heads, do_rotary=1, rotary_interleaved=1)
    yield "group_query_window", "GroupQueryAttention", plain, dict(heads, local_window_size=3)
    yield "group_query_softcap", "GroupQueryAttention", plain, dict(heads, softcap=2.0)
    yield "group_query_packed", "GroupQueryAttention", [f32(2, 6, 128), None, None] + plain[3:] + [cosine, sine], dict(heads, do_rotary=1)
    step = [f32(2, 1, 64), f32(2, 1, 32), f32(2, 1, 32), f32(2, 2, 5, 16), f32(2, 2, 5, 16), np.array([5, 5], np.int32), total, cosine, sine]
    yield "group_query_step", "GroupQueryAttention", step, dict(heads, do_rotary=1)


def few_bits():
    for bits, block, k, n in ((4, 32, 64, 5), (4, 16, 48, 3), (8, 32, 64, 4), (4, 32, 70, 5)):
        blocks = -(-k // block)
        codes = RANDOM.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        scales = np.abs(f32(n * blocks)) / 8
        zeros = RANDOM.integers(0, 256, n * ((blocks * bits + 7) // 8)).astype(np.uint8)
        attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "constants": (1, 2, 3)}
        yield "few_bits_%d_%d_%d" % (bits, block, k), "MatMulNBits", [f32(2, 3, k), codes, scales], attributes
        yield "few_bits_%d_%d_%d_zeros" % (bits, block, k), "MatMulNBits", [f32(2, 3, k), codes, scales, zeros], attributes


def regions():
    """Detectors: boxes with equal scores and of no size, regions that lead out of the image, volumes, bent windows."""
    low = RANDOM.uniform(0, 8, (2, 14, 2))
    boxes = np.concatenate([low, low + RANDOM.uniform(-1, 5, (2, 14, 2))], 2).astype(np.float32)
    boxes[:, 3] = boxes[:, 9]
    scores = (RANDOM.integers(0, 7, (2, 3, 14)) / 7).astype(np.float32)
    for name, most, iou, least, centred in (("", 20, 0.3, 0.2, 0), ("_few", 4, 0.1, None, 0), ("_centred", 9, 0.4, 0.5, 1), ("_all", 99, 1.0, None, 0)):
        inputs = [boxes, scores, np.array([most]), np.array([iou], np.float32)] + ([] if least is None else [np.array([least], np.float32)])
        yield "nonmaxsuppression" + name, "NonMaxSuppression", inputs, {"domain": "", "center_point_box": centred, "constants": (2,)}
    rois = np.array([[0, 0, 4, 5], [-3, -2, 2, 9], [1.3, 2.1, 1.7, 2.2], [3, 3, 12, 12], [5, 4, 2, 1]], np.float32)
    for mode in ("avg", "max"):
        for corners in ("half_pixel", "output_half_pixel"):
            yield "roi_%s_%s" % (mode, corners), "RoiAlign", [f32(2, 3, 6, 5), rois, np.array([0, 1, 1, 0, 1])], \
                {"domain": "", "mode": mode, "coordinate_transformation_mode": corners, "output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.75}
    for padding in ("zeros", "border", "reflection"):
        for corners in (0, 1):
            yield "grid_volume_%s_%d" % (padding, corners), "GridSample", [f32(2, 2, 3, 4, 5), 1.3 * f32(2, 2, 3, 2, 3)], \
                {"domain": "", "mode": "linear", "padding_mode": padding, "align_corners": corners}
    yield "deform_conv", "DeformConv", [f32(2, 4, 5, 6), f32(6, 2, 3, 2), 1.5 * f32(2, 24, 3, 4), f32(6), f32(2, 12, 3, 4)], \
        {"domain": "", "group": 2, "offset_group": 2, "strides": [2, 1], "pads": [1, 0, 1, 0], "dilations": [1, 2]}


def older():
    """What operators were before opset 13: axes and sizes as attributes, softmax over all that follows."""
    x, nothing = f32(2, 3, 1, 4), np.zeros(0, np.float32)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1, 3, -2):
            yield "11_%s_%d" % (op, axis), op, [x], {"axis": axis}
        yield "11_%s" % op, op, [x], {}
    yield "11_squeeze", "Squeeze", [x], {"axes": [-2]}
    yield "11_squeeze_all", "Squeeze", [x], {}
    yield "11_unsqueeze", "Unsqueeze", [x], {"axes": [0, -2]}
    yield "11_split", "Split", [x], {"axis": 3, "split": [1, 3], "outputs": 2}
    yield "11_split_even", "Split", [x], {"axis": -1, "outputs": 2}
    yield "11_dropout", "Dropout", [x], {"ratio": 0.3}
    yield "11_batch_norm", "BatchNormalization", [x, f32(3), f32(3), f32(3), np.abs(f32(3))], {"epsilon": 1e-3}
    yield "11_sum", "ReduceSum", [x], {"axes": [1, -1], "keepdims": 0}
    yield "11_min", "Min", [x, f32(3, 1, 1)], {}
    yield "11_clip", "Clip", [x, np.array(-0.5, np.float32)], {}
    yield "11_pad", "Pad", [x, np.array([0, 1, 0, 2, 0, 0, 1, 0])], {"constants": (1,), "mode": "edge"}
    yield "11_slice", "Slice", [x, np.array([1]), np.array([9]), np.array([-1])], {"constants": (1, 2, 3)}
    yield "11_resize", "Resize", [f32(1, 2, 3, 4), nothing, np.array([1, 1, 2, 1.5], np.float32)], {"constants": (1, 2), "mode": "linear",
                                                                                                     "coordinate_transformation_mode": "align_corners"}
    yield "11_resize_sizes", "Resize", [f32(1, 2, 3, 4), nothing, nothing, np.array([1, 2, 6, 8])], {"constants": (1, 2, 3), "mode": "nearest", "nearest_mode": "floor",
                                                                                                     "coordinate_transformation_mode": "asymmetric"}
    yield "11_max_pool", "MaxPool", [f32(1, 2, 5, 6)], {"kernel_shape": [3, 2], "strides": [2, 1], "ceil_mode": 1}
    yield "11_gemm", "Gemm", [f32(2, 3), f32(4, 3), f32(4)], {"transB": 1}
    yield "11_arg_max", "ArgMax", [x], {"axis": -1, "keepdims": 0}


def at_opset_11():
    for name, op, inputs, attributes in older():
        yield name, op, inputs, {"domain": "", "opset": 11, **attributes}


def collect():
    cases = []
    for family in (activations, embeddings, attentions, few_bits, regions, at_opset_11):
        for name, op, inputs, attributes in family():
            try:
                cases.append(case(name, op, inputs, **attributes))
            except Exception as error:  # ONNX Runtime has not every form on the CPU
                print("not made: %s: %s" % (name, str(error).strip().split("\n")[0][:160]))
    return cases
