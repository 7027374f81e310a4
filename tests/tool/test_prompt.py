#!/usr/bin/env python3
"""`mica template` as a user would run it.

    test_prompt.py BUILD"""
import json
import os
import subprocess
import unittest

from test_tool import TOOL, mica
from test_models import Files

CHAT = ("{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if tools %}[{{ tools | map(attribute='name') | join(',') }}]{% endif %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}")
TALK = [{"role": "user", "content": "a \"b\" \u00e9\n{x}, [y]"}, {"role": "assistant", "content": "fine"}]
SAID = "<user>a \"b\" \u00e9\n{x}, [y]</><assistant>fine</>"


class Prompt(Files):
    def write(self, name, what):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(what if isinstance(what, str) else json.dumps(what))
        return self.path(name)

    def prompt(self, chat, messages, *words):
        return self.works("template", "--chat-template", self.write("chat.jinja", chat), "--messages",
                          self.write("messages.json", messages), *words)

    def wrong(self, word, chat, messages, *words, status=1):
        self.refused(status, word, "template", "--chat-template", self.write("chat.jinja", chat), "--messages",
                     self.write("messages.json", messages), *words)

    def test_list_and_object(self):
        self.assertEqual(self.prompt(CHAT, TALK), SAID + "<assistant>")
        self.assertEqual(self.prompt(CHAT, {"messages": TALK, "bos_token": "<s>"}), "<s>" + SAID + "<assistant>")
        self.assertEqual(self.prompt(CHAT, " [ ] "), "<assistant>")
        self.assertEqual(self.prompt("{{ messages is defined }}", " { } "), "False")

    def test_generation_prompt(self):
        self.assertEqual(self.prompt(CHAT, TALK, "--no-generation-prompt"), SAID)
        for mine in (True, False):
            kept = {"add_generation_prompt": mine, "messages": TALK}
            self.assertEqual(self.prompt(CHAT, kept), SAID + "<assistant>" * mine)
            self.assertEqual(self.prompt(CHAT, kept, "--no-generation-prompt"), SAID)
        # a member of that name further down is none of ours
        deep = {"messages": [{"role": "user", "content": "x", "add_generation_prompt": False}]}
        self.assertEqual(self.prompt(CHAT, deep), "<user>x</><assistant>")

    def test_tools(self):
        tools = self.write("tools.json", [{"name": "look"}, {"name": "tell"}])
        self.assertEqual(self.prompt(CHAT, TALK, "--tools", tools), SAID + "[look,tell]<assistant>")
        given = {"tools": [{"name": "old"}], "messages": TALK}
        self.assertEqual(self.prompt(CHAT, given), SAID + "[old]<assistant>")
        self.assertEqual(self.prompt(CHAT, given, "--tools", tools), SAID + "[look,tell]<assistant>")

    def test_standard_input(self):
        chat = self.write("chat.jinja", CHAT)
        talk = self.write("messages.json", TALK)
        for words, text in ((("-", talk), CHAT), ((chat, "-"), json.dumps(TALK))):
            out = self.works("template", "--chat-template", words[0], "--messages", words[1], input=text)
            self.assertEqual(out, SAID + "<assistant>")

    def test_only_the_prompt(self):
        """Not even a line end of our own, and every byte of the template's."""
        self.assertEqual(self.prompt("x", []), "x")
        self.assertEqual(self.prompt("\u00e9\t{{ '\\n' }}", []), "\u00e9\t\n")
        self.assertEqual(self.prompt("", []), "")

    def test_bad_templates(self):
        self.wrong("line 2, column", "fine\n{% if %}", [])
        self.wrong("no turns", "{{ raise_exception('no turns') }}", [])
        self.wrong("line 1", "{% for i in range(1000000000) %}{{ 'x' * 1000000 }}{% endfor %}", [])
        self.wrong("line", "{{ messages[0]", [])

    def test_bad_messages(self):
        for text in ("", "[", "{\"messages\": [}", "[1,]", "nonsense", "{\"messages\": [], \"messages\": []}", "[] []"):
            self.wrong("mica: ", CHAT, text)
        self.wrong("mica: ", CHAT, TALK, "--tools", self.write("tools.json", "[{]"))

    def test_bad_usage(self):
        talk = self.write("messages.json", TALK)
        self.refused(2, "--messages", "template", "--chat-template", talk)
        self.refused(2, "--chat-template", "template", "--messages", talk)
        self.refused(2, "spare", "template", "--chat-template", talk, "--messages", talk, "spare")
        self.wrong("nowhere", CHAT, TALK, "--tools", self.path("nowhere"))
        self.refused(1, "nowhere", "template", "--chat-template", self.path("nowhere"), "--messages", talk)
        self.refused(1, self.folder, "template", "--chat-template", self.folder, "--messages", talk)

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_full_disk(self):
        chat = self.write("chat.jinja", CHAT)
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([TOOL, "template", "--chat-template", chat, "--messages",
                                  self.write("messages.json", TALK)], stdout=full, stderr=subprocess.PIPE, text=True,
                                 timeout=100, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"\Amica: [^\n]+\n\Z")

    def test_help(self):
        status, out, _ = mica("help", "template")
        self.assertEqual(status, 0)
        self.assertIn("--no-generation-prompt", out)


if __name__ == "__main__":
    unittest.main()
