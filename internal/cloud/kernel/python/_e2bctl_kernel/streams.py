"""sys.stdout and sys.stderr of a kernel."""
import codecs
import collections
import io
import os
import queue
import threading
import time

# What is printed waits this long, or until it is this much (in characters), so
# that a million tiny prints are a few hundred messages.
DELAY = 0.004
SIZE = 1 << 16


class Output:
    """Both streams in one buffer, which keeps the order between them."""

    def __init__(self, wire, interrupts):
        self._wire = wire
        self._interrupts = interrupts
        self._lock = threading.RLock()
        self._parts = collections.deque()
        self._size = 0
        self._scheduled = False
        self._wake = queue.SimpleQueue()

    def start(self):
        threading.Thread(target=self._run, name="output", daemon=True).start()

    def write(self, stream, text):
        # Without a lock: one append is atomic, and flush takes what it finds.
        self._parts.append((stream, text))
        self._size += len(text) + 1
        if self._size >= SIZE:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._wake.put(None)

    def flush(self):
        if not self._parts:
            return
        self._interrupts.hold()
        try:
            with self._lock:
                self._size = 0
                name, texts, size = None, [], 0
                for _ in range(len(self._parts)):
                    try:
                        stream, text = self._parts.popleft()
                    except IndexError:
                        break  # a finalizer printed, and flushed
                    if stream != name or size >= SIZE:
                        self._send(name, texts)
                        name, texts, size = stream, [], 0
                    texts.append(text)
                    size += len(text)
                self._send(name, texts)
        finally:
            self._interrupts.release()

    def _send(self, name, texts):
        text = "".join(texts)
        for start in range(0, len(text), SIZE):
            self._wire.send("stream", {"name": name, "text": text[start:start + SIZE]})

    def _run(self):
        while True:
            self._wake.get()
            time.sleep(DELAY)
            self._scheduled = False
            self.flush()

    def forget(self):
        """In a forked child: what is buffered is the parent's to send."""
        self._parts.clear()
        self._lock = threading.RLock()


class Stream(io.TextIOBase):
    """A text stream whose text goes to the client, or, in a forked child, to
    the descriptor of the same name."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    mode = "w"

    def __init__(self, name, fd, output, wire):
        super().__init__()
        self.name = "<%s>" % name
        self._name = name
        self._fd = fd
        self._output = output
        self._wire = wire
        self.buffer = _Bytes(self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        if self._wire.forked:
            data = text.encode(self.encoding, self.errors)
            while data:
                data = data[os.write(self._fd, data):]
        elif text:
            self._output.write(self._name, text)
        return len(text)

    def flush(self):
        self._output.flush()

    def fileno(self):
        return self._fd

    def isatty(self):
        return False

    def writable(self):
        return True

    def reconfigure(self, **options):
        pass

    def close(self):
        pass  # code that closes sys.stdout must not silence the kernel


class _Bytes(io.BufferedIOBase):
    """sys.stdout.buffer."""

    def __init__(self, stream):
        super().__init__()
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.raw = self

    def write(self, data):
        data = bytes(data)
        self._stream.write(self._decoder.decode(data))
        return len(data)

    def flush(self):
        self._stream.flush()

    def fileno(self):
        return self._stream.fileno()

    def writable(self):
        return True

    def close(self):
        pass
