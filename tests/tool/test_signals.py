#!/usr/bin/env python3
"""SIGTERM and Ctrl-C while the tool reads what a stranger wrote: it is gone soon, whatever it was doing.

    test_signals.py BUILD"""
import json
import os
import signal
import subprocess
import time
import unittest

from test_tool import TOOL, wait_until_caught
from test_models import Files

DEMO = os.path.join("models", "demo.gguf")
SOON = 2  # seconds; a few milliseconds are usual, but the machine may be busy
DOUBLED = 40


class Signals(Files):
    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def fifo(self, name="fifo"):
        """A pipe that nobody writes to."""
        os.mkfifo(self.path(name))
        return self.path(name)

    def ends(self, *words, number=signal.SIGTERM, lines=b"", status=None):
        """Started, left alone for a while, and stopped: it is gone soon, killed by the signal or with its status."""
        run = subprocess.Popen([TOOL, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        run.stdin.write(lines)
        run.stdin.flush()
        if status is not None:
            wait_until_caught(run)
        time.sleep(0.2)
        self.assertIsNone(run.poll(), (words, run.stderr.read() if run.poll() is not None else b""))
        began = time.monotonic()
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
        took = time.monotonic() - began
        if os.environ.get("MICA_TEST_TIMES"):
            print("%-60s %6.1f ms" % (" ".join(words)[:60], took * 1e3))
        self.assertLess(took, SOON, words)
        self.assertIn(run.returncode, (-number, 128 + number) if status is None else (status,), (words, out, err))
        return err.decode()

    def test_prompt_that_does_not_come(self):
        for words in (("run",), ("run", "-f", "-"), ("tokenize",), ("embed",), ("perplexity",)):
            self.ends(*words)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.ends("chat", number=number)
        fifo = self.fifo()
        for words in (("run", "-f"), ("run", "hi", "--grammar-file"), ("run", "hi", "-jf"), ("chat", "hi", "--chat-template")):
            self.ends(*words, fifo)

    def test_file_that_does_not_come(self):
        """While signals are caught."""
        err = self.ends("chat", "-q", "-n", "1", lines=b"/load %s\n" % self.fifo().encode(), status=128 + signal.SIGTERM)
        self.assertEqual(err, "")

    def test_model_from_a_pipe(self):
        """Is refused, not waited for."""
        run = subprocess.run([TOOL, "run", "-m", self.fifo(), "hi"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("it is a pipe", run.stderr)

    def test_long_message(self):
        """Megabytes that are one word, while signals are caught: nothing is said of what the library did not finish."""
        self.write("talk.json", json.dumps([{"role": "user", "content": "ab" * 16000000}, {"role": "assistant", "content": "c"}]))
        lines = b"/load %s\n/regen\n" % self.path("talk.json").encode()
        self.assertEqual(self.ends("chat", "-q", lines=lines, status=128 + signal.SIGTERM), "")

    def test_schema(self):
        """Doubled so often that it would take for ever, were it not for limits."""
        ways = {"a%d" % i: {"allOf": [{"$ref": "#/$defs/a%d" % (i + 1)}] * 2} for i in range(DOUBLED)}
        ways["a%d" % DOUBLED] = {"type": "object", "properties": {"x": {"type": "string"}}}
        path = self.write("schema.json", json.dumps({"$defs": ways, "$ref": "#/$defs/a0"}))
        run = subprocess.Popen([TOOL, "run", "hi", "-n", "1", "-q", "-jf", path], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.2)
        if run.poll() is None:  # else a limit ended it
            run.terminate()
        began = time.monotonic()
        run.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, SOON)

    def test_output_that_nobody_reads(self):
        """A pipe that is full."""
        for words, number in ((("inspect", DEMO, "--json"), signal.SIGTERM), (("man",), signal.SIGINT)):
            run = subprocess.Popen([TOOL, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   pipesize=4096)
            time.sleep(0.2)
            self.assertIsNone(run.poll())
            run.send_signal(number)
            self.assertEqual(run.wait(timeout=SOON), -number)
            run.communicate()

    def test_text_that_nobody_reads(self):
        run = subprocess.Popen([TOOL, "run", "hi", "--ignore-eos", "--context-shift"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096)
        wait_until_caught(run)
        time.sleep(1)
        self.assertIsNone(run.poll())
        run.terminate()
        self.assertEqual(run.wait(timeout=SOON), 128 + signal.SIGTERM)
        self.assertNotIn(b"cannot be written", run.communicate()[1])


if __name__ == "__main__":
    unittest.main()
