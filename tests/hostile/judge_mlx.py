"""judge_mlx.py: MLX's quantization in config.json and the index of a sharded model, and the texts made to break their
readers.

A folder is {name: bytes}. By MLX: what one module's entry leaves out is the mode's, not the common setting; false leaves a
module alone. Mica's own: what the tensors contradict is refused, names in an index stay in the folder."""
import json

import judge_safetensors
from judgement import NOT_FOUND, QUANT_CONFIG, Archive, NotWhole, is_whole, parse_json, refuse, worst_numbers

MOST_GROUP = 65536
INDEX, CONFIG, MODEL = "model.safetensors.index.json", "config.json", "model.safetensors"
# Mode: (group size, bits, has biases, types of scales).
MODES = {
    "affine": (64, 4, True, {"f32", "f16", "bf16"}), "mxfp4": (32, 4, False, {"u8", "e8m0"}),
    "mxfp8": (32, 8, False, {"u8", "e8m0"}), "nvfp4": (16, 4, False, {"u8", "f8_e4m3"}),
}
AFFINE_BITS = {2, 3, 4, 5, 6, 8}


def _number(settings, key, absent):
    value = settings.get(key)
    if value is None:
        return absent
    if isinstance(value, NotWhole) or not is_whole(value) or not 1 <= value <= MOST_GROUP:
        refuse(key, QUANT_CONFIG)
    return value


def _scheme(settings):
    word = settings.get("mode", "affine")
    if not isinstance(word, str) or word not in MODES:
        refuse("mode", QUANT_CONFIG)
    group, bits, biased, _ = MODES[word]
    scheme = word, _number(settings, "bits", bits), _number(settings, "group_size", group)
    if not biased and scheme[1:] != (bits, group) or biased and scheme[1] not in AFFINE_BITS:
        refuse("bits or group_size", QUANT_CONFIG)
    return scheme


def _settings(config):
    if not isinstance(config, dict):
        return None
    first, second = config.get("quantization"), config.get("quantization_config")
    if isinstance(first, dict):
        return first
    if isinstance(second, dict) and "quant_method" not in second and "bits" in second and "group_size" in second:
        return second
    return None


def _rule(settings, path):
    prefix = "language_model."
    for name in (path, path[len(prefix):] if path.startswith(prefix) else prefix + path):
        rule = settings.get(name)
        if isinstance(rule, (dict, bool)):
            return rule
    return None


def _join(weight, scheme, tables):
    word, bits, group = scheme
    _, _, biased, scale_types = MODES[word]
    scales, biases = tables
    if len(weight.shape) < 2 or weight.shape[-1] * 32 % bits != 0:
        refuse("the words", QUANT_CONFIG)
    values = weight.shape[-1] * 32 // bits
    wanted = weight.shape[:-1]
    if scales.dtype not in scale_types or biased != (biases is not None) or biased and biases.dtype != scales.dtype:
        refuse("the type of scales or biases", QUANT_CONFIG)
    for table in (scales, biases):
        if table is not None and (table.shape[:-1] != wanted or not table.shape or len(table.shape) != len(weight.shape) or
                                  table.shape[-1] * group != values):
            refuse("the shape of scales or biases", QUANT_CONFIG)
    weight.shape = wanted + [values]
    weight.dtype = "affine%d" % bits if biased else "fp4" if bits == 4 else "f8_e4m3"


def _quantize(archive, config):
    settings = _settings(parse_json(config, constants=True))
    if settings is None:
        return
    common, named, hidden = _scheme(settings), {tensor.name: tensor for tensor in archive.tensors}, set()
    for weight in archive.tensors:
        if weight.dtype != "u32" or not weight.name.endswith(b".weight") or len(weight.name) < 8:
            continue
        stem = weight.name[:-6]
        scales = named.get(stem + b"scales")
        rule = _rule(settings, stem[:-1].decode())
        if rule is False:
            continue
        scheme = _scheme(rule) if isinstance(rule, dict) else common
        if scales is None and rule is None:
            continue
        if scales is None:
            refuse("no scales", QUANT_CONFIG)
        biases = named.get(stem + b"biases")
        _join(weight, scheme, (scales, biases))
        hidden |= {scales.name} | ({biases.name} if biases is not None else set())
    archive.tensors = [tensor for tensor in archive.tensors if tensor.name not in hidden]


def _is_plain(name):
    return isinstance(name, str) and name.endswith(".safetensors") and 12 < len(name.encode()) <= 255 and \
        not name.startswith(".") and not any(letter in "/\\:" or letter < " " for letter in name)


def _read_index(folder):
    root = parse_json(folder[INDEX])
    mapped = root.get("weight_map") if isinstance(root, dict) else None
    if not isinstance(mapped, dict) or not mapped or not all(_is_plain(name) for name in mapped.values()):
        refuse("weight_map")
    names = sorted(set(mapped.values()), key=str.encode)
    if any(name not in folder for name in names):
        refuse("a file that is not there", NOT_FOUND)
    archive, where = Archive(), {}
    for index, name in enumerate(names):
        part = judge_safetensors.judge(folder[name])
        if index == 0:
            archive.meta = part.meta
        for tensor in part.tensors:
            tensor.file = index
            if tensor.name in where:
                refuse("a tensor twice")
            where[tensor.name] = name
            archive.tensors.append(tensor)
    if any(where.get(tensor.encode()) != name for tensor, name in mapped.items()):
        refuse("a tensor in another file")
    return archive


def judge(folder):
    archive = _read_index(folder) if INDEX in folder else judge_safetensors.judge(folder[MODEL])
    if CONFIG in folder:
        _quantize(archive, folder[CONFIG])
    return archive


# ---- folders ----

def model(tensors):
    """[(name, type word, shape, bytes)] as a file."""
    at, entries = 0, []
    for name, word, shape, size in tensors:
        entries.append('"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}' % (name, word, json.dumps(shape), at,
            at + size))
        at += size
    return judge_safetensors.pack("{" + ",".join(entries) + "}", at)


def packed():
    """m: 8 bits in groups of 64 or 4 in groups of 128, 2 rows of 64 values; n: 4-bit floats; p: words alone."""
    return model([("m.weight", "U32", [2, 16], 128), ("m.scales", "F16", [2, 1], 4), ("m.biases", "F16", [2, 1], 4),
                  ("n.weight", "U32", [3, 4], 48), ("n.scales", "U8", [3, 1], 3), ("p.weight", "U32", [2, 2], 16),
                  ("q.weight", "F32", [1], 4)])


SETTINGS = '{"quantization":{"group_size":$64$,"bits":$8$,"mode":$"affine"$,"n":{"mode":$"mxfp4"$,"bits":$4$,"group_size":$32$},' \
         '"p":$false$}}'
VALUES = judge_safetensors.OTHER_VALUES + ['"mxfp4"', '"mxfp8"', '"nvfp4"', '"affine"', '"AFFINE"', '"affine\\u0000"',
                                           "-Infinity", "3", "5", "6",
                                           '{"bits":4}', '{"bits":8,"group_size":64}', '{"mode":"nvfp4"}',
                                           '{"mode":"nvfp4","bits":4,"group_size":16}',
                                           '{"bits":8,"group_size":32}', "[NaN,Infinity]"]


def _filled(template, index, value):
    parts = template.split("$")
    parts[2 * index + 1] = value
    return "".join(parts)


def config_cases():
    base = {MODEL: packed(), CONFIG: SETTINGS.replace("$", "").encode()}
    yield "mlx", base
    for index in range(SETTINGS.count("$") // 2):
        was = SETTINGS.split("$")[2 * index + 1]
        numbers = worst_numbers(4, 64, len(base[CONFIG]), int(was)) if was.isdigit() else []
        for value in [str(number) for number in numbers] + VALUES:
            yield "mlx setting %d = %s" % (index, value), {**base, CONFIG: _filled(SETTINGS, index, value).encode()}
    for text in ("", "null", "[]", "1", "{}", "{", "}", '{"quantization":null}', '{"quantization":[]}',
                 '{"quantization":{}}', "\ufeff{}",
                 '{"quantization":{"bits":8}}', '{"quantization":{"bits":8,"bits":8}}',
                 '{"quantization":{"group_size":64,"bits":8},"n":NaN}',
                 '{"quantization_config":{"bits":8,"group_size":64,"n":false}}', '{"quantization_config":{"bits":8}}',
                 '{"a":"NaN"}',
                 '{"quantization_config":{"bits":8,"group_size":64,"quant_method":"gptq"}}', '{"a":"\\"NaN","b":NaN}',
                 '{"quantization":{"bits":8,"language_model.n":false}}', '{"quantization":{"bits":8,"n":true}}',
                 "[" * 10000,
                 '{"quantization":' * 5000, '{"a":' + "[" * 64 + "]" * 64 + "}", '{"a":' + "[" * 63 + "]" * 63 + "}",
                 '{"a":\xff}'):
        yield "mlx config %s" % text[:60], {**base, CONFIG: text.encode("latin-1" if "\xff" in text else "utf-8")}
    config = base[CONFIG]
    for index in range(len(config) - 1):
        yield "mlx config cut at %d" % index, {**base, CONFIG: config[:index]}


def table_cases():
    """One weight [2, words] with scales and biases of all kinds under each mode."""
    for mode, (group, bits, _, _) in sorted(MODES.items()):
        config = json.dumps({"quantization": {"mode": mode, "bits": bits, "group_size": group}}).encode()
        for words in (0, 1, 2, 3, 4, 8, 16):
            for word, size in (("U8", 1), ("F16", 2), ("F32", 4), ("F8_E8M0", 1), ("F8_E4M3", 1), ("I8", 1)):
                for groups in (0, 1, 2, 3):
                    tensors = [("w.weight", "U32", [2, words], 8 * words), ("w.scales", word, [2, groups],
                        2 * groups * size)]
                    yield "mlx %s %d words %s x %d" % (mode, words, word, groups), {MODEL: model(tensors),
                        CONFIG: config}
                    tensors.append(("w.biases", word, [2, groups], 2 * groups * size))
                    yield "mlx %s %d words %s x %d biased" % (mode, words, word, groups), {MODEL: model(tensors),
                        CONFIG: config}
    config = b'{"quantization":{"bits":8,"group_size":64}}'
    for shape in ([], [16], [1, 16], [1, 1, 16], [1] * 5 + [16], [1] * 6 + [16]):
        for scales in ([], [1], [1, 1], [1, 1, 1], [1] * 6, [1] * 7):
            tensors = [("w.weight", "U32", shape, 64 if shape else 4), ("w.scales", "F16", scales, 2), ("w.biases",
                "F16", scales, 2)]
            yield "mlx shapes %s and %s" % (shape, scales), {MODEL: model(tensors), CONFIG: config}


WEIGHT_MAP = '{"metadata":{"total_size":$12$},"weight_map":{"a":$"s-1.safetensors"$,"b":$"s-2.safetensors"$,"c":$"s-2.safetensors"$}}'


def shards():
    return {"s-1.safetensors": model([("a", "F32", [1], 4)]), "s-2.safetensors": model([("b", "F32", [1], 4), ("c",
        "U8", [4], 4)])}


def index_cases():
    files = shards()
    base = WEIGHT_MAP.replace("$", "").encode()
    names = ['"s-1.safetensors"', '"s-2.safetensors"', '"s-3.safetensors"', '"../s-1.safetensors"', '"/etc/passwd"',
             '"./s-1.safetensors"',
             '"..\\\\s-1.safetensors"', '"C:s-1.safetensors"', '".safetensors"', '"s-1.safetensors\\u0000"',
             '"s-1.bin"', '"s-1.SAFETENSORS"', '"a\\nb.safetensors"',
             '"%s.safetensors"' % ("n" * 243), '"%s.safetensors"' % ("n" * 244), '"%s.safetensors"' % ("n" * 70000),
             '"..safetensors"',
             '"sub/s-1.safetensors"', '"s-1.safetensors "']
    yield "index", {**files, INDEX: base}
    for index in range(WEIGHT_MAP.count("$") // 2):
        for value in judge_safetensors.OTHER_VALUES + names:
            yield "index value %d = %s" % (index, value[:40]), {**files, INDEX: _filled(WEIGHT_MAP, index,
                value).encode()}
    for text in ("", "{}", "[]", "null", "{", '{"weight_map":null}', '{"weight_map":{}}', '{"weight_map":[]}',
                 '{"weight_map":"s-1.safetensors"}',
                 '{"weight_map":{"a":"s-1.safetensors"}}',
                 '{"weight_map":{"a":"s-1.safetensors","a":"s-1.safetensors"}}',
                 '{"weight_map":{"b":"s-1.safetensors"}}', '{"weight_map":{"d":"s-1.safetensors"}}',
                 '{"weight_map":{"":"s-1.safetensors"}}',
                 '{"weight_map":{"a\\u0000":"s-1.safetensors"}}', "[" * 10000, '{"weight_map":' * 10000):
        yield "index %s" % text[:50], {**files, INDEX: text.encode()}
    for size in range(len(base) - 1):
        yield "index cut at %d" % size, {**files, INDEX: base[:size]}
    for at in range(len(base)):
        for flip in (1, 2, 0x20, 0x80, 0xff):
            yield "index byte %d turned by %d" % (at, flip), {**files,
                                                              INDEX: base[:at] + bytes([base[at] ^ flip]) + base[at + 1:]}
    both = model([("a", "F32", [1], 4), ("b", "U8", [1], 1)])
    yield "index a tensor in two files", {**files, "s-1.safetensors": both, INDEX: base}
    yield "index a broken shard", {**files, "s-2.safetensors": files["s-2.safetensors"][:-1], INDEX: base}
    yield "index an empty shard", {**files, "s-2.safetensors": b"", INDEX: base}


def million():
    """An index and a config with 10^6 members and one fault at the end."""
    files, names = shards(), ['"%x":"s-1.safetensors"' % i for i in range(10**6)]
    for label, last in (("a name twice", '"0":"s-1.safetensors"'), ("a path", '"z":"../s-1.safetensors"'),
                        ("a comma", "")):
        yield "index of 10^6 tensors, " + label, {**files, INDEX: ('{"weight_map":{%s}}' % ",".join(names + [last])).encode()}
    rules = ['"%x":true' % i for i in range(10**6)]
    for label, last in (("a rule twice", '"0":true'), ("a comma", "")):
        yield "config of 10^6 rules, " + label, {MODEL: model([("w", "U8", [1], 1)]),
                                               CONFIG: ('{"quantization":{"bits":4,%s}}' % ",".join(rules + [last])).encode()}
