#!/usr/bin/env python3
"""Makes tests/model/golden/mlx-* again: tiny random checkpoints that MLX quantised and saved as its own folders, and the
logits that MLX computes from them in float32 on the CPU.

    python3 -m venv VENV && VENV/bin/pip install 'mlx[cpu]' mlx-lm
    VENV/bin/python scripts/golden_mlx.py [NAME..]
    VENV/bin/python scripts/golden_mlx.py --from FOLDER OUT BITS GROUP MODE

The second form quantises a Hugging Face folder of any size and writes the logits of all positions: for checking by hand.
A folder holds config.json and model.safetensors as mlx-lm writes them, and expected.json as scripts/golden.py does."""
import json
import os
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm.models.llama
import mlx_lm.models.qwen3
import mlx_lm.models.qwen3_moe
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

HOME = Path(__file__).resolve().parent.parent / "tests" / "model" / "golden"
VOCABULARY, LENGTH = 80, 41
ROWS = [0, 13, 27, LENGTH - 1]
COMMON = {"vocab_size": VOCABULARY, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2,
          "rms_norm_eps": 1e-6, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "hidden_size": 64, "intermediate_size": 96, "head_dim": 24}
QWEN = {**COMMON, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rope_theta": 1000000.0}
ROUTED = {**QWEN, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 5,
          "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1, "mlp_only_layers": [],
          "norm_topk_prob": True, "tie_word_embeddings": False}
LLAMA = {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": 10000.0,
         "tie_word_embeddings": True}
KINDS = {"llama": mlx_lm.models.llama, "qwen3": mlx_lm.models.qwen3, "qwen3_moe": mlx_lm.models.qwen3_moe}


def eight_at_the_ends(path, module):
    """Embedding and head in 8 bits, one matrix not at all: the per-tensor settings of a folder."""
    if "v_proj" in path:
        return False
    return {"group_size": 64, "bits": 8} if "embed_tokens" in path or "lm_head" in path else True


# name: (configuration, bits, group, mode, predicate or None for the model's own). An intermediate_size of 96 divides by 32
# and not by 64: there a matrix stays as it was.
MODELS = {
    "mlx-4bit": ({**QWEN, "tie_word_embeddings": False}, 4, 32, "affine", None),
    "mlx-6bit": ({**QWEN, "tie_word_embeddings": True}, 6, 32, "affine", None),
    "mlx-8bit": ({**QWEN, "tie_word_embeddings": False, "intermediate_size": 64}, 8, 32, "affine", None),
    "mlx-mixed": ({**LLAMA, "head_dim": 16}, 3, 64, "affine", eight_at_the_ends),
    "mlx-moe": (ROUTED, 4, 32, "affine", None),
    "mlx-mxfp4": ({**QWEN, "tie_word_embeddings": False}, 4, 32, "mxfp4", None),
    "mlx-nvfp4": (ROUTED, 4, 16, "nvfp4", None),
    "mlx-mxfp8": ({**QWEN, "tie_word_embeddings": True}, 8, 32, "mxfp8", None),
}


def random_model(config, seed):
    """As in scripts/golden.py: matrices keep the size of what passes, vectors are one and a fifth more or less."""
    kind = KINDS[config["model_type"]]
    model = kind.Model(kind.ModelArgs.from_dict(config))
    key = mx.random.key(seed)
    made = []
    for name, p in sorted(tree_flatten(model.parameters())):
        key, mine = mx.random.split(key)
        noise = mx.random.normal(p.shape, key=mine)
        scale = 0.7 if "embed" in name else 1.3 / p.shape[-1] ** 0.5
        made.append((name, 1 + 0.2 * noise if p.ndim == 1 else scale * noise))
    model.update(tree_unflatten(made))
    return model


def quantise(model, config, out, bits, group, mode, predicate):
    model, config = quantize_model(model, config, group, bits, mode=mode, quant_predicate=predicate)
    save_model(out, model)
    save_config(config, out / "config.json")
    (out / "model.safetensors.index.json").unlink()
    model, _ = load_model(out)  # what is in the folder is what counts
    return model


def write_expected(model, tokens, rows, out):
    logits = model(mx.array([tokens]))[0]
    if logits.dtype != mx.float32:
        print("%s: MLX computed in %s" % (out, logits.dtype))
    listed = [[float("%.7g" % x) for x in logits[row].astype(mx.float32).tolist()] for row in rows]
    with open(out / "expected.json", "w", encoding="utf-8") as file:
        json.dump({"tokens": tokens, "rows": rows, "logits": listed}, file)
        file.write("\n")


def make(name, seed):
    config, bits, group, mode, predicate = MODELS[name]
    out = HOME / name
    model = quantise(random_model(config, seed), dict(config), out, bits, group, mode, predicate)
    mx.random.seed(seed + 1000)
    write_expected(model, mx.random.randint(3, VOCABULARY, (LENGTH,)).tolist(), ROWS, out)
    print("%-10s %6d bytes" % (name, os.path.getsize(out / "model.safetensors")))


def from_folder(source, out, bits, group, mode="affine"):
    model, config = load_model(Path(source))
    model = quantise(model, config, Path(out), int(bits), int(group), mode, None)
    mx.random.seed(1)
    tokens = mx.random.randint(3, config["vocab_size"], (LENGTH,)).tolist()
    write_expected(model, tokens, list(range(LENGTH)), Path(out))


def main():
    mx.set_default_device(mx.cpu)
    if sys.argv[1:2] == ["--from"]:
        return from_folder(*sys.argv[2:])
    for name in sys.argv[1:] or MODELS:
        if name not in MODELS:
            raise SystemExit("there is no \"%s\"; there are %s" % (name, ", ".join(MODELS)))
        make(name, seed=1 + list(MODELS).index(name))
    return None


if __name__ == "__main__":
    main()
