"""test_examples.py - every program of examples/ runs and says what it should; a failure ends it with a sentence.
   test_examples.py BUILD"""
import collections
import glob
import gzip
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "..", "..")
MODEL = os.path.join(TREE, "models", "demo.gguf")
SANITIZED = os.path.basename(BUILD) in ("asan", "tsan")  # what takes seconds takes minutes there


def run(name, *arguments, text="", **environment):
    done = subprocess.run([os.path.join(BUILD, "examples", name), *arguments], input=text, capture_output=True, text=True,
                          errors="replace", timeout=500, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def devices_here():
    """Those that run kernels; opencl and cuda where they are."""
    told = subprocess.run([os.path.join(BUILD, "mica"), "info", "--json"], capture_output=True, text=True, check=True).stdout
    return [d["id"] for d in json.loads(told)["devices"] if d["usable"] and not d["id"].startswith("null")]


DATA = os.environ.get("MICA_TEST_DATA", os.path.join(TREE, "..", "shared", "data"))


def entropy(counts):
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


class Examples(unittest.TestCase):
    def test_each_is_run_here(self):
        names = {os.path.basename(path)[:-2] for path in glob.glob(os.path.join(TREE, "examples", "*.c"))}
        self.assertEqual(names, {"first", "chat", "batch", "kernel", "mnist", "tour", "charlm", "gpt", "transformer", "mamba", "longfilter"})

    def test_first(self):
        code, out, err = run("first")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, "0.269 0.731\n0.731 0.269\n0.953 0.047\n")

    def test_chat(self):
        code, out, err = run("chat", MODEL, "cpu", text='What is 2 + 2?\nSay "a\\b"\tonce more\nWhy?')
        self.assertEqual((code, err), (0, ""))
        self.assertGreater(len(out.split("\n")), 3)  # an answer to each of the three lines
        self.assertIn("4", out)

    def test_chat_without_a_model(self):
        code, out, err = run("chat", os.path.join(HERE, "no.gguf"))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no.gguf", err)
        self.assertEqual(run("chat")[0], 2)

    def mnist(self):
        """A folder with the files of MNIST, unpacked, or the test is skipped."""
        data = os.path.join(DATA, "mnist")
        if not os.path.isdir(data):
            self.skipTest("there is no folder of MNIST: MICA_TEST_DATA names the folder that has it")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name in os.listdir(data):
            if name.endswith(".gz"):
                with gzip.open(os.path.join(data, name)) as packed, open(os.path.join(folder.name, name[:-3]), "wb") as plain:
                    plain.write(packed.read())
        return data, folder.name

    @unittest.skipIf(SANITIZED, "what learns there is charlm")
    def test_mnist(self):
        """Two networks learn to read digits, where the data lies: 97 % in two epochs of the convolutional one, in five of the dense one."""
        data, folder = self.mnist()
        for kind, epochs in (("dense", "5"), ("conv", "2")):
            code, out, err = run("mnist", folder, kind, "cpu", epochs)
            self.assertEqual((code, err), (0, ""))
            shares = [float(line.split(", ")[1].split(" ")[0]) for line in out.strip().split("\n")]
            self.assertGreater(shares[-1], 97.0, out)
        code, out, err = run("mnist", data + "-nowhere", "dense")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("cannot be opened", err)
        self.assertEqual(run("mnist")[0], 2)

    def test_mnist_trained_elsewhere(self):
        """The trained network of the data gives the logits that its maker's program gave, in every mode, and its accuracy."""
        data, folder = self.mnist()
        with open(os.path.join(data, "expected.json"), encoding="utf-8") as file:
            expected = json.load(file)["dalotia-mnist.safetensors"]
        weights = os.path.join(data, "dalotia-mnist.safetensors")
        for mode in ("compiled",) if SANITIZED else ("eager", "lazy", "compiled"):
            code, out, err = run("mnist", folder, weights, "cpu", MICA_MODE=mode)
            self.assertEqual((code, err), (0, ""))
            *logits, share = out.strip().split("\n")
            self.assertEqual(len(logits), 16)
            for row, wanted in zip(logits, expected["logits_first16"]):
                for found, right in zip(row.split(), wanted, strict=True):
                    # sums of 784 products of f32, of sizes up to 140, each rounded to 2^-24 of itself
                    self.assertLess(abs(float(found) - right), 1e-4)
            self.assertEqual(share, "%.2f %% of the test images right" % (100 * expected["accuracy_10000"]))
        code, out, err = run("mnist", folder, os.path.join(data, "expected.json"), "cpu")
        self.assertEqual((code, out), (1, ""))

    def test_tour(self):
        """What docs/graph.md shows, on every device: numbers that follow by hand."""
        with tempfile.TemporaryDirectory() as folder:
            for device in devices_here():
                code, out, err = run("tour", device, os.path.join(TREE, "tests", "golden", "onnx", "linear.onnx"),
                                     os.path.join(folder, "graph.safetensors"))
                self.assertEqual((code, err), (0, ""), device)
                printed, rest = out.split('output "y" = %6\n')
                self.assertTrue(printed.startswith('symbols batch\n%1 = input("x") : f32 [batch, 3]\n'))
                # [1 2 3] w = 1 + 6, 2 + 6; b = 10, -10
                self.assertEqual(rest.split("\n"),
                                 ["run: 17 0", "batch 1: 1 x 2", "batch 2: 2 x 2", "batch 3: 3 x 2", "batch 4: 4 x 2",
                                  "plans: 4", "state: 10", "while: 1.4142", "scan: 200 300 330", "gradients: 27 18",
                                  "training: 2.00", "two devices: 2 8 18", "cube: 1 8 27, 3 12 27", "cube_encoded: 1 8 27, 3 12 27",
                                  "onnx: y has 2 dimensions, the first 8",
                                  "saved: the same nodes", ""], device)

    def test_charlm(self):
        """A model of characters learns a text: its loss falls below the entropy of single characters, which is what it could reach without looking at those before, and half the way to
        that of characters after the one before them. It writes characters of the text, and goes on from where it was ended to the same loss."""
        with open(os.path.join(TREE, "README.md"), "rb") as file:
            text = file.read()[:4000]
        single = entropy(collections.Counter(text))
        steps = 20 if SANITIZED else 80
        after_one = entropy(collections.Counter(zip(text, text[1:]))) - single
        with tempfile.TemporaryDirectory() as folder:
            path, keep = os.path.join(folder, "text"), os.path.join(folder, "charlm.safetensors")
            with open(path, "wb") as file:
                file.write(text)
            code, out, err = run("charlm", path, "--device", "cpu", "--steps", str(steps), "--every", "1", "--write", "50")
            self.assertEqual((code, err), (0, ""))
            losses = [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", out)]
            self.assertEqual(len(losses), steps)
            self.assertGreater(losses[0], single)
            self.assertLess(sum(losses[-20:]) / 20, losses[0] if SANITIZED else (single + after_one) / 2)
            written = out.split("\n", steps)[steps]
            self.assertEqual(len(written), 51)
            self.assertLess(len(set(written.encode()) - set(text)), 5)
            for until in ("10", "20"):
                code, again, err = run("charlm", path, "--device", "cpu", "--steps", until, "--every", "10", "--keep", keep)
                self.assertEqual((code, err), (0, ""))
            self.assertEqual(again, out.split("\n")[19] + "\n")
            for device in devices_here():
                code, out, err = run("charlm", path, "--device", device, "--steps", "2", "--every", "1")
                self.assertEqual((code, err), (0, ""), device)
                code, there, err = run("charlm", path, "--device", "cpu", "--steps", "2", "--every", "1")
                for found, right in zip(re.findall(r"loss ([\d.]+)", out), re.findall(r"loss ([\d.]+)", there), strict=True):
                    self.assertLess(abs(float(found) - float(right)), 1e-4, device)
        code, out, err = run("charlm", os.path.join(HERE, "no.txt"))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no.txt", err)
        self.assertEqual(run("charlm")[0], 2)

    def test_gpt(self):
        """200 steps of a small GPT have the losses that PyTorch has in f32 (scripts/beside_torch.py golden): in f32 within some roundings, and in 16 bits within some of theirs."""
        with open(os.path.join(TREE, "tests", "golden", "gpt_curve.json"), encoding="utf-8") as file:
            curve = json.load(file)
        runs = [("cpu", precision, most, 20 if SANITIZED else 200) for precision, most in (("f32", 2e-6), ("f16", 2e-4), ("bf16", 1e-3))]
        # what learns on every device is charlm: PoCL's compiler would take twenty seconds for this one's kernels
        runs += [(device, "bf16", 1e-3, 200) for device in devices_here() if device.startswith("cuda")]
        seen = set()
        for device, precision, most, steps in runs:
            code, out, err = run("gpt", "--device", device, "--steps", str(steps), "--precision", precision)
            self.assertEqual((code, err), (0, ""), device)
            losses = [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", out)]
            for found, right in zip(losses, curve[:steps], strict=True):
                self.assertLess(abs(found - right), most * right, (device, precision))
            self.assertRegex(out.split("\n")[-2], r"^[\d.]+ ms a step, [\d.]+ GFLOP/s$")
            seen.add(tuple(losses[:5]))
        self.assertGreaterEqual(len(seen), 3)  # three precisions are three curves
        self.assertLess(curve[-1], curve[0] / 2)
        for wrong in (["--layers", "0"], ["--layers"], ["--heads", "3"], ["--precision", "f64"], ["--nothing", "1"]):
            self.assertEqual(run("gpt", *wrong)[0], 2)

    def test_transformer(self):
        """Three modes, one result."""
        for device in devices_here():
            code, out, err = run("transformer", device, "48" if device == "cpu" else "12")
            self.assertEqual((code, err), (0, ""), device)
            self.assertEqual(re.sub(r"[\d.]+ ms", "T", out).split("\n")[:4],
                             ["eager: T", "lazy: T", "compiled: T", "lazy and compiled: the same bits"])
            apart, value = re.search(r"eager and compiled: ([\de.+-]+) apart, of (-?[\d.]+)", out).groups()
            self.assertLess(float(apart), 1e-5)  # of values about 1: products of 688 numbers, in one order or another
            self.assertNotEqual(float(value), 0)

    def test_mamba(self):
        """The block as nodes and as loops in double."""
        for device in devices_here():
            code, out, err = run("mamba", device)
            self.assertEqual((code, err), (0, ""), device)
            apart, size = re.search(r"graph and loops: ([\de.+-]+) apart, of ([\d.]+)", out).groups()
            self.assertGreater(float(size), 0.01)
            self.assertLess(float(apart), 1e-5 * float(size), device)

    def test_longfilter(self):
        """A convolution and a product of spectra, both against the sum in double; sizes odd, and a filter longer than the signal."""
        for device in devices_here():
            for samples, taps in (("3001", "701"), ("50", "333"), ("1", "1")):
                code, out, err = run("longfilter", device, samples, taps)
                self.assertEqual((code, err), (0, ""), device)
                found = re.findall(r"^(\w+): [\d.]+ ms, ([\de.+-]+) from", out, re.M)
                self.assertEqual([name for name, _ in found], ["convolution", "spectra"])
                for name, distance in found:
                    self.assertLess(float(distance), 1e-5, (device, name))  # sums of size 10, of terms below 1
        self.assertEqual(run("longfilter", "cpu", "0")[0], 2)

    def test_batch(self):
        """More prompts than places: each gets its text, and the same as it gets alone."""
        prompts = ["Once upon a time", "The cat", "A dog", "Tom", "In a house", "Lily"]
        code, out, err = run("batch", MODEL, *prompts, MICA_DEVICE="cpu")
        self.assertEqual((code, err), (0, ""))
        for prompt in prompts:
            code, alone, err = run("batch", MODEL, prompt, MICA_DEVICE="cpu")
            self.assertEqual((code, err), (0, ""))
            self.assertTrue(alone.startswith(prompt + " |") and len(alone) > len(prompt) + 4)
            self.assertIn(alone, out)

    def test_batch_fails(self):
        code, out, err = run("batch", MODEL, "Tom " * 2000, MICA_DEVICE="cpu")
        self.assertEqual((code, out), (1, ""))
        self.assertTrue(err.startswith("batch: ") and len(err) > 30, err)

    def test_kernel(self):
        """On the cpu by its C, on the GPUs that are here by its text."""
        devices = devices_here()
        for needed in ["cpu", *filter(None, os.environ.get("MICA_TEST_NEEDS", "").split(","))]:
            self.assertIn(needed, devices)
        for device in devices:
            self.assertEqual(run("kernel", device), (0, "2 * 999 + 999 + 999 = 3996\n", ""), device)
        code, out, err = run("kernel", "abacus")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("abacus", err)


if __name__ == "__main__":
    unittest.main()
