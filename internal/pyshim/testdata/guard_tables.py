# Tries every entry of the guard's tables: each has an effect that only this entry has. Prints
# each failure, then "done".
import ast
import builtins
import json
import sys
import types

guard = sys.modules["_e2bctl_guard"]


class Shell:
    """As much of IPython as the guard knows."""

    user_ns, user_ns_hidden = {}, {}
    ast_transformers = []


shell = Shell()
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)


def run(code, before="", hidden=(), **config):
    """Returns the reason that ends a cell: rule and name of a violation, or the name of an exception."""
    space = shell.user_ns = {"__name__": "cell", "__builtins__": builtins}
    exec(before, space)
    shell.user_ns_hidden = {name: space[name] for name in hidden}
    guard.arm(json.dumps({
        "allow": [], "optional": [], "distributions": [], "deny": [], "named": [], "functions": [],
        "processes": False, "network": False, "turns": 9, "operations": 1000, **config,
    }))
    try:
        tree = ast.parse(code)
        for transformer in list(shell.ast_transformers):
            tree = transformer.visit(tree)
        exec(compile(tree, "<cell>", "exec"), space)
    except guard.GuardViolation as violation:
        return "%s %s" % (violation.rule, violation.name)
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)
    finally:
        guard.disarm()
    return ""


def check(code, want, **config):
    got = run(code, **config)
    if got != want and not (want.endswith("Error") and got.startswith(want + ":")):
        print("%r with %s: %r, want %r" % (code, config, got, want))


# Events.
PROCESS = "os.exec os.fork os.forkpty os.posix_spawn os.spawn os.system subprocess.Popen pty.spawn ctypes.cdata ctypes.dlopen"
NETWORK = "socket.bind socket.connect socket.getaddrinfo socket.gethostbyaddr socket.gethostbyname socket.getnameinfo socket.sendmsg socket.sendto"
for rule, other, events in ("process", "network", PROCESS), ("network", "process", NETWORK):
    option = {"process": "processes", "network": "network"}
    for event in events.split():
        code = "import sys\nsys.audit(%r)" % event
        check(code, "%s %s" % (rule, event), allow=["sys"])
        check(code, "%s %s" % (rule, event), allow=["sys"], **{option[other]: True})
        check(code, "", allow=["sys"], **{option[rule]: True})

# Names.
for name in "__builtin__", "__builtins__", "__build_class__", "__loader__", "__spec__", "__e2bctl_other__":
    check("%s = 1" % name, "dunder " + name)
    check("lambda: " + name, "dunder " + name)
check("lambda: __import__", "function __import__")
for name in "exit", "open", "quit", "_dh":
    code = "if %r in globals(): raise LookupError(globals()[%r])" % (name, name)
    before = "%s = 'of the shell'" % name
    check(code, "", before=before, hidden=[name])
    if shell.user_ns.get(name) != "of the shell":
        print("%s did not come back" % name)
    check(code, "LookupError", before=before)  # it is the user's own
    check("%s = 5" % name, "", before=before, hidden=[name])
    if shell.user_ns.get(name) != 5:
        print("the user's own %s was replaced" % name)
builtins.get_ipython = None
for name in "get_ipython", "copyright", "credits", "license":
    check("import builtins\ngetattr(builtins, %r)" % name, "AttributeError", allow=["builtins"])
del builtins.get_ipython

# Functions of a frame, in code that was there before the guard, and in a cell.
FUNCTIONS = {
    "eval": ("eval('y')", "eval('5')"), "exec": ("exec('got.append(y)') or got[0]", "exec('5')"), "globals": ("globals()['five']", "globals()"),
    "locals": ("locals()['y']", "locals()"), "vars": ("vars()['y']", "vars()"),
}
for name, (inner, cell) in FUNCTIONS.items():
    before = "five = 5\ndef outer(x):\n  def inner(y):\n    got = []\n    return %s\n  return inner(x)" % inner
    check("assert outer(5) == 5", "", before=before, functions=list(FUNCTIONS))
    check(cell, "function " + name, before=before, functions=list(FUNCTIONS))

# Attributes.
FRAMES = "ag_frame cr_frame f_back f_builtins f_globals f_locals gi_frame tb_frame ag_code cr_code f_code gi_code _ip ast_transformers user_global_ns user_ns"
PROTOCOL = (
    "abs add aenter aexit aiter all and anext annotations array await bool bytes call cause ceil class_getitem complex "
    "contains context copy debug deepcopy delitem divmod doc enter eq exit file float floor floordiv format ge getitem "
    "gt hash iadd iand ifloordiv ilshift imatmul imod imul index init init_subclass int invert ior ipow irshift isub "
    "iter itruediv ixor le len length_hint lshift lt main matmul members missing mod mul name ne neg new next notes or "
    "pos post_init pow qualname radd rand rdivmod repr reversed rfloordiv rlshift rmatmul rmod rmul ror round rpow "
    "rrshift rshift rsub rtruediv rxor set_name setitem sizeof slots str sub suppress_context truediv trunc version xor"
)
for name in FRAMES.split():
    for code in "lambda x: x.%s", "getattr(1, '%s')", "setattr(1, '%s', 1)", "delattr(1, '%s')":
        check(code % name, "frame " + name)
allowed = ["__%s__" % name for name in PROTOCOL.split()]
for name in allowed:
    check("lambda x: x.%s" % name, "")
reachable = {
    name for value in list(vars(types).values()) + list(vars(builtins).values()) + [sys, ast, run, run.__code__, sys._getframe(), (i for i in ())]
    for name in dir(value) if name.startswith("__") and name.endswith("__") and len(name) > 4
}
for name in sorted(reachable.difference(allowed)):
    for code in "lambda x: x.%s", "getattr(1, '%s')", "setattr(1, '%s', 1)", "delattr(1, '%s')":
        check(code % name, "dunder " + name)

# The name of a module is no name of a variable, nor an attribute.
check("from __future__ import annotations", "")
check("from get_ipython import x", "import get_ipython")
check("from gi_frame import x", "import gi_frame")

# Suggestions.
for name, want in (
    ("__class__", "Use type(x) or isinstance(x, T)"), ("__dict__", "Name the attributes that you need"),
    ("__traceback__", "Use str(error) and type(error)"), ("__globals__", "Use operators, built-in functions and public methods"),
):
    try:
        guard._Guard({"allow": [], "deny": [], "named": [], "functions": [], "processes": False, "network": False, "turns": 9, "operations": 9}, {}).visit(ast.parse("x." + name))
        print("%s is allowed" % name)
    except guard.GuardViolation as violation:
        if violation.suggestion != want:
            print("%s: the suggestion is %r, want %r" % (name, violation.suggestion, want))

# A class whose namespace answers to any name does not see the functions that rewritten code calls.
check("""
got = []
class D(dict):
    def __getitem__(self, key):
        if key.startswith("__e2bctl"):
            got.append(key)
        return dict.__getitem__(self, key)
class M(type):
    @classmethod
    def __prepare__(self, *_):
        return D()
class X:
    _n = 1
class C(metaclass=M):
    for _ in [1]:
        pass
    while True:
        break
    X._n
    X._n += 1
    m
assert not got, got
""", "", before="import math as m")

# Modules that hang on an allowed one.
beta, inner, alpha = (types.ModuleType(name) for name in ("beta", "alpha.inner", "alpha"))
exec("""
__path__ = []
__all__ = ["value", "hung", "_hung", "lazy", "inner"]
value = 7
class Holder:
    pass
held = Holder()
def __getattr__(name):
    if name == "lazy":
        return held._module
    raise AttributeError(name)
def add():
    global late, late_value
    late, late_value = held._module, 8
""", vars(alpha))
alpha.hung = alpha._hung = alpha.alias = alpha.wrong = alpha.held._module = inner.hung = beta
alpha.inner = inner
beta.value = inner.value = 7
lazy, plain = types.ModuleType("lazy"), types.ModuleType("plain")
lazy.__getattr__ = {"value": 7, "hung": beta}.__getitem__
plain.value, plain.hung = 7, beta
sys.modules.update({"alpha": alpha, "alpha.inner": inner, "beta": beta, "lazy": lazy, "plain": plain, "alpha.alias": beta, "alpha.wrong": inner})
for code, allow, want in (
    ("import alpha\nassert alpha.value == 7", ["alpha"], ""),
    ("import alpha\nalpha.hung", ["alpha"], "module beta"),
    ("import alpha\nalpha._hung", ["alpha"], "module beta"),
    ("import alpha\nalpha.lazy", ["alpha"], "module beta"),
    ("import alpha\nalpha.add()\nassert alpha.late_value == 8\nalpha.late", ["alpha"], "module beta"),
    ("import alpha\nalpha.held._module", ["alpha"], "module beta"),
    ("import alpha\nalpha.held._module.value = 1", ["alpha"], "module beta"),
    ("import alpha\nalpha.held._module += 1", ["alpha"], "module beta"),
    ("import alpha\nalpha.held._module += 1", ["alpha", "beta"], "module beta"),  # the operand would get the module itself
    ("import alpha\ngetattr(alpha, 'hung')", ["alpha"], "module beta"),
    ("import alpha\ngetattr(alpha, 'hung', None)", ["alpha"], "module beta"),
    ("import alpha\nlist(map(getattr, [alpha, alpha.held], ['value', '_module']))", ["alpha"], "module beta"),
    ("import alpha\nalpha.inner", ["alpha"], "module alpha.inner"),
    ("from alpha import hung", ["alpha"], "module beta"),
    ("try:\n    from alpha import hung\nexcept ImportError as error:\n    assert error.name == 'beta'", ["alpha"], ""),
    ("from alpha import value, _hung as h", ["alpha"], "module beta"),
    ("from alpha import inner", ["alpha"], "module alpha.inner"),
    ("from alpha import *\nassert value == 7\nhung", ["alpha"], "NameError"),
    ("from alpha import *\nlazy", ["alpha"], "NameError"),
    ("from alpha import *\ninner", ["alpha"], "NameError"),
    ("import alpha\nassert 'hung' not in vars(alpha) and 'lazy' not in vars(alpha) and 'inner' not in vars(alpha)", ["alpha"], ""),
    ("import alpha\nassert alpha.hung.value == alpha.lazy.value == alpha.held._module.value == 7", ["alpha", "beta"], ""),
    ("import alpha\nassert alpha.inner.value == 7", ["alpha.*"], ""),
    ("import alpha\nalpha.inner.hung", ["alpha.*"], "module beta"),
    ("import alpha\nassert alpha.alias.value == 7", ["alpha.*"], ""),  # Python knows it by that name, too
    ("import alpha\nalpha.wrong", ["alpha.*"], "module beta"),  # by that name it knows another one
    ("import lazy\nassert lazy.value == 7\nlazy.hung", ["lazy"], "module beta"),
    ("import plain\nassert plain.value == 7\nplain.hung", ["plain"], "module beta"),
    ("import plain\nassert plain.hung.value == 7", ["plain", "beta"], ""),
    ("import alpha.inner\nassert alpha.inner.value == 7", ["alpha.inner"], ""),
    ("import alpha.inner\nalpha.value", ["alpha.inner"], "module alpha"),
    ("import alpha.inner\nalpha.hung", ["alpha.inner"], "module alpha"),
    ("import alpha.inner\nalpha.nothing", ["alpha.inner"], "module alpha"),
    ("import alpha.inner\nalpha.inner.hung", ["alpha.inner"], "module beta"),
):
    check(code, want, allow=allow)
print("done")
