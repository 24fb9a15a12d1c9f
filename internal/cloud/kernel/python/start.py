"""Starts a kernel: `python start.py`, with the socket as descriptor 3 and the working
directory of user code in E2BCTL_KERNEL_DIRECTORY. `python start.py --zygote` starts the
zygote, the process that kernels are forked from.

This file's own directory is first in sys.path while the driver is imported, so
that no file in the working directory can stand in for a module of the standard
library. User code then gets the path of an interactive Python, with '' first.
"""
import os
import sys

if __name__ == "__main__":
    if sys.argv[1:] == ["--zygote"]:
        from _e2bctl_kernel import zygote

        zygote.main()
    else:
        from _e2bctl_kernel import main

        main.main(os.environ.pop("E2BCTL_KERNEL_DIRECTORY"))
