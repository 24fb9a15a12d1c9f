"""Starts a kernel with the engine that this Python has."""
import gc
import os
import platform
import sys

from .kernel import Kernel


def main(directory):
    kernel = Kernel()
    kernel.connect(3)
    note = ""
    try:
        from .ipython import Engine
    except ImportError as error:
        from .plain import Engine
        note = "IPython cannot be imported by %s (%s): no magics, no rich display; install ipython, numpy, pandas and matplotlib" % (
            sys.executable, error)
    run(Engine(kernel), directory, note)


def run(engine, directory, note=""):
    """Serves requests, with directory as the working directory of user code."""
    sys.argv = [""]
    sys.path[0] = ""
    try:
        os.chdir(directory)
    except OSError as error:
        print("cannot change to %s: %s" % (directory, error.strerror), file=sys.stderr)
    engine.kernel.emit("ready", {
        "python": platform.python_version(), "engine": engine.name, "version": engine.version, "note": note,
    })
    # What is loaded now stays loaded: garbage collections, which happen in the middle
    # of cells, need not look at it again.
    gc.freeze()
    engine.kernel.serve(engine)
