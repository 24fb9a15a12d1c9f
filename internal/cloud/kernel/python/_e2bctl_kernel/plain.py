"""The engine for a Python without IPython. It uses only the standard library."""
import ast
import inspect
import linecache
import os
import sys
import textwrap
import traceback
import types

from .errors import advise, chain, failure, hide_own_frames, remedy
from .sources import Sources


# Objects with a method visit(tree) -> tree. They rewrite a cell before it is compiled, like
# IPython's ast_transformers.
transformers = []


class Engine:
    """Supports exec, the value of the last expression, tracebacks, input and
    top-level await, but no magics and no display."""

    name = "python"
    version = sys.version.partition(" ")[0]
    remedy = staticmethod(remedy)

    def __init__(self, kernel, describe=None):
        self.kernel = kernel
        self._describe = describe or _describe
        self._count = 0
        self._sources = Sources()
        main = types.ModuleType("__main__")
        main.__builtins__ = sys.modules["builtins"]
        sys.modules["__main__"] = main
        self._globals = main.__dict__

    def enter(self, directory):
        """Enters a directory."""
        os.chdir(directory)

    def execute(self, request):
        silent = request.get("silent", False)
        source = textwrap.dedent(request["code"])
        if not silent:
            if source.strip() and request.get("store_history", True):
                self._count += 1
            self.kernel.emit("execute_input", {"code": request["code"], "execution_count": self._count})
        try:
            value = self._run(source)
            if value is not None and not silent:
                self._globals["_"] = value
                data, metadata = self._describe(value)
                self.kernel.display("execute_result", data, metadata, execution_count=self._count)
        except BaseException as error:
            self.kernel.restore_modules()
            advise(error, self.remedy)
            content = failure(error, self._traceback(error))
            self.kernel.emit_last("error", content)
            return dict(content, status="error", execution_count=self._count)
        expressions = {name: self._expression(text) for name, text in (request.get("user_expressions") or {}).items()}
        return {"status": "ok", "execution_count": self._count, "user_expressions": expressions, "payload": []}

    def answer(self, type, content):
        if type == "complete_request":
            position = content.get("cursor_pos", 0)
            return {"status": "ok", "matches": [], "cursor_start": position, "cursor_end": position, "metadata": {}}
        if type == "inspect_request":
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}
        if type == "is_complete_request":
            return {"status": "unknown"}
        if type == "history_request":
            return {"status": "ok", "history": []}
        raise ValueError("%s is not supported" % type)

    def _run(self, source):
        name = "<cell %d>" % self._count
        # Tracebacks read their source lines from this cache.
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        self._sources.keep(name, source)
        tree = ast.parse(source, name)
        for transformer in transformers:
            tree = transformer.visit(tree)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        self._evaluate(tree, name, "exec")
        return self._evaluate(last, name, "eval") if last else None

    def _evaluate(self, tree, name, mode):
        code = compile(tree, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if not code.co_flags & inspect.CO_COROUTINE:
            return eval(code, self._globals)
        return self.kernel.tasks.run(eval(code, self._globals))

    def _expression(self, text):
        try:
            data, metadata = self._describe(eval(text, self._globals))
            return {"status": "ok", "data": data, "metadata": metadata}
        except Exception as error:
            return dict(failure(error, traceback.format_exception_only(type(error), error)), status="error")

    def _traceback(self, error):
        for e in chain(error):
            hide_own_frames(e)
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_globals is not self._globals:
            frames = frames.tb_next  # a frame of the driver, which called the code of the cell
        # The traceback is one string, because some clients join with a newline and others
        # with nothing.
        return ["".join(traceback.format_exception(type(error), error, frames))]


def _describe(value):
    """Returns the MIME bundle of a value, and the metadata."""
    method = getattr(value, "_repr_mimebundle_", None)
    if method is not None and not isinstance(value, type):
        found = method(include=None, exclude=None)
        data, metadata = found if isinstance(found, tuple) else (found, {})
        if data:
            data.setdefault("text/plain", repr(value))
            return data, metadata
    return {"text/plain": repr(value)}, {}
