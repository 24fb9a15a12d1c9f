"""Displays pictures that PIL saves to a named file, as E2B's kernel does."""
import functools
from importlib.machinery import PathFinder

from IPython.display import display


class Finder:
    """Finds PIL.Image at its usual place, and modifies it while it is loaded. Importing it in
    every kernel would cost more than the rest of the start of most kernels."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "PIL.Image":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                _show_saved(module.Image)

            spec.loader.exec_module = exec_module
        return spec


def _show_saved(image):
    save = image.save

    @functools.wraps(save)
    def save_and_show(self, fp, *arguments, **options):
        __tracebackhide__ = True  # hides this frame in IPython's traceback
        save(self, fp, *arguments, **options)
        if isinstance(fp, str):  # neither an open file nor a Path
            display(self)

    image.save = save_and_show
