"""Python values as documents, and back: the other half of the Go package state.

The encoding is canonical. Equal values give equal bytes here and in Go, so
that a hash of a document tells whether a value changed.
"""

import array
import binascii
import datetime
import json
import sys

VERSION = 1
MAX_DEPTH = 200
MAX_NODES = 16 << 20
# From this length a list of nothing but floats goes as one block.
PACK_FROM = 16
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
REPR_LENGTH = 200

_START = '{"v":1,"value":'
_INF = float("inf")
_SCALARS = frozenset((str, bool, type(None)))


class Unsupported(Exception):
    """The value as a whole cannot be encoded, though its type could."""


def encode(value, max_bytes=None):
    """Gives the document of a value, as bytes. What has no Go form is an opaque
    handle in it; a value that cannot be encoded as a whole is one itself."""
    try:
        return _encode(value, max_bytes)
    except (Unsupported, RecursionError) as e:
        reason = str(e) if isinstance(e, Unsupported) else "it is nested too deep"
        return _document(_opaque(value, reason), careful=True)


def _encode(value, max_bytes):
    encoder = _Encoder(False, max_bytes)
    tree = encoder.tree(value)
    try:
        document = _document(tree)
    except UnicodeEncodeError:  # a lone surrogate somewhere: rare enough to begin again
        document = _document(_Encoder(True, max_bytes).tree(value))
    if max_bytes is not None and len(document) > max_bytes:
        raise Unsupported("its document has %d bytes, more than %d" % (len(document), max_bytes))
    return document


def _document(tree, careful=False):
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (_START + text + "}").encode("utf-8", "backslashreplace" if careful else "strict")


class _Encoder:
    """Turns a value into what json.dumps writes as a document."""

    def __init__(self, careful, max_bytes):
        # careful looks for lone surrogates in every str.
        self.careful = careful
        self.nodes = 0
        self.max_nodes = MAX_NODES if max_bytes is None else min(MAX_NODES, max_bytes)
        self.path = set()

    def tree(self, v):
        t = type(v)
        method = _EXACT.get(t)
        if method is None:
            for base, method in _BASES:
                if isinstance(v, base):
                    break
            else:
                method = _Encoder.other
        return method(self, v)

    def count(self, n):
        if len(self.path) >= MAX_DEPTH:
            raise Unsupported("it is nested more than %d deep" % MAX_DEPTH)
        self.nodes += n
        if self.nodes > self.max_nodes:
            raise Unsupported("it has more than %d parts" % self.max_nodes)

    def enter(self, v):
        if id(v) in self.path:
            raise Unsupported("it contains itself")
        self.path.add(id(v))

    def same(self, v):
        return v

    def int(self, v):
        if INT64_MIN <= v <= INT64_MAX:
            # A subclass (an IntEnum) as the number that it is.
            return v if type(v) is int else int.__index__(v)
        return {"$": "int", "hex": format(int.__index__(v), "x")}

    def float(self, v):
        if v != v:
            return {"$": "float", "text": "nan"}
        if v in (_INF, -_INF):
            return {"$": "float", "text": "inf" if v > 0 else "-inf"}
        return v if type(v) is float else float.__pos__(v)

    def str(self, v):
        if type(v) is not str:
            v = str.__str__(v)
        if self.careful:
            try:
                v.encode()
            except UnicodeEncodeError:
                return {"$": "str", "base64": _base64(v.encode("utf-8", "surrogatepass"))}
        return v

    def bytes(self, v):
        return {"$": "bytes", "base64": _base64(v)}

    def bytearray(self, v):
        return {"$": "bytearray", "base64": _base64(v)}

    def list(self, v):
        self.count(len(v))
        types = set(map(type, v))
        if types == {float} and len(v) >= PACK_FROM:
            block = array.array("d", v)
            if sys.byteorder == "big":
                block.byteswap()
            return {"$": "list", "float64": _base64(block)}
        return self.items(v, types)

    def items(self, v, types):
        # What is JSON's own goes as it stands, at the speed of C.
        if types <= _SCALARS and not self.careful:
            return v if type(v) in (list, tuple) else list(v)
        if types == {int} and min(v) >= INT64_MIN and max(v) <= INT64_MAX:
            return v if type(v) in (list, tuple) else list(v)
        self.enter(v)
        tree = self.tree
        out = [tree(x) for x in v]
        self.path.discard(id(v))
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
        # In the order of the bytes that each is in the document.
        texts = [json.dumps(x, ensure_ascii=False, allow_nan=False, separators=(",", ":")) for x in items]
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
            out = {"$": "dict", "items": [[tree(k), tree(x)] for k, x in v.items()]}
            if all(isinstance(k, str) for k, _ in out["items"]) and not any(k == "$" for k, _ in out["items"]):
                out = dict(out["items"])  # keys of subclasses of str
        self.path.discard(id(v))
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

    def other(self, v):
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            try:
                if isinstance(v, (numpy.bool_, numpy.integer, numpy.floating)):
                    item = v.item()
                    if type(item) in (bool, int, float) and not isinstance(v, numpy.timedelta64):
                        return self.tree(item)
            except Exception:  # not the numpy we know
                pass
        return _opaque(v, "")


_EXACT = {
    type(None): _Encoder.same,
    bool: _Encoder.same,
    int: _Encoder.int,
    float: _Encoder.float,
    str: _Encoder.str,
    bytes: _Encoder.bytes,
    bytearray: _Encoder.bytearray,
    memoryview: _Encoder.bytes,
    list: _Encoder.list,
    tuple: _Encoder.tuple,
    set: _Encoder.set,
    frozenset: _Encoder.frozenset,
    dict: _Encoder.dict,
    datetime.datetime: _Encoder.datetime,
    datetime.timedelta: _Encoder.timedelta,
}

# Subclasses come as their base. Those of datetime and timedelta do not: they
# have more to them (pandas' nanoseconds, its NaT).
_BASES = tuple((t, _EXACT[t]) for t in (int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict))


def _base64(data):
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _lone(text):
    try:
        text.encode()
        return False
    except UnicodeEncodeError:
        return True


def _zone_name(tz):
    if tz is datetime.timezone.utc:
        return "UTC"
    name = getattr(tz, "key", None)  # zoneinfo's
    if not isinstance(name, str) and type(tz) is datetime.timezone:
        name = tz.tzname(None)
    if isinstance(name, str) and ("/" in name or name == "UTC") and not _lone(name):
        return name
    return None


def _opaque(v, reason):
    t = type(v)
    return {"$": "opaque", "type": _clean("%s.%s" % (t.__module__, t.__qualname__)), "repr": _clean(_repr(v)), "reason": _clean(reason)}


def _repr(v):
    if isinstance(v, (list, tuple, dict, set, frozenset, str, bytes, bytearray)):
        return "%s of %d" % (type(v).__name__, len(v))  # its repr may be as large as it is
    try:
        return repr(v)[:REPR_LENGTH]
    except Exception as e:
        return "repr failed: %s" % type(e).__name__


def _clean(text):
    return str(text)[:REPR_LENGTH].encode("utf-8", "backslashreplace").decode("utf-8")


def decode(document):
    """Gives the value of a document (bytes) that Go encoded."""
    if not document.startswith(_START.encode()):
        raise ValueError("not a document of version %d" % VERSION)
    # Through a view: a copy of a large document costs more than its parsing.
    with memoryview(document) as view:
        text = str(view[len(_START) : -1], "utf-8")
    return json.loads(text, object_hook=_object)


def _object(d):
    kind = d.get("$")
    return d if kind is None else _KINDS[kind](d)


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
    block = array.array("d", binascii.a2b_base64(d["float64"]))
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
        for fold in (0, 1):  # which of the two, when clocks go back
            v = wall.replace(tzinfo=zone, fold=fold)
            if v.utcoffset() == offset:
                return v
    except Exception:  # no such zone here: its offset and name remain
        pass
    return wall.replace(tzinfo=datetime.timezone(offset, name))


def _decode_opaque(d):
    raise ValueError("a value that exists in another kernel only: %s" % d["type"])


_KINDS = {
    "int": lambda d: int(d["hex"], 16),
    "float": lambda d: float(d["text"]),
    "str": lambda d: binascii.a2b_base64(d["base64"]).decode("utf-8", "surrogatepass"),
    "bytes": lambda d: binascii.a2b_base64(d["base64"]),
    "bytearray": lambda d: bytearray(binascii.a2b_base64(d["base64"])),
    "list": _decode_list,
    "tuple": lambda d: tuple(d["items"]),
    "set": _decode_set(set),
    "frozenset": _decode_set(frozenset),
    "dict": _decode_dict,
    "datetime": _decode_datetime,
    "timedelta": lambda d: datetime.timedelta(d["days"], d["seconds"], d["microseconds"]),
    "opaque": _decode_opaque,
}
