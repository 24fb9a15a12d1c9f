"""Starts a kernel with the best engine for this Python."""
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
        engine = Engine(kernel)
    except Exception as error:  # in an image, IPython may have any version, or be incomplete
        from .plain import Engine
        note = "IPython cannot be used by %s (%s: %s): no magics, no rich display; install ipython, numpy, pandas and matplotlib" % (
            sys.executable, type(error).__name__, error)
        engine = Engine(kernel)
    run(engine, directory, note)


def run(engine, directory, note=""):
    """Serves requests. directory is the working directory of user code."""
    sys.argv = [""]
    sys.path[0] = ""
    try:
        engine.enter(directory)
    except OSError as error:
        print("cannot change to %s: %s" % (directory, error.strerror), file=sys.stderr)
    engine.kernel.tasks.start()
    engine.kernel.emit("ready", {
        "python": platform.python_version(), "engine": engine.name, "version": engine.version, "note": note,
    })
    # The objects that exist now are never freed. Garbage collections run in the middle of
    # cells, and should not look at these objects.
    gc.freeze()
    try:
        engine.kernel.serve(engine)
    finally:
        os._exit(1)  # without this thread, a process with threads of user code would hang
