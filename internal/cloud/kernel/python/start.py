"""Starts a kernel: `python start.py DIRECTORY`, with the socket as descriptor 3.

This file's own directory is first in sys.path while the driver is imported, so
that no file in the working directory can stand in for a module of the standard
library. User code then gets what an interactive Python has: '' first.
"""
import sys

from _e2bctl_kernel import kernel

if __name__ == "__main__":
    kernel.main(sys.argv[1])
