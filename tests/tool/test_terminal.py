#!/usr/bin/env python3
"""The tool on a terminal: editing, pasting and signals in chat, any locale, and texts of strangers that must not act there.

    test_terminal.py BUILD"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
import unittest

from test_tool import TOOL
from test_models import STRING, Files, gguf, singles

HAS_EDITOR = b"libedit" in subprocess.run(["ldd", TOOL], capture_output=True, check=False).stdout
BACK = "\033[?2004l"


class Terminal(Files):
    """A program on a terminal of its own."""

    def start(self, *words, **more):
        self.shown = b""
        self.ours, theirs = pty.openpty()
        environment = dict(os.environ, TERM="xterm", XDG_STATE_HOME=self.folder, LC_ALL="C.UTF-8")
        environment.update(more)
        self.run_ = subprocess.Popen([TOOL, *words], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                                     preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0), env=environment)
        os.close(theirs)
        self.addCleanup(os.close, self.ours)
        self.addCleanup(self.run_.wait)
        self.addCleanup(self.run_.kill)

    def read(self, seconds):
        """False at the end of what the program shows."""
        if select.select([self.ours], [], [], seconds)[0]:
            try:
                piece = os.read(self.ours, 65536)
            except OSError:
                return False
            self.shown += piece
            return piece != b""
        return True

    def wait_for(self, word, seconds=20):
        end = time.monotonic() + seconds
        while word not in self.shown:
            self.assertGreater(end, time.monotonic(), (word, self.shown[-2000:]))
            if not self.read(0.1):
                break
        self.assertIn(word, self.shown)

    def type(self, text):
        self.shown = b""
        os.write(self.ours, text)

    def until_over(self, status=0):
        end = time.monotonic() + 20
        while self.read(0.1) and time.monotonic() < end:
            pass
        self.assertEqual(self.run_.wait(timeout=20), status, self.shown[-2000:])
        return self.shown.decode("utf-8", "replace")


class Chat(Terminal):
    ENDLESS = ("chat", "--chat-template", "chatml", "--ignore-eos", "--context-shift", "-n", "100000000")

    def test_termination(self):
        self.start(*self.ENDLESS)
        self.wait_for(b"> ")
        self.type(b"half a line")
        self.wait_for(b"line")
        self.run_.terminate()
        self.assertEqual(self.run_.wait(timeout=20), 128 + signal.SIGTERM)

    def test_ctrl_c_and_ctrl_d(self):
        self.start(*self.ENDLESS)
        self.wait_for(b"> ")
        self.type(b"half a line\x03")
        self.wait_for(b"Ctrl-D")
        self.wait_for(b"> ")
        self.type(b"Once upon a time\n")
        self.wait_for(b"\n")
        time.sleep(0.5)
        self.type(b"\x03")
        self.wait_for(b"> ")
        self.type(b"/stats\n")
        self.wait_for(b"by a signal\r\n")
        self.wait_for(b"> ")
        self.type(b"And then\n")
        self.wait_for(b"\n")
        time.sleep(0.3)
        self.type(b"\x03")
        self.wait_for(b"> ")
        self.type(b"\x04")
        self.wait_for(b"seed")
        self.until_over()
        if HAS_EDITOR:
            with open(self.path("mica/history"), encoding="utf-8") as file:
                self.assertIn("Once", file.read())


class Messages(Terminal):
    """What is typed and pasted, seen through /save."""

    def said(self, *keys, **more):
        """The messages of the user after these keys; a step waits for the prompt."""
        self.start("chat", "-n", "1", "-q", **more)
        prompt = b"\x1b[?2004h> " if HAS_EDITOR and more.get("TERM") != "dumb" else b"> "  # not one that is drawn again
        for key in keys + (b"/save %s\n" % self.path("talk.json").encode(), b"\x04"):
            self.wait_for(prompt)
            self.type(key)
        self.until_over()
        with open(self.path("talk.json"), encoding="utf-8") as file:
            return [turn["content"] for turn in json.load(file) if turn["role"] == "user"]

    def test_every_locale(self):
        text = "h\u00e9llo w\u00f6rld \u4f60\u597d \U0001f600"
        for locale in ("C.UTF-8", "C", "POSIX", "de_DE.ISO-8859-1", "nonsense", ""):
            with self.subTest(locale):
                self.assertEqual(self.said(text.encode() + b"\n", LC_ALL=locale, LANG=locale, LC_CTYPE=locale), [text])

    def test_bytes_that_are_no_text(self):
        if HAS_EDITOR:
            self.assertEqual(self.said(b"a\xe9b\xff\xc3\n", LC_ALL="C"), ["a\ufffdb\ufffd\ufffd"])

    def test_lines_that_wait_are_one_message(self):
        for kind in ("xterm", "dumb"):
            self.assertEqual(self.said(b"one\n\n  two\nthree\n", b"four\n", TERM=kind), ["one\n\n  two\nthree", "four"])

    @unittest.skipUnless(HAS_EDITOR, "lines are not edited")
    def test_bracketed_paste(self):
        paste = b"\x1b[200~int main(void)\r{\r\treturn 0;\x07\r}\r\x1b[201~"
        said = "int main(void)\n{\n\treturn 0;\n}"
        self.assertEqual(self.said(paste + b"\n"), [said])
        self.assertEqual(self.said(b"see: " + paste + b" - why?\r"), ["see: " + said + " - why?"])
        self.assertEqual(self.said(b"\x1b[200~/* no command\nof ours */\x1b[201~\n"), ["/* no command\nof ours */"])
        long = "\n".join("l%d" % i for i in range(60))
        self.assertEqual(self.said(b"\x1b[200~" + long.encode() + b"\x1b[201~\n"), [long])  # more than the window has

    @unittest.skipUnless(HAS_EDITOR, "lines are not edited")
    def test_brackets_are_asked_for_while_a_line_is_edited(self):
        self.start("chat", "-n", "1", "-q")
        self.wait_for(b"\x1b[?2004h> ")
        self.type(b"hi\n")
        self.wait_for(b"\x1b[?2004h> ")
        self.assertIn(BACK.encode(), self.shown)
        self.type(b"\x04")
        self.assertTrue(self.until_over().rstrip().endswith(BACK))

    def test_continued_lines(self):
        self.start("chat", "-n", "1", "-q")
        self.wait_for(b"> ")
        self.type(b"one\\\n")
        self.wait_for(b". ")
        self.type(b"two\n")
        self.wait_for(b"> ")
        self.type(b"/save %s\n" % self.path("talk.json").encode())
        self.wait_for(b"> ")
        with open(self.path("talk.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)[0]["content"], "one\ntwo")


class Strangers(Terminal):
    """Text of model files, and of models, that would act on a terminal."""
    NAME = b"\x1b]0;x\x07\x1b[J"  # the title of the window, then a cleared screen

    def shows(self, *words):
        """What is shown, with the sequences that the tool itself may write taken away."""
        self.start(*words, NO_COLOR="1")
        out = self.until_over()
        self.assertIsNone(re.search("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f]", out), out)
        return out.replace("\r\n", "\n")

    def hostile(self):
        with open(os.path.join("models", "demo.gguf"), "rb") as file:
            data = file.read()
        mark = b"general.name" + bytes((8, 0, 0, 0, 9)) + bytes(7)
        self.assertEqual(data.count(mark + b"mica demo"), 1)
        with open(self.path("hostile.gguf"), "wb") as file:
            file.write(data.replace(mark + b"mica demo", mark + self.NAME))
        return self.path("hostile.gguf")

    def test_name_of_a_model(self):
        self.start("chat", "-m", self.hostile(), "-q")
        self.wait_for(b"> ")
        self.assertIn(rb"\x1b]0;x\x07\x1b[J; /help lists commands", self.shown)
        self.assertNotIn(self.NAME, self.shown)

    def test_inspect_and_diff(self):
        path = self.hostile()
        self.assertIn(r"\x1b]0;x\x07\x1b[J", self.shows("inspect", path))
        self.start("diff", path, os.path.join("models", "demo.gguf"), NO_COLOR="1")
        self.assertNotIn(self.NAME.decode(), self.until_over(1))

    def test_sentences_and_names(self):
        name = "\x1b[2J.weight"
        path = gguf(self.path("m.gguf"), [("general.architecture", STRING, name), (name, STRING, name)],
                    [(name, "f32", (4,), singles([1] * 4))])
        self.assertIn(r"\x1b[2J.weight", self.shows("inspect", path, "--tensors"))
        self.start("run", "-m", path, "hi")
        self.assertIn(r"\x1b[2J.weight", self.until_over(1))
        self.assertNotIn(b"\x1b", self.shown)

    def test_generated_text(self):
        """Visible on a terminal, as it is elsewhere."""
        words = ("run", "a", "-q", "--grammar", 'root ::= "\\x1b[2J\\u009b\\r\\n\\tb"')
        self.assertEqual(self.shows(*words), "a\\x1b[2J\\u{9b}\\r\n\tb\n")
        out = subprocess.run([TOOL, *words], capture_output=True, stdin=subprocess.DEVNULL, check=True).stdout
        self.assertEqual(out, b"a\x1b[2J\xc2\x9b\r\n\tb\n")

    def test_template(self):
        for name, text in (("t.jinja", "{{ '\x1b[2J' }}a"), ("m.json", "[]")):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        self.assertEqual(self.shows("template", "--chat-template", self.path("t.jinja"), "--messages", self.path("m.json")),
                         r"\x1b[2Ja")

    def test_logprobs_and_tokens(self):
        self.assertIn(r"\x1b", self.shows("run", "a", "-q", "--logprobs", "1", "--grammar", 'root ::= "\\x1b"'))
        self.shows("tokenize", "\x1b[2J")


if __name__ == "__main__":
    unittest.main()
