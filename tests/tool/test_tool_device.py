#!/usr/bin/env python3
"""The commands that run models, on a device that is no cpu: with the model inside, against what they say on the cpu.

    test_tool_device.py BUILD

MICA_TEST_DEVICE names the device, else it is opencl:0; where that is not usable all of this is skipped, unless
MICA_TEST_NEEDS lists its backend."""
import json
import os
import re
import unittest

from test_tool import mica
from test_models import Files

DEVICE = os.environ.get("MICA_TEST_DEVICE") or "opencl:0"
INSIDE = os.path.join("models", "demo.gguf")
# The weights inside are q8_0 and meet activations of 8 bits. Where the last bit of a sum rounds one of them the other way, all
# that follows is as far away as 8 bits are from f32: 0.06 of a logit by the root of the mean square, 0.5 at most. The texts
# below stand 1.6 above the next best at each step. Single numbers are compared with the weights as f32, where 1e-5 is left, and
# caches of f32; means over many tokens with both.
EXACT = ("-ctk", "f32", "-ctv", "f32")


def missing():
    status, _, err = mica("run", "-q", "-n", "1", "--device", DEVICE)
    needed = DEVICE.split(":")[0] in os.environ.get("MICA_TEST_NEEDS", "").split(",")
    return err if status != 0 and not needed else ""


@unittest.skipIf(missing(), "%s is not usable" % DEVICE)
class Device(Files):
    def on_both(self, *words, **more):
        """The output on the cpu and on the device."""
        outputs = []
        for device in ("cpu", DEVICE):
            status, out, err = mica(*words, "--device", device, **more)
            self.assertEqual(status, 0, err)
            outputs.append(out)
        return outputs

    def wide(self):
        """The model inside with weights of f32."""
        self.works("convert", INSIDE, self.path("wide.gguf"), "--type", "f32")
        return self.path("wide.gguf")

    def test_run(self):
        here, there = self.on_both("run", "-p", "123 + 456 =", "--temp", "0", "-q", "-r", "\\n")
        self.assertEqual((here, there), ("123 + 456 = 579.\n",) * 2)

    def test_report(self):
        status, _, err = mica("run", "-n", "3", "--device", DEVICE)
        self.assertEqual(status, 0, err)
        self.assertRegex(err, r"(?m)^memory .*; %s: .* owned at most, 0 B mapped$" % re.escape(DEVICE))

    def test_grammar(self):
        _, there = self.on_both("run", "-p", "2 + 2 =", "-n", "8", "-q", "--seed", "1", "--no-display-prompt",
                                "--grammar", 'root ::= " " [0-9]+ "."')
        self.assertRegex(there, r"\A [0-9]+\.?\n\Z")

    def test_logprobs(self):
        rows, wide = [], self.wide()
        for device in ("cpu", DEVICE):
            err = mica("run", "-m", wide, "-p", "1 + 1 =", "-n", "3", "--temp", "0", "--logprobs", "2", "-q", *EXACT,
                       "--device", device)[2]
            rows.append(re.findall(r'(\d+) "[^"]*" (-?[\d.]+)', err))
        self.assertEqual(len(rows[0]), 9)
        for here, there in zip(*rows):
            self.assertEqual(here[0], there[0])
            self.assertAlmostEqual(float(here[1]), float(there[1]), delta=1e-3)  # 1e-4 is the last digit that is printed

    def test_chat(self):
        here, there = self.on_both("chat", "-q", "--temp", "0", input="What is 12 + 30?\n")
        self.assertIn("42", there)
        self.assertEqual(here, there)

    def test_embed(self):
        here, there = ([float(word) for word in out.split()]
                       for out in self.on_both("embed", "-m", self.wide(), "-p", "a cat"))
        self.assertEqual(len(there), 256)
        # Both have length one. An angle of 1e-3 would be seen, 1e-4 comes from printed digits; 8 bits alone make 0.03.
        self.assertGreater(sum(a * b for a, b in zip(here, there)), 1 - 5e-7)

    def test_perplexity(self):
        """Of a text that the model expects. Activations of 8 bits move the log-probability of one token by 0.03, the mean of 252 by
        0.002, and so the perplexity by 0.2 %: whichever way they are rounded, it stays within five times that. Weights of f32
        leave sums in another order, and keys that the cache rounds to f16 the other way: 8e-6 was seen."""
        with open(os.path.join("models", "skills.txt"), encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.writelines(row[2] + row[3] + "\n" for row in rows if row[1] == "text" and row[0] != "facts")
        for path, chunks, near in ((INSIDE, 4, 1e-2), (self.wide(), 1, 1e-4)):
            here, there = (json.loads(out) for out in self.on_both("perplexity", "-m", path, "-f", self.path("text.txt"),
                                                                   "-c", "128", "--chunks", str(chunks), "--json"))
            self.assertEqual((here["scored"], there["scored"]), (63 * chunks,) * 2)
            self.assertAlmostEqual(here["perplexity"], there["perplexity"], delta=here["perplexity"] * near)

    def test_bench(self):
        rows = json.loads(self.works("bench", "-m", INSIDE, "-p", "8", "-n", "4", "-r", "1", "--profile", "--json", "--device",
                                     DEVICE))
        self.assertEqual([(row["device"], row["n_prompt"], row["n_gen"]) for row in rows],
                         [(DEVICE, 8, 0), (DEVICE, 0, 4)])
        self.assertGreater(min(row["avg_ts"] for row in rows), 0)
        for row in rows:
            names = {kernel["kernel"] for kernel in row["kernels"]}
            self.assertTrue(names & {"matvec/one", "matvec/one_of", "stream/matvec"}, names)
            self.assertTrue({"sample", "embedding/gather"} <= names, names)

    def test_launch(self):
        facts = json.loads(self.works("bench", "launch", "--json", "--device", DEVICE))
        self.assertEqual((facts["device"], len(facts["launches"])), (DEVICE, 4))
        self.assertGreater(min(row["us"] for row in facts["launches"]), 0)
        kernels = [row["kernels"] for row in facts["launches"]]
        self.assertEqual(kernels[:3], ["tool_step", "tool_step", "rows/rms_norm"])
        # CUDA may have a kernel of its own for the product.
        portable = r"activation/prepare, matvec/one(_of)?"
        self.assertRegex(kernels[3], portable if DEVICE.startswith("opencl") else portable + "|stream/matvec")

    def test_number_out_of_range(self):
        name = DEVICE.split(":")[0] + ":99"
        self.refused(1, name, "run", "--device", name)


if __name__ == "__main__":
    unittest.main()
