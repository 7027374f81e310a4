#!/usr/bin/env python3
"""Runs the built tool as a user would: what it prints, where, and with which exit status.

    test_tool.py BUILD"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else "build"
TOOL = os.path.join(BUILD, "mica")
COMMANDS = ["run", "chat", "embed", "tokenize", "perplexity", "train", "info", "bench", "pass", "inspect", "quantize", "convert", "diff",
            "help", "completion", "man", "version"]


def mica(*words, **more):
    """(exit status, stdout, stderr). Nothing is piped in unless the test says so."""
    if "input" not in more:
        more.setdefault("stdin", subprocess.DEVNULL)
    run = subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=100, **more)
    return run.returncode, run.stdout, run.stderr


def wait_until_caught(run, number=signal.SIGTERM):
    """Until the program catches this signal; for a second where the system does not tell."""
    path, end = "/proc/%d/status" % run.pid, time.monotonic() + 60
    if not os.path.exists("/proc/self/status"):
        time.sleep(1)
    while os.path.exists(path) and time.monotonic() < end:
        with open(path, encoding="utf-8") as file:
            caught = re.search(r"(?m)^SigCgt:\s*(\w+)$", file.read())
        if caught is None or int(caught.group(1), 16) >> (number - 1) & 1:
            break
        time.sleep(0.005)


class Base(unittest.TestCase):
    def works(self, *words, **more):
        status, out, err = mica(*words, **more)
        self.assertEqual((status, err), (0, ""), words)
        self.assertNotIn("\033", out, "colour in a pipe")
        return out

    def refused(self, status, word, *words, **more):
        """One sentence on stderr that contains `word`, nothing on stdout."""
        got, out, err = mica(*words, **more)
        self.assertEqual((got, out), (status, ""), (words, err))
        self.assertRegex(err, r"\Amica: [^\n]+\n\Z")
        self.assertIn(word, err)


class Help(Base):
    def test_version(self):
        with open("include/mica/host.h", encoding="utf-8") as header:
            numbers = re.findall(r"define MICA_VERSION_\w+ (\d+)", header.read())
        self.assertEqual(self.works("--version"), "mica %s\n" % ".".join(numbers))
        self.assertEqual(self.works("version"), self.works("--version"))

    def test_overview_names_every_command(self):
        for words in (("help",), ("--help",), ("-h",)):
            out = self.works(*words)
            for command in COMMANDS:
                self.assertRegex(out, r"(?m)^  %s +\S" % command)

    def test_help_of_a_command(self):
        for command in COMMANDS:
            out = self.works("help", command)
            self.assertIn("usage: mica %s" % command, out)
            self.assertEqual(out, self.works(command, "--help"))
            self.assertEqual(out, self.works(command, "-h"))
            self.assertLessEqual(max(len(line) for line in out.splitlines()), 100)
        self.assertIn("--tokens N", self.works("help", "pass"))

    def test_wrong_usage(self):
        self.refused(2, "no command")
        self.refused(2, "fly", "fly")
        self.refused(2, "fly", "help", "fly")
        self.refused(2, "--fast", "info", "--fast")
        self.refused(2, "-j", "info", "-j")
        self.refused(2, "extra", "info", "extra")
        self.refused(2, "--json", "info", "--json=yes")
        self.refused(2, "--tokens", "pass", "--tokens")
        for number in ("0", "-1", "x", "12x", "", "99999999999999999999", " 3"):
            self.refused(2, "--tokens", "pass", "--tokens", number)
        self.refused(2, "--shape", "pass", "--shape", "huge")
        self.refused(2, "q4_0", "pass", "--type=f12")
        self.refused(2, "WHAT", "bench")
        self.refused(2, "WHAT", "bench", "models")
        self.refused(2, "fly", "bench", "ops", "--op", "fly")
        self.refused(2, "--op", "bench", "launch", "--op", "add")
        self.refused(2, "--quick", "bench", "launch", "--quick")
        self.refused(2, "--threads", "bench", "launch", "--threads", "1,2")
        self.refused(2, "--profile", "bench", "ops", "--profile")
        self.refused(2, "SHELL", "completion", "tcsh")
        self.refused(2, "--json", "info", "--", "--json")
        self.refused(2, "FILE", "inspect")
        self.refused(2, "B is missing", "diff", "a")
        self.refused(2, "too many", "diff", "a", "b", "c")
        self.refused(2, "SHELL", "completion", "BASH")

    def test_failures(self):
        self.refused(1, "cuda:7", "pass", "--device", "cuda:7")
        self.refused(1, "nothing", "bench", "ops", "--device", "nothing")


class Table(Base):
    """One table: whatever help lists, the manual page and the completions know."""

    def options(self, command):
        return re.findall(r"(?m)^  (?:  |-\w)[ ,] --([\w-]+)", self.works("help", command))

    def test_manual(self):
        page = self.works("man")
        self.assertTrue(page.startswith(".TH MICA 1"))
        for command in COMMANDS:
            self.assertIn('.SS "mica %s' % command, page)
            for option in self.options(command):
                self.assertIn(".B \\-\\-%s" % option.replace("-", "\\-"), page)
        if shutil.which("groff"):
            run = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True, timeout=100)
            self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_completions_know_every_option(self):
        self.assertIn("n-predict", self.options("run"))
        self.assertEqual(self.options("info"), ["json", "calibrate"])
        for shell, form in (("bash", r"--%s[ ']"), ("zsh", r"--%s(?:\}')?\["), ("fish", r"-l %s ")):
            script = self.works("completion", shell)
            for command in COMMANDS:
                self.assertIn(command, script)
                for option in self.options(command):
                    self.assertRegex(script, form % option)

    def complete(self, *words):
        """What bash offers for the last word."""
        line = "source <('%s' completion bash); COMP_WORDS=(%s); COMP_CWORD=%d; _mica; printf '%%s\\n' \"${COMPREPLY[@]}\""
        quoted = " ".join("'%s'" % word for word in words)
        run = subprocess.run(["bash", "-c", line % (TOOL, quoted, len(words) - 1)], capture_output=True, text=True, timeout=100)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout.split()

    @unittest.skipUnless(shutil.which("bash"), "needs bash")
    def test_bash_completes(self):
        self.assertEqual(self.complete("mica", "in"), ["info", "inspect"])
        self.assertEqual(set(COMMANDS) - set(self.complete("mica", "")), set())
        self.assertEqual(self.complete("mica", "info", "--"), ["--json", "--calibrate"])
        self.assertEqual(self.complete("mica", "pass", "--shape", ""), ["tiny", "1b"])
        self.assertEqual(self.complete("mica", "completion", "z"), ["zsh"])
        self.assertEqual(self.complete("mica", "help", "be"), ["bench"])
        self.assertEqual(self.complete("mica", "pass", "--tokens", ""), [])
        self.assertIn("README.md", self.complete("mica", "inspect", "READ"))
        self.assertEqual(self.complete("mica", "inspect", "--te"), ["--tensors"])
        self.assertIn("README.md", self.complete("mica", "quantize", "--threads", "3", "a", ""))
        self.assertEqual(self.complete("mica", "quantize", "a", "--pure", "b", "q4_k_"), ["q4_k_s", "q4_k_m"])
        self.assertIn("README.md", self.complete("mica", "quantize", "--imatrix", "READ"))
        self.assertIn("README.md", self.complete("mica", "run", "-m", "READ"))
        self.assertEqual(self.complete("mica", "run", "-ctk", "q"), ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
        self.assertEqual(self.complete("mica", "run", "-n", ""), [])

    def test_shells_accept_their_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                run = subprocess.run([shell, "-n"], input=self.works("completion", shell), capture_output=True, text=True,
                                     timeout=100)
                self.assertEqual((run.returncode, run.stderr), (0, ""), shell)


class Info(Base):
    def test_text(self):
        out = self.works("info")
        self.assertRegex(out, r"(?m)^cpu +\S")
        self.assertRegex(out, r"memory: .* free of ")
        self.assertRegex(out, r"cpu instruction sets: portable")

    def test_json(self):
        facts = json.loads(self.works("info", "--json"))
        self.assertEqual("mica %s\n" % facts["version"], self.works("--version"))
        cpu = [device for device in facts["devices"] if device["id"] == "cpu"]
        self.assertEqual(len(cpu), 1)
        self.assertTrue(cpu[0]["usable"])
        self.assertGreater(cpu[0]["total_memory"], 0)
        self.assertGreater(cpu[0]["threads"], 0)
        for device in facts["devices"]:
            self.assertEqual(device["usable"], device["reason"] == "")
        usable = [isa["name"] for isa in facts["cpu_isas"] if isa["usable"]]
        self.assertIn("portable", usable)
        self.assertIn(cpu[0]["driver"].split()[0], usable)
        self.assertNotIn("calibration", cpu[0])

    def test_calibrate(self):
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, MICA_CACHE_DIR=folder)
            facts = json.loads(self.works("info", "--calibrate", "--json", env=env))
            for device in facts["devices"]:
                if device["usable"] and device["backend"] != "null":
                    self.assertNotIn("not_calibrated", device)
                    for name, value in device["calibration"].items():
                        self.assertGreaterEqual(value, 0 if name.endswith("_ns") else 1e-6, name)
                    self.assertEqual(len(device["calibration"]), 8)
            kept = [name for name in os.listdir(folder) if re.fullmatch(r"calibration-[0-9a-f]{16}\.json", name)]
            self.assertEqual(len(kept), sum("calibration" in device for device in facts["devices"]))
            with open(os.path.join(folder, kept[0]), encoding="utf-8") as file:
                self.assertIn("matmul_large", json.load(file))
            self.assertRegex(self.works("info", "--calibrate", env=env), r"(?m)^ +memory +[0-9.e+]+ GB/s ")


def stand_in(variant, **more):
    """An environment with the stand-in for NVIDIA's libraries that the tests of CUDA use, or None where it was not built."""
    folder = os.path.realpath(os.path.join(BUILD, "fake_cuda_" + variant))
    return dict(os.environ, LD_LIBRARY_PATH=folder, **more) if os.path.exists(os.path.join(folder, "libcuda.so.1")) else None


@unittest.skipIf(stand_in("new") is None or stand_in("hollow") is None, "the stand-in for CUDA was not built")
class InfoOfGpus(Base):
    def test_two_devices(self):
        out = self.works("info", env=stand_in("new"))
        for number in (0, 1):
            self.assertRegex(out, r"(?m)^cuda:%d +stand-in %d\n +CUDA 12\.8, compute capability 9\.0, 132 multiprocessors.*\n"
                                  r" +warps of 32, 227 KB local memory, 50 MB cache, graphs, memory pools\n"
                                  r" +NVRTC: libnvrtc\.so\.13, cuBLASLt: libcublasLt\.so\.13\n +memory: .* free of 1\.0 GiB" %
                                  (number, number))
        out = self.works("info", env=stand_in("new", MICA_DEBUG="nonvrtc,nocublas"))
        self.assertIn("NVRTC: hidden by MICA_DEBUG, cuBLASLt: hidden by MICA_DEBUG", out)
        self.refused(1, "cuda:2", "run", "--device", "cuda:2", env=stand_in("new"))

    def test_too_old(self):
        self.assertRegex(self.works("info", env=stand_in("hollow")), r"(?m)^cuda +not used: .* too old")
        self.refused(1, "too old", "run", "--device", "cuda", env=stand_in("hollow"))
        self.assertEqual(mica("run", "-q", "-n", "1", env=stand_in("hollow"))[0], 0)


class Pass(Base):
    def check(self, facts, tokens):
        self.assertTrue(facts["same_tokens"])
        self.assertEqual(facts["tokens"], tokens)
        ways = facts["ways"]
        self.assertEqual(len(ways), 3)
        for way in ways:
            self.assertGreater(way["us_per_token"], 0)
        self.assertGreater(facts["fusions"], 0)
        self.assertLess(ways[2]["records"], ways[0]["records"])
        self.assertLess(ways[2]["barriers"], ways[0]["barriers"])

    def test_every_type(self):
        for kind in ("q4_0", "q8_0", "q4_k", "f16"):
            facts = json.loads(self.works("pass", "--type", kind, "--tokens", "5", "--threads=2", "--json"))
            self.assertEqual((facts["type"], facts["threads"]), (kind, 2))
            self.check(facts, 5)

    def test_table(self):
        out = self.works("pass", "--tokens", "3", "--threads", "1", "--shape", "tiny")
        self.assertRegex(out, r"decoding 3 tokens on cpu .*1 thread\)")
        self.assertRegex(out, r"(?m)^direct +[\d.]+ +[\d.]+ +1.00")
        self.assertIn("same tokens", out)


class Bench(Base):
    def test_one_op(self):
        """The names come from profiles, which end the one that MICA_TRACE began: its file has the last."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            facts = json.loads(self.works("bench", "ops", "--op", "argmax", "--threads", "2", "--json",
                                          env=dict(os.environ, MICA_TRACE=path)))
            with open(path, encoding="utf-8") as file:
                self.assertEqual({event["name"] for event in json.load(file)["traceEvents"]}, {"argmax"})
        self.assertGreater(facts["read_gb_per_s"], 0)
        self.assertGreater(facts["gflop_per_s"], 0)
        self.assertEqual({row["op"] for row in facts["ops"]}, {"argmax"})
        for row in facts["ops"]:
            self.assertGreater(row["us"], 0)
            self.assertGreater(row["gb_per_s"], 0)
            self.assertEqual(row["kernels"], "argmax")

    @unittest.skipIf(os.path.basename(BUILD) in ("asan", "tsan"), "these kernels run by the minute under sanitizers; conformance runs them there")
    def test_every_op_has_a_row(self):
        """Once, with operands that stay in the caches."""
        with open(os.path.join("include", "mica", "op_list.h"), encoding="utf-8") as file:
            table = {name.lower() for name in re.findall(r"(?m)^ +MICA_OP_([A-Z0-9_]+)", file.read())}
        facts = json.loads(self.works("bench", "ops", "--quick", "--json", "--threads", "2"))
        rows = {row["op"] for row in facts["ops"]}
        self.assertGreater(len(table), 50)
        self.assertEqual(table - rows, {"none", "custom", "region", "count"})

    def test_ops_of_models(self):
        for op, type_ in (("layer_norm", "f32"), ("gelu_mul", "f32"), ("route", "f32"), ("expert_sum", "f32"),
                          ("kv_write", "q8_0")):
            facts = json.loads(self.works("bench", "ops", "--op", op, "--threads", "2", "--json"))
            self.assertIn(type_, {row["type"] for row in facts["ops"]}, op)

    def test_table(self):
        out = self.works("bench", "ops", "--op=embedding", "--threads=1")
        self.assertRegex(out, r"ceilings: [\d.]+ GB/s read, [\d.]+ GFLOP/s f32")
        self.assertRegex(out, r"(?m)^embedding +q4_0 +128 x 32000 x 2048 .* embedding$")

    def test_profile_of_a_model(self):
        """Which kernels a prompt and a step ran, most time first; of a step behind a depth none that copies what is shared."""
        words = ("bench", "-m", os.path.join("models", "demo.gguf"), "-p", "16", "-n", "2", "-d", "0,8", "-r", "1", "-t", "1",
                 "--profile")
        for row in json.loads(self.works(*words, "--json")):
            kernels = row["kernels"]
            self.assertEqual(kernels, sorted(kernels, key=lambda kernel: -kernel["us"]))
            self.assertAlmostEqual(sum(kernel["share"] for kernel in kernels), 100, delta=0.01)
            names = {kernel["kernel"]: (kernel["op"], kernel["count"]) for kernel in kernels}
            self.assertEqual(names["matmul_quant"], ("matmul", 17))
            self.assertTrue(all(kernel["gb_s"] > 0 and kernel["gop_s"] > 0 for kernel in kernels if kernel["kernel"] == "matmul_quant"))
            self.assertEqual(names["attention"], ("attention", 4))
            self.assertEqual(names["sample"], ("sample", 1))
            self.assertEqual("matmul_activation" in names, row["n_prompt"] > 0)
            self.assertEqual("copy_bytes" in names, row["n_prompt"] > 0 and row["n_depth"] > 0)
        out = self.works(*words)
        self.assertRegex(out, r"(?m)^the prompt of pp16: [\d.]+ us\n\d+ kernels one at a time: [\d.]+ us\n\nkernel ")
        self.assertRegex(out, r"(?m)^a step of tg2 @ d8: [\d.]+ us, all weights in it: [\d.]+ GB/s$")
        self.assertRegex(out, r"(?m)^matmul_quant +matmul +17( +[\d.]+){5}$")
        self.assertRegex(self.works(*words, "--md"), r"(?m)^\| matmul_quant \| matmul \| 17 \|")

    def test_name_of_the_type(self):
        """A mix is called by its name, also where another type has most of the bytes."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mix.gguf")
            self.assertEqual(mica("quantize", os.path.join("models", "demo.gguf"), path, "q4_k_m", "--keep", "*ffn*=q8_0")[0], 0)
            rows = json.loads(self.works("bench", "-m", path, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "--json"))
            self.assertEqual([row["model_type"] for row in rows], ["q4_k_m"])
            self.assertRegex(self.works("bench", "-m", path, "-p", "4", "-n", "0", "-r", "1", "-t", "1"), r"(?m)^llama q4_k_m ")

    def test_launch(self):
        facts = json.loads(self.works("bench", "launch", "--threads", "2", "--json"))
        self.assertEqual((facts["device"], facts["threads"]), ("cpu", 2))
        self.assertEqual([(row["op"], row["shape"], row["kernels"]) for row in facts["launches"]],
                         [("step", "1 group", "tool_step"), ("step", "2 groups", "tool_step"),
                          ("rms_norm", "1 x 4096", "rms_norm"), ("matmul", "1 x 1024 x 1024", "matmul_quant")])
        self.assertGreater(min(row["us"] for row in facts["launches"]), 0)
        out = self.works("bench", "launch", "--threads=1")
        self.assertRegex(out, r"recordings of %d kernels" % facts["nodes"])
        self.assertRegex(out, r"(?m)^step +u32 +1 group +[\d.]+  tool_step$")

    def test_overhead(self):
        facts = json.loads(self.works("bench", "overhead", "--threads", "2", "--json"))
        rows = {row["what"]: row for row in facts["overheads"]}
        self.assertEqual(list(rows), ["encode, an add", "record, an add", "encode, decode pass of tiny", "replay, a step",
                                      "fuse, reorder, place, lower"])
        for row in rows.values():
            self.assertGreater(row["count"], 1)
            self.assertTrue(0 < row["least_ns"] <= row["ns"] <= row["most_ns"], row)

    def test_graph(self):
        rows = {(row["what"], row["nodes"]): row
                for row in json.loads(self.works("bench", "graph", "--threads", "2", "--json"))["graphs"]}
        self.assertEqual(sorted({nodes for what, nodes in rows}), [1, 100, 10000, 100000])
        self.assertEqual(len(rows), 1 + 3 * 2 * 4)
        for row in rows.values():
            self.assertTrue(0 < row["least_ns"] <= row["ns"] <= row["most_ns"], row)
            self.assertAlmostEqual(row["ms"], row["ns"] * row["nodes"] * 1e-6, delta=1e-3 * row["ms"] + 1e-6)

    def test_fusion(self):
        """Each pattern is joined by the fusion that it is there for, into one record."""
        rows = json.loads(self.works("bench", "fusion", "--threads", "2", "--quick", "--json"))["fusions"]
        self.assertGreater(len(rows), 12)
        for row in rows:
            self.assertTrue(row["fusion"].startswith(row["made"]) and row["made"], row)
            self.assertEqual(row["records"], 1, row)
            self.assertGreater(row["records_apart"], 1, row)
            self.assertGreater(min(row["us"], row["us_apart"]), 0)

    def test_load(self):
        words = ("bench", "load", "-m", os.path.join("models", "demo.gguf"), "-r", "2", "-t", "1")
        rows = json.loads(self.works(*words, "--json"))["loads"]
        self.assertEqual([row["way"] for row in rows], ["open", "mapped", "mapped, packed", "read", "read, packed"])
        for row in rows:
            self.assertGreater(row["ms"], 0)
            self.assertEqual(row["gb_per_s"] is None, row["way"] == "open")
        self.assertRegex(self.works(*words), r"(?m)^read, packed +[\d.]+ +[\d.]+$")
        self.refused(2, "--model", "bench", "load")
        self.refused(1, "none.gguf", "bench", "load", "-m", "none.gguf")


if __name__ == "__main__":
    unittest.main()
