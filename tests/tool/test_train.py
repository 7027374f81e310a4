#!/usr/bin/env python3
"""train and --lora as a user would run them: the model inside learns an answer that it never gave, a run that was ended goes on,
and what cannot be learned or applied is refused in a sentence.

    test_train.py BUILD"""
import json
import os
import random
import re
import signal
import subprocess
import unittest

from test_tool import BUILD, TOOL, mica
from test_models import Files


def words(count):
    draw = random.Random(7)
    made = set()
    while len(made) < count:
        made.add("".join(draw.choice("bcdfghklmnprstw") + draw.choice("aeiou") for _ in range(draw.randint(1, 3))) +
                 draw.choice(["", "n", "s", "t"]))
    return sorted(made, key=lambda word: draw.random())


def question(word):
    return {"prompt": "Ends %s?" % word, "completion": " It ends with %s." % word[-1]}


class Training(Files):
    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def lines(self, examples):
        return self.write("data.jsonl", "".join(json.dumps(example) + "\n" for example in examples))

    def train(self, data, out, *more):
        status, _, err = mica("train", "--data", data, "--lora-out", self.path(out), *more)
        self.assertEqual(status, 0, err)
        return err

    def answer(self, prompt, *more):
        status, out, err = mica("run", "-p", prompt, "--temp", "0", "-n", "7", "-q", "--no-display-prompt", *more)
        self.assertEqual(status, 0, err)
        return out

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    @unittest.skipIf(os.path.basename(BUILD) in ("asan", "tsan"), "the same steps as below, many more of them")
    def test_learns(self):
        every = words(80)
        data = self.lines([question(word) for word in every[4:]])
        err = self.train(data, "skill.gguf", "--steps", "16", "--batch", "8", "--learning-rate", "0.005")
        first, last = map(float, re.search(r"loss ([\d.]+) at step 1, ([\d.]+) at the end", err).groups())
        self.assertGreater(first, 5)
        self.assertLess(last, 2.5)
        adapter = ("--lora", self.path("skill.gguf"))
        for word in every[:4]:  # none that was seen
            prompt = question(word)["prompt"]
            self.assertNotIn("ends with", self.answer(prompt))
            self.assertTrue(self.answer(prompt, *adapter).startswith(" It ends with"))
        # As often as nothing is nothing; what the model could do it still can.
        prompt = question(every[0])["prompt"]
        self.assertEqual(self.answer(prompt, "--lora-scaled", self.path("skill.gguf"), "0"), self.answer(prompt))
        self.assertNotEqual(self.answer(prompt, *adapter), self.answer(prompt))
        status, out, err = mica("chat", "-q", "--temp", "0", *adapter, input="What is 12 + 30?\n")
        self.assertEqual(status, 0, err)

    def test_goes_on(self):
        data = self.write("text.txt", "The fox and the hen went to the river. " * 20)
        how = ("--steps", "300", "--batch", "1", "--length", "8", "--rank", "2", "--targets", "attn_q,ffn_down")
        self.train(data, "whole.gguf", *how)
        checkpoint = ("--checkpoint", self.path("state.safetensors"))
        run = subprocess.Popen([TOOL, "train", "--data", data, "--lora-out", self.path("parts.gguf"), *how, *checkpoint],
                               stderr=subprocess.PIPE, text=True)
        self.assertRegex(run.stderr.readline(), "^step 30 of 300")
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 143)
        self.assertFalse(os.path.exists(self.path("parts.gguf")))
        err = self.train(data, "parts.gguf", *how, *checkpoint, "--resume")
        self.assertRegex(err, r"going on after step \d+")
        self.assertEqual(self.read("parts.gguf"), self.read("whole.gguf"))

    def refused(self, status, sentence, *arguments):
        got, _, err = mica(*arguments)
        self.assertEqual(got, status, err)
        self.assertIn(sentence, err)

    def test_refusals(self):
        out = ("--lora-out", self.path("out.gguf"))
        data = self.lines([question("cat")])
        self.refused(2, "no text to learn from", "train", *out)
        self.refused(2, "no name for the adapter", "train", "--data", data)
        self.refused(2, "--checkpoint names it", "train", "--data", data, *out, "--resume")
        self.refused(1, "cannot be opened", "train", "--data", self.path("none.txt"), *out)
        self.refused(1, "attn_x", "train", "--data", data, *out, "--targets", "attn_q,attn_x")
        self.refused(1, "no layer of the model has it", "train", "--data", data, *out, "--targets", "attn_qkv")
        self.refused(1, "every prompt is longer", "train", "--data", data, *out, "--length", "2")
        for line, sentence in (("{", "line 2"), ('{"prompt": "a"}', "line 2"), ("[1]", "line 2"),
                               ('{"prompt": "a", "completion": ""}', "empty completion"),
                               ('{"prompt": 7, "completion": "a"}', "line 2")):
            bad = self.write("bad.jsonl", json.dumps(question("cat")) + "\n" + line + "\n")
            self.refused(1, sentence, "train", "--data", bad, *out)
        self.assertFalse(os.path.exists(self.path("out.gguf")))
        self.refused(1, "--lora", "run", "--lora", data, "-q")
        self.refused(2, "--lora-scaled needs FILE SCALE", "run", "--lora-scaled", data)
        self.refused(2, "not a number", "run", "--lora-scaled", data, "x")


if __name__ == "__main__":
    unittest.main()
