"""What docs/ops.md says of error bounds and speed: the rows of tests/conform/conform_table.c and of tests/oracle/oracle_float.c, which the tests
hold kernels to, and the rows of docs/bench_ops.json, one run of `mica bench ops --json` that is kept with the words machine, commit and note before its rows."""
import functools
import json
import os
import re

TABLE, SCALARS, SPEED = "tests/conform/conform_table.c", "tests/oracle/oracle_float.c", "docs/bench_ops.json"


def bare(path):
    return re.sub(r"/\*.*?\*/", " ", open(path).read(), flags=re.S)


# ---- the macros of a table, undone ----


def macros(text):
    """Name to (parameters or None, body) of each #define."""
    found = {}
    for name, parameters, body in re.findall(r"^#define (\w+)(\([^)]*\))?((?:[^\n]*\\\n)*[^\n]*)$", text, flags=re.M):
        words = [p.strip() for p in parameters[1:-1].split(",")] if parameters else None
        found[name] = (words, body.replace("\\\n", " ").strip())
    return found


def balanced(text, at):
    """Where the bracket that opens at `at` closes."""
    depth, string = 0, False
    for place in range(at, len(text)):
        c = text[place]
        string ^= c == '"'
        depth += 0 if string else (c in "({[") - (c in ")}]")
        if depth == 0 and not string:
            return place
    raise SystemExit(f"{TABLE}: a bracket stays open")


def split(text):
    """The columns between commas outside of brackets and strings."""
    columns, depth, string = [""], 0, False
    for c in text:
        string ^= c == '"'
        depth += 0 if string else (c in "({[") - (c in ")}]")
        if c == "," and depth == 0 and not string:
            columns.append("")
        else:
            columns[-1] += c
    return [column.strip() for column in columns]


def expand(text, known):
    out, at = "", 0
    while at < len(text):
        token = re.compile(r'"[^"]*"|\w+|\W').match(text, at).group(0)
        at += len(token)
        parameters, body = known.get(token, (None, None))
        if body is None or (parameters is not None and text[at:at + 1] != "("):
            out += token
        elif parameters is None:
            out += expand(body, known)
        else:
            end = balanced(text, at)
            given = dict(zip(parameters, split(text[at + 1:end])))
            body = re.sub(r"(?<!#)#(\w+)", lambda m: '"' + given[m.group(1)] + '"', body)
            body = re.sub(r"\w+\s*##\s*\w+", lambda m: "".join(given.get(w, w) for w in re.findall(r"\w+", m.group(0))), body)
            body = re.sub(r'"[^"]*"|\w+', lambda m: given.get(m.group(0), m.group(0)), body)
            out, at = out + expand(body, known), end + 1
    return out


def plain(column):
    """A column that is strings in a row, as one."""
    return "".join(re.findall(r'"([^"]*)"', column))


@functools.lru_cache
def table_rows():
    """(name, op, factor, reason) of each row of conformance."""
    text = bare(TABLE)
    known = macros(text)
    text = re.sub(r"^#define (?:[^\n]*\\\n)*[^\n]*\n", "", text, flags=re.M)
    start = text.index("{", text.index("conform_table[]"))
    body = expand(text[start + 1:balanced(text, start)], known)
    rows = [split(entry[1:-1]) for entry in split(body) if entry]
    return [(plain(r[0]), re.sub("MICA_OP_", "", r[1]), r[6], plain(r[7])) for r in rows]


# ---- sentences ----


def roundings(number):
    return f"{number} rounding" + ("" if number == "1" else "s")


def bound(op):
    """The sentences of an op: those of its rows that agree are one."""
    groups = {}
    for name, row_op, factor, reason in table_rows():
        if row_op == op:
            groups.setdefault((factor, reason), []).append(name)
    said = []
    for (factor, reason), names in groups.items():
        of = "" if len(groups) == 1 else f" ({names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "") + ")"
        said.append((f"{roundings(factor)} of its measure" if factor != "0" else "exact") + f"{of}: {reason}.")
    if not said:
        raise SystemExit(f"{TABLE} has no row of {op}")
    return "Error bound: " + said[0] if len(said) == 1 else "Error bounds:\n\n" + "\n".join("- " + line for line in said)


def scalar_bounds():
    """For each scalar of floats, how far it may stray in words."""
    found = {}
    for name, columns in re.findall(r'\{"(\w+)", f_\w+, ([^}]*)\}', bare(SCALARS)):
        of_y, of_a, of_one = columns.split(", ")[:3]
        parts = [f"{n} of {what}" for n, what in ((of_y, "y"), (of_a, "a"), (of_one, "1")) if float(n) != 0]
        found[name] = ", ".join(parts) or "0"
    return found


# ---- speed ----


@functools.lru_cache
def speed_run():
    return json.load(open(SPEED)) if os.path.exists(SPEED) else {"ops": []}


def speed_head():
    run = speed_run()
    if not run["ops"]:
        return "Speed: no run is kept."
    return (f"Speed: {run['machine']}, commit {run['commit']}, {run['note']}. `mica bench ops` prints these rows anew, with the ceilings of the machine.")


def speed(names):
    """The lines of a table of the rows that were measured under one of these names."""
    rows = [row for row in speed_run()["ops"] if row["op"] in names]
    if not rows:
        return "Speed: not measured by `mica bench ops`.\n"
    out = ["| type | shape | us | GB/s | GFLOP/s |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        cells = ["" if row[c] is None else f"{row[c]:.1f}" for c in ("us", "gb_per_s", "gflop_per_s")]
        out.append(f"| {row['type']} | {row['shape']} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def scalar_speed(name):
    rows = [row for row in speed_run()["ops"] if row["op"] == name]
    return f"{rows[0]['gb_per_s']:.1f}" if rows else ""
