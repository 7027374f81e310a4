#!/usr/bin/env python3
"""generate.py: writes malformed and odd files of every format to its output, each with what its reader owes: a status, or
the tensors and metadata that must be read. test_hostile.c reads them. The same files each time.

    generate.py [PART...]     parts: gguf safetensors npy npz folder million; all of them if none is named
    generate.py --list        only the names of the files and what is owed

A file in the stream, numbers little endian, texts and bytes behind their length:
    u8 kind, text label, u8 large, text status, u32 files {text name, u64 size, bytes}, and if the status is MICA_OK
    u32 tensors {text name, text dtype, u32 ndim, u64 shape[], u32 file, u64 offset, u64 size}
    u32 metas {text key, bytes value}"""
import random
import struct
import sys

import judge_gguf
import judge_mlx
import judge_npy
import judge_safetensors
from judgement import OK, Refused

SLOW, SLOW_AND_WIDE = 1, 2  # what a large file may cost
PARTS = ("gguf", "safetensors", "npy", "npz", "folder", "million")


def with_size(raw):
    return struct.pack("<I", len(raw)) + raw


def value_bytes(kind, value, in_array=False):
    """A metadata value as the runner spells it: scalars in 8 bytes, items of an array packed in their own type."""
    if kind == judge_gguf.STRING:
        return with_size(value)
    if kind == judge_gguf.ARRAY:
        item, items = value
        return struct.pack("<IQ", item, len(items)) + b"".join(value_bytes(item, each, True) for each in items)
    code = judge_gguf.SCALARS[kind]
    if not in_array:
        code = "d" if code in "fd" else "q" if code in "bhiq" else "Q"
    return struct.pack("<" + code, value)


def statement(archive, names):
    out = [struct.pack("<I", len(archive.tensors))]
    for tensor in archive.tensors:
        out += [with_size(tensor.name), with_size(tensor.dtype.encode()), struct.pack("<I", len(tensor.shape))]
        out += [struct.pack("<Q", dim) for dim in tensor.shape]
        out.append(struct.pack("<IQQ", names[tensor.file], tensor.offset, tensor.size))
    out.append(struct.pack("<I", len(archive.meta)))
    for key, kind, value in archive.meta:
        out += [with_size(key), with_size(struct.pack("<I", kind) + value_bytes(kind, value))]
    return b"".join(out)


def files_of(folder):
    """The places of tensor files in a folder, in the order a reader has them."""
    names = sorted(name for name in folder if name.endswith(".safetensors"))
    return [list(folder).index(name) for name in names]


class Output:
    def __init__(self, listing):
        self.listing, self.count, self.refused = listing, 0, 0

    def put(self, kind, label, content, judge, large=0):
        """`content` is the bytes of a file or {name: bytes}; `judge` a function or a status that is owed."""
        folder = content if isinstance(content, dict) else {"file": content}
        archive, status = None, judge
        if not isinstance(judge, str):
            try:
                archive, status = judge(content), OK
            except Refused as refused:
                status = refused.status
        self.count += 1
        self.refused += status != OK
        if self.listing:
            print("%-24s %s" % (status, label.encode("ascii", "backslashreplace").decode()))
            return
        out = [kind, with_size(label.encode("utf-8", "replace")), bytes([large]), with_size(status.encode()),
               struct.pack("<I", len(folder))]
        for name, raw in folder.items():
            out += [with_size(name.encode()), struct.pack("<Q", len(raw)), raw]
        if archive is not None:
            out.append(statement(archive, files_of(folder) if isinstance(content, dict) else [0]))
        sys.stdout.buffer.write(b"".join(out))


def cuts_and_flips(files):
    """Each file cut at every length, and each byte of its header with each bit flipped, at 0 and at 255; then some bytes at
    once at random."""
    chance = random.Random(1)
    for label, raw, header in files:
        for size in range(len(raw)):
            yield "%s cut at %d" % (label, size), raw[:size]
        yield label + " and 100 bytes more", raw + bytes(100)
        for at in range(header):
            turned = {raw[at] ^ 1 << bit for bit in range(8)} | {0, 255, raw[at] ^ 255}
            for byte in sorted(turned - {raw[at]}):
                yield "%s byte %d = %d" % (label, at, byte), raw[:at] + bytes([byte]) + raw[at + 1:]
        for number in range(300):
            several = bytearray(raw)
            for _ in range(chance.randrange(2, 7)):
                several[chance.randrange(len(raw))] = chance.randrange(256)
            yield "%s random %d" % (label, number), bytes(several)


def part_gguf(out):
    for source in (judge_gguf.fields(), judge_gguf.known_holes(), judge_gguf.nests(), judge_gguf.names(),
                   judge_gguf.overlaps(),
                   cuts_and_flips(judge_gguf.base_files())):
        for label, raw in source:
            out.put(b"g", label, raw, judge_gguf.judge)


def part_safetensors(out):
    for source in (judge_safetensors.fields(), judge_safetensors.types(), judge_safetensors.places(),
                   judge_safetensors.known_holes(),
                   cuts_and_flips(judge_safetensors.base_files())):
        for label, raw in source:
            out.put(b"s", label, raw, judge_safetensors.judge)


def part_npy(out):
    for source in (judge_npy.npy_cases(), cuts_and_flips(judge_npy.npy_base())):
        for label, raw in source:
            out.put(b"n", label, raw, judge_npy.judge)


def part_npz(out):
    for source in (judge_npy.npz_cases(), cuts_and_flips(judge_npy.npz_base())):
        for label, raw in source:
            out.put(b"z", label, raw, judge_npy.judge_npz)


def part_folder(out):
    for source in (judge_mlx.config_cases(), judge_mlx.table_cases(), judge_mlx.index_cases()):
        for label, folder in source:
            out.put(b"f", label, folder, judge_mlx.judge)


def part_million(out):
    """Faults at the end of tables of 10^6 entries: time grows with the file. Memory does where the tensors must be known
    first: SLOW_AND_WIDE."""
    def put(kind, label, content, cost):
        out.put(kind, label, content, "MICA_ERR_MALFORMED_FILE", cost)

    for last in (8 * 10**6, 8 * (10**6 - 2), 8 * 10**6 - 1, 2**64 - 8):
        put(b"g", "gguf 10^6 tensors, the last at %d" % last, judge_gguf.million(last), SLOW_AND_WIDE)
    raw = judge_gguf.million(8 * (10**6 - 1))
    put(b"g", "gguf 10^6 tensors, cut in their descriptions", raw[:len(raw) // 2], SLOW_AND_WIDE)
    put(b"s", "safetensors 10^6 tensors and a hole", judge_safetensors.million(hole=1), SLOW)
    put(b"s", "safetensors 10^6 tensors without an end", judge_safetensors.million(end=""), SLOW)
    put(b"s", "safetensors 10^6 tensors, a name twice", judge_safetensors.million(last="0"), SLOW_AND_WIDE)
    for label, folder in judge_mlx.million():
        put(b"f", label, folder, SLOW)


def main(words):
    listing = "--list" in words
    parts = [word for word in words if word != "--list"] or PARTS
    out = Output(listing)
    for part in parts:
        globals()["part_" + part](out)
    print("%d files, %d to be refused" % (out.count, out.refused), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
