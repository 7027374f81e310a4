#!/usr/bin/env python3
"""Graphs on the cpu beside numpy, PyTorch, ONNX Runtime and FFTW: medians and ratios of the same run.

    bench_graph.py LIBMICA [--only 'CASE;CASE'] [--threads 2] [--seconds 1] [--rounds 3] [--peers NAMES] [--folder DIR] [--export] [--compiled] [--json]

Each program is a process of its own that computes only when it is its turn, so that no pool of threads waits beside another; they take turns `rounds` times, `seconds` in
all. A row says the median of each, in microseconds, the least in brackets, how far apart the least and greatest median of mica's turns are, the ratio of the fastest peer's median to mica's (above
1: mica is faster), and the greatest difference of mica's output from that peer's over its greatest element. Models are made by PyTorch with random weights, and written as
ONNX files into the folder once (--export: nothing but that). --compiled: torch.compile for models too, which takes minutes. --peers 'fftw;numpy': no others. Peers that are
not installed are left out."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
COMPILE_STATS = ["nodes_in", "nodes_out", "records", "dispatches", "plans", "compile_ns", "arena_bytes", "arena_bound", "parameter_bytes", "io_bytes"]

# ---- cases ----


def chain_numpy(np_like, x, y, z):
    """Ten elementwise operations."""
    t = x * y + z
    t = np_like.maximum(t, x) - y
    t = t * z + x
    t = np_like.minimum(t, y) * z
    return t * t + y


def chain_exp_numpy(np_like, x, y, z):
    """Ten, two of them exponentials."""
    t = np_like.exp(x) * y + z
    t = np_like.maximum(t, x) - y
    t = np_like.exp(-np_like.abs(t))
    return t * z + x


CHAINS = {"plain": chain_numpy, "exp": chain_exp_numpy}
MLPS = {"784-512-512-10": ([784, 512, 512, 10], "relu"), "768-3072-768": ([768, 3072, 768], "gelu"), "1024x4": ([1024] * 5, "gelu"),
        "4096x2": ([4096] * 3, "relu")}


def cases():
    """name -> (kind, parameters)"""
    result = {}
    for kind in CHAINS:
        for exponent in (4, 5, 6, 7):
            result["chain %s 10^%d" % (kind, exponent)] = ("chain", (kind, 10 ** exponent))
    for name in MLPS:
        for rows in (1, 4, 8, 16, 32, 64, 128, 256, 512):
            result["mlp %s, %d" % (name, rows)] = ("model", ("mlp", name, rows))
    for images in (1, 2, 4, 8, 16):
        result["resnet18, %d" % images] = ("model", ("resnet", images))
    for batch, tokens in ((1, 16), (1, 32), (1, 64), (1, 128), (1, 256), (1, 512), (2, 128), (4, 128), (8, 128)):
        result["bert, %d x %d" % (batch, tokens)] = ("model", ("bert", batch, tokens))
    for n in [2 ** k for k in range(8, 21)] + [243, 375, 1215, 2025, 3375, 18225, 30375, 32805, 455625, 759375]:
        result["fft, %d" % n] = ("fft", (n, 1))
        if n <= 2 ** 14:
            result["fft, %d rows of %d" % (2 ** 16 // n, n)] = ("fft", (n, 2 ** 16 // n))
    return result


# ---- models ----


def make_mlp(torch, name, rows):
    widths, act = MLPS[name]
    layers = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        layers.append(torch.nn.Linear(a, b))
        if i + 2 < len(widths):
            layers.append(torch.nn.ReLU() if act == "relu" else torch.nn.GELU())
    return torch.nn.Sequential(*layers), (torch.randn(rows, widths[0]),), ["x"]


def make_resnet(torch, images):
    import torchvision
    return torchvision.models.resnet18(weights=None), (torch.randn(images, 3, 224, 224),), ["x"]


def make_bert(torch, batch, tokens):
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(), add_pooling_layer=False)  # the sizes of BERT-base

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids).last_hidden_state
    return Encoder(), (torch.randint(0, 30000, (batch, tokens)),), ["ids"]


MAKERS = {"mlp": make_mlp, "resnet": make_resnet, "bert": make_bert}


def make(torch, parameters):
    torch.manual_seed(1)
    model, inputs, names = MAKERS[parameters[0]](torch, *parameters[1:])
    return model.eval(), inputs, names


def path_of(folder, name):
    return os.path.join(folder, "".join(c if c.isalnum() else "_" for c in name) + ".onnx")


def export(folder, name, parameters):
    """The file of a case; weights of the greater ones lie beside it."""
    path = path_of(folder, name)
    if os.path.exists(path):
        return
    import torch
    model, inputs, names = make(torch, parameters)
    with torch.no_grad():
        torch.onnx.export(model, inputs, path, input_names=names, dynamo=True, verbose=False)


def feeds_of(path, seed):
    """Numbers for the inputs of a file."""
    import onnx
    random, result = np.random.default_rng(seed), {}
    graph = onnx.load(path, load_external_data=False).graph
    for i in graph.input:
        shape = [d.dim_value for d in i.type.tensor_type.shape.dim]
        whole = i.type.tensor_type.elem_type == onnx.TensorProto.INT64
        result[i.name] = random.integers(0, 30000, shape) if whole else random.standard_normal(shape).astype(np.float32)
    return result


def chain_inputs(count):
    random = np.random.default_rng(3)
    return [random.uniform(-1, 1, count).astype(np.float32) for _ in range(3)]


def fft_input(n, rows):
    random = np.random.default_rng(4)
    return (random.standard_normal((rows, n)) + 1j * random.standard_normal((rows, n))).astype(np.complex64)


# ---- programs: each gives a function to call again and again, one that gives the output, and facts ----


class Mica:
    def __init__(self, options):
        import onnx_nodes
        self.nodes = onnx_nodes
        self.mica = onnx_nodes.Mica(options.library, "cpu")
        lib = self.lib = self.mica.lib
        self.last = None
        for name in ("mica_graph_input", "mica_graph_scalar", "mica_graph_fourier"):
            getattr(lib, name).restype = ctypes.c_uint32
        lib.mica_graph_input.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p]
        lib.mica_graph_output.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32]
        lib.mica_graph_scalar.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32]
        lib.mica_graph_fourier.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint64, ctypes.c_int32]
        lib.mica_buffer_alloc.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p]
        lib.mica_buffer_write.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]
        lib.mica_executable_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32]
        lib.mica_scalar_name.restype = ctypes.c_char_p

    def scalar(self, name):
        for i in range(1, 200):
            if self.lib.mica_scalar_name(i) == name.encode():
                return i
        raise KeyError(name)

    def compiled(self, graph, inputs):
        """A graph with arrays for its inputs, which lie on the device."""
        executable = ctypes.c_void_p()
        self.mica.must(self.lib.mica_graph_compile(graph, self.mica.device, None, ctypes.byref(executable)))
        ins = (self.nodes.Array * len(inputs))()
        for slot, (name, array) in zip(ins, inputs.items()):
            dtype = "c64" if array.dtype == np.complex64 else self.nodes.NUMPY[array.dtype.name]
            buffer, shape = ctypes.c_void_p(), (ctypes.c_uint64 * 8)(*array.shape)
            self.mica.must(self.lib.mica_buffer_alloc(self.mica.device, self.nodes.NAMES.index(dtype), array.ndim, shape, ctypes.byref(buffer)))
            self.mica.must(self.lib.mica_buffer_write(buffer, 0, array.ctypes.data, array.nbytes))
            slot.name, slot.dtype, slot.ndim, slot.buffer = name.encode(), 0, array.ndim, buffer.value
            slot.shape[:array.ndim] = array.shape
        run, count, must = self.lib.mica_executable_run, len(inputs), self.mica.must

        def call():
            must(run(executable, ins, count, None, 0))

        def output(name, shape, dtype):
            result = np.zeros(shape, dtype)
            out = (self.nodes.Array * 1)()
            out[0].name, out[0].data, out[0].bytes = name.encode(), result.ctypes.data, result.nbytes
            must(run(executable, ins, count, out, 1))
            return result

        def facts():
            stats, memory = (ctypes.c_uint64 * 16)(), (ctypes.c_uint64 * 16)()
            must(self.lib.mica_executable_get_stats(executable, stats))
            must(self.lib.mica_device_get_memory(self.mica.device, memory))
            result = dict(zip(COMPILE_STATS, stats))
            result["owned_bytes"], result["owned_peak_bytes"] = memory[0], memory[1]
            return result

        self.last = (executable, graph, [slot.buffer for slot in ins])
        return call, output, facts

    def release(self):
        """What the case before left."""
        if self.last:
            executable, graph, buffers = self.last
            self.lib.mica_executable_release(executable)
            self.lib.mica_graph_release(graph)
            for buffer in buffers:
                self.lib.mica_buffer_release(ctypes.c_void_p(buffer))
        self.last = None

    def chain(self, kind, count):
        self.release()
        lib, graph, arrays = self.lib, ctypes.c_void_p(), chain_inputs(count)
        self.mica.must(lib.mica_graph_create(ctypes.byref(graph)))
        shape = (ctypes.c_uint64 * 8)(count)

        class Value:
            """A tensor with numpy's operators."""

            def __init__(value, tensor):
                value.tensor = tensor

            def of(value, name, *others):
                given = [value.tensor] + [o.tensor for o in others] + [0, 0]
                return Value(lib.mica_graph_scalar(graph, self.scalar(name), *given[:3]))
            __add__, __mul__ = (lambda a, b: a.of("add", b)), (lambda a, b: a.of("mul", b))
            __sub__, __neg__ = (lambda a, b: a.of("sub", b)), (lambda a: a.of("neg"))

        class Like:
            maximum, minimum = staticmethod(lambda a, b: a.of("max", b)), staticmethod(lambda a, b: a.of("min", b))
            exp, abs = staticmethod(lambda a: a.of("exp")), staticmethod(lambda a: a.of("abs"))
        values = [Value(lib.mica_graph_input(graph, name, 1, 1, shape)) for name in (b"x", b"y", b"z")]
        lib.mica_graph_output(graph, b"out", CHAINS[kind](Like, *values).tensor)
        call, output, facts = self.compiled(graph, dict(zip("xyz", arrays)))
        return call, lambda: output("out", (count,), np.float32), facts

    def fft(self, n, rows):
        self.release()
        graph, shape = ctypes.c_void_p(), (ctypes.c_uint64 * 8)(rows, n)
        self.mica.must(self.lib.mica_graph_create(ctypes.byref(graph)))
        x = self.lib.mica_graph_input(graph, b"x", self.nodes.NAMES.index("c64"), 2, shape)
        self.lib.mica_graph_output(graph, b"y", self.lib.mica_graph_fourier(graph, x, 0, 0, 0, 0, -1))
        call, output, facts = self.compiled(graph, {"x": fft_input(n, rows)})
        return call, lambda: output("y", (rows, n), np.complex64), facts

    def model(self, path, *_):
        import onnx
        self.release()
        feeds = feeds_of(path, 1)
        graph = self.mica.graph(path, feeds, set())
        result = onnx.load(path, load_external_data=False).graph.output[0]
        shape = [d.dim_value for d in result.type.tensor_type.shape.dim]
        call, output, facts = self.compiled(graph, feeds)
        return call, lambda: output(result.name, shape, np.float32), facts


class Numpy:
    def __init__(self, options):
        pass

    def chain(self, kind, count):
        arrays = chain_inputs(count)

        def call():
            return CHAINS[kind](np, *arrays)
        return call, call, dict


class Torch:
    compiled = False

    def __init__(self, options):
        import torch
        self.torch = torch
        torch.set_num_threads(options.threads)
        torch.set_grad_enabled(False)

    def ready(self, call):
        return self.torch.compile(call) if self.compiled else call

    def chain(self, kind, count):
        arrays = [self.torch.from_numpy(a) for a in chain_inputs(count)]
        function = self.ready(lambda x, y, z: CHAINS[kind](self.torch, x, y, z))

        def call():
            return function(*arrays)
        return call, lambda: call().numpy(), dict

    def model(self, path, *parameters):
        model, _, names = make(self.torch, parameters)
        feeds = feeds_of(path, 1)
        model, given = self.ready(model), [self.torch.from_numpy(feeds[n]) for n in names]

        def call():
            return model(*given)
        return call, lambda: call().numpy(), dict

    def fft(self, n, rows):
        x, function = self.torch.from_numpy(fft_input(n, rows)), self.torch.fft.fft

        def call():
            return function(x)
        return call, lambda: call().numpy(), dict


class TorchCompiled(Torch):
    compiled = True


class OnnxRuntime:
    def __init__(self, options):
        import onnxruntime
        self.runtime, self.threads = onnxruntime, options.threads

    def model(self, path, *_):
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        session = self.runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feeds = feeds_of(path, 1)

        def call():
            return session.run(None, feeds)[0]
        return call, call, dict


class Fftw:
    def __init__(self, options):
        import pyfftw
        self.pyfftw, self.threads = pyfftw, options.threads

    def fft(self, n, rows):
        x, y = (self.pyfftw.empty_aligned((rows, n), "complex64", n=64) for _ in range(2))
        plan = self.pyfftw.FFTW(x, y, axes=(1,), flags=("FFTW_MEASURE",), threads=self.threads)
        x[:] = fft_input(n, rows)

        def output():
            plan.execute()
            return y
        return plan.execute, output, dict


PROGRAMS = {"mica": Mica, "numpy": Numpy, "torch": Torch, "torch compiled": TorchCompiled, "onnxruntime": OnnxRuntime, "fftw": Fftw}
PEERS = {"chain": ["numpy", "torch", "torch compiled"], "model": ["torch", "onnxruntime"], "fft": ["fftw", "torch"]}

# ---- a process of its own ----


def slice_of(call, seconds):
    """Times of calls that take `seconds` together; short ones several at once."""
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    group = max(1, int(50e-6 / max(once, 1e-7)))
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(group):
            call()
        times.append((time.perf_counter() - start) / group)
    return times


def serve(options):
    """Commands from the parent, one a line: prepare a case, run a slice of it."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    program = PROGRAMS[options.worker](options)
    print(json.dumps({"ready": True}), file=answer, flush=True)
    call = facts = None
    for line in sys.stdin:
        word = json.loads(line)
        try:
            if "kind" in word:
                parameters = word["parameters"]
                call, output, facts = getattr(program, word["kind"])(*parameters)
                start = time.perf_counter()
                result = output()
                first = time.perf_counter() - start
                np.save(word["output"], result)
                call()
                reply = {"first_us": first * 1e6, **facts()}
            else:
                reply = {"times": slice_of(call, word["seconds"])}
        except Exception as error:
            reply = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
        print(json.dumps(reply), file=answer, flush=True)


class Worker:
    def __init__(self, name, options):
        threads = str(options.threads)
        environment = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, MICA_THREADS=threads)
        command = [sys.executable, os.path.abspath(__file__), options.library, "--worker", name, "--threads", threads]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        self.works = self.process.stdout.readline() != ""

    def ask(self, word):
        self.process.stdin.write(json.dumps(word) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "it ended"}

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(workers, folder, name, kind, parameters, options):
    names = ["mica"] + [p for p in PEERS[kind] + (["torch compiled"] if options.compiled and kind == "model" else [])
                        if options.peers is None or p in options.peers.split(";")]
    given = [path_of(folder, name)] + list(parameters) if kind == "model" else list(parameters)
    row, live = {"case": name, "threads": options.threads}, []
    for program in names:
        worker = workers.get(program)
        if worker is None:
            worker = workers[program] = Worker(program, options)
        if not worker.works:
            continue
        reply = worker.ask({"kind": kind, "parameters": given, "output": os.path.join(folder, program + ".npy")})
        if "error" in reply:
            print("%-28s %s: %s" % (name, program, reply["error"]), file=sys.stderr, flush=True)
            continue
        row[program] = {"medians": [], **reply}
        live.append(worker)
    for _ in range(options.rounds):
        for worker in live:
            times = worker.ask({"seconds": options.seconds / options.rounds})["times"]
            row[worker.name]["medians"].append(statistics.median(times) * 1e6)
            row[worker.name]["least"] = min([row[worker.name].get("least", 1e30), min(times) * 1e6])
    for worker in live:
        row[worker.name]["us"] = statistics.median(row[worker.name]["medians"])
    peers = [w.name for w in live if w.name != "mica" and (kind != "fft" or w.name == "fftw" or "fftw" not in row)]
    if "mica" in row and peers:
        best = min(peers, key=lambda p: row[p]["us"])
        a, b = (np.load(os.path.join(folder, p + ".npy")) for p in ("mica", best))
        row["best"], row["ratio"] = best, row[best]["us"] / row["mica"]["us"]
        row["ratio_of_least"] = min(row[p]["least"] for p in peers) / row["mica"]["least"]
        row["difference"] = float(np.abs(a - b).max() / np.abs(b).max()) if a.shape == b.shape else float("inf")
    return row


def show(row):
    us = ["%s %.1f (%.1f)" % (p, row[p]["us"], row[p]["least"]) for p in PROGRAMS if p in row]
    medians = row["mica"]["medians"] if "mica" in row else [0]
    print("%-28s %d  %-70s spread %.2f  %s" % (row["case"], row["threads"], ", ".join(us), max(medians) / max(min(medians), 1e-9),
          "%.2f of %s, %.2f by the least, difference %.1e" % (row["ratio"], row["best"], row["ratio_of_least"], row["difference"]) if "ratio" in row else ""), flush=True)
    if "mica" in row and row["mica"]["arena_bound"] > 0:
        m = row["mica"]
        print("%-28s    %d records, compiled in %.1f ms, first run %.1f ms; arena %.1f MB, %.3f of its bound; owned %.1f MB, at most %.1f" %
              ("", m["records"], m["compile_ns"] * 1e-6, m["first_us"] * 1e-3, m["arena_bytes"] * 1e-6, m["arena_bytes"] / m["arena_bound"],
               m["owned_bytes"] * 1e-6, m["owned_peak_bytes"] * 1e-6), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--only", default="", help="names of cases, or what they begin with")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", help="those to take turns with; all by default")
    parser.add_argument("--folder", default=os.path.join(os.path.expanduser("~"), ".cache", "mica", "bench_graph"))
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve(options)
    os.makedirs(options.folder, exist_ok=True)
    every, words = cases(), options.only.split(";")
    wanted = {n: c for n, c in every.items() if any(n == w if w in every else n.startswith(w) for w in words)}
    for name, (kind, parameters) in wanted.items():
        if kind == "model":
            export(options.folder, name, parameters)
    if options.export:
        return None
    workers = {}
    try:
        for name, (kind, parameters) in wanted.items():
            row = measure(workers, options.folder, name, kind, parameters, options)
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                show(row)
    finally:
        for worker in workers.values():
            worker.end()


if __name__ == "__main__":
    sys.exit(main())
