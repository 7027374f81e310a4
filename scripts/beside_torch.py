#!/usr/bin/env python3
"""Training beside PyTorch, from the same weights over the same batches with the same optimiser, on as many threads.

    VENV/bin/python scripts/beside_torch.py mnist BUILD FOLDER [STEPS]    (VENV has torch and numpy; FOLDER the idx files, unpacked)
    VENV/bin/python scripts/beside_torch.py charlm BUILD TEXT [STEPS]
    VENV/bin/python scripts/beside_torch.py gpt BUILD "OPTIONS" [STEPS]
    VENV/bin/python scripts/beside_torch.py golden

mnist: the convolutional network of examples/mnist.c; loss of an epoch, and the time of a step. charlm: the model of examples/charlm.c; its loss at some steps beside
PyTorch's in f32 and in f64, and the time of a step. gpt: the model of examples/gpt.c with such options ("" or "--layers 12 --width 768 .."), its losses in each precision
beside PyTorch's in f32, and the time of a step. golden: writes tests/golden/gpt_curve.json, PyTorch's losses of 200 steps of the model without options."""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

THREADS = int(os.environ.get("MICA_THREADS", os.cpu_count()))
torch.set_num_threads(THREADS)


def run(*command):
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MICA_THREADS": str(THREADS)})
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout, time.perf_counter() - began


def safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: torch.from_numpy(np.frombuffer(data[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"]).copy())
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"}


# ---- mnist: momentum 0.9, batches of 100 in the order of the file ----

def drawn(shapes):
    """The values that mnist.c begins with."""
    state, out = 1, {}
    for name, shape in shapes.items():
        count, fan = int(np.prod(shape)), int(np.prod(shape[1:]))
        values = np.zeros(count, np.float32)
        for i in range(count):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            if len(shape) > 1:
                values[i] = (np.float32(state >> 40) * np.float32(2.0**-23) - np.float32(1)) / np.float32(fan) * np.float32(8)
        out[name] = torch.from_numpy(values.reshape(shape)).requires_grad_()
    return out


def mnist(build, folder, steps):
    pixels = np.fromfile(os.path.join(folder, "train-images-idx3-ubyte"), np.uint8)[16:].reshape(-1, 1, 28, 28)
    labels = torch.from_numpy(np.fromfile(os.path.join(folder, "train-labels-idx1-ubyte"), np.uint8)[8:].astype(np.int64))
    images = torch.from_numpy(pixels.astype(np.float32) / np.float32(255))
    w = drawn({"conv1.weight": (8, 1, 3, 3), "conv1.bias": (8,), "conv2.weight": (16, 8, 3, 3), "conv2.bias": (16,),
               "fc1.weight": (10, 784), "fc1.bias": (10,)})
    optimiser = torch.optim.SGD(w.values(), lr=0.05, momentum=0.9)
    times, total = [], 0.0
    for step in range(steps):
        began = time.perf_counter()
        x, y = images[step * 100:step * 100 + 100], labels[step * 100:step * 100 + 100]
        h = F.max_pool2d(F.relu(F.conv2d(x, w["conv1.weight"], w["conv1.bias"], padding=1)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, w["conv2.weight"], w["conv2.bias"], padding=1)), 2)
        loss = F.cross_entropy(F.linear(h.flatten(1), w["fc1.weight"], w["fc1.bias"]), y)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        total += loss.item()
        times.append(time.perf_counter() - began)
    out, _ = run(os.path.join(build, "examples", "mnist"), folder, "conv", "cpu", "1")
    loss, ms = re.search(r"loss ([\d.]+), .* right, ([\d.]+) ms", out).groups()
    theirs = 1000 * sum(times) / len(times)
    print(f"torch {torch.__version__}, {THREADS} threads: loss {total / steps:.4f}, {theirs:.3f} ms a step (median {1000 * sorted(times)[steps // 2]:.3f})")
    print(f"mica: loss {loss} of 600 steps, {ms} ms a step: {theirs / float(ms):.2f}x")


# ---- charlm: AdamW of rate 3e-3, pieces of the text by the step ----

LENGTH, BATCH, HEADS, KV_HEADS, LAYERS = 64, 8, 4, 2, 2


def rope(x):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def logits(w, tokens):
    x = w["table"][tokens]
    for i in range(LAYERS):
        p = {name[2:]: value for name, value in w.items() if name.startswith(f"{i}.")}
        h = norm(x, p["norm1"])
        q, k, v = (F.linear(h, p[name]).unflatten(-1, (heads, -1)).transpose(1, 2)
                   for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)))
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (rope(k), v))
        seen = F.scaled_dot_product_attention(rope(q), k, v, is_causal=True)
        x = x + F.linear(seen.transpose(1, 2).flatten(2), p["out"])
        h = norm(x, p["norm2"])
        x = x + F.linear(F.silu(F.linear(h, p["gate"])) * F.linear(h, p["up"]), p["down"])
    return F.linear(norm(x, w["norm"]), w["head"])


def curve(begin, text, steps, dtype):
    w = {name: value.detach().clone().to(dtype).requires_grad_() for name, value in begin.items()}
    optimiser = torch.optim.AdamW(w.values(), lr=3e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses, began = [], time.perf_counter()
    for step in range(1, steps + 1):
        at = [(step * BATCH + b) * 7919 % (len(text) - LENGTH) for b in range(BATCH)]
        tokens = torch.stack([text[i:i + LENGTH] for i in at])
        following = torch.stack([text[i + 1:i + LENGTH + 1] for i in at])
        loss = F.cross_entropy(logits(w, tokens).flatten(0, 1), following.flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses, 1000 * (time.perf_counter() - began) / steps


def charlm(build, path, steps):
    program = os.path.join(build, "examples", "charlm")
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()), dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder:
        keep = os.path.join(folder, "charlm.safetensors")
        _, start = run(program, path, "--device", "cpu", "--steps", "0", "--keep", keep)
        states = safetensors(keep)  # moments of "q" are "q.m" and "q.v"
        begin = {name: value for name, value in states.items() if name[:-2] not in states and not name.startswith("train.")}
        out, seconds = run(program, path, "--device", "cpu", "--steps", str(steps), "--every", "1", "--keep", keep)
    ours = [float(loss) for loss in re.findall(r"loss ([\d.]+)", out)]
    theirs, ms = curve(begin, text, steps, torch.float32)
    exact, _ = curve(begin, text, steps, torch.float64)
    print("| step | mica | PyTorch f32 | PyTorch f64 | mica from f64 | PyTorch f32 from f64 |\n| --- | --- | --- | --- | --- | --- |")
    for step in sorted({s for s in (1, 2, 5, 10, 20, 30, 50, 100, 150, 200) if s <= steps} | {steps}):
        a, b, c = ours[step - 1], theirs[step - 1], exact[step - 1]
        print(f"| {step} | {a:.6f} | {b:.6f} | {c:.6f} | {abs(a - c) / c:.1e} | {abs(b - c) / c:.1e} |")
    worst = [max(abs(a - b) / b for a, b in zip(ours[i:i + 50], theirs[i:i + 50])) for i in range(0, steps, 50)]
    print("greatest relative distance of mica from PyTorch f32 in each 50 steps:", " ".join(f"{w:.1e}" for w in worst))
    print(f"torch {torch.__version__}, {THREADS} threads: {ms:.2f} ms a step; mica: {1000 * (seconds - start) / steps:.2f} ms")


# ---- gpt: AdamW of rate 1e-3 behind 20 steps of warming up, gradients clipped to 1, sequences drawn by the step ----

def draws(state, count):
    """31 bits each of the states behind `state`: a^n state + c (1 + a + .. a^(n-1)), modulo 2^64."""
    with np.errstate(over="ignore"):
        power = np.cumprod(np.full(count, 6364136223846793005, np.uint64))
        series = np.cumsum(np.concatenate([np.ones(1, np.uint64), power[:-1]]))
        states = power * np.uint64(state) + series * np.uint64(1442695040888963407)
    return (states >> np.uint64(33)).astype(np.int64), int(states[-1])


class Gpt:
    def __init__(self, words):
        option = dict(zip(words[::2], map(int, words[1::2])))
        self.layers, self.width, self.heads, self.vocabulary, self.length, self.batch = (
            option.get("--" + name, value) for name, value in
            (("layers", 2), ("width", 64), ("heads", 4), ("vocabulary", 256), ("length", 64), ("batch", 4)))

    def begin(self):
        """name -> values, in the order of gpt.c."""
        width, last = self.width, 0.02 / (2.0 * self.layers) ** 0.5
        shapes = {"tokens": ((self.vocabulary, width), 0.02), "places": ((self.length, width), 0.01)}
        for i in range(self.layers):
            for name, out, fan, deviation in (("norm1", width, 0, -1), ("qkv", 3 * width, width, 0.02), ("out", width, width, last),
                                              ("norm2", width, 0, -1), ("up", 4 * width, width, 0.02), ("down", width, 4 * width, last)):
                shapes[f"{i}.{name}"] = ((out, fan) if fan else (out,), deviation)
                shapes[f"{i}.{name}.bias"] = ((out,), 0)
        shapes.update({"norm": ((width,), -1), "norm.bias": ((width,), 0)})
        state, values = 1, {}
        for name, (shape, deviation) in shapes.items():
            value = np.full(shape, 1 if deviation < 0 else 0, np.float32)
            if deviation > 0:
                bits, state = draws(state, value.size)
                value = ((bits / 1073741824.0 - 1) * (deviation * 3.0 ** 0.5)).astype(np.float32).reshape(shape)
            values[name] = torch.from_numpy(value).requires_grad_()
        return values

    def sequences(self, step):
        """tokens and next [batch, length] as gpt.c draws them."""
        bits, _ = draws(step, self.batch * (1 + 2 * self.length))
        bits, at = bits.tolist(), 0
        rows = []
        for _ in range(self.batch):
            row = [bits[at] % self.vocabulary]
            at += 1
            for _ in range(self.length):
                follows = bits[at] % 4 != 0
                row.append((row[-1] * 31 + 7) % self.vocabulary if follows else bits[at + 1] % self.vocabulary)
                at += 1 if follows else 2
            rows.append(row)
        rows = torch.tensor(rows)
        return rows[:, :-1], rows[:, 1:]

    def loss(self, w, tokens, following):
        x = w["tokens"][tokens] + w["places"]
        for i in range(self.layers):
            p = {name[len(f"{i}."):]: value for name, value in w.items() if name.startswith(f"{i}.")}
            h = F.layer_norm(x, (self.width,), p["norm1"], p["norm1.bias"])
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in F.linear(h, p["qkv"], p["qkv.bias"]).chunk(3, -1))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + F.linear(seen, p["out"], p["out.bias"])
            h = F.layer_norm(x, (self.width,), p["norm2"], p["norm2.bias"])
            x = x + F.linear(F.gelu(F.linear(h, p["up"], p["up.bias"]), approximate="tanh"), p["down"], p["down.bias"])
        return F.cross_entropy(F.linear(F.layer_norm(x, (self.width,), w["norm"], w["norm.bias"]), w["tokens"]).flatten(0, 1), following.flatten())

    def curve(self, steps):
        w = self.begin()
        optimiser = torch.optim.AdamW(w.values(), lr=1e-3, weight_decay=0.1)
        losses, times = [], []
        for step in range(1, steps + 1):
            tokens, following = self.sequences(step)
            began = time.perf_counter()
            for group in optimiser.param_groups:
                group["lr"] = 1e-3 * (step / 20 if step < 20 else 0.5 + 0.5 * np.cos(np.pi * (step - 20) / 980))
            loss = self.loss(w, tokens, following)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
            optimiser.step()
            losses.append(loss.item())
            times.append(time.perf_counter() - began)
        return losses, 1000 * sorted(times)[steps // 2]


def gpt(build, options, steps):
    theirs, ms = Gpt(options.split()).curve(steps)
    print(f"torch {torch.__version__}, {THREADS} threads: {ms:.2f} ms a step, last loss {theirs[-1]:.6f}")
    for precision in ("f32", "bf16", "f16"):
        out, _ = run(os.path.join(build, "examples", "gpt"), *options.split(), "--precision", precision, "--steps", str(steps), "--device", "cpu")
        ours = [float(loss) for loss in re.findall(r"loss ([\d.]+)", out)]
        own = float(re.search(r"([\d.]+) ms a step", out).group(1))
        worst = [max(abs(a - b) / b for a, b in zip(ours[i:i + 50], theirs[i:i + 50])) for i in range(0, steps, 50)]
        print(f"mica {precision}: {own:.2f} ms a step, {ms / own:.2f}x; last loss {ours[-1]:.6f}; greatest relative distance in each 50 steps:",
              " ".join(f"{w:.1e}" for w in worst))


def golden():
    losses, _ = Gpt([]).curve(200)
    with open(os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "gpt_curve.json"), "w", encoding="utf-8") as file:
        file.write("[" + ",\n".join("%.6f" % loss for loss in losses) + "]\n")


PROGRAMS = {"mnist": (mnist, 600), "charlm": (charlm, 200), "gpt": (gpt, 200)}

if __name__ == "__main__":
    if sys.argv[1:] == ["golden"]:
        sys.exit(golden())
    if len(sys.argv) < 4 or sys.argv[1] not in PROGRAMS:
        sys.exit(__doc__)
    program, usual = PROGRAMS[sys.argv[1]]
    program(sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else usual)
