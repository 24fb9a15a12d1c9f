"""Runs a Jupyter server that ends when its stdin does: whatever becomes of the
tests, it does not outlive them. Kernels end when their server is gone."""

import os
import sys
import threading

from jupyter_server.serverapp import main


def follow():
    while os.read(0, 4096):
        pass
    os._exit(0)


threading.Thread(target=follow, daemon=True).start()
main(sys.argv[1:])
