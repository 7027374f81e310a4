#!/usr/bin/env python3
"""Keeps docs/parity.md true: every symbol that a row names is declared in include/mica, every test that it names
exists and calls the symbol, every status is one of three, and no row of the layers that must be whole is 'planned'.
Beyond the table: every public function is called by some test.

    test_parity.py [BUILD]"""
import glob
import os
import re
import unittest

TABLE = "docs/parity.md"
# Sections of the reference in which nothing may be left for later: device, buffer, pool, encoder, session, graph,
# registry, counters.
WHOLE = ("1.", "2.", "6.", "10.1", "10.4")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


class Row:
    def __init__(self, section, number, cells):
        self.section, self.place = section, "%s:%d" % (TABLE, number)
        self.item, symbols, tests, self.status = cells
        names = re.findall(r"`([^`]+)`", symbols)
        self.symbols = [name for name in names if re.match(r"\$?MICA_|mica_", name)]
        self.fields = [name for name in names if name not in self.symbols]
        self.tests = re.findall(r"`([^`]+)`", tests)


def rows():
    section, found = "", []
    for number, line in enumerate(read(TABLE).split("\n"), 1):
        head = re.match(r"#+ ([\d.]+)", line)
        if head:
            section = head.group(1)
        elif line.startswith("|") and not re.match(r"\| *(reference item|---)", line):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if len(cells) != 4:
                raise SystemExit("%s:%d: %d cells, not 4" % (TABLE, number, len(cells)))
            found.append(Row(section, number, cells))
    return found


def declared():
    """Every name that a public header declares, enumerators of the X-macro lists included."""
    names = set()
    for path in glob.glob("include/mica/*.h"):
        text = without_comments(read(path))
        names.update(re.findall(r"\b(?:mica|MICA)_\w+", text))
        for prefix, block in (("MICA_DTYPE_", "MICA_DTYPE_LIST"), ("MICA_OP_", "MICA_OP_LIST")):
            found = re.search(r"#define %s\(X\)(.*?)\n\n" % block, text, re.S)
            if found:
                names.update(prefix + name for name in re.findall(r"X\((\w+)", found.group(1)))
    return names


def test_text(path):
    """A test file without comments; where it includes a table (.def) of src whose rows it pastes names of, those names: mica_add(); where it includes one of tests, its text."""
    text = without_comments(read(path))
    pasted = re.findall(r"^#define (\w+)\(name\b.*\bmica_##name\b", text, re.M)

    def names(include):
        if os.path.exists("tests/" + include.group(1)):
            return without_comments(read("tests/" + include.group(1)))
        rows = read("src/" + include.group(1)) if os.path.exists("src/" + include.group(1)) else ""
        return " ".join("mica_%s()" % name for macro in pasted for name in re.findall(r"^%s\((\w+)" % macro, rows, re.M))
    return re.sub(r'^#include "([^"]+\.def)"', names, text, flags=re.M)


class Source:
    """The functions, tables and macros of a test file and of the local headers it includes, by name. The house style puts the
    braces of a function in the first column."""

    def __init__(self, path):
        self.bodies = {}
        self.own = set()
        self.add(path)
        self.own = set(self.bodies)
        folder = os.path.dirname(path)
        for header in re.findall(r'^#include "([^"]+)"', read(path), re.M):
            for place in (os.path.join(folder, header), os.path.join("tests", header)):
                if os.path.exists(place):
                    self.add(place)
                    break

    def add(self, path):
        text = test_text(path)
        for table in re.finditer(r"^static const [^;(]*?(\w+)(?:\[\w*\])+ = \{.*?\};", text, re.S | re.M):
            self.bodies.setdefault(table.group(1), table.group(0))
        for macro in re.finditer(r"^#define (\w+)\(.*?[^\\]$", text, re.S | re.M):
            self.bodies.setdefault(macro.group(1), macro.group(0))
        lines = text.split("\n")
        start = None
        for number, line in enumerate(lines):
            if line == "{" and start is None:
                start = number
            elif line.startswith("}") and start is not None:
                head = start - 1
                while head > 0 and lines[head].startswith((" ", "\t")):
                    head -= 1
                name = re.search(r"(\w+)\(", lines[head])
                if name:
                    self.bodies.setdefault(name.group(1), "\n".join(lines[start:number]))
                start = None

    def reached(self, name):
        """The text of the function and of all functions of these files that it uses."""
        todo, seen, text = [name], set(), ""
        while todo:
            current = todo.pop()
            if current in seen:
                continue
            seen.add(current)
            text += self.bodies[current]
            todo += [word for word in set(re.findall(r"\w+", self.bodies[current])) if word in self.bodies]
        return text


def environment():
    """Variables and debug words that the library obeys."""
    text = read("src/base/env.c") + read("src/base/env.h")
    return set(re.findall(r'"(MICA_\w+)"', text)), set(re.findall(r'X\(\w+, "(\w+)"', text))


class Parity(unittest.TestCase):
    sources = {}

    def source(self, path):
        if path not in self.sources:
            self.sources[path] = Source(path)
        return self.sources[path]

    def test_rows_are_well_formed(self):
        self.assertGreater(len(rows()), 250)
        for row in rows():
            with self.subTest(row.place):
                self.assertTrue(row.item)
                self.assertRegex(row.status, r"\A(done|planned|not wanted: \w.{8,})\Z")
                if row.status == "done":
                    self.assertTrue(row.symbols and row.tests, "a done row names a symbol and a test")
                if row.status == "planned":
                    self.assertFalse(row.section.startswith(WHOLE), "nothing of section %s may be planned" % row.section)
                    self.assertFalse(row.tests, "what is planned has no test yet")

    def test_items_are_listed_once(self):
        seen = {}
        for row in rows():
            key = (row.section, row.item)
            self.assertTrue(key not in seen, "%s repeats %s" % (row.place, seen.get(key)))
            seen[key] = row.place

    def test_symbols_are_declared(self):
        names = declared()
        headers = "".join(without_comments(read(path)) for path in glob.glob("include/mica/*.h"))
        variables, words = environment()
        for row in rows():
            for field in row.fields:
                with self.subTest(row.place, field=field):
                    self.assertTrue(re.search(r"\b%s\b" % field, headers), "not in include/mica")
            for symbol in row.symbols:
                with self.subTest(row.place, symbol=symbol):
                    variable, _, word = symbol[1:].partition("=")
                    known = variable in variables and (not word or word in words) if symbol[0] == "$" else symbol in names
                    self.assertTrue(known, "not declared in include/mica, or no variable that the library reads")

    def test_tests_exist_and_call(self):
        for row in rows():
            reached = ""
            for test in row.tests:
                path, _, name = test.partition(":")
                path = "tests/" + path
                with self.subTest(row.place, test=test):
                    self.assertTrue(os.path.exists(path), "no such file")
                    self.assertTrue(name in self.source(path).own, "no such function")
                    reached += self.source(path).reached(name)
                    if path.endswith(".c") and not os.path.basename(path).startswith("test_"):
                        room = "/".join(path.split("/")[:2])
                        others = [p for p in glob.glob(room + "/**/*.[ch]", recursive=True) if p != path]
                        self.assertTrue(any(name.split("_", 2)[-1] in read(p) for p in others), "nobody runs it")
            for symbol in row.symbols if row.tests else ():
                with self.subTest(row.place, symbol=symbol):
                    text, name = reached, symbol
                    if symbol[0] == "$":
                        text = "".join(read("tests/" + test.partition(":")[0]) for test in row.tests)
                        name = symbol[1:].partition("=")[0]
                    self.assertTrue(re.search(r"\b%s\b" % name, text), "the test does not use it")

    def test_every_public_function_is_tested(self):
        text = "".join(test_text(path) for path in glob.glob("tests/*/**/*.[ch]", recursive=True))
        used = set(re.findall(r"\b(mica_\w+)\(", text))
        for path in glob.glob("include/mica/*.h"):
            for name in re.findall(r"MICA_API[^;]*?\b(mica_\w+)\(", without_comments(read(path))):
                with self.subTest(path, function=name):
                    self.assertTrue(name in used, "no test calls it")


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    unittest.main(argv=["test_parity"])
