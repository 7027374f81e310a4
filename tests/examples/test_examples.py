"""test_examples.py - every program of examples/ runs and says what it should; a failure ends it with a sentence.
   test_examples.py BUILD"""
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "..", "..")
MODEL = os.path.join(TREE, "models", "demo.gguf")


def run(name, *arguments, text="", **environment):
    done = subprocess.run([os.path.join(BUILD, "examples", name), *arguments], input=text, capture_output=True, text=True,
                          timeout=500, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


class Examples(unittest.TestCase):
    def test_each_is_run_here(self):
        names = {os.path.basename(path)[:-2] for path in glob.glob(os.path.join(TREE, "examples", "*.c"))}
        self.assertEqual(names, {"first", "chat", "batch", "kernel", "mnist"})

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

    def test_mnist(self):
        """Two networks learn to read digits, where the data lies: 97 % in two epochs of the convolutional one, in five of the dense one."""
        data = os.path.join(os.environ.get("MICA_TEST_DATA", os.path.join(TREE, "..", "shared", "data")), "mnist")
        if not os.path.isdir(data):
            self.skipTest("there is no folder of MNIST: MICA_TEST_DATA names the folder that has it")
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(data):
                if name.endswith(".gz"):
                    with gzip.open(os.path.join(data, name)) as packed, open(os.path.join(folder, name[:-3]), "wb") as plain:
                        plain.write(packed.read())
            for kind, epochs in (("dense", "5"), ("conv", "2")):
                code, out, err = run("mnist", folder, kind, "cpu", epochs)
                self.assertEqual((code, err), (0, ""))
                shares = [float(line.split(", ")[1].split(" ")[0]) for line in out.strip().split("\n")]
                self.assertGreater(shares[-1], 97.0, out)
        code, out, err = run("mnist", data + "-nowhere", "dense")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("cannot be opened", err)
        self.assertEqual(run("mnist")[0], 2)

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
        # What PoCL never gives back is not ours.
        quiet = {"LSAN_OPTIONS": "detect_leaks=0"}
        told = subprocess.run([os.path.join(BUILD, "mica"), "info", "--json"], capture_output=True, text=True, check=True,
                              env={**os.environ, **quiet}).stdout
        devices = [d["id"] for d in json.loads(told)["devices"] if d["usable"] and not d["id"].startswith("null")]
        for needed in ["cpu", *filter(None, os.environ.get("MICA_TEST_NEEDS", "").split(","))]:
            self.assertIn(needed, devices)
        for device in devices:
            self.assertEqual(run("kernel", device, **quiet), (0, "2 * 999 + 999 + 999 = 3996\n", ""), device)
        code, out, err = run("kernel", "abacus")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("abacus", err)


if __name__ == "__main__":
    unittest.main()
