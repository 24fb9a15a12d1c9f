# Prints facts about a process before and after its objects were made immortal.
import ctypes
import gc
import io
import json
import os
import socket
import sys
import weakref

from _e2bctl_kernel import immortal


class Ending:
    def __del__(self):
        ended.append("__del__")


class Plain:
    pass


def generate():
    try:
        yield 1
    finally:
        ended.append("generator")


def refuse(version, **build):
    usual, immortal.VERSIONS = immortal.VERSIONS, version
    variables, immortal.sysconfig = immortal.sysconfig, type("sysconfig", (), {"get_config_var": staticmethod(build.get)})
    try:
        return immortal.make()
    finally:
        immortal.VERSIONS, immortal.sysconfig = usual, variables


def dirtied():
    """Returns the KiB that a forked process no longer shares after it has read the data."""
    read, write = os.pipe()
    if not os.fork():
        before = private()
        for row in data:
            row[1], row[2]
        os.write(write, b"%d" % (private() - before))
        os._exit(0)
    os.wait()
    return int(os.read(read, 100))


def private():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Private_Dirty:"))


ended = []
data = [(i, str(i), float(i)) for i in range(100_000)]
constant, name = (lambda: "a constant that only code has").__code__, "a name that only a dict has"
read, write = os.pipe()
file, stream, ours = open(read, "rb"), io.BytesIO(), socket.socketpair()[0]
generator, ending, plain = generate(), Ending(), Plain()
plain.name = {name: [name]}
ours.settimeout(10)
next(generator)

facts = {"refused": [refuse(()), refuse(immortal.VERSIONS, Py_GIL_DISABLED=1)], "before": sys.getrefcount(data) < 100}
gc.collect()
shared = dirtied()
facts["made"] = immortal.make()
gc.freeze()
facts["dirtied"] = [shared, dirtied()]

# Objects of any kind are immortal, and those that code waits for are not.
values = data, data[-1][1], constant.co_consts[-1], name, plain, Plain, generate, generate.__code__, json
facts["immortal"] = [sys.getrefcount(value) == immortal.IMMORTAL for value in values]
number = file.fileno()
fd = ours.fileno()
del file, ours, generator, ending
for left in number, fd:
    try:
        os.fstat(left)
    except OSError:
        ended.append("descriptor")
facts["ended"] = ended

# Immortal objects can be changed, and later ones end as always.
data[0] = later = Plain()
gone = weakref.ref(later)
data[0] = later = None
facts["later"] = gone() is None
loop = Plain()
loop.loop, gone = loop, weakref.ref(loop)
del loop
gc.unfreeze()
gc.collect()
facts["collected"] = gone() is None
facts["changed"] = [name + "!", len(data), plain.name, data[-1], eval(constant)]
print(json.dumps(facts))
