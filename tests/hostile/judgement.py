"""judgement.py: what a file must be to its reader, by the rules of its format, and the numbers that break readers.

A judge takes the bytes of a file and returns an Archive, or raises Refused with the status that the reader owes. The
judges are written from the formats' specifications and share nothing with the library; Python's numbers do not wrap."""
import json

MALFORMED = "MICA_ERR_MALFORMED_FILE"
UNSUPPORTED = "MICA_ERR_UNSUPPORTED"
QUANT_CONFIG = "MICA_ERR_QUANT_CONFIG"
NOT_FOUND = "MICA_ERR_NOT_FOUND"
OK = "MICA_OK"

MOST_DIMS = 8       # more: the tensor is listed and cannot be used
LONGEST_NAME = 65535


class Refused(Exception):
    """The file breaks its format; `status` is what a reader must answer."""

    def __init__(self, status, why):
        super().__init__(why)
        self.status = status


def refuse(why, status=MALFORMED):
    raise Refused(status, why)


class Tensor:
    """One visible tensor. `dtype` is mica's word, or "" where the tensor can only be listed."""

    def __init__(self, name, dtype, shape, offset, size, file=0):
        self.name, self.dtype, self.shape = name, dtype, list(shape)
        self.offset, self.size, self.file = offset, size, file


class Archive:
    """What a file says. `meta` is [(key bytes, type number, value)], where the value of an array is
    (item type number, [values])."""

    def __init__(self):
        self.tensors, self.meta = [], []


def utf8(raw):
    """The text of a name, or None."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


# ---- JSON, strict: what the standard has, no key twice, 64 levels ----

class NotWhole:
    """A number that is no whole number from -2^63 to 2^64 - 1 in plain digits."""


def _whole(text):
    if text == "-0" or len(text) > 20:
        return NotWhole()
    number = int(text)
    return number if -2**63 <= number < 2**64 else NotWhole()


def _members(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        refuse("a key twice")
    return members


def _constant(_):
    refuse("NaN and Infinity are no JSON")


def _check_tree(root):
    """Text must have a UTF-8 form; 64 levels at most."""
    todo = [(root, 1)]
    while todo:
        node, depth = todo.pop()
        if isinstance(node, str):
            try:
                node.encode("utf-8")
            except UnicodeEncodeError:
                refuse("half a surrogate pair")
        if not isinstance(node, (dict, list)):
            continue
        if depth > 64:
            refuse("nested too deep")
        todo.extend((child, depth + 1) for child in node)
        if isinstance(node, dict):
            todo.extend((child, depth + 1) for child in node.values())


def parse_json(raw, constants=False):
    """The value. With `constants` Python's NaN and Infinity pass as numbers."""
    text = utf8(raw)
    if text is None:
        refuse("not UTF-8")
    try:
        root = json.loads(text, object_pairs_hook=_members, parse_int=_whole, parse_float=lambda _: NotWhole(),
                          parse_constant=(lambda _: NotWhole()) if constants else _constant)
    except (ValueError, RecursionError) as error:
        refuse(str(error))
    _check_tree(root)
    return root


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# ---- the numbers ----

def worst_numbers(size, bits, file_size, was):
    """Values for a number of `bits` in a file of `file_size`; `size` is that of what it counts."""
    top = 2**bits - 1
    numbers = [0, 1, 2, 7, 8, top, top - 1, top // 2, top // 2 + 1, top // 2 - 7, file_size - 1, file_size,
               file_size + 1,
               was - 1, was + 1, was * 2, 2**31, 2**31 - 1, 2**32, 2**32 - 1, 2**63 - 16, 2**63 + 16, 100 * 10**6,
               10**6]
    for unit in {size, 2, 3, 4, 8, 12, 14, 16, 18, 25, 32, 48, 104, 120}:
        numbers += [top // unit, top // unit + 1]
    return sorted({number for number in numbers if 0 <= number <= top})
