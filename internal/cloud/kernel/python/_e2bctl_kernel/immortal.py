"""Makes objects immortal, so that kernels share the memory of the zygote's objects.

Python counts the references to each object inside the object. A forked kernel therefore
changes, and no longer shares, the page of each object that it only reads. Since Python 3.12
an object with a certain count is immortal: its count never changes, and it is never freed.
None has this count from the beginning (PEP 683)."""
import ctypes
import gc
import io
import itertools
import operator
import socket
import sys
import sysconfig
import types

# The versions whose objects begin with a reference count of 64 bits, and with which the tests
# were run. In Python 3.14, and without the global lock, objects begin with other fields.
VERSIONS = (3, 12), (3, 13)
IMMORTAL = 0xFFFFFFFF  # _Py_IMMORTAL_REFCNT in Include/object.h of these versions

# Objects whose end has an effect that code waits for, such as the end of a file.
_ENDING = (
    io.IOBase, socket.socket, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType, types.TracebackType,
)
# The kinds of objects that refer to others, and that the garbage collector may not know.
_HOLDERS = {tuple, dict, types.CodeType}
# The collector does not ask code for the objects to which it refers.
_parts_of_code = operator.attrgetter("co_consts", "co_names", "co_filename", "co_name", "co_qualname", "co_linetable", "co_exceptiontable")


def possible():
    """Reports whether the objects of this Python can be made immortal."""
    return (
        sys.implementation.name == "cpython" and sys.version_info[:2] in VERSIONS and sys.maxsize > 1 << 32
        and not sysconfig.get_config_var("Py_GIL_DISABLED") and not hasattr(sys, "gettotalrefcount")
        and sys.getrefcount(None) == IMMORTAL == _counts(id(None), 1)[0]
    )


def make():
    """Makes all objects immortal, except those with an end of their own. The objects must not
    be frozen. Returns the number of objects, which is 0 if this Python has no immortal
    objects."""
    if not possible():
        return 0
    layer = gc.get_objects()
    kinds = {kind for kind in set(map(type, layer)) if issubclass(kind, _ENDING) or hasattr(kind, "__del__")}
    ending = [value for value in layer if type(value) in kinds]
    found = set(map(id, layer))
    while layer:
        parts = gc.get_referents(*layer)
        parts.extend(itertools.chain.from_iterable(_parts_of_code(value) for value in layer if type(value) is types.CodeType))
        parts = dict(zip(map(id, parts), parts))  # most objects have several references
        new = parts.keys() - found
        found |= new
        layer = [value for address, value in parts.items() if type(value) in _HOLDERS and address in new and not gc.is_tracked(value)]
    found.difference_update(map(id, ending))
    lowest = min(found)
    counts = _counts(lowest, (max(found) - lowest) // 8 + 1)
    for address in found:
        counts[(address - lowest) // 8] = IMMORTAL
    return len(found)


def _counts(address, number):
    """Returns the memory from an address on, as numbers of 64 bits. Objects begin at addresses
    that eight divides."""
    return (ctypes.c_uint64 * number).from_address(address)
