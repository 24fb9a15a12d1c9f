# Sends signals at each moment of a cell's life. Prints the failures, then "done".
import asyncio
import os
import signal
import threading

from _e2bctl_kernel.wire import Interrupts


def send():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # Python's handler has run by then
        pass


def check(what, want, *steps):
    """Compares the steps that an interrupt has ended with the steps that it must end."""
    struck = []
    for number, step in enumerate(steps):
        try:
            step()
        except KeyboardInterrupt:
            struck.append(number)
    if struck != want:
        print("%s: steps %s were interrupted, want %s" % (what, struck, want))


def inside(function):
    """Returns a step that runs a function as a callback of an event loop."""

    def step():
        loop = asyncio.new_event_loop()
        try:
            loop.call_soon(function)
            loop.call_soon(loop.stop)
            loop.run_forever()
        finally:
            loop.close()

    return step


def elsewhere(function):
    """Returns a step that runs a function in another thread."""

    def step():
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    return step


def new():
    return Interrupts()


i = new()
check("while a cell runs, only", [1, 5], i.arm, send, i.disarm, send, i.arm, send, i.disarm, send, i.arm, i.disarm)
i = new()
check("twice in one cell", [1, 2], i.arm, send, send, i.disarm)
i = new()
check("one that was held when its cell ended", [7], i.arm, i.hold, send, i.disarm, i.release, i.arm, i.admit, send)
i = new()
check("one that was held longer than its cell", [6], i.arm, i.hold, send, i.disarm, i.arm, i.admit, lambda: (i.release(), send()))
i = new()
check("one that was held", [5], i.arm, i.hold, i.hold, send, i.release, i.release, i.disarm)
i = new()
check("one that another thread does not hold back", [2], i.arm, elsewhere(i.hold), send)
i = new()
check("one that another thread does not let go", [4], i.arm, i.hold, send, elsewhere(i.release), i.release)
i = new()
check("one that was deferred", [3], i.arm, i.defer, send, i.admit, i.admit, i.disarm)
i = new()
check("one that was deferred when its cell ended", [5], i.arm, i.defer, send, i.disarm, i.arm, send)
i = new()
check("one that was deferred when its cell ended, and admitted", [], i.arm, i.defer, send, i.disarm, i.admit, i.arm, i.admit)
i = new()
check("one for a request that waits", [2, 3], i.expect, send, i.arm, send, i.disarm, i.arm, i.disarm)
i = new()
check("one for a request that waits for a callback", [1, 2], i.expect, inside(send), i.arm, i.disarm, i.arm)
i = new()
check("one in a callback that nobody waits for", [], inside(send), i.arm, i.disarm)
i = new()
check("one in a callback of a cell", [1], i.arm, inside(send), i.disarm, inside(send), i.arm)
i = new()
check("one after the code took the signal", [4], i.arm, lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), send, i.arm, send)

# A signal that had no effect is sent again, to the same cell only.
i = new()
again = lambda number, cell: lambda: i._again(number, cell)
check("again, to its own cell", [1], i.arm, again(1, 0), i.disarm)
check("again, to the next cell", [], i.arm, again(1, 0), i.disarm)
check("again, between cells", [], again(1, 2))
check("again, to one that waits", [2], i.expect, again(1, 2), i.arm, i.disarm)
check("again, after it had its effect", [1], i.arm, send, again(1, 3), i.disarm)
check("again, though an earlier cell was sent one", [1], i.arm, again(1, 4), i.disarm)
check("again, of two", [1, 2], i.arm, send, again(2, 5), i.disarm)
check("again, with a handler of the code's own", [], i.arm, lambda: signal.signal(signal.SIGINT, lambda *_: None), again(1, 6), i.disarm)
check("again, as often as it may", [], i.arm, lambda: i._again(1, 7, 0), i.disarm)
started = []
i._insist = lambda number, cell: started.append((number, cell))
i.expect_signal(1)
i.arm()
i.expect_signal(2)
i.disarm()
i.expect()
i.expect_signal(3)
if started != [(2, 8), (3, 9)]:
    print("sent again: %s, want those of a cell and of a request that waits" % started)
print("done")
