#!/usr/bin/env python3
"""inspect, quantize, convert and diff as a user would run them, on files that are built here byte by byte.

    test_models.py BUILD"""
import json
import math
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from test_tool import TOOL, Base, mica, wait_until_caught

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
KINDS = {"f32": (0, 4), "f16": (1, 2), "i32": (26, 4)}


def text(word):
    data = word if isinstance(word, bytes) else word.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, what):
    if kind == STRING:
        return text(what)
    if kind == ARRAY:
        item, items = what
        return struct.pack("<IQ", item, len(items)) + b"".join(value(item, one) for one in items)
    return struct.pack("<" + FORMS[kind], what)


def gguf(path, metadata, tensors, holes=False):
    """metadata: (key, kind, value); tensors: (name, type, shape slowest first, bytes). With `holes` no data is
    written: the file has zeros that take no room."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, kind, what in metadata:
        head += text(key) + struct.pack("<I", kind) + value(kind, what)
    offset, places = 0, []
    for name, kind, shape, _ in tensors:
        number, size = KINDS[kind]
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack("<%dQ" % len(shape), *reversed(shape))
        head += struct.pack("<IQ", number, offset)
        places.append(offset)
        offset += -(-math.prod(shape) * size // 32) * 32
    start = -(-len(head) // 32) * 32
    with open(path, "wb") as file:
        file.write(head)
        for place, tensor in zip(places, tensors):
            if not holes:
                file.seek(start + place)
                file.write(tensor[3])
        file.truncate(start + offset)
    return path


def halves(shape, seed, spread=1.0):
    draw = random.Random(seed)
    return struct.pack("<%de" % math.prod(shape), *(draw.gauss(0, spread) for _ in range(math.prod(shape))))


def singles(values):
    return struct.pack("<%df" % len(values), *values)


LAYERS, WIDTH = 3, 256
SHAPE = [("general.architecture", STRING, "llama"), ("llama.block_count", U32, LAYERS),
         ("llama.embedding_length", U32, WIDTH), ("llama.attention.head_count", U32, 8),
         ("llama.attention.head_count_kv", U32, 2), ("llama.context_length", U32, 2048),
         ("llama.feed_forward_length", U32, WIDTH), ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5)]


def model(path, metadata=(), odd=False, seed=1):
    """A small Llama of f16 matrices."""
    tensors = [("token_embd.weight", "f16", (64, WIDTH), halves((64, WIDTH), seed))]
    for i in range(LAYERS):
        block = "blk.%d." % i
        tensors.append((block + "attn_norm.weight", "f32", (WIDTH,), singles([1.0] * WIDTH)))
        for number, name in enumerate(("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")):
            shape = (64, WIDTH) if name in ("attn_k", "attn_v") else (WIDTH, WIDTH)
            if odd and name == "ffn_down":
                shape = (WIDTH, 96)
            tensors.append((block + name + ".weight", "f16", shape, halves(shape, seed * 100 + i * 10 + number)))
    tensors.append(("output_norm.weight", "f32", (WIDTH,), singles([1.0] * WIDTH)))
    tensors.append(("output.weight", "f16", (64, WIDTH), halves((64, WIDTH), seed + 99)))
    return gguf(path, SHAPE + list(metadata), tensors)


def checkpoint(folder, config, tensors):
    """A folder with config.json and model.safetensors: tensors (name, type, shape, bytes)."""
    os.mkdir(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, kind, shape, data in tensors:
        header[name] = {"dtype": kind.upper(), "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + b"".join(tensor[3] for tensor in tensors))
    return folder


class Files(Base):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mica-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def facts(self, *words):
        return json.loads(self.works(*words, "--json"))

    def differs(self, *words):
        status, out, err = mica("diff", *words)
        self.assertEqual((status, err), (1, ""))
        return out

    def types(self, path):
        return {tensor["name"]: tensor["type"] for tensor in self.facts("inspect", path)["tensors"]}


class Inspect(Files):
    def test_text(self):
        path = model(self.path("m.gguf"), [("tokens", ARRAY, (STRING, ["t%d" % i for i in range(151)])),
                                           ("few", ARRAY, (I16, [-3, 4])), ("eps", F32, 1e-5), ("yes", BOOL, True)])
        out = self.works("inspect", path)
        for line in (r"format +gguf version 3", r"tokens +\[151 strings\]", r"few +\[-3, 4\]", r"eps +1e-05", r"yes +true",
                     r"general.architecture +llama", r"f16 +23 ", r"f32 +4 .* 32\.00", r"tensors +27, "):
            self.assertRegex(out, "(?m)^" + line)
        self.assertNotIn("blk.1.attn_q.weight", out)
        self.assertRegex(self.works("inspect", path, "--tensors"),
                         r"(?m)^blk\.1\.attn_k\.weight +f16 +64 x 256 +32,768$")
        parameters = 2 * 64 * WIDTH + LAYERS * (5 * WIDTH * WIDTH + 2 * 64 * WIDTH + WIDTH) + WIDTH
        self.assertRegex(out, r"parameters +%s\n" % format(parameters, ",d"))

    def test_every_rank(self):
        shapes = {"scalar": [], "longest": [0] + 7 * [2**64 - 1], "too many": 9 * [1]}
        folder = checkpoint(self.path("ranks"), {},
                            [(name, "u8", shape, bytes(math.prod(shape))) for name, shape in shapes.items()])
        out = self.works("inspect", os.path.join(folder, "model.safetensors"), "--tensors")
        for line in (r"scalar +u8 +scalar +1$", r"longest +u8 +0%s +0$" % (7 * " x 18446744073709551615"), "too many +"):
            self.assertRegex(out, "(?m)^" + line)

    def test_json_is_complete(self):
        path = model(self.path("m.gguf"), [("tokens", ARRAY, (STRING, ["t%d" % i for i in range(151)])),
                                           ("deep", ARRAY, (ARRAY, [(U8, [1, 2]), (U8, [])])),
                                           ("big", U64, 2**64 - 1), ("low", I64, -2**63), ("third", F64, 1 / 3),
                                           ("tenth", F32, 0.1), ("none", F64, math.nan)])
        facts = self.facts("inspect", path)
        meta = facts["metadata"]
        self.assertEqual(meta["tokens"]["value"], ["t%d" % i for i in range(151)])
        self.assertEqual((meta["tokens"]["type"], meta["tokens"]["item_type"]), ("array", "string"))
        self.assertEqual(meta["deep"]["value"], [[1, 2], []])
        self.assertEqual((meta["big"]["value"], meta["low"]["value"]), (2**64 - 1, -2**63))
        self.assertEqual((meta["third"]["value"], meta["tenth"]["value"], meta["none"]["value"]), (1 / 3, 0.1, None))
        self.assertEqual(len(facts["tensors"]), 27)
        self.assertEqual(facts["tensors"][0], {
            "name": "token_embd.weight", "type": "f16", "type_in_file": facts["tensors"][0]["type_in_file"],
            "shape": [64, WIDTH], "bytes": 64 * WIDTH * 2, "file": 0, "file_offset": facts["tensors"][0]["file_offset"]})
        self.assertEqual(sum(tensor["bytes"] for tensor in facts["tensors"]), facts["tensor_bytes"])
        self.assertEqual(sum(kind["bytes"] for kind in facts["types"]), facts["tensor_bytes"])
        self.assertAlmostEqual(sum(kind["share"] for kind in facts["types"]), 1, 4)

    def cache(self, metadata, context, name="m.gguf"):
        path = gguf(self.path(name), metadata, [("x", "f32", (8,), singles([0] * 8))])
        return self.facts("inspect", path, "--ctx", str(context))["memory"]

    def test_memory(self):
        heads = 2 * (WIDTH // 8) * 2  # keys and values of a position and layer, 2 heads of 32
        self.assertEqual(self.cache(SHAPE, 1000)["kv_cache_f16"], LAYERS * heads * 2 * 1000)
        sized = [("llama.attention.key_length", U32, 64), ("llama.attention.value_length", U32, 48)]
        self.assertEqual(self.cache(SHAPE + sized, 7)["kv_cache_f16"], LAYERS * 2 * (64 + 48) * 2 * 7)
        window = [("llama.attention.sliding_window", U32, 100)]
        self.assertEqual(self.cache(SHAPE + window, 1000)["kv_cache_f16"], LAYERS * heads * 2 * 100)
        self.assertEqual(self.cache(SHAPE + window, 60)["kv_cache_f16"], LAYERS * heads * 2 * 60)
        pattern = window + [("llama.attention.sliding_window_pattern", ARRAY, (BOOL, [True, False, True]))]
        self.assertEqual(self.cache(SHAPE + pattern, 1000)["kv_cache_f16"], heads * 2 * (100 + 1000 + 100))
        listed = [entry for entry in SHAPE if not entry[0].endswith("head_count_kv")]
        listed += [("llama.attention.head_count_kv", ARRAY, (I32, [0, 2, 4]))]
        self.assertEqual(self.cache(listed, 10)["kv_cache_f16"], (0 + 2 + 4) * 32 * 2 * 2 * 10)
        gemma = [("general.architecture" if key == "general.architecture" else key.replace("llama", "gemma2"), kind,
                  "gemma2" if what == "llama" else what) for key, kind, what in SHAPE + window]
        self.assertEqual(self.cache(gemma, 1000)["kv_cache_f16"], heads * 2 * (100 + 1000 + 100))

    def test_memory_that_is_not_known(self):
        facts = self.cache(SHAPE[:1], 1000)
        self.assertIsNone(facts["kv_cache_f16"])
        self.assertIn("number of layers", facts["note"])
        self.assertIn("KV cache    unknown", self.works("inspect", self.path("m.gguf")))
        self.assertIsNone(self.cache([], 1000)["total"])
        many = [(key, kind, 2**32 - 1 if key.endswith("block_count") else what) for key, kind, what in SHAPE]
        self.assertIn("layers", self.cache(many, 1000)["note"])
        bert = [("general.architecture", STRING, "bert"), ("bert.block_count", U32, 3)]
        self.assertEqual(self.cache(bert, 1000)["kv_cache_f16"], 0)

    def test_folder(self):
        config = {"model_type": "gemma3", "architectures": ["Gemma"], "text_config": {
            "model_type": "gemma3_text", "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 1,
            "hidden_size": 64, "head_dim": 32, "sliding_window": 10, "note": "a } \" \\ {"}, "vision_config":
            {"num_hidden_layers": 99}, "long": ["word"] * 50, "tie": True}
        folder = checkpoint(self.path("hf"), config, [("w", "f32", (3,), singles([1, 2, 3]))])
        facts = self.facts("inspect", folder, "--ctx", "100")
        self.assertEqual((facts["format"], facts["config"]), ("safetensors", config))
        self.assertEqual(facts["metadata"]["format"]["value"], "pt")
        self.assertEqual(facts["memory"]["kv_cache_f16"], 32 * 2 * 2 * (6 * 10 + 100))
        out = self.works("inspect", folder)
        self.assertRegex(out, r'(?m)^model_type +"gemma3"$')
        self.assertRegex(out, r"(?m)^long +\[\.\.\.\]$")
        self.assertRegex(out, r"(?m)^tie +true$")

    def test_nothing_reaches_the_terminal_raw(self):
        evil = "a\x1b[31mred\x07\u202eb\x9b1m\x7f"
        path = gguf(self.path("evil.gguf"),
                    [("general.name", STRING, evil), ("bytes", STRING, b"\xff\xfe ok"), ("nul", STRING, "a\0b"),
                     ("lines", STRING, "one\ntwo")],
                    [(evil, "f32", (2,), singles([1, 2]))])
        out = self.works("inspect", path, "--tensors")
        self.assertFalse(re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out), ascii(out))
        self.assertIn("\\x1b[31mred\\x07\\u{202e}b\\u{9b}1m\\x7f", out)
        self.assertIn("\\xff\\xfe ok", out)
        self.assertIn("one\\ntwo", out)
        raw = self.works("inspect", path, "--json")
        self.assertFalse(re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", raw))
        facts = json.loads(raw)
        self.assertEqual(facts["metadata"]["general.name"]["value"], evil)
        self.assertEqual(facts["metadata"]["nul"]["value"], "a\0b")
        self.assertEqual(facts["tensors"][0]["name"], evil)

    def test_refusals_are_one_safe_line(self):
        path = gguf(self.path("x.gguf"), [("k\x1b[2Jk", STRING, "v")] * 2, [])
        status, out, err = mica("inspect", path)
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err, r"\Amica: [ -~]+\n\Z")
        self.refused(1, "nothing.gguf", "inspect", self.path("nothing.gguf"))
        self.refused(1, "empty", "inspect", self.empty_file())
        self.refused(2, "--ctx", "inspect", "x", "--ctx", "0")

    def empty_file(self):
        with open(self.path("empty"), "wb"):
            return self.path("empty")


class Quantize(Files):
    def test_types_and_mixes(self):
        """Every type that help names is known to the library, and it knows no other."""
        path = model(self.path("m.gguf"))
        words = re.search(r"TYPE is one of ([^.]+)\.", self.works("help", "quantize").replace("\n", " ")).group(1)
        with open("src/format/convert/mixes.def", encoding="utf-8") as file:
            known = re.findall(r'(?m)^MICA__MIX(?:_ALIAS)?\(\w+, "(\w+)"', file.read())
        self.assertEqual(sorted(words.split(", ")), sorted(known))
        for kind in known:
            self.works("quantize", path, self.path("out.gguf"), kind, "--force")
            self.assertEqual(len(self.types(self.path("out.gguf"))), 27)

    def test_mix(self):
        path, out = model(self.path("m.gguf")), self.path("out.gguf")
        said = self.works("quantize", path, out, "Q4_K_M", "--threads", "2")
        self.assertRegex(said, r"\AQ4_K_M: \d+ of 27 tensors quantized, .* to .* in [\d.]+ s, .*/s\n\Z")
        types = self.types(out)
        self.assertEqual(types["blk.1.attn_q.weight"], "q4_k")
        self.assertEqual((types["output.weight"], types["output_norm.weight"]), ("q6_k", "f32"))
        self.works("quantize", path, out, "q4_k_m", "--pure", "--force")
        self.assertEqual(self.types(out)["blk.0.ffn_down.weight"], "q4_k")

    def test_keep(self):
        path, out = model(self.path("m.gguf")), self.path("out.gguf")
        self.works("quantize", path, out, "q4_0", "--keep", "*.attn_v.*=q8_0", "--keep=blk.?.ffn_up.weight=F16")
        types = self.types(out)
        self.assertEqual((types["blk.0.attn_v.weight"], types["blk.2.ffn_up.weight"]), ("q8_0", "f16"))
        self.assertEqual(types["blk.2.ffn_gate.weight"], "q4_0")

    def test_nothing_to_quantize(self):
        """What was done is said, not that 0 tensors were quantized."""
        path, out = model(self.path("m.gguf")), self.path("out.gguf")
        self.assertRegex(self.works("quantize", path, out, "f32"), r"\Af32: 23 of 27 tensors converted, which quantizes none, ")
        self.works("quantize", path, self.path("q8.gguf"), "q8_0")
        said = self.works("quantize", self.path("q8.gguf"), out, "q8_0", "--force")
        self.assertRegex(said, r"\Aq8_0: all 27 tensors have their types already and were copied, ")

    def test_again_is_warned_about(self):
        path, small = model(self.path("m.gguf")), self.path("small.gguf")
        self.works("quantize", path, small, "q4_k_m")
        status, out, err = mica("quantize", small, self.path("out.gguf"), "q8_0")
        self.assertEqual(status, 0)
        self.assertRegex(err, r'\Amica: warning: "[^"]*small\.gguf" is quantized already: 23 of its 23 matrices, as q4_k_m; [^\n]+\n\Z')
        self.assertIn("23 of 27 tensors quantized (23 of them had been before)", out)
        for kind in ("q4_k_m", "Q4_K_M", "f16", "BF16", "f32"):  # the same, or opened: nothing is lost
            self.works("quantize", small, self.path("out.gguf"), kind, "--force")

    def test_name_of_a_mix(self):
        """The file's own word counts where it can be true, not the type that has most bytes."""
        path, out = model(self.path("m.gguf")), self.path("out.gguf")
        self.works("quantize", path, out, "q4_k_m", "--keep", "*attn*=q8_0", "--keep", "*ffn_up*=q8_0", "--keep", "*gate*=q8_0")
        types = list(self.types(out).values())
        self.assertGreater(types.count("q8_0"), types.count("q4_k") + types.count("q6_k"))
        warned = mica("quantize", out, self.path("again.gguf"), "q4_0")[2]
        self.assertIn("as q4_k_m;", warned)
        self.works("quantize", path, out, "q4_k_m", "--force", "--keep", "*=q8_0")  # no q4_k is left: it is what it is
        self.assertIn("as q8_0;", mica("quantize", out, self.path("again.gguf"), "q4_0", "--force")[2])

    def test_places_that_are_no_files(self):
        path = model(self.path("m.gguf"))
        os.mkfifo(self.path("fifo"))
        os.mkdir(self.path("folder"))
        for place, what in (("/dev/full", "a device"), (self.path("fifo"), "a pipe"), (self.path("folder"), "a folder")):
            for force in ((), ("--force",)):
                got, out, err = mica("quantize", path, place, "q8_0", *force)
                self.assertEqual((got, out), (1, ""))
                self.assertTrue(err.endswith('cannot write "%s": it is %s, expected a file or nothing there\n' % (place, what)), err)
                if what != "a folder":
                    self.refused(1, "it is %s, expected a folder" % what, "convert", path, place, *force)

    def test_fallback_is_told(self):
        path = model(self.path("m.gguf"), odd=True)
        self.assertIn("3 got another type", self.works("quantize", path, self.path("out.gguf"), "q4_k_s"))

    def test_wrong_usage(self):
        self.refused(2, "q4_k_m", "quantize", "a", "b", "q4km")
        self.refused(2, "TYPE", "quantize", "a", "b")
        self.refused(2, "PATTERN=TYPE", "quantize", "a", "b", "q4_0", "--keep", "f16")
        self.refused(2, "q5_1|", "quantize", "a", "b", "q4_0", "--keep", "x=f12")
        self.refused(2, "255", "quantize", "a", "b", "q4_0", "--keep", "x" * 300 + "=f16")
        self.refused(2, "--keep", "quantize", "a", "b", "q4_0", *["--keep=a=f16"] * 65)
        self.refused(2, "--threads", "quantize", "a", "b", "q4_0", "--threads", "9999")

    def only(self, *names):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(names))

    def test_destinations(self):
        path = model(self.path("m.gguf"))
        before = os.stat(path)
        self.refused(1, "nowhere", "quantize", self.path("nowhere.gguf"), self.path("out.gguf"), "q4_0")
        for force in ((), ("--force",)):
            self.refused(1, "input", "quantize", path, path, "q4_0", *force)
            os.link(path, self.path("same.gguf"))
            self.refused(1, "input", "quantize", path, self.path("same.gguf"), "q4_0", *force)
            os.remove(self.path("same.gguf"))
        with open(self.path("out.gguf"), "w", encoding="utf-8") as file:
            file.write("precious")
        self.refused(1, "--force replaces it", "quantize", path, self.path("out.gguf"), "q4_0")
        with open(self.path("out.gguf"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")
        self.works("quantize", path, self.path("out.gguf"), "q4_0", "--force")
        self.assertEqual(self.types(self.path("out.gguf"))["blk.0.ffn_up.weight"], "q4_0")
        self.refused(1, "no/such", "quantize", path, self.path("no/such/out.gguf"), "q4_0")
        self.refused(1, self.path("absent"), "quantize", path, self.path("o.gguf"), "q4_0", "--imatrix", self.path("absent"))
        self.assertEqual((os.stat(path).st_mtime_ns, os.stat(path).st_size), (before.st_mtime_ns, before.st_size))
        self.only("m.gguf", "out.gguf")

    def test_folder_that_cannot_be_written(self):
        path = model(self.path("m.gguf"))
        os.mkdir(self.path("locked"))
        os.chmod(self.path("locked"), 0o555)
        os.chmod(self.folder, 0o755)
        more = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            subprocess.run([TOOL, "version"], capture_output=True, check=True, timeout=100, **more)
        except (OSError, subprocess.SubprocessError):
            self.skipTest("another user cannot run the tool here")
        self.refused(1, "locked", "quantize", path, self.path("locked/out.gguf"), "q4_0", **more)
        self.assertEqual(os.listdir(self.path("locked")), [])

    def test_write_that_fails_half_way(self):
        path = model(self.path("m.gguf"))

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.refused(1, "out.gguf", "quantize", path, self.path("out.gguf"), "q8_0", preexec_fn=limit, restore_signals=False)
        self.only("m.gguf")

    def test_full_disk(self):
        path = model(self.path("m.gguf"))
        os.mkdir(self.path("disk"))
        line = ('mount -t tmpfs -o size=100k none "$1" || exit 77; "$2" quantize "$3" "$1/out.gguf" q8_0; echo "left $?";'
                ' ls -A "$1"')
        if shutil.which("unshare") is None:
            self.skipTest("needs unshare")
        run = subprocess.run(["unshare", "-r", "-m", "sh", "-c", line, "sh", self.path("disk"), TOOL, path],
                             capture_output=True, text=True, timeout=100)
        if "left" not in run.stdout:
            self.skipTest("a small file system cannot be mounted here: " + run.stderr.strip())
        self.assertEqual(run.stdout, "left 1\n")
        self.assertRegex(run.stderr, r"\Amica: [^\n]*out\.gguf[^\n]*[Nn]o space[^\n]*\n\Z")


class Long(Files):
    """Work that takes a while, on a file of zeros that has no blocks on the disk."""

    def start(self, size=1 << 30, words=("quantize", "out.gguf", "q4_k"), **more):
        rows = size // 2 // 4096
        path = gguf(self.path("long.gguf"), SHAPE, [("blk.0.ffn_up.weight", "f16", (rows, 4096), None)], holes=True)
        command = [TOOL, words[0], path, self.path(words[1]), *words[2:], "--threads", "1"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, **more)

    def until_begun(self, run):
        """It catches signals before its work; the file that it writes has no name yet."""
        wait_until_caught(run)
        time.sleep(0.1)
        self.assertIsNone(run.poll(), "it ended before it could be stopped")

    def test_signals_leave_nothing(self):
        quantize, convert = ("quantize", "out.gguf", "q4_k"), ("convert", "out", "--type", "f32")
        for number, words in ((signal.SIGINT, quantize), (signal.SIGTERM, quantize), (signal.SIGHUP, quantize),
                              (signal.SIGINT, convert)):
            run = self.start(words=words, stderr=subprocess.PIPE)
            self.until_begun(run)
            run.send_signal(number)
            out, err = run.communicate(timeout=60)
            self.assertEqual((run.returncode, out), (128 + number, b""))
            self.assertRegex(err.decode(), r"\Amica: stopped; [^\n]*out[^\n]* was not written\n\Z")
            self.assertEqual(os.listdir(self.folder), ["long.gguf"])

    def test_ignored_signals_stay_ignored(self):
        run = self.start(1 << 26, stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.until_begun(run)
        run.send_signal(signal.SIGINT)
        self.assertEqual((run.communicate(timeout=90)[1], run.returncode), (b"", 0))

    def on_terminal(self, **more):
        """What a terminal shows until the work is stopped."""
        ours, theirs = pty.openpty()
        run = self.start(stderr=theirs, env=dict(os.environ, **more))
        os.close(theirs)
        shown, stopped = b"", 0
        while True:
            if select.select([ours], [], [], 60)[0] == []:
                break
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
            if not stopped and shown.count(b"left") >= 3:
                stopped = 1
                run.send_signal(signal.SIGINT)
        os.close(ours)
        run.communicate(timeout=60)
        return shown.decode(), run.returncode

    def test_bar(self):
        shown, status = self.on_terminal(TERM="xterm")
        self.assertEqual(status, 130)
        self.assertRegex(shown, r"\rquantizing \[#*\.+\] +\d+ % of 1\.0 GiB, [\d.]+ \w+/s, [\d:?]+ left ")
        self.assertIn("\r\x1b[Kmica: stopped", shown.replace("\r\n", "\n"))

    def test_quiet_elsewhere(self):
        run = self.start(1 << 26, stderr=subprocess.PIPE)
        out, err = run.communicate(timeout=90)
        self.assertEqual((run.returncode, err), (0, b""))
        self.assertNotIn(b"\r", out)


class Convert(Files):
    def test_there_and_back(self):
        path = model(self.path("m.gguf"))
        self.assertRegex(self.works("convert", path, self.path("hf")), r"\Aconverted in [\d.]+ s\n\Z")
        facts = self.facts("inspect", self.path("hf"))
        self.assertEqual((facts["format"], facts["config"]["num_hidden_layers"]), ("safetensors", LAYERS))
        self.assertIn("model.layers.2.mlp.up_proj.weight", {tensor["name"] for tensor in facts["tensors"]})
        self.works("convert", self.path("hf"), self.path("back.gguf"), "--threads", "1")
        facts = json.loads(mica("diff", path, self.path("back.gguf"), "--json")[1])
        self.assertEqual(facts["counts"]["same"], 27)

    def test_type(self):
        path = model(self.path("m.gguf"))
        self.works("convert", path, self.path("out.safetensors"), "--type", "F32")
        self.assertEqual(set(self.types(self.path("out.safetensors")).values()), {"f32"})

    def test_format_is_not_the_ending(self):
        path = model(self.path("m.gguf"))
        for name, words, found in (("a", ("gguf",), "gguf"), ("b.gguf", ("safetensors",), "safetensors"),
                                   ("c", ("mlx", "--type", "affine6"), "mlx")):
            self.works("convert", path, self.path(name), "--format", *words)
            self.assertEqual(self.facts("inspect", self.path(name))["format"], found)
        self.refused(2, "gguf|safetensors|mlx", "convert", path, "d", "--format", "npz")
        self.refused(1, "mlx cannot hold", "convert", path, self.path("d"), "--format", "mlx", "--type", "q8_0")
        self.refused(1, "gguf cannot hold", "convert", path, self.path("d.gguf"), "--type", "affine4")
        self.assertEqual(sorted(os.listdir(self.folder)), ["a", "b.gguf", "c", "m.gguf"])

    def test_groups(self):
        path = model(self.path("m.gguf"))
        errors = {}
        for size in (0, 32, 128):
            folder = self.path("g%d" % size)
            self.works("convert", path, folder, "--type", "affine4", "--group-size", str(size))
            facts = self.facts("inspect", folder)
            self.assertEqual(facts["config"]["quantization"], {"group_size": size or 64, "bits": 4, "mode": "affine"})
            self.works("convert", folder, folder + ".gguf", "--type", "f32")
            facts = json.loads(mica("diff", path, folder + ".gguf", "--json")[1])
            errors[size] = max(row["relative_rms"] for row in facts["tensors"])
        self.assertLess(errors[32], errors[0])  # smaller groups fit better
        self.assertLess(errors[0], errors[128])
        for size, status in (("16", 1), ("48", 1), ("-1", 2), ("256", 2), ("x", 2)):
            self.refused(status, "group", "convert", path, self.path("no"), "--type", "affine4", "--group-size", size)
        self.refused(1, "no groups", "convert", path, self.path("no"), "--type", "f16", "--group-size", "32")
        self.assertFalse(os.path.exists(self.path("no")))

    def test_refusals(self):
        path = model(self.path("m.gguf"))
        self.refused(2, "q8_0|", "convert", path, "b", "--type", "f12")
        self.refused(2, "OUT", "convert", path)
        self.refused(1, "nowhere", "convert", self.path("nowhere"), self.path("out.gguf"))
        for force in ((), ("--force",)):
            self.refused(1, "input", "convert", path, path, *force)
        with open(self.path("out.safetensors"), "w", encoding="utf-8") as file:
            file.write("precious")
        self.refused(1, "--force replaces it", "convert", path, self.path("out.safetensors"))
        self.works("convert", path, self.path("out.safetensors"), "--force")
        self.works("convert", path, self.path("hf"))
        self.refused(1, "--force replaces it", "convert", path, self.path("hf"))
        self.works("convert", path, self.path("hf"), "--force")
        self.assertEqual(sorted(os.listdir(self.folder)), ["hf", "m.gguf", "out.safetensors"])


class Diff(Files):
    def test_equal(self):
        a, b = model(self.path("a.gguf")), model(self.path("b.gguf"))
        self.assertIn("tensors: 27 the same; metadata: 0 different", self.works("diff", a, b))
        self.assertIs(self.facts("diff", a, b)["equal"], True)
        self.assertIn("blk.2.attn_k.weight", self.works("diff", a, b, "--tensors"))

    def test_everything_that_can_differ(self):
        base = [("same", U32, 1), ("other", U32, 1), ("kind", U32, 1), ("gone", STRING, "a")]
        a = gguf(self.path("a.gguf"), base, [
            ("same", "f32", (2, 3), singles([1, 2, 3, 4, 5, 6])), ("values", "f32", (4,), singles([1, 2, 3, 4])),
            ("type", "f32", (2,), singles([0.5, 0.25])), ("shape", "f32", (2, 3), singles([0] * 6)),
            ("old", "f32", (1,), singles([0])), ("whole", "i32", (2,), struct.pack("<2i", 7, 2**31 - 1))])
        b = gguf(self.path("b.gguf"), [("new", BOOL, True), ("same", U32, 1), ("other", U32, 2), ("kind", I32, 1)], [
            ("same", "f32", (2, 3), singles([1, 2, 3, 4, 5, 6])), ("values", "f32", (4,), singles([1, 2.5, 3, 3])),
            ("type", "f16", (2,), struct.pack("<2e", 0.5, 0.25)), ("shape", "f32", (3, 2), singles([0] * 6)),
            ("young", "f32", (1,), singles([0])), ("whole", "i32", (2,), struct.pack("<2i", 7, 2**31 - 2))])
        status, out, _ = mica("diff", a, b, "--json")
        facts = json.loads(out)
        self.assertEqual((status, facts["equal"]), (1, False))
        keys = {entry["key"]: (entry["a"] and entry["a"]["value"], entry["b"] and entry["b"]["value"])
                for entry in facts["metadata"]}
        self.assertEqual(keys, {"other": (1, 2), "kind": (1, 1), "gone": ("a", None), "new": (None, True)})
        tensors = {entry["name"]: entry for entry in facts["tensors"]}
        self.assertEqual({name: entry["change"] for name, entry in tensors.items()},
                         {"same": "same", "values": "values", "type": "type", "shape": "shape", "old": "only_a",
                          "young": "only_b", "whole": "values"})
        self.assertEqual((tensors["values"]["different"], tensors["values"]["max_error"]), (2, 1))
        self.assertAlmostEqual(tensors["values"]["rms_error"], math.sqrt(1.25 / 4), 5)
        self.assertAlmostEqual(tensors["values"]["relative_rms"], math.sqrt(1.25 / 30), 5)
        self.assertEqual(tensors["type"]["max_error"], 0)
        self.assertEqual((tensors["whole"]["different"], tensors["whole"]["max_error"]), (1, 1))
        text_out = self.differs(a, b)
        for line in ("other: 1 | 2", "gone only in A: a", "new only in B: true", "shape: f32 2 x 3 | f32 3 x 2",
                     "old: f32 1", "young: f32 1"):
            self.assertRegex(text_out, "(?m)^%s$" % re.escape(line))
        self.assertIn("1 the same, 2 other values, 1 another type, 1 another shape, 1 only in A, 1 only in B", text_out)

    def test_numbers_that_are_none(self):
        a = gguf(self.path("a.gguf"), [], [("x", "f32", (3,), singles([math.nan, 1, math.inf]))])
        b = gguf(self.path("b.gguf"), [], [("x", "f32", (3,), singles([math.nan, math.nan, math.inf]))])
        self.works("diff", a, a)
        _, out, _ = mica("diff", a, b, "--json")
        tensor = json.loads(out)["tensors"][0]
        self.assertEqual((tensor["change"], tensor["different"], tensor["max_error"]), ("values", 1, None))
        self.assertRegex(self.differs(a, b), r"(?m)^x +f32 +inf ")

    def test_quantized(self):
        a, b = model(self.path("a.gguf")), self.path("b.gguf")
        self.works("quantize", a, b, "q8_0")
        _, out, _ = mica("diff", a, b, "--json")
        for tensor in json.loads(out)["tensors"]:
            if tensor["change"] == "type":
                # steps of the largest of 32 values / 127, evenly spread: 1 / sqrt(12) of a step
                self.assertTrue(0.001 < tensor["relative_rms"] < 0.02, tensor)
        self.assertIn("--tensors lists them", self.differs(a, b))
        self.assertNotIn("--tensors lists them", self.differs(a, b, "--tensors"))

    def test_kinds_of_files(self):
        data = halves((5, 7), 3)
        a = gguf(self.path("a.gguf"), [], [("w", "f16", (5, 7), data)])
        b = checkpoint(self.path("b"), {"model_type": "none"}, [("w", "f16", (5, 7), data)])
        out = self.differs(a, b)
        self.assertIn("tensors: 1 the same", out)
        self.assertIn("config.json differs", out)

    def test_trouble(self):
        a = model(self.path("a.gguf"))
        self.refused(2, "absent", "diff", a, self.path("absent"))
        self.refused(2, "absent", "diff", self.path("absent"), a)
        with open(self.path("bad"), "wb") as file:
            file.write(b"GGUF\3\0\0\0")
        self.refused(2, "bad", "diff", a, self.path("bad"))


if __name__ == "__main__":
    unittest.main()
