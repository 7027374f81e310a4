#!/usr/bin/env python3
"""`mica convert` from GGUF to a folder: what config.json says, what mica reads from it; how the folder makes one vector of a
text; links that lead out of a folder; and what is left of a conversion that is killed.

    test_convert_back.py BUILD"""
import filecmp
import json
import os
import random
import resource
import shutil
import signal
import struct
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


ST = "sentence_transformers."
# As older and newer versions write them.
CLASSES = [[ST + "models.Transformer", ST + "models.Pooling", ST + "models.Normalize"],
           [ST + "base.modules.transformer.Transformer", ST + "sentence_transformer.modules.pooling.Pooling",
            ST + "base.modules.normalize.Normalize"]]
PLACES = ["", "1_Pooling", "2_Normalize"]
MODES = {"mean": ("mean", "pooling_mode_mean_tokens", 1), "cls": ("cls", "pooling_mode_cls_token", 2),
         "last": ("lasttoken", "pooling_mode_lasttoken", 3)}


def modules(classes=CLASSES[0], places=PLACES):
    return [{"idx": i, "name": str(i), "path": place, "type": name} for i, (name, place) in enumerate(zip(classes, places))]


class Pooling(Base):
    def checkpoint(self, name, pooling, modules=modules(), at="1_Pooling"):
        """A golden checkpoint with words, and the files of sentence-transformers; texts are as they are."""
        folder = tempfile.mkdtemp(dir=self.home)
        shutil.copytree(os.path.join(GOLDEN, name), folder, dirs_exist_ok=True)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "dog", "##s"]
        self.put(os.path.join(folder, "tokenizer.json"), json.dumps({
            "added_tokens": [{"id": i, "content": words[i], "special": True} for i in range(4)],
            "normalizer": {"type": "BertNormalizer", "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {word: i for i, word in enumerate(words)}}}))
        self.put(os.path.join(folder, "tokenizer_config.json"),
                 json.dumps({"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}))
        self.put(os.path.join(folder, "modules.json"), modules if isinstance(modules, str) else json.dumps(modules))
        if at:
            self.put(os.path.join(folder, at, "config.json"), pooling if isinstance(pooling, str) else json.dumps(pooling))
        return folder

    def vector(self, model, *more):
        return self.works("embed", "-m", model, "-p", "a cat dogs", *more)

    def read(self, *names):
        with open(os.path.join(*names), encoding="utf-8") as file:
            return file.read()

    def test_vectors_are_as_the_folder_says(self):
        for name in ("bert", "qwen3"):
            for how, (word, key, _) in MODES.items():
                old = {"word_embedding_dimension": 32, **{other: other == key for _, other, _ in MODES.values()},
                       "pooling_mode_max_tokens": False, "pooling_mode_weightedmean_tokens": False}
                both = {**old, "pooling_mode_max_tokens": True, "pooling_mode": [word]}  # the new word goes first
                new = {"embedding_dimension": 32, "pooling_mode": word, "include_prompt": False}
                forms = [(new, CLASSES[1]), (old, CLASSES[0]), (both, CLASSES[1][:2])]
                for pooling, classes in forms if name == "bert" else forms[:1]:
                    with self.subTest("%s %s" % (name, pooling)):
                        folder = self.checkpoint(name, pooling, modules(classes))
                        wanted = self.vector(folder, "--pooling", how)
                        for other in MODES:
                            self.assertEqual(self.vector(folder, "--pooling", other) == wanted, other == how)
                        self.assertEqual(self.vector(folder), wanted)
                        self.works("convert", folder, folder + ".gguf")
                        self.works("convert", folder + ".gguf", folder + "-back")
                        self.works("convert", folder, folder + "-copy")
                        for form in (".gguf", "-back", "-copy"):
                            self.assertEqual(self.vector(folder + form), wanted, form)
                        self.assertEqual(len(json.loads(self.read(folder + "-copy", "modules.json"))), len(classes))
                        self.assertEqual(json.loads(self.read(folder + "-copy", "1_Pooling", "config.json")), pooling)

    def test_of_no_word_it_is_the_mean(self):
        folder = self.checkpoint("qwen3", {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": False})
        self.assertEqual(self.vector(folder), self.vector(folder, "--pooling", "mean"))
        os.remove(os.path.join(folder, "modules.json"))
        self.assertEqual(self.vector(folder), self.vector(folder, "--pooling", "last"))

    def test_of_every_family(self):
        for name in (n for n in NAMES if "-" not in n):
            with self.subTest(name):
                folder = self.checkpoint(name, {"pooling_mode": "cls"})
                self.works("convert", folder, self.at("a.gguf"), "--force", "--without-tokenizer")
                self.assertRegex(self.works("inspect", self.at("a.gguf")), r"pooling_type +2\n")
                again = os.path.join(folder, "again", os.path.basename(folder))  # of the same name
                os.makedirs(os.path.dirname(again))
                self.works("convert", self.at("a.gguf"), again)
                self.assertEqual(json.loads(self.read(again, "modules.json")), modules())
                self.works("convert", again, self.at("b.gguf"), "--force", "--without-tokenizer")
                self.assertIn("metadata: 0 different", self.works("diff", self.at("a.gguf"), self.at("b.gguf")))

    def test_refuses_what_it_cannot_do(self):
        mean = {"pooling_mode_mean_tokens": True}
        dense = CLASSES[0] + [ST + "models.Dense"]
        others = [
            ("\"max\"", {"pooling_mode_max_tokens": True}, modules()),
            ("\"max\"", {"pooling_mode": "max"}, modules()),
            ("\"weightedmean\"", {"pooling_mode_weightedmean_tokens": True}, modules()),
            ("\"mean_sqrt_len_tokens\"", {"pooling_mode_mean_sqrt_len_tokens": True}, modules()),
            ("\"eos\"", {"pooling_mode": "eos"}, modules()),
            ("2 poolings at once", {**mean, "pooling_mode_cls_token": True}, modules()),
            ("2 poolings at once", {"pooling_mode": ["cls", "mean"]}, modules()),
            ("pooling_mode", {"pooling_mode": 3}, modules()),
            ("pooling_mode_cls_token", {"pooling_mode_cls_token": "yes"}, modules()),
            ("\"power\" is not known", {**mean, "power": 2}, modules()),
            ("vectors of 33, the model's have 32", {**mean, "word_embedding_dimension": 33}, modules()),
            ("an array, expected an object", "[]", modules()),
            ("config.json", "{", modules()),
            ("models.Dense", mean, modules(dense, PLACES + ["3_Dense"])),
            ("models.LSTM", mean, modules([CLASSES[0][0], ST + "models.LSTM"])),
            ("module 0 is \"custom_st.Transformer\"", mean, modules(["custom_st.Transformer", *CLASSES[0][1:]])),
            ("module 1 is \"others.models.Pooling\"", mean, modules([CLASSES[0][0], "others.models.Pooling"])),
            ("module 2", mean, modules([CLASSES[0][0], CLASSES[0][1], CLASSES[0][1]])),
            ("module 1", mean, modules([CLASSES[0][0], CLASSES[0][2], CLASSES[0][1]])),
            ("no Pooling", mean, modules(CLASSES[0][:1])),
            ("no Pooling", mean, []),
            ("an object, expected an array", mean, {}),
            ("modules.json", mean, "[" * 100),
            ("path", mean, [{"type": CLASSES[0][0]}]),
            ("module 0 has the path \"0_Transformer\"", mean, modules(places=["0_Transformer", *PLACES[1:]])),
            ("module 1 has the path \"\"", mean, modules(places=["", "", ""])),
        ]
        for word, pooling, listed in others:
            with self.subTest(word):
                folder = self.checkpoint("bert", pooling, listed)
                for words in (["embed", "-m", folder, "-p", "a"], ["convert", folder, self.at("out.gguf")]):
                    self.refused(word, *words)
                if "33" not in word:  # which of the model's keys has the width, a copy does not know
                    self.refused(word, "convert", folder, self.at("out"))
        folder = self.checkpoint("bert", mean)
        self.put(os.path.join(folder, "2_Normalize", "config.json"), '{"module_input_name": "token_embeddings"}')
        self.refused("module_input_name", "embed", "-m", folder, "-p", "a")
        self.assertEqual([name for name in os.listdir(self.home) if name.startswith("out")], [])

    def test_stays_in_the_folder(self):
        mean = {"pooling_mode_mean_tokens": True}
        self.put(self.at("far", "config.json"), json.dumps(mean))
        for path in ("../far", "a/../../far", self.at("far"), "..", "x/.."):
            folder = self.checkpoint("bert", mean, modules(places=["", path, "2_Normalize"]))
            self.refused("expected one inside the folder", "embed", "-m", folder, "-p", "a")
        folder = self.checkpoint("bert", mean, at=None)
        self.refused("is not there", "embed", "-m", folder, "-p", "a")
        os.symlink("../far", os.path.join(folder, "1_Pooling"))
        self.refused("it is a link out of its folder", "embed", "-m", folder, "-p", "a")
        folder = self.checkpoint("bert", {"pooling_mode": "cls"}, modules(places=["", "a/..b", ""])[:2], at="a/..b")
        self.assertEqual(self.vector(folder), self.vector(folder, "--pooling", "cls"))

    def test_a_type_that_a_folder_has_no_word_for(self):
        self.works("convert", self.checkpoint("bert", {"pooling_mode": "cls"}), self.at("a.gguf"))
        with open(self.at("a.gguf"), "rb") as file:
            was = file.read()
        key = b"bert.pooling_type" + struct.pack("<I", 4)
        self.assertEqual(was.count(key + struct.pack("<I", 2)), 1)
        for number in (4, 99, 0):
            with open(self.at("b.gguf"), "wb") as file:
                file.write(was.replace(key + struct.pack("<I", 2), key + struct.pack("<I", number)))
            if number != 0:
                self.refused('"bert.pooling_type" is %d' % number, "convert", self.at("b.gguf"), self.at("out"))
                self.assertFalse(os.path.exists(self.at("out")))
        self.works("convert", self.at("b.gguf"), self.at("out"))
        self.assertFalse(os.path.exists(self.at("out", "modules.json")))

    def test_lower_case(self):
        folder = self.checkpoint("bert", {"pooling_mode": "cls"})
        side = os.path.join(folder, "sentence_bert_config.json")
        self.put(side, json.dumps({"max_seq_length": 128, "do_lower_case": False}))
        self.works("convert", folder, self.at("a.gguf"))
        self.put(side, json.dumps({"max_seq_length": 128, "do_lower_case": True}))
        self.refused('"do_lower_case" is true', "convert", folder, self.at("b.gguf"))
        self.refused('"do_lower_case" is true', "embed", "-m", folder, "-p", "A")
        self.put(side, json.dumps({"do_lower_case": "yes"}))
        self.refused("do_lower_case", "convert", folder, self.at("b.gguf"))

    def test_into_a_folder_that_is_there(self):
        self.works("convert", self.checkpoint("bert", {"pooling_mode": "cls"}), self.at("a.gguf"))
        self.works("convert", os.path.join(GOLDEN, "bert"), self.at("plain.gguf"))
        os.makedirs(self.at("far"))
        self.put(self.at("far", "config.json"), "precious")
        os.makedirs(self.at("out"))
        os.symlink("../far", self.at("out", "1_Pooling"))
        for more in ([], ["--force"]):
            self.refused("a link to one", "convert", self.at("a.gguf"), self.at("out"), *more)
        self.works("convert", self.at("plain.gguf"), self.at("out"), "--force")
        self.assertEqual(self.read(self.home, "far", "config.json"), "precious")
        os.remove(self.at("out", "1_Pooling"))
        shutil.rmtree(self.at("out"))
        self.put(self.at("out", "modules.json"), "[]")
        self.refused("it exists", "convert", self.at("a.gguf"), self.at("out"))
        self.assertEqual(os.listdir(self.at("out")), ["modules.json"])
        self.put(self.at("out", "sentence_bert_config.json"), "{}")
        os.makedirs(self.at("out", "1_Pooling"))
        self.put(self.at("out", "1_Pooling", "config.json.1.1.mica-tmp"), "")
        self.works("convert", self.at("a.gguf"), self.at("out"), "--force")
        self.assertEqual(os.listdir(self.at("out", "1_Pooling")), ["config.json"])
        self.assertNotIn("sentence_bert_config.json", os.listdir(self.at("out")))
        self.assertEqual(self.vector(self.at("out")), self.vector(self.at("out"), "--pooling", "cls"))
        self.works("convert", self.at("plain.gguf"), self.at("out"), "--force")
        self.assertNotIn("modules.json", os.listdir(self.at("out")))

    def test_nothing_is_left(self):
        """Of a folder that was not finished, and of one whose maker was killed."""
        self.works("convert", self.checkpoint("bert", {"pooling_mode": "cls"}), self.at("a.gguf"))
        self.put(self.at("new.1.1.mica-tmp", "1_Pooling", "config.json"), "{}")
        self.works("convert", self.at("a.gguf"), self.at("new"))
        self.assertNotIn("new.1.1.mica-tmp", os.listdir(self.home))
        shutil.rmtree(self.at("new"))
        was = sorted(os.listdir(self.home))
        for there in (False, True):  # a disk that is full after the small files
            if there:
                os.makedirs(self.at("new"))
            run = mica("convert", self.at("a.gguf"), self.at("new"), restore_signals=False,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)))
            self.assertEqual(run[0], 1, run)
            self.assertIn("model.safetensors", run[2])
            self.assertEqual(sorted(os.listdir(self.home)), sorted(was + ["new"] * there))
        self.assertEqual(os.listdir(self.at("new")), [])


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
