"""The cells of a kernel in memory, for the magics of IPython that use them."""
import fnmatch

from IPython.core.history import HistoryManager

from . import sources


class Forgotten(dict):
    """The outputs and errors of cells. None of them is kept, because they may take gigabytes;
    the client may keep them."""

    def __missing__(self, cell):
        return []

    def __setitem__(self, cell, value):
        pass


class History(HistoryManager):
    """IPython's history without its database, which costs a millisecond per cell. Where IPython
    reads the cells of all sessions from the database, this class returns those of this
    kernel. Only the latest cells are kept: of earlier ones, In has empty strings, and there is
    no variable such as _i1."""

    def __init__(self, **options):
        super().__init__(**options)
        self.outputs, self.exceptions = Forgotten(), Forgotten()

    def store_inputs(self, line_num, source, source_raw=None):
        super().store_inputs(line_num, source, source_raw)
        self.db_input_cache.clear()  # nothing else would, without a database
        name = "_i%d" % (line_num - sources.KEPT)
        self.shell.user_ns.pop(name, None)
        self.shell.user_ns_hidden.pop(name, None)
        if self._first() > 1:
            self.input_hist_parsed[self._first() - 1] = self.input_hist_raw[self._first() - 1] = ""

    def _first(self):
        """Returns the number of the first cell that is kept."""
        return max(1, len(self.input_hist_raw) - sources.KEPT)

    def _get_range_session(self, *arguments, **options):
        """Leaves out the cells that are not kept."""
        return (cell for cell in super()._get_range_session(*arguments, **options) if cell[1] >= self._first())

    def get_tail(self, n=10, raw=True, output=False, include_latest=False):
        """Returns the last n cells. The very last one is the cell that calls this."""
        cells = list(self.get_range(0, 1, None, raw=raw, output=output))
        if not include_latest:
            del cells[-1:]
        return cells[max(0, len(cells) - n):]

    def search(self, pattern="*", raw=True, search_raw=True, output=False, n=None, unique=False):
        """Returns the last n cells that match a shell pattern. With unique, only the last one
        of equal cells is returned."""
        sources = self.input_hist_raw if search_raw else self.input_hist_parsed
        found = [cell for cell in self.get_range(0, 1, None, raw=raw, output=output) if fnmatch.fnmatchcase(sources[cell[1]], pattern)]
        if unique:
            last = {sources[cell[1]]: cell for cell in found}
            found = [cell for cell in found if last[sources[cell[1]]] is cell]
        return found if n is None else found[max(0, len(found) - n):]
