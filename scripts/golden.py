#!/usr/bin/env python3
"""Makes tests/model/golden again: for every family a tiny checkpoint with random weights, and what transformers says
about it in float32 on the CPU.

    python3 -m venv VENV && VENV/bin/pip install torch transformers safetensors numpy
    VENV/bin/python scripts/golden.py [NAME..]

A folder holds config.json and model.safetensors as Hugging Face keeps them, and expected.json: "tokens", and for
decoders "rows" (positions) with the logits after each of them, for encoders the mean-pooled, normalised "embedding".
Where short contexts rotate their heads in another way, "near_logits" come from the tokens up to "near_rows" alone.
Norms, biases and routers are random too, windows and original contexts are shorter than the prompt: a part that is left
out or misread shows."""
import json
import os
import sys

import torch
import transformers
from transformers import (BertConfig, BertModel, Gemma2Config, Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig,
                          MixtralConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "model", "golden")
VOCABULARY, LENGTH = 80, 41
ROWS = [0, 13, 27, LENGTH - 1]
COMMON = {"vocab_size": VOCABULARY, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2,
          "pad_token_id": None}
SMALL = {"hidden_size": 32, "intermediate_size": 28, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, **COMMON}
HEADS = {**SMALL, "head_dim": 12}  # not hidden_size / num_attention_heads


def rotary(kind="default", theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


MILLION = rotary(theta=1000000.0)
LLAMA3 = rotary("llama3", 500000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=32)
YARN = rotary("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0)
LONG = rotary("longrope", factor=8.0, original_max_position_embeddings=16, short_factor=[1.0, 1.1, 1.25, 1.5],
              long_factor=[1.0, 1.7, 2.9, 6.5])


def gemma3(whole):
    """Seven layers: five that slide, one that sees everything, and the first of the next six."""
    ropes = {"full_attention": whole["rope_parameters"], "sliding_attention": rotary()["rope_parameters"]}
    return Gemma3TextConfig(**{**HEADS, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1,
                               "intermediate_size": 20, "num_hidden_layers": 7},
                            sliding_window=16, query_pre_attn_scalar=12, rope_parameters=ropes)


def models():
    """name: (configuration, stored type, whether the rotary settings are written as before transformers 5)"""
    three = {**SMALL, "hidden_size": 36, "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 3}
    routed = {"moe_intermediate_size": 16, "num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": True,
              "decoder_sparse_step": 1, "mlp_only_layers": []}
    caps = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0}
    few = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 12,
           "num_hidden_layers": 3}
    slides, full = "sliding_attention", "full_attention"
    return {
        "llama": (LlamaConfig(**HEADS, rms_norm_eps=1e-5), "float32", True),
        "llama-llama3": (LlamaConfig(**HEADS, **LLAMA3, tie_word_embeddings=True), "float32", True),
        "llama-linear": (LlamaConfig(**SMALL, **rotary("linear", factor=3.0)), "float32", True),
        "llama-yarn": (LlamaConfig(**HEADS, **YARN), "float32", False),
        "smollm": (LlamaConfig(**three, **rotary(theta=100000.0), tie_word_embeddings=True), "bfloat16", True),
        "mistral": (MistralConfig(**HEADS, **MILLION, sliding_window=16), "float32", True),
        "mixtral": (MixtralConfig(**{**HEADS, "intermediate_size": 20}, **MILLION, num_local_experts=4,
                                  num_experts_per_tok=2, sliding_window=None), "float32", True),
        "qwen2": (Qwen2Config(**SMALL, **MILLION, tie_word_embeddings=True, use_sliding_window=False), "float32", True),
        "qwen3": (Qwen3Config(**HEADS, **MILLION, use_sliding_window=False), "float32", False),
        "qwen3moe": (Qwen3MoeConfig(**HEADS, **MILLION, **routed, use_sliding_window=False), "float32", True),
        "gemma2": (Gemma2Config(**HEADS, **caps, sliding_window=16, query_pre_attn_scalar=12), "float32", False),
        "gemma3": (gemma3(MILLION), "float16", True),
        "gemma3-linear": (gemma3(rotary("linear", 1000000.0, factor=8.0)), "float16", False),
        "phi3": (Phi3Config(**SMALL, sliding_window=16), "float32", True),
        "phi3-longrope": (Phi3Config(**SMALL, **LONG, sliding_window=None, original_max_position_embeddings=16),
                          "float32", True),
        "gpt2": (GPT2Config(vocab_size=VOCABULARY, n_positions=128, n_embd=32, n_layer=2, n_head=4, n_inner=40,
                            bos_token_id=1, eos_token_id=2), "float32", False),
        "bert": (BertConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                            intermediate_size=40, max_position_embeddings=128, pad_token_id=0), "float32", False),
        "gemma2-scalar": (Gemma2Config(**HEADS, **caps, sliding_window=16, query_pre_attn_scalar=20), "float32", False),
        # keys that files in the world seldom have, two or three at a time: scripts/golden_keys.py has all, one by one
        "gemma3-layers": (Gemma3TextConfig(**{**HEADS, **few}, sliding_window=16, query_pre_attn_scalar=20,
                                           hidden_activation="gelu", layer_types=[full, slides, full],
                                           rope_parameters={full: rotary("linear", factor=3.0)["rope_parameters"],
                                                            slides: rotary(theta=500.0)["rope_parameters"]}),
                          "float16", False),
        "qwen2-window": (Qwen2Config(**{**SMALL, **few}, use_sliding_window=True, sliding_window=16, max_window_layers=1,
                                     hidden_act="gelu_new"), "float16", True),
        "qwen3moe-raw": (Qwen3MoeConfig(**{**SMALL, **few}, **{**routed, "norm_topk_prob": False, "num_experts": 3,
                                                              "mlp_only_layers": [1]}, head_dim=8, use_sliding_window=True, sliding_window=16),
                         "float16", True),
        "gpt2-scales": (GPT2Config(vocab_size=VOCABULARY, n_positions=128, n_embd=34, n_layer=2, n_head=2, n_inner=20,
                                   activation_function="gelu", scale_attn_weights=False, tie_word_embeddings=False,
                                   scale_attn_by_inverse_layer_idx=True, bos_token_id=1, eos_token_id=2), "float16", False),
        "bert-tanh": (BertConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                 intermediate_size=20, max_position_embeddings=128, pad_token_id=0, layer_norm_eps=0.01,
                                 hidden_act="gelu_new"), "float16", False),
    }


def randomise(model, seed, dtype):
    """Values that matter, and that the stored type holds: matrices keep the size of what passes, vectors are what they
    were and a fifth more or less."""
    g = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=g)
        with torch.no_grad():
            if p.ndim == 1:
                p.add_(0.2 * noise)
            else:
                looked_up = "embed" in name or name.startswith(("transformer.wte", "transformer.wpe"))
                p.copy_(noise * (0.7 if looked_up else 1.3 / p.shape[-1] ** 0.5))
            p.copy_(p.to(dtype))


def old_words(config):
    """rope_theta and rope_scaling, as most files in the world have them."""
    rope = config.pop("rope_parameters", None)
    if "max_window_layers" in config:
        config.pop("layer_types", None)
    if rope and "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope:
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    return config


def settle(folder, old):
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config.pop("transformers_version", None)
    config = old_words(config) if old else config
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1, sort_keys=True)
        file.write("\n")
    for name in os.listdir(folder):
        if name not in ("config.json", "model.safetensors"):
            os.remove(os.path.join(folder, name))


@torch.no_grad()
def expected(model, tokens):
    ids = torch.tensor([tokens])
    if isinstance(model, BertModel):
        hidden = model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        return {"tokens": tokens, "embedding": numbers(torch.nn.functional.normalize(hidden.mean(0), dim=0))}
    logits = model(ids, use_cache=False).logits[0]
    made = {"tokens": tokens, "rows": ROWS, "logits": [numbers(logits[row]) for row in ROWS]}
    if (getattr(model.config, "rope_parameters", None) or {}).get("rope_type") == "longrope":
        near = model.config.rope_parameters["original_max_position_embeddings"]
        logits = model(ids[:, :near], use_cache=False).logits[0]
        made.update(near_rows=[near - 1], near_logits=numbers(logits[near - 1]))
    return made


def numbers(tensor):
    return [float("%.7g" % x) for x in tensor.tolist()]


def make(name, config, dtype, old, seed):
    folder = os.path.join(HOME, name)
    os.makedirs(folder, exist_ok=True)
    config._attn_implementation = "eager"
    kind = BertModel if isinstance(config, BertConfig) else transformers.AutoModelForCausalLM
    torch.manual_seed(seed)
    model = BertModel(config, add_pooling_layer=False) if kind is BertModel else kind.from_config(config)
    randomise(model, seed, getattr(torch, dtype))
    tokens = torch.randint(3, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(seed + 1000)).tolist()
    made = expected(model.eval(), tokens)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    settle(folder, old)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if made != expected(model, tokens):
        raise SystemExit("%s: the checkpoint that was written is not the one that was made" % name)
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)
        file.write("\n")
    top = max(abs(x) for row in made.get("logits", [made.get("embedding")]) for x in row)
    print("%-14s %7d parameters %7d bytes  largest %.3g" % (name, sum(p.numel() for p in model.parameters()),
          os.path.getsize(os.path.join(folder, "model.safetensors")), top))


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    known = models()
    for name in sys.argv[1:] or known:
        if name not in known:
            raise SystemExit("there is no \"%s\"; there are %s" % (name, ", ".join(known)))
        make(name, *known[name], seed=1 + list(known).index(name))


if __name__ == "__main__":
    main()
