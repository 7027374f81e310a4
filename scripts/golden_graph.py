#!/usr/bin/env python3
"""Writes tests/graph/graph_ops_golden.h: what numpy and PyTorch give, in double, for the rows of tests/graph/builder_rows.def that FORMULAS has.

    golden_graph.py        (needs numpy and torch)"""
import math
import os
import re

import numpy as np
import torch
import torch.nn.functional as F

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
B = 2


def hashed(count, which):
    i = np.arange(count, dtype=np.uint64)
    h = (i * 2654435761 + (which + 1) * 974711) & 0xffffffff
    h = ((h ^ h >> np.uint64(15)) * 2246822519) & 0xffffffff
    return h ^ h >> np.uint64(13)


def make(spec, which):
    name, positive, below, shape = re.fullmatch(r"(\w+?)(\+?)(?:<(\d+))?:(.*)", spec).groups()
    shape = [B if s == "b" else int(s) for s in shape.split(",")]
    h = hashed(int(np.prod(shape)) * (2 if name == "c64" else 1), which)
    if name == "bool":
        return (h >> np.uint64(7) & 1).astype(bool).reshape(shape)
    if below:
        return ((h >> np.uint64(4)) % int(below)).astype(np.int64).reshape(shape)
    x = (h >> np.uint64(8)).astype(np.float64) / 8388608 - 1
    if positive:
        x = np.abs(x) + 0.5
    return (x[0::2] + 1j * x[1::2]).reshape(shape) if name == "c64" else x.reshape(shape)


def t(x):
    return torch.from_numpy(np.ascontiguousarray(x))


def torched(f):
    return lambda *x: f(*[t(v) for v in x]).numpy()


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * x * (1 + 0.044715 * x * x)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def clipped(g, u, alpha, limit):
    g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    return (u + 1) * g * sigmoid(alpha * g)


def normal(x, axes, eps, rms=False, l2=False):
    if not rms and not l2:
        x = x - x.mean(axes, keepdims=True)
    v = (x * x).sum(axes, keepdims=True) if l2 else (x * x).mean(axes, keepdims=True)
    return x / np.sqrt(v + eps)


def attend(q, k, v, scale=None, causal=None, window=0, mask=None, cap=0, slopes=None, sinks=None, lse=False):
    """q [B, H, S, D]; k, v of fewer heads. causal: the place of the first query, or None."""
    h, s, d = q.shape[1:]
    k, v = (np.repeat(x, h // x.shape[1], 1) for x in (k, v))
    score = q @ k.transpose(0, 1, 3, 2) * (scale or 1 / math.sqrt(d))
    if cap:
        score = cap * np.tanh(score / cap)
    places = np.arange(s)[:, None] + (causal or 0)
    keys = np.arange(k.shape[2])[None]
    if slopes is not None:
        score = score + slopes[None, :, None, None] * (keys - places)
    if mask is not None:
        score = np.where(mask, score, -np.inf) if mask.dtype == bool else score + mask
    if causal is not None:
        score = np.where((keys <= places) & (keys > places - (window or 1 << 30)), score, -np.inf)
    m = np.maximum(score.max(-1, keepdims=True), -1e30)
    e = np.exp(score - m)
    total = e.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[None, :, None, None] - m)
    if lse:
        return (np.log(total) + m)[..., 0]
    return np.where(total > 0, e, 0) @ v / np.where(total > 0, total, 1)


def first(x):
    return x.transpose(0, 2, 1, 3)


def apart(x, heads):
    return first(x.reshape(x.shape[0], x.shape[1], heads, -1))


def together(x):
    x = first(x)
    return x.reshape(x.shape[0], x.shape[1], -1)


def turn(x, angles, near):
    """x [.., D] by angles [.., n / 2] that broadcast."""
    n = 2 * angles.shape[-1]
    c, s, y = np.cos(angles), np.sin(angles), x.copy()
    a, b = (x[..., 0:n:2], x[..., 1:n:2]) if near else (x[..., :n // 2], x[..., n // 2:n])
    first_, second = a * c - b * s, b * c + a * s
    if near:
        y[..., 0:n:2], y[..., 1:n:2] = first_, second
    else:
        y[..., :n // 2], y[..., n // 2:n] = first_, second
    return y


def angles(positions, n, theta):
    return positions[..., None] * theta ** (-np.arange(0, n, 2) / n)


def rope2(x, p, theta=100):
    h = x.shape[-1] // 2
    a = [angles(p[i], h, theta)[:, None] for i in range(2)]
    return np.concatenate([turn(x[..., :h], a[0], True), turn(x[..., h:], a[1], True)], -1)


def axial(x):
    y = x.reshape(B, 12, 2, 8)
    token = np.arange(12) // 2
    return np.stack([rope2(v, np.stack([token % 3, token // 3])) for v in y]).reshape(x.shape)


def by_tables(x, c, s, near):
    n = 2 * c.shape[-1]
    y = x.copy()
    a, b = (x[..., 0:n:2], x[..., 1:n:2]) if near else (x[..., :n // 2], x[..., n // 2:n])
    u, v = a * c - b * s, b * c + a * s
    if near:
        y[..., 0:n:2], y[..., 1:n:2] = u, v
    else:
        y[..., :n // 2], y[..., n // 2:n] = u, v
    return y


def block(x, wqkv, bias, wout, heads, kv, c=None, s=None, causal=None):
    d = wout.shape[1] // heads
    p = x @ wqkv.T + (0 if bias is None else bias)
    q, k, v = np.split(p, [heads * d, (heads + kv) * d], -1)
    q, k, v = apart(q, heads), apart(k, kv), apart(v, kv)
    if c is not None:
        q, k = (by_tables(z, c, s, False) for z in (q, k))
    return together(attend(q, k, v, causal=causal)) @ wout.T


def layer(x, wqkv, wout, g1, b1, up, ub, down, g2):
    h = normal(x + block(x, wqkv, None, wout, 2, 2), -1, 0.01) * g1 + b1
    f = F.gelu(t(h @ up.T + ub)).numpy() @ down.T
    return normal(h + f, -1, 0.02) * g2


def moe(x, router, gate, up, down, su, sd, scale):
    rows = x.reshape(-1, 4)
    out = []
    for r in rows:
        logits = router @ r
        p = np.exp(logits - logits.max())
        p /= p.sum()
        y = sigmoid(scale[0] @ r) * (sd @ silu(su @ r))
        for e in np.argsort(-logits, kind="stable")[:2]:
            y = y + p[e] * (down[e] @ (silu(gate[e] @ r) * (up[e] @ r)))
        out.append(y)
    return np.stack(out).reshape(x.shape)


def route(x):
    ids = np.argsort(-x, -1, kind="stable")[:, :2]
    v = np.take_along_axis(x, ids, -1)
    e = np.exp(v - v.max(-1, keepdims=True))
    return ids, e / e.sum(-1, keepdims=True)


def lstm(x, wi, wh, bi, bh, gru=False):
    net = (torch.nn.GRU if gru else torch.nn.LSTM)(x.shape[2], wh.shape[2], batch_first=True, bidirectional=wi.shape[0] == 2, dtype=torch.float64)
    with torch.no_grad():
        for d, end in enumerate(["", "_reverse"][:wi.shape[0]]):
            for name, value in (("weight_ih_l0", wi), ("weight_hh_l0", wh), ("bias_ih_l0", bi), ("bias_hh_l0", bh)):
                getattr(net, name + end).copy_(t(value[d]))
        return net(t(x))[0].numpy()


def codes_conv(x, w, b):
    y = F.pad(t((x - 9).astype(np.float64)), (0, 0, 1, 1))
    return F.conv2d(y, t((w - 3).astype(np.float64)), t(b.astype(np.float64)), stride=(2, 1), groups=2).numpy()


def blocks(x, n):
    return [x[:, i:i + n] for i in range(0, x.shape[1], n)]


def quantized(x, scale, low, high):
    return np.clip(np.round((x.astype(np.float32) / scale.astype(np.float32)).astype(np.float64)), low, high)


def pack(c):
    c = c.astype(np.int64) & 15
    return c[..., 0::2] + 16 * c[..., 1::2]


def unpack(c):
    out = np.stack([c & 15, c >> 4], -1)
    return out.reshape(*c.shape[:-1], -1)


FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6])


def frames(x, n, hop, count, side):
    x = np.pad(x, ((0, 0), (side, side)), "reflect")
    return np.stack([x[:, i * hop:i * hop + n] for i in range(count)], 1)


def log_mel(x, w, f):
    p = np.abs(np.fft.rfft(frames(x, 6, 4, 5, 3) * w)) ** 2
    y = np.log10(np.maximum(f @ p.transpose(0, 2, 1), 1e-10))
    return (np.maximum(y, y.max((1, 2), keepdims=True) - 8) + 4) / 4


def scattered(x, ids, u, axis, how):
    y = x.copy()
    for i, at in enumerate(ids):
        where = (slice(None),) * axis
        y[where + (at,)] = how(y[where + (at,)], u[where + (i,)])
    return y


def elements(x, ids, u):
    y = x.copy()
    for r in range(ids.shape[0]):
        for c in range(ids.shape[1]):
            y[r, ids[r, c]] = max(y[r, ids[r, c]], u[r, c])
    return y


def scattered_nd(x, ids, u):
    y = x.copy()
    for i, at in enumerate(ids):
        y[tuple(at)] += u[i]
    return y


def spd(a):
    return a @ a.transpose(0, 2, 1) + np.eye(3)


def adam(p, g, m, v, r):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    move = r * m / (1 - 0.9 ** 3) / (np.sqrt(v / (1 - 0.99 ** 3)) + 1e-6)
    return p - r * 0.1 * p - move


def sgd(p, g, m, r):
    g = g + 0.1 * p
    m = 0.9 * m + g
    return p - r * (g + 0.9 * m)


def ssm(x, w, b):
    p = np.concatenate([np.zeros((3, 3)), x])
    return silu(np.stack([(p[i:i + 4] * w.T).sum(0) for i in range(6)]) + b)


def delta(q, k, v, g, beta):
    y, s = np.zeros_like(v), np.zeros((2, 3, 5))
    for i in range(4):
        for h in range(2):
            s[h] *= np.exp(g[i, h])
            d = beta[i, h] * (v[i, h] - s[h].T @ k[i, 0])
            s[h] += np.outer(k[i, 0], d)
            y[i, h] = s[h].T @ q[i, 0] / math.sqrt(3)
    return y


def selective(x, dt, a, b, c, skip):
    s, y = np.zeros((3, 4)), np.zeros_like(x)
    for i in range(5):
        s = np.exp(dt[i][:, None] * a) * s + dt[i][:, None] * b[i, 0] * x[i][:, None]
        y[i] = s @ c[i, 0] + skip * x[i]
    return y


def places(ids):
    seen, out = {}, []
    for e in ids.flatten():
        n = seen.get(e, 0)
        seen[e] = n + 1
        out.append(e * 2 + n if n < 2 else 6)
    return np.array(out).reshape(ids.shape)


def attention_gradient(q, k, v, dy):
    q, k, v, dy = (t(x).transpose(0, 1) for x in (q, k, v, dy))
    q.requires_grad_(True)
    s = q @ k.transpose(1, 2) / 2
    s = s.masked_fill(torch.arange(5)[None] > torch.arange(3)[:, None] + 2, -math.inf)
    (torch.softmax(s, -1) @ v * dy).sum().backward()
    return q.grad.transpose(0, 1).numpy()


def cross_gradient(x, labels, dloss):
    p = np.exp(x - x.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) - np.eye(5)[labels]) * dloss[:, None]


def norm_gradient(x, dy, w):
    x = t(x).requires_grad_(True)
    (x / torch.sqrt((x * x).mean(-1, keepdim=True) + 0.01) * t(w) * t(dy)).sum().backward()
    return x.grad.numpy()


def grid_gradient(x, grid, dy):
    x = t(x).requires_grad_(True)
    (F.grid_sample(x, t(grid), align_corners=False) * t(dy)).sum().backward()
    return x.grad.numpy()


def sylvester(n):
    return np.array([[(-1.0) ** bin(i & j).count("1") for j in range(n)] for i in range(n)])


def nonzero(x):
    at = np.argwhere(x)
    return np.concatenate([at, np.full((x.size - len(at), x.ndim), -1)])


def compressed(x, c):
    y = np.zeros((B, 4, 3))
    kept = x[:, np.flatnonzero(c)]
    y[:, :kept.shape[1]] = kept
    return y


def penalized(x, s, ids, bias):
    y = x.copy()
    for r in range(2):
        y[r, ids[r, 0]] += bias[r, 0]
    return y


FORMULAS = {
    "activation": lambda x: x * np.tanh(np.log1p(np.exp(x))), "cast": lambda x: np.trunc(x * 9), "binary": lambda a, b: np.abs(a - b) ** b, "compare": np.less_equal,
    "reshape": lambda x: x.reshape(B, 2, 3), "permute": lambda x: x.transpose(2, 0, 1), "slice": lambda x: x[:, 5:0:-2], "concat": lambda a, b: np.concatenate([a, b], 1),
    "expand": lambda x: np.broadcast_to(x, (3, B, 4)), "stop_gradient": lambda x: x,
    "fill": lambda x: np.full((B, 3), 2.5), "where": np.where, "leaky_relu": lambda x: np.where(x > 0, x, x * 0.125),
    "elu": lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)), "clamp": lambda x: np.clip(x, -0.25, 0.5), "softcap": lambda x: 0.5 * np.tanh(x / 0.5),
    "gate": lambda a, b: np.maximum(a, 0) ** 2 * b, "silu_mul": lambda a, b: silu(a) * b, "gelu_mul": lambda a, b: gelu_tanh(a) * b,
    "gate_halves": lambda x: x[:, :3] * silu(x[:, 3:]), "gate_halves_first": lambda x: x[:, 3:] * silu(x[:, :3]),
    "clipped_swiglu": lambda a, b: clipped(a, b, 1.702, 0.5), "gated_residual": lambda x, g, b: x + g * b, "matmul": np.matmul,
    "linear": lambda x, w, b: x @ w.T + b, "linear_many": lambda x, a, b: x @ b.T, "matmul_transposed": np.matmul,
    "lora": lambda x, w, a, b: x @ w.T + 0.5 * (x @ a.T) @ b.T, "product": lambda a, b, c: a @ b + c, "product_codes": lambda a, b: (a - 7) @ (b - 3),
    "outer": lambda a, b: a[..., :, None] * b[..., None, :], "dot_general": lambda a, b: np.einsum("abcd,dbae->bce", a, b),
    "dot_general_free": lambda a, b: np.tensordot(a, b, 1), "einsum": lambda a, b: np.einsum("bij,bjk->bik", a, b),
    "einsum_turned": lambda a, b, c: np.einsum("ij,jk,ki", a, b, c), "einsum_diagonal": lambda a, b: np.einsum("ii,i->i", a, b),
    "einsum_dots": lambda a, b: np.einsum("b...d,...d->...b", a, b), "reduce": lambda x: x.max(1, keepdims=True), "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(-1),
    "logsumexp": lambda x: np.log(np.exp(x).sum(-1)), "variance": lambda x: x.var((1, 2), ddof=1), "deviation": lambda x: x.std(-1, keepdims=True),
    "vector_norm": lambda x: np.linalg.norm(x, axis=-1), "vector_norm_one": lambda x: np.abs(x).sum(-1), "vector_norm_three": lambda x: (np.abs(x) ** 3).sum(-1) ** (1 / 3),
    "vector_norm_least": lambda x: np.abs(x).min(-1), "argmax": lambda x: x.argmax(1)[:, None], "argmin": lambda x: x.argmin(1), "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1), "cummax": lambda x: np.maximum.accumulate(x, 1), "cumulate": lambda x: x[:, ::-1].cumsum(1)[:, ::-1] - x,
    "sort": lambda x: np.sort(x, 1), "argsort": lambda x: np.argsort(-x, 1, kind="stable"), "top_k": lambda x: -np.sort(-x, 1)[:, :2],
    "top_k_ids": lambda x: np.argsort(x, 1, kind="stable")[:, :2], "wrap_ids": lambda x: np.where(x < 2, x + 7, x - 2), "gather": lambda x, i: np.take(x, i, 1),
    "take_along_axis": lambda x, i: np.take_along_axis(x, i, 1), "gather_nd": lambda x, i: np.stack([x[n][i[n, :, 0], i[n, :, 1]] for n in range(B)]),
    "scatter": lambda x, i, u: scattered(x, i, u, 1, np.add), "scatter_elements": elements, "scatter_nd": scattered_nd, "nonzero": nonzero, "compress": compressed,
    "one_hot": lambda i: np.eye(5)[i], "embedding": lambda w, i: w[i], "tril": lambda x: np.tril(x, 1), "triu": lambda x: np.triu(x, -1), "arange": lambda x: 0.5 + 0.25 * np.arange(B),
    "eye": lambda x: np.eye(3, 4, 1), "unsqueeze": lambda x: x[..., None], "squeeze": lambda x: x.reshape(B, 3), "flatten": lambda x: x.reshape(B, 12), "swap_axes": lambda x: x.transpose(2, 1, 0),
    "transpose": lambda x: x.transpose(0, 2, 1), "stack": lambda a, b: np.stack([a, b], 1), "split": lambda x: x[:, 2:5], "pad": lambda x: np.pad(x, ((0, 0), (1, 2)), "reflect"),
    "flip": lambda x: x[::-1, ::-1], "roll": lambda x: np.roll(x, -1, 1), "roll_symbol": lambda x: np.roll(x, 1, 0), "tile": lambda x: np.tile(x, (2, 3)), "repeat": lambda x: np.repeat(x, 2, 1),
    "softmax": torched(lambda x: torch.softmax(x * 0.5, 1)), "log_softmax": torched(lambda x: torch.log_softmax(x, -1)), "masked_softmax": torched(lambda x, m: torch.softmax(x * 2 + m, 1)),
    "softmax_backward": lambda y, dy: 0.5 * y * (dy - (y * dy).sum(-1, keepdims=True)), "normalize": lambda x, w, b: normal(x, (1, 2), 0.01, rms=True) * (1 + w) + b,
    "normalize_backward": norm_gradient, "rms_norm": lambda x, w: normal(x, -1, 0.01, rms=True) * w, "layer_norm": lambda x, w, b: normal(x, -1, 0.01) * w + b,
    "l2_norm": lambda x: normal(x, 1, 0.01, l2=True), "group_norm": torched(lambda x, w, b: F.group_norm(x, 3, w, b, 0.01)), "instance_norm": torched(lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0, 0.01)),
    "channel_norm": lambda x, w, b: normal(x, 1, 0.01) * w[:, None, None] + b[:, None, None],
    "batch_norm": lambda x, m, v, w, b: (x - m[:, None]) / np.sqrt(v[:, None] + 0.01) * w[:, None] + b[:, None], "batch_norm_train": lambda x, w, b: normal(x, (0, 2), 0.01) * w[:, None] + b[:, None],
    "batch_norm_running": lambda x, m, v: 0.75 * v + 0.25 * x.var((0, 2), ddof=1), "ada_norm": lambda x, s, b: normal(x, -1, 0.01) * (1 + s) + b,
    "residual_norm": lambda x, r, a, w, b: normal(x + r + a, -1, 0.01) * w + b,
    "attention_tokens": lambda q, k, v: first(attend(*(first(x[None]) for x in (q, k, v))))[0], "attention_first": lambda q, k, v: attend(q, k, v, scale=0.75, causal=2),
    "attention_behind": lambda q, k, v, m: first(attend(first(q), first(k), first(v), mask=m, cap=0.5)), "attention_together": lambda q, k, v, m: together(attend(apart(q, 4), apart(k, 2), apart(v, 2), mask=m)),
    "attention_window": lambda q, k, v, s, z: first(attend(first(q), first(k), first(v), causal=0, window=3, slopes=s, sinks=z)), "attention_short": lambda q, k, v: attend(q, k, v, causal=-2),
    "attention_start": lambda q, k, v: attend(q, k, v, causal=1), "attention_lse": lambda q, k, v: attend(first(q), first(k), first(v), lse=True).transpose(0, 2, 1),
    "attention_symbols": lambda q, k, v: together(attend(apart(q, 2), apart(k, 2), apart(v, 2), causal=0)), "attention_cached": lambda q, k, v: first(attend(*(first(x[None]) for x in (q, k[:6], v[:6])), causal=4))[0],
    "attention_backward": attention_gradient, "kv_write": lambda c, x, p: np.stack([c[0], x[0], c[2], x[1], c[4]]), "rope": lambda x, p: turn(x, angles(p, 8, 100)[:, None], False),
    "rope_backward": lambda x, p: turn(x, -angles(p, 8, 100)[:, None], False), "rope_2d": rope2, "rope_heads": lambda x: turn(x, angles(np.arange(3), 8, 100), False),
    "rope_heads_together": lambda x, p: turn(x.reshape(B, 3, 2, 8), angles(p, 4, 100)[:, :, None], True).reshape(x.shape), "rope_tables": lambda x, c, s: by_tables(x, c, s, False),
    "rope_tables_near": lambda x, c, s: by_tables(x, c, s, True), "rope_axial": axial, "attention_block": lambda x, w, b, o, c, s: block(x, w, b, o, 2, 1, c, s, 0), "transformer_layer": layer,
    "route": lambda x: route(x)[0], "route_weights": lambda x: route(x)[1], "matmul_experts": lambda x, w, i: np.einsum("tk,tsnk->tsn", x, w[i]),
    "expert_sum": lambda x, w, s, g: (x * w[..., None]).sum(1) + s * sigmoid(g)[:, None], "expert_places": places, "grouped_matmul": lambda x, w, i: np.einsum("tk,tkn->tn", x, w[i]), "moe": moe,
    "conv": torched(lambda x, w, b: F.conv1d(x, w, b, 2, 1, 1, 2)), "conv_transposed": torched(lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1)), "conv_3d": torched(F.conv3d),
    "conv_input_backward": torched(lambda d, w: torch.nn.grad.conv1d_input((B, 2, 8), w, d, 2, 1)), "conv_weight_backward": torched(lambda x, d: torch.nn.grad.conv1d_weight(x, (3, 2, 3), d, 2, 1)),
    "conv_codes": codes_conv, "pool": torched(lambda x: F.max_pool2d(x, 2)), "pool_backward": lambda x, d: np.repeat(d, 2, 2) / 2, "global_pool": lambda x: x.mean((2, 3), keepdims=True),
    "im2col": torched(lambda x: F.unfold(x[:, :, None], (1, 3))), "col2im": torched(lambda x: F.fold(x, (1, 6), (1, 3))[:, :, 0]), "resize": torched(lambda x: F.interpolate(x, 6, mode="linear")),
    "resize_backward": lambda d: d.reshape(B, 2, 2, 2).sum(-1), "grid_sample": torched(lambda x, g: F.grid_sample(x, g, align_corners=False)), "grid_sample_backward": grid_gradient,
    "ssm_conv": ssm, "delta_net": delta, "delta_gates": lambda a, b, l, d: -np.exp(l) * np.log1p(np.exp(a + d)), "ssm_gates": lambda a, l, d: -np.exp(l) * np.log1p(np.exp(a + d)), "selective_scan": selective,
    "rnn_cells": lambda x, w, s: np.stack([[np.tanh(x[2 * i + 1] + w @ np.tanh(x[2 * i] + w @ s[i, 0]))] for i in range(2)]), "rnn_layer": lstm, "rnn_layer_gru": lambda *x: lstm(*x, gru=True),
    "hadamard": lambda x, s: (x * s) @ sylvester(8) / math.sqrt(8), "fourier": lambda x: np.fft.fft(x, 7, norm="ortho"), "fourier_axes": np.fft.rfft2, "fft": np.fft.fft, "ifft": lambda x: np.fft.ifft(x, axis=1, norm="forward"),
    "rfft": lambda x: np.fft.rfft(x, norm="ortho"), "irfft": lambda x: np.fft.irfft(x, 7), "irfft_axes": np.fft.irfft2, "fft2": np.fft.fft2, "ifft2": np.fft.ifft2, "stft": lambda x, w: np.fft.rfft(frames(x, 6, 4, 6, 3) * w),
    "fft_convolve": lambda x, k: np.stack([np.convolve(r, k) for r in x]), "log_mel": log_mel, "complex_add": np.add, "complex_sub": np.subtract, "complex_mul": np.multiply, "complex_div": np.divide, "complex_conj": np.conj,
    "complex_abs": np.abs, "complex_norm": lambda x: np.abs(x) ** 2, "complex_angle": np.angle, "complex_join": lambda a, b: a + 1j * b, "real": np.real, "imag": np.imag,
    "penalize": penalized, "sample_rows": lambda x: x.argmax(-1), "sample": lambda x, s: x.argmax(-1),
    "quantize": lambda x, s, z: np.clip(np.round(x / s) + z, 0, 15), "quantize_blocks": lambda x, s: np.concatenate([quantized(b, s[:, i:i + 1].astype(np.float32) * np.float32(0.01), -128, 127) for i, b in enumerate(blocks(x, 3))], 1),
    "quantize_packed": lambda x, s: pack(np.concatenate([quantized(b, s[:, i:i + 1] * 0.125, -8, 7) for i, b in enumerate(blocks(x, 4))], 1)), "dequantize": lambda c, s: c * s,
    "dequantize_packed": lambda c, s: (lambda u: np.where(u > 7, u - 16, u) * np.repeat(s[:, :3], 4, 1)[:, :10])(unpack(c)), "dequantize_fp4": lambda c, s: FP4[unpack(c)] * s,
    "requantize": lambda c, s: np.clip(np.round(c * s / 128), -128, 127), "fake_quantize": lambda x, s: np.clip(np.round(x / (s / 4)), -2, 2) * s / 4, "fake_quantize_trained": lambda x, s: np.clip(np.round(x / s), -2, 2) * s,
    "fake_quantize_backward": lambda x, s, d: np.where(np.abs(x / (s / 4)) <= 2, d, 0), "quantize_scales": lambda x: np.stack([np.abs(b).max(1) / 127 for b in blocks(x, 3)], 1), "quantize_biases": lambda x: x.min(-1, keepdims=True),
    "scales_follow": lambda s, o: 0.75 * o + 0.25 * s, "product_scaled": lambda a, s, b, z: (a * s) @ (b * z).T, "triangular_solve": lambda a, b: np.linalg.solve(np.tril(a), b[..., None])[..., 0], "solve": lambda a, b: np.linalg.solve(spd(a), b),
    "cholesky": lambda a: np.linalg.cholesky(spd(a)), "inverse": lambda a: np.linalg.inv(spd(a)), "determinant": np.linalg.det, "log_determinant": lambda a: np.linalg.slogdet(a)[1],
    "qr": lambda a: (lambda q, r: q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None])(*np.linalg.qr(a)), "eigh": lambda a: np.linalg.eigvalsh(spd(a)), "svd": lambda a: np.linalg.svd(a, compute_uv=False),
    "cross_entropy": torched(lambda x, i: F.cross_entropy(x, i, reduction="none")), "cross_entropy_soft": torched(lambda x, p: -(p * torch.log_softmax(x, -1)).sum(-1) + (p.sum(-1) - 1) * 0), "cross_entropy_backward": cross_gradient,
    "mean_square": lambda a, b: ((a - b) ** 2).mean(), "logistic_loss": torched(lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none")), "sgd_update": sgd, "adam_update": adam,
    "gradient_norm": lambda a, b: np.sqrt((a * a).sum() + (b * b).sum()), "gradient_scale": lambda n: np.minimum(1, 0.75 / (n + 1e-6)),
}


def main():
    text = open("tests/graph/builder_rows.def", encoding="utf-8").read()
    rows = re.findall(r'^ROW\((\w+), "([^"]*)"', text, re.M)
    lines = ["/* graph_ops_golden.h - what numpy and PyTorch give for rows of builder_rows.def. Made by scripts/golden_graph.py; change it there. */",
             "#ifndef TEST_GRAPH_OPS_GOLDEN_H", "#define TEST_GRAPH_OPS_GOLDEN_H", "/* clang-format off */"]
    names = []
    for name, inputs in rows:
        if name not in FORMULAS:
            continue
        y = np.asarray(FORMULAS[name](*[make(s, i) for i, s in enumerate(inputs.split())]))
        flat = y.astype(np.complex128).view(np.float64).flatten() if np.iscomplexobj(y) else y.astype(np.float64).flatten()
        values = ["    " + " ".join("%.10g," % v for v in flat[i:i + 40]) for i in range(0, len(flat), 40)]
        lines += ["static const double golden_%s[] = {" % name, *values[:-1], values[-1] + "};"]
        names.append((name, y))
    lines.append("static const golden golden_rows[] = {")
    for name, y in names:
        shape = ", ".join(str(s) for s in y.shape) or "0"
        lines.append('    {"%s", golden_%s, sizeof golden_%s / sizeof(double), %d, {%s}},' % (name, name, name, y.ndim, shape))
    lines += ["};", "/* clang-format on */", "#endif", ""]
    open("tests/graph/graph_ops_golden.h", "w", encoding="utf-8").write("\n".join(lines))
    unknown = set(FORMULAS) - {name for name, _ in rows}
    if unknown:
        raise SystemExit("no such rows: %s" % unknown)
    print("without a formula:", [name for name, _ in rows if name not in FORMULAS])


if __name__ == "__main__":
    main()
