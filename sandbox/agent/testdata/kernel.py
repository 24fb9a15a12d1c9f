"""A kernel for tests: reads requests as lines of JSON on stdin, writes messages to
stdout. Its two engines stand for the two that sandboxes have. `kernel.py ENGINE` is one
kernel; `kernel.py ENGINE --fork` imports what kernels need, and forks them."""

import ast
import json
import os
import builtins
import sys
import threading
import traceback
import types



def fork():
    """Forks a kernel for each line of JSON on stdin that orders one, ends the one that such
    a line names, and answers each with a line on stdout. Returns only in kernels, which end
    with this process's stdin at the latest."""
    if sys.argv[1] == "ipython":
        IPython.load()
    kernels = set()
    os.write(1, b"ready\n")
    while line := sys.stdin.readline():
        order = json.loads(line)
        if "end" in order:
            os.kill(order["end"], 9)
            os.waitpid(order["end"], 0)
            kernels.remove(order["end"])
            os.write(1, b"%d\n" % order["end"])
            continue
        for pipe in order["stdin"], order["stdout"]:
            os.mkfifo(pipe)
        kernel = os.fork()
        if not kernel:
            become(**order)
            return
        kernels.add(kernel)
        os.write(1, b"%d\n" % kernel)
    for kernel in kernels:
        os.kill(kernel, 9)
    sys.exit()


def become(stdin, stdout, environ):
    """Makes a forked process what a new one would be."""
    sys.argv.remove("--fork")
    os.environ.update(environ)
    for number, path, mode in (0, stdin, os.O_RDONLY), (1, stdout, os.O_WRONLY):
        file = os.open(path, mode)  # waits until the test has opened it, too
        os.dup2(file, number)
        os.close(file)
        os.remove(path)


source = sys.stdin
speaking = threading.Lock()
asking = threading.Lock()
allowed = False


def emit(type, content):
    with speaking:
        out.write(json.dumps({"type": type, "content": content}) + "\n")
        out.flush()


def raw_input(prompt=""):
    if not allowed:
        raise NotImplementedError("this frontend does not support input requests")
    with asking:
        emit("input_request", {"prompt": prompt})
        return json.loads(source.readline())


builtins.input = raw_input


class Stream:
    def write(self, text):
        emit("stream", {"name": "stdout", "text": text})
        return len(text)

    def flush(self):
        pass


def failure(e):
    return {"ename": type(e).__name__, "evalue": str(e), "traceback": traceback.format_exception(type(e), e, e.__traceback__)}


def describe(value):
    method = getattr(value, "_repr_mimebundle_", None)
    return method(include=None, exclude=None) if method else {"text/plain": repr(value)}


class Plain:
    def __init__(self):
        self.main = types.ModuleType("__main__")
        sys.modules["__main__"] = self.main
        # The place where the driver of a sandbox lets cells be rewritten.
        self.transformers = []
        sys.modules["_e2bctl_kernel.plain"] = self

    def run(self, code, silent):
        scope = self.main.__dict__
        tree = ast.parse(code)
        for transformer in self.transformers:
            tree = transformer.visit(tree)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, "<cell>", "exec"), scope)
        value = eval(compile(last, "<cell>", "eval"), scope) if last else None
        if value is not None and not silent:
            scope["_"] = value
            emit("execute_result", {"data": describe(value), "metadata": {}})

    def expressions(self, wanted):
        answers = {}
        for name, text in wanted.items():
            try:
                answers[name] = {"status": "ok", "data": describe(eval(text, self.main.__dict__)), "metadata": {}}
            except Exception as e:
                answers[name] = dict(failure(e), status="error")
        return answers


class IPython:
    @staticmethod
    def load():
        from IPython.core.displayhook import DisplayHook
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets import Type

        return DisplayHook, InteractiveShell, Type

    def __init__(self):
        DisplayHook, InteractiveShell, Type = self.load()

        class Hook(DisplayHook):
            def write_format_data(self, data, metadata=None):
                emit("execute_result", {"data": data, "metadata": metadata or {}})

            def write_output_prompt(self):
                pass

            def finish_displayhook(self):
                pass

        class Shell(InteractiveShell):
            displayhook_class = Type(Hook)

            def _showtraceback(self, etype, evalue, stb):
                pass

        self.shell = Shell.instance()
        self.shell.InteractiveTB.set_mode("Plain")  # nothing shows them, and others take long to make

    def run(self, code, silent):
        result = self.shell.run_cell(code, store_history=not silent, silent=silent)
        if result.error_in_exec or result.error_before_exec:
            raise result.error_in_exec or result.error_before_exec

    def expressions(self, wanted):
        return self.shell.user_expressions(wanted)


if "--fork" in sys.argv:
    fork()
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
engine = {"plain": Plain, "ipython": IPython}[sys.argv[1]]()
out.write("ready\n")
out.flush()
sys.stdout = Stream()
while line := source.readline():
    request = json.loads(line)
    allowed = request["allow_stdin"]
    try:
        engine.run(request["code"], request["silent"])
        emit("execute_reply", {"status": "ok", "user_expressions": engine.expressions(request["user_expressions"] or {})})
    except BaseException as e:
        content = failure(e)
        emit("error", content)
        emit("execute_reply", dict(content, status="error"))
