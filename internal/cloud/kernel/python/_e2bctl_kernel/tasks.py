"""asyncio in a kernel: the loop, the coroutines of cells, and the tasks that run between cells."""
import asyncio
import contextlib
import os
import queue
import signal
import threading
from asyncio import events

from .errors import hide_own_frames

_get_running, _set_running = events._get_running_loop, events._set_running_loop


class Lent:
    """The part of an event loop that makes the loop count as running while a cell runs,
    although the cell is not a callback of the loop. Code that asks for the running loop
    receives it, and may create tasks. The code can still run this loop, or any other."""

    lent = False

    def is_running(self):
        return self.lent or super().is_running()

    def idle(self):
        """Reports whether no callback of the loop is running."""
        return not super().is_running()

    def run_forever(self):
        lent, self.lent, nested = self.lent, False, super().is_running()
        try:
            super().run_forever()
        finally:
            # In Python 3.14, an interrupt between two iterations of the loop bypasses the
            # loop's finally.
            if super().is_running() and not nested:
                self._run_forever_cleanup()
            self.lent = lent

    def run_until_complete(self, future):
        lent, self.lent = self.lent, False
        try:
            return super().run_until_complete(future)
        finally:
            self.lent = lent

    def close(self):
        self.lent = False  # code that made the running loop its own may close it
        super().close()


class Loop(Lent, asyncio.SelectorEventLoop):
    """The loop of a kernel with threads. woken is called when another thread may have added
    work."""

    def __init__(self, woken):
        self._woken = woken
        super().__init__()

    def call_soon_threadsafe(self, *arguments, **named):
        handle = super().call_soon_threadsafe(*arguments, **named)
        self._woken()
        return handle

    def has_work(self):
        """Reports whether the loop has work to do, or to wait for, without another cell."""
        own = 1  # the descriptor with which other threads wake the loop
        return bool(self._ready or self._signal_handlers or len(self._selector.get_map() or ()) > own
                    or any(not handle.cancelled() for handle in self._scheduled))


class Tasks:
    """The loop of a kernel. It does not exist before start, because the zygote must not share
    its descriptors with kernels."""

    def __init__(self, make):
        self._make = make
        self._lent = None
        self._main = threading.get_ident()
        self.loop = None

    def start(self):
        for module in asyncio, events:
            module._get_running_loop, module._set_running_loop = self._running, self._run
        self.renew()

    def renew(self):
        """Creates a loop if there is none, or if code has closed it."""
        if self.loop is None or self.loop.is_closed():
            self.loop = self._make()

    def _running(self):
        """Replaces the function with which loops check whether they may run."""
        loop = _get_running()
        return None if isinstance(loop, Lent) and loop.idle() else loop

    def _run(self, loop):
        """Replaces the function with which loops record that they run, or no longer run."""
        _set_running(self._lent if loop is None and threading.get_ident() == self._main else loop)

    def lend(self):
        """Makes the loop count as running until take_back."""
        if self.loop is None:
            return
        self.renew()
        with contextlib.suppress(Exception):  # raised by a policy that code has set
            asyncio.set_event_loop(self.loop)  # asyncio.run in an earlier cell has removed the loop
        self._lent, self.loop.lent = self.loop, True
        _set_running(self.loop)

    def take_back(self):
        if self._lent is not None:
            self._lent.lent = False
            self._lent = None
            _set_running(None)

    def run(self, coroutine, cancelling=lambda: None):
        """Runs a cell's coroutine and returns the result. If the coroutine is interrupted,
        cancelling is called. Then the coroutine is cancelled, because it must not continue
        after the cell. If it handles the cancellation and returns, its result is returned."""
        self.renew()
        loop = self.loop
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except KeyboardInterrupt as error:
            interrupt = error.with_traceback(None)
        if not task.done():
            cancelling()
            task.cancel()
            loop.run_until_complete(asyncio.wait([task], timeout=1))
            if task.done() and not task.cancelled() and task.exception() is None:
                return task.result()
        raise interrupt


class Requests:
    """The requests from envd, in order. Until the next request arrives, tasks of earlier cells
    continue in the loop."""

    def __init__(self, wire, interrupts):
        self._wire = wire
        self._interrupts = interrupts
        self._queue = queue.SimpleQueue()
        self._asleep = False  # only the queue is being waited for
        self._lock = threading.Lock()
        self._running = False  # the loop runs until a request arrives; guarded by _lock
        self._stop = None  # handle that stops the loop; guarded by _lock
        self.tasks = Tasks(lambda: Loop(self._woken))

    def put(self, request):
        with self._lock:
            self._queue.put(request)
            if not self._running or self._stop is not None:
                return
            # A callback may never return. Envd may send a signal from here on.
            self._interrupts.expect()
            self._wire.send("armed", {})
            self._stop = self.tasks.loop.call_soon_threadsafe(self.tasks.loop.stop)

    def _woken(self):
        if self._asleep:
            self._asleep = False
            self._queue.put(None)

    def next(self):
        while True:
            self.tasks.renew()
            self._asleep = True
            if self.tasks.loop.has_work():
                self._asleep = False
                self._run()
            request = self._queue.get()
            self._asleep = False
            if request is not None:
                return request

    def _run(self):
        """Runs the loop until there is a request."""
        self._interrupts.listen()
        while True:
            with self._lock:
                self._running = self._queue.empty()
                if not self._running:
                    if self._stop is not None:
                        self._stop.cancel()  # if an interrupt has already ended the loop, this must not end the next cell's loop
                        self._stop = None
                    return
            try:
                self.tasks.loop.run_forever()
            except BaseException as error:  # raised by a callback that exits or is interrupted; the other callbacks continue
                hide_own_frames(error)
                with contextlib.suppress(BaseException):  # raised by a handler that code has set
                    self.tasks.loop.call_exception_handler({"message": "A callback between cells has ended", "exception": error})
            if self._wire.forked:
                os._exit(0)  # a child that a callback forked

    def forget(self):
        """Ends the loop in a child that a callback between cells forked, after the callback
        returns."""
        if self._running:
            self.tasks.loop.stop()
