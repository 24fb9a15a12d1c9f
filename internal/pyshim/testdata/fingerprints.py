# Changes each part of large values in place, and asks for the changes that the host would get.
# Prints each failure, then "done".
import copy
import json
import sys
import types

state = sys.modules["_e2bctl_state"]
space = {}
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(user_ns=space, user_ns_hidden={}))
LARGE = state.KEPT
COUNT = 14000  # numbers with a document that is larger


def value(reply):
    return json.loads(reply._document)["value"]


def changed():
    return [change["name"] for change in value(state.changed(1 << 28))["changed"]]


def pull():
    """Has the host know all that there is."""
    state.acknowledge(value(state.changes(1 << 28))["token"])


class Point:
    def __init__(self):
        self.x = 1


def numbers():
    return list(range(COUNT))


def change(at, new):
    def do(x):
        x[at] = new

    return do


def within(do, *path):
    def inner(x):
        for step in path:
            x = x[step]
        do(x)

    return inner


def rebuilt(make):
    """Puts another value in the place of the variable."""
    return lambda _: space.__setitem__("x", make(space["x"]))


def entry(old, new):
    """Gives an entry another key in the same place."""
    return rebuilt(lambda x: {new if k is old or k == old and type(k) is type(old) else k: v for k, v in x.items()})


mapping = lambda: {"a": 1, "b": [1, 2], 3: (4, b"5"), "n": numbers()}
CASES = [
    # A number, its type, the length, the order, a type that is equal.
    (numbers, [change(0, 5), change(-1, 5), change(COUNT // 2, 5), change(1, True), change(1, 1.0), change(1, "1"), change(1, None), lambda x: x.append(1), lambda x: x.pop(), list.reverse, rebuilt(tuple)]),
    (lambda: numbers() + [0.0, [], "", b"", bytearray(b"a"), "a"], [change(-6, -0.0), change(-6, 0), change(-5, ()), change(-5, {}), change(-4, b""), change(-3, bytearray()), within(change(0, 7), -2), change(-2, b"a"), change(-1, "b")]),
    (mapping, [
        change("a", 2), change("a", True), change("c", 1), lambda x: x.pop("a"), within(change(1, 3), "b"), within(list.clear, "b"), change(3, (4, b"6")), change(3, [4, b"5"]),
        entry("a", "c"), entry(3, 3.0), entry(3, "3"), lambda x: x.update(a=x.pop("a")), within(change(9, 0), "n"),
    ]),
    (lambda: tuple(numbers()), [rebuilt(list), rebuilt(lambda x: (5,) + x[1:]), rebuilt(lambda x: x[:-1])]),
    (lambda: set(numbers()), [lambda x: x.add("a"), lambda x: x.discard(1), rebuilt(frozenset), lambda x: x.symmetric_difference_update({1, -1})]),
    (lambda: frozenset(numbers()), [rebuilt(set), rebuilt(lambda x: x | {-1})]),
    (lambda: "a" * 2 * LARGE, [rebuilt(lambda x: x[1:] + "b"), rebuilt(lambda x: x + "a"), rebuilt(str.encode)]),
    (lambda: b"a" * 2 * LARGE, [rebuilt(lambda x: x[1:] + b"b"), rebuilt(lambda x: x[1:]), rebuilt(bytearray), rebuilt(bytes.decode)]),
    (lambda: bytearray(2 * LARGE), [change(0, 1), change(-1, 1), lambda x: x.append(0), rebuilt(bytes)]),
    # A set and its parts that are deeper.
    (lambda: [[[numbers()]], {"a": {"b": {1, 2}}}], [within(change(7, 0), 0, 0, 0), within(lambda x: x.add(3), 1, "a", "b"), within(lambda x: x.__setitem__("b", frozenset((1, 2))), 1, "a")]),
]
for make, changes in CASES:
    for number, do in enumerate(changes):
        space.clear()
        space["x"] = make()
        pull()
        what = "change %d of %.60r" % (number, space["x"])
        before = copy.deepcopy(space["x"])
        if changed():
            print("%s: it is new, though nothing changed" % what)
        space["x"] = copy.deepcopy(before)
        if changed():
            print("%s: a copy is another value" % what)
        do(space["x"])
        if changed() != ["x"]:
            print("%s: it is not seen" % what)
        pull()
        if changed():
            print("%s: it is seen again" % what)

# An object of another type counts by its content, not by its address.
import collections
import datetime
import decimal

for parts in (
    [decimal.Decimal(1), decimal.Decimal("1.0"), decimal.Decimal(2)], [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)],
    [collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), dict(a=1, b=2)], [1j, 2j], [range(3), range(4), [0, 1, 2]],
    [collections.deque([1]), collections.deque([1], 1), collections.deque([2])], [10**30, 10**30 + 1, float(10**30)], ["\ud800", "\udc00"],
):
    for one in parts:
        for other in parts:
            space.clear()
            space["x"] = [numbers(), one]
            pull()
            space["x"] = [numbers(), copy.deepcopy(other)]
            if (changed() == ["x"]) != (one is not other):
                print("%r for %r: %s" % (other, one, changed()))

# Only the last pull can be acknowledged: the answer of an earlier one is out of date.
space.clear()
space.update(x=1, gone=2)
pull()
space["x"] = 2
first = value(state.changes(1 << 28))["token"]
space["x"] = 3
del space["gone"]
second = value(state.changes(1 << 28))["token"]
known = value(state.acknowledge(first))["token"]
if known in (first, second) or changed() != ["x", "gone"]:
    print("the acknowledgement of an earlier pull counts: %s" % changed())
if value(state.acknowledge("0" * 16))["token"] != known or changed() != ["x", "gone"]:
    print("an acknowledgement of nothing counts")
if value(state.acknowledge(second))["token"] != second or changed():
    print("the acknowledgement of the last pull does not count: %s" % changed())
if value(state.acknowledge(second))["token"] != second or value(state.acknowledge(first))["token"] != second:
    print("a pull is acknowledged twice")
space["x"] = 4
third = value(state.changes(1 << 28))["token"]
state.begin()
if value(state.acknowledge(third))["token"] != second or changed() != ["x"]:
    print("a pull of an earlier run is acknowledged")
third = value(state.changes(1 << 28))["token"]
space["y"] = 1
state.delete("y")
if value(state.acknowledge(third))["token"] == third or changed() != ["x"]:
    print("a pull from before a deletion is acknowledged")
space["x"] = 3  # as the host knows it
third = value(state.changes(1 << 28))["token"]
if changed() or value(state.acknowledge(third))["token"] != third:
    print("nothing changed, and it is told: %s" % changed())

# Values of Python's own types have a mark, which is one of their content and not of their parts' identity.
for own in "a", b"a", bytearray(b"a"), [1], (1,), {1: 2}, {1}, frozenset((1,)):
    part = ["part"]
    if state._mark(own) is None:
        print("%r has no mark" % (own,))
    if state._mark([own, part, part]) != state._mark([copy.deepcopy(own), ["part"], ["part"]]):
        print("%r and equal parts have another mark than their copies" % (own,))
if state._mark(Point()) is not None:
    print("an object of another type has a mark")
print("done")
