#!/usr/bin/env python3
"""Writes tests/golden/gradient.safetensors: whole models with random weights, and the gradients of their losses by every weight as PyTorch's autograd has them in
double. tests/graph/test_gradient_models.c writes the same models as graphs.

    VENV/bin/python scripts/golden_gradient.py        (VENV has torch)"""

import json
import os
import struct
import sys

import torch
import torch.nn.functional as F

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
FILE = "tests/golden/gradient.safetensors"
tensors = {}


def keep(name, value):
    if value.dtype == torch.int64:
        value = value.to(torch.int32)
    else:
        value = value.detach().to(torch.float32)
    tensors[name] = value.contiguous()


class Model:
    def __init__(self, name):
        self.name, self.leaves = name, {}

    def weight(self, name, *shape, scale=1.0, shift=0.0):
        value = (torch.randn(*shape) * scale + shift).to(torch.float32).double().requires_grad_()
        self.leaves[name] = value
        return value

    def whole(self, name, value):
        keep(self.name + "." + name, value)
        return value

    def done(self, loss):
        names = list(self.leaves)
        gradients = torch.autograd.grad(loss, [self.leaves[n] for n in names])
        for name, gradient in zip(names, gradients):
            keep(f"{self.name}.{name}", self.leaves[name])
            keep(f"{self.name}.{name}.gradient", gradient)
        keep(self.name + ".loss", loss.reshape(1))


def mlp():
    m = Model("mlp")
    x, w1, b1 = m.weight("x", 6, 5), m.weight("w1", 8, 5), m.weight("b1", 8)
    w2, b2 = m.weight("w2", 3, 8), m.weight("b2", 3)
    labels = m.whole("labels", torch.randint(0, 3, (6,)))
    m.done(F.cross_entropy(F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2), labels))


def conv():
    m = Model("conv")
    x, w1, b1 = m.weight("x", 2, 2, 9, 8), m.weight("w1", 4, 2, 3, 3, scale=0.3), m.weight("b1", 4)
    w2, b2 = m.weight("w2", 6, 4, 3, 3, scale=0.3), m.weight("b2", 6)
    w3, b3 = m.weight("w3", 5, 12, scale=0.3), m.weight("b3", 5)
    labels = m.whole("labels", torch.randint(0, 5, (2,)))
    h = F.max_pool2d(F.relu(F.conv2d(x, w1, b1, padding=1)), 2)
    h = F.relu(F.conv2d(h, w2, b2, stride=2, padding=1)).flatten(2).mean(-1)
    h = torch.cat([h, h.square()], 1)
    m.done(F.cross_entropy(F.linear(h, w3, b3), labels, label_smoothing=0.1))


def rms(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def rope(x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None].double() * 100.0 ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def transformer():
    m = Model("transformer")
    tokens, dim, heads, groups, size, hidden = 7, 16, 4, 2, 4, 20
    x = m.weight("x", tokens, dim)
    n1, n2 = m.weight("n1", dim, scale=0.1, shift=1), m.weight("n2", dim, scale=0.1, shift=1)
    wq, wk = m.weight("wq", heads * size, dim, scale=0.3), m.weight("wk", groups * size, dim, scale=0.3)
    wv, wo = m.weight("wv", groups * size, dim, scale=0.3), m.weight("wo", dim, heads * size, scale=0.3)
    gate, up = m.weight("gate", hidden, dim, scale=0.3), m.weight("up", hidden, dim, scale=0.3)
    down = m.weight("down", dim, hidden, scale=0.3)
    positions = m.whole("positions", torch.arange(tokens))
    m.whole("lengths", torch.tensor([tokens]))
    h = rms(x, n1)
    q = rope((h @ wq.T).view(tokens, heads, size), positions)
    k = rope((h @ wk.T).view(tokens, groups, size), positions).repeat_interleave(heads // groups, 1)
    v = (h @ wv.T).view(tokens, groups, size).repeat_interleave(heads // groups, 1)
    scores = torch.einsum("thd,shd->hts", q, k) / size**0.5
    scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), float("-inf"))
    y = torch.einsum("hts,shd->thd", scores.softmax(-1), v).reshape(tokens, heads * size)
    x1 = x + y @ wo.T
    h = rms(x1, n2)
    x2 = x1 + (F.silu(h @ gate.T) * (h @ up.T)) @ down.T
    m.done(0.5 * x2.square().sum())


def experts():
    m = Model("experts")
    tokens, dim, hidden, count, chosen = 9, 6, 10, 4, 2
    x, router = m.weight("x", tokens, dim), m.weight("router", count, dim)
    gate, up = m.weight("gate", count, hidden, dim, scale=0.5), m.weight("up", count, hidden, dim, scale=0.5)
    down = m.weight("down", count, dim, hidden, scale=0.5)
    best, ids = (x @ router.T).topk(chosen, -1)
    weights = best.softmax(-1)
    h = F.silu(torch.einsum("tk,tsnk->tsn", x, gate[ids])) * torch.einsum("tk,tsnk->tsn", x, up[ids])
    y = (torch.einsum("tsn,tskn->tsk", h, down[ids]) * weights[..., None]).sum(1)
    m.done(0.5 * y.square().sum())


def mamba():
    m = Model("mamba")
    tokens, dim, inner, states, rank, width = 8, 6, 10, 4, 3, 4
    x, norm = m.weight("x", tokens, dim), m.weight("norm", dim, scale=0.1, shift=1)
    into, out = m.weight("in", 2 * inner, dim, scale=0.4), m.weight("out", dim, inner, scale=0.4)
    conv, conv_bias = m.weight("conv", inner, width, scale=0.5), m.weight("conv_bias", inner, scale=0.5)
    to_x, to_dt = m.weight("to_x", rank + 2 * states, inner, scale=0.4), m.weight("to_dt", inner, rank, scale=0.4)
    dt_bias, a_log, skip = m.weight("dt_bias", inner, scale=0.5), m.weight("a_log", inner, states, scale=0.5), m.weight("skip", inner)
    u, z = (rms(x, norm) @ into.T).split(inner, -1)
    padded = F.pad(u.T[None], (width - 1, 0))
    u = F.silu(F.conv1d(padded, conv[:, None], conv_bias, groups=inner))[0].T
    low, b, c = (u @ to_x.T).split([rank, states, states], -1)
    dt = F.softplus(low @ to_dt.T + dt_bias)
    a, s, ys = -a_log.exp(), torch.zeros(inner, states, dtype=torch.float64), []
    for t in range(tokens):
        s = (dt[t, :, None] * a).exp() * s + dt[t, :, None] * b[t] * u[t, :, None]
        ys.append((s * c[t]).sum(-1) + skip * u[t])
    y = torch.stack(ys) * F.silu(z)
    m.done(0.5 * (x + y @ out.T).square().sum())


def write():
    header, at = {}, 0
    for name, value in tensors.items():
        size = value.numel() * 4
        kind = "I32" if value.dtype == torch.int32 else "F32"
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(FILE, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            file.write(value.numpy().tobytes())
    print(f"{FILE}: {len(tensors)} tensors, PyTorch {torch.__version__}", file=sys.stderr)


torch.manual_seed(18)
mlp()
conv()
transformer()
experts()
mamba()
write()
