"""The socket to envd, the messages on it, and the times when SIGINT may take effect."""
import base64
import dataclasses
import datetime
import enum
import json
import math
import queue
import signal
import socket
import sys
import threading
from asyncio import events
from time import sleep

# Maximum size of a result as JSON. Envd reads lines of up to twice this size.
MAX_BUNDLE = 32 << 20


class Interrupts:
    """Converts SIGINT to KeyboardInterrupt. It does so only while a cell runs, or while a
    request waits for code between cells. It never does so while a line is being sent,
    because half a line would end the connection."""

    def __init__(self):
        self._main = threading.get_ident()
        self._armed = False
        self._expected = False  # a request waits until code between cells lets it begin
        self._struck = False  # the waiting request was interrupted
        self._held = 0
        self._deferred = False
        self._pending = False
        self._cells = 0  # number of cells that have ended
        self._handled = 0  # number of signals since the last cell ended
        self.listen()

    def listen(self):
        """Sets the signal handler, because code may have replaced it."""
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, signum, frame):
        __tracebackhide__ = True  # makes IPython's traceback end where the cell was interrupted
        self._handled += 1
        if self._armed:
            self._pending = True
        elif self._expected:
            # The interrupt ends both the request and the callback. Between two callbacks it
            # would break the loop.
            self._struck, self._pending = True, _in_callback(frame)
        self._strike()

    def arm(self):
        """Lets interrupts take effect from now on. If the request was interrupted while it
        waited, raises this interrupt."""
        self.listen()
        self._armed = True  # before _expected is reset, so that no signal is lost in between
        self._expected = False
        if self._struck:
            self._struck, self._pending = False, True
        self._strike()

    def disarm(self):
        # Code that does not compile is never admitted.
        self._armed = self._pending = self._deferred = False
        self._cells += 1
        self._handled = 0

    def expect(self):
        """Lets interrupts end a callback for which a request waits. Any thread may call it."""
        self._expected = True

    def defer(self):
        """Delays interrupts until admit, because the code that prepares a cell may swallow
        them."""
        self._deferred = True

    def admit(self):
        __tracebackhide__ = True
        self._deferred = False
        self._strike()

    def hold(self):
        if threading.get_ident() == self._main:
            self._held += 1

    def release(self):
        __tracebackhide__ = True
        if threading.get_ident() != self._main:
            return
        self._held -= 1
        self._strike()

    def watch_finalizers(self):
        """Keeps interrupts that are raised in a finalizer. A finalizer may run at any time, and
        Python drops its exceptions."""
        self._unraisable, sys.unraisablehook = sys.unraisablehook, self._dropped

    def _dropped(self, args):
        if args.exc_type is not KeyboardInterrupt or _origin(args.exc_traceback) is not Interrupts._strike.__code__:
            self._unraisable(args)
            return
        self._held += 1  # Python also drops an exception that is raised here
        self._insist(self._handled + 1, self._cells)
        self._held -= 1

    def expect_signal(self, number):
        """Sends a signal of envd again if it has no effect. A signal that arrives just before a
        blocking call would only be handled after the call. number is the number of signals
        that envd has sent for this request. The thread that reads requests calls this, so no
        later request has begun."""
        cell = self._cells
        if self._armed or self._expected:
            self._insist(number, cell)

    def _insist(self, number, cell):
        try:
            threading.Thread(target=self._again, args=(number, cell), daemon=True).start()
        except (RuntimeError, MemoryError):
            # User code has started as many threads as possible. Linux may have given the
            # signal to one of them, so that it does not wake the main thread. The caller's
            # thread cannot wait for long.
            if threading.get_ident() != self._main:
                self._again(number, cell, 6)

    def _again(self, number, cell, tries=-1):
        """Sends a signal until one has been handled or the cell has ended. It checks at most
        tries times, with pauses that double from 10 ms. A negative number means no bound."""
        pause = 0.01
        while tries:
            tries -= 1
            sleep(pause)
            pause = min(2 * pause, 1)
            if self._cells != cell or not (self._armed or self._expected):
                return
            # A handler that user code has set does not count signals.
            if self._handled >= number or signal.getsignal(signal.SIGINT) != self._handle:
                return
            signal.pthread_kill(self._main, signal.SIGINT)

    def _strike(self):
        __tracebackhide__ = True
        if self._pending and not self._held and not self._deferred:
            self._pending = False
            raise KeyboardInterrupt


def _origin(traceback):
    """Returns the code that raised an exception. Returns None if no Python code did."""
    code = None
    while traceback is not None:
        code, traceback = traceback.tb_frame.f_code, traceback.tb_next
    return code


def _in_callback(frame):
    """Reports whether a frame belongs to a callback of an event loop."""
    while frame is not None and frame.f_code is not events.Handle._run.__code__:
        frame = frame.f_back
    return frame is not None


class Wire:
    """Exchanges lines of JSON. Any thread may send."""

    def __init__(self, interrupts):
        self._interrupts = interrupts
        # A reentrant lock, because a finalizer that prints may run while a line is being
        # sent. A caller that sends several connected lines holds it.
        self.lock = threading.RLock()
        self._sync_lock = threading.Lock()
        self._acks = queue.SimpleQueue()
        self._syncs = 0
        self.forked = False

    def connect(self, fd):
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)

    def mute(self):
        """Drops all messages until connect is called."""
        self._socket = Mute()

    def lines(self):
        with self._socket.makefile("r", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield json.loads(line)

    def send(self, type, content, **fields):
        """Sends one message, as encode makes it."""
        self.write(encode(type, content, **fields))

    def write(self, data):
        """Sends messages, as encode makes them."""
        if self.forked or not data:
            return
        self._interrupts.hold()
        try:
            with self.lock:
                self._socket.sendall(data)
        finally:
            self._interrupts.release()

    def sync(self):
        """Returns when envd has received all messages so far. Later output on descriptors 1 and
        2 follows these messages."""
        if self.forked:
            return
        with self._sync_lock:
            self._syncs += 1
            number = self._syncs
            self.send("sync", {}, seq=number)
            while self._acks.get() != number:
                pass  # the acknowledgement of a sync that was interrupted

    def ack(self, number):
        self._acks.put(number)

    def close_in_child(self):
        """Closes the socket in a forked child, which must not use the kernel's socket."""
        self.forked = True
        self.lock = threading.RLock()  # a thread of the parent may have held the previous lock
        self._socket.close()


class Mute:
    """A socket that drops everything that is sent on it."""

    def sendall(self, data):
        pass


def encode(type, content, **fields):
    """Returns a message as bytes. content is an object, or text that already is JSON."""
    if not isinstance(content, str):
        content = dumps(content)
    line = '{"type":%s,"content":%s' % (dumps(type), content)
    for name, value in fields.items():
        line += ",%s:%s" % (dumps(name), dumps(value))
    return (line + "}\n").encode("ascii")


def dumps(value):
    """Returns value as JSON in ASCII. NaN and infinities become strings, because JSON does not
    have them."""
    try:
        return _encode(value)
    except (TypeError, ValueError):
        return json.dumps(clean(value), allow_nan=False, separators=(",", ":"))


def clean(value, nonfinite=str, other=None, _depth=0):
    """Returns the closest value that JSON can represent. If there is none, returns other(value)
    or raises a TypeError."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else nonfinite(value)
    if _depth > 200:
        raise TypeError("nested too deeply, or contains itself")
    if isinstance(value, dict):
        return {_key(k): clean(v, nonfinite, other, _depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(v, nonfinite, other, _depth + 1) for v in value]
    try:
        plain = _default(value)
    except TypeError:
        if other is None:
            raise
        return other(value)
    return clean(plain, nonfinite, other, _depth + 1)


def _key(key):
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    return key.isoformat() if hasattr(key, "isoformat") else str(key)


def _default(value):
    # The next three types become the same JSON as with orjson, the service's serialiser.
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, getattr(sys.modules.get("uuid"), "UUID", ())):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if not f.name.startswith("_") and hasattr(value, f.name)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    # This handles numpy's scalars and arrays without importing numpy.
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        plain = value.tolist()
        if type(plain) is not type(value):
            return plain
    raise TypeError("%s is not JSON" % type(value).__name__)


# quoted(text) is text as a JSON string in ASCII.
quoted = json.encoder.encode_basestring_ascii

_encode = json.JSONEncoder(allow_nan=False, default=_default, separators=(",", ":")).encode


def bundle(data):
    """Returns a MIME bundle as JSON text, and a line for each representation that the bundle
    cannot contain."""
    parts, refused, size = [], [], 0
    for mime, value in data.items():
        try:
            text = dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            refused.append("%s is left out of a result: %s" % (mime, error))
            continue
        if size + len(text) > MAX_BUNDLE:
            refused.append("%s is left out of a result: %d bytes, the limit for all is %d" % (mime, len(text), MAX_BUNDLE))
            continue
        size += len(text)
        parts.append("%s:%s" % (dumps(str(mime)), text))
    return "{" + ",".join(parts) + "}", refused
