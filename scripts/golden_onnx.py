#!/usr/bin/env python3
"""Makes the files of tests/golden/onnx with the PyPI package onnx, which tests/format/test_onnx.c reads:

    golden_onnx.py

every.onnx      tensors of every type, as raw bytes and as numbers, attributes of every kind, a function, metadata, sub-graphs
external.onnx   a tensor whose data lies in external.bin, from byte 8 on
linear.onnx     a small model with a batch that is a symbol
boxes.onnx      an operator that reads the boxes that NonMaxSuppression chose
boxes_if.onnx   the same in a branch
boxes_out.onnx  a branch that gives the boxes it chose
"""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "onnx")
WHOLE = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16, "int16": TensorProto.INT16, "int32": TensorProto.INT32,
         "int64": TensorProto.INT64, "bool": TensorProto.BOOL, "float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE,
         "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64}


def values(dtype):
    """What tests/format/test_onnx.c expects: 2 x 3 elements, element i being 3 i - 4, of unsigned types 3 i, of bool i % 2."""
    i = np.arange(6)
    return (i % 2 if dtype == "bool" else 3 * i if dtype.startswith("u") else 3 * i - 4).astype(dtype).reshape(2, 3)


def typed(name, onnx_type, array):
    """The numbers in the field of their type."""
    tensor = TensorProto(name=name, data_type=onnx_type, dims=array.shape)
    flat = array.reshape(-1)
    if onnx_type == TensorProto.FLOAT:
        tensor.float_data.extend(flat.tolist())
    elif onnx_type == TensorProto.DOUBLE:
        tensor.double_data.extend(flat.tolist())
    elif onnx_type == TensorProto.INT64:
        tensor.int64_data.extend(flat.tolist())
    elif onnx_type in (TensorProto.UINT32, TensorProto.UINT64):
        tensor.uint64_data.extend(flat.tolist())
    elif onnx_type == TensorProto.FLOAT16:
        tensor.int32_data.extend(flat.view(np.uint16).tolist())
    else:
        tensor.int32_data.extend(flat.astype(np.int32).tolist())
    return tensor


def tensors():
    for name, onnx_type in WHOLE.items():
        array = values(name)
        yield typed("typed " + name, onnx_type, array)
        yield TensorProto(name="raw " + name, data_type=onnx_type, dims=array.shape, raw_data=array.tobytes())
    yield TensorProto(name="raw int4", data_type=TensorProto.INT4, dims=[5], raw_data=bytes([0x21, 0xf7, 0x08]))
    yield TensorProto(name="typed uint4", data_type=TensorProto.UINT4, dims=[5], int32_data=[0x21, 0xf7, 0x08])
    yield TensorProto(name="text", data_type=TensorProto.STRING, dims=[2], string_data=[b"one", b"\x00two"])
    yield TensorProto(name="empty", data_type=TensorProto.FLOAT, dims=[0, 3])


def every():
    body = helper.make_graph([helper.make_node("Add", ["x", "b"], ["s"])], "body", [], [helper.make_tensor_value_info("s", TensorProto.FLOAT, None)])
    inner = helper.make_tensor("value", TensorProto.FLOAT, [1], [2.5])
    node = helper.make_node("Every", ["x", "", "typed int64"], ["y", "z"], name="node", domain="test", number=-7, real=0.5, text="words", tensor=inner, graph=body,
                            reals=[0.25, -1.0], numbers=[1, -2, 1 << 40], texts=["a", "bc"], tensors=[inner, inner], graphs=[body, body])
    function = helper.make_function("test", "Twice", ["a"], ["c"], [helper.make_node("Mul", ["a", "k"], ["c"])], [helper.make_opsetid("", 21)], ["k"])
    graph = helper.make_graph([node], "all of it", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, None])],
                              [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, None)], list(tensors()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("test", 3)], functions=[function], producer_name="golden")
    model.ir_version = 10
    helper.set_model_props(model, {"key": "value"})
    return model


def external():
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "external.bin"), ("offset", "8"), ("length", "12")):
        tensor.external_data.add(key=key, value=value)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def linear():
    """y = relu(x w + b), flattened to rows of 2 by a shape that is computed."""
    w = helper.make_tensor("w", TensorProto.FLOAT, [3, 4], np.arange(12, dtype=np.float32) / 4 - 1)
    b = helper.make_tensor("b", TensorProto.FLOAT, [4], [0.5, -0.5, 0.25, 0])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["s"]), helper.make_node("Relu", ["s"], ["r"]),
             helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "zero"], ["n"]),
             helper.make_node("Mul", ["n", "two"], ["rows"]), helper.make_node("Concat", ["rows", "two"], ["sizes"], axis=0),
             helper.make_node("Reshape", ["r", "sizes"], ["y"])]
    graph = helper.make_graph(nodes, "linear", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])],
                              [w, b, helper.make_tensor("zero", TensorProto.INT64, [1], [0]), helper.make_tensor("two", TensorProto.INT64, [1], [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def boxes(inside, given=False):
    """The chosen boxes as floats; `inside` a branch. `given`: the branch chooses them, and gives them."""
    values = [helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 4, 4]), helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1, 4]),
              helper.make_tensor_value_info("which", TensorProto.BOOL, [])]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    read = helper.make_node("Cast", ["chosen"], ["y"], to=TensorProto.FLOAT)
    branch = helper.make_graph([helper.make_node("Cast", ["chosen"], ["z"], to=TensorProto.FLOAT)], "branch", [],
                               [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    choose = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["chosen"])
    if given:
        branch = helper.make_graph([choose], "branch", [], [helper.make_tensor_value_info("chosen", TensorProto.INT64, None)])
        y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    if inside:
        read = helper.make_node("If", ["which"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([read] if given else [choose, read], "boxes", values if inside else values[:2], [y],
                              [helper.make_tensor("most", TensorProto.INT64, [1], [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    os.makedirs(HERE, exist_ok=True)
    for name, model in (("every", every()), ("external", external()), ("linear", linear()), ("boxes", boxes(False)), ("boxes_if", boxes(True)),
                        ("boxes_out", boxes(True, True))):
        with open(os.path.join(HERE, name + ".onnx"), "wb") as file:
            file.write(model.SerializeToString())
    with open(os.path.join(HERE, "external.bin"), "wb") as file:
        file.write(b"\xff" * 8 + np.array([1.5, -2.5, 3.5], np.float32).tobytes())


if __name__ == "__main__":
    main()
