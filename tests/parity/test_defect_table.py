#!/usr/bin/env python3
"""Keeps docs/defects.md true: every mistake has a test that exists and is run, a row of the table of conformance, or a word that says why there is
none; and every family of rows/shapes_defects.c stands there.

    test_defect_table.py [BUILD]"""
import os
import re
import unittest

PAGE, FAMILIES = "docs/defects.md", "tests/conform/rows/shapes_defects.c"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def rows():
    found = []
    for number, line in enumerate(read(PAGE).split("\n"), 1):
        if line.startswith("|") and not re.match(r"\| *(mistake|---)", line):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            found.append((number, cells))
    return found


def conformance():
    """Names of rows; those of every weight by the name of the first part and a type."""
    text = read("tests/conform/conform_table.c")
    names = set(re.findall(r'(?:ROW|MADE|BITS)\("([^"]+)"', text)) | set(re.findall(r'^    \{"([^"]+)", MICA_OP', text, re.M))
    for name in re.findall(r'WEIGHT_ROWS\("(\w+)"', text):
        names |= {name + part for part in re.findall(r'ROW\(text "( \w+)"', text)}
    return names


class Defects(unittest.TestCase):
    def test_rows_are_well_formed(self):
        self.assertGreater(len(rows()), 50)
        seen = set()
        for number, cells in rows():
            with self.subTest(line=number):
                self.assertEqual(len(cells), 2)
                self.assertNotIn(cells[0], seen)
                seen.add(cells[0])
                self.assertTrue("`" in cells[1] or re.match(r"none: \w.{8,}", cells[1]), "no test and no reason")

    def test_tests_exist(self):
        known = conformance()
        for number, cells in rows():
            for row in re.findall(r"row `([^`]+)`", cells[1]):
                with self.subTest(line=number, row=row):
                    self.assertIn(row, known)
            for test in re.findall(r"(?<!row )`(\w+/[\w/]+\.\w+:\w+)`", cells[1]):
                path, _, name = test.partition(":")
                with self.subTest(line=number, test=test):
                    self.assertTrue(os.path.exists("tests/" + path), "no such file")
                    uses = re.findall(r"\b%s\b" % name, read("tests/" + path))
                    self.assertGreater(len(uses), 1, "no such function, or nobody runs it")

    def test_all_families_are_named(self):
        page = read(PAGE)
        for name in re.findall(r"^static void (\w+)\(conform_lines", read(FAMILIES), re.M):
            with self.subTest(family=name):
                self.assertIn("shapes_defects.c:" + name, page)


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    unittest.main(argv=["test_defect_table"])
