#!/usr/bin/env python3
"""Writes tests/golden/model_gradient.json: the loss of the next tokens of tiny checkpoints (tests/model/golden) and its gradient by some of their
weights, as transformers and PyTorch's autograd have them in double: of each weight the norm and 12 elements that are spread over it.
tests/model/test_adapter.c compares them with the gradients of mica_model_graph.

    VENV/bin/python scripts/golden_model_gradient.py        (VENV has torch and transformers)"""
import json
import os

import torch
import transformers

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
HOME = "tests/model/golden/"
LENGTH = 24
WEIGHTS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "blk.0.attn_q.weight": "model.layers.0.self_attn.q_proj.weight",
    "blk.1.attn_v.weight": "model.layers.1.self_attn.v_proj.weight",
    "blk.0.attn_output.weight": "model.layers.0.self_attn.o_proj.weight",
    "blk.0.ffn_gate.weight": "model.layers.0.mlp.gate_proj.weight",
    "blk.1.ffn_down.weight": "model.layers.1.mlp.down_proj.weight",
    "output_norm.weight": "model.norm.weight",
}


def figures(name):
    model = transformers.AutoModelForCausalLM.from_pretrained(HOME + name, dtype=torch.float64, attn_implementation="eager")
    with open(HOME + name + "/expected.json", encoding="utf-8") as file:
        tokens = torch.tensor(json.load(file)["tokens"][:LENGTH + 1])
    logits = model.eval()(tokens[None, :-1]).logits[0]
    loss = torch.nn.functional.cross_entropy(logits, tokens[1:])
    loss.backward()
    yield name + ".loss", [loss.item()]
    weights = dict(model.named_parameters())
    for own, other in WEIGHTS.items():
        gradient = weights[other].grad.flatten()
        spread = [gradient[i * (len(gradient) - 1) // 11].item() for i in range(12)]
        yield name + "." + own, [gradient.norm().item()] + spread


def main():
    all_of_them = {}
    for name in ("llama", "gemma2", "qwen3"):
        all_of_them.update(figures(name))
    with open("tests/golden/model_gradient.json", "w", encoding="utf-8") as file:
        rows = ['"%s": [%s]' % (key, ", ".join("%.10g" % value for value in values)) for key, values in all_of_them.items()]
        file.write("{\n" + ",\n".join(rows) + "\n}\n")


main()
