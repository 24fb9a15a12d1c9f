"""Starts a kernel: `python start.py`. The socket is descriptor 3, and E2BCTL_KERNEL_DIRECTORY
contains the working directory of user code.

`python start.py --zygote` starts the zygote, from which kernels are forked.

The directory of this file is first in sys.path while the driver is imported, so that no file
in the working directory can replace a module of the standard library. User code then has the
path of an interactive Python, with '' first."""
import os
import sys


def load():
    """Returns the driver's main module. Every version of Python must be able to parse this
    file."""
    if sys.version_info < (3, 9):
        sys.exit("Python %s is too old: 3.9 or newer is needed" % sys.version.split()[0])
    try:
        from _e2bctl_kernel import main
    except ImportError as error:
        sys.exit("%s: this Python has no whole standard library (%s): install the rest of it, such as the package python3 in place of python3-minimal" % (
            sys.executable, error))
    return main


if __name__ == "__main__":
    if sys.argv[1:] == ["--zygote"]:
        from _e2bctl_kernel import zygote

        zygote.main()
    else:
        load().main(os.environ.pop("E2BCTL_KERNEL_DIRECTORY"))
