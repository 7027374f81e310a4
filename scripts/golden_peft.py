#!/usr/bin/env python3
"""Makes tests/model/golden/peft again: adapters as peft saves them, for checkpoints of tests/model/golden, and the logits of transformers with peft in float32.

    python3 -m venv VENV && VENV/bin/pip install torch transformers peft safetensors numpy
    VENV/bin/python scripts/golden_peft.py

A folder holds adapter_config.json and adapter_model.safetensors, and expected.json as scripts/golden.py writes it, "base" being the checkpoint."""
import json
import os

import numpy as np
import torch
import transformers
from peft import LoraConfig, get_peft_model

import golden

EVERY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {  # name: checkpoint, configuration
    "llama": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "llama-patterns": ("llama", dict(r=4, lora_alpha=7, use_rslora=True, target_modules=EVERY + ["lm_head"],
                                     rank_pattern={"q_proj": 2, "layers.1.mlp.down_proj": 6},
                                     alpha_pattern={"model.layers.0.self_attn.k_proj": 3, "o_proj": 5})),
    "gpt2": ("gpt2", dict(r=3, lora_alpha=6, fan_in_fan_out=True, target_modules=["c_attn", "c_fc", "mlp.c_proj"])),
    "qwen3": ("qwen3", dict(r=5, lora_alpha=5, target_modules=EVERY, layers_to_transform=[1])),
    "gemma2": ("gemma2", dict(r=2, lora_alpha=9, target_modules="all-linear", lora_dropout=0.1)),
    "qwen3moe": ("qwen3moe", dict(r=2, lora_alpha=4, target_modules=["q_proj", "o_proj"])),
}


def main():
    for seed, (name, (base, config)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        folder = os.path.join(golden.HOME, "peft", name)
        model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(golden.HOME, base), dtype=torch.float32, attn_implementation="eager")
        model = get_peft_model(model, LoraConfig(init_lora_weights=False, task_type="CAUSAL_LM", base_model_name_or_path=base, **config)).eval()
        with torch.no_grad():
            for key, value in model.named_parameters():
                if ".lora_" in key:
                    value.copy_(torch.randn(value.shape) * 0.3)
        with open(os.path.join(golden.HOME, base, "expected.json")) as file:
            expected = json.load(file)
        with torch.no_grad():
            logits = model(torch.tensor([expected["tokens"]])).logits[0].numpy()
            plain = model.disable_adapter()
            with plain:
                apart = np.abs(model(torch.tensor([expected["tokens"]])).logits[0].numpy() - logits).max()
        model.save_pretrained(folder, save_embedding_layers=False)  # the head is the checkpoint's own
        for other in os.listdir(folder):
            if other not in ("adapter_config.json", "adapter_model.safetensors"):
                os.remove(os.path.join(folder, other))
        path = os.path.join(folder, "adapter_config.json")
        with open(path) as file:
            text = json.load(file)
        text["base_model_name_or_path"] = base
        text["target_modules"] = sorted(text["target_modules"]) if isinstance(text["target_modules"], list) else text["target_modules"]
        with open(path, "w") as file:
            json.dump(text, file, indent=1, sort_keys=True)
        expected = {"base": base, "tokens": expected["tokens"], "rows": golden.ROWS, "logits": [[float("%.7g" % x) for x in logits[r]] for r in golden.ROWS]}
        with open(os.path.join(folder, "expected.json"), "w") as file:
            json.dump(expected, file)
        print("%-16s %s: logits moved by up to %.3g" % (name, base, apart))


if __name__ == "__main__":
    main()
