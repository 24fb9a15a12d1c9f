# Calls parts of the driver that need no kernel. Prints the failures, then "done".
import asyncio
import datetime
import enum
import json
import queue
import sys
import threading
import uuid

from _e2bctl_kernel import errors, plain, streams, tasks, wire


def check(what, got, want):
    if got != want:
        print("%s: got %.500r, want %.500r" % (what, got, want))


def raised(function, *arguments):
    """Returns the name of the exception that a function raises; "" if it raises none."""
    try:
        function(*arguments)
    except BaseException as error:
        return type(error).__name__
    return ""


class Sent:
    """A wire that keeps all messages."""

    def __init__(self):
        self.lock, self.forked, self.sent = threading.RLock(), False, []

    def send(self, type, content, **fields):
        self.sent.append((type, content, fields))

    def write(self, data):
        for line in data.splitlines():
            message = json.loads(line)
            self.send(message.pop("type"), json.dumps(message.pop("content")), **message)

    def texts(self):
        """Returns what was sent as text of a stream, and drops it."""
        sent, self.sent = [json.loads(content) for _, content, _ in self.sent], []
        return [(one["name"], one["text"]) for one in sent]


class Held:
    """Interrupts that count how often they are held."""

    held = expected = heard = 0

    def hold(self):
        self.held += 1

    def release(self):
        self.held -= 1

    def expect(self):
        self.expected += 1

    def listen(self):
        self.heard += 1


# JSON of any value.
class Kind(enum.Enum):
    A = "a"


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


for value, want in (
    (float("nan"), '"nan"'), ([1.5, float("-inf")], '[1.5,"-inf"]'), (True, "true"), ({1: 2, None: 3, True: 4, 1.5: 5}, '{"1":4,"null":3,"1.5":5}'),
    ({Kind.A: Kind.A}, '{"a":"a"}'), (frozenset((1,)), "[1]"), (b"\xff", '"/w=="'), (bytearray(b"a"), '"YQ=="'), (memoryview(b"a"), '"YQ=="'),
    (datetime.date(2020, 1, 2), '"2020-01-02"'), (datetime.time(1, 2), '"01:02:00"'), ({datetime.date(2020, 1, 2): 1}, '{"2020-01-02":1}'),
    (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'), ("\u2028\ud800", '"\\u2028\\ud800"'), ((1, (2,)), "[1,[2]]"),
):
    check("JSON of %r" % (value,), wire.dumps(value), want)
for value in object(), [object()], {1: {2: object}}, Kind:
    check("JSON of %r" % (value,), raised(wire.dumps, value), "TypeError")
check("a value for those that are not JSON", wire.clean([object(), float("nan")], nonfinite=lambda _: None, other=lambda _: "other"), ["other", None])
check("nested as deeply as may be", raised(wire.clean, nested(200)), "")
check("nested too deeply", raised(wire.clean, nested(201)), "TypeError")

# Bundles of representations.
wire.MAX_BUNDLE, limit = 20, wire.MAX_BUNDLE
check("a bundle of exactly the limit", wire.bundle({"a/b": "x" * 8, "c/d": "y" * 8}), ('{"a/b":"%s","c/d":"%s"}' % ("x" * 8, "y" * 8), []))
check("a bundle of a byte more", wire.bundle({"a/b": "x" * 8, "c/d": "y" * 9, "e/f": 1}),
      ('{"a/b":"%s","e/f":1}' % ("x" * 8), ["c/d is left out of a result: 11 bytes, the limit for all is 20"]))
check("a bundle of what is not JSON", wire.bundle({"a/b": object()}), ("{}", ["a/b is left out of a result: object is not JSON"]))
wire.MAX_BUNDLE = limit

# Errors.
errors.MAX_ERROR, limit = 10, errors.MAX_ERROR
check("a text of the limit", errors._shortened("0123456789"), "0123456789")
check("a text of one more", errors._shortened("0123456789a"), "01234\n[... 1 characters left out ...]\n6789a")
errors.MAX_ERROR = limit
first, second, third = ValueError(1), ValueError(2), ValueError(3)
first.__cause__, first.__context__, second.__context__ = second, third, first
check("a chain that contains itself", sorted(error.args[0] for error in errors.chain(first)), [1, 2, 3])
check("the error for input in a cell", issubclass(errors.no_stdin(True), EOFError), False)
check("the error for input between cells", issubclass(errors.no_stdin(False), EOFError), True)
check("their names", (errors.no_stdin(True).__name__, errors.no_stdin(False).__name__), ("StdinNotImplementedError", "StdinNotImplementedError"))
sys.modules["xlrd"] = None  # as if it were missing
for text in "install xlrd", "xlrd is required. ":
    error = ImportError(text)
    errors.advise(error)
    advised = error.msg
    errors.advise(error)
    check("advice, twice", (error.msg, advised), (advised, text.rstrip(" .") + "; " + errors.remedy("xlrd", "xlrd")))
for text, want in (" " * (errors.MAX_ADVISED - 12) + "install xlrd", True), (" " * (errors.MAX_ADVISED - 11) + "install xlrd", False):
    error = ValueError(text)
    errors.advise(error)
    check("advice about a text of %d characters" % len(text), "pip install xlrd" in str(error), want)


# Output.
def output():
    sent, held = Sent(), Held()
    made = streams.Output(sent, held)
    return sent, held, made, streams.Stream("stdout", 1, made, sent), streams.Stream("stderr", 2, made, sent)


sent, held, made, out, err = output()
for stream, text in (out, "a"), (out, "b"), (err, "c"), (out, "d" * streams.SMALL), (err, ""):
    check("what write returns", stream.write(text), len(text))
check("text that waits", (sent.texts(), len(made.texts), made.scheduled, held.held), ([], 4, True, 0))
made.flush()
check("text that was flushed", (sent.texts(), len(made.texts), held.held), ([("stdout", "ab"), ("stderr", "c"), ("stdout", "d" * streams.SMALL)], 0, 0))
made.flush()
check("nothing to flush", (sent.texts(), held.held), ([], 0))
out.write("before")
made.write(streams.Message(wire.encode("execute_result", {"data": 1}, id=3)))
err.write("after")
made.flush(wire.encode("reply", {}))
check("messages among texts", sent.sent, [
    ("stream", '{"name": "stdout", "text": "before"}', {}), ("execute_result", '{"data": 1}', {"id": 3}),
    ("stream", '{"name": "stderr", "text": "after"}', {}), ("reply", "{}", {}),
])
sent.sent.clear()
for beyond, want in (-1, 0), (0, 1):
    sent, held, made, out, err = output()
    out.write("x" * (streams.SIZE - 1000))
    err.write("y" * (1000 + beyond))
    check("%d characters beyond those that wait" % beyond, (len(sent.texts()) > 0, made._size), (bool(want), (1 - want) * (streams.SIZE - 1)))
sent, held, made, out, err = output()
for _ in range(streams.MANY):
    out.write("x")
check("as many small texts as may wait", sent.texts(), [])
out.write("x")
check("one more", sent.texts(), [("stdout", "x" * (streams.MANY + 1))])
sent, held, made, out, err = output()
out.write("x" * (2 * streams.SIZE + 5))
check("pieces of a large text", [len(text) for _, text in sent.texts()], [streams.SIZE, streams.SIZE, 5])
out.write("parent")
made.forget()
check("in a child", (len(made.texts), made.room), (0, 0))
out.buffer.write(b"\xc3")
out.buffer.write(b"\xa9\xff")
check("bytes that were cut", "".join(made.texts), "\u00e9\ufffd")
check("a stream of its own kind", (out.name, err.name, out.fileno(), err.fileno(), out.isatty(), out.writable(), out.buffer.writable(), out.buffer.fileno()),
      ("<stdout>", "<stderr>", 1, 2, False, True, True, 1))

# Loops.
woken = []
loop = tasks.Loop(lambda: woken.append(1))
check("a new loop has work", loop.has_work(), False)
handle = loop.call_later(3600, print)
check("one with a timer", loop.has_work(), True)
handle.cancel()
check("one with a timer that was cancelled", loop.has_work(), False)
loop.call_soon(loop.stop)
check("one with a callback", loop.has_work(), True)
loop.run_forever()
check("one whose callback has run", loop.has_work(), False)
loop.call_soon_threadsafe(loop.stop)
check("one that another thread has woken", (loop.has_work(), woken), (True, [1]))
loop.run_forever()
loop.close()

shared = tasks.Tasks(lambda: tasks.Loop(lambda: None))
shared.lend()  # before the start: nothing happens
shared.start()
shared.lend()
check("the loop of a cell", (asyncio.get_running_loop() is shared.loop, shared.loop.is_running()), (True, True))
shared.take_back()
check("the loop between cells", (raised(asyncio.get_running_loop), shared.loop.is_running()), ("RuntimeError", False))
before = shared.loop
before.close()
shared.renew()
check("a loop that was closed is renewed", (shared.loop is before, shared.loop.is_closed()), (False, False))


async def interrupted(handles):
    try:
        raise_later()
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        if handles:
            return "handled"
        raise


def raise_later():
    def strike():
        raise KeyboardInterrupt

    asyncio.get_running_loop().call_soon(strike)


cancelled = []
check("an interrupt that a cell handles", shared.run(interrupted(True), lambda: cancelled.append(1)), "handled")
check("one that it does not", raised(shared.run, interrupted(False), lambda: cancelled.append(2)), "KeyboardInterrupt")
check("both were cancelled", cancelled, [1, 2])

# Requests while the loop runs, and while it does not.
sent, held = Sent(), Held()
requests = tasks.Requests(sent, held)
requests.tasks.renew()
requests.put("a")
check("a request between callbacks", (requests.next(), sent.sent, held.expected), ("a", [], 0))
requests.tasks.loop.call_soon(requests.put, "b")
requests.tasks.loop.call_soon(requests.put, "c")
check("requests that arrive in a callback", (requests.next(), requests.next(), sent.sent, held.expected), ("b", "c", [("armed", {}, {})], 1))
check("the loop listened", held.heard, 1)
ran = []
requests.tasks.loop.call_soon(ran.append, 1)
requests.tasks.loop.call_soon(requests.tasks.loop.call_soon, ran.append, 2)
requests.put("d")
check("a request that is there already", (requests.next(), ran), ("d", []))
threading.Timer(0.01, requests.tasks.loop.call_soon_threadsafe, [requests.put, "e"]).start()
check("a callback of another thread", (requests.next(), ran), ("e", [1, 2]))
requests.tasks.loop.call_exception_handler = lambda context: ran.append(type(context["exception"]).__name__)


def fails():
    requests.put("f")
    raise SystemExit


requests.tasks.loop.call_soon(fails)
check("a callback that exits", (requests.next(), ran), ("f", [1, 2, "SystemExit"]))

# Answers of the engine without IPython.
class Kernel:
    tasks, emitted, shown = shared, [], []

    def emit(self, type, content):
        self.emitted.append((type, content.get("execution_count")))

    emit_last = emit

    def display(self, type, data, metadata=None, **fields):
        self.shown.append((type, data, metadata, fields))


main = sys.modules["__main__"]
engine = plain.Engine(Kernel())
sys.modules["__main__"], made = main, sys.modules["__main__"]
check("completion", engine.answer("complete_request", {"code": "abc", "cursor_pos": 2}), {"status": "ok", "matches": [], "cursor_start": 2, "cursor_end": 2, "metadata": {}})
check("inspection", engine.answer("inspect_request", {}), {"status": "ok", "found": False, "data": {}, "metadata": {}})
check("completeness", engine.answer("is_complete_request", {}), {"status": "unknown"})
check("the history", engine.answer("history_request", {}), {"status": "ok", "history": []})
check("another request", raised(engine.answer, "other_request", {}), "ValueError")
for request, count, shown, emitted in (
    ({"code": "1"}, 1, 1, 1), ({"code": " "}, 1, 1, 2), ({"code": "2", "store_history": False}, 1, 2, 3), ({"code": "3", "silent": True}, 1, 2, 3), ({"code": "4;"}, 2, 2, 4), ({"code": "None"}, 3, 2, 5),
):
    reply = engine.execute(request)
    check("after %r" % (request,), (reply["status"], reply["execution_count"], len(Kernel.shown), len(Kernel.emitted)), ("ok", count, shown, emitted))
check("the last value", engine._globals["_"], 2)
check("the values", Kernel.shown[0], ("execute_result", {"text/plain": "1"}, {}, {"execution_count": 1}))


class Mime:
    def __init__(self, found):
        self.found = found

    def _repr_mimebundle_(self, include, exclude):
        return self.found

    def __repr__(self):
        return "Mime"


for found, want in (
    ({"a/b": 1}, ({"a/b": 1, "text/plain": "Mime"}, {})), (({"text/plain": "own"}, {"m": 1}), ({"text/plain": "own"}, {"m": 1})), ({}, ({"text/plain": "Mime"}, {})), (None, ({"text/plain": "Mime"}, {})),
):
    check("the description of %r" % (found,), plain._describe(Mime(found)), want)
check("that of a class", plain._describe(Mime)[1], {})

# Signals that are sent again.
def again(number, handled, tries):
    """Returns the pauses between the signals, and the number of signals."""
    pauses, kills = [], []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) > 20:
            raise SystemExit  # there are too many

    interrupts = wire.Interrupts()
    interrupts.arm()
    interrupts._handled = handled
    wire.sleep, sleep, wire.signal.pthread_kill, kill = pause, wire.sleep, lambda *_: kills.append(1), wire.signal.pthread_kill
    try:
        interrupts._again(number, 0, tries)
    except SystemExit:
        pass
    finally:
        wire.sleep, wire.signal.pthread_kill = sleep, kill
        interrupts.disarm()
    return pauses, len(kills)


check("as often as may be", again(2, 1, 3), ([0.01, 0.02, 0.04], 3))
check("pauses that grow", again(2, 1, 9), ([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1], 9))
check("one that was handled", again(2, 2, 3), ([0.01], 0))
check("without a bound", again(2, 1, -1)[1], 20)
interrupts = wire.Interrupts()
sent = []
interrupts._again = lambda *arguments: sent.append(arguments)


def no_thread(**_):
    raise RuntimeError("can't start new thread")


wire.threading.Thread, Thread = no_thread, wire.threading.Thread
interrupts._insist(1, 2)
check("without another thread, in the main thread", sent, [])
main_thread, interrupts._main = interrupts._main, 0
interrupts._insist(1, 2)
check("without another thread, elsewhere", sent, [(1, 2, 6)])
interrupts._main, wire.threading.Thread = main_thread, Thread
interrupts._insist = lambda *arguments: sent.append((*arguments, interrupts._held))
unraisable, sys.unraisablehook = sys.unraisablehook, lambda args: sent.append(args.exc_type)
interrupts.watch_finalizers()


class Finalizer:
    def __init__(self, end):
        self.end = end

    def __del__(self):
        self.end()


def strike():
    interrupts.arm()
    interrupts._pending = True
    interrupts._strike()


del sent[:]
Finalizer(strike)
check("an interrupt in a finalizer", (sent, interrupts._held), ([(1, 0, 1)], 0))
for end in (lambda: 1 / 0), (lambda: main.interrupt()):
    Finalizer(end)
check("other errors in finalizers", sent[1:], [ZeroDivisionError, AttributeError])
sys.unraisablehook = unraisable
print("done")
