#!/usr/bin/env python3
"""Training beside PyTorch, from the same weights over the same batches with the same optimiser, on as many threads.

    VENV/bin/python scripts/beside_torch.py mnist BUILD FOLDER [STEPS]    (VENV has torch and numpy; FOLDER the idx files, unpacked)
    VENV/bin/python scripts/beside_torch.py charlm BUILD TEXT [STEPS]

mnist: the convolutional network of examples/mnist.c; loss of an epoch, and the time of a step. charlm: the model of examples/charlm.c; its loss at some steps beside
PyTorch's in f32 and in f64, and the time of a step."""
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


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("mnist", "charlm"):
        sys.exit(__doc__)
    (mnist if sys.argv[1] == "mnist" else charlm)(sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else {"mnist": 600, "charlm": 200}[sys.argv[1]])
