"""Runs a Jupyter server that ends when its stdin does: however the tests end,
neither the server nor its kernels outlive them."""

import os
import sys
import threading

import psutil
from jupyter_server.serverapp import main


def follow():
    while os.read(0, 4096):
        pass
    for kernel in psutil.Process().children():
        kernel.kill()
    os._exit(0)


threading.Thread(target=follow, daemon=True).start()
main(sys.argv[1:])
