#!/usr/bin/env python3
"""Where the tool takes its text from, what it says when its output is full, and what it warns of. On the model inside.

    test_input.py BUILD"""
import json
import os
import subprocess
import unittest

from test_tool import TOOL, Base, mica
from test_models import Files, model

DEMO = os.path.join("models", "demo.gguf")
SUM = "123 + 456 ="
ADDED = "123 + 456 = 579.\n"
GREEDY = ("--temp", "0", "-q", "-r", "\\n")
FULL = os.path.exists("/dev/full")


class Prompt(Files):
    def test_run(self):
        for words in (("-p", SUM), (SUM,), ("--", SUM)):
            for of in ((), ("-m", DEMO)):
                self.assertEqual(self.works("run", *of, *GREEDY, *words), ADDED)

    def test_run_from_a_pipe(self):
        for of in ((), ("-m", DEMO)):
            for text in (SUM, SUM + "\n"):
                self.assertEqual(self.works("run", *of, *GREEDY, input=text), ADDED)
        with open(self.path("prompt"), "w", encoding="utf-8") as file:
            file.write(SUM + "\n")
        with open(self.path("prompt"), encoding="utf-8") as file:
            self.assertEqual(self.works("run", *GREEDY, stdin=file), ADDED)

    def test_what_is_given_comes_before_the_pipe(self):
        self.assertEqual(self.works("run", *GREEDY, SUM, input="no"), ADDED)
        self.assertEqual(self.works("tokenize", "--ids", "42", input="no"), self.works("tokenize", "--ids", "-p", "42"))

    def test_nothing_piped(self):
        """With the model inside a story is told; else a prompt is missing."""
        for more in ({"input": ""}, {"stdin": subprocess.DEVNULL}):
            self.assertTrue(self.works("run", "-n", "2", "-q", **more).startswith("Once upon a time"))
            self.refused(2, "no text", "run", "-m", DEMO, **more)
            self.refused(2, "no text", "tokenize", **more)
        closed = subprocess.run([TOOL, "run", "-n", "2", "-q"], preexec_fn=lambda: os.close(0), capture_output=True, check=False)
        self.assertEqual((closed.returncode, closed.stdout[:4]), (0, b"Once"))

    def test_escapes(self):
        """As in --prompt, on the command line alone."""
        self.assertEqual(self.works("run", "a\\tb", "-n", "0", "-q"), "a\tb\n")
        self.assertEqual(self.works("run", "-n", "0", "-q", input="a\\tb"), "a\\tb\n")

    def test_only_one(self):
        for words in (("x", "-p", "y"), ("x", "-f", "y"), ("-p", "x", "-f", "y")):
            self.refused(2, "both", "run", *words)
            self.refused(2, "both", "tokenize", *words)

    def test_chat(self):
        for words, more in ((("What is 12 + 30?",), {}), ((), {"input": "What is 12 + 30?\n"}), ((), {"input": "What is 12 + 30?"})):
            out = self.works("chat", "--temp", "0", "-q", *words, **more)
            self.assertIn("42", out)
            self.assertEqual(out.count("\n"), 1)

    def test_tokenize(self):
        wanted = self.works("tokenize", "-p", "hi there\n", "--ids")
        self.assertEqual(self.works("tokenize", "hi there\n", "--ids"), wanted)
        self.assertEqual(self.works("tokenize", "--ids", input="hi there\n"), wanted)

    def test_embed(self):
        wanted = self.works("embed", "-p", "a cat")
        self.assertEqual(self.works("embed", "a cat"), wanted)
        self.assertEqual(self.works("embed", input="a cat\n"), wanted)
        both = json.loads(self.works("embed", "a cat", "-p", "a dog", "--json"))
        self.assertEqual([item["text"] for item in both["embeddings"]], ["a cat", "a dog"])

    def test_perplexity(self):
        text = "One day a cat and a dog went to the park. " * 40
        out, again = (mica("perplexity", "-c", "64", "--chunks", "2", *words, input=text)[1] for words in ((), ("-f", "-")))
        self.assertRegex(out, r"\APPL = ")
        self.assertEqual(out, again)


@unittest.skipUnless(FULL, "this system has no /dev/full")
class FullOutput(Files):
    def lost(self, *words, status=1):
        """Exactly one sentence, which says what is wrong, whatever else is on stderr."""
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([TOOL, *words], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
                                 timeout=100, check=False)
        self.assertEqual(run.returncode, status, (words, run.stderr))
        said = [line for line in run.stderr.splitlines() if line.startswith("mica: ")]
        self.assertEqual(said, ["mica: standard output cannot be written: No space left on device"], words)

    def test_every_command(self):
        path = model(self.path("m.gguf"))
        for words in (("help",), ("help", "run"), ("man",), ("version",), ("completion", "bash"), ("info",), ("info", "--json"),
                      ("cache", "list"), ("inspect", DEMO), ("inspect", DEMO, "--json"), ("tokenize", "hi"),
                      ("run", "hi", "--ignore-eos", "-q"), ("chat", "hi"), ("embed", "hi"), ("embed", "hi", "--json"),
                      ("pass", "--tokens", "2", "-t", "1"), ("convert", path, self.path("hf")),
                      ("quantize", path, self.path("out.gguf"), "q8_0")):
            self.lost(*words)
        self.lost("diff", DEMO, DEMO, status=2)

    def test_long_work_ends_with_the_first_row(self):
        self.lost("bench", "-m", DEMO, "-p", "8", "-n", "2,1000000", "-r", "1", "-t", "1")


class Warnings(Base):
    def test_context_beyond_the_training(self):
        for words in (("run", "hi", "-n", "1"), ("chat", "hi", "-n", "1"), ("embed", "hi")):
            status, _, err = mica(*words, "-c", "1024")
            self.assertEqual(status, 0)
            self.assertRegex(err, r"(?m)^mica: warning: .*1024 tokens.* 512 ")
            self.assertNotIn("warning", mica(*words, "-c", "512")[2])


if __name__ == "__main__":
    unittest.main()
