"""test_argument_table.py - arguments.def has a row for every flag word, enum value and struct size that a public call takes.
   test_argument_table.py BUILD

What the headers of include/mica declare is read here; what the rows do is test_arguments.c."""
import glob
import os
import re
import sys
import unittest

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# Words of bits, by the names that they have in the headers.
FLAGS = {"flags", "access"}
# Read when the work runs on the device, from a buffer: "Fields of another value than told count as the nearest that is".
FREE = {"mica_sample_settings"}
# What a call writes there.
OUT = {("mica_next", "status")}
# "`layout` and `heads` are not looked at", "dtype, ndim and shape are filled in".
UNREAD = {"block.attention.layout", "layer.attention.attention.layout", "outputs.dtype"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def headers():
    text = "\n".join(read(path) for path in sorted(glob.glob(os.path.join(TREE, "include", "mica", "*.h"))))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"^\s*#(\\\n|.)*$", " ", text, flags=re.M)


def fields(body):
    """(type, name, whether it is a pointer) of each member."""
    for line in body.split(";"):
        words = re.sub(r"\[.*?\]", " ", line).split("(")[0].strip()
        found = re.match(r"(?:const )?(\w+)\b(.*)", words, re.S)
        for part in found.group(2).split(",") if found else ():
            name = re.search(r"(\w+)\s*$", part)
            if name:
                yield found.group(1), name.group(1), "*" in part


def described():
    """The rows that must be there, as (function, argument, kind)."""
    text = headers()
    enums = set(re.findall(r"typedef enum (mica_\w+) \{", text))
    structs = {name: list(fields(body)) for name, body in
               re.findall(r"typedef struct (mica_\w+) \{(.*?)\n\}", text, re.S)}
    rows = set()

    def look(function, kind, name, path, pointer):
        if path in UNREAD and not function.startswith("mica_region_"):
            return
        if kind in enums and not pointer:
            rows.add((function, path, "ENUM"))
        elif name in FLAGS:
            rows.add((function, path, "FLAGS"))
        elif name == "size" and kind == "uint64_t" and "." in path:
            rows.add((function, path, "SIZE"))
        elif kind in structs and kind not in FREE:
            for member, called, points in structs[kind]:
                if (kind, called) not in OUT:
                    look(function, member, called, path + "." + called, points)

    for function, arguments in re.findall(r"MICA_API[^;(]*?\b(mica_\w+)\(([^;]*?)\);", text, re.S):
        for argument in arguments.split(","):
            found = re.match(r"\s*(?:const )?(\w+)\b(.*?)(\w+)\s*$", argument, re.S)
            if found and not re.match(r"out(_|$)|entries$|buckets$", found.group(3)):
                look(function, found.group(1), found.group(3), found.group(3), "*" in found.group(2))
    return rows


def written():
    text = read(os.path.join(TREE, "tests", "hostile", "arguments.def"))
    return {(function, argument, kind) for kind, function, argument in
            re.findall(r"^(FLAGS|ENUM|SIZE)\((mica_\w+), ([\w.]+)", text, re.M)}


class Table(unittest.TestCase):
    def test_complete(self):
        rows = described()
        self.assertGreater(len(rows), 50)  # the headers were understood
        self.assertEqual(sorted(rows - written()), [], "not in tests/hostile/arguments.def")
        self.assertEqual(sorted(written() - rows), [], "in tests/hostile/arguments.def, but in no header")


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join("%s(%s, %s," % (kind, function, argument) for function, argument, kind in sorted(described())))
        sys.exit()
    sys.argv[1:] = []
    unittest.main()
