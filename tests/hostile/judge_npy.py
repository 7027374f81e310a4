"""judge_npy.py: npy by numpy's description, npz as a zip of them, and the files made to break their readers.

Where numpy would take more: the dict of an npy holds plain strings, True and False, and a tuple of digits, nothing else
of Python; the data is exactly as long as it should be. A zip has its directory right before its end, members that do not
overlap, all of them called *.npy."""
import re
import struct

from judgement import MOST_DIMS, UNSUPPORTED, Archive, Refused, Tensor, refuse, utf8, worst_numbers

MAGIC = b"\x93NUMPY"
MOST_HEADER = 1 << 20

# Kind and size: (mica's word, bytes).
TYPES = {
    "f4": ("f32", 4), "f2": ("f16", 2), "V2": ("bf16", 2), "f8": ("f64", 8), "c8": ("c64", 8), "i1": ("i8", 1),
    "i2": ("i16", 2),
    "i4": ("i32", 4), "i8": ("i64", 8), "u1": ("u8", 1), "u2": ("u16", 2), "u4": ("u32", 4), "u8": ("u64", 8),
    "b1": ("bool", 1),
}

_SPACE = r"[ \t\n\r]*"
_TEXT = r"'[^'\\\n\0]*'|\"[^\"\\\n\0]*\""
_NUMBER = r"(?:0|[1-9][0-9]*)L?"
_TUPLE = r"\(" + _SPACE + "(?:" + _NUMBER + "(?:" + _SPACE + "," + _SPACE + _NUMBER + ")*" + _SPACE + ",?" + _SPACE + r")?\)"
_ENTRY = re.compile(_SPACE + "(" + _TEXT + ")" + _SPACE + ":" + _SPACE)
_VALUES = {"descr": re.compile(_TEXT), "fortran_order": re.compile("True|False"), "shape": re.compile(_TUPLE)}


def _skip(text, at):
    return re.compile(_SPACE).match(text, at).end()


def _list_end(text, at):
    """Behind the list that begins at `at`."""
    depth = 0
    for match in re.compile(_TEXT + r"|[\[\]]|['\"]").finditer(text, at):
        if match.group() in "'\"":
            break
        depth += {"[": 1, "]": -1}.get(match.group(), 0)
        if depth == 0:
            return match.end()
    return refuse("a list without an end")


def _dict(text):
    """The three values as text."""
    found, at = {}, _skip(text, 0)
    if text[at:at + 1] != "{":
        refuse("no dict")
    at += 1
    while True:
        at = _skip(text, at)
        if text[at:at + 1] == "}":
            break
        entry = _ENTRY.match(text, at)
        key = entry.group(1)[1:-1] if entry else ""
        if key not in _VALUES or key in found:
            refuse("a key")
        at = entry.end()
        if key == "descr" and text[at:at + 1] == "[":
            end = _list_end(text, at)
        else:
            match = _VALUES[key].match(text, at)
            end = match.end() if match else refuse("the value of " + key)
        found[key] = text[at:end]
        at = _skip(text, end)
        if text[at:at + 1] == ",":
            at += 1
        elif text[at:at + 1] != "}":
            refuse("no comma")
    if _skip(text, at + 1) != len(text) or len(found) != 3:
        refuse("something missing or left over")
    return found


def _shape(text):
    numbers = [int(number.rstrip("L")) for number in re.findall(_NUMBER, text)]
    if len(numbers) == 1 and "," not in text or any(number >= 2**64 for number in numbers):
        refuse("shape")
    return numbers


def _element(descr):
    """(word, bytes, big endian) or None."""
    if descr.startswith("["):
        return None
    descr = descr[1:-1]
    if any(not " " <= letter <= "~" for letter in descr):
        refuse("descr")
    word, size = TYPES.get(descr[1:], ("", 0))
    if len(descr) != 3 or descr[0] not in "<>|" or not word or descr[0] == "|" and size > 1 and word != "bf16":
        return None
    return word, size, descr[0] == ">" and size > 1


def judge_array(raw, name=b"array", base=0):
    if len(raw) < 10 or raw[:6] != MAGIC:
        refuse("the magic")
    if raw[6] not in (1, 2, 3) or raw[7] != 0:
        refuse("the version", UNSUPPORTED)
    start = 10 if raw[6] == 1 else 12
    if len(raw) < start:
        refuse("too short")
    length = int.from_bytes(raw[8:start], "little")
    if length > len(raw) - start or length > MOST_HEADER:
        refuse("the length")
    found = _dict(raw[start:start + length].decode("latin-1"))
    shape, element, room = _shape(found["shape"]), _element(found["descr"]), len(raw) - start - length
    fortran = found["fortran_order"] == "True" and len(shape) > 1
    word = ""
    if element is not None:
        word, size, big = element
        count = 1
        for dim in shape:
            count *= dim
            if count >= 2**64:
                refuse("more elements than 2^64")
        if count * size != room:
            refuse("shape and data differ")
        if big or fortran or len(shape) > MOST_DIMS:
            word = ""
    return Tensor(name, word, shape if len(shape) <= MOST_DIMS else [], base + start + length, room)


def judge(raw):
    archive = Archive()
    archive.tensors.append(judge_array(raw))
    return archive


# ---- zip ----

def _end_record(raw):
    """(offset, fields) of the last end record whose comment ends the file."""
    for at in range(len(raw) - 22, max(len(raw) - 22 - 65535, 0) - 1, -1):
        fields = struct.unpack("<IHHHHIIH", raw[at:at + 22]) if at >= 0 else (0,) * 8
        if fields[0] == 0x06054b50 and at + 22 + fields[7] == len(raw):
            return at, fields
    return refuse("no end record")


def _directory(raw):
    """(offset, bytes, members)."""
    end, (_, disk, first, here, count, size, offset, _) = _end_record(raw)
    if disk or first or here != count:
        refuse("more than one disk")
    if count == 0xffff or size == 0xffffffff or offset == 0xffffffff:
        if end < 76:
            refuse("no 64-bit record")
        mark, disk, at, _ = struct.unpack("<IIQI", raw[end - 20:end])
        if mark != 0x07064b50 or disk or at > end - 76:
            refuse("no locator")
        mark, length, _, _, disk, first, here, count, size, offset = struct.unpack("<IQHHIIQQQQ", raw[at:at + 56])
        if mark != 0x06064b50 or length + 12 != end - 20 - at or disk or first or here != count:
            refuse("the 64-bit record")
        end = at
    if offset + size != end or count * 46 > size:
        refuse("the directory's place")
    return offset, size, count


def _wide(extra, numbers):
    """Sizes and offset with what the 64-bit field says of them."""
    if 0xffffffff not in numbers:
        return numbers
    at = 0
    while at + 4 <= len(extra):
        tag, size = struct.unpack("<HH", extra[at:at + 4])
        if at + 4 + size > len(extra):
            break
        if tag == 1:
            if size < 8 * numbers.count(0xffffffff):
                break
            at += 4
            for index in range(3):
                if numbers[index] == 0xffffffff:
                    numbers[index] = struct.unpack("<Q", extra[at:at + 8])[0]
                    at += 8
            return numbers
        at += 4 + size
    return refuse("no 64-bit sizes")


def _member(raw, at, end, data_end):
    """(offset behind it in the directory, Tensor, its range)."""
    if end - at < 46:
        refuse("the directory ends")
    (mark, _, _, flags, method, _, _, _, stored, size, name_size, extra_size, comment_size, disk, _, _,
     offset) = struct.unpack("<IHHHHHHIIIHHHHHII", raw[at:at + 46])
    behind = at + 46 + name_size + extra_size + comment_size
    if mark != 0x02014b50 or behind > end:
        refuse("a member of the directory")
    name = raw[at + 46:at + 46 + name_size]
    size, stored, offset = _wide(raw[at + 46 + name_size:at + 46 + name_size + extra_size], [size, stored, offset])
    if disk or flags & 1 or method == 0 and stored != size:
        refuse("a member")
    if name_size > 4096 or utf8(name) is None or 0 in name or not name.endswith(b".npy") or name_size < 5:
        refuse("a member's name")
    if offset + 30 + name_size > data_end:
        refuse("a member outside")
    local = struct.unpack("<IHHHHHIIIHH", raw[offset:offset + 30])
    if local[0] != 0x04034b50 or local[3] != method or raw[offset + 30:offset + 30 + local[9]] != name:
        refuse("another member's header")
    data = offset + 30 + name_size + local[10]
    if data + stored > data_end:
        refuse("a member's data outside")
    return behind, (method, name[:-4], data, stored), (offset, data + stored)


def _tensor(raw, method, name, data, stored):
    if method == 0:
        return judge_array(raw[data:data + stored], name, data)
    return Tensor(name, "", [], data, stored)


def judge_npz(raw):
    archive, ranges, members = Archive(), [], []
    offset, size, count = _directory(raw)
    at = offset
    for _ in range(count):
        at, member, place = _member(raw, at, offset + size, offset)
        members.append(member)
        ranges.append(place)
    if at != offset + size:
        refuse("more in the directory than members")
    ranges.sort()
    if any(first[1] > second[0] for first, second in zip(ranges, ranges[1:])):
        refuse("members overlap")
    archive.tensors += [_tensor(raw, *member) for member in members]  # arrays are read once none lies on another
    if len({tensor.name for tensor in archive.tensors}) != count:
        refuse("a member twice")
    return archive


# ---- files ----

def array(header, data, version=1, length=None):
    header = header if isinstance(header, bytes) else header.encode("utf-8")
    length = len(header) if length is None else length
    return MAGIC + bytes([version, 0]) + length.to_bytes(2 if version == 1 else 4, "little") + header + \
        bytes(5 * i & 0xff for i in range(data))


def text(descr="'<f4'", fortran="False", shape="(2, 3)"):
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, }     \n" % (descr, fortran, shape)


SHAPES = ["()", "(6,)", "(6)", "(2,3)", "(2, 3,)", "(2,,3)", "(,)", "(2 3)", "[2, 3]", "2, 3", "(02, 3)", "(2L, 3L)",
          "(-2, -3)", "(2.0, 3)",
          "(0x2, 3)", "(2_0, 3)", "(1,2,3)", "(1,1,1,2,3)", "(1,1,1,1,2,3)", "(1,1,1,1,1,2,3)", "(0, 5)", "(0,0,0)",
          "(True, 6)", "None", "",
          "((2,3),)", "(2, 3", "2, 3)", "( 2 ,\t3\n)", "(" * 10000, "(" + "1," * 5000 + "6)", "(+2, 3)", "(2, 3) ",
          "(1e1,)", "('2', 3)"]
DESCRS = ["'<f4'", "'>f4'", "'|f4'", "'=f4'", "'f4'", "'<f3'", "'<i4'", "'<u4'", "'|V4'", "'<V2'", "'|V2'", "'>V2'",
          "'|u1'", "'<u1'", "'>b1'", "'|b1'",
          "'<c8'", "'<c16'", "'<f8'", "'<f2'", "'|O'", "'<U4'", "'|S4'", "'<M8[ns]'", "''", "'<'", "None", "4",
          "('<f4',)", "[('a', '<f4')]",
          "[('a', '<f2'), ('b', '<f2')]", "[", "[]", "[[[]]]", "['", "[']']", "'<f4", "<f4", "'\\x3cf4'", "b'<f4'",
          "'<f4' ", "'<f\u00e9'", '"<f4"',
          "[" * 10000, "[" * 10000 + "]" * 10000]


def npy_cases():
    base = array(text(), 24)
    size = len(base)
    for version, width in ((1, 2), (2, 4), (3, 4)):
        for number in worst_numbers(1, 8 * width, size, size - 10 - 24):
            yield "npy version %d header length = %d" % (version, number), array(text(), 24, version, number)
        yield "npy version %d" % version, array(text(), 24, version)
    for major in range(0, 256, 5):
        for minor in (0, 1, 255):
            yield "npy version %d.%d" % (major, minor), base[:6] + bytes([major, minor]) + base[8:]
    for shape in SHAPES:
        for data in (0, 4, 24, 25):
            yield "npy shape %s in %d bytes" % (shape[:20], data), array(text(shape=shape), data, 2)
    for number in worst_numbers(4, 64, size, 2) + [2**64, 2**64 + 2, 2**80, 10**30]:
        for shape in ("(%d, 3)", "(2, %d)", "(%d,)", "(0, %d)", "(%d, %d, 0)"):
            shape = shape.replace("%d", str(number))
            for descr in ("'<f4'", "'|u1'", "'<q9'"):
                yield "npy shape %s of %s" % (shape, descr), array(text(descr, shape=shape), 24)
    for descr in DESCRS:
        for data in (24, 6, 12, 48):
            yield "npy descr %s in %d bytes" % (descr[:20], data), array(text(descr), data, 2)
    for fortran in ("True", "true", "1", "None", "", "'False'", "Falsey", "False,"):
        for shape in ("(2, 3)", "(6,)"):
            yield "npy fortran_order %s of %s" % (fortran, shape), array(text(fortran=fortran, shape=shape), 24)
    full = text()
    for header in ("", "{", "{}", "}", "{'descr': '<f4'}", full.replace("'descr'", "'x'"), full.replace("shape",
        "descr"), full.replace("{", "{{"),
                   full.replace("{", "{'x': 1, "), full.replace("{", "{'shape': (6,), "), full + "x", full + "\0",
                   "\0" + full, " " + full, full.strip(),
                   full.replace(",", ""), full.replace("'", '"'), full.replace(": ", ":"), full.replace("'descr'",
                       "'de' 'scr'"),
                   full.replace("'descr'", "u'descr'"), full + "# a comment", "(" + full + ")", full * 2,
                   full.replace("'descr'", "descr")):
        yield "npy header %r" % header[:30], array(header, 24)
    for major in (1, 2):
        for length in (9999, 65000, MOST_HEADER - 1, MOST_HEADER, MOST_HEADER + 1):
            if major == 2 or length < 65536:
                yield "npy header of %d bytes" % length, array(full + " " * (length - len(full)), 24, major)


class Zip:
    """A zip by hand, with the place of each number: (offset, bytes, name)."""

    def __init__(self, members, comment=b"", wide=False, method=0):
        self.raw, self.fields, self.members = bytearray(), [], members
        offsets = []
        for name, data in members:
            offsets.append(len(self.raw))
            self.put("local", "IHHHHHIIIHH", 0x04034b50, 20, 0, method, 0, 33, 0, len(data), len(data), len(name), 0)
            self.raw += name + data
        start = len(self.raw)
        for (name, data), offset in zip(members, offsets):
            extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), offset) if wide else b""
            numbers = [0xffffffff] * 3 if wide else [len(data), len(data), offset]
            self.put("member", "IHHHHHHIIIHHHHHII", 0x02014b50, 20, 20, 0, method, 0, 33, 0, numbers[0], numbers[1],
                     len(name),
                     len(extra), 0, 0, 0, 0, numbers[2])
            self.raw += name + extra
        size, count = len(self.raw) - start, len(members)
        if wide:
            at = len(self.raw)
            self.put("end64", "IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, count, count, size, start)
            self.put("locator", "IIQI", 0x07064b50, 0, at, 1)
            count, size, start = 0xffff, 0xffffffff, 0xffffffff
        self.put("end", "IHHHHIIH", 0x06054b50, 0, 0, count, count, size, start, len(comment))
        self.raw += comment

    def put(self, name, codes, *numbers):
        for index, (code, number) in enumerate(zip(codes, numbers)):
            self.fields.append((len(self.raw), struct.calcsize("<" + code), "%s field %d" % (name, index)))
            self.raw += struct.pack("<" + code, number)

    def patched(self, offset, size, number):
        raw = bytearray(self.raw)
        raw[offset:offset + size] = number.to_bytes(size, "little")
        return bytes(raw)


def _two():
    return [(b"a.npy", array(text(), 24)), (b"layer.0/b.npy", array(text("'|u1'", shape="(5,)"), 5))]


def npz_cases():
    for label, z in (("plain", Zip(_two())), ("wide", Zip(_two(), wide=True)), ("with a comment", Zip(_two(),
        comment=b"PK\5\6 hello"))):
        for offset, size, name in z.fields:
            was = int.from_bytes(z.raw[offset:offset + size], "little")
            for number in worst_numbers(46, 8 * size, len(z.raw), was):
                yield "npz %s: %s = %d" % (label, name, number), z.patched(offset, size, number)
        for before in (b"x", b"PK\3\4", bytes(100)):
            yield "npz %s: %d bytes before it" % (label, len(before)), before + bytes(z.raw)
        for after in (b"x", b"PK\5\6", bytes(22), bytes(70000)):
            yield "npz %s: %d bytes after it" % (label, len(after)), bytes(z.raw) + after
    one = array(text(), 24)
    for name in (b"", b"a", b".npy", b"a.npy", b"a.NPY", b"a.txt", b"../a.npy", b"/a.npy", b"a\0.npy", b"\xff.npy",
                 b"\xc3\xa9.npy", b"n" * 4092 + b".npy",
                 b"n" * 4093 + b".npy", b"n" * 65531 + b".npy", b"a.npy/"):
        yield "npz a member called %r" % name[:9], bytes(Zip([(name, one)]).raw)
    yield "npz a member twice", bytes(Zip([(b"a.npy", one), (b"a.npy", one)]).raw)
    yield "npz without members", bytes(Zip([]).raw)
    yield "npz without members, wide", bytes(Zip([], wide=True).raw)
    for method in (0, 1, 8, 12, 93, 65535):
        yield "npz of method %d" % method, bytes(Zip(_two(), method=method).raw)
    for raw in (b"", b"PK\5\6", bytes(22), b"PK\5\6" + bytes(17), b"PK\5\6" + bytes(18), b"PK\5\6" * 1000):
        yield "npz of %d odd bytes" % len(raw), raw
    for header in (text(shape="(2, 4)"), text("'>f4'"), text(fortran="True"), "{", ""):
        yield "npz with the npy header %r" % header[:40], bytes(Zip([(b"a.npy", array(header, 24)), (b"b.npy",
            one)]).raw)


def npy_base():
    for label, raw in (("npy", array(text(), 24)), ("npy version 3", array(text(), 24, 3))):
        yield label, raw, len(raw) - 24


def npz_base():
    for label, z in (("npz", Zip(_two())), ("npz wide", Zip(_two(), wide=True))):
        yield label, bytes(z.raw), len(z.raw)


__all__ = ["Refused"]
