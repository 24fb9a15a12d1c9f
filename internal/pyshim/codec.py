"""Encodes Python values as documents and decodes them: the counterpart of the Go
package state.

The encoding is canonical. Equal values have equal bytes here and in Go, so
a hash of a document shows whether a value changed.
"""

import array
import binascii
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import hashlib
import io
import json
import pathlib
import re
import sys
import types
import uuid

VERSION = 1
MAX_DEPTH = 200
MAX_NODES = 16 << 20
MAX_PIXELS = 1 << 26
MAX_INT_DIGITS = 1 << 18
# Bytes of at least this size are kept beside the document, which refers to their hash.
BLOB_FROM = 64 << 10
# A list of at least this length that contains only floats is sent as one block.
PACK_FROM = 16
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
REPR_LENGTH = 200

_START = '{"v":1,"value":'
OPAQUE = b'{"v":1,"value":{"$":"opaque",'
_INF = float("inf")
_SCALARS = frozenset((str, bool, type(None)))


class Unsupported(Exception):
    """The value as a whole cannot be encoded, although its type could."""


def encode(value, max_bytes=None, blobs=None):
    """Returns the document of a value, as bytes. Parts without a Go form are opaque
    handles in it; a value that cannot be encoded as a whole is itself such a handle.
    If blobs, a dict, is given, large leaves are put there under their hash, as views
    of the value's own memory where that is possible."""
    mine = None if blobs is None else {}
    document = _whole(value, max_bytes, mine)
    if mine and not document.startswith(OPAQUE):
        blobs.update(mine)
    return document


def digest(value, max_bytes=None):
    """Returns the hash of the document that encode makes of a value and keeps beside blobs. No
    large leaf is kept while the next one is read."""
    return hashlib.sha256(_whole(value, max_bytes, _Unkept())).hexdigest()


class _Unkept(dict):
    """Drops the blobs of a document that is only hashed."""

    def __setitem__(self, name, view):
        pass


def _whole(value, max_bytes, blobs):
    try:
        return _encode(value, max_bytes, blobs)
    except (Unsupported, RecursionError) as e:
        reason = str(e) if isinstance(e, Unsupported) else "it is nested too deep"
        return _document(_opaque(value, reason), careful=True)
    except Exception as e:  # an object that misleads about its type; other values are not affected
        reason = "looking into it failed: %s" % type(e).__name__ if type(value) in _EXACT else ""
        return _document(_opaque(value, reason), careful=True)


def _encode(value, max_bytes, blobs):
    encoder = _Encoder(False, max_bytes, blobs)
    tree = encoder.tree(value)
    try:
        document = _document(tree)
    except UnicodeEncodeError:  # a lone surrogate somewhere: rare enough to start again
        encoder = _Encoder(True, max_bytes, blobs)
        document = _document(encoder.tree(value))
    size = len(document) + sum(encoder.beside.values())
    if max_bytes is not None and size > max_bytes:
        raise Unsupported("its document has %d bytes, more than %d" % (size, max_bytes))
    return document


def _document(tree, careful=False):
    return (_START + _text(tree) + "}").encode("utf-8", "backslashreplace" if careful else "strict")


def _text(tree):
    return json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _distinct(texts):
    """Refuses keys or items of a set that are alike in a document, as two NaNs are."""
    if len(set(texts)) != len(texts):
        raise Unsupported("two of its keys or items are alike, such as NaN: which is which cannot be told elsewhere")


class _Encoder:
    """Turns a value into the tree that json.dumps writes as a document."""

    def __init__(self, careful, max_bytes, blobs):
        # careful makes it look for lone surrogates in every str.
        self.careful = careful
        self.nodes = 0
        self.max_nodes = MAX_NODES if max_bytes is None else min(MAX_NODES, max_bytes)
        self.above = set()
        self.blobs = blobs
        # The size of each blob, by its hash.
        self.beside = {}
        # Why objects of a class cannot be made again, "" if they can.
        self.classes = {}
        # How much large leaves may still add: checked before they are hashed.
        self.left = float("inf") if max_bytes is None else max_bytes

    def tree(self, v):
        method = _EXACT.get(type(v))
        return self.other(v) if method is None else method(self, v)

    def leaf(self, data):
        """Returns bytes, or the name of the blob that they become."""
        view = memoryview(data)
        self.take(view.nbytes)
        # Of single bytes, whatever the elements are: another value may be decoded from it.
        try:
            view = view.cast("B")
        except TypeError:  # not one block in the order of C, or of a format that only its owner knows
            view = memoryview(view.tobytes())
        if self.blobs is None or view.nbytes < BLOB_FROM:
            return _base64(view)
        name = hashlib.sha256(view).hexdigest()
        self.blobs[name] = view
        self.beside[name] = view.nbytes
        return {"$": "blob", "sha256": name, "size": view.nbytes}

    def take(self, size):
        self.fits(size)
        self.left -= size

    def fits(self, size):
        """Refuses a value with more bytes than may be sent, before it is copied."""
        if size > self.left:
            raise Unsupported("it has more bytes than may be sent")

    def raw(self, data):
        return {"$": "bytes", "base64": self.leaf(data)}

    def payload(self, kind, v, make):
        """Returns a form whose payload is a dict or list that contains other values."""
        self.count(1)
        self.enter(v)
        out = {"$": kind, "value": make(self.tree)}
        self.above.discard(id(v))
        return out

    def count(self, n):
        if len(self.above) >= MAX_DEPTH:
            raise Unsupported("it is nested more than %d deep" % MAX_DEPTH)
        self.nodes += n
        if self.nodes > self.max_nodes:
            raise Unsupported("it has more than %d parts" % self.max_nodes)

    def enter(self, v):
        if id(v) in self.above:
            raise Unsupported("it contains itself")
        self.above.add(id(v))

    def same(self, v):
        return v

    def int(self, v):
        if INT64_MIN <= v <= INT64_MAX:
            return v
        if v.bit_length() > 4 * MAX_INT_DIGITS:
            raise Unsupported("it has an int of more than %d hexadecimal digits" % MAX_INT_DIGITS)
        return {"$": "int", "hex": format(v, "x")}

    def float(self, v):
        if v != v:
            return {"$": "float", "text": "nan"}
        if v in (_INF, -_INF):
            return {"$": "float", "text": "inf" if v > 0 else "-inf"}
        return v

    def str(self, v):
        self.take(len(v))
        if self.careful:
            try:
                v.encode()
            except UnicodeEncodeError:
                return {"$": "str", "base64": _base64(v.encode("utf-8", "surrogatepass"))}
        return v

    def bytes(self, v):
        return self.raw(v)

    def bytearray(self, v):
        # A view of it would prevent it from growing.
        self.fits(len(v))
        return {"$": "bytearray", "base64": self.leaf(bytes(v))}

    def list(self, v):
        self.count(len(v))
        types = set(map(type, v))
        if types == {float} and len(v) >= PACK_FROM:
            block = array.array("d", v)
            if sys.byteorder == "big":
                block.byteswap()
            return {"$": "list", "float64": self.leaf(block)}
        return self.items(v, types)

    def items(self, v, types):
        # Values that JSON can represent are passed on unchanged, at the speed of C.
        if types <= _SCALARS and not self.careful:
            return v if type(v) in (list, tuple) else list(v)
        if types == {int} and min(v) >= INT64_MIN and max(v) <= INT64_MAX:
            return v if type(v) in (list, tuple) else list(v)
        self.enter(v)
        tree = self.tree
        out = [tree(x) for x in v]
        self.above.discard(id(v))
        return out

    def tuple(self, v):
        self.count(len(v))
        return {"$": "tuple", "items": self.items(v, set(map(type, v)))}

    def set(self, v):
        return self.unordered("set", v)

    def frozenset(self, v):
        return self.unordered("frozenset", v)

    def unordered(self, kind, v):
        self.count(len(v))
        items = self.items(list(v), set(map(type, v)))
        # Sorted by the bytes of each element in the document.
        texts = [_text(x) for x in items]
        _distinct(texts)
        order = sorted(range(len(items)), key=texts.__getitem__)
        return {"$": kind, "items": [items[i] for i in order]}

    def dict(self, v):
        self.count(len(v))
        self.enter(v)
        keys = set(map(type, v))
        tree = self.tree
        if keys <= {str} and "$" not in v and not (self.careful and any(map(_lone, v))):
            if set(map(type, v.values())) <= _SCALARS and not self.careful:
                out = v if type(v) is dict else dict(v)
            else:
                out = {k: tree(x) for k, x in v.items()}
        else:
            items = [[tree(k), tree(x)] for k, x in v.items()]
            _distinct([_text(k) for k, _ in items if type(k) is dict])
            out = {"$": "dict", "items": items}
        self.above.discard(id(v))
        return out

    def datetime(self, v):
        out = {"$": "datetime", "iso": v.replace(tzinfo=None).isoformat(timespec="microseconds")}
        offset = v.utcoffset()
        if offset is None:
            return out
        if offset.microseconds:
            return _opaque(v, "its offset has parts of a second")
        out["offset"] = offset.days * 86400 + offset.seconds
        name = _zone_name(v.tzinfo)
        if name:
            out["zone"] = name
        return out

    def timedelta(self, v):
        return {"$": "timedelta", "days": v.days, "seconds": v.seconds, "microseconds": v.microseconds}

    def complex(self, v):
        return {"$": "complex", "value": [self.float(v.real), self.float(v.imag)]}

    def decimal(self, v):
        text = str(v)
        if len(text) > MAX_INT_DIGITS:
            raise Unsupported("it has a Decimal of %d digits" % len(text))
        return {"$": "decimal", "value": text}

    def fraction(self, v):
        return {"$": "fraction", "value": [self.int(v.numerator), self.int(v.denominator)]}

    def date(self, v):
        return {"$": "date", "value": v.isoformat()}

    def time(self, v):
        out = {"iso": v.replace(tzinfo=None).isoformat(timespec="microseconds")}
        if v.tzinfo is not None:
            out["zone"] = _zone_text(v.tzinfo, v.utcoffset())
            if out["zone"] is None:
                return _opaque(v, "its zone has no name")
        if v.fold:
            out["fold"] = True
        return {"$": "time", "value": out}

    def uuid(self, v):
        return {"$": "uuid", "value": str(v)}

    def path(self, v):
        out = {"path": self.str(str(v))}
        if isinstance(v, pathlib.PureWindowsPath):
            out["windows"] = True
        if not isinstance(v, pathlib.Path):
            out["pure"] = True
        return {"$": "path", "value": out}

    def range(self, v):
        parts = [v.start, v.stop, v.step]
        if min(parts) < INT64_MIN or max(parts) > INT64_MAX:
            return _opaque(v, "it reaches beyond 64 bits")
        return {"$": "range", "value": parts}

    def slice(self, v):
        return self.payload("slice", v, lambda tree: [tree(v.start), tree(v.stop), tree(v.step)])

    def deque(self, v):
        return self.payload("deque", v, lambda tree: {"items": tree(list(v)), "maxlen": v.maxlen})

    def singleton(self, v):
        return {"$": "singleton", "value": str(v)}

    def instance(self, kind, name, v, base):
        return self.payload(kind, v, lambda tree: {"type": name, "value": tree(base)})

    def defaultdict(self, v):
        factory = v.default_factory
        if factory is not None and (type(factory) is not type or not _sendable(_name(factory)) or _class(_name(factory)) is not factory):
            return _opaque(v, "its factory is not a class that can be found by its name")
        return self.instance("defaultdict", "" if factory is None else _name(factory), v, dict(dict.items(v)))

    def subclass(self, v):
        """Returns the form of a value whose class extends one of Python's; None for others."""
        t = type(v)
        if t not in self.classes:
            self.classes[t] = _unmade(t)
        if self.classes[t]:
            return _opaque(v, self.classes[t])
        if isinstance(v, enum.Enum):
            if not _found(v):
                return _opaque(v, "its class does not find it by its value")
            name = "%s.%s" % (_name(t), v._name_ or "")
            return self.instance("enum", name if _sendable(name) and "." not in (v._name_ or "") else _name(t) + ".", v, v._value_)
        if dataclasses.is_dataclass(v) and not isinstance(v, type):
            fields = {}
            for f in dataclasses.fields(v):
                if f.name not in getattr(v, "__dict__", ()) and not hasattr(v, f.name):
                    raise Unsupported("it has no value for its field %s" % f.name)
                fields[f.name] = getattr(v, f.name)
            return self.instance("dataclass", _name(t), v, fields)
        names = getattr(t, "_fields", None)
        if isinstance(v, tuple) and isinstance(names, tuple) and len(set(names)) == tuple.__len__(v) and set(map(type, names)) <= {str}:
            return self.instance("namedtuple", _name(t), v, dict(zip(names, tuple.__iter__(v))))
        if isinstance(v, collections.defaultdict):
            base = collections.defaultdict(v.default_factory, dict.items(v))
            tree = self.tree(base)
            if tree["$"] == "opaque":
                return _opaque(v, tree["reason"])
            return self.instance("subclass", _name(t), v, base)
        for base, plain in _PLAIN.items():
            if isinstance(v, base):
                return self.instance("subclass", _name(t), v, plain(v))
        return None

    def other(self, v):
        for module, types in _FOREIGN:
            module = sys.modules.get(module)
            if module is None:
                continue
            for name, method in types:
                t = getattr(module, name, None)
                if isinstance(t, type) and isinstance(v, t):
                    return method(self, v)
        if type(v) in _PATHS:
            return self.path(v)
        # Subclasses of datetime's classes hold more than their base, so they stay opaque.
        out = self.subclass(v)
        return _opaque(v, "") if out is None else out

    def dtype(self, t):
        """Returns the text of a dtype; None for one without a Go form."""
        if t.hasobject and t.names is not None or t.isalignedstruct:
            return None
        if t.names is not None:
            descr = json.dumps(t.descr, separators=(",", ":"))
            try:
                same = sys.modules["numpy"].dtype(_descr(json.loads(descr))) == t
            except TypeError:  # fields with titles
                return None
            return descr if same else None  # gaps would become fields
        if t.kind == "O":
            return "|O"
        if t.kind not in _WIDTHS or _WIDTHS[t.kind] and t.itemsize not in _WIDTHS[t.kind] or t.subdtype is not None:
            return None
        return t.str

    def generic(self, v):
        if type(v) is not v.dtype.type:
            return _opaque(v, "it is of a subclass of one of numpy's types")
        text = self.dtype(v.dtype)
        if text is None or text == "|O":
            return _opaque(v, "its dtype %s has no Go form" % v.dtype)
        return {"$": "scalar", "value": {"dtype": text, "data": self.raw(v.tobytes())}}

    def ndarray(self, v):
        numpy = sys.modules["numpy"]
        if type(v) is not numpy.ndarray:
            return _opaque(v, "it is of a subclass of ndarray")
        text = self.dtype(v.dtype)
        if text is None:
            return _opaque(v, "its dtype %s has no Go form" % v.dtype)
        if text == "|O":
            return self.payload("ndarray", v, lambda tree: {"dtype": text, "shape": list(v.shape), "objects": tree(v.ravel().tolist())})
        self.fits(v.nbytes)
        out = {"dtype": text, "shape": list(v.shape)}
        if v.flags.f_contiguous and not v.flags.c_contiguous:
            out["fortran"] = True
            v = v.T
        elif not v.flags.c_contiguous:
            v = numpy.ascontiguousarray(v)
        # As bytes: for some dtypes a buffer with the array's own dtype is refused.
        out["data"] = self.raw(v.reshape(-1).view(numpy.uint8) if v.nbytes else b"")
        return {"$": "ndarray", "value": out}

    def column(self, tree, v, name):
        """Returns the payload of a Series or Index, under this name."""
        pandas = sys.modules["pandas"]
        numpy = sys.modules["numpy"]
        if isinstance(v, pandas.MultiIndex):
            raise Unsupported("it has an index of several levels")
        out = {"name": tree(name)}
        freq = self.freq(v)
        if freq is not None:
            out["freq"] = freq
        if isinstance(v, pandas.RangeIndex):
            out.update(dtype="range", range={"$": "range", "value": [v.start, v.stop, v.step]})
            return out
        t, values = v.dtype, v.array
        out["dtype"] = str(t)
        if isinstance(t, numpy.dtype):
            out["data"] = tree(v.to_numpy())
        elif isinstance(t, pandas.CategoricalDtype):
            out.update(data=tree(values.codes), categories=self.column(tree, values.categories, values.categories.name))
            if values.ordered:
                out["ordered"] = True
        elif isinstance(t, pandas.DatetimeTZDtype):
            zone = _zone_text(t.tz, t.tz.utcoffset(None))
            if zone is None:
                raise Unsupported("its zone %s has no name" % t.tz)
            out.update(dtype="datetime64[%s, %s]" % (t.unit, zone), data=tree(values.tz_convert("UTC").tz_localize(None).to_numpy()))
            if _of_pytz(t.tz):
                out["pytz"] = True
        elif isinstance(t, pandas.StringDtype):
            missing = values.isna().tolist()
            texts = [None if gone else text for gone, text in zip(missing, values.tolist())]
            out["data"] = tree(numpy.fromiter(texts, dtype=object, count=len(texts)))
        elif hasattr(values, "_mask") and hasattr(values, "_data"):
            out.update(data=tree(values._data), mask=self.raw(values._mask.tobytes()))
        else:
            raise Unsupported("it has a column of the dtype %s" % t)
        if out["data"]["$"] != "ndarray":
            raise Unsupported("it has a column of the dtype %s" % t)
        return out

    def freq(self, v):
        """Returns the name of the step of an index of times; None for an index or Series without
        one, or with one that its name does not tell in full."""
        pandas = sys.modules["pandas"]
        step = v.freq if isinstance(v, (pandas.DatetimeIndex, pandas.TimedeltaIndex)) else None
        try:
            return step.freqstr if step is not None and pandas.tseries.frequencies.to_offset(step.freqstr) == step else None
        except ValueError:
            return None

    def dataframe(self, v):
        pandas = sys.modules["pandas"]
        if type(v) is not pandas.DataFrame:
            return _opaque(v, "it is of a subclass of DataFrame")
        if isinstance(v.columns, pandas.MultiIndex):
            raise Unsupported("its columns have several levels")
        self.fits(len(v) * sum(getattr(t, "itemsize", 0) for t in v.dtypes if t != object))

        def make(tree):
            names = v.columns.tolist()
            labels = self.labels(tree, v.columns, names)
            if labels is not None:
                names = [None] * len(names)
            columns = [self.column(tree, v.iloc[:, i], name) for i, name in enumerate(names)]
            out = {"columns": columns, "index": self.column(tree, v.index, v.index.name), "label": tree(v.columns.name)}
            if labels is not None:
                out["labels"] = labels
            return out

        return self.payload("dataframe", v, make)

    def labels(self, tree, index, names):
        """Returns the payload of the columns' own index; None where pandas makes the same index
        of the names alone, and where it has no Go form, so that its names are all there is."""
        guess = _labels(names)
        try:
            same = type(guess) is type(index) and guess.dtype == index.dtype and _column(guess) == _column(index)
            return None if same else self.column(tree, index, None)
        except Unsupported:
            return None

    def series(self, v):
        if type(v) is not sys.modules["pandas"].Series:
            return _opaque(v, "it is of a subclass of Series")
        return self.payload("series", v, lambda tree: {"values": self.column(tree, v, v.name), "index": self.column(tree, v.index, v.index.name)})

    def index(self, v):
        if type(v) is not getattr(sys.modules["pandas"], type(v).__name__, None):
            return _opaque(v, "it is of a subclass of Index")
        return self.payload("index", v, lambda tree: self.column(tree, v, v.name))

    def timestamp(self, v):
        out = {"value": int(v.asm8.view("i8")), "unit": v.unit}
        if v.tzinfo is not None:
            out["zone"] = _zone_text(v.tzinfo, v.utcoffset())
            if out["zone"] is None:
                return _opaque(v, "its zone has no name")
            if _of_pytz(v.tzinfo):
                out["pytz"] = True
        return {"$": "timestamp", "value": out}

    def missing(self, v):
        return {"$": "singleton", "value": "NaT" if v is sys.modules["pandas"].NaT else "NA"}

    def image(self, v):
        width, height = v.size
        if width * height > MAX_PIXELS:
            raise Unsupported("it has more than %d pixels" % MAX_PIXELS)
        out = {"mode": v.mode, "width": width, "height": height}
        if v.mode in _PNG and width and height:
            file = io.BytesIO()
            v.save(file, "PNG", compress_level=1)
            out["png"] = self.raw(file.getvalue())
        elif v.mode in _RAW:
            out["raw"] = self.raw(v.tobytes())
        else:
            return _opaque(v, "its mode %s has no Go form" % v.mode)
        return {"$": "image", "value": out}


_EXACT = {
    type(None): _Encoder.same,
    bool: _Encoder.same,
    int: _Encoder.int,
    float: _Encoder.float,
    complex: _Encoder.complex,
    str: _Encoder.str,
    bytes: _Encoder.bytes,
    bytearray: _Encoder.bytearray,
    memoryview: _Encoder.bytes,
    list: _Encoder.list,
    tuple: _Encoder.tuple,
    set: _Encoder.set,
    frozenset: _Encoder.frozenset,
    dict: _Encoder.dict,
    range: _Encoder.range,
    slice: _Encoder.slice,
    type(Ellipsis): _Encoder.singleton,
    type(NotImplemented): _Encoder.singleton,
    collections.deque: _Encoder.deque,
    collections.defaultdict: _Encoder.defaultdict,
    datetime.datetime: _Encoder.datetime,
    datetime.date: _Encoder.date,
    datetime.time: _Encoder.time,
    datetime.timedelta: _Encoder.timedelta,
    decimal.Decimal: _Encoder.decimal,
    fractions.Fraction: _Encoder.fraction,
    uuid.UUID: _Encoder.uuid,
}

# The data that an object of a subclass stores in its base class, whatever it overrides: from
# it another kernel makes an object that behaves the same. A class comes before its base.
_PLAIN = {
    # It stores its order beside the dict underneath.
    collections.OrderedDict: lambda v: dict(collections.OrderedDict.items(v)),
    int: int.__index__,
    float: float.__pos__,
    str: str.__str__,
    bytes: lambda v: bytes.__getitem__(v, slice(None)),
    list: lambda v: list(list.__iter__(v)),
    tuple: lambda v: tuple(tuple.__iter__(v)),
    set: lambda v: set(set.__iter__(v)),
    frozenset: lambda v: frozenset(frozenset.__iter__(v)),
    dict: lambda v: dict(dict.items(v)),
}

# Py_TPFLAGS_HEAPTYPE: the flag of classes that were defined in Python.
_HEAP_TYPE = 1 << 9

# Classes whose objects store more than attributes.
_STORED = (*_PLAIN, bytearray, collections.deque)
_PATHS = frozenset((pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath))

# Classes of libraries that the code has imported, and only of those.
_FOREIGN = (
    ("pandas", (
        ("DataFrame", _Encoder.dataframe), ("Series", _Encoder.series), ("Index", _Encoder.index),
    )),
    ("pandas._libs.missing", (("NAType", _Encoder.missing),)),
    ("pandas._libs.tslibs.nattype", (("NaTType", _Encoder.missing),)),
    ("pandas._libs.tslibs.timestamps", (("Timestamp", _Encoder.timestamp),)),
    ("numpy", (("ndarray", _Encoder.ndarray), ("generic", _Encoder.generic))),
    ("PIL.Image", (("Image", _Encoder.image),)),
)

_WIDTHS = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16), "S": (), "U": (), "V": (), "M": (8,), "m": (8,)}
_PNG = frozenset(("1", "L", "LA", "P", "RGB", "RGBA"))
_RAW = frozenset(("CMYK", "F", "I", "YCbCr", "LAB", "HSV", "RGBX", "RGBa", "La", "PA", "I;16", "I;16L", "I;16B", "I;16N"))


def _name(t):
    return "%s.%s" % (t.__module__, t.__qualname__)


def _class(name):
    """Returns the class of this name, if this kernel has it."""
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        found = sys.modules.get(".".join(parts[:i]))
        if found is None:
            continue
        for part in parts[i:]:
            found = getattr(found, part, None)
        return found if isinstance(found, type) else None
    return None


def _unmade(t):
    """Returns why another kernel could not make an object of a class, or ""."""
    fielded = dataclasses.is_dataclass(t)
    if fielded and (issubclass(t, _STORED) or any(not base.__flags__ & _HEAP_TYPE for base in t.__mro__[:-1])):
        return "its class is a dataclass and extends one of Python's own: neither alone has all of it"
    if not fielded and not issubclass(t, (enum.Enum, *_STORED)):
        return ""
    if not _sendable(_name(t)) or _class(_name(t)) is not t:
        return "its class cannot be found by its name, %s: define it outside of functions, under this name" % _name(t)
    if fielded:
        fixed = [f.name for f in dataclasses.fields(t) if getattr(_attribute(t, f.name), "fset", ...) is None]
        return "its field %s is a property that cannot be set" % fixed[0] if fixed else ""
    # A class written in C makes its objects itself.
    maker = next(base for base in t.__mro__ if isinstance(vars(base).get("__new__"), types.BuiltinFunctionType))
    if not issubclass(t, enum.Enum) and maker not in _STORED:
        return "its class, or one that it extends, is written in C: it has more than a %s" % t.__base__.__name__
    return ""


def _found(member):
    """Reports whether the class of an enum has the member under its value."""
    try:
        return type(member)(member._value_) is member
    except ValueError:
        return False


def _attribute(t, name):
    """Returns an attribute of a class without asking the class."""
    return next((vars(base)[name] for base in t.__mro__ if name in vars(base)), None)


def _sendable(name):
    """Reports whether the name of a class arrives as it is."""
    return _clean(name) == name


def _base64(data):
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _lone(text):
    try:
        text.encode()
        return False
    except UnicodeEncodeError:
        return True


# As in Go: names of the database of zones, but for those that each machine gives to another zone.
_ZONE = re.compile(r"(?!Local$|localtime$|posixrules$)[A-Za-z][A-Za-z0-9_+/-]{0,63}", re.ASCII)


def _zone_name(tz):
    """Returns the name of a zone of the database; None for other zones."""
    if tz is datetime.timezone.utc:
        return "UTC"
    name = getattr(tz, "key", None) or getattr(tz, "zone", None)  # zoneinfo and pytz have it
    if type(tz) is datetime.timezone:
        name = tz.tzname(None)
        if name != "UTC" and "/" not in name:  # made up for an offset
            return None
    return name if isinstance(name, str) and _ZONE.fullmatch(name) else None


def _zone_text(tz, offset):
    """Returns a name for a zone whose offset no date gives; None if there is none."""
    name = _zone_name(tz)
    try:
        if name is not None and _zone(name).utcoffset(None) == tz.utcoffset(None):
            return name
    except Exception:
        pass  # a zone that other kernels do not have under this name
    if offset is None or offset.microseconds:
        return None
    seconds = offset.days * 86400 + offset.seconds
    text = "%s%02d:%02d" % ("-" if seconds < 0 else "+", abs(seconds) // 3600, abs(seconds) // 60 % 60)
    return text + (":%02d" % (abs(seconds) % 60) if seconds % 60 else "")


def _of_pytz(tz):
    """Reports whether pytz made a zone. pandas 2 makes zones of pytz from names, and treats them as different from those of zoneinfo."""
    return getattr(tz, "zone", None) is not None and type(tz).__module__.partition(".")[0] == "pytz"


def _pandas_zone(text, pytz):
    """Returns a zone of pytz if it is wanted and installed, else a zone of the standard library."""
    if pytz and text[0] not in "+-":
        try:
            return __import__("pytz").timezone(text)
        except Exception:
            pass  # the kernel that it comes from had pytz
    return _zone(text)


def _zone(text):
    if text == "UTC":
        return datetime.timezone.utc
    if text[0] not in "+-":
        from zoneinfo import ZoneInfo  # not at import: it reads files

        return ZoneInfo(text)
    parts = [int(part) for part in text[1:].split(":")] + [0]
    offset = datetime.timedelta(hours=parts[0], minutes=parts[1], seconds=parts[2])
    return datetime.timezone(-offset if text[0] == "-" else offset)


def _descr(descr):
    """Returns numpy's descr in the form that numpy accepts, from its JSON."""
    return [tuple([x[0], x[1] if isinstance(x[1], str) else _descr(x[1])] + [tuple(n) for n in x[2:]]) for x in descr]


def _opaque(v, reason):
    t = type(v)
    return {"$": "opaque", "type": _clean("%s.%s" % (t.__module__, t.__qualname__)), "repr": _clean(_repr(v)), "reason": _clean(reason)}


def _repr(v):
    try:
        if issubclass(type(v), (list, tuple, dict, set, frozenset, str, bytes, bytearray)):
            return "%s of %d" % (type(v).__name__, len(v))  # its repr may be as large as the value
        return repr(v)[:REPR_LENGTH]
    except Exception as e:
        return "repr failed: %s" % type(e).__name__


def _clean(text):
    return str(text)[:REPR_LENGTH].encode("utf-8", "backslashreplace").decode("utf-8")


def decode(document, blobs=None):
    """Returns the value of a document (bytes) that Go encoded, which may refer to
    blobs by their hash."""
    if not document.startswith(_START.encode()):
        raise ValueError("not a document of version %d" % VERSION)
    # Through a view: a copy of a large document costs more than parsing it.
    with memoryview(document) as view:
        text = str(view[len(_START) : -1], "utf-8")

    def object(d):
        kind = d.get("$")
        if kind is None:
            return d
        if kind == "blob":
            return blobs[d["sha256"]]
        return _KINDS[kind](d)

    return json.loads(text, object_hook=object)


def _data(x):
    """Returns bytes that arrived as base64 or as a blob."""
    return binascii.a2b_base64(x) if isinstance(x, str) else x


def _library(name, what):
    try:
        __import__(name)
    except ImportError as e:
        raise ImportError("%s needs %s, which this Python does not have: install it first (%s)" % (what, name.partition(".")[0], e)) from None
    return sys.modules[name]


def _decode_set(kind):
    def decode(d):
        s = kind(d["items"])
        if len(s) != len(d["items"]):
            raise ValueError("a set has items that are equal in Python")
        return s

    return decode


def _decode_dict(d):
    v = dict(d["items"])
    if len(v) != len(d["items"]):
        raise ValueError("a dict has keys that are equal in Python")
    return v


def _decode_list(d):
    block = array.array("d")
    block.frombytes(_data(d["float64"]))
    if sys.byteorder == "big":
        block.byteswap()
    return block.tolist()


def _decode_datetime(d):
    wall = datetime.datetime.fromisoformat(d["iso"])
    if "offset" not in d:
        return wall
    offset = datetime.timedelta(seconds=d["offset"])
    name = d.get("zone")
    if name == "UTC" and not offset:
        return wall.replace(tzinfo=datetime.timezone.utc)
    if name is None:
        return wall.replace(tzinfo=datetime.timezone(offset))
    try:
        from zoneinfo import ZoneInfo  # not at import: it reads files

        zone = ZoneInfo(name)
        for fold in (0, 1):  # which of the two times, when clocks are set back
            v = wall.replace(tzinfo=zone, fold=fold)
            if v.utcoffset() == offset:
                return v
    except Exception:  # no such zone here: its offset and name remain
        pass
    return wall.replace(tzinfo=datetime.timezone(offset, name))


def _decode_opaque(d):
    raise ValueError("a value that exists only in another kernel: %s" % d["type"])


def _decode_time(v):
    zone = _zone(v["zone"]) if v.get("zone") else None
    return datetime.time.fromisoformat(v["iso"]).replace(tzinfo=zone, fold=int(v.get("fold", False)))


def _decode_path(v):
    if v.get("windows"):
        return pathlib.PureWindowsPath(v["path"])
    return (pathlib.PurePosixPath if v.get("pure") else pathlib.Path)(v["path"])


def _decode_singleton(name):
    if name in ("NA", "NaT"):
        return getattr(_library("pandas", name), name)
    return {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[name]


def _known_class(name):
    t = _class(name)
    if t is None:
        raise LookupError("this kernel has no class %s: import or define it first" % name)
    return t


def _decode_enum(v):
    name, _, member = v["type"].rpartition(".")
    t = _known_class(name)
    try:
        return t(v["value"])
    except ValueError:  # a value that equals no other, such as NaN
        if member not in t.__members__:
            raise
        return t[member]


def _decode_defaultdict(v):
    return collections.defaultdict(_known_class(v["type"]) if v["type"] else None, v["value"])


def _decode_namedtuple(v):
    t = _known_class(v["type"])
    if list(getattr(t, "_fields", ())) != list(v["value"]):
        raise TypeError("the named tuple %s has other fields here" % v["type"])
    return tuple.__new__(t, v["value"].values())


def _decode_dataclass(v):
    t = _known_class(v["type"])
    if not dataclasses.is_dataclass(t) or {f.name for f in dataclasses.fields(t)} != set(v["value"]):
        raise TypeError("the dataclass %s has other fields here" % v["type"])
    out = object.__new__(t)
    for name, x in v["value"].items():
        object.__setattr__(out, name, x)
    return out


def _decode_subclass(v):
    t, value = _known_class(v["type"]), v["value"]
    base = type(value)
    if base is not collections.defaultdict and base not in _PLAIN or not issubclass(t, base):
        raise TypeError("the class %s is not a subclass of %s here" % (v["type"], base.__name__))
    out = base.__new__(t) if isinstance(value, (list, set, dict)) else base.__new__(t, value)
    # With the methods of the base: those of the class may need attributes that are not set yet.
    if isinstance(out, collections.OrderedDict):
        for k in value:
            collections.OrderedDict.__setitem__(out, k, value[k])
    elif isinstance(out, dict):
        dict.update(out, value)
    elif isinstance(out, list):
        list.extend(out, value)
    elif isinstance(out, set):
        set.update(out, value)
    if base is collections.defaultdict:
        out.default_factory = value.default_factory
    return out


def _dtype(text):
    numpy = _library("numpy", "an array")
    return numpy.dtype(_descr(json.loads(text)) if text.startswith("[") else text)


def _decode_scalar(v):
    t = _dtype(v["dtype"])
    out = sys.modules["numpy"].frombuffer(v["data"], dtype=t, count=1) if t.itemsize else sys.modules["numpy"].zeros(1, dtype=t)
    return out[0]


def _decode_array(v):
    t, shape = _dtype(v["dtype"]), tuple(v["shape"])
    numpy = sys.modules["numpy"]
    if t.kind == "O":
        out = numpy.empty(len(v["objects"]), dtype=object)
        for i, x in enumerate(v["objects"]):  # one by one: an element may itself be a list
            out[i] = x
        return out.reshape(shape)
    if not t.itemsize or 0 in shape:
        return numpy.zeros(shape, dtype=t)
    # Writable, and in memory of its own.
    return numpy.frombuffer(bytearray(v["data"]), dtype=t).reshape(shape, order="F" if v.get("fortran") else "C")


def _decode_column(v):
    """Returns the values of a column, as pandas accepts them."""
    pandas = _library("pandas", "a table")
    name = v["dtype"]
    if name == "range":
        return pandas.RangeIndex(v["range"])
    data = v["data"]
    if name == "category":
        return pandas.Categorical.from_codes(data, categories=_decode_index(v["categories"]), ordered=v.get("ordered", False))
    if "mask" in v:
        mask = sys.modules["numpy"].frombuffer(bytearray(v["mask"]), dtype="bool")
        array = {"b": pandas.arrays.BooleanArray, "f": pandas.arrays.FloatingArray}.get(data.dtype.kind, pandas.arrays.IntegerArray)
        return array(data, mask)
    if data.dtype.kind == "M" and "," in name:
        return pandas.DatetimeIndex(data).tz_localize("UTC").tz_convert(_pandas_zone(name.partition(", ")[2].rstrip("]"), v.get("pytz"))).array
    if data.dtype.kind == "O" and name != "object":
        return pandas.array(data.tolist(), dtype=name)
    return data


def _decode_series(v, index):
    pandas = _library("pandas", "a table")
    values = _decode_column(v)
    return pandas.Series(values, index=index, name=v["name"], dtype=values.dtype, copy=False)


def _decode_index(v):
    pandas = _library("pandas", "a table")
    values = _decode_column(v)
    if isinstance(values, pandas.RangeIndex):
        return values.rename(v["name"])
    out = pandas.Index(values, name=v["name"], dtype=values.dtype)
    if "freq" in v:
        out.freq = v["freq"]
    return out


def _decode_frame(v):
    pandas = _library("pandas", "a table")
    index = _decode_index(v["index"])
    out = pandas.DataFrame({i: _decode_series(c, index) for i, c in enumerate(v["columns"])}, index=index, copy=False)
    labels = _decode_index(v["labels"]) if "labels" in v else _labels([c["name"] for c in v["columns"]])
    out.columns = labels.rename(v["label"])
    return out


def _labels(names):
    """Returns the index that pandas makes of the names of columns."""
    # A tuple is a name here, not the levels of one.
    return sys.modules["pandas"].Index(names, tupleize_cols=False)


def _column(index):
    """Returns the payload of an index that is only compared."""
    encoder = _Encoder(True, None, None)
    return encoder.column(encoder.tree, index, None)


def _decode_timestamp(v):
    numpy = _library("numpy", "a Timestamp")
    out = _library("pandas", "a Timestamp").Timestamp(numpy.datetime64(v["value"], v["unit"]))
    return out.tz_localize("UTC").tz_convert(_pandas_zone(v["zone"], v.get("pytz"))) if v.get("zone") else out


def _decode_image(v):
    image = _library("PIL.Image", "an image")
    if "png" not in v:
        return image.frombytes(v["mode"], (v["width"], v["height"]), v["raw"])
    with io.BytesIO(v["png"]) as file:
        out = image.open(file, formats=("PNG",))
        out.load()
    # Without the reference to a file, as the code's own value had none.
    return out.copy() if out.mode == v["mode"] else out.convert(v["mode"])


def _form(decode):
    return lambda d: decode(d["value"])


_KINDS = {
    "complex": _form(lambda v: complex(v[0], v[1])),
    "decimal": _form(decimal.Decimal),
    "fraction": _form(lambda v: fractions.Fraction(v[0], v[1])),
    "date": _form(datetime.date.fromisoformat),
    "time": _form(_decode_time),
    "uuid": _form(uuid.UUID),
    "path": _form(_decode_path),
    "range": _form(lambda v: range(*v)),
    "slice": _form(lambda v: slice(*v)),
    "deque": _form(lambda v: collections.deque(v["items"], v["maxlen"])),
    "singleton": _form(_decode_singleton),
    "enum": _form(_decode_enum),
    "defaultdict": _form(_decode_defaultdict),
    "namedtuple": _form(_decode_namedtuple),
    "dataclass": _form(_decode_dataclass),
    "subclass": _form(_decode_subclass),
    "scalar": _form(_decode_scalar),
    "ndarray": _form(_decode_array),
    "dataframe": _form(_decode_frame),
    "series": _form(lambda v: _decode_series(v["values"], _decode_index(v["index"]))),
    "index": _form(_decode_index),
    "timestamp": _form(_decode_timestamp),
    "image": _form(_decode_image),
    "int": lambda d: int(d["hex"], 16),
    "float": lambda d: float(d["text"]),
    "str": lambda d: _data(d["base64"]).decode("utf-8", "surrogatepass"),
    "bytes": lambda d: bytes(_data(d["base64"])),
    "bytearray": lambda d: bytearray(_data(d["base64"])),
    "list": _decode_list,
    "tuple": lambda d: tuple(d["items"]),
    "set": _decode_set(set),
    "frozenset": _decode_set(frozenset),
    "dict": _decode_dict,
    "datetime": _decode_datetime,
    "timedelta": lambda d: datetime.timedelta(d["days"], d["seconds"], d["microseconds"]),
    "opaque": _decode_opaque,
}
