"""sys.stdout and sys.stderr of a kernel."""
import codecs
import collections
import io
import os
import queue
import threading
from time import sleep

from .wire import encode, quoted

# Printed text waits for DELAY seconds, or until it has SIZE characters. So a million small
# prints become a few hundred messages. For pieces larger than SIZE, Python would allocate
# memory from the system and return it each time.
DELAY = 0.004
SIZE = 1 << 15

# Texts with fewer than SMALL characters are only counted, not measured. They are sent once
# there are MANY of them.
SMALL = 1 << 8
MANY = 1 << 14


class _Error(str):
    """Text printed to stderr, to distinguish it from text printed to stdout."""


class Message(bytes):
    """A message, as encode makes it, that waits with the printed text."""


KINDS = {"stdout": str, "stderr": _Error}
NAMES = {kind: name for name, kind in KINDS.items()}


class Output:
    """Buffers both streams together, so that their order is kept. Also buffers the results and
    errors of cells, because the reply, which follows at once, can be sent with them."""

    def __init__(self, wire, interrupts):
        self._wire = wire
        self._interrupts = interrupts
        # This needs no lock: an append is atomic, and flush sends the texts that it finds.
        self.texts = collections.deque()
        self.room = MANY  # number of texts that may wait; none in a forked child
        self.scheduled = False  # a flush of the waiting texts is scheduled
        self._size = 0
        self._wake = queue.SimpleQueue()

    def start(self):
        threading.Thread(target=self._run, name="output", daemon=True).start()

    def write(self, text):
        """Buffers a text of any size, which has one of KINDS, or a Message."""
        self.texts.append(text)
        self._size += len(text)
        if self._size >= SIZE or len(self.texts) >= MANY:
            self.flush()
        elif not self.scheduled:
            self.schedule()

    def schedule(self):
        self._interrupts.hold()  # an interrupt between the two steps would stop flushing for ever
        try:
            self.scheduled = True
            self._wake.put(None)
        finally:
            self._interrupts.release()

    def flush(self, last=b""):
        """Returns when all texts have been sent, including those that another thread is about
        to send, and then the messages last. A reply must not overtake texts."""
        self._interrupts.hold()
        try:
            with self._wire.lock:
                if not self.texts:
                    if last:
                        self._wire.write(last)
                    return
                self._size = 0
                data, kind, taken = [], None, []
                for _ in range(len(self.texts)):
                    try:
                        text = self.texts.popleft()
                    except IndexError:
                        break  # a finalizer has printed and flushed
                    if text.__class__ is not kind:
                        self._encode(kind, taken, data)
                        kind, taken = text.__class__, []
                    taken.append(text)
                self._encode(kind, taken, data)
                data.append(last)
                self._wire.write(b"".join(data))
        finally:
            self._interrupts.release()

    def _encode(self, kind, texts, data):
        """Appends the messages with texts of one kind to data. Sends all but the last one if
        they are large."""
        if kind is Message:
            data += texts
            return
        text = "".join(texts)
        for start in range(0, len(text), SIZE):
            if start:
                self._wire.write(b"".join(data))
                data.clear()
            # Envd parses this form faster than others.
            data.append(encode("stream", '{"name":"%s","text":%s}' % (NAMES[kind], quoted(text[start:start + SIZE]))))

    def _run(self):
        while True:
            self._wake.get()
            sleep(DELAY)
            self.scheduled = False
            self.flush()

    def forget(self):
        """Drops the buffered texts in a forked child, because the parent sends them."""
        self.texts.clear()
        self.room = 0


class Stream(io.TextIOBase):
    """A text stream. Its text goes to the client or, in a forked child, to the descriptor with
    the stream's name."""

    encoding = "UTF-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    mode = "w"

    def __init__(self, name, fd, output, wire):
        super().__init__()
        self.name = "<%s>" % name
        self._kind = KINDS[name]
        self._fd = fd
        self._output = output
        self._wire = wire
        self.buffer = _Bytes(self)
        if self._kind is str:
            self.write = self._quick()

    def _quick(self):
        """Returns a fast write for small texts. Nearly all texts are small. A print calls write
        twice, so each step of write affects the duration of a million prints."""
        output, texts, append = self._output, self._output.texts, self._output.texts.append
        write = self.write  # the method below

        def quick(text):
            if type(text) is not str or len(text) >= SMALL or len(texts) >= output.room:
                return write(text)
            append(text)
            if not output.scheduled:
                output.schedule()
            return len(text)

        return quick

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        if self._wire.forked:
            data = text.encode(self.encoding, self.errors)
            while data:
                data = data[os.write(self._fd, data):]
        elif text:
            self._output.write(self._kind(str.__str__(text)))
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
