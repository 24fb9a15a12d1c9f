# Tries each place of Python's grammar that holds a name. Prints each failure, then "done".
import ast
import re
import sys

guard = sys.modules["_e2bctl_guard"]

# Code with NAME in a field of the grammar. Each field has the forms in which Python writes it.
FORMS = {
    "AsyncFunctionDef.name": ["async def NAME(): pass"],
    "Attribute.attr": [
        "x.NAME", "x.NAME = 1", "x.NAME += 1", "x.NAME: int = 1", "del x.NAME", "for x.NAME in y: pass",
        "with x as y.NAME: pass", "[0 for x.NAME in y]", "f'{x.NAME}'", "match x:\n  case y.NAME: pass",
        "match x:\n  case y.NAME(): pass", "match x:\n  case {y.NAME: 1}: pass", "def f(x: y.NAME): pass", "@x.NAME\ndef f(): pass",
        "lambda x=y.NAME: 0", "class C(x.NAME): pass", "try: pass\nexcept x.NAME: pass",
    ],
    "ClassDef.name": ["class NAME: pass"],
    "ExceptHandler.name": ["try: pass\nexcept E as NAME: pass", "try: pass\nexcept* E as NAME: pass"],
    "FunctionDef.name": ["def NAME(): pass", "class C:\n  def NAME(self): pass"],
    "Global.names": ["global NAME", "def f():\n  global x, NAME"],
    "MatchAs.name": ["match x:\n  case NAME: pass", "match x:\n  case [1, (2 | 3) as NAME]: pass", "match x:\n  case C(y=NAME): pass"],
    "MatchClass.kwd_attrs": ["match x:\n  case C(NAME=1): pass", "match x:\n  case [C(y=1, NAME=1)]: pass"],
    "MatchMapping.rest": ["match x:\n  case {1: y, **NAME}: pass"],
    "MatchStar.name": ["match x:\n  case [1, *NAME]: pass"],
    "Name.id": [
        "NAME", "NAME = 1", "NAME += 1", "NAME: int = 1", "NAME: int", "del NAME", "(NAME := 1)", "for NAME in x: pass",
        "async def f():\n  async for NAME in x: pass", "async def f():\n  async with x as NAME: pass", "a, *NAME = x",
        "with x as NAME: pass", "with x as (y, NAME): pass", "[0 for NAME in x]", "{0 for y, NAME in x}", "{0: 0 for NAME in x}",
        "(0 for NAME in x)", "f'{NAME}'", "f'{x:{NAME}}'", "@NAME\ndef f(): pass", "def f(x=NAME): pass", "def f(x: NAME): pass",
        "def f() -> NAME: pass", "class C(NAME): pass", "class C(metaclass=NAME): pass", "match NAME:\n  case 1: pass",
        "match x:\n  case NAME(): pass", "match x:\n  case NAME.y: pass", "match x:\n  case {NAME.y: 1}: pass",
        "match x:\n  case 1 if NAME: pass", "type NAME = int", "type T = NAME", "def f[T: NAME](): pass",
    ],
    "Nonlocal.names": ["def f():\n  x = y = NAME = 1\n  def g():\n    nonlocal x, NAME"],
    "ParamSpec.name": ["def f[**NAME](): pass", "class C[**NAME]: pass", "type T[**NAME] = int"],
    "TypeVar.name": ["def f[NAME](): pass", "async def f[NAME](): pass", "class C[NAME: int]: pass", "type T[NAME] = int"],
    "TypeVarTuple.name": ["def f[*NAME](): pass", "class C[*NAME]: pass", "type T[*NAME] = int"],
    "alias.asname": ["import math as NAME", "from math import pi as NAME", "try:\n  from os import x as NAME\nexcept E: pass"],
    "alias.name": ["try: import NAME\nexcept E: pass", "from math import NAME", "from math import NAME as x", "from . import NAME"],
    "arg.arg": [
        "def f(NAME, /): pass", "def f(NAME): pass", "def f(*NAME): pass", "def f(*, NAME): pass", "def f(**NAME): pass",
        "def f(x, NAME=1): pass", "async def f(NAME): pass", "class C:\n  def f(self, NAME): pass",
        "lambda NAME, /: 0", "lambda NAME: 0", "lambda *NAME: 0", "lambda *, NAME: 0", "lambda **NAME: 0", "lambda NAME=1: 0",
    ],
    "keyword.arg": ["f(NAME=1)", "class C(NAME=1): pass", "@f(NAME=1)\nclass C: pass"],
}
ATTRIBUTES = {"Attribute.attr", "MatchClass.kwd_attrs"}
REFUSED = {"__builtins__": "dunder", "__e2bctl_turns__": "dunder", "__import__": "function", "get_ipython": "shell"}
REFUSED_ATTRIBUTES = {"__class__": "dunder", "__builtins__": "dunder", "__e2bctl_turns__": "dunder", "gi_frame": "frame"}
TAKEN = "from math import NAME"


def nodes():
    """Returns the classes of the grammar. What has no fields of its own has no names."""
    return {kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST) and kind._fields}


def identifiers():
    """Returns the fields that hold names, which the documentation of each class has with their type."""
    return {
        "%s.%s" % (kind.__name__, field) for kind in nodes() for field in kind._fields
        if re.search(r"\bidentifier[?*]? %s\b" % field, kind.__doc__ or "")
    }


def held(tree, path):
    """Returns the names in one field of the grammar."""
    kind, _, field = path.partition(".")
    for node in ast.walk(tree):
        if type(node).__name__ == kind:
            value = getattr(node, field)
            yield from value if isinstance(value, list) else [value]


def verdict(code):
    config = {"allow": ["math"], "deny": [], "named": [], "functions": [], "processes": False, "network": False, "turns": 9, "operations": 9}
    one = guard._Guard(config, {})
    try:
        compile(one.visit(ast.parse(code)), "<cell>", "exec", dont_inherit=True)
    except guard.GuardViolation as violation:
        return "%s %s" % (violation.rule, violation.name)
    except SyntaxError:
        pass  # the compiler refuses it, after the guard
    return ""


def check(path, form):
    try:
        tree = ast.parse(form.replace("NAME", "marker"))
    except SyntaxError:
        return 0  # this Python does not have it
    if "marker" not in held(tree, path):
        print("%r: NAME is not in %s" % (form, path))
    attribute = path in ATTRIBUTES
    refused = dict(REFUSED_ATTRIBUTES if attribute else REFUSED)
    if path == "alias.name" and form.startswith(TAKEN):
        refused.update(REFUSED_ATTRIBUTES)
    for name, rule in refused.items():
        got, want = verdict(form.replace("NAME", name)), "%s %s" % (rule, name)
        if got != want:
            print("%r with %s: %r, want %r" % (form, name, got, want))
    for name in ("marker", "_marker", "__len__") + (() if attribute or path == "alias.name" else ("__class__",)):
        if verdict(form.replace("NAME", name)):
            print("%r with %s: %r, want that it is allowed" % (form, name, verdict(form.replace("NAME", name))))
    return 1


known = guard._SCOPE | guard._ATTRIBUTE
fields = identifiers() - {"ImportFrom.module"}  # the policy has that
if len(fields) < 12:
    print("the documentation of ast has no types: %s" % sorted(fields))
for path in sorted(fields):
    if path not in known:
        print("%s: the guard does not know this field" % path)
    if path not in FORMS:
        print("%s: this test has no code for this field" % path)
for path in sorted(known):
    if path not in fields and hasattr(ast, path.partition(".")[0]):
        print("%s: the grammar has no such field of names" % path)
if guard._SCOPE & guard._ATTRIBUTE or guard._ATTRIBUTE != ATTRIBUTES:
    print("the fields of attributes are %s" % sorted(guard._ATTRIBUTE))
for path, forms in FORMS.items():
    if path in fields and not sum([check(path, form) for form in forms]):
        print("%s: no form of it is one of this Python" % path)
print("done")
