#!/usr/bin/env python3
"""Compares mica with transformers over the keys of config.json: for every class a tiny random checkpoint for each value of each
key that changes what the model computes, as the folder that it is and as the GGUF that mica_convert makes of it.

    VENV/bin/python scripts/golden_keys.py BUILD [WORD..]      (VENV as in golden.py; BUILD has libmica-model.so)

A row of the table: the class, what is varied, and "right" with the distance as a part of the largest logit, "refused" with
the sentence, "alone" for what transformers no longer runs, or "WRONG". Exit status 1 if any is wrong. With words only variants whose name has one of them."""
import contextlib
import ctypes as c
import io
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import golden  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from golden import COMMON, HEADS, LENGTH, LLAMA3, LONG, MILLION, SMALL, VOCABULARY, YARN, rotary  # noqa: E402
from transformers import (BertConfig, Gemma2Config, Gemma3Config, Gemma3TextConfig, GPT2Config, LlamaConfig,  # noqa: E402
                          MistralConfig, MixtralConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

NEAR = 1e-4  # of the largest logit: golden_models.h
ALONE = {"phi3 longrope su": "the word of the first Phi-3 files, which newer versions of transformers no longer take"}
SLIDES, FULL = "sliding_attention", "full_attention"


# ---- mica ------------------------------------------------------------------------------------------------------
class ContextOptions(c.Structure):
    _fields_ = [("size", c.c_uint64), ("capacity", c.c_uint32), ("sequences", c.c_uint32), ("batch", c.c_uint32),
                ("cache_k", c.c_int), ("cache_v", c.c_int), ("shift", c.c_uint32), ("keep", c.c_uint32)]


class Feed(c.Structure):
    _fields_ = [("sequence", c.c_uint32), ("tokens", c.POINTER(c.c_uint32)), ("count", c.c_uint32), ("want", c.c_int)]


class Refused(Exception):
    pass


class Mica:
    def __init__(self, build):
        self.lib = c.CDLL(os.path.join(build, "libmica-model.so"))
        self.lib.mica_status_message.restype = c.c_char_p
        self.f32 = next(i for i in range(64) if self.text("mica_dtype_name", i) == "f32")
        self.device = c.c_void_p()
        self.call("mica_device_open", b"cpu", None, c.byref(self.device))

    def text(self, name, *arguments):
        function = getattr(self.lib, name)
        function.restype = c.c_char_p
        return function(*arguments).decode()

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise Refused(self.lib.mica_status_message().decode())

    def convert(self, folder, out):
        self.call("mica_convert", folder.encode(), out.encode(), None)

    def run(self, path, tokens, width, encoder):
        """Logits of every token, or the embedding."""
        model, context, sequence = c.c_void_p(), c.c_void_p(), c.c_uint32()
        self.call("mica_model_open", path.encode(), self.device, None, c.byref(model))
        try:
            options = ContextOptions(size=0, capacity=128, cache_k=self.f32, cache_v=self.f32)
            self.call("mica_context_create", model, c.byref(options), c.byref(context))
            ids = (c.c_uint32 * len(tokens))(*tokens)
            if encoder:
                out = (c.c_float * width)()
                self.call("mica_context_embed", context, ids, len(tokens), 1, 1, out)
                return torch.tensor(list(out))
            self.call("mica_sequence_create", context, c.byref(sequence))
            rows, logits = c.c_uint32(), c.POINTER(c.c_float)()
            feed = Feed(sequence, ids, len(tokens), 2)
            self.call("mica_context_feed", context, c.byref(feed), 1)
            self.call("mica_context_logits", context, sequence, c.byref(logits), c.byref(rows))
            return torch.tensor(logits[:rows.value * width]).view(rows.value, width)
        finally:
            self.lib.mica_context_release(context)
            self.lib.mica_model_release(model)


# ---- variants --------------------------------------------------------------------------------------------------
def nested(full, sliding=None):
    return {"rope_parameters": {FULL: full["rope_parameters"], SLIDES: (sliding or rotary())["rope_parameters"]}}


ACTIVATIONS = ["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "silu", "swish", "quick_gelu", "relu2",
               "gelu_python", "gelu_accurate", "tanh"]


def ropes():
    more = {"original_max_position_embeddings": 32}
    yield "linear", rotary("linear", factor=3.0)
    yield "dynamic", rotary("dynamic", factor=3.0)
    yield "yarn", YARN
    yield "yarn betas", rotary("yarn", factor=4.0, beta_fast=8.0, beta_slow=2.0, **more)
    yield "yarn attention_factor", rotary("yarn", factor=4.0, attention_factor=1.5, **more)
    yield "yarn mscale", rotary("yarn", factor=4.0, mscale=0.7, mscale_all_dim=0.3, **more)
    yield "yarn truncate", rotary("yarn", factor=4.0, truncate=False, **more)
    yield "yarn factor below 1", rotary("yarn", factor=0.8, **more)
    yield "llama3", LLAMA3
    yield "llama3 other numbers", rotary("llama3", 30000.0, factor=2.0, low_freq_factor=0.5, high_freq_factor=8.0,
                                         original_max_position_embeddings=16)
    yield "longrope", rotary("longrope", factor=4.0, original_max_position_embeddings=16,
                             short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.0, 1.7, 2.0, 2.5, 3.0, 6.5])
    yield "longrope attention_factor", rotary("longrope", attention_factor=1.3, original_max_position_embeddings=16,
                                              short_factor=[1.0] * 6, long_factor=[1.0, 1.7, 2.0, 2.5, 3.0, 6.5])
    yield "theta", rotary(theta=777.0)


def variants():
    """name, configuration, members of config.json to change after it was saved (None: take them out), old rope words"""
    bases = {"llama": (LlamaConfig, HEADS), "mistral": (MistralConfig, {**HEADS, "sliding_window": 16}),
             "mixtral": (MixtralConfig, {**HEADS, "intermediate_size": 20, "num_local_experts": 4,
                                         "num_experts_per_tok": 2}),
             "qwen2": (Qwen2Config, {**HEADS}), "qwen3": (Qwen3Config, HEADS),
             "qwen3_moe": (Qwen3MoeConfig, {**HEADS, "moe_intermediate_size": 16, "num_experts": 5,
                                            "num_experts_per_tok": 2}),
             "gemma2": (Gemma2Config, {**HEADS, "sliding_window": 16, "num_hidden_layers": 3}),
             "phi3": (Phi3Config, SMALL)}
    for name, (kind, base) in bases.items():
        yield name, kind(**base), {}, False
        key = "hidden_activation" if name == "gemma2" else "hidden_act"
        for word in ACTIVATIONS:
            yield "%s %s %s" % (name, key, word), kind(**base, **{key: word}), {}, True
        yield name + " eps", kind(**base, rms_norm_eps=0.3), {}, True
        yield name + " eps left out", kind(**base), {"rms_norm_eps": None}, True
        yield name + " tied", kind(**base, tie_word_embeddings=True), {}, True
        yield name + " not tied", kind(**base, tie_word_embeddings=False), {}, True
        for word, rope in ropes():
            if name == "phi3":
                continue
            for old in (False, True):
                yield "%s rope %s%s" % (name, word, " in old words" if old else ""), kind(**base, **rope), {}, old
        yield name + " theta left out", kind(**base), {"rope_theta": None, "rope_parameters": None}, True
        yield name + " theta in rope_scaling", kind(**base), {
            "rope_parameters": None, "rope_theta": 123.0,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}}, False
        yield name + " window of 9", kind(**{**base, "sliding_window": 9}), {}, True
        yield name + " unknown key", kind(**base), {"new_attention_twist": 3}, True
        yield name + " bookkeeping", kind(**base), {"_name_or_path": "x/y", "unsloth_version": "2025.1",
                                                    "auto_map": {"a": "b"}, "torch_dtype": "float32"}, True
        yield name + " unknown rope", kind(**base), {"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, True
        yield name + " rope without a type", kind(**base), {"rope_scaling": {"factor": 2.0}}, True
        yield name + " partial rotary", kind(**base), {"partial_rotary_factor": 0.5}, True
        if name not in ("mixtral", "mistral", "phi3", "qwen2"):
            yield name + " attention_bias", kind(**base, attention_bias=True), {}, True
    for name in ("qwen2", "qwen3"):
        kind, base = bases[name][0], {**bases[name][1], "num_hidden_layers": 4}
        for first in (0, 1, 3, 4, 28):
            yield "%s window from layer %d" % (name, first), kind(
                **base, use_sliding_window=True, sliding_window=7, max_window_layers=first), {"layer_types": None}, True
        yield name + " layer_types", kind(**base, use_sliding_window=True, sliding_window=7,
                                          layer_types=[SLIDES, FULL, FULL, SLIDES]), {
                                              "layer_types": [SLIDES, FULL, FULL, SLIDES]}, True
        yield name + " window off", kind(**base, use_sliding_window=False, sliding_window=7), {"sliding_window": 7}, True
        yield name + " no kv heads", kind(**{**base, "num_key_value_heads": 4}), {"num_key_value_heads": None}, True
    yield "gemma2 layer_types left out", Gemma2Config(**bases["gemma2"][1]), {"layer_types": None}, True
    yield "qwen2 narrow heads", Qwen2Config(**SMALL), {}, True
    moe = bases["qwen3_moe"][1]
    yield "qwen3_moe window", Qwen3MoeConfig(**moe, use_sliding_window=True, sliding_window=7), {}, True
    yield "qwen3_moe norm_topk_prob", Qwen3MoeConfig(**moe, norm_topk_prob=True), {}, True
    yield "qwen3_moe norm_topk_prob left out", Qwen3MoeConfig(**moe), {"norm_topk_prob": None}, True
    yield "qwen3_moe one dense layer", Qwen3MoeConfig(**{**moe, "num_hidden_layers": 3}, mlp_only_layers=[1]), {}, True
    yield "qwen3_moe sparse step", Qwen3MoeConfig(**{**moe, "num_hidden_layers": 3}, decoder_sparse_step=2), {}, True
    yield "qwen3_moe narrow heads", Qwen3MoeConfig(**{**moe, "head_dim": 8}), {"head_dim": None}, True
    yield "mixtral three experts", MixtralConfig(**{**bases["mixtral"][1], "num_experts_per_tok": 3}), {}, True
    yield "llama mlp_bias", LlamaConfig(**HEADS, mlp_bias=True), {}, True
    yield "llama no head_dim", LlamaConfig(**SMALL), {"head_dim": None}, True
    yield "llama pretraining_tp", LlamaConfig(**SMALL, pretraining_tp=2), {}, True
    yield "mistral no window", MistralConfig(**{**HEADS, "sliding_window": None}), {}, True
    gemma2 = bases["gemma2"][1]
    for key, value in (("query_pre_attn_scalar", 20), ("attn_logit_softcapping", 2.0), ("final_logit_softcapping", 3.0),
                       ("attn_logit_softcapping", None), ("final_logit_softcapping", None),
                       ("use_bidirectional_attention", True), ("layer_types", [FULL, SLIDES, SLIDES]),
                       ("layer_types", [FULL] * 3), ("layer_types", [SLIDES] * 3)):
        yield "gemma2 %s %s" % (key, json.dumps(value)), Gemma2Config(**gemma2, **{key: value}), {}, True
    for key in ("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"):
        yield "gemma2 %s left out" % key, Gemma2Config(**gemma2), {key: None}, True
    yield from gemma3_variants()
    yield from phi3_variants()
    yield from other_variants()


def gemma3_variants():
    base = {**HEADS, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 20,
            "num_hidden_layers": 7, "sliding_window": 16}
    linear = rotary("linear", 1000000.0, factor=8.0)
    for old in (False, True):
        word = " in old words" if old else ""
        yield "gemma3" + word, Gemma3TextConfig(**base, **nested(MILLION)), {}, old
        yield "gemma3 rope linear" + word, Gemma3TextConfig(**base, **nested(linear)), {}, old
        yield "gemma3 rope linear pattern 3" + word, Gemma3TextConfig(
            **base, **nested(linear), sliding_window_pattern=3), {} if not old else {
                "sliding_window_pattern": 3, "layer_types": None}, old
        yield "gemma3 local base" + word, Gemma3TextConfig(**base, **nested(MILLION, rotary(theta=500.0))), {}, old
        for kind, rope in ropes():
            yield "gemma3 rope %s%s" % (kind, word), Gemma3TextConfig(**base, **nested(rope)), {}, old
    yield "gemma3 layer_types left out", Gemma3TextConfig(**base), {"layer_types": None}, True
    yield "gemma3 sliding rope linear", Gemma3TextConfig(
        **base, **nested(MILLION, rotary("linear", factor=2.0))), {}, False
    for types in ([FULL] + [SLIDES] * 6, [SLIDES, FULL] * 3 + [SLIDES], [FULL] * 7, [SLIDES] * 7,
                  [FULL, FULL, SLIDES, SLIDES, SLIDES, FULL, SLIDES]):
        yield "gemma3 layer_types " + "".join(t[0] for t in types), Gemma3TextConfig(**base, layer_types=types), {}, True
    yield "gemma3 window wider than the context", Gemma3TextConfig(**{**base, "sliding_window": 4096}), {}, True
    for key, value in (("query_pre_attn_scalar", 20), ("attn_logit_softcapping", 2.0), ("final_logit_softcapping", 3.0),
                       ("use_bidirectional_attention", True), ("attention_bias", True), ("tie_word_embeddings", False),
                       ("rms_norm_eps", 0.3)):
        yield "gemma3 %s %s" % (key, json.dumps(value)), Gemma3TextConfig(**base, **{key: value}), {}, True
    for word in ACTIVATIONS:
        yield "gemma3 hidden_activation " + word, Gemma3TextConfig(**base, hidden_activation=word), {}, True
    for key in ("query_pre_attn_scalar", "rope_local_base_freq", "rope_theta"):
        yield "gemma3 %s left out" % key, Gemma3TextConfig(**base), {key: None}, True
    yield "gemma3 flat rope_parameters", Gemma3TextConfig(**base), {
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}, False
    yield "gemma3 unknown key", Gemma3TextConfig(**base), {"new_attention_twist": 3}, True


def phi3_variants():
    four = {"short_factor": [1.0, 1.1, 1.25, 1.5], "long_factor": [1.0, 1.7, 2.9, 6.5]}
    yield "phi3 longrope", Phi3Config(**SMALL, **LONG, original_max_position_embeddings=16), {}, True
    short = Phi3Config(**SMALL, original_max_position_embeddings=16)
    for word, more in (("su", {"type": "su"}), ("yarn", {"type": "yarn"}), ("factor", {"type": "longrope", "factor": 2.0}),
                       ("attention_factor", {"rope_type": "longrope", "attention_factor": 1.7})):
        yield "phi3 longrope " + word, short, {"rope_scaling": {**four, **more}}, True
    yield "phi3 longrope no original", Phi3Config(**SMALL), {"rope_scaling": {
        "type": "longrope", **four}, "original_max_position_embeddings": None}, True
    yield "phi3 partial rotary", Phi3Config(**SMALL, partial_rotary_factor=0.5), {}, False
    yield "phi3 no window", Phi3Config(**{**SMALL, "sliding_window": None}), {}, True
    yield "phi3 head_dim", Phi3Config(**SMALL, head_dim=12), {}, True
    yield "phi3 linear", Phi3Config(**SMALL), {"rope_scaling": {"type": "linear", "factor": 2.0}}, True


def other_variants():
    gpt2 = {"vocab_size": VOCABULARY, "n_positions": 128, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 40,
            "bos_token_id": 1, "eos_token_id": 2}
    bert = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 40, "max_position_embeddings": 128, "pad_token_id": 0}
    yield "gpt2", GPT2Config(**gpt2), {}, False
    yield "bert", BertConfig(**bert), {}, False
    for word in ACTIVATIONS:
        yield "gpt2 activation_function " + word, GPT2Config(**gpt2, activation_function=word), {}, False
        yield "bert hidden_act " + word, BertConfig(**bert, hidden_act=word), {}, False
    for key, value in (("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True),
                       ("reorder_and_upcast_attn", True), ("layer_norm_epsilon", 0.3), ("n_inner", None),
                       ("tie_word_embeddings", False), ("add_cross_attention", True), ("n_head", 2)):
        yield "gpt2 %s %s" % (key, json.dumps(value)), GPT2Config(**{**gpt2, key: value}), {}, False
    yield "gpt2 heads of 17", GPT2Config(**{**gpt2, "n_embd": 68}), {}, False
    yield "gpt2 both scales", GPT2Config(**gpt2, scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True), {}, False
    yield "gpt2 aliases", GPT2Config(**gpt2), {"n_embd": None, "hidden_size": 32, "n_head": None,
                                               "num_attention_heads": 4, "n_layer": None, "num_hidden_layers": 3}, False
    yield "gpt2 n_ctx", GPT2Config(**gpt2), {"n_ctx": 50}, False
    for key, value in (("layer_norm_eps", 0.3), ("type_vocab_size", 1), ("is_decoder", True),
                       ("position_embedding_type", "relative_key"), ("num_attention_heads", 2),
                       ("chunk_size_feed_forward", LENGTH), ("classifier_dropout", 0.3)):
        yield "bert %s %s" % (key, json.dumps(value)), BertConfig(**{**bert, key: value}), {}, False
    yield "bert eps left out", BertConfig(**bert), {"layer_norm_eps": None}, False


# ---- the comparison --------------------------------------------------------------------------------------------
def change(folder, members):
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for key, value in members.items():
        config.pop(key, None)
        if value is not None:
            config[key] = value
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


@torch.no_grad()
def expected(folder, tokens, encoder):
    """What transformers says of the folder as it is now: its own reading of the keys counts."""
    kind = transformers.BertModel if encoder else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor([tokens])
    if encoder:
        hidden = model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        return torch.nn.functional.normalize(hidden.mean(0), dim=0)
    return model(ids, use_cache=False).logits[0]


def make(folder, config, seed, old, members):
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    encoder = isinstance(config, BertConfig)
    model = (transformers.BertModel(config, add_pooling_layer=False) if encoder
             else transformers.AutoModelForCausalLM.from_config(config))
    golden.randomise(model, seed, torch.float32)
    model.save_pretrained(folder)
    golden.settle(folder, old)
    change(folder, members)
    return encoder


def compare(mica, name, config, members, old):
    folder = tempfile.mkdtemp(prefix="keys")
    tokens = torch.randint(3, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(7)).tolist()
    try:
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                encoder = make(folder, config, 1, old, members)
                want = expected(folder, tokens, encoder)
        except Exception as error:  # transformers refuses it: mica must not run it
            want, encoder = None, isinstance(config, BertConfig)
            reason = "%s: %s" % (type(error).__name__, str(error).split("\n")[0][:60])
        worst, verdict = 0.0, None
        for form in ("folder", "gguf"):
            path = folder
            try:
                if form == "gguf":
                    path = os.path.join(folder, "model.gguf")
                    mica.convert(folder, path)
                got = mica.run(path, tokens, want.shape[-1] if want is not None else VOCABULARY, encoder)
            except Refused as error:
                verdict = "refused: " + str(error)
                break
            if want is None:
                return ("alone", ALONE[name]) if name in ALONE else ("WRONG", "%s runs what transformers refuses (%s)" % (form, reason))
            apart = float(((got - want).abs().amax(-1) / want.abs().amax(-1)).max())
            worst = max(worst, apart)
            if not apart <= NEAR:
                return "WRONG", "%s %.3g" % (form, apart)
        return ("refused", verdict[9:]) if verdict else ("right", "%.1e" % worst)
    finally:
        shutil.rmtree(folder)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    mica, words, count = Mica(sys.argv[1]), sys.argv[2:], {}
    for name, config, members, old in variants():
        if words and not any(word in name for word in words):
            continue
        verdict, detail = compare(mica, name, config, members, old)
        count[verdict] = count.get(verdict, 0) + 1
        print("%-44s %-8s %s" % (name, verdict, detail), flush=True)
    print(", ".join("%d %s" % (n, v) for v, n in sorted(count.items())))
    sys.exit(1 if count.get("WRONG") else 0)


if __name__ == "__main__":
    main()
