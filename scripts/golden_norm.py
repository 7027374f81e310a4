#!/usr/bin/env python3
"""Writes tests/golden/norm.txt: what PyTorch gives for the norms of ops_norm.h and their gradients, and transformers for rotary embeddings by several
axes. Inputs are a formula that the test has as well (values), so that only results are kept, in f64.
A case is a line: name, how many results, these."""
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from transformers.models.gemma4.modeling_gemma4 import apply_multidimensional_rope
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding, apply_rotary_pos_emb, apply_rotary_pos_emb_vision
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

SHAPE = (3, 4, 5, 2)
EPS = 2.0**-10
LINES = []


def values(slot, *shape):
    """Sixteenths from -2 to 2, exact in every type."""
    count = 1
    for n in shape:
        count *= n
    i = torch.arange(count, dtype=torch.int64)
    mixed = ((i + 1) * 2654435761 + slot * 40503) % 2**32
    return (((mixed // 65536) % 65 - 32).to(torch.float64) / 16).reshape(shape)


def case(name, *results):
    flat = [v for r in results for v in r.detach().reshape(-1).tolist()]
    LINES.append(" ".join([name, str(len(flat)), *(f"{v:.15g}" for v in flat)]))


def norm(name, call, parameters, *more):
    """y, dx, dweight, dbias, then whatever the call leaves in `more`."""
    x, weight, bias = (v.requires_grad_() for v in (values(0, *SHAPE), values(1, parameters), values(2, parameters)))
    y = call(x, weight, bias)
    y.backward(values(3, *SHAPE))
    gradients = [p.grad for p in (weight, bias) if p.grad is not None]
    case(name, y, x.grad, *gradients, *more)


def norms():
    last = SHAPE[-1:]
    norm("layer_norm", lambda x, w, b: F.layer_norm(x, last, w, b, EPS), SHAPE[-1])
    norm("rms_norm", lambda x, w, b: F.rms_norm(x, last, w, EPS), SHAPE[-1])
    norm("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b, EPS), SHAPE[1])
    norm("instance_norm", lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0.1, EPS), SHAPE[1])
    mean, var = values(4, SHAPE[1]), values(5, SHAPE[1])
    norm("batch_norm", lambda x, w, b: F.batch_norm(x, mean, var, w, b, True, 0.25, EPS), SHAPE[1], mean, var)
    x = values(0, *SHAPE).requires_grad_()
    y = x / (x.square().sum(-1, keepdim=True) + EPS).sqrt()  # F.normalize, with eps inside
    y.backward(values(3, *SHAPE))
    assert torch.allclose(y, F.normalize(x, dim=-1), atol=2e-2)
    case("l2_norm", y, x.grad)
    for name, mask in ("softmax_added", values(7, *SHAPE[-2:])), ("softmax_hidden", values(7, *SHAPE[-2:]) > -0.5):
        mask = mask.clone()
        mask[..., 0] = True if mask.dtype == torch.bool else mask[..., 0]  # no row without anything
        x = values(0, *SHAPE).requires_grad_()
        y = F.softmax(x * 0.75 + mask if mask.dtype != torch.bool else (x * 0.75).masked_fill(~mask, -torch.inf), -1)
        y.backward(values(3, *SHAPE))
        case(name, y, x.grad)
    for name, call in ("softmax", F.softmax), ("log_softmax", F.log_softmax):
        x = values(0, *SHAPE).requires_grad_()
        y = call(x * 0.75, -1)
        y.backward(values(3, *SHAPE))
        case(name, y, x.grad)


def ropes():
    """Heads of 16, theta 100; x [tokens, heads, 16]."""
    tokens, heads, dim = 5, 2, 16
    x = values(6, tokens, heads, dim)
    axes, token = torch.arange(3).reshape(3, 1), torch.arange(tokens).reshape(1, tokens)
    positions = ((token * (axes + 1) * 7 + axes) % 23).to(torch.float64)
    frequency = 100.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    freqs = positions[:, None, :, None] * frequency
    for name, kind, pairs in ("rope_sections", Qwen2VLRotaryEmbedding, [2, 3, 3]), ("rope_interleaved", Qwen3VLTextRotaryEmbedding, [3, 3, 2]):
        own = SimpleNamespace(mrope_section=pairs)
        cos, sin = (kind.recomposition_frequencies(own, f(freqs)) for f in (torch.cos, torch.sin))
        case(name, apply_rotary_pos_emb(x[None], x[None], cos, sin, unsqueeze_dim=2)[0])


def vision():
    """By row and column: each half of a head by one of them (Gemma 4), or the pairs of a whole head (Qwen 2 VL)."""
    tokens, heads, dim = 5, 2, 16
    x = values(6, tokens, heads, dim)
    token = torch.arange(tokens)
    positions = torch.stack([token * 3 % 7, token * 5 % 11]).to(torch.float64)
    frequency = 100.0 ** (-torch.arange(0, dim // 2, 2, dtype=torch.float64) / (dim // 2))
    row, column = (p[:, None] * frequency for p in positions)
    both = torch.cat([row, row, column, column], -1)
    case("rope_2d", apply_multidimensional_rope(x[None], both.cos()[None], both.sin()[None], positions.T[None]))
    angles = torch.cat([row, column], -1)
    whole = torch.cat([angles, angles], -1)
    case("rope_vision", apply_rotary_pos_emb_vision(x, x, whole.cos(), whole.sin())[0])


norms()
ropes()
vision()
with open("tests/golden/norm.txt", "w", encoding="ascii") as file:
    file.write("\n".join(LINES) + "\n")
