"""The kernel's side of a run's tools: functions that the host answers.

A call goes to the host as a request for input, of which a kernel has one at a
time. To let the calls of many threads overlap nevertheless, a thread that calls
while no other does becomes the leader: it sends all waiting calls to the host and
receives what is finished, its own or not, until its own call is. The host never
holds a request for long: calls that are not finished by then are asked for again.
"""

import ast
import asyncio
import builtins
import concurrent.futures
import functools
import inspect
import json
import os
import sys
import threading

codec = sys.modules["_e2bctl_codec"]
state = sys.modules["_e2bctl_state"]

# Distinguishes requests for the host from those of input().
PREFIX = "\0e2bctl:"
# Servers limit the size of a message: a longer one is sent in parts of this number
# of characters.
PART = 1 << 20
# How many calls that were refused between steps are kept for the host's audit.
REFUSED = 1000
# How many calls a coroutine may have under way.
WORKERS = 64


class ToolError(Exception):
    """What the host returns when a tool fails. type names the kind of error, and
    retryable says whether the same call may succeed later."""

    __module__ = "__main__"  # tracebacks show any other

    def __init__(self, message, tool="", type="", retryable=False):
        super().__init__(message)
        self.tool = tool
        self.type = type
        self.retryable = retryable

    def __reduce__(self):  # also in another process, such as one of a multiprocessing.Pool
        return _tool_error, (str(self), self.tool, self.type, self.retryable)


def _tool_error(*state):
    return ToolError(*state)


class FinalAnswer(BaseException):
    """Ends the code once the host has recorded the answer. Catching it has no
    effect on that."""

    __module__ = "__main__"


class NameTaken(state._rejection()):
    """Refuses a cell that would replace a tool."""

    __module__ = "__main__"


class _Call:
    __slots__ = ("id", "name", "document", "sent", "reply")

    def __init__(self, id, name, document):
        self.id = id
        self.name = name
        self.document = document
        self.sent = False
        self.reply = None


class _Bridge:
    """The connection to the host of one run."""

    def __init__(self, ask):
        self.ask = ask
        self.pid = os.getpid()
        self.open = True
        self.turn = threading.Condition()
        self.calls = {}
        self.leader = None
        self.last = 0  # id of a call
        self.number = 0  # of an exchange
        self.refused = []  # the names of tools that were called between steps
        self._pool = None

    def pool(self):
        with self.turn:
            if self._pool is None:
                self._pool = concurrent.futures.ThreadPoolExecutor(WORKERS, "tools")
            return self._pool

    def call(self, name, arguments):
        document = codec.encode(arguments).decode("utf-8")
        if os.getpid() != self.pid:
            raise ToolError("%s: a tool can be called only in the kernel's own process" % name, name, "Unreachable")
        with self.turn:
            self.last += 1
            call = self.calls[self.last] = _Call(self.last, name, document)
        try:
            with self.turn:
                while call.reply is None and self.leader is not None:
                    self.turn.wait()
                if call.reply is None:
                    self.leader = call
            while call.reply is None:
                self.exchange(name)
        finally:
            # An interrupt ends up here, too: the host learns from the next
            # exchange that nothing waits for this call any longer.
            with self.turn:
                del self.calls[call.id]
                if self.leader is call:
                    self.leader = None
                self.turn.notify_all()
        return _result(name, *call.reply)

    def exchange(self, name):
        if not self.open:
            raise ToolError("%s: the run that this tool belongs to is closed" % name, name, "Unreachable")
        with self.turn:
            self.number += 1
            fresh = [c for c in self.calls.values() if not c.sent]
            waiting = [c for c in self.calls.values() if c.sent and c.reply is None]
        head = json.dumps({"calls": [[c.id, c.name] for c in fresh], "waiting": [c.id for c in waiting]})
        try:
            text = self.transfer("\n".join([head] + [c.document for c in fresh]))
        except NotImplementedError:  # raised by a kernel that may not ask
            self.refused += [c.name for c in fresh[: REFUSED - len(self.refused)]]
            return self.fail(fresh + waiting, "no step of the run is under way")
        except EOFError:
            # The host may have made the calls: the next step must not make them again.
            return self.fail(fresh + waiting, "the host has ended the step")
        head, *documents = text.split("\n")
        with self.turn:
            for c in fresh:
                c.sent = True
            for (id, status), document in zip(json.loads(head), documents):
                if id in self.calls:
                    self.calls[id].reply = (status, document)
            self.turn.notify_all()

    def fail(self, calls, why):
        with self.turn:
            for c in calls:
                c.reply = ("error", json.dumps({"type": "Unreachable", "message": "%s: %s" % (c.name, why), "retryable": False}))
            self.turn.notify_all()

    def transfer(self, text):
        parts = [text[i : i + PART] for i in range(0, len(text), PART)]
        for part in parts[:-1]:
            self.ask("%s%d+%s" % (PREFIX, self.number, part))
        reply = self.ask("%s%d.%s" % (PREFIX, self.number, parts[-1]))
        answer = [reply[1:]]
        while reply[:1] == "+":
            reply = self.ask("%s%d?" % (PREFIX, self.number))
            answer.append(reply[1:])
        if reply[:1] != ".":
            raise ToolError("the host refused the call: %s" % reply[1:], "", "Unreachable")
        return "".join(answer)


def _result(name, status, document):
    if status == "ok":
        return codec.decode(document.encode("utf-8"))
    if status == "final":
        raise FinalAnswer("the run has its final answer")
    error = json.loads(document)
    if error["type"] == "TypeError":
        raise TypeError(error["message"])
    raise ToolError(error["message"], name, error["type"], error["retryable"])


def _function(bridge, spec):
    name = spec["name"]
    optional = frozenset(p["name"] for p in spec["parameters"] if not p["required"])
    signature = inspect.Signature(
        [
            inspect.Parameter(
                p["name"],
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=None if p["name"] in optional else inspect.Parameter.empty,
                annotation=p["type"],
            )
            for p in spec["parameters"]
        ],
        return_annotation=spec["returns"],
    )

    def function(*args, **kwargs):
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as e:
            raise TypeError("%s: %s; call it as %s" % (name, e, spec["signature"])) from None
        try:
            return bridge.call(name, {k: v for k, v in bound.items() if v is not None or k not in optional})
        except (Exception, KeyboardInterrupt) as e:  # frames in this module mean nothing to the cell's author
            raise e.with_traceback(None)

    async def aio(*args, **kwargs):
        work = functools.partial(function, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(bridge.pool(), work)
        except Exception as e:
            raise e.with_traceback(None)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = spec["doc"]
    function.__signature__ = signature
    function.__module__ = "__main__"
    function.Error = ToolError
    aio.__doc__ = "%s, to be awaited." % name
    function.aio = aio
    return function


class _Names:
    """Keeps the names of tools for the tools: models write `search = search("x")`, and
    would never finish a run whose final_answer is a string. A cell whose text does
    that is refused; after other cells the tools are put back before the next one."""

    def visit(self, tree):
        state._namespace().update(_placed)
        todo = [tree]  # no recursion: the depth of a cell is limited only by Python
        while todo:
            node = todo.pop()
            for name in _assigned(node):
                if name in _placed:
                    raise NameTaken("Cannot assign to the name %s (line %d): it is a tool. Choose another name" % (name, node.lineno))
            todo.extend(_inside(node))
        return tree


def _assigned(node):
    """Returns the names to which a part of a cell assigns values."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    # Names of functions and classes, of except clauses and of patterns.
    return [getattr(node, "name", None), getattr(node, "rest", None)]


def _inside(node):
    """Returns the parts of a node whose names are not in a scope of their own."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Import, ast.ImportFrom)):
        return []
    if isinstance(node, ast.comprehension):
        return [node.iter, *node.ifs]
    return ast.iter_child_nodes(node)


_bridge = None
_names = _Names()
# The last run's description of its tools, under its key.
_specs = (None, None)
_placed = {}
_limit = None  # of memory, as it was before the run


def begin(key, memory, specs):
    """Makes the tools of a run callable, and bounds the memory that code may add.
    Their description, which key identifies, can be left out if it is the last one
    that was given. Answers whether the description is known, and the names that are
    already taken; if there are any, nothing was done."""
    global _bridge, _specs
    end()
    if specs:
        _specs = (key, specs)
    known, specs = _specs
    if known != key:
        return state.Reply(codec.encode({"known": False}))
    namespace = state._namespace()
    functions = {}
    taken = []
    ask = getattr(getattr(state._shell(), "kernel", None), "raw_input", None) or builtins.input
    bridge = _Bridge(ask)
    for spec in json.loads(specs):
        if spec["name"] in namespace and not _left_over(namespace[spec["name"]]):
            taken.append(spec["name"])
        functions[spec["name"]] = _function(bridge, spec)
    if not taken:
        if memory:
            _bound(memory)
        _bridge = bridge
        _placed.update(functions)
        namespace.update(functions)
        transformers = state._transformers()
        if transformers is not None:
            transformers.append(_names)
    return state.Reply(codec.encode({"known": True, "taken": taken}))


def placed():
    """Answers whether the tools of a run are callable."""
    return state.Reply(codec.encode({"placed": _bridge is not None}))


def _left_over(value):
    """Reports whether it is a tool of an earlier run that was not removed, because code
    had removed the module that placed it."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename == _left_over.__code__.co_filename


def end():
    """Removes the tools of the last run, except for names to which code gave another
    value. Answers the names of those that were called between steps."""
    global _bridge, _limit
    refused = []
    if _bridge is not None:
        refused = _bridge.refused
        _bridge.open = False
        if _bridge._pool is not None:
            _bridge._pool.shutdown(wait=False)
        _bridge = None
    namespace = state._namespace()
    for name, function in _placed.items():
        if namespace.get(name) is function:
            del namespace[name]
    _placed.clear()
    transformers = state._transformers() or ()
    while _names in transformers:
        transformers.remove(_names)
    if _limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, _limit)
        _limit = None
    return state.Reply(codec.encode({"refused": refused}))


def _bound(memory):
    global _limit
    try:
        import resource
    except ImportError:
        raise NotImplementedError("Limits.MaxMemoryBytes is not supported by this Python, which has no module resource: bound the memory of the sandbox") from None
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[5]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    soft = used + memory
    if before[1] != resource.RLIM_INFINITY:
        soft = min(soft, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (soft, before[1]))
    _limit = before
