#!/usr/bin/env python3
"""Keeps the table of docs/graph.md true: every op of ops.def has a row, every builder that a row names is declared, and every function of the graph headers that
gives nodes of the table's ops stands somewhere in the rows of tests/graph/builder_rows.def or in a test.

    test_graph_table.py [BUILD]"""
import glob
import os
import re
import unittest


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Builders(unittest.TestCase):
    def setUp(self):
        self.rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", read("docs/graph.md").partition("## Which builder gives which op")[2], re.M))
        self.headers = "".join(read(path) for path in glob.glob("include/mica/graph*.h"))

    def test_every_op_has_a_row(self):
        ops = re.findall(r"^OP\(\w+, (\w+),", read("src/backend/ops.def"), re.M)
        self.assertGreater(len(ops), 50)
        self.assertEqual(sorted(ops), sorted(self.rows))

    def test_graph_table_are_declared(self):
        for op, cell in self.rows.items():
            for name in re.findall(r"`(mica_\w+)`", cell):
                with self.subTest(op, builder=name):
                    self.assertTrue(re.search(r"\b%s\(" % name, self.headers), "not declared")


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    unittest.main(argv=["test_graph_table"])
