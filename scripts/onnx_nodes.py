#!/usr/bin/env python3
"""The node tests of the PyPI package onnx through mica: each case is written as a file, imported, run on a device, compared.

    onnx_nodes.py LIBMICA [--device ID] [--match TEXT] [--list] [--pack ARCHIVE]

A case is imported with the shapes of its inputs; where that is refused, once more with its integer and bool inputs and its numbers known, as they are where they
come out of a model instead of a test; results whose size is in their elements (Unique, NonZero) need all inputs known. Prints passed, refused with the reason, wrong. A type that mica has not is counted apart. --pack writes the cases that
tests/graph/test_onnx_nodes.c runs."""
import argparse
import collections
import ctypes
import os
import struct
import sys
import tempfile
import warnings

import numpy as np
import onnx
from onnx import TensorProto
from onnx.backend.test.case.node import collect_testcases

warnings.filterwarnings("ignore")
DIMS = 8
NAMES = ["none", "f32", "f16", "bf16", "f64", "f8_e4m3", "f8_e5m2", "e8m0", "c64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"]
NUMPY = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2", "int8": "i8",
         "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool"}
SUPPORTED = {TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
             TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.UINT32, TensorProto.UINT64, TensorProto.BFLOAT16,
             TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2}


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("ndim", ctypes.c_uint32), ("shape", ctypes.c_uint64 * DIMS), ("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64)]


class Array(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("ndim", ctypes.c_uint32), ("shape", ctypes.c_uint64 * DIMS), ("data", ctypes.c_void_p),
                ("bytes", ctypes.c_uint64), ("buffer", ctypes.c_void_p)]


class Refused(Exception):
    pass


class Mica:
    def __init__(self, path, device):
        self.lib = ctypes.CDLL(path)
        self.lib.mica_status_message.restype = ctypes.c_char_p
        self.lib.mica_onnx_release.argtypes = self.lib.mica_graph_release.argtypes = self.lib.mica_executable_release.argtypes = [ctypes.c_void_p]
        self.device = ctypes.c_void_p()
        self.must(self.lib.mica_device_open(device.encode(), None, ctypes.byref(self.device)))

    def must(self, status):
        if status != 0:
            raise Refused(self.lib.mica_status_message().decode("utf-8", "replace"))

    def graph(self, path, inputs, known):
        """The graph of a file; `known` are the names whose values are given."""
        model, graph = ctypes.c_void_p(), ctypes.c_void_p()
        given = (Tensor * max(len(inputs), 1))()
        for slot, (name, array) in zip(given, inputs.items()):
            slot.name, slot.ndim = name.encode(), array.ndim
            slot.shape[:array.ndim] = array.shape
            if name in known:
                slot.data, slot.bytes = array.ctypes.data, array.nbytes
        self.must(self.lib.mica_onnx_open(path.encode(), ctypes.byref(model)))
        try:
            self.must(self.lib.mica_onnx_graph(model, given, len(inputs), ctypes.byref(graph)))
        finally:
            self.lib.mica_onnx_release(model)
        return graph

    def run(self, path, inputs, outputs, known):
        """The outputs, like `outputs` in order and types."""
        graph, executable = self.graph(path, inputs, known), ctypes.c_void_p()
        try:
            self.must(self.lib.mica_graph_compile(graph, self.device, None, ctypes.byref(executable)))
        finally:
            self.lib.mica_graph_release(graph)
        try:
            fed = {n: a for n, a in inputs.items() if n not in known}
            ins, outs, results = (Array * max(len(fed), 1))(), (Array * len(outputs))(), []
            for slot, (name, array) in zip(ins, fed.items()):
                slot.name, slot.dtype, slot.ndim = name.encode(), NAMES.index(NUMPY[array.dtype.name]), array.ndim
                slot.shape[:array.ndim] = array.shape
                slot.data, slot.bytes = array.ctypes.data, array.nbytes
            room = [np.zeros(a.nbytes * 2 + 4096, np.uint8) for _, a in outputs]
            for slot, (name, array), memory in zip(outs, outputs, room):
                slot.name, slot.data, slot.bytes = name.encode(), memory.ctypes.data, memory.nbytes
            self.must(self.lib.mica_executable_run(executable, ins, len(fed), outs, len(outputs)))
            for slot, (name, array), memory in zip(outs, outputs, room):
                shape = tuple(slot.shape[:slot.ndim])
                if shape != array.shape or NAMES[slot.dtype] != NUMPY[array.dtype.name]:
                    results.append("%s%s instead of %s%s" % (NAMES[slot.dtype], shape, NUMPY[array.dtype.name], array.shape))
                else:
                    results.append(memory[:array.nbytes].view(array.dtype).reshape(shape))
            return results
        finally:
            self.lib.mica_executable_release(executable)


def types_of(graph):
    """Every tensor type that the graph says."""
    found = set()
    for value in list(graph.input) + list(graph.output) + list(graph.value_info):
        found.add(value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else -1)
    for tensor in graph.initializer:
        found.add(tensor.data_type)
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                found |= types_of(a.g)
            if a.type == onnx.AttributeProto.TENSOR:
                found.add(a.t.data_type)
            if a.name in ("to", "dtype", "output_dtype") and a.i:
                found.add(a.i)
    return found


def tolerance(case, want):
    return max(case.rtol, {"float16": 2.0 ** -9, "bfloat16": 2.0 ** -6}.get(want.dtype.name, 0)), max(case.atol, 1e-6)


def same(got, want, case):
    """None, or how they differ. 16-bit floats may be two of their roundings apart: an expanded function rounds after each of its steps, and in another order."""
    if isinstance(got, str):
        return got
    rtol, atol = tolerance(case, want)
    if want.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        got, want = got.astype(np.float32), want.astype(np.float32)
    if want.dtype.kind in "fc":
        if not np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
            return "off by %g" % np.nanmax(np.abs(got.astype(np.float64) - want.astype(np.float64)))
    elif not np.array_equal(got, want):
        return "%d of %d differ" % (np.sum(got != want), want.size)
    return None


def pack(path, passed):
    """An archive for tests/graph/test_onnx_nodes.c: of each operator with each set of attributes the smallest case, all of com.microsoft, little endian: name, known inputs, tolerances, the model,
    inputs, outputs."""
    def text(data):
        return struct.pack("<I", len(data)) + data

    def array(a):
        return struct.pack("<II%dQ" % a.ndim, NAMES.index(NUMPY[a.dtype.name]), a.ndim, *a.shape) + text(np.ascontiguousarray(a).tobytes())
    have, kept = set(), []
    for case, inputs, outputs, known in sorted(passed, key=lambda c: (len(c[0].model.SerializeToString()) + sum(a.nbytes for a in c[1].values()) +
                                                                      sum(a.nbytes for _, a in c[2]), c[0].name)):
        operators = {(n.op_type, *sorted(a.name + (a.s.decode() if len(a.s) < 32 else "") for a in n.attribute)) for n in case.model.graph.node}
        if operators <= have and "contrib" not in case.name:
            continue
        have |= operators
        case.model.graph.doc_string = ""
        kept.append(text(case.name.encode()) + struct.pack("<Bdd", 0 if not known else 2 if known == set(inputs) else 1, *tolerance(case, outputs[0][1])) +
                    text(case.model.SerializeToString()) + struct.pack("<II", len(inputs), len(outputs)) + b"".join(array(a) for a in inputs.values()) +
                    b"".join(array(a) for _, a in outputs))
    with open(path, "wb") as file:
        file.write(b"nodes\n" + struct.pack("<I", len(kept)) + b"".join(kept))
    print("%s: %d cases, %d bytes" % (path, len(kept), os.path.getsize(path)))


RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}


def arrays_of(case):
    """Inputs and outputs by name."""
    data_in, data_out = case.data_sets[0]
    arrays = [np.ascontiguousarray(a) if isinstance(a, np.ndarray) and a.ndim else np.asarray(a) for a in data_in]
    return ({v.name: a for v, a in zip(case.model.graph.input, arrays)}, [(v.name, np.asarray(a)) for v, a in zip(case.model.graph.output, data_out)])


def run_case(mica, case, folder):
    """('passed' | 'refused' | 'wrong' | 'type', reason, known names)."""
    path = os.path.join(folder, "model.onnx")
    if not types_of(case.model.graph) <= SUPPORTED:
        return "type", "", set()
    inputs, outputs = arrays_of(case)
    if any(a.dtype.name not in NUMPY for a in inputs.values()) or any(a.dtype.name not in NUMPY for _, a in outputs):
        return "type", "", set()
    with open(path, "wb") as file:
        file.write(case.model.SerializeToString())
    whole = {n for n, a in inputs.items() if a.dtype.kind in "iub" or a.size == 1}
    reason = ""
    for known in (set(), whole, set(inputs)):
        try:
            results = mica.run(path, inputs, outputs, known)
        except Refused as error:
            reason = str(error)
            continue
        if any(n.op_type in RANDOM for n in case.model.graph.node):
            bad = [r for r in results if isinstance(r, str)]
        else:
            bad = [b for b in (same(r, w, case) for r, (_, w) in zip(results, outputs)) if b]
        return ("wrong", "; ".join(bad), known) if bad else ("passed", "", known)
    return "refused", reason, set()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--match", default="")
    parser.add_argument("--list", action="store_true", help="every case that did not pass, with the reason")
    parser.add_argument("--contrib", action="store_true", help="operators of com.microsoft as well, beside ONNX Runtime")
    parser.add_argument("--pack", help="write the cases that passed and are small into an archive")
    options = parser.parse_args()
    cases = [c for c in collect_testcases(None) if options.match in c.name]
    if options.contrib:
        import onnx_contrib
        cases += [c for c in onnx_contrib.collect() if options.match in c.name]
    counts, passed = collections.Counter(), []
    mica = Mica(options.library, options.device)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            with open(os.path.join(folder, "current"), "w") as file:
                file.write(case.name)
            if os.environ.get("ONNX_NODES_VERBOSE"):
                print("...", case.name, flush=True)
            verdict, reason, known = run_case(mica, case, folder)
            counts[verdict] += 1
            if verdict == "wrong" or (verdict == "refused" and options.list):
                print(verdict, case.name, reason, flush=True)
            if verdict == "passed" and options.pack and not any(n.op_type in RANDOM for n in case.model.graph.node):
                inputs, outputs = arrays_of(case)
                if sum(a.nbytes for a in inputs.values()) + sum(a.nbytes for _, a in outputs) < 6000:
                    passed.append((case, inputs, outputs, known))
    if options.pack:
        pack(options.pack, passed)
    known_types = counts["passed"] + counts["refused"] + counts["wrong"]
    print("%d cases: %d of types that mica has: %d passed (%.1f %%), %d refused, %d wrong" %
          (len(cases), known_types, counts["passed"], 100 * counts["passed"] / max(known_types, 1), counts["refused"], counts["wrong"]))
    return counts["wrong"] != 0


if __name__ == "__main__":
    sys.exit(main())
