#!/usr/bin/env python3
"""Writes tests/golden/recurrent.txt: what transformers and PyTorch make of small recurrences, with the numbers that went in.

    python3 scripts/golden_recurrent.py        needs torch and transformers; runs on the CPU, in f32

A case is "case NAME", then "array NAME RANK SIZES.." with its numbers on the next line, then "end"."""
import os

import torch
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
from transformers.models.qwen3_next.modeling_qwen3_next import (torch_chunk_gated_delta_rule,
                                                                torch_recurrent_gated_delta_rule)

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "recurrent.txt")


def write(file, name, arrays):
    print("case", name, file=file)
    for label, value in arrays.items():
        value = value.detach().to(torch.float32).contiguous()
        print("array", label, value.dim(), *value.shape, file=file)
        print(*(f"{v:.9g}" for v in value.flatten().tolist()), file=file)
    print("end", file=file)


def delta(file, name, rule, tokens, keys, heads, dim, columns):
    """One sequence that continues from a state; q and k normalised, as the models do."""
    q, k = torch.randn(1, tokens, keys, dim), torch.randn(1, tokens, keys, dim)
    v, beta = torch.randn(1, tokens, heads, columns), torch.rand(1, tokens, heads)
    g, state = -torch.rand(1, tokens, heads), torch.randn(1, heads, dim, columns) * 0.3
    y, after = rule(q, k, v, g, beta, initial_state=state.clone(), output_final_state=True,
                    use_qk_l2norm_in_kernel=True)
    write(file, name, {"q": q[0], "k": k[0], "v": v[0], "g": g[0], "beta": beta[0], "state": state, "y": y[0],
                       "next_state": after})


def mamba2(file):
    """From the projected input to what goes into the gated norm."""
    config = Mamba2Config(hidden_size=16, num_heads=4, head_dim=8, state_size=6, n_groups=2, conv_kernel=4,
                          expand=2, chunk_size=4, num_hidden_layers=1)
    mixer = Mamba2Mixer(config, layer_idx=0).eval()
    with torch.no_grad():
        mixer.dt_bias.copy_(torch.randn(4))
        mixer.A_log.copy_(torch.randn(4) * 0.5)
        mixer.D.copy_(torch.randn(4))
    seen = {}
    mixer.in_proj.register_forward_hook(lambda m, i, o: seen.update(projected=o))
    mixer.norm.register_forward_pre_hook(lambda m, i: seen.update(y=i[0]))
    with torch.no_grad():
        mixer(torch.randn(1, 10, 16))
    inner, wide = 32, 32 + 2 * 2 * 6
    projected = seen["projected"][0]
    write(file, "mamba2", {
        "x": projected[:, -wide - 4:-4], "a": projected[:, -4:], "weight": mixer.conv1d.weight[:, 0],
        "bias": mixer.conv1d.bias, "a_log": mixer.A_log, "dt_bias": mixer.dt_bias, "skip": mixer.D,
        "y": seen["y"].reshape(10, inner)})


def main():
    torch.manual_seed(1)
    with open(OUT, "w", encoding="ascii") as file:
        delta(file, "delta", torch_recurrent_gated_delta_rule, 7, 2, 4, 8, 6)
        delta(file, "delta_chunk", torch_chunk_gated_delta_rule, 70, 1, 2, 12, 8)
        mamba2(file)


if __name__ == "__main__":
    main()
