"""asyncio in a kernel: the loop, the coroutines of cells, and what goes on between cells."""
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
    """The part of an event loop that lets it count as running while a cell runs, though the
    cell is no callback of it. Who asks for the running loop gets it, and may make tasks.
    Running it, or any other loop, is possible nevertheless."""

    lent = False

    def is_running(self):
        return self.lent or super().is_running()

    def idle(self):
        """Reports whether none of its callbacks is running."""
        return not super().is_running()

    def run_forever(self):
        lent, self.lent, nested = self.lent, False, super().is_running()
        try:
            super().run_forever()
        finally:
            # In Python 3.14 an interrupt between two turns of the loop gets past its finally.
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
        self.lent = False  # who made a loop of the running one may close it
        super().close()


class Loop(Lent, asyncio.SelectorEventLoop):
    """The loop of a kernel with threads. woken is called when another thread may have given it something to do."""

    def __init__(self, woken):
        self._woken = woken
        super().__init__()

    def call_soon_threadsafe(self, *arguments, **named):
        handle = super().call_soon_threadsafe(*arguments, **named)
        self._woken()
        return handle

    def has_work(self):
        """Reports whether something is to run, or to be waited for, without another cell."""
        own = 1  # the descriptor by which other threads wake the loop
        return bool(self._ready or self._signal_handlers or len(self._selector.get_map() or ()) > own
                    or any(not handle.cancelled() for handle in self._scheduled))


class Tasks:
    """The loop of a kernel. There is none before start: a process that kernels are forked
    from must not share its descriptors with them."""

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
        """Makes another loop if there is none, or code has closed it."""
        if self.loop is None or self.loop.is_closed():
            self.loop = self._make()

    def _running(self):
        """Takes the place of the function by which loops find out whether they may run."""
        loop = _get_running()
        return None if isinstance(loop, Lent) and loop.idle() else loop

    def _run(self, loop):
        """Takes the place of the function by which loops say that they run, or no longer do."""
        _set_running(self._lent if loop is None and threading.get_ident() == self._main else loop)

    def lend(self):
        """Lets the loop count as running until take_back."""
        if self.loop is None:
            return
        self.renew()
        with contextlib.suppress(Exception):  # of a policy that code has set
            asyncio.set_event_loop(self.loop)  # asyncio.run in an earlier cell has set none
        self._lent, self.loop.lent = self.loop, True
        _set_running(self.loop)

    def take_back(self):
        if self._lent is not None:
            self._lent.lent = False
            self._lent = None
            _set_running(None)

    def run(self, coroutine, cancelling=lambda: None):
        """Runs a cell's coroutine and returns its result. If it is interrupted, cancelling
        is called and then the coroutine is cancelled, because it must not go on after the
        cell. If it handles the cancellation and returns, that is its result."""
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
    """The requests of the agent, in order. Until the next one comes, what earlier cells have
    left in the loop goes on."""

    def __init__(self, wire, interrupts):
        self._wire = wire
        self._interrupts = interrupts
        self._queue = queue.SimpleQueue()
        self._asleep = False  # only the queue is waited for
        self._lock = threading.Lock()
        self._running = False  # the loop runs until a request comes; guarded by _lock
        self._stop = None  # what ends that; guarded by _lock
        self.tasks = Tasks(lambda: Loop(self._woken))

    def put(self, request):
        with self._lock:
            self._queue.put(request)
            if not self._running or self._stop is not None:
                return
            # A callback may never return. The agent may send a signal from here on.
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
                        self._stop.cancel()  # an interrupt may have ended the loop before; the next cell's must not end
                        self._stop = None
                    return
            try:
                self.tasks.loop.run_forever()
            except BaseException as error:  # of a callback that exits or is interrupted; the others go on
                hide_own_frames(error)
                with contextlib.suppress(BaseException):  # of a handler that code has set
                    self.tasks.loop.call_exception_handler({"message": "A callback between cells has ended", "exception": error})
            if self._wire.forked:
                os._exit(0)  # a child that a callback forked

    def forget(self):
        """Ends the loop in a child that a callback between cells forked, once the callback returns."""
        if self._running:
            self.tasks.loop.stop()
