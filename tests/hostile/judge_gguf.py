"""judge_gguf.py: GGUF by its specification, and the files made to break its readers.

Where the specification leaves it to the reader: arrays nest 8 deep at most, names and keys have 1 to 65535 bytes of
UTF-8 without NUL, a tensor of a type that nobody knows reaches up to the next tensor."""
import struct

from judgement import (MOST_DIMS, LONGEST_NAME, UNSUPPORTED, Archive, Refused, Tensor, refuse, utf8, worst_numbers)

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY, U32 = 8, 9, 4
INTEGERS = {0, 1, 2, 3, 4, 5, 10, 11}
DEPTH = 8

# Type number: (mica's word, values in a block, bytes of a block). Numbers that were given up are left out.
TYPES = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98), 19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110), 22: ("iq2_s", 256, 82), 23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1), 25: ("i16", 1, 2), 26: ("i32", 1, 4), 27: ("i64", 1, 8), 28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56), 30: ("bf16", 1, 2), 34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17), 40: ("nvfp4", 64, 36),
}


class _Reader:
    def __init__(self, raw):
        self.raw, self.at, self.order = raw, 0, "<"

    def take(self, size):
        if size > len(self.raw) - self.at:
            refuse("the file ends")
        self.at += size
        return self.raw[self.at - size:self.at]

    def number(self, code):
        return struct.unpack(self.order + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self):
        return self.take(self.number("Q"))

    def name(self):
        raw = self.string()
        if not 1 <= len(raw) <= LONGEST_NAME or utf8(raw) is None or 0 in raw:
            refuse("a name")
        return raw

    def scalar(self, kind):
        value = self.number(SCALARS[kind])
        if kind == 7 and value > 1:
            refuse("a bool that is neither")
        return value

    def value(self, kind, depth=0):
        if kind in SCALARS:
            return self.scalar(kind)
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            refuse("a value type")
        item, count = self.number("I"), self.number("Q")
        if item not in SCALARS and item not in (STRING, ARRAY):
            refuse("an item type")
        least = {STRING: 8, ARRAY: 12}.get(item) or struct.calcsize("<" + SCALARS[item])
        if count * least > len(self.raw) - self.at:
            refuse("more items than bytes")
        if item == ARRAY and depth + 1 == DEPTH:
            refuse("nested too deep")
        return item, [self.value(item, depth + 1) for _ in range(count)]


def _head(reader):
    if reader.take(4) != b"GGUF":
        refuse("the magic")
    version = reader.number("I")
    if version == 3 << 24:
        reader.order = ">"
    elif version not in (2, 3):
        refuse("the version", UNSUPPORTED)
    return reader.number("Q"), reader.number("Q")


def _describe(reader):
    """One tensor with its offset in the data; size None where only the neighbours tell."""
    name = reader.name()
    ndim = reader.number("I")
    if ndim * 8 > len(reader.raw) - reader.at:
        refuse("more dimensions than bytes")
    dims = [reader.number("Q") for _ in range(ndim)]
    kind, offset = reader.number("I"), reader.number("Q")
    count = 1
    for dim in dims:
        count *= max(dim, 1)
        if dim >= 2**63 or count >= 2**63:
            refuse("more than 2^63 elements")
    shape = dims[::-1] if ndim <= MOST_DIMS else []
    if kind not in TYPES:
        return Tensor(name, "", shape, offset, None)
    word, block, block_bytes = TYPES[kind]
    if (dims[0] if dims else 1) % block != 0:
        refuse("a row that is no multiple of its block")
    size = 0 if 0 in dims else count // block * block_bytes
    return Tensor(name, word if ndim <= MOST_DIMS and reader.order == "<" else "", shape, offset, size)


def _alignment(meta):
    kind, value = meta.get(b"general.alignment", (U32, 32))
    if kind != U32 or value == 0 or value % 8 != 0:
        refuse("general.alignment")
    return value


def _check_split(meta):
    """The file stands alone, so it may be a part only of itself."""
    for key, bad in ((b"split.count", lambda n: n > 1), (b"split.no", lambda n: n != 0),
                     (b"split.tensors.count", lambda n: False)):
        kind, value = meta.get(key, (U32, 0))
        if kind not in INTEGERS or value < 0 or bad(value):
            refuse("a part of a split file")


def _place(tensors, start, room, alignment):
    for tensor in tensors:
        if tensor.offset % alignment != 0 or tensor.offset + (tensor.size or 0) > room:
            refuse("a tensor outside the data or its alignment")
    order = sorted(tensors, key=lambda tensor: (tensor.offset, tensor.size or 0))
    end = 0
    for index, tensor in enumerate(order):
        if tensor.size is None:
            tensor.size = (order[index + 1].offset if index + 1 < len(order) else room) - tensor.offset
        if tensor.size and tensor.offset < end:
            refuse("two tensors overlap")
        if tensor.size:
            end = tensor.offset + tensor.size
        tensor.offset += start


def judge(raw):
    reader, archive, meta = _Reader(raw), Archive(), {}
    tensor_count, meta_count = _head(reader)
    if meta_count * 14 + tensor_count * 25 > len(raw) - reader.at:
        refuse("more entries than bytes")
    for _ in range(meta_count):
        key, kind = reader.name(), reader.number("I")
        value = reader.value(kind)
        if key in meta:
            refuse("a key twice")
        meta[key] = (kind, value)
        archive.meta.append((key, kind, value))
    archive.tensors = [_describe(reader) for _ in range(tensor_count)]
    if len({tensor.name for tensor in archive.tensors}) != tensor_count:
        refuse("a tensor twice")
    alignment = _alignment(meta)
    start = min(-(-reader.at // alignment) * alignment, len(raw))
    _place(archive.tensors, start, len(raw) - start, alignment)
    _check_split(meta)
    return archive


# ---- files ----

class Builder:
    """Bytes, with the place of each number that was put: (offset, bytes, its name)."""

    def __init__(self, order="<"):
        self.raw, self.fields, self.order = bytearray(), [], order

    def put(self, code, number, name):
        size = struct.calcsize("<" + code)
        self.fields.append((len(self.raw), size, name))
        self.raw += struct.pack(self.order + code, number)
        return self

    def text(self, text, name):
        text = text if isinstance(text, bytes) else text.encode()
        self.put("Q", len(text), "%s length" % name)
        self.raw += text
        return self

    def head(self, tensors, metas, version=3):
        self.raw += b"GGUF"
        return self.put("I", version, "version").put("Q", tensors, "tensor count").put("Q", metas, "key count")

    def value(self, key, kind, value):
        self.text(key, key).put("I", kind, key + " type")
        return self.payload(key, kind, value)

    def payload(self, key, kind, value):
        if kind == STRING:
            return self.text(value, key + " text")
        if kind != ARRAY:
            return self.put(SCALARS[kind], value, key + " value")
        item, items = value
        self.put("I", item, key + " item type").put("Q", len(items), key + " item count")
        for each in items:
            self.payload(key + " item", item, each)
        return self

    def tensor(self, name, dims, kind, offset):
        self.text(name, name).put("I", len(dims), "%s ndim" % name)
        for dim in dims:
            self.put("Q", dim, "%s dim" % name)
        return self.put("I", kind, "%s type" % name).put("Q", offset, "%s offset" % name)

    def data(self, size, alignment=32):
        self.raw += bytes(-len(self.raw) % alignment)
        self.raw += bytes((7 * i + 3) & 0xff for i in range(size))
        return self

    def patched(self, offset, size, number):
        raw = bytearray(self.raw)
        raw[offset:offset + size] = number.to_bytes(size, "little" if self.order == "<" else "big")
        return bytes(raw)

    def number_at(self, offset, size):
        return int.from_bytes(self.raw[offset:offset + size], "little" if self.order == "<" else "big")


def small(order="<", version=3):
    """Something of everything in about 700 bytes."""
    b = Builder(order).head(5, 12, version)
    b.value("general.architecture", STRING, "llama").value("u8", 0, 200).value("i8", 1, -5).value("i16", 3, -300)
    b.value("f32", 6, 1.5).value("bool", 7, 1).value("u64", 10, 2**64 - 1).value("f64", 12, -2.25)
    b.value("numbers", ARRAY, (5, [1, -2, 3])).value("texts", ARRAY, (STRING, ["<s>", "", "\u2581a"]))
    b.value("nested", ARRAY, (ARRAY, [(ARRAY, [(2, [1, 2]), (7, [])]), (STRING, ["x"])]))
    b.value("general.alignment", U32, 32)
    b.tensor("a", [5, 3], 0, 0).tensor("b.q4", [64, 2], 2, 64).tensor("none", [0, 4], 1, 160)
    b.tensor("new", [9], 99, 160).tensor("half", [4], 1, 224)
    return b.data(232)


def split():
    """A file that says it is a part of itself alone, with another alignment and no tensors behind."""
    b = Builder().head(2, 5)
    b.value("split.no", 2, 0).value("split.count", 2, 1).value("split.tensors.count", 5, 2)
    b.value("general.alignment", U32, 8).value("i64", 11, -2**63)
    b.tensor("x", [2, 1, 1, 3], 26, 0).tensor("y", [], 28, 24)
    return b.data(32, 8)


def of_type(kind):
    """One tensor of that type, 2 rows of 3 blocks."""
    word, block, size = TYPES[kind]
    return Builder().head(1, 0).tensor("t." + word, [block * 3, 2], kind, 0).data(6 * size)


def fields():
    """Every number of every field at its worst."""
    files = [("small", small()), ("big endian", small(">")), ("version 2", small(version=2)), ("split", split())]
    files += [("", of_type(kind)) for kind in sorted(TYPES)]
    for label, b in files:
        for offset, size, name in b.fields:
            if not label and not name.endswith((" dim", " offset")):
                continue
            was = b.number_at(offset, size)
            for number in worst_numbers(8, 8 * size, len(b.raw), was):
                yield "gguf %s: %s = %d" % (label, name, number), b.patched(offset, size, number)
    b = small()
    kinds = [f for f in b.fields if f[2] in ("a type", "new type", "none type")]
    for offset, size, name in kinds:
        for number in range(64):
            yield "gguf: %s = %d" % (name, number), b.patched(offset, size, number)


def _one(name="w", dims=(4,), kind=0, offset=0, data=64, **head):
    b = Builder().head(head.get("tensors", 1), head.get("metas", 0))
    return bytes(b.tensor(name, list(dims), kind, offset).data(data).raw)


def _key(kind, payload, key="k"):
    b = Builder().head(0, 1)
    b.text(key, key).put("I", kind, "")
    return bytes(b.raw) + payload + bytes(64)


def _array(item, count, rest=b""):
    return struct.pack("<IQ", item, count) + rest


def known_holes():
    """The faults that were found in other readers, by their records, and their near relations."""
    top, q = 2**64 - 1, struct.Struct("<Q").pack
    yield "CVE-2024-23605 the key count times its size wraps", _one(metas=top // 48 + 2)
    yield "CVE-2024-21836 the tensor count times its size wraps", _one(tensors=top // 104 + 2)
    for ndim in (5, 6, 7, 8, 100):
        yield "CVE-2024-21802 %d dimensions" % ndim, _one(dims=[1] * ndim)
    for length in (top, top - 1, 2**63, 2**31, 2**32 - 1):
        yield "CVE-2024-23496 a string of %d bytes" % length, _key(STRING, q(length) + b"text")
        yield "CVE-2024-23496 a key of %d bytes" % length, b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, length) + bytes(64)
        yield "mlx#4213 an array item of %d bytes" % length, _key(ARRAY, _array(STRING, 1, q(length)))
        for item in list(SCALARS) + [STRING, ARRAY]:
            yield "CVE-2024-21825 %d items of type %d" % (length, item), _key(ARRAY, _array(item, length))
            yield "CVE-2024-21825 inner %d of type %d" % (length, item), \
                _key(ARRAY, _array(ARRAY, 1, _array(item, length)))
    for item in (STRING, ARRAY, 10):
        size = {STRING: 16, ARRAY: 32, 10: 8}[item]
        yield "CVE-2024-21825 items of type %d times %d wrap to 0" % (item, size), _key(ARRAY, _array(item,
            2**64 // size))
    yield "CVE-2024-32878 fails behind an array of strings", _key(ARRAY, _array(STRING, 3, q(1) + b"a" + q(2**40)))
    for size in range(28):
        yield "CVE-2024-39720 a file of %d bytes" % size, _one()[:size]
    for dims in ([2**62, 4], [2**32, 2**32], [2**31, 2**31, 4], [2**33, 2**31], [2**21, 2**21, 2**22], [2**63], [top],
                 [2**63 - 1], [2**61], [2**61, 0], [0, 2**62, 2], [2**40, 0, 2**40]):
        for kind in (0, 1, 2, 12, 28, 99):
            yield "CVE-2026-33298 dimensions %s of type %d" % (dims, kind), _one(dims=dims, kind=kind)
    b = Builder().head(3, 0)
    b.tensor("a", [2**61 - 8], 0, 0).tensor("b", [2**61 - 8], 0, 2**63 - 32).tensor("c", [16], 0, 2**64 - 64)
    yield "CVE-2025-53630 the sum of padded sizes wraps", bytes(b.data(64).raw)
    b = Builder().head(2, 0).tensor("a", [2**62 - 1], 24, 0).tensor("b", [2**62 - 1], 24, 2**62)
    yield "CVE-2026-27940 the second sum wraps", bytes(b.data(64).raw)
    for offset in (32, 64, 96, top - 31, 2**63, 2**32, 1, 31):
        yield "mlx#4136 a tensor at offset %d" % offset, _one(offset=offset)
    yield "CVE-2026-7482 a tensor larger than the file", _one(dims=(4096, 4096), kind=1)
    yield "mlx#4244 a size that is small in 32 bits", _one(dims=(2**30 + 4,))
    for alignment in (0, 1, 2, 4, 8, 12, 16, 24, 40, 64, 2**31, 2**32 - 8, 2**32 - 1):
        b = Builder().head(1, 1).value("general.alignment", U32, alignment).tensor("w", [4], 0, 0)
        yield "llama.cpp#24997 alignment %d" % alignment, bytes(b.data(64, max(alignment % 4096, 1)).raw)
        b = Builder().head(1, 1).value("general.alignment", U32, alignment).tensor("w", [0], 0, 0)
        yield "alignment %d and no data" % alignment, bytes(b.raw)
    for kind in (0, 2, 5, 6, 7, 10):
        b = Builder().head(1, 1).value("general.alignment", kind, 1).tensor("w", [4], 0, 0)
        yield "CVE-2025-66960 alignment of type %d" % kind, bytes(b.data(64).raw)
    for item, items in ((STRING, ["1.0", "2.0"]), (5, [1, 2]), (12, [1.0, 2.0]), (ARRAY, [(6, [1.0])])):
        b = Builder().head(0, 1).value("tokenizer.ggml.scores", ARRAY, (item, items))
        yield "llama.cpp#26690 scores of type %d" % item, bytes(b.raw)
    for token in ("<0x-1>", "", "\x00", "x" * 70000):
        b = Builder().head(0, 1).value("tokenizer.ggml.tokens", ARRAY, (STRING, [token, token]))
        yield "CVE-2025-49847 a token of %d bytes" % len(token), bytes(b.raw)


def nests():
    for depth in list(range(1, 12)) + [64, 10000]:
        yield "gguf arrays %d deep" % depth, _key(ARRAY, _array(ARRAY, 1) * (depth - 1) + _array(0, 2, b"\1\2"))
    yield "gguf arrays 10000 deep without an end", _key(ARRAY, _array(ARRAY, 1) * 10000)
    yield "gguf arrays 8 wide and 7 deep, all empty", _key(ARRAY, _array(ARRAY, 8, _array(ARRAY, 0) * 8))


def names():
    for name in (b"", b"\0", b"a\0b", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82",
                 b"n" * 64,
                 b"n" * 65535, b"n" * 65536, "\u00e9\U0001f600".encode()):
        yield "gguf a tensor called %r" % name[:9], _one(name=name)
        yield "gguf a key called %r" % name[:9], _key(0, b"\7", key=name)
    for first, second in (("w", "w"), ("w", "W"), ("w", "w ")):
        b = Builder().head(2, 0).tensor(first, [4], 0, 0).tensor(second, [4], 0, 32)
        yield "gguf tensors %r and %r" % (first, second), bytes(b.data(64).raw)
        b = Builder().head(0, 2).value(first, 0, 1).value(second, 0, 1)
        yield "gguf keys %r and %r" % (first, second), bytes(b.raw)


def overlaps():
    """Two tensors of 48 bytes, each at each place."""
    for first in range(0, 224, 32):
        for second in range(0, 224, 32):
            for kinds in ((0, 0), (0, 99), (99, 0), (99, 99)):
                b = Builder().head(2, 0).tensor("a", [12], kinds[0], first).tensor("b", [12], kinds[1], second)
                yield "gguf at %d and %d of types %s" % (first, second, kinds), bytes(b.data(192).raw)


def million(last):
    """10^6 tensors of 8 bytes; `last` is the offset of the last one."""
    count, each = 10**6, struct.Struct("<Q7sIQIQ").pack
    rows = [each(7, b"%07d" % i, 1, 2, 0, 8 * i if i + 1 < count else last) for i in range(count)]
    head = Builder().head(count, 1).value("general.alignment", U32, 8)
    raw = bytes(head.raw) + b"".join(rows)
    return raw + bytes(-len(raw) % 8 + 8 * count)


def base_files():
    """(label, bytes, where the header ends): what is cut and flipped."""
    for label, b in (("little", small()), ("big", small(">")), ("split", split())):
        last = max(offset + size for offset, size, _ in b.fields)
        yield "gguf " + label, bytes(b.raw), last


__all__ = ["judge", "Refused"]
