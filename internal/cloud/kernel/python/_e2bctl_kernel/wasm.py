"""Starts a kernel in Pyodide, that is, Python compiled to WebAssembly, in a worker of Deno.

There are no threads, no processes and no descriptors here. bridge, an object of worker.mjs,
replaces them. It sends a line to the server, waits for the next line, and signals events
while a cell runs. An interrupt and the time to send printed text both arrive as a signal,
between two instructions of Python."""
import asyncio
import builtins
import errno
import gc
import getpass
import json
import os
import platform
import posix
import signal
import site
import sys
import time

# The snapshot also contains the modules for installing packages, whose import takes a
# second.
import csv  # noqa: F401
import email.parser  # noqa: F401
import importlib.metadata  # noqa: F401
import sysconfig  # noqa: F401
import zipfile  # noqa: F401

import pyodide.ffi
from pyodide.ffi import can_run_sync, run_sync as suspend

from . import plain
from .kernel import Kernel
from .streams import Output, Stream
from .tasks import Lent, Tasks
from .wire import Wire

# The worker's main thread sends this signal, instead of an interrupt, when it is time to
# flush.
FLUSH = signal.SIGALRM


class Bridged(Wire):
    """Exchanges lines of JSON through the bridge."""

    def connect(self, bridge):
        self._bridge = bridge
        self._socket = self

    def sendall(self, data):
        self._bridge.send(data.decode("ascii"))

    def sync(self):
        pass  # no other program writes to the client


class Signalled(Output):
    """Output that a signal flushes, because there are no threads."""

    def __init__(self, wire, interrupts):
        super().__init__(wire, interrupts)
        self._flushing = False

    def start(self):
        signal.signal(FLUSH, self._due)

    def schedule(self):
        self.scheduled = True
        self._wire._bridge.schedule()

    def _due(self, signum, frame):
        self.flush()

    def flush(self, last=b""):
        if self._flushing:
            self._wire.write(last)
            return  # a signal has arrived meanwhile: all texts are being sent
        self._flushing = True
        self.scheduled = False  # the signal may never arrive: it is only for code that continues to run
        try:
            while self.texts:
                super().flush()
            self._wire.write(last)
        finally:
            self._flushing = False


class Received:
    """The requests that arrive through the bridge. Tasks that cells leave in the loop wait for
    the next cell that awaits, because the only thread waits for the bridge."""

    def __init__(self, bridge, outer):
        self._bridge = bridge
        self._waiting = []  # requests that arrived while a cell waited for an answer
        self._told = False
        self.tasks = Tasks(lambda: Loop(bridge, outer))

    def receive(self):
        """Returns the next message. Signals take effect while it waits."""
        while (line := self._bridge.receive()) is None:
            pass
        return json.loads(line)

    def keep(self, request):
        self._waiting.append(request)

    def next(self):
        while not self._waiting:
            message = self.receive()
            if message["type"] != "input_reply":  # answers a question that was interrupted
                return message
        return self._waiting.pop(0)

    def tell(self):
        """Reports, only once, that tasks do not continue."""
        if not self._told and asyncio.all_tasks(self.tasks.loop):
            self._told = True
            print("tasks of asyncio are left: in WebAssembly they go on only while a cell awaits, so await them", file=sys.stderr)


class WasmKernel(Kernel):
    """The kernel, for a Python with one thread."""

    def __init__(self, bridge, outer):
        super().__init__(Bridged, Signalled, lambda wire, interrupts: Received(bridge, outer))
        self._bridge = bridge

    def connect(self):
        self.wire.connect(self._bridge)
        self.output.start()
        sys.stdout = sys.__stdout__ = Stream("stdout", 1, self.output, self.wire)
        sys.stderr = sys.__stderr__ = Stream("stderr", 2, self.output, self.wire)
        builtins.input = self.raw_input
        getpass.getpass = self.getpass
        time.sleep = self._sleep

    def _sleep(self, seconds):
        """Replaces time.sleep, which no interrupt would end."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._bridge.wait(left * 1000)

    def _answer_to(self, number):
        while True:
            message = self._requests.receive()
            if message["type"] != "input_reply":
                self._requests.keep(message)
            elif message["seq"] == number:
                return message

    def _reply(self, message):
        self._requests.tell()
        self._bridge.finish()  # the server may send the next request from here on
        super()._reply(message)


class Loop(Lent, asyncio.BaseEventLoop):
    """An event loop for tasks, timers and promises. Pyodide's own loop, outer, runs only when
    no Python runs, but a kernel always runs. While this loop waits, Python is suspended, and
    the worker runs JavaScript, which settles promises."""

    def __init__(self, bridge, outer):
        super().__init__()
        self._bridge = bridge
        self._outer = outer
        self._suspended = False
        self._selector = self

    def select(self, timeout):
        if not can_run_sync():  # JavaScript has called this code, and waits for it
            if timeout is None:
                raise RuntimeError("code that JavaScript has called waits for what cannot happen before it returns, such as that a promise settles")
            self._bridge.wait(timeout * 1000)
            return ()
        self._bridge.hold()
        try:
            asyncio._set_running_loop(self._outer)  # suspend waits for a future of the running loop
            self._suspended = True
            suspend(self._bridge.idle(-1 if timeout is None else timeout * 1000))
        finally:
            self._suspended = False
            asyncio._set_running_loop(self)
            self._bridge.release()
        return ()

    def call_soon(self, *arguments, **named):
        self._wake()
        return super().call_soon(*arguments, **named)

    def call_at(self, *arguments, **named):
        self._wake()
        return super().call_at(*arguments, **named)

    def _wake(self):
        if self._suspended:  # so JavaScript has called Python
            self._bridge.wake()

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass

    def get_debug(self):
        return False


# The methods besides _repr_mimebundle_ with which values represent themselves, as in
# IPython.
METHODS = {
    "_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_svg_": "image/svg+xml", "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg", "_repr_pdf_": "application/pdf", "_repr_latex_": "text/latex", "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}


def describe(value):
    """Returns the MIME bundle of a value, and the metadata. A representation that fails is left
    out, and reported on stderr."""
    data, metadata = {"text/plain": repr(value)}, {}
    if isinstance(value, type):
        return data, metadata
    if isinstance(value, (dict, list)):
        try:
            json.dumps(value, allow_nan=False)
            data["application/json"] = value
        except (TypeError, ValueError, RecursionError):
            pass
    bundle, more = represent(value, "_repr_mimebundle_", include=None, exclude=None)
    data.update(bundle or {})
    metadata.update(more)
    for method, mime in METHODS.items():
        found, more = represent(value, method)
        if found is not None:
            data.setdefault(mime, found)
            if more:
                metadata.setdefault(mime, more)
    return data, metadata


def represent(value, method, **arguments):
    """Returns the result of a value's method, and the metadata. Returns (None, {}) if there is
    no result."""
    call = getattr(value, method, None)
    if call is None:
        return None, {}
    try:
        found = call(**arguments)
    except Exception as error:
        print("%s of %s failed: %s: %s" % (method, type(value).__name__, type(error).__name__, error), file=sys.stderr)
        return None, {}
    return found if isinstance(found, tuple) and len(found) == 2 else (found, {})


class Engine(plain.Engine):
    """The engine for a Python without IPython. It supports the same representations as IPython."""

    @staticmethod
    def remedy(module, package):
        """Returns the remedy for a missing module. Neither pip nor a setup of this machine
        helps."""
        return ("this Python runs in WebAssembly, so start the local cloud with a full Pyodide distribution (e2bctl local up --pyodide-dist DIR, "
                "WasmParams.PyodideDist in Go) and have Packages.Install add %s, if that distribution or an index has it for WebAssembly" % package)

    def __init__(self, kernel):
        super().__init__(kernel, describe)
        builtins.display = self._display
        pyodide.ffi.run_sync = self._run_sync

    def _run_sync(self, awaitable):
        """Replaces Pyodide's function, which would wait for a loop that does not run."""
        async def wait():
            return await awaitable

        return self.kernel.tasks.run(wait())

    def _display(self, *values):
        for value in values:
            data, metadata = describe(value)
            self.kernel.display("display_data", data, metadata, transient={})


def refuse_processes():
    """Makes calls that would start a program raise the exception that subprocess raises here.
    Otherwise, some of these calls end Python."""
    def refuse(*arguments, **named):
        raise OSError(errno.ENOTSUP, "there are no processes in WebAssembly")

    for name in ("system", "fork", "execv", "execve"):
        setattr(os, name, refuse)
        setattr(posix, name, refuse)


class Policy(asyncio.events._BaseDefaultEventLoopPolicy):
    def __init__(self, bridge, outer):
        super().__init__()
        self._loop_factory = lambda: Loop(bridge, outer)


def add_packages():
    """Adds the directory of packages that are installed in the home to sys.path. The packages
    of Pyodide itself are in memory, and new in each kernel."""
    site.ENABLE_USER_SITE = True
    site.USER_BASE = os.path.expanduser("~/.local")
    site.USER_SITE = "%s/lib/python%d.%d/site-packages" % (site.USER_BASE, *sys.version_info[:2])
    site.addsitedir(site.USER_SITE)


def main(bridge, environ, directory):
    """Serves requests until the process ends."""
    os.environ.clear()
    os.environ.update(environ)
    outer = asyncio.get_event_loop()  # the loop of Pyodide
    asyncio._set_running_loop(None)
    asyncio.run = asyncio.runners.run
    asyncio.events._set_event_loop_policy(Policy(bridge, outer))
    kernel = WasmKernel(bridge, outer)
    kernel.connect()
    kernel.tasks.start()
    engine = Engine(kernel)
    sys.argv = [""]
    add_packages()
    refuse_processes()
    try:
        engine.enter(directory)
    except OSError as error:
        print("cannot change to %s: %s" % (directory, error.strerror), file=sys.stderr)
    kernel.emit("ready", {"python": platform.python_version(), "engine": engine.name, "version": engine.version, "note": ""})
    gc.freeze()
    kernel.serve(engine)
