"""The cells of a kernel, which IPython's magics ask for, in memory alone."""
import fnmatch

from IPython.core.history import HistoryManager


class Forgotten(dict):
    """What cells have shown or raised, none of which is kept: remembering it is up to the
    client, and may take gigabytes."""

    def __missing__(self, cell):
        return []

    def __setitem__(self, cell, value):
        pass


class History(HistoryManager):
    """IPython's history without its database, which costs a millisecond per cell. What IPython
    reads from there, the cells of all sessions, are those of this kernel."""

    def __init__(self, **options):
        super().__init__(**options)
        self.outputs, self.exceptions = Forgotten(), Forgotten()

    def get_tail(self, n=10, raw=True, output=False, include_latest=False):
        """Returns the last n cells. The latest is the one that asks."""
        cells = list(self.get_range(0, 1, None, raw=raw, output=output))
        if not include_latest:
            del cells[-1:]
        return cells[max(0, len(cells) - n):]

    def search(self, pattern="*", raw=True, search_raw=True, output=False, n=None, unique=False):
        """Returns the cells that match a pattern of a shell, the last n of them. Of equal ones,
        unique keeps the last."""
        sources = self.input_hist_raw if search_raw else self.input_hist_parsed
        found = [cell for cell in self.get_range(0, 1, None, raw=raw, output=output) if fnmatch.fnmatchcase(sources[cell[1]], pattern)]
        if unique:
            last = {sources[cell[1]]: cell for cell in found}
            found = [cell for cell in found if last[sources[cell[1]]] is cell]
        return found if n is None else found[max(0, len(found) - n):]
