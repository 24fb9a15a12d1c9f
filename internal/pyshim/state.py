"""The kernel's side of a run: variables in, variables out, what changed.

One object of this module lives in sys.modules; nothing of it is in the user's
namespace. The host calls these functions in user expressions.
"""

import hashlib
import json
import os
import secrets
import stat
import sys
import tempfile
import types

codec = sys.modules["_e2bctl_codec"]

MIME = "application/vnd.e2bctl.value+json"
# What is larger goes through a file.
INLINE = 64 << 10
# Below this size a value is kept to be recognised by its identity.
KEPT = 64 << 10

_ATOMS = frozenset((type(None), bool, int, float, str, bytes))
_SKIPPED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


class Reply:
    """What a function answers: a document under the private MIME type."""

    def __init__(self, document):
        self._document = document

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {MIME: self._document.decode("utf-8")}

    def __repr__(self):
        return "<value for the host>"


class _Known:
    """What the host has of a variable: a hash, and the value while it is small
    and cannot change in place."""

    __slots__ = ("hash", "value")

    def __init__(self, hash, value):
        self.hash = hash
        self.value = value if type(value) in _ATOMS and sys.getsizeof(value) < KEPT else _Known

    def unchanged(self, value):
        return self.value is value


_directory = tempfile.mkdtemp(prefix="e2bctl-")  # 0700
_known = {}
# Names the version of _known: the host's knowledge holds as long as it has the
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


def begin():
    """Answers what the host's knowledge is checked against, and where the host
    puts its files."""
    global _pending
    _pending = None
    guard = sys.modules.get("_e2bctl_guard")
    if guard is not None:
        guard.disarm()  # of a run whose end was cut off
    os.makedirs(_directory, mode=0o700, exist_ok=True)
    for name in os.listdir(_directory):  # of calls that were cut off
        os.unlink(os.path.join(_directory, name))
    return Reply(codec.encode({"token": _token, "directory": _directory}))


def load(file):
    """Makes variables of the frame in a file, all or none, and removes it."""
    global _token
    path = os.path.join(_directory, os.path.basename(file))
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.fdopen(fd, "rb") as f:
            values, known = {}, {}
            for name, size, digest in json.loads(f.readline()):
                values[name] = codec.decode(f.read(size))
                known[name] = _Known(digest, values[name])
    finally:
        os.unlink(path)
    _namespace().update(values)
    _known.update(known)
    _token = secrets.token_hex(8)
    return Reply(codec.encode({"token": _token}))


def get(name, max_bytes):
    """Answers one variable."""
    namespace = _namespace()
    if name not in namespace:
        return Reply(codec.encode({"found": False}))
    return _send({"found": True}, [(name, codec.encode(namespace[name], max_bytes))], max_bytes)


def last(max_bytes):
    """Answers the value of the last expression of the code that just ran. It is
    an older one's when there was none: the host saw whether there was."""
    shell = _shell()
    if shell is not None:
        value = getattr(shell.last_execution_result, "result", None)
    else:
        value = _namespace().get("_")
    return Reply(codec.encode(value, max_bytes))


def changes(max_bytes):
    """Answers the variables that are not as the host knows them. They count as
    known when the host acknowledges that it has them."""
    global _pending
    namespace = _namespace()
    parts, known, total = [], {}, 0
    for name, value in list(namespace.items()):
        old = _known.get(name)
        if old is None and (name.startswith("_") or isinstance(value, _SKIPPED) or _hidden(name, value)):
            continue
        if old is not None and old.unchanged(value):
            continue
        document = codec.encode(value, max_bytes)
        if old is None and document.startswith(_OPAQUE) and document.endswith(_PLAIN):
            continue  # of a type without a Go form: there all along, or the code's own
        new = _Known(hashlib.sha256(document).hexdigest(), value)
        if old is not None and old.hash == new.hash:
            _known[name] = new
            continue
        total += len(document)
        if total > max_bytes:
            raise ValueError("what changed has more than %d bytes in all: get variables one by one" % max_bytes)
        parts.append((name, document))
        known[name] = new
    deleted = sorted(name for name in _known if name not in namespace)
    if not parts and not deleted:
        _pending = None
        return Reply(codec.encode({"token": _token, "deleted": []}))
    _pending = (secrets.token_hex(8), known, deleted)
    return _send({"token": _pending[0], "deleted": deleted}, parts, max_bytes)


_OPAQUE = b'{"v":1,"value":{"$":"opaque",'
_PLAIN = b',"reason":""}}'


def _hidden(name, value):
    """Tells IPython's own names, as long as they are its own."""
    hidden = getattr(_shell(), "user_ns_hidden", {})
    return name in hidden and hidden[name] is value


def acknowledge(token):
    """Takes what changes() answered under this token as known to the host."""
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


def _send(answer, parts, max_bytes):
    """Answers documents as one frame: a line of JSON with names and sizes, then
    the documents. A large one goes through a file."""
    head = json.dumps([[name, len(document)] for name, document in parts]).encode() + b"\n"
    size = len(head) + sum(len(document) for _, document in parts)
    if size <= INLINE:
        answer["frame"] = b"".join([head] + [document for _, document in parts])
        return Reply(codec.encode(answer))
    answer["file"] = os.path.join(_directory, secrets.token_hex(16))
    answer["size"] = size
    fd = os.open(answer["file"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(fd, "wb") as f:
        f.write(head)
        for _, document in parts:
            f.write(document)
    return Reply(codec.encode(answer))
