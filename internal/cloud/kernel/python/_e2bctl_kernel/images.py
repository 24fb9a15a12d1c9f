"""A picture that PIL saves to a named file is shown as well, as E2B's kernel does."""
import functools
from importlib.machinery import PathFinder

from IPython.display import display


class Finder:
    """Finds PIL.Image where it is, and changes it as it is loaded: to load it
    for everyone would cost more than most kernels' whole start."""

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
        __tracebackhide__ = True  # of IPython's traceback
        save(self, fp, *arguments, **options)
        if isinstance(fp, str):  # and not a file that code has opened, nor a Path
            display(self)

    image.save = save_and_show
