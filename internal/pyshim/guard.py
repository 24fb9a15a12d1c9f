"""The guard of a run: what code of the user's namespace may import and call.

It is a guardrail and a record, not isolation. The code of a cell gets its own
builtins, whose __import__ returns stand-ins for modules: modules that hold the same
functions, so that they cost nothing, but lead to no module that is not allowed.
What can be seen in the text of a cell is checked before any of it runs. Libraries
run as usual, and so does the code that was in the namespace before: services keep
formatters there that look up modules in the namespace whenever a value is displayed.
So the namespace keeps what it holds; a module in it becomes a stand-in where a cell
names it.
"""

import ast
import builtins
import gc
import importlib
import importlib.util
import itertools
import json
import re
import sys
import threading
import types

_state = sys.modules["_e2bctl_state"]

# Bounds of the reports that are kept for the host from one step.
MAX_VIOLATIONS = 100
MAX_IMPORTS = 1000
LISTED = 40

_PROCESS = frozenset((
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system",
    "subprocess.Popen", "pty.spawn", "ctypes.cdata", "ctypes.dlopen",
))
_NETWORK = frozenset((
    "socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname",
    "socket.getnameinfo", "socket.sendmsg", "socket.sendto",
))
# Names by which a cell would get other builtins, or change the meaning of these.
_NAMES = frozenset(("__builtin__", "__builtins__", "__build_class__", "__import__", "__loader__", "__spec__"))
# IPython's names that get around the guard; the last has paths, which can open files.
_SHELL = ("exit", "open", "quit", "_dh")
# Builtins that get around it: the last three print any file that they are given.
_REACHING = ("get_ipython", "copyright", "credits", "license")
# Functions that work on the frame of their caller, with their number of arguments.
_OF_FRAME = {
    ("eval", 1): lambda frame, source: eval(source, frame.f_globals, frame.f_locals),
    ("exec", 1): lambda frame, source: exec(source, frame.f_globals, frame.f_locals),
    ("globals", 0): lambda frame: frame.f_globals,
    ("locals", 0): lambda frame: frame.f_locals,
    ("vars", 0): lambda frame: frame.f_locals,
}
# Attributes that lead from any object to frames or to the shell.
_FRAMES = frozenset((
    "ag_frame", "cr_frame", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame", "tb_frame",
    "ag_code", "cr_code", "f_code", "gi_code",
    "_ip", "ast_transformers", "user_global_ns", "user_ns",
))
# Double-underscore attributes that lead nowhere: protocols and descriptions.
_PROTOCOL = frozenset("__%s__" % name for name in (
    "abs add aenter aexit aiter all and anext annotations array await bool bytes call cause ceil class_getitem complex "
    "contains context copy debug deepcopy delitem divmod doc enter eq exit file float floor floordiv format ge getitem "
    "gt hash iadd iand ifloordiv ilshift imatmul imod imul index init init_subclass int invert ior ipow irshift isub "
    "iter itruediv ixor le len length_hint lshift lt main matmul members missing mod mul name ne neg new next notes or "
    "pos post_init pow qualname radd rand rdivmod repr reversed rfloordiv rlshift rmatmul rmod rmul ror round rpow "
    "rrshift rshift rsub rtruediv rxor set_name setitem sizeof slots str sub suppress_context truediv trunc version xor"
).split())
# The fields of Python's grammar that hold names, by the kind of name: of a variable, or
# of an attribute. alias.name is both after from. A field that is in no list is
# checked as both, so a form that a new Python brings is never unchecked.
_SCOPE = frozenset((
    "AsyncFunctionDef.name", "ClassDef.name", "ExceptHandler.name", "FunctionDef.name", "Global.names", "MatchAs.name",
    "MatchMapping.rest", "MatchStar.name", "Name.id", "Nonlocal.names", "ParamSpec.name", "TypeVar.name",
    "TypeVarTuple.name", "alias.asname", "alias.name", "arg.arg", "keyword.arg",
))
_ATTRIBUTE = frozenset(("Attribute.attr", "MatchClass.kwd_attrs"))
# Fields with other text. The policy checks the name of a module.
_TEXT = frozenset(("Constant.kind", "Constant.value", "ImportFrom.module", "Interpolation.str"))
# The functions that rewritten code calls.
_HELPERS = ("__e2bctl_attribute__", "__e2bctl_module__", "__e2bctl_operation__", "__e2bctl_owner__", "__e2bctl_turns__")
_HINTS = {
    "__class__": "Use type(x) or isinstance(x, T)",
    "__dict__": "Name the attributes that you need",
    "__traceback__": "Use str(error) and type(error)",
}

_armed = None
_loading = threading.local()  # .depth: how many nested allowed imports this thread is in


class GuardViolation(_state._rejection()):
    """Code that a guard refuses: rule and name identify it, line is its line in the cell,
    and suggestion is the remedy."""

    __module__ = "__main__"  # tracebacks show any other

    def __init__(self, rule, name, line, message, suggestion):
        text = "%s (line %d)" % (message, line) if line else message
        super().__init__("%s. %s" % (text, suggestion))
        self.rule, self.name, self.line, self.message, self.suggestion = rule, name, line, message, suggestion


# `except ImportError` is how code falls back to another module.
_ImportViolation = type("GuardViolation", (GuardViolation, ImportError), {"__module__": "__main__"})


class _Policy:
    """Which modules are allowed. A name means that module only, "name.*" the module and
    everything below it, "*" everything except what must be named."""

    def __init__(self, allow, deny, named):
        self.allow, self.deny, self.named = frozenset(allow), frozenset(deny), frozenset(named)

    def allows(self, name):
        top = name.partition(".")[0]
        if self._matches(self.deny, name) or top.startswith("_e2bctl_"):
            return False
        if self._matches(self.allow, name) or name == "__future__":  # a directive to the compiler
            return True
        return "*" in self.allow and top not in self.named

    def leads(self, name):
        """Reports whether something below a module is allowed."""
        return any(allowed.startswith(name + ".") for allowed in self.allow)

    @staticmethod
    def _matches(entries, name):
        if name in entries:
            return True
        while name:
            if name + ".*" in entries:
                return True
            name = name.rpartition(".")[0]
        return False

    def below(self, name):
        return sorted(allowed for allowed in self.allow if allowed.startswith(name + "."))

    def listed(self):
        names = sorted(self.allow)
        return ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")


def _modules(guard):
    """Returns the stand-in for sys.modules. No attribute of it leads to the guard."""

    class Modules(dict):
        def __getitem__(self, name):
            return guard.module(sys.modules[name], name)

        def get(self, name, default=None):
            return self[name] if name in sys.modules else default

        def __contains__(self, name):
            return name in sys.modules

        def __iter__(self):
            return iter(list(sys.modules))

        def __len__(self):
            return len(sys.modules)

    return Modules()


class _Guard:
    def __init__(self, config, namespace):
        self.policy = _Policy(config["allow"], config["deny"], config["named"])
        self.turns = config["turns"]
        self.operations = config["operations"]
        self.events = frozenset()
        if not config["processes"]:
            self.events |= _PROCESS
        if not config["network"]:
            self.events |= _NETWORK
        self.namespace = namespace
        self.before = _codes(namespace)
        self.violations, self.dropped, self.imports = [], 0, set()
        self.standins, self.real = {}, {}
        self.builtins = dict(vars(builtins))
        for name in _REACHING:
            self.builtins.pop(name, None)
        for name in config["functions"]:
            self.builtins[name] = self._refusing(name)
        self.builtins.update({
            "__import__": self.import_,
            "getattr": self.getattr,
            "setattr": self._named(setattr),
            "delattr": self._named(delattr),
            "input": lambda prompt="": builtins.input(prompt),
            "__e2bctl_attribute__": self.getattr,
            "__e2bctl_module__": self.named,
            "__e2bctl_operation__": itertools.repeat(True).__next__,
            "__e2bctl_owner__": self.owner,
            "__e2bctl_turns__": self.loop,
        })
        self.overrides = {
            "importlib": {"import_module": self.import_module, "reload": self.reload},
            "sys": {"modules": _modules(self)},
        }

    # On and off.

    def arm(self):
        space = self.namespace
        self.original = space.get("__builtins__", builtins)
        self.hidden = {name: space.pop(name) for name in _SHELL if name in space and _state._hidden(name, space[name])}
        space["__builtins__"] = self.builtins
        _transformers().append(self)
        self._budget()

    def disarm(self):
        transformers = _transformers()
        while self in transformers:
            transformers.remove(self)
        space = self.namespace
        space["__builtins__"] = self.original
        for name, value in self.hidden.items():
            space.setdefault(name, value)
        for name, value in list(space.items()):
            if id(value) in self.real:
                space[name] = self.real[id(value)][1]
        self.builtins["__e2bctl_operation__"] = itertools.repeat(True).__next__
        if sys.version_info < (3, 10):  # there a function looks up its builtins when it is called
            for name in _HELPERS:
                setattr(builtins, name, self.builtins[name])

    def repair(self):
        """Restores the parts of the guard that code removed, and reports them."""
        if self not in _transformers():
            _transformers().append(self)
            self.violation("tampering", "transformer", "The check of cells was removed; it is back", "Leave the guard alone")
        if self.namespace.get("__builtins__") is not self.builtins:
            self.namespace["__builtins__"] = self.builtins
            self.violation("tampering", "__builtins__", "The guarded builtins were replaced; they are back", "Leave the guard alone")

    # Violations.

    def violation(self, rule, name, message, suggestion, line=None, kind=GuardViolation):
        if line is None:
            line = self._line()
        name, message, suggestion = name[:200], message[:1000], suggestion[:1000]
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append({"rule": rule, "name": name, "line": line, "message": message, "suggestion": suggestion})
        else:
            self.dropped += 1
        return kind(rule, name, line, message, suggestion)

    def _line(self):
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_globals is self.namespace and not self._was_before(frame):
                return frame.f_lineno
            frame = frame.f_back
        return 0

    # Which code is guarded.

    def _was_before(self, frame):
        """Reports whether a frame runs code that was in the namespace before the
        guard. What such code makes while it runs, such as a nested function, has the
        guard's builtins, so these alone do not distinguish it from code of a cell."""
        return id(frame.f_code) in self.before

    def _unguarded(self):
        """Reports whether the caller of the guard must not be guarded."""
        if _armed is not self:
            return True
        frame = sys._getframe(1)
        while frame.f_globals is globals() and frame.f_back is not None:
            frame = frame.f_back
        return self._was_before(frame)

    def report(self):
        self.repair()
        answer = {"violations": self.violations, "dropped": self.dropped, "imports": sorted(self.imports)}
        self.violations, self.dropped, self.imports = [], 0, set()
        return answer

    # Modules.

    def check_import(self, name, items, line=None):
        """Checks an import statement; items are the names after from."""
        if self.policy.allows(name):
            return
        if items and "*" not in items and all(self.policy.allows("%s.%s" % (name, item)) for item in items):
            return
        below = self.policy.below(name)
        suggestion = "Allowed modules: %s" % self.policy.listed()
        if below:
            suggestion = "Import what is allowed of it: %s" % ", ".join(below[:LISTED])
        form = "Import from %s" if items else "Import of %s"
        raise self.violation("import", name, form % name + " is not allowed", suggestion, line, _ImportViolation)

    def import_(self, name, globals=None, locals=None, fromlist=(), level=0):
        frame = sys._getframe(1)
        if _armed is not self or self._was_before(frame) or _from_host(frame) or _from_library(frame, fromlist):
            return builtins.__import__(name, globals, locals, fromlist, level)
        if level:  # whatever the code says in __package__ or __name__
            raise ImportError("attempted relative import with no known parent package")
        items = tuple(fromlist or ())
        self.check_import(name, items)
        with _Loading():
            module = builtins.__import__(name, None, None, items, 0)
        if len(self.imports) < MAX_IMPORTS:
            self.imports.add(name)
        for item in items:
            value = getattr(module, item, None) if item != "*" else None
            if isinstance(value, types.ModuleType):
                path = "%s.%s" % (name, item)
                if not self._admitted(value, path):
                    raise self._forbidden(value.__name__, _ImportViolation)
        if not items:
            name = name.partition(".")[0]
            module = sys.modules[name]
        return self._standin(module, name, fresh=True)

    def import_module(self, name, package=None):
        if self._unguarded():
            return importlib.import_module(name, package)
        if not isinstance(name, str):
            raise TypeError("the name of a module must be a string, not %s" % type(name).__name__)
        name = str.__str__(name)
        self.import_(name)
        return self.module(sys.modules[name], name)

    def reload(self, module):
        module = importlib.reload(self.real.get(id(module), (None, module))[1])
        return self.module(module, module.__name__)

    def module(self, module, path):
        """Returns the stand-in for a module that code reached."""
        if id(module) in self.real or self._unguarded():
            return module
        name = self._admitted(module, path)
        if name is None:
            raise self._forbidden(module.__name__)
        return self._standin(module, name)

    def named(self, value):
        """Returns what code gets for a name that stood for a module when its cell was
        checked: the stand-in for a module, anything else as it is."""
        if not isinstance(value, types.ModuleType) or _armed is not self:
            return value
        return self._standin(value, self._admitted(value, value.__name__) or value.__name__)

    def names(self):
        """Returns the names in the namespace that stand for modules."""
        return {
            name for name, value in list(self.namespace.items())
            if isinstance(value, types.ModuleType) and id(value) not in self.real and name not in _NAMES
        }

    def _admitted(self, module, path):
        """Returns the name under which a module is allowed, or leads to an allowed one."""
        names = [module.__name__]
        if path != names[0] and sys.modules.get(path) is module:  # os.path is posixpath
            names.append(path)
        for rule in (self.policy.allows, self.policy.leads):
            for name in names:
                if rule(name):
                    return name
        return None

    def _forbidden(self, name, kind=GuardViolation):
        return self.violation("module", name, "Forbidden access to module: %s" % name,
                              "Allowed modules: %s" % self.policy.listed(), kind=kind)

    def _standin(self, module, path, fresh=False):
        if id(module) in self.real:
            return module
        standin = self.standins.get(path)
        if standin is not None and self.real[id(standin)][1] is module:
            if fresh and self.policy.allows(path):
                self._fill(standin, module, path)
            return standin
        standin = types.ModuleType(module.__name__, module.__doc__)
        self.standins[path] = standin
        self.real[id(standin)] = (standin, module, path)
        if self.policy.allows(path):
            self._fill(standin, module, path)
        if not self._whole(module, path):
            # Python is slower at modules that have this, so not where a loop calls math.sin.
            standin.__getattr__ = lambda name: self._attribute(standin, name)
        return standin

    def _whole(self, module, path):
        """Reports whether a stand-in holds everything that code may name without getattr."""
        space = self._space(module)
        return self.policy.allows(path) and not (
            "__path__" in space or "__getattr__" in space
            or any(isinstance(value, types.ModuleType) and not name.startswith("_") for name, value in list(space.items()))
        )

    def _fill(self, standin, module, path):
        space = standin.__dict__
        for name, value in list(self._space(module).items()):
            if not isinstance(value, types.ModuleType) and not _leads(name):
                space[name] = value
        if isinstance(space.get("__all__"), (list, tuple)):
            space["__all__"] = [name for name in space["__all__"] if self._open(module, path, name)]
        space.update(self.overrides.get(module.__name__, {}))

    def _space(self, module):
        """Returns the names of a module for code: for builtins, those that code has without it."""
        return self.builtins if module is builtins else vars(module)

    def _open(self, module, path, name):
        if _leads(name):
            return False
        value = getattr(module, name, None)
        return not isinstance(value, types.ModuleType) or self._admitted(value, "%s.%s" % (path, name)) is not None

    def _attribute(self, standin, name):
        """Returns an attribute that a stand-in lacks: a module, or a value added later."""
        _, module, path = self.real[id(standin)]
        if self._unguarded():
            return getattr(module, name)
        child = "%s.%s" % (path, name)
        allowed = self.policy.allows(path)
        if _leads(name) or name.startswith("__") and not allowed:
            raise AttributeError(name)  # displays and copies look for such names
        if module is builtins and name not in self.builtins:
            raise AttributeError("module 'builtins' has no attribute %r" % name)
        if not (allowed or self.policy.allows(child) or self.policy.leads(child)):
            raise self._forbidden(module.__name__)
        value, failed = None, None
        try:
            with _Loading():
                value = getattr(module, name)
        except AttributeError as error:
            failed = error.args
        if failed is not None:  # not the error itself, nor one in whose context it is: it holds the module
            raise AttributeError(*failed)
        if isinstance(value, types.ModuleType):
            value = standin.__dict__[name] = self.module(value, child)
        return value

    # Attributes and functions.

    def check_attribute(self, name, line=None):
        if name in _FRAMES:
            raise self.violation("frame", name, "Forbidden access to attribute: %s" % name, "Work with values only", line)
        if _leads(name):
            hint = _HINTS.get(name, "Use operators, built-in functions and public methods")
            raise self.violation("dunder", name, "Forbidden access to dunder attribute: %s" % name, hint, line)

    def getattr(self, *arguments):
        if len(arguments) < 2 or not isinstance(arguments[1], str):
            return getattr(*arguments)
        target, name = arguments[0], str.__str__(arguments[1])
        if not self._unguarded():
            self.check_attribute(name)
        if id(target) in self.real and name not in target.__dict__ and hasattr(self.real[id(target)][1], name):
            return self._attribute(target, name)
        value = getattr(target, name, *arguments[2:])
        return self.module(value, value.__name__) if isinstance(value, types.ModuleType) else value

    def owner(self, target, name):
        """Returns an object. One of its attributes is about to be changed in place."""
        value = self.getattr(target, name)
        if isinstance(value, types.ModuleType) and not self._unguarded():
            raise self._forbidden(value.__name__)
        return target

    def _named(self, function):
        def named(*arguments):
            if len(arguments) > 1 and isinstance(arguments[1], str) and not self._unguarded():
                self.check_attribute(str.__str__(arguments[1]))
            return function(*arguments)

        named.__name__ = function.__name__
        return named

    def _refusing(self, name):
        def refused(*arguments, **keywords):
            if self._unguarded():
                of_frame = _OF_FRAME.get((name, len(arguments) + len(keywords)))
                if of_frame is not None:
                    return of_frame(sys._getframe(1), *arguments)
                return getattr(builtins, name)(*arguments, **keywords)
            raise self.violation("function", name, "Forbidden function evaluation: %s" % name,
                                 "Do it with plain Python, an allowed module or a tool")

        refused.__name__ = name
        return refused

    # Budgets.

    def loop(self, line):
        """The iterations of one while loop: counted in C, refused when used up."""
        if _armed is not self:
            return itertools.repeat(())
        message = "Maximum number of %d iterations in While loop exceeded" % self.turns
        # One more: the check that finds that the loop has ended.
        refusal = _Refusal(self, "loop", "while", message, "Make the loop end", line)
        return itertools.chain(itertools.repeat((), self.turns + 1), refusal)

    def _budget(self):
        if self.operations:
            message = "Reached the max number of operations of %d" % self.operations
            refusal = _Refusal(self, "operations", "operations", message, "Use a faster algorithm or a library")
            left = itertools.chain(itertools.repeat(True, self.operations), refusal)
            self.builtins["__e2bctl_operation__"] = left.__next__

    def visit(self, tree):
        """Checks and rewrites a cell before it is compiled. IPython removes a
        transformer that raises anything else."""
        limit = sys.getrecursionlimit()
        try:
            self._budget()
            sys.setrecursionlimit(4 * limit)  # each level of the tree takes two calls
            return ast.fix_missing_locations(_Check(self).visit(tree))
        except GuardViolation as violation:  # the way through the tree means nothing to the cell's author
            raise violation.with_traceback(None)
        except Exception as error:
            raise self.violation("syntax", type(error).__name__, "The code cannot be checked: %s" % error,
                                 "Write it in a simpler, less nested way", 0) from None
        finally:
            sys.setrecursionlimit(limit)


def _leads(name):
    """Reports whether a double-underscore attribute leads to more than a value."""
    return name.startswith("__") and name.endswith("__") and len(name) > 4 and name not in _PROTOCOL


class _Refusal:
    """What follows the last iteration of a budget, each time that code asks: code
    that caught the exception gets no further."""

    def __init__(self, guard, *violation):
        self.guard, self.raised = guard, violation

    def __iter__(self):
        return self

    def __next__(self):
        if _armed is not self.guard:
            return ()  # a loop that outlives the guard
        raise self.guard.violation(*self.raised)


class _Loading:
    """While allowed modules load, they may do anything that loading requires."""

    def __enter__(self):
        _loading.depth = getattr(_loading, "depth", 0) + 1

    def __exit__(self, *error):
        _loading.depth -= 1


class _Check(ast.NodeTransformer):
    def __init__(self, guard):
        self.guard = guard
        self.modules = guard.names()
        self.tries = 0
        self.line = 0

    def visit(self, node):
        self._names(node)
        return getattr(self, "visit_" + type(node).__name__, self.generic_visit)(node)

    def _names(self, node):
        """Checks each name that a node holds itself, whatever the node is."""
        self.line = getattr(node, "lineno", self.line)
        for field, value in ast.iter_fields(node):
            names = [name for name in (value if isinstance(value, list) else (value,)) if isinstance(name, str)]
            path = "%s.%s" % (type(node).__name__, field)
            if not names or path in _TEXT:
                continue
            for name in names:
                if path not in _ATTRIBUTE:
                    self._named(name)
                if path not in _SCOPE:
                    self.guard.check_attribute(name, self.line)

    def _named(self, name):
        """Checks a name of a scope, whether it is bound or looked up."""
        if name == "get_ipython":
            raise self.guard.violation("shell", name, "invalid syntax: commands of the shell and magics are not Python",
                                       "write Python", self.line)
        if name == "__import__":
            raise self.guard.violation("function", name, "Forbidden function evaluation: %s" % name, "use import statements",
                                       self.line)
        if name in _NAMES or name.startswith("__e2bctl_"):
            raise self.guard.violation("dunder", name, "Forbidden name: %s" % name, "choose another name", self.line)

    def visit_Module(self, node):
        body = []
        for statement in node.body:
            body += self._statements([statement])
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                # The code below runs only if these names have stand-ins.
                self.modules.difference_update((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        node.body = body
        return node

    def _statements(self, nodes):
        visited = []
        for node in nodes:
            node = self.visit(node)
            visited += node if isinstance(node, list) else [node]
        return visited

    def visit_Try(self, node):
        # There a refused import becomes one that fails when it runs.
        caught = bool(node.handlers)
        self.tries += caught
        node.body = self._statements(node.body)
        self.tries -= caught
        for field in ("handlers", "orelse", "finalbody"):
            setattr(node, field, self._statements(getattr(node, field)))
        return node

    visit_TryStar = visit_Try

    def visit_Import(self, node):
        self.generic_visit(node)
        if not self.tries:
            for alias in node.names:
                self.guard.check_import(alias.name, (), node.lineno)
        return node

    def visit_ImportFrom(self, node):
        self.generic_visit(node)
        for alias in node.names:
            self.guard.check_attribute(alias.name, node.lineno)
        if not self.tries and not node.level:
            self.guard.check_import(node.module, tuple(alias.name for alias in node.names), node.lineno)
        return node

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and _private(node):
            # Objects keep modules in these attributes. They are rare, so this costs nothing.
            return ast.copy_location(_call("__e2bctl_attribute__", node.value, ast.Constant(node.attr)), node)
        return node

    def visit_Name(self, node):
        if node.id in self.modules and isinstance(node.ctx, ast.Load):
            return ast.copy_location(_call("__e2bctl_module__", node), node)
        return node

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        # It passes the value of its target to the other operand.
        if isinstance(node.target, ast.Attribute) and _private(node.target):
            node.target.value = _call("__e2bctl_owner__", node.target.value, ast.Constant(node.target.attr))
        if not isinstance(node.target, ast.Name) or node.target.id not in self.modules:
            return node
        target = ast.Name(node.target.id, ast.Store())
        value = _call("__e2bctl_module__", ast.Name(node.target.id, ast.Load()))
        return [ast.copy_location(ast.Assign([target], value), node), node]

    # Python accepts only names and attributes in patterns, so what they name is checked
    # and stays as it is.

    def visit_MatchValue(self, node):
        self._compared(node.value)
        return node

    def visit_MatchMapping(self, node):
        for key in node.keys:
            self._compared(key)
        node.patterns = self._statements(node.patterns)
        return node

    def visit_MatchClass(self, node):
        self._pattern(node.cls)
        for field in ("patterns", "kwd_patterns"):
            setattr(node, field, self._statements(getattr(node, field)))
        return node

    def visit_match_case(self, node):
        self.generic_visit(node)
        # The pattern of a class captures attributes of its subject, which may be modules.
        captured = {
            name.name for part in ast.walk(node.pattern) if isinstance(part, ast.MatchClass)
            for name in ast.walk(part) if isinstance(name, ast.MatchAs) and name.name
        }
        if captured:
            stored = [ast.NamedExpr(ast.Name(name, ast.Store()), _call("__e2bctl_module__", ast.Name(name, ast.Load())))
                      for name in sorted(captured)]
            checked = ast.Tuple(stored, ast.Load())  # true
            node.guard = checked if node.guard is None else ast.BoolOp(ast.And(), [checked, node.guard])
        return node

    def _compared(self, node):
        """Checks an attribute whose value the pattern passes to the subject."""
        self._pattern(node)
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and _private(child):
                child.value = _call("__e2bctl_owner__", child.value, ast.Constant(child.attr))

    def _pattern(self, node):
        for child in ast.walk(node):
            self._names(child)
            if isinstance(child, ast.Name) and child.id in self.modules:
                raise self.guard.violation("syntax", child.id, "a pattern with %s, which was imported before, cannot be checked" % child.id,
                                           "import %s at the beginning of this code" % child.id, self.line)

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        # A metaclass can give a class a namespace that answers to any name, but not to these.
        node.body.insert(_documented(node), ast.Global(list(_HELPERS)))
        return node

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        return self._counted(node, _documented(node))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self.generic_visit(node)
        if self.guard.operations:
            node.body = ast.BoolOp(ast.And(), [_call("__e2bctl_operation__"), node.body])
        return node

    def visit_comprehension(self, node):
        self.generic_visit(node)
        if self.guard.operations:
            node.ifs.insert(0, _call("__e2bctl_operation__"))
        return node

    def visit_For(self, node):
        return self._counted(self.generic_visit(node))

    visit_AsyncFor = visit_For

    def visit_While(self, node):
        self.generic_visit(node)
        if not self.guard.turns:
            return self._counted(node)
        if any(map(_leaves, node.orelse)):
            raise self.guard.violation("syntax", "while", "break and continue in the else of a while loop cannot be checked",
                                       "move them out of the else", node.lineno)
        # The counter is the iterator of a for loop: it needs no name and runs at the speed of C.
        test = ast.If(node.test, [ast.Pass()], [*node.orelse, ast.Break()])
        turns = _call("__e2bctl_turns__", ast.Constant(node.lineno))
        loop = ast.For(ast.Tuple([], ast.Store()), turns, [test, *node.body], [])
        return self._counted(ast.copy_location(loop, node), 1)  # when the test held, as without the counter

    def _counted(self, node, at=0):
        if self.guard.operations:
            node.body.insert(at, ast.Expr(_call("__e2bctl_operation__")))
        return node


def _leaves(node):
    """Reports whether a break or continue in a statement belongs to a loop around it."""
    if isinstance(node, (ast.Break, ast.Continue)):
        return True
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return any(map(_leaves, node.orelse))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    return any(map(_leaves, ast.iter_child_nodes(node)))


def _private(node):
    """Reports whether an attribute may hold a module that its object keeps to itself."""
    own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return node.attr.startswith("_") and not node.attr.startswith("__") and not own


def _documented(node):
    """Returns 1 if a definition begins with its documentation, else 0."""
    first = node.body[0]
    return int(isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant))


def _call(name, *arguments):
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _codes(namespace):
    """Returns the code of the functions of a namespace, by identity, and the code of
    what is defined in them."""
    functions = [f for f in gc.get_referrers(namespace) if type(f) is types.FunctionType and f.__globals__ is namespace]
    codes, waiting = {}, [function.__code__ for function in functions]
    while waiting:
        code = waiting.pop()
        if id(code) not in codes:
            codes[id(code)] = code
            waiting += [constant for constant in code.co_consts if type(constant) is types.CodeType]
    return codes


def _from_host(frame):
    """Reports whether it is an expression by which the host calls these modules."""
    code = frame.f_code
    return (
        code.co_filename == "<string>" and code.co_names[:2] == ("__import__", "modules")
        and code.co_consts[:1] == ("sys",) and str(code.co_consts[1]).startswith("_e2bctl_")
    )


def _from_library(frame, fromlist):
    """Reports whether it is an import by C code that a cell called: Python itself passes
    a list there, an import statement never does."""
    return type(fromlist) is list and "__import__" not in frame.f_code.co_names


def _transformers():
    """Returns the list of transformers with which this kernel rewrites a cell."""
    transformers = _state._transformers()
    if transformers is None:
        raise NotImplementedError("this kernel has no place for a guard: it needs IPython")
    return transformers


def _audit(event, arguments):
    guard = _armed
    if guard is None or event not in guard.events or getattr(_loading, "depth", 0):
        return
    if event in _NETWORK:
        raise guard.violation("network", event, "Forbidden operation: %s: connections are not allowed" % event, "use a tool")
    raise guard.violation("process", event, "Forbidden operation: %s: processes and foreign code are not allowed" % event,
                          "do it in Python")


sys.addaudithook(_audit)


def arm(text):
    """Activates a guard. Its configuration is JSON."""
    global _armed
    disarm()
    config = json.loads(text)
    importlib.invalidate_caches()
    config["allow"] += [name for name in config.pop("optional") if _present(name)]
    for distribution in config.pop("distributions"):
        config["allow"] += ["%s.*" % name for name in _tops(distribution)]
    missing = sorted({name for name in config["allow"] if name != "*" and not _present(name)})
    if missing:
        raise ModuleNotFoundError("modules of the guard that are not installed: %s" % ", ".join(missing))
    _transformers()  # fails where a guard cannot work
    guard = _Guard(config, _state._namespace())
    guard.arm()
    _armed = guard
    return _answer({})


def disarm():
    """Deactivates the guard. What code defined under it still runs, unguarded."""
    global _armed
    guard, _armed = _armed, None
    if guard is not None:
        guard.disarm()
    return _answer({})


def report():
    """Answers the refusals and imports since the last call."""
    if _armed is None:
        raise RuntimeError("the guard is off")
    return _answer(_armed.report())


def _answer(value):
    return _state.Reply(_state.codec.encode(value))


def _present(name):
    top = name.partition(".")[0]
    return top in sys.modules or importlib.util.find_spec(top) is not None


def _tops(distribution):
    """Returns the modules that a distribution installed."""
    from importlib import metadata  # slow to load, and rarely needed

    found = metadata.distribution(distribution)
    text = found.read_text("top_level.txt")
    if text is not None:
        return text.split()
    tops = {file.parts[0].split(".")[0] for file in found.files or [] if file.suffix in (".py", ".so", ".pyd")}
    return sorted(name for name in tops if re.fullmatch(r"[A-Za-z_]\w*", name))
