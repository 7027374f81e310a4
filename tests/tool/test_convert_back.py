#!/usr/bin/env python3
"""`mica convert` from GGUF to a folder: what config.json says, what mica reads from it; links that lead out of a folder; and
what is left of a conversion that is killed.

    test_convert_back.py BUILD"""
import filecmp
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else "build"
TOOL = os.path.join(BUILD, "mica")
GOLDEN = os.path.join("tests", "model", "golden")
NAMES = ["bert", "bert-tanh", "gemma2", "gemma2-scalar", "gemma3", "gemma3-layers", "gemma3-linear", "gpt2", "gpt2-scales", "llama", "llama-linear", "llama-llama3",
         "llama-yarn", "mistral", "mixtral", "phi3", "phi3-longrope", "qwen2", "qwen2-window", "qwen3", "qwen3moe",
         "qwen3moe-raw", "smollm"]

# Keys of config.json that change no number, or only while training, and that GGUF has no word for.
IDLE = {"attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "bos_token_id", "classifier_dropout", "dtype",
        "embd_pdrop", "eos_token_id", "hidden_dropout_prob", "initializer_range", "output_router_logits", "pad_token_id",
        "pretraining_tp", "resid_pdrop", "router_aux_loss_coef", "router_jitter_noise", "summary_activation",
        "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "use_cache"}
# Keys that are left out because they are as the class has them anyway.
USUAL = {"attention_bias": False, "tie_word_embeddings": True, "use_bidirectional_attention": False, "scale_attn_weights": True,
         "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False, "add_cross_attention": False,
         "is_decoder": False, "_sliding_window_pattern": 6, "max_window_layers": 28, "rope_scaling": None,
         "use_sliding_window": False}
# Keys that are written though the checkpoint has not said them.
SAID = {"n_ctx": 128, "layer_types": None, "partial_rotary_factor": 1.0, "mlp_only_layers": [], "head_dim": None,
        "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": None, "norm_topk_prob": True}


def mica(*words, **more):
    run = subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=100, **more)
    return run.returncode, run.stdout, run.stderr


def old_words(config):
    """rope_theta and rope_scaling, as they are written; numbers of transformers 5 stand in rope_parameters."""
    rope = config.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    scaling = config.get("rope_scaling")
    if scaling and scaling["rope_type"] == "longrope":
        config["rope_scaling"] = {"type": "longrope", "long_factor": scaling["long_factor"],
                                  "short_factor": scaling["short_factor"]}
    return config


FULL, SLIDING = "full_attention", "sliding_attention"
# Of golden checkpoints: what their config.json says instead. Rotary settings are those of rope_scaling.
VARIANTS = [
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    ("gemma2", {"layer_types": [FULL, SLIDING]}),
    ("gemma2", {"layer_types": [FULL, FULL]}),
    ("gemma3", {"layer_types": [FULL, SLIDING, SLIDING, FULL, SLIDING, FULL, SLIDING]}),
    ("gemma3", {"layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL, SLIDING],
                "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ("gemma3", {"final_logit_softcapping": 4.0}),
    ("mistral", {"sliding_window": 7}),
    ("mixtral", {"sliding_window": 16}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1, "layer_types": [FULL, SLIDING]}),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 16, "layer_types": [SLIDING, FULL]}),
    ("qwen3moe", {"norm_topk_prob": False}),
    ("phi3", {"sliding_window": None}),
    ("phi3", {"partial_rotary_factor": 0.5}),
    ("phi3-longrope", {"original_max_position_embeddings": 32}),
    ("llama", {"rms_norm_eps": 0.001, "rope_theta": 31415.9}),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 8.0,
                                "beta_slow": 2.0, "attention_factor": 1.25}}),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
]


class Base(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.home)

    def at(self, *names):
        return os.path.join(self.home, *names)

    def works(self, *words):
        status, out, err = mica(*words)
        self.assertEqual((status, err), (0, ""), words)
        return out

    def refused(self, word, *words):
        status, out, err = mica(*words)
        self.assertEqual((status, out), (1, ""), (words, err))
        self.assertIn(word, err)

    def put(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class Config(Base):
    def test_says_what_the_checkpoint_said(self):
        for name in NAMES:
            with self.subTest(name):
                self.works("convert", os.path.join(GOLDEN, name), self.at("a.gguf"), "--force")
                self.works("convert", self.at("a.gguf"), self.at(name))
                with open(os.path.join(GOLDEN, name, "config.json"), encoding="utf-8") as file:
                    wanted = old_words(json.load(file))
                with open(self.at(name, "config.json"), encoding="utf-8") as file:
                    made = json.load(file)
                self.compare(wanted, made)
                # What mica makes of the folder is the GGUF again, to the bit.
                self.works("convert", self.at(name), self.at("b.gguf"), "--force")
                self.assertIn("metadata: 0 different", self.works("diff", self.at("a.gguf"), self.at("b.gguf")))

    def test_says_what_it_was_changed_to(self):
        for i, (name, changes) in enumerate(VARIANTS):
            with self.subTest("%s %s" % (name, changes)):
                with open(os.path.join(GOLDEN, name, "config.json"), encoding="utf-8") as file:
                    wanted = old_words(json.load(file))
                wanted.update(changes)
                folder = self.at("in%d" % i)
                shutil.copytree(os.path.join(GOLDEN, name), folder)
                self.put(os.path.join(folder, "config.json"), json.dumps(wanted))
                self.works("convert", folder, self.at("a.gguf"), "--force")
                self.works("convert", self.at("a.gguf"), self.at("out%d" % i))
                with open(self.at("out%d" % i, "config.json"), encoding="utf-8") as file:
                    self.compare(wanted, json.load(file))

    def test_refuses_what_it_has_no_word_for(self):
        """A key of the GGUF, named in the sentence: the bytes of a file are changed in place."""
        self.works("convert", os.path.join(GOLDEN, "llama-yarn"), self.at("a.gguf"))
        with open(self.at("a.gguf"), "rb") as file:
            was = file.read()
        for key, other in ((b"llama.rope.scaling.type", b"llama.rope.scaling.tyqe"), (b"llama.context_length", b"llama.kontext_length")):
            self.assertEqual(was.count(key), 1)
            with open(self.at("b.gguf"), "wb") as file:
                file.write(was.replace(key, other))
            self.refused(other.decode(), "convert", self.at("b.gguf"), self.at("out"))
            self.assertFalse(os.path.exists(self.at("out")))

    def compare(self, wanted, made):
        if "num_experts" in made:  # of the two words for it
            wanted["num_experts"] = wanted.pop("num_local_experts", wanted.get("num_experts"))
        for key, value in wanted.items():
            if key in IDLE:
                continue
            if key not in made:
                self.assertIn(key, USUAL)
                self.assertEqual(value or False, USUAL[key] or False, key)
            elif key == "rope_scaling" and value is not None:
                for inner, number in value.items():
                    self.assertEqual(number, made[key][inner], inner)
            else:
                same = {"gelu_new": "gelu_pytorch_tanh"}  # two words for one function
                self.assertEqual(same.get(str(value), value), same.get(str(made[key]), made[key]), key)
                self.assertEqual(type(value), type(made[key]), key)  # 10.0 is not 10 for transformers
        for key, value in made.items():
            if key not in wanted and key not in IDLE:
                self.assertTrue(key in SAID or value in (False, None), (key, value))


TEXTS = ["Hello world", " a  b   c\n\n d\t", "\u00dcn\u00efc\u00f6d\u00e9 \u65e5\u672c\u8a9e \U0001f999", "I'll DON'T 12345 3.14", "</s> <s> [CLS] x",
         "naive\u0301 cafe\u0301", "for(i=0;i<n;i++){}"]
VOCABULARIES = os.path.join("..", "shared", "data", "tokenizers")


class Tokens(Base):
    def ids(self, model, text, *more):
        run = subprocess.run([TOOL, "tokenize", "-m", model, "-f", "-", "--ids", *more], input=text.encode(),
                             capture_output=True, timeout=100)
        self.assertEqual(run.returncode, 0, run.stderr)
        return [int(word) for word in run.stdout.split()]

    def test_of_a_checkpoint(self):
        """Those of the folder, of the GGUF, and of the folder that this becomes."""
        home = os.path.join(GOLDEN, "tokenizers")
        for name in sorted(n for n in os.listdir(home) if n.endswith(".json")):
            with self.subTest(name):
                first, middle, second = self.at(name), self.at("a.gguf"), self.at("again-" + name)
                shutil.copytree(os.path.join(GOLDEN, "llama"), first)
                shutil.copy(os.path.join(home, name), os.path.join(first, "tokenizer.json"))
                with open(os.path.join(first, "tokenizer.json"), encoding="utf-8") as file:
                    added = [token["content"] for token in json.load(file)["added_tokens"]]
                parts = {"<s>": "bos_token", "</s>": "eos_token", "[CLS]": "cls_token", "[SEP]": "sep_token",
                         "<unk>": "unk_token", "[UNK]": "unk_token", "<|begin_of_text|>": "bos_token"}
                self.put(os.path.join(first, "tokenizer_config.json"),
                         json.dumps({parts[token]: token for token in added if token in parts}))
                self.works("convert", first, middle, "--force")
                self.works("convert", middle, second)
                text = "\n".join(TEXTS)
                for more in ([], ["--special"]):
                    wanted = self.ids(first, text, *more)
                    self.assertEqual(self.ids(middle, text, *more), wanted)
                    self.assertEqual(self.ids(second, text, *more), wanted)

    def test_of_known_vocabularies(self):
        if not os.path.isdir(VOCABULARIES):
            self.skipTest("%s is not there" % VOCABULARIES)
        for name in sorted(n[:-5] for n in os.listdir(VOCABULARIES) if n.endswith(".gguf")):
            with self.subTest(name):
                stem = os.path.join(VOCABULARIES, name)
                self.works("convert", stem + ".gguf", self.at(name))
                with open(stem + ".inp", encoding="utf-8") as file:
                    texts = file.read().split("\n__ggml_vocab_test__\n")
                with open(stem + ".out", encoding="utf-8") as file:
                    lines = file.read().split("\n")
                for text, line in list(zip(texts, lines))[-1:]:  # the long one
                    self.assertEqual(self.ids(self.at(name), text), [int(word) for word in line.split()], text)


class Links(Base):
    def checkpoint(self, *names):
        folder = self.at(*names)
        shutil.copytree(os.path.join(GOLDEN, "llama"), folder)
        return folder

    def test_links_out_of_the_folder_are_refused(self):
        self.put(self.at("secret"), "a secret")
        for name in ("chat_template.jinja", "tokenizer.json", "config.json"):
            folder = self.checkpoint("in-" + name)
            if os.path.exists(os.path.join(folder, name)):
                shutil.move(os.path.join(folder, name), self.at("secret"))
            os.symlink("../secret", os.path.join(folder, name))
            for output in ("out.gguf", "out"):
                self.refused("it is a link out of its folder", "convert", folder, self.at(output))
                self.assertFalse(os.path.exists(self.at(output)))

    def test_links_within_it_and_of_the_hub_are_followed(self):
        folder = self.checkpoint("in")
        os.makedirs(os.path.join(folder, "more"))
        self.put(os.path.join(folder, "more", "x"), "{{ 1 }}")
        os.symlink("more/x", os.path.join(folder, "chat_template.jinja"))
        self.works("convert", folder, self.at("a.gguf"))
        hub = self.at("models--some--llama")
        os.makedirs(os.path.join(hub, "blobs"))
        os.makedirs(os.path.join(hub, "snapshots", "1234"))
        for i, name in enumerate(("config.json", "model.safetensors", "chat_template.jinja")):
            shutil.copy(os.path.join(folder, name), os.path.join(hub, "blobs", str(i)))
            os.symlink("../../blobs/%d" % i, os.path.join(hub, "snapshots", "1234", name))
        self.works("convert", os.path.join(hub, "snapshots", "1234"), self.at("b.gguf"))
        self.assertIn("tensors: 21 the same; metadata: 1 different",  # the name
                      mica("diff", self.at("a.gguf"), self.at("b.gguf"))[1])
        self.put(os.path.join(hub, "refs"), "not of the blobs")
        os.remove(os.path.join(hub, "snapshots", "1234", "chat_template.jinja"))
        os.symlink("../../refs", os.path.join(hub, "snapshots", "1234", "chat_template.jinja"))
        self.refused("it is a link out of its folder", "convert", os.path.join(hub, "snapshots", "1234"), self.at("c.gguf"))

    def test_links_in_the_output_are_not_followed(self):
        self.works("convert", os.path.join(GOLDEN, "llama"), self.at("a.gguf"))
        os.makedirs(self.at("out"))
        for name in ("config.json", "model.safetensors"):
            self.put(self.at("victim-" + name), "precious")
            os.symlink("../victim-" + name, self.at("out", name))
            self.refused("it exists", "convert", self.at("a.gguf"), self.at("out"))
        os.remove(self.at("out", "config.json"))
        os.remove(self.at("out", "model.safetensors"))
        os.symlink("../nowhere", self.at("out", "config.json"))
        self.refused("it exists", "convert", self.at("a.gguf"), self.at("out"))
        os.symlink("../victim-model.safetensors", self.at("out", "model.safetensors"))
        os.symlink("../victim-config.json", self.at("out", "tokenizer.json"))
        self.works("convert", self.at("a.gguf"), self.at("out"), "--force")
        for name in ("config.json", "model.safetensors"):
            self.assertFalse(os.path.islink(self.at("out", name)))
            with open(self.at("victim-" + name), encoding="utf-8") as file:
                self.assertEqual(file.read(), "precious")
        self.assertFalse(os.path.lexists(self.at("nowhere")) or os.path.lexists(self.at("out", "tokenizer.json")))

    def test_an_older_model_leaves_nothing(self):
        """Of the files that readers would take for the new model's."""
        self.works("convert", os.path.join(GOLDEN, "llama"), self.at("a.gguf"))
        for name in ("model.safetensors.index.json", "tokenizer.json", "chat_template.jinja", "vocab.txt", "notes.txt"):
            self.put(self.at("out", name), "{}")
        self.works("convert", self.at("a.gguf"), self.at("out"), "--force")
        self.assertEqual(sorted(os.listdir(self.at("out"))), ["config.json", "model.safetensors", "notes.txt"])


class Killed(Base):
    """SIGKILL at any moment leaves a whole model or none, and the next run nothing else."""

    def kill_one(self, longest, *words):
        """Whether it was killed before it was done."""
        run = subprocess.Popen([TOOL, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(self.random.uniform(0, longest))
        run.send_signal(signal.SIGKILL)
        return run.wait() == -signal.SIGKILL

    def same_model(self, folder, other):
        return filecmp.cmpfiles(folder, other, ["config.json", "model.safetensors"], shallow=False)[0] == [
            "config.json", "model.safetensors"]

    def test_killed(self):
        self.random = random.Random(15)
        for name in ("llama", "gemma3"):
            self.works("convert", os.path.join(GOLDEN, name), self.at(name + ".gguf"))
            self.works("convert", self.at(name + ".gguf"), self.at(name))
        begin = time.monotonic()
        self.works("convert", self.at("llama.gguf"), self.at("out"))
        longest = (time.monotonic() - begin) * 1.2
        shutil.rmtree(self.at("out"))
        killed = 0
        for _ in range(20):  # a folder that was not there
            killed += self.kill_one(longest, "convert", self.at("llama.gguf"), self.at("out"))
            if os.path.exists(self.at("out")):
                self.assertTrue(self.same_model(self.at("out"), self.at("llama")), os.listdir(self.at("out")))
                shutil.rmtree(self.at("out"))
        shutil.copytree(self.at("gemma3"), self.at("old"))
        for i in range(20):  # one that is there, with another model in it
            kind = ("llama", "gemma3")[i % 2]
            killed += self.kill_one(longest, "convert", self.at(kind + ".gguf"), self.at("old"), "--force")
            if os.path.exists(self.at("old", "config.json")):
                self.assertTrue(self.same_model(self.at("old"), self.at("llama")) or
                                self.same_model(self.at("old"), self.at("gemma3")))
        self.assertGreater(killed, 5)
        self.works("convert", self.at("llama.gguf"), self.at("old"), "--force")
        self.works("convert", self.at("llama.gguf"), self.at("out"))
        self.assertEqual([n for n in os.listdir(self.home) + os.listdir(self.at("old")) if "mica-tmp" in n], [])


if __name__ == "__main__":
    unittest.main()
