"""The kernel's side of a run: receives variables, sends them, and finds what changed.

One object of this module lives in sys.modules; it adds nothing to the user's
namespace. The host calls these functions in user expressions.
"""

import hashlib
import json
import os
import pickle
import secrets
import stat
import sys
import tempfile
import types

codec = sys.modules["_e2bctl_codec"]

MIME = "application/vnd.e2bctl.value+json"
# Anything larger is sent through a file.
INLINE = 64 << 10
# Below this size a value is kept, so that it can be recognised by its identity; from
# it on, no copy is made of a value to find out that it did not change.
KEPT = 64 << 10

_ATOMS = frozenset((type(None), bool, int, float, str, bytes))
_SKIPPED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


class Reply:
    """The answer of a function: a document under the private MIME type."""

    def __init__(self, document):
        self._document = document

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {MIME: self._document.decode("utf-8")}

    def __repr__(self):
        return "<value for the host>"


class _Known:
    """What the host has of a variable: a hash; and, to find out sooner than from a
    document that nothing changed, the value if it is small and cannot change in place, or
    the mark of a large one."""

    __slots__ = ("hash", "size", "mark", "value")

    def __init__(self, hash, size, value, mark=None):
        self.hash = hash
        self.size = size
        self.mark = mark
        self.value = value if type(value) in _ATOMS and sys.getsizeof(value) < KEPT else _Known


def _mark(value):
    """Returns a hash of all that a value of Python's own types contains, which takes a
    small part of the time and memory of its document; None for other types, and for what
    cannot be read through. Values with equal marks have equal documents."""
    if type(value) not in _READ_THROUGH:
        return None
    mark = _Mark()
    try:
        reader = _Reader(mark, protocol=5)
        reader.fast = True  # by content, not by identity
        reader.dump(value)
    except Exception:  # it contains itself, is nested too deep, or changes meanwhile
        return None
    return mark.hash.digest()


_READ_THROUGH = frozenset((str, bytes, bytearray, list, tuple, dict, set, frozenset))


class _Mark:
    """A file that keeps only the hash of the pickle that is written to it."""

    def __init__(self):
        self.hash = hashlib.sha256()
        self.write = self.hash.update


class _Reader(pickle.Pickler):
    """Reads through the containers of Python with all that they contain: keys, order, types
    and values. An object of any other type counts by its document."""

    def reducer_override(self, value):
        if value is bytes:  # the first half of the answer below
            return NotImplemented
        return bytes, (codec.digest(value).encode(),)


_directory = tempfile.mkdtemp(prefix="e2bctl-")  # 0700
_known = {}
# Identifies the version of _known: the host's knowledge is valid while it has the
# same token.
_token = secrets.token_hex(8)
_pending = None


def _namespace():
    shell = _shell()
    if shell is not None:
        return shell.user_ns
    return sys.modules["__main__"].__dict__


def _shell():
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _transformers():
    """Returns the list of transformers of a cell before it is compiled; None if the
    kernel has no such list."""
    shell = _shell()
    if shell is not None:
        return shell.ast_transformers
    return getattr(sys.modules.get("_e2bctl_kernel.plain"), "transformers", None)


def _rejection():
    """Returns the class of exceptions by which these may refuse a cell: IPython removes a
    transformer that raises anything else."""
    return getattr(sys.modules.get("IPython.core.error"), "InputRejected", Exception)


def begin():
    """Answers the token against which the host checks its knowledge, and where the host
    puts its files."""
    global _pending
    _pending = None
    guard = sys.modules.get("_e2bctl_guard")
    if guard is not None:
        guard.disarm()  # a run that could not end may have left it
    os.makedirs(_directory, mode=0o700, exist_ok=True)
    for name in os.listdir(_directory):  # files of calls that were cut off
        os.unlink(os.path.join(_directory, name))
    return Reply(codec.encode({"token": _token, "directory": _directory}))


def load(file):
    """Makes variables of the frame in a file, all or none, and removes the file. A
    blob that is not in the frame is taken from a variable; if no variable has it, it is
    missing and the host must send it."""
    global _token
    path = os.path.join(_directory, os.path.basename(file))
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.fdopen(fd, "rb") as f:
            head = json.loads(f.readline())
            documents = [f.read(size) for _, size, _, _ in head["values"]]
            blobs = {name: f.read(size) for name, size in head["blobs"]}
    finally:
        os.unlink(path)
    for name, variable in head["held"]:
        if name not in blobs:
            codec.encode(_namespace().get(variable), None, blobs)
    missing = sorted(name for name, _ in head["held"] if name not in blobs)
    if missing:
        return Reply(codec.encode({"token": _token, "missing": missing}))
    values, known = {}, {}
    for (name, _, digest, size), document in zip(head["values"], documents):
        try:
            values[name] = codec.decode(document, blobs)
        except Exception as e:
            raise ValueError("the variable %s cannot be made here: %s: %s" % (name, type(e).__name__, e)) from None
        known[name] = _Known(digest, size, values[name])
    _namespace().update(values)
    _known.update(known)
    _token = secrets.token_hex(8)
    return Reply(codec.encode({"token": _token}))


def get(name, max_bytes):
    """Answers the value of one variable."""
    namespace = _namespace()
    if name not in namespace:
        return Reply(codec.encode({"found": False}))
    blobs = {}
    document = codec.encode(namespace[name], max_bytes, blobs)
    return _send({"found": True}, [(name, document)], blobs)


def evaluate(expression, max_bytes):
    """Answers the value of an expression."""
    code = compile(expression.strip(), "<expression>", "eval")
    return Reply(codec.encode(eval(code, _namespace()), max_bytes))


def delete(name):
    """Removes a variable."""
    global _token, _pending
    namespace = _namespace()
    if name not in namespace:
        return Reply(codec.encode({"found": False}))
    del namespace[name]
    _known.pop(name, None)
    _pending = None
    _token = secrets.token_hex(8)
    return Reply(codec.encode({"found": True, "token": _token}))


def last(max_bytes):
    """Answers the value of the last expression of the code that just ran. If there was
    none, it is an older one's: the host knows whether there was one."""
    shell = _shell()
    if shell is not None:
        value = getattr(shell.last_execution_result, "result", None)
    else:
        value = _namespace().get("_")
    return Reply(codec.encode(value, max_bytes))


def _differences(max_bytes):
    """Returns the variables that differ from the host's copies. All of a value is
    compared, whatever its size."""
    for name, value in list(_namespace().items()):
        old = _known.get(name)
        if old is None and (name.startswith("_") or issubclass(type(value), _SKIPPED) or _hidden(name, value)):
            continue
        mark = None
        if old is not None:
            if old.value is value:
                continue
            if old.size >= KEPT:
                mark = _mark(value)  # before its document: the code's threads may go on
                if mark is not None and mark == old.mark or mark is None and old.hash == codec.digest(value, max_bytes):
                    continue
        blobs = {}
        document = codec.encode(value, max_bytes, blobs)
        if old is None and document.startswith(codec.OPAQUE) and document.endswith(_PLAIN):
            continue  # of a type without a Go form: it was there all along, or is the code's own
        size = len(document) + sum(data.nbytes for data in blobs.values())
        new = _Known(hashlib.sha256(document).hexdigest(), size, value, mark)
        if old is not None and old.hash == new.hash:
            _known[name] = new
            continue
        yield name, document, blobs, new


def _deleted():
    namespace = _namespace()
    return sorted(name for name in _known if name not in namespace)


def changed(max_bytes):
    """Answers like changes(), without the values."""
    out = [{"name": name, "kind": _kind(document), "size": new.size, "hash": new.hash} for name, document, _, new in _differences(max_bytes)]
    out += [{"name": name, "deleted": True} for name in _deleted()]
    return Reply(codec.encode({"changed": out}))


def _kind(document):
    body = document[len(codec._START) : -1]
    if body.startswith(b'{"$":"'):
        return body[6 : body.index(b'"', 6)].decode()
    kinds = {"n": "none", "t": "bool", "f": "bool", '"': "str", "[": "list", "{": "dict"}
    return kinds.get(chr(body[0])) or ("float" if any(c in body for c in b".e") else "int")


def changes(max_bytes):
    """Answers the variables that differ from the host's copies. They count as
    known once the host acknowledges that it has them."""
    global _pending
    parts, blobs, known, total = [], {}, {}, 0
    for name, document, large, new in _differences(max_bytes):
        total += new.size
        if total > max_bytes:
            raise ValueError("what changed has more than %d bytes in all: get variables one by one" % max_bytes)
        parts.append((name, document))
        blobs.update(large)
        known[name] = new
    deleted = _deleted()
    if not parts and not deleted:
        _pending = None
        return Reply(codec.encode({"token": _token, "deleted": []}))
    _pending = (secrets.token_hex(8), known, deleted)
    return _send({"token": _pending[0], "deleted": deleted}, parts, blobs)


_PLAIN = b',"reason":""}}'


def _hidden(name, value):
    """Reports whether it is a name of IPython that still has IPython's value."""
    hidden = getattr(_shell(), "user_ns_hidden", {})
    return name in hidden and hidden[name] is value


def acknowledge(token):
    """Records that the host has the answer of changes() with this token."""
    global _token, _pending
    if _pending is not None and _pending[0] == token:
        _token, known, deleted = _pending
        _known.update(known)
        for name in deleted:
            _known.pop(name, None)
        _pending = None
    for name in os.listdir(_directory):
        os.unlink(os.path.join(_directory, name))
    return Reply(codec.encode({"token": _token}))


def _send(answer, parts, blobs):
    """Answers documents as one frame: a line of JSON with names and sizes, then
    the documents, then their blobs. A large frame goes through a file."""
    head = {"values": [[name, len(document)] for name, document in parts], "blobs": [[name, data.nbytes] for name, data in blobs.items()]}
    head = json.dumps(head).encode() + b"\n"
    frame = [head] + [document for _, document in parts] + list(blobs.values())
    answer["head"] = len(head)
    answer["size"] = sum(memoryview(part).nbytes for part in frame)
    if answer["size"] <= INLINE:
        answer["frame"] = b"".join(frame)
        return Reply(codec.encode(answer))
    answer["file"] = os.path.join(_directory, secrets.token_hex(16))
    fd = os.open(answer["file"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(fd, "wb") as f:
        for part in frame:
            f.write(part)
    return Reply(codec.encode(answer))
