"""mica.py: the writer and the weights of libmica through ctypes, as much as the round trips need."""
import ctypes as c

NONE, GGUF, SAFETENSORS, MLX, NPY, NPZ = range(6)
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
MOST_DIMS = 8
ITEM = {U8: c.c_uint8, I8: c.c_int8, U16: c.c_uint16, I16: c.c_int16, U32: c.c_uint32, I32: c.c_int32, F32: c.c_float,
        BOOL: c.c_uint8, U64: c.c_uint64, I64: c.c_int64, F64: c.c_double}


class String(c.Structure):
    _fields_ = [("data", c.c_void_p), ("length", c.c_uint64)]


class _As(c.Union):
    _fields_ = [("u", c.c_uint64), ("i", c.c_int64), ("f", c.c_double), ("string", String), ("items", c.c_void_p)]


class Value(c.Structure):
    _fields_ = [("type", c.c_int), ("item_type", c.c_int), ("count", c.c_uint64), ("as_", _As)]


class WriterOptions(c.Structure):
    _fields_ = [("size", c.c_uint64), ("format", c.c_int), ("alignment", c.c_uint32), ("overwrite", c.c_uint32),
                ("split_bytes", c.c_uint64)]


class WeightsInfo(c.Structure):
    _fields_ = [("format", c.c_int), ("version", c.c_uint32), ("big_endian", c.c_uint32), ("file_count", c.c_uint32),
                ("tensor_count", c.c_uint64), ("metadata_count", c.c_uint64), ("tensor_bytes", c.c_uint64),
                ("file_bytes", c.c_uint64), ("type", c.c_char * 32)]


class TensorInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("type_name", c.c_char_p), ("ndim", c.c_uint32),
                ("shape", c.c_uint64 * MOST_DIMS), ("bytes", c.c_uint64), ("group_size", c.c_uint32), ("file",
                    c.c_uint32),
                ("file_offset", c.c_uint64)]


class Failed(Exception):
    pass


def _encode(value, kind, keep):
    """A Value; `keep` holds what it points to. An array is (item kind, [items])."""
    out = Value(type=kind)
    if kind == STRING:
        raw = c.create_string_buffer(value)
        keep.append(raw)
        out.as_.string = String(c.addressof(raw), len(value))
    elif kind == ARRAY:
        item, items = value
        if item == ARRAY:
            block = (Value * len(items))(*[_encode(each, ARRAY, keep) for each in items])
        elif item == STRING:
            block = (String * len(items))(*[_encode(each, STRING, keep).as_.string for each in items])
        else:
            block = (ITEM[item] * len(items))(*items)
        keep.append(block)
        out.item_type, out.count, out.as_.items = item, len(items), c.addressof(block)
    elif kind in (F32, F64):
        out.as_.f = value
    elif kind in (I8, I16, I32, I64):
        out.as_.i = value
    else:
        out.as_.u = value
    return out


def _decode(value):
    """(kind, value), as _encode takes them."""
    kind = value.type
    if kind == STRING:
        return kind, c.string_at(value.as_.string.data, value.as_.string.length)
    if kind != ARRAY:
        return kind, value.as_.f if kind in (F32, F64) else value.as_.i if kind in (I8, I16, I32, I64) else value.as_.u
    item, count, at = value.item_type, value.count, value.as_.items
    if item == ARRAY:
        items = [_decode(each)[1] for each in (Value * count).from_address(at)] if count else []
    elif item == STRING:
        items = [c.string_at(each.data, each.length) for each in (String * count).from_address(at)] if count else []
    else:
        items = list((ITEM[item] * count).from_address(at)) if count else []
    return kind, (item, items)


class Library:
    def __init__(self, path):
        self.lib = c.CDLL(path)
        for name in ("mica_status_message", "mica_status_name", "mica_dtype_name"):
            getattr(self.lib, name).restype = c.c_char_p
        self.lib.mica_weights_release.restype = None
        self.dtypes = {}
        for number in range(1, 256):
            word = self.lib.mica_dtype_name(number).decode()
            if word in ("none", "unknown"):
                break
            self.dtypes[word] = number
        self.words = {number: word for word, number in self.dtypes.items()}

    def call(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status != 0:
            raise Failed("%s: %s: %s" % (name, self.lib.mica_status_name(status).decode(),
                                         self.lib.mica_status_message().decode()))

    def write(self, path, tensors, meta=(), **options):
        """tensors: [(name, word, shape, bytes)]; meta: [(key, kind, value)]."""
        writer, given = c.c_void_p(), WriterOptions(size=c.sizeof(WriterOptions), **options)
        self.call("mica_writer_create", path.encode(), c.byref(given), c.byref(writer))
        for key, kind, value in meta:
            keep = []
            self.call("mica_writer_metadata", writer, key.encode(), c.byref(_encode(value, kind, keep)))
        for name, word, shape, _ in tensors:
            self.call("mica_writer_tensor", writer, name.encode(), self.dtypes[word], len(shape),
                      (c.c_uint64 * max(len(shape), 1))(*shape))
        for _, _, _, raw in tensors:
            self.call("mica_writer_write", writer, raw, c.c_uint64(len(raw)))
        self.call("mica_writer_finish", writer)

    def read(self, path):
        """(info, {name: (word, shape, bytes)}, [(key, kind, value)]); bytes None where a tensor cannot be used."""
        weights, info = c.c_void_p(), WeightsInfo()
        self.call("mica_weights_open", path.encode(), None, c.byref(weights))
        try:
            self.call("mica_weights_get_info", weights, c.byref(info))
            tensors = dict(self._tensor(weights, index, info) for index in range(info.tensor_count))
            return info, tensors, [self._meta(weights, index) for index in range(info.metadata_count)]
        finally:
            self.lib.mica_weights_release(weights)

    def convert(self, source, target):
        self.call("mica_convert", source.encode(), target.encode(), None)

    def refusal(self, path):
        """What decoding the first tensor answers; "" if it can be decoded."""
        weights = c.c_void_p()
        self.call("mica_weights_open", path.encode(), None, c.byref(weights))
        try:
            self.call("mica_weights_decode", weights, c.c_uint64(0), c.c_uint64(0), c.c_uint64(1), (c.c_float * 1)())
            return ""
        except Failed as error:
            return str(error)
        finally:
            self.lib.mica_weights_release(weights)

    def _tensor(self, weights, index, info):
        tensor = TensorInfo()
        self.call("mica_weights_tensor", weights, c.c_uint64(index), c.byref(tensor))
        raw = None
        if not info.big_endian:
            block = c.create_string_buffer(max(tensor.bytes, 1))
            self.call("mica_weights_read", weights, c.c_uint64(index), c.c_uint64(0), block, c.c_uint64(tensor.bytes))
            raw = block.raw[:tensor.bytes]
        return tensor.name.decode(), (self.words.get(tensor.dtype, ""), tuple(tensor.shape[:tensor.ndim]), raw)

    def _meta(self, weights, index):
        key, value = String(), c.POINTER(Value)()
        self.call("mica_weights_metadata", weights, c.c_uint64(index), c.byref(key), c.byref(value))
        return (c.string_at(key.data, key.length).decode(), *_decode(value.contents))
