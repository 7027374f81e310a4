#!/usr/bin/env python3
"""round_trip.py LIBRARY FOLDER: files of our writer read by the gguf, safetensors and numpy packages, and theirs by us: tensor
for tensor, bit for bit, with all metadata. Every type that a format and its package hold, odd shapes. Tokenizers of GGUF files
as files for the tokenizers and sentencepiece packages. The last line counts; a difference ends it with 1."""
import json
import os
import shutil
import sys

import gguf
import numpy
import safetensors
import sentencepiece
import tokenizers

import mica

SHAPES = [(1,), (7,), (3, 5), (2, 3, 5), (2, 1, 3, 5), (0, 4)]
RANDOM = numpy.random.default_rng(3)
checks = 0


class Different(Exception):
    pass


def same(found, expected, what):
    global checks
    checks += 1
    if found != expected:
        raise Different("%s: %.200r, expected %.200r" % (what, found, expected))


def noise(size):
    return RANDOM.integers(0, 256, size, dtype=numpy.uint8).tobytes()


def compare_ours(tensors, expected, what):
    """What we read against [(name, word, shape, bytes)]."""
    same(sorted(tensors), sorted(row[0] for row in expected), what + ": names")
    for name, word, shape, raw in expected:
        same(tensors[name], (word, tuple(shape), raw), "%s: %s" % (what, name))


# ---- gguf ----

# Types whose blocks the package has wrong.
STALE = {"q8_1": "the package counts 40 bytes to a block, ggml 36"}


def gguf_tensors(library):
    """Each type of the package that we know, in each shape; rows of blocks. GGUF knows no tensor without elements in the
    package's reader, and 4 dimensions."""
    rows = []
    for kind in gguf.GGMLQuantizationType:
        word = kind.name.lower()
        if word not in library.dtypes or word in STALE:
            print("round trip: %s is left out: %s" % (kind.name, STALE.get(word, "mica has no such type")))
            continue
        block, size = gguf.GGML_QUANT_SIZES[kind]
        for number, shape in enumerate(SHAPES[:-1]):
            shape = shape[:-1] + (shape[-1] * block,)
            values = int(numpy.prod(shape))
            rows.append(("%s.%d.weight" % (word, number), word, shape, noise(values // block * size), kind))
    return rows


META = [
    ("a.u8", mica.U8, 255), ("a.i8", mica.I8, -128), ("a.u16", mica.U16, 65535), ("a.i16", mica.I16, -32768),
    ("a.u32", mica.U32, 2**32 - 1), ("a.i32", mica.I32, -2**31), ("a.f32", mica.F32, 0.15625), ("a.bool", mica.BOOL, 1),
    ("a.false", mica.BOOL, 0), ("a.string", mica.STRING, "h\u00e9llo \U0001f600".encode()), ("a.empty", mica.STRING,
        b""),
    ("a.u64", mica.U64, 2**64 - 1), ("a.i64", mica.I64, -2**63), ("a.f64", mica.F64, 1e-300),
    ("b.u8", mica.ARRAY, (mica.U8, [0, 1, 255])), ("b.i8", mica.ARRAY, (mica.I8, [-1, 127])),
    ("b.u16", mica.ARRAY, (mica.U16, [65535])), ("b.i16", mica.ARRAY, (mica.I16, [-300, 300])),
    ("b.u32", mica.ARRAY, (mica.U32, [2**32 - 1, 0])), ("b.i32", mica.ARRAY, (mica.I32, [-5, 6, 7])),
    ("b.f32", mica.ARRAY, (mica.F32, [0.5, -0.25])), ("b.bool", mica.ARRAY, (mica.BOOL, [1, 0, 1])),
    ("b.strings", mica.ARRAY, (mica.STRING, [b"<s>", b"", "\u2581a".encode()])),
    ("b.u64", mica.ARRAY, (mica.U64, [2**64 - 1])), ("b.i64", mica.ARRAY, (mica.I64, [-2**63])),
    ("b.f64", mica.ARRAY, (mica.F64, [1e300, -0.0])),
]
NESTED = [("c.nested", mica.ARRAY, (mica.ARRAY, [(mica.I32, [1, -2]), (mica.I32, [3])]))]


def plain(kind, value):
    """A value as the package gives it, nested arrays flat."""
    if kind == mica.STRING:
        return value.decode()
    if kind != mica.ARRAY:
        return bool(value) if kind == mica.BOOL else value
    item, items = value
    if item == mica.ARRAY:
        return [leaf for each in items for leaf in plain(mica.ARRAY, each)]
    return [plain(item, each) for each in items]


def read_gguf_package(path, tensors, meta, what):
    reader = gguf.GGUFReader(path)
    same([tensor.name for tensor in reader.tensors], [row[0] for row in tensors], what + ": names")
    for tensor, (name, _, shape, raw, kind) in zip(reader.tensors, tensors):
        found = tensor.tensor_type, tuple(int(dim) for dim in tensor.shape[::-1]), tensor.data.tobytes()
        same(found, (kind, shape, raw), "%s: %s" % (what, name))
    for key, kind, value in meta:
        field = reader.get_field(key)
        same(int(field.types[0]), kind, "%s: type of %s" % (what, key))
        same(field.contents(), plain(kind, value), "%s: %s" % (what, key))
        if kind == mica.ARRAY:
            same(int(field.types[1]), value[0], "%s: item type of %s" % (what, key))


def write_gguf_package(path, tensors, meta, alignment=None, **options):
    writer = gguf.GGUFWriter(path, "llama", **options)
    if alignment:
        writer.add_custom_alignment(alignment)
    for key, kind, value in meta:
        if kind == mica.ARRAY and value[0] == mica.ARRAY:
            writer.add_key_value(key, [each[1] for each in value[1]], gguf.GGUFValueType.ARRAY)
        elif kind == mica.ARRAY:
            writer.add_key_value(key, plain(kind, value), gguf.GGUFValueType.ARRAY,
                                 sub_type=gguf.GGUFValueType(value[0]))
        else:
            writer.add_key_value(key, plain(kind, value), gguf.GGUFValueType(kind))
    for name, _, shape, raw, kind in tensors:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        array = numpy.frombuffer(raw, numpy.uint8).reshape(shape[:-1] + (shape[-1] // block * size,))
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_gguf(library, folder):
    tensors, path = gguf_tensors(library), os.path.join(folder, "file.gguf")
    rows = [row[:4] for row in tensors]
    for alignment in (0, 8, 32, 64, 4096):
        library.write(path, rows, META + NESTED, alignment=alignment, overwrite=1)
        read_gguf_package(path, tensors, META + NESTED, "our gguf, alignment %d" % alignment)
        write_gguf_package(path, tensors, META + NESTED, alignment)
        info, found, meta = library.read(path)
        same(info.format, mica.GGUF, "their gguf: format")
        compare_ours(found, rows, "their gguf, alignment %d" % alignment)
        same([row for row in meta if row[0] != "general.alignment"][1:], META + their_nested(), "their gguf: metadata")
    check_gguf_splits(library, folder, tensors)
    write_gguf_package(path, tensors[:5], META, endianess=gguf.GGUFEndian.BIG)
    info, found, meta = library.read(path)
    same((info.big_endian, meta[1:]), (1, META), "their big-endian gguf: metadata")
    same([(name, found[name][1]) for name in found], [(row[0], row[2]) for row in tensors[:5]],
         "their big-endian gguf: tensors")
    os.remove(path)


def their_nested():
    """The package gives inner lists the type that it finds for Python's int."""
    kind = int(gguf.GGUFValueType.get_type(1))
    return [(key, mica.ARRAY, (mica.ARRAY, [(kind, each[1]) for each in value[1]])) for key, _, value in NESTED]


def check_gguf_splits(library, folder, tensors):
    rows = [row[:4] for row in tensors]
    library.write(os.path.join(folder, "split.gguf"), rows, META, split_bytes=4096)
    parts = sorted(name for name in os.listdir(folder) if name.startswith("split-"))
    same(len(parts) > 2, True, "our gguf splits: more than two")
    at = 0
    for number, name in enumerate(parts):
        path = os.path.join(folder, name)
        count = len(gguf.GGUFReader(path).tensors)
        read_gguf_package(path, tensors[at:at + count], META if number == 0 else [], "our " + name)
        at += count
        os.remove(path)
    same(at, len(tensors), "our gguf splits: tensors")
    write_gguf_package(os.path.join(folder, "split.gguf"), tensors, META, split_max_tensors=50)
    parts = sorted(name for name in os.listdir(folder) if name.startswith("split-"))
    info, found, _ = library.read(os.path.join(folder, parts[0]))
    same(info.file_count, len(parts), "their gguf splits: files")
    compare_ours(found, rows, "their gguf splits")
    for name in parts:
        os.remove(os.path.join(folder, name))


# ---- safetensors ----

# mica's word: (the format's word, what the package's writer calls it, bytes)
SAFETENSORS = {
    "bool": ("BOOL", "bool", 1), "u8": ("U8", "uint8", 1), "i8": ("I8", "int8", 1), "f8_e4m3": ("F8_E4M3",
        "float8_e4m3fn", 1),
    "f8_e5m2": ("F8_E5M2", "float8_e5m2", 1), "e8m0": ("F8_E8M0", "float8_e8m0fnu", 1), "i16": ("I16", "int16", 2),
    "u16": ("U16", "uint16", 2), "f16": ("F16", "float16", 2), "bf16": ("BF16", "bfloat16", 2), "i32": ("I32", "int32",
        4),
    "u32": ("U32", "uint32", 4), "f32": ("F32", "float32", 4), "c64": ("C64", "complex64", 8), "f64": ("F64", "float64",
        8),
    "i64": ("I64", "int64", 8), "u64": ("U64", "uint64", 8),
}
TEXTS = [("format", mica.STRING, b"pt"), ("empty", mica.STRING, b""), ("quote\"\\\n", mica.STRING,
    "\u00e9 \U0001f600 \" \\ \n".encode())]


def safetensors_tensors():
    return [("%s.%d" % (word, number), word, shape, noise(int(numpy.prod(shape)) * size))
            for word, (_, _, size) in SAFETENSORS.items() for number, shape in enumerate(SHAPES + [(), (1, 1, 1, 1, 1,
                3)])]


def serialize(rows, metadata):
    """With the package's spec of a tensor, or the dict that older versions take."""
    if not hasattr(safetensors, "TensorSpec"):
        return safetensors.serialize({name: {"dtype": SAFETENSORS[word][1], "shape": list(shape), "data": raw}
                                      for name, word, shape, raw in rows}, metadata)
    held = {row[0]: numpy.frombuffer(row[3] or b"\0", numpy.uint8) for row in rows}
    specs = {name: safetensors.TensorSpec(dtype=SAFETENSORS[word][1], shape=list(shape),
                                          data_ptr=held[name].ctypes.data,
                                          data_len=len(raw)) for name, word, shape, raw in rows}
    return safetensors.serialize(specs, metadata)


def read_safetensors_package(path, rows, what):
    with open(path, "rb") as file:
        found = dict(safetensors.deserialize(file.read()))
    same(sorted(found), sorted(row[0] for row in rows), what + ": names")
    for name, word, shape, raw in rows:
        entry = found[name]
        same((entry["dtype"], tuple(entry["shape"]), bytes(entry["data"])), (SAFETENSORS[word][0], shape, raw),
             "%s: %s" % (what, name))


def check_safetensors(library, folder):
    rows, path = safetensors_tensors(), os.path.join(folder, "model.safetensors")
    library.write(path, rows, TEXTS)
    read_safetensors_package(path, rows, "our safetensors")
    with safetensors.safe_open(path, "numpy") as file:
        same(file.metadata(), {key: value.decode() for key, _, value in TEXTS}, "our safetensors: metadata")
    with open(path, "wb") as file:
        file.write(serialize(rows, {key: value.decode() for key, _, value in TEXTS}))
    info, found, meta = library.read(path)
    same(info.format, mica.SAFETENSORS, "their safetensors: format")
    compare_ours(found, rows, "their safetensors")
    same(sorted(meta), sorted(TEXTS), "their safetensors: metadata")
    os.remove(path)
    library.write(path, rows, TEXTS, split_bytes=500)
    with open(path + ".index.json", encoding="utf-8") as file:
        mapped = json.load(file)["weight_map"]
    same(sorted(mapped), sorted(row[0] for row in rows), "our index: names")
    for name in sorted(set(mapped.values())):
        read_safetensors_package(os.path.join(folder, name), [row for row in rows if mapped[row[0]] == name],
                                 "our " + name)
    compare_ours(library.read(folder)[1], rows, "our shards")
    for name in set(mapped.values()) | {"model.safetensors.index.json"}:
        os.remove(os.path.join(folder, name))


# ---- numpy ----

# numpy has no word for bf16; two bytes without a meaning are what it writes of one.
NUMPY = {"f32": "<f4", "f16": "<f2", "f64": "<f8", "c64": "<c8", "i8": "|i1", "i16": "<i2", "i32": "<i4", "i64": "<i8",
         "u8": "|u1",
         "u16": "<u2", "u32": "<u4", "u64": "<u8", "bool": "|b1", "bf16": "|V2"}


def arrays():
    for word, descr in NUMPY.items():
        for shape in SHAPES + [(), (1, 1, 1, 1, 1, 3)]:
            size = numpy.dtype(descr).itemsize
            raw = noise(int(numpy.prod(shape)) * size)
            raw = bytes(byte & 1 for byte in raw) if word == "bool" else raw
            yield word, shape, raw, numpy.frombuffer(raw, descr).reshape(shape)


def check_numpy(library, folder):
    path, rows, theirs = os.path.join(folder, "array.npy"), [], {}
    for word, shape, raw, array in arrays():
        what = "%s %s" % (word, shape)
        library.write(path, [("array", word, shape, raw)], overwrite=1)
        found = numpy.load(path)
        same((found.dtype, found.shape, found.tobytes()), (array.dtype, array.shape, raw), "our npy " + what)
        numpy.save(path, array)
        compare_ours(library.read(path)[1], [("array", word, shape, raw)], "their npy " + what)
        name = "layer.%d/%s" % (len(rows), word)
        rows.append((name, word, shape, raw))
        theirs[name] = array
    os.remove(path)
    path = os.path.join(folder, "arrays.npz")
    library.write(path, rows)
    with numpy.load(path) as found:
        same(sorted(found.files), sorted(theirs), "our npz: names")
        for name, word, shape, raw in rows:
            same((found[name].dtype, found[name].shape, found[name].tobytes()), (theirs[name].dtype, shape, raw),
                 "our npz: " + name)
    numpy.savez(path, **theirs)
    compare_ours(library.read(path)[1], rows, "their npz")
    numpy.savez_compressed(path, **dict(list(theirs.items())[:3]))
    found = library.read(path)[1]
    same([(name, found[name][0]) for name in sorted(found)], [(row[0], "") for row in sorted(rows[:3])],
         "their compressed npz")
    refusal = library.refusal(path)
    same("deflated" in refusal, True, "their compressed npz: " + refusal)
    os.remove(path)


# ---- tokenizers ----

DATA = os.environ.get("MICA_TEST_DATA") or os.path.join(os.path.dirname(__file__), "..", "..", "..", "shared", "data")


def vocabularies():
    """(name, texts, their token ids) of each vocabulary that others made."""
    home = os.path.join(DATA, "tokenizers")
    for name in sorted(os.listdir(home)):
        if name.endswith(".gguf"):
            stem = os.path.join(home, name[:-5])
            with open(stem + ".inp", encoding="utf-8", newline="") as file:
                texts = file.read().split("\n__ggml_vocab_test__\n")
            with open(stem + ".out", encoding="utf-8") as file:
                ids = [[int(word) for word in line.split()] for line in file.read().split("\n")[:len(texts)]]
            yield name[:-5], stem + ".gguf", texts, ids


def check_tokenizers(library, folder):
    """The files that we make of a GGUF's tokenizer cut texts as the model's own does, and come back as they were."""
    if not os.path.isdir(os.path.join(DATA, "tokenizers")):
        print("round trip: tokenizers are left out: no folder %s" % os.path.join(DATA, "tokenizers"))
        return
    made, back = os.path.join(folder, "made"), os.path.join(folder, "back.gguf")
    for name, source, texts, ids in vocabularies():
        library.convert(source, made)
        ours = tokenizers.Tokenizer.from_file(os.path.join(made, "tokenizer.json"))
        for text, expected in zip(texts, ids):
            same(ours.encode(text, add_special_tokens=False).ids, expected, "%s: %r" % (name, text))
        model = os.path.join(made, "tokenizer.model")
        if os.path.exists(model):
            pieces = sentencepiece.SentencePieceProcessor(model_file=model)
            for text, expected in zip(texts, ids):
                same(pieces.encode(text), expected, "%s by sentencepiece: %r" % (name, text))
        library.convert(made, back)
        was, found = ({key: value for key, _, value in library.read(path)[2]} for path in (source, back))
        for key in ("tokens", "token_type", "scores", "merges"):
            key = "tokenizer.ggml." + key
            same(found.get(key), was.get(key), "%s: %s" % (name, key))
        shutil.rmtree(made)
        os.remove(back)


def main(path, folder):
    library = mica.Library(path)
    os.makedirs(folder, exist_ok=True)
    failed = 0
    for check in (check_gguf, check_safetensors, check_numpy, check_tokenizers):
        before = checks
        try:
            check(library, folder)
            print("round trip %-12s %5d comparisons, ok" % (check.__name__[6:], checks - before))
        except (Different, mica.Failed) as error:
            failed += 1
            print("round trip %-12s FAILED: %s" % (check.__name__[6:], error))
    versions = ", ".join("%s %s" % (name, version) for name, version in (
        ("gguf", __import__("importlib.metadata").metadata.version("gguf")), ("safetensors", safetensors.__version__),
        ("numpy", numpy.__version__), ("tokenizers", tokenizers.__version__), ("sentencepiece", sentencepiece.__version__)))
    print("round trip: %d comparisons with %s; %d of 4 parts failed" % (checks, versions, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
