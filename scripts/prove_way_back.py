#!/usr/bin/env python3
"""Proves the way back: what `mica convert` makes of a GGUF, transformers reads to the same numbers and the same tokens.

    VENV/bin/python scripts/prove_way_back.py [--tool build/mica] [--tokenizers FOLDER] [NAME..]

Needs torch, transformers, safetensors and numpy, for tokenizers gguf and tokenizers too; installs nothing, says what is
missing. For every family of scripts/golden.py, and for variants of each configuration key that changes numbers: a
checkpoint with random weights goes to GGUF and back, transformers loads both folders in float32, and the logits of random
tokens are compared. For every tokenizer of tests/model/golden/tokenizers and every NAME.gguf with NAME.inp and NAME.out in
FOLDER (../shared/data/tokenizers): the folder that is made of it gives the same ids.

A row that ends in "refused" was refused with a sentence, which is shown; wrong numbers are a failure, a refusal is not, but
where it is not expected. The exit status is 0 if all is as expected."""
import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

missing = []
for module in ("torch", "transformers", "safetensors", "numpy", "gguf", "tokenizers"):
    try:
        __import__(module)
    except ImportError:
        missing.append(module)
if missing:
    raise SystemExit("missing: %s (python3 -m venv VENV && VENV/bin/pip install %s)" % (", ".join(missing), " ".join(missing)))

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import (BertConfig, BertModel, Gemma2Config, GPT2Config, LlamaConfig, MistralConfig,  # noqa: E402
                          MixtralConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

import golden  # noqa: E402
from golden import HEADS, LONG, MILLION, SMALL, rotary  # noqa: E402

NEAR = 1e-5  # of the largest logit: f32 and the order of sums, nothing else; a lost key costs 1e-2 and more
REFUSED = "refused"


def yarn(**more):
    return rotary("yarn", factor=4.0, original_max_position_embeddings=32, **more)


def llama3(**more):
    return rotary("llama3", 500000.0, **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 32, **more})


def variants():
    """name: (configuration, stored type, old words, what config.json loses or gains, what is expected)"""
    three = {**SMALL, "num_hidden_layers": 3}
    routed = {"moe_intermediate_size": 16, "num_experts": 5, "num_experts_per_tok": 2, "decoder_sparse_step": 1,
              "mlp_only_layers": []}
    caps = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0}
    gemma2 = {**HEADS, "sliding_window": 16, "query_pre_attn_scalar": 12}
    gpt2 = {"vocab_size": 80, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}
    full = "full_attention"
    slide = "sliding_attention"
    made = {
        "llama attention_bias": LlamaConfig(**HEADS, attention_bias=True),
        "llama mlp_bias": LlamaConfig(**HEADS, mlp_bias=True),
        "llama both biases, tied": LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        "llama no head_dim": LlamaConfig(**SMALL),
        "llama eps 1e-3": LlamaConfig(**HEADS, rms_norm_eps=1e-3),
        "llama theta 31415.9": LlamaConfig(**HEADS, **rotary(theta=31415.9)),
        "llama llama3 edges 2 8": LlamaConfig(**HEADS, **llama3(low_freq_factor=2.0, high_freq_factor=8.0)),
        "llama llama3 between powers": LlamaConfig(**HEADS, **rotary("llama3", 10000.0, factor=8.0, low_freq_factor=1.0,
                                                                     high_freq_factor=3.0,
                                                                     original_max_position_embeddings=41)),
        "llama llama3 context 48": LlamaConfig(**HEADS, **llama3(original_max_position_embeddings=48)),
        "llama yarn betas": LlamaConfig(**HEADS, **yarn(beta_fast=8.0, beta_slow=2.0)),
        "llama yarn attention_factor": LlamaConfig(**HEADS, **yarn(attention_factor=1.3)),
        "llama yarn mscale": LlamaConfig(**HEADS, **yarn(mscale=0.7, mscale_all_dim=1.0)),
        "mistral no window": MistralConfig(**HEADS, **MILLION, sliding_window=None),
        "mistral yarn": MistralConfig(**HEADS, **yarn(), sliding_window=16),
        "mistral no head_dim": MistralConfig(**SMALL, sliding_window=7),
        "mixtral window": MixtralConfig(**{**HEADS, "intermediate_size": 20}, **MILLION, num_local_experts=4,
                                        num_experts_per_tok=2, sliding_window=16),
        "mixtral theta, tied": MixtralConfig(**HEADS, **rotary(theta=5000.0), num_local_experts=3, num_experts_per_tok=1,
                                             tie_word_embeddings=True),
        "qwen2 window": Qwen2Config(**three, use_sliding_window=True, sliding_window=16, max_window_layers=1),
        "qwen2 yarn": Qwen2Config(**SMALL, **yarn()),
        "qwen3 window": Qwen3Config(**{**HEADS, "num_hidden_layers": 3}, use_sliding_window=True, sliding_window=16,
                                    max_window_layers=2),
        "qwen3 attention_bias": Qwen3Config(**HEADS, **MILLION, attention_bias=True),
        "qwen3moe norm_topk_prob false": Qwen3MoeConfig(**HEADS, **MILLION, **routed, norm_topk_prob=False),
        "qwen3moe attention_bias": Qwen3MoeConfig(**HEADS, **MILLION, **routed, norm_topk_prob=True,
                                                  attention_bias=True),
        "gemma2 null caps": Gemma2Config(**gemma2, attn_logit_softcapping=None, final_logit_softcapping=None),
        "gemma2 one cap": Gemma2Config(**gemma2, attn_logit_softcapping=None, final_logit_softcapping=4.0),
        "gemma2 layer_types": Gemma2Config(**{**gemma2, "num_hidden_layers": 4}, **caps,
                                           layer_types=[full, slide, slide, full]),
        "gemma2 all full": Gemma2Config(**gemma2, **caps, layer_types=[full, full]),
        "gemma3 pattern 3": gemma3(MILLION, layer_types=[slide if (i + 1) % 3 else full for i in range(7)]),
        "gemma3 layer_types": gemma3(MILLION, layer_types=[full, slide, slide, full, slide, full, slide]),
        "gemma3 linear, pattern 3": gemma3(rotary("linear", 1000000.0, factor=8.0),
                                           layer_types=[slide if (i + 1) % 3 else full for i in range(7)]),
        "gemma3 cap": gemma3(MILLION, final_logit_softcapping=4.0),
        "phi3 partial_rotary_factor": Phi3Config(**SMALL, **rotary(partial_rotary_factor=0.5), sliding_window=16),
        "phi3 head_dim": Phi3Config(**HEADS),
        "phi3 no window": Phi3Config(**SMALL, sliding_window=None),
        "phi3 longrope, attention_factor": Phi3Config(
            **SMALL, **rotary("longrope", original_max_position_embeddings=16, attention_factor=1.25,
                              short_factor=[1.0, 1.1, 1.25, 1.5], long_factor=[1.0, 1.7, 2.9, 6.5]),
            original_max_position_embeddings=16),
        "phi3 longrope, partial": Phi3Config(
            **SMALL, **rotary("longrope", original_max_position_embeddings=16, partial_rotary_factor=0.5,
                              short_factor=[1.0, 1.25], long_factor=[1.0, 6.5]), original_max_position_embeddings=16),
        "gpt2 n_positions 77": GPT2Config(**gpt2, n_positions=77, n_inner=40),
        "gpt2 no n_inner": GPT2Config(**gpt2, n_positions=64),
        "gpt2 untied, eps": GPT2Config(**gpt2, n_positions=64, tie_word_embeddings=False, layer_norm_epsilon=1e-3),
        "bert types, eps": BertConfig(vocab_size=80, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                      intermediate_size=40, max_position_embeddings=97, type_vocab_size=5,
                                      layer_norm_eps=1e-3),
    }
    both = {}
    for name, config in made.items():
        for old in (True, False) if has_rope(config) else (False,):
            both[name + (" (old words)" if old else "")] = (config, "float32", old)
    return both


def gemma3(whole, **more):
    config = golden.gemma3(whole).to_dict()
    config.update(more)
    return transformers.Gemma3TextConfig(**config)


def has_rope(config):
    return getattr(config, "rope_parameters", None) is not None


# ---- numbers ------------------------------------------------------------------------------------------------


def run(tool, *arguments):
    done = subprocess.run([tool, "convert", *arguments], capture_output=True, text=True)
    return done.returncode, (done.stderr or done.stdout).strip().split("\n")[-1]


def make(folder, config, dtype, old, seed):
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    kind = transformers.AutoModelForCausalLM
    model = BertModel(config, add_pooling_layer=False) if isinstance(config, BertConfig) else kind.from_config(config)
    golden.randomise(model, seed, getattr(torch, dtype))
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    golden.settle(folder, old)


def load(folder, bert):
    kind = BertModel if bert else transformers.AutoModelForCausalLM
    more = {"add_pooling_layer": False} if bert else {}
    model, info = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
                                       **more)
    strange = {k: v for k, v in info.items() if v and k != "error_msgs"}
    if strange:
        raise ValueError("transformers: %s" % strange)
    return model.eval()


@torch.no_grad()
def outputs(model, seed):
    """Of several lengths: beyond windows, below and beyond original contexts."""
    made = []
    for length in (5, 16, 41, 60):
        ids = torch.randint(3, 80, (2, length), generator=torch.Generator().manual_seed(seed + length))
        if isinstance(model, BertModel):
            made.append(model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state)
        else:
            made.append(model(ids, use_cache=False).logits)
    return made


def difference(a, b):
    return max(float((x - y).abs().max() / x.abs().max()) for x, y in zip(a, b))


def prove_numbers(tool, name, config, dtype, old, seed):
    with tempfile.TemporaryDirectory() as home:
        first, middle, second = (os.path.join(home, n) for n in ("first", "model.gguf", "second"))
        make(first, config, dtype, old, seed)
        for source, target in ((first, middle), (middle, second)):
            code, said = run(tool, source, target)
            if code != 0:
                return REFUSED, said
        bert = isinstance(config, BertConfig)
        try:
            apart = difference(outputs(load(first, bert), seed), outputs(load(second, bert), seed))
        except Exception as problem:
            return "FAILED", " ".join(str(problem).split())[:300]
        written = json.load(open(os.path.join(second, "config.json"), encoding="utf-8"))
        return "ok" if apart <= NEAR else "WRONG", "%.2g  %s" % (apart, written["architectures"][0])


# ---- tokens -------------------------------------------------------------------------------------------------


def copy_value(writer, field):
    import gguf
    kind = field.types[0]
    value = field.contents()
    if kind == gguf.GGUFValueType.ARRAY:
        writer.add_key_value(field.name, value, kind, sub_type=field.types[-1])
    else:
        writer.add_key_value(field.name, value, kind)


def with_tokenizer(tool, vocabulary, home):
    """A GGUF of a tiny Llama, Qwen 2, GPT-2 or BERT with the tokenizer of `vocabulary`."""
    import gguf
    source = gguf.GGUFReader(vocabulary)
    count = len(source.fields["tokenizer.ggml.tokens"].data)
    arch = source.fields["general.architecture"].contents()
    size = {**SMALL, "vocab_size": count, "hidden_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1}
    config = {"bert": lambda: BertConfig(vocab_size=count, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                                         intermediate_size=8, max_position_embeddings=64),
              "gpt2": lambda: GPT2Config(vocab_size=count, n_embd=8, n_layer=1, n_head=1, n_positions=64,
                                         bos_token_id=1, eos_token_id=2),
              "qwen2": lambda: Qwen2Config(**size)}.get(arch, lambda: LlamaConfig(**size))()
    folder, bare, made = (os.path.join(home, n) for n in ("tiny", "bare.gguf", "made.gguf"))
    make(folder, config, "float32", False, 1)
    code, said = run(tool, folder, bare)
    if code != 0:
        raise ValueError(said)
    body = gguf.GGUFReader(bare)
    writer = gguf.GGUFWriter(made, body.fields["general.architecture"].contents())
    for reader, wanted in ((body, lambda n: not n.startswith(("tokenizer.", "GGUF.", "general."))),
                           (source, lambda n: n.startswith("tokenizer."))):
        for field in reader.fields.values():
            if wanted(field.name):
                copy_value(writer, field)
    for tensor in body.tensors:
        writer.add_tensor(tensor.name, numpy.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made


def texts_and_ids(stem):
    texts = open(stem + ".inp", encoding="utf-8").read().split("\n__ggml_vocab_test__\n")
    lines = open(stem + ".out", encoding="utf-8").read().split("\n")
    return [(t, [int(i) for i in line.split()]) for t, line in zip(texts, lines)]


def mica_ids(tool, model, text, *more):
    done = subprocess.run([tool, "tokenize", "-m", model, "-f", "-", "--ids", *more], input=text.encode(), capture_output=True)
    return [int(i) for i in done.stdout.split()] if done.returncode == 0 else done.stderr.decode().strip()


def prove_vocabulary(tool, path):
    """The ids that are expected, what stands around a text, and what mica reads from the folder."""
    with tempfile.TemporaryDirectory() as home:
        folder, middle = os.path.join(home, "folder"), with_tokenizer(tool, path, home)
        code, said = run(tool, middle, folder)
        if code != 0:
            return REFUSED, said
        try:
            reader = transformers.AutoTokenizer.from_pretrained(folder)
            cases = texts_and_ids(path[:-len(".gguf")])
            for text, ids in cases:
                if reader.encode(text, add_special_tokens=False) != ids:
                    return "WRONG", "%r: %s for %s" % (text, reader.encode(text, add_special_tokens=False)[:12], ids[:12])
            for text, _ in cases[:12]:
                wanted = mica_ids(tool, middle, text, "--special")
                for name, ids in (("transformers", reader.encode(text)), ("mica", mica_ids(tool, folder, text, "--special"))):
                    if ids != wanted:
                        return "WRONG", "with ends, %s, %r: %s for %s" % (name, text, ids[:12], wanted[:12])
        except Exception as problem:  # whatever it is, it is the result
            return "FAILED", repr(problem)[:300]
        return "ok", "%d texts, %s" % (len(cases), type(reader).__name__)


PARTS = [("<s>", "bos_token"), ("</s>", "eos_token"), ("<unk>", "unk_token"), ("[UNK]", "unk_token"), ("[CLS]", "cls_token"),
         ("[SEP]", "sep_token"), ("[PAD]", "pad_token"), ("[MASK]", "mask_token"), ("<|begin_of_text|>", "bos_token"),
         ("<|endoftext|>", "eos_token")]
SAMPLES = ["Hello world", " a  b   c\n\n d\t", "Ünïcödé ﬁ ½ 日本語 🦙🦙", "I'll DON'T we've 12345 3.14", "</s> <s> [CLS] x", "",
           "naïve café e\u0301", "x" * 40, "\u00a0 \u3000.", "for(i=0;i<n;i++){}"]


def prove_json(tool, path):
    import tokenizers
    with tempfile.TemporaryDirectory() as home:
        first, middle, second = (os.path.join(home, n) for n in ("first", "model.gguf", "second"))
        source = tokenizers.Tokenizer.from_file(path)
        count = source.get_vocab_size(True)
        largest = max(source.get_vocab(True).values()) + 1
        make(first, LlamaConfig(**{**SMALL, "vocab_size": max(count, largest)}), "float32", True, 1)
        with open(os.path.join(first, "tokenizer.json"), "wb") as file:
            file.write(open(path, "rb").read())
        with open(os.path.join(first, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            known = source.get_vocab(True)
            json.dump({key: text for text, key in PARTS if text in known}, file)
        for a, b in ((first, middle), (middle, second)):
            code, said = run(tool, a, b)
            if code != 0:
                return REFUSED, said
        if not os.path.exists(os.path.join(second, "tokenizer.json")):
            return "WRONG", "no tokenizer.json, and no word of it"
        again = tokenizers.Tokenizer.from_file(os.path.join(second, "tokenizer.json"))
        for ends in (False, True):
            for text in SAMPLES:
                try:
                    a, b = (t.encode(text, add_special_tokens=ends).ids for t in (source, again))
                except Exception as problem:  # a unigram without an unknown token
                    if "unk_id" in str(problem):
                        continue
                    raise
                if a != b:
                    return "WRONG", "%r: %s for %s%s" % (text, b[:12], a[:12], " (with ends)" if ends else "")
            for text in SAMPLES:
                a, b = (mica_ids(tool, m, text, *(["--special"] if ends else [])) for m in (middle, second))
                if a != b:
                    return "WRONG", "mica, %r: %s for %s" % (text, b[:12], a[:12])
        same = open(path, "rb").read() == open(os.path.join(second, "tokenizer.json"), "rb").read()
        return "ok", "%d texts%s" % (2 * len(SAMPLES), ", the file itself" if same else "")


# ---- the whole ----------------------------------------------------------------------------------------------


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--tool", default=os.path.join(HERE, "..", "build", "mica"))
    words.add_argument("--tokenizers", default=os.path.join(HERE, "..", "..", "shared", "data", "tokenizers"))
    words.add_argument("names", nargs="*", metavar="NAME", help="rows whose name contains one of these")
    given = words.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tool = os.path.abspath(given.tool)
    rows = [("numbers", name, lambda row=row, i=i: prove_numbers(tool, None, *row, seed=i + 1))
            for i, (name, row) in enumerate({**golden.models(), **variants()}.items())]
    rows += [("tokens", os.path.basename(path), lambda path=path: prove_vocabulary(tool, path))
             for path in sorted(glob.glob(os.path.join(given.tokenizers, "*.gguf")))]
    rows += [("tokens", os.path.basename(path), lambda path=path: prove_json(tool, path))
             for path in sorted(glob.glob(os.path.join(HERE, "..", "tests", "model", "golden", "tokenizers", "*.json")))]
    counts = {}
    for what, name, prove in rows:
        if given.names and not any(n in name for n in given.names):
            continue
        result, detail = prove()
        counts[result] = counts.get(result, 0) + 1
        print("%-8s %-38s %-8s %s" % (what, name, result, re.sub(r"/[^ \"]*/", "", detail)), flush=True)
    print(", ".join("%d %s" % (n, word) for word, n in sorted(counts.items())))
    return 1 if {"WRONG", "FAILED"} & set(counts) else 0


if __name__ == "__main__":
    sys.exit(main())
