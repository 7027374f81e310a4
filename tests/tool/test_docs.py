#!/usr/bin/env python3
"""What the documents say about the tree is true: the first program, links, variables, commands, decisions.

    test_docs.py BUILD"""
import glob
import os
import re
import subprocess
import sys
import unittest

BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else "build"
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"] + sorted(glob.glob("docs/**/*.md", recursive=True))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Documents(unittest.TestCase):
    def test_first_program_is_the_example(self):
        block = re.search(r"^```c\n(.*?)^```$", read("README.md"), re.S | re.M)
        self.assertEqual(block.group(1), read("examples/first.c"))
        self.assertLessEqual(block.group(1).count("\n"), 30)

    def test_code_of_graphs_is_run(self):
        """Every line of C in docs/graph.md stands, in the same order, in the program that tests/examples runs."""
        def lines(text):
            return "\n".join(line.strip() for line in text.split("\n") if line.strip()) + "\n"
        tour = lines(read("examples/tour.c"))
        blocks = re.findall(r"^```c\n(.*?)^```$", read("docs/graph.md"), re.S | re.M)
        self.assertGreater(len(blocks), 12)
        for block in blocks:
            with self.subTest(block.split("\n")[0]):
                self.assertIn(lines(block), tour)

    def test_first_program_computes(self):
        out = subprocess.run([os.path.join(BUILD, "examples", "first")], capture_output=True, text=True, timeout=100)
        self.assertEqual((out.returncode, out.stderr), (0, ""))
        rows = [[float(word) for word in line.split()] for line in out.stdout.splitlines()]
        # softmax of (2 i, 1)
        wanted = [[0.269, 0.731], [0.731, 0.269], [0.953, 0.047]]
        self.assertEqual(rows, wanted)

    def test_table_of_keys_is_that_of_the_code(self):
        out = subprocess.run([sys.executable, "scripts/keys", "--check"], capture_output=True, text=True, timeout=100)
        self.assertEqual((out.returncode, out.stderr), (0, ""))

    def test_links_lead_somewhere(self):
        for page in PAGES:
            for link in re.findall(r"\]\(([^)#:]+)\)", read(page)):
                with self.subTest(page, link=link):
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(page), link)))

    def test_named_files_exist(self):
        """Paths in backquotes that start with a folder of the tree."""
        tops = {name for name in os.listdir(".") if os.path.isdir(name)}
        for page in PAGES:
            for path in re.findall(r"`([\w.]+/[\w./]*)`", read(page)):
                if path.split("/")[0] in tops - {"build"}:
                    with self.subTest(page, path=path):
                        self.assertTrue(os.path.exists(path))

    def test_environment_table_is_complete(self):
        page = read("docs/architecture.md")
        self.assertEqual(set(re.findall(r"(?m)^\| `(MICA_\w+)` ", page)),
                         set(re.findall(r'"(MICA_\w+)"', read("src/base/env.c"))))
        self.assertEqual(dict(re.findall(r"(?m)^\| `([a-z]+)` \| (.*) \|$", page)),
                         dict(re.findall(r'(?m)^    X\(\w+, "(\w+)", "([^"]+)"\)', read("src/base/env.h"))))

    def test_make_words_exist(self):
        rules = set(re.findall(r"(?m)^([a-z-]+):", read("Makefile")))
        for page in PAGES:
            for word in re.findall(r"`make ([a-z-]+)", read(page)):
                with self.subTest(page, word=word):
                    self.assertIn(word, rules)

    def test_tool_commands_exist(self):
        known = subprocess.run([os.path.join(BUILD, "mica"), "help"], capture_output=True, text=True, timeout=100).stdout
        for page in PAGES:
            blocks = "".join(re.findall(r"^```\n(.*?)^```$", read(page), re.S | re.M))
            for command in re.findall(r"`mica ([a-z]+)\b", read(page)) + re.findall(r"(?m)^mica ([a-z]+)\b", blocks):
                with self.subTest(page, command=command):
                    self.assertTrue(re.search(r"(?m)^  %s " % command, known), "no such command")

    def test_decisions_are_numbered(self):
        pages = sorted(os.listdir("docs/decisions"))
        for number, page in enumerate(pages, 1):
            self.assertRegex(page, r"\A%03d-[a-z0-9-]+\.md\Z" % number)
            self.assertTrue(read("docs/decisions/" + page).startswith("# %03d " % number))

    def test_changelog_knows_the_version(self):
        numbers = re.findall(r"define MICA_VERSION_\w+ (\d+)", read("include/mica/host.h"))
        self.assertIn("## " + ".".join(numbers), read("CHANGELOG.md"))


if __name__ == "__main__":
    unittest.main()
