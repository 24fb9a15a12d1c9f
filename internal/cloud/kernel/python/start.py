"""Starts a kernel: `python start.py`, with the socket as descriptor 3 and the working
directory of user code in E2BCTL_KERNEL_DIRECTORY; or what kernels are forked from:
`python start.py --zygote`.

This file's own directory is first in sys.path while the driver is imported, so
that no file in the working directory can stand in for a module of the standard
library. User code then gets what an interactive Python has: '' first.
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
