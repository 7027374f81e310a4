"""judge_safetensors.py: safetensors by its specification, and the files made to break its readers.

Two rules are mica's own: a type word that is not known blocks only its tensor, and no key may come twice anywhere."""
import struct

from judgement import (MOST_DIMS, LONGEST_NAME, Archive, Tensor, is_whole, parse_json, refuse, worst_numbers)

MOST_HEADER = 100 * 10**6
STRING = 8

# Type word: (mica's word, bits).
TYPES = {
    "BOOL": ("bool", 8), "U8": ("u8", 8), "I8": ("i8", 8), "F8_E5M2": ("f8_e5m2", 8), "F8_E4M3": ("f8_e4m3", 8),
    "F8_E8M0": ("e8m0", 8), "I16": ("i16", 16), "U16": ("u16", 16), "F16": ("f16", 16), "BF16": ("bf16", 16),
    "I32": ("i32", 32), "U32": ("u32", 32), "F32": ("f32", 32), "C64": ("c64", 64), "F64": ("f64", 64),
    "I64": ("i64", 64), "U64": ("u64", 64), "F4": ("", 4), "F6_E2M3": ("", 6), "F6_E3M2": ("", 6),
    "F8_E4M3FNUZ": ("", 8), "F8_E5M2FNUZ": ("", 8),
}


def _tensor(name, entry, start, room):
    if "\0" in name or len(name.encode()) > LONGEST_NAME:
        refuse("a name")
    if not isinstance(entry, dict):
        refuse("an entry")
    word, shape, pair = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(word, str) or not isinstance(shape, list) or not isinstance(pair, list) or len(pair) != 2:
        refuse("a field")
    if not all(is_whole(number) for number in shape + pair):
        refuse("a number")
    begin, end = pair
    if not begin <= end <= room:
        refuse("offsets outside the data")
    count = 1
    for dim in shape:
        count *= dim
        if count >= 2**64:
            refuse("more elements than 2^64")
    dtype, bits = TYPES.get(word, ("", None))
    if bits is not None and (count * bits >= 2**64 or count * bits != 8 * (end - begin)):
        refuse("shape and offsets differ")
    if len(shape) > MOST_DIMS:
        dtype, shape = "", []
    return Tensor(name.encode(), dtype, shape, start + begin, end - begin)


def judge(raw):
    archive = Archive()
    if len(raw) < 8:
        refuse("too short")
    length = struct.unpack("<Q", raw[:8])[0]
    if length > MOST_HEADER or length > len(raw) - 8 or raw[8:9] != b"{":
        refuse("the length")
    start = 8 + length
    root = parse_json(raw[8:start])
    for name, entry in root.items():
        if name != "__metadata__":
            archive.tensors.append(_tensor(name, entry, start, len(raw) - start))
        elif entry is not None:
            if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
                refuse("__metadata__")
            archive.meta = [(key.encode(), STRING, value.encode()) for key, value in entry.items()]
    at = start
    for tensor in sorted(archive.tensors, key=lambda tensor: (tensor.offset, tensor.size)):
        if tensor.offset != at:
            refuse("a hole or an overlap")
        at += tensor.size
    if at != len(raw):
        refuse("data that no tensor has")
    return archive


# ---- files ----

def pack(header, data, length=None):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(i & 0xff for i in range(data))


# The places of numbers are marked with @, of other values with $.
TEMPLATE = ('{"__metadata__":{"format":$"pt"$},"a":{"dtype":$"F32"$,"shape":[@2@,@3@],"data_offsets":[@0@,@24@]},'
            '"empty":{"dtype":"BF16","shape":[@0@,5],"data_offsets":[@24@,@24@]},'
            '"b.c":{"dtype":$"U8"$,"shape":$[7]$,"data_offsets":$[24,31]$},"s":$'
            '{"dtype":"F64","shape":[],"data_offsets":[31,39]}$}  ')
DATA = 39


def plain(template=TEMPLATE):
    return template.replace("@", "").replace("$", "")


OTHER_VALUES = ["null", "true", "false", '""', '"1"', "[]", "{}", "[[]]", "[1]", "[1,2,3]", "-1", "-0", "0.0", "1.0",
                "1e0", "1e3",
                "18446744073709551616", "99999999999999999999999999", '{"a":1}', '"F32"', '"f32"', '"\\u0000"',
                '"\\ud800"', "NaN",
                "Infinity", "01", "+1", "1.", ".5", "0x10", "'a'", "", " ", ",", "[", "]", "{", "}", '"']


def _replace(template, mark, index, text):
    parts = template.split(mark)
    parts[2 * index + 1] = text
    return "".join(parts).replace("@", "").replace("$", "")


def fields():
    base = plain()
    for index in range(TEMPLATE.count("@") // 2):
        was = int(TEMPLATE.split("@")[2 * index + 1])
        for number in worst_numbers(4, 64, 8 + len(base) + DATA, was):
            yield "safetensors number %d = %d" % (index, number), pack(_replace(TEMPLATE, "@", index, str(number)),
                DATA)
        for text in OTHER_VALUES:
            yield "safetensors number %d = %s" % (index, text), pack(_replace(TEMPLATE, "@", index, text), DATA)
    for index in range(TEMPLATE.count("$") // 2):
        for text in OTHER_VALUES:
            yield "safetensors value %d = %s" % (index, text), pack(_replace(TEMPLATE, "$", index, text), DATA)
    size = 8 + len(base) + DATA
    for number in worst_numbers(1, 64, size, len(base)) + [size - 8, size - 9, size - 7, MOST_HEADER, MOST_HEADER + 1]:
        yield "safetensors header length = %d" % number, pack(base, DATA, number)


def types():
    for word, (_, bits) in sorted(TYPES.items()) + [("F128", ("", 128)), ("f32", ("", 32)), ("", ("", 8)), ("Q4_K", ("",
        4))]:
        for count in (0, 1, 2, 3, 4, 8):
            for bytes_there in {count * bits // 8, -(-count * bits // 8), count * bits // 8 + 1}:
                yield "safetensors %d of %s in %d bytes" % (count, word, bytes_there), \
                    pack('{"t":{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}}' % (word, count, bytes_there),
                         bytes_there)


def _entry(shape, begin, end, word="U8"):
    return '{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (word, str(list(shape)).replace(" ", ""), begin, end)


def places():
    """Two tensors over ten bytes: holes, overlaps, bytes left over."""
    for a in range(0, 11, 2):
        for b in range(a, 11, 2):
            for c in range(0, 11, 2):
                for d in range(c, 11, 2):
                    yield "safetensors [%d,%d] and [%d,%d]" % (a, b, c, d), \
                        pack('{"x":%s,"y":%s}' % (_entry([b - a], a, b), _entry([d - c], c, d)), 10)


def known_holes():
    top = 2**64 - 1
    for shape in ([2**63, 2], [2**32, 2**32], [2**62, 4], [2**61], [2**61, 8], [top, 1], [top, top], [2**40, 2**40, 0],
                  [0, 2**40, 2**40],
                  [2**63], [2**60, 2**3], [1] * 5, [1] * 6, [1] * 7, [1] * 12, [2**32, 2**31, 2]):
        for word in ("U8", "F32", "F64", "F4", "XX"):
            yield "safetensors shape %s of %s" % (shape, word), pack('{"t":%s}' % _entry(shape, 0, 1, word), 1)
            yield "safetensors shape %s of %s, empty" % (shape, word), pack('{"t":%s}' % _entry(shape, 0, 0, word), 0)
    for depth in (1, 10, 60, 61, 62, 63, 64, 65, 100, 10000, 100000):
        inner = "[" * depth + "]" * depth
        yield "safetensors nested %d deep" % depth, pack('{"t":{"x":%s,"dtype":"U8","shape":[],"data_offsets":[0,1]}}' % inner, 1)
        yield "safetensors open %d deep" % depth, pack('{"t":' + "[" * depth, 1)
        yield "safetensors objects %d deep" % depth, pack('{"t":' * depth, 1)
    for header in ("", "{", "{}", " {}", "{} ", "{}\n\t\r ", "{}\0", "{}x", "[]", "null", '{"a":1}',
                   '{"__metadata__":{}}', '{"__metadata__":null}',
                   '{"__metadata__":{"a":"b","a":"c"}}', '{"__metadata__":[]}', '{"__metadata__":{"a":{}}}', "\ufeff{}",
                   '{"__metadata__":{"\\u0000":"\\u0000"}}', '{"__metadata__":{"a":"\\ud83d\\ude00"}}',
                   '{"\\u005f_metadata__":{}}'):
        yield "safetensors %r" % header, pack(header, 0)
    for name in ("", "\\u0000", "a\\u0000", "\u00e9", "n" * 65535, "n" * 65536, "\\ud83d", "\\n", "\n", "__metadata",
                 "a/../b"):
        yield "safetensors a tensor called %r" % name[:9], pack('{"%s":%s}' % (name, _entry([1], 0, 1)), 1)
    one = _entry([1], 0, 1)
    yield "safetensors a tensor twice", pack('{"a":%s,"a":%s}' % (one, one), 1)
    yield "safetensors a tensor twice, once escaped", pack('{"a":%s,"\\u0061":%s}' % (one, one), 1)
    yield "safetensors dtype twice", pack('{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1)
    for field in ("dtype", "shape", "data_offsets"):
        yield "safetensors without %s" % field, pack('{"a":%s}' % one.replace(field, "x"), 1)
    yield "safetensors invalid UTF-8", pack(b'{"\xff":' + one.encode() + b"}", 1)


def million(end="}", hole=0, last="z"):
    """Many tensors of one byte; with a hole before the last one, another name of it, or another end of the header."""
    count = 10**6
    rows = ['"%x":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i, i, i + 1) for i in range(count - 1)]
    rows.append('"%s":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (last, count - 1 + hole, count + hole))
    return pack("{" + ",".join(rows) + end, count + hole)


def base_files():
    raw = pack(plain(), DATA)
    yield "safetensors", raw, len(raw) - DATA
