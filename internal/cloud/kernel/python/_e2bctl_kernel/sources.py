"""The source lines of cells, for tracebacks and inspect."""
import linecache
import re

# How many of the latest cells a kernel keeps. Each takes about 600 bytes, and a kernel may run millions.
KEPT = 10_000

_DEFINES = re.compile(r"\b(?:class|def|lambda)\b")


class Sources:
    """The cells whose source lines are in linecache. Those of the latest cells are kept, and those of all
    cells that define something, which later cells may call."""

    def __init__(self, forget=lambda name: None):
        self._forget = forget
        self._names = {}  # in the order of the latest runs

    def keep(self, name, source):
        """Notes that a cell has the source lines of a name. Calls forget with each name whose lines
        are dropped."""
        self._names.pop(name, None)
        if _DEFINES.search(source):
            return
        self._names[name] = None
        while len(self._names) > KEPT:
            old = next(iter(self._names))
            del self._names[old]
            linecache.cache.pop(old, None)
            self._forget(old)
