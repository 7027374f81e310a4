#!/usr/bin/env python3
"""Writes tests/golden/recurrent.txt: what transformers and PyTorch make of small recurrences, with the numbers that went in.

    python3 scripts/golden_recurrent.py        needs torch and transformers; runs on the CPU, in f32

A case is "case NAME", then "array NAME RANK SIZES.." with its numbers on the next line, then "end"."""
import os

import torch
from transformers import Mamba2Config, MambaConfig
from transformers.models.mamba.modeling_mamba import MambaMixer
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


def mamba1(file):
    """From what comes out of the convolution to what goes into the last projection."""
    tokens, inner, states, rank = 9, 12, 5, 3
    config = MambaConfig(hidden_size=6, state_size=states, expand=2, conv_kernel=4, time_step_rank=rank,
                         num_hidden_layers=1)
    mixer = MambaMixer(config, layer_idx=0).eval()
    with torch.no_grad():
        mixer.A_log.copy_(torch.randn(inner, states) * 0.5)
        mixer.D.copy_(torch.randn(inner))
        mixer.dt_proj.bias.copy_(torch.randn(inner))
    seen = {}
    mixer.in_proj.register_forward_hook(lambda m, i, o: seen.update(projected=o[0]))
    mixer.x_proj.register_forward_hook(lambda m, i, o: seen.update(x=i[0][0], parts=o[0]))
    mixer.out_proj.register_forward_pre_hook(lambda m, i: seen.update(y=i[0][0]))
    with torch.no_grad():
        mixer(torch.randn(1, tokens, 6))
    dt, b, c = torch.split(seen["parts"], [rank, states, states], dim=-1)
    write(file, "mamba1", {
        "x": seen["x"], "dt": dt @ mixer.dt_proj.weight.T, "a": -torch.exp(mixer.A_log),
        "b": b.reshape(tokens, 1, states), "c": c.reshape(tokens, 1, states), "skip": mixer.D,
        "dt_bias": mixer.dt_proj.bias, "z": seen["projected"][:, inner:], "y": seen["y"]})


def cells(file, name, layer, kept):
    """A layer of two directions from states of its own; x are the products of the inputs, one for each direction."""
    tokens, width, hidden = 7, 5, 6
    module = layer(width, hidden, bidirectional=True)
    x = torch.randn(tokens, width)
    states = [torch.randn(2, hidden) for _ in range(kept)]
    with torch.no_grad():
        y, after = module(x, tuple(states) if kept == 2 else states[0])
    after = after if kept == 2 else (after,)
    arrays = {}
    for direction, suffix, tail in ((0, "", ""), (1, "_reverse", "_back")):
        weights = {kind: getattr(module, kind + "_l0" + suffix) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        arrays.update({
            "x" + tail: x @ weights["weight_ih"].T + weights["bias_ih"], "weight" + tail: weights["weight_hh"],
            "bias" + tail: weights["bias_hh"], "state" + tail: torch.stack([s[direction] for s in states])[None],
            "y" + tail: y[:, direction * hidden:(direction + 1) * hidden],
            "next_state" + tail: torch.stack([s[direction] for s in after])[None]})
    write(file, name, arrays)


def cell_gradients(file, name, layer, kept):
    """What PyTorch makes of the gradients of a layer of one direction, for random gradients of y and of the last states."""
    tokens, width, hidden = 6, 4, 5
    module = layer(width, hidden)
    inputs = torch.randn(tokens, width)
    states = [torch.randn(1, hidden, requires_grad=True) for _ in range(kept)]
    module.weight_ih_l0.data = torch.nn.init.orthogonal_(torch.empty(module.weight_ih_l0.shape))
    x = (inputs @ module.weight_ih_l0.T + module.bias_ih_l0).detach()
    y, after = module(inputs, tuple(states) if kept == 2 else states[0])
    after = after if kept == 2 else (after,)
    dy, dnext = torch.randn(tokens, hidden), torch.randn(kept, hidden)
    loss = (y * dy).sum() + sum((s[0] * d).sum() for s, d in zip(after, dnext))
    loss.backward()
    # dbias_ih is the sum of dx over the tokens, and dx times the inputs is what weight_ih gets
    write(file, name, {
        "x": x, "weight": module.weight_hh_l0, "bias": module.bias_hh_l0,
        "state": torch.stack([s[0] for s in states])[None], "dy": dy, "dnext": dnext[None], "inputs": inputs,
        "dweight_ih": module.weight_ih_l0.grad, "dbias_ih": module.bias_ih_l0.grad, "dweight": module.weight_hh_l0.grad,
        "dbias": module.bias_hh_l0.grad, "dstate": torch.stack([s.grad[0] for s in states])[None]})


def delta_gradients(file):
    """Of the rule of transformers, through autograd."""
    q, k = torch.randn(1, 6, 2, 4, requires_grad=True), torch.randn(1, 6, 2, 4, requires_grad=True)
    v, beta = torch.randn(1, 6, 2, 3, requires_grad=True), torch.rand(1, 6, 2, requires_grad=True)
    g, state = (-torch.rand(1, 6, 2)).requires_grad_(), torch.randn(1, 2, 4, 3, requires_grad=True)
    y, _ = torch_recurrent_gated_delta_rule(q, k, v, g, beta, initial_state=state * 1, output_final_state=True,
                                            use_qk_l2norm_in_kernel=True)
    dy = torch.randn_like(y)
    (y * dy).sum().backward()
    write(file, "delta_gradients", {
        "q": q[0], "k": k[0], "v": v[0], "g": g[0], "beta": beta[0], "state": state, "dy": dy[0]})
    write(file, "delta_gradients_of", {
        "dq": q.grad[0], "dk": k.grad[0], "dv": v.grad[0], "dg": g.grad[0], "dbeta": beta.grad[0], "dstate": state.grad})


def main():
    torch.manual_seed(1)
    with open(OUT, "w", encoding="ascii") as file:
        delta(file, "delta", torch_recurrent_gated_delta_rule, 7, 2, 4, 8, 6)
        delta(file, "delta_chunk", torch_chunk_gated_delta_rule, 70, 1, 2, 12, 8)
        mamba2(file)
        mamba1(file)
        cells(file, "lstm", torch.nn.LSTM, 2)
        cells(file, "gru", torch.nn.GRU, 1)
        cells(file, "rnn_tanh", torch.nn.RNN, 1)
        cells(file, "rnn_relu", lambda *a, **k: torch.nn.RNN(*a, nonlinearity="relu", **k), 1)
        cell_gradients(file, "lstm_gradients", torch.nn.LSTM, 2)
        cell_gradients(file, "gru_gradients", torch.nn.GRU, 1)
        cell_gradients(file, "tanh_gradients", torch.nn.RNN, 1)
        delta_gradients(file)


if __name__ == "__main__":
    main()
