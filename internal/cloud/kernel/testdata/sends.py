# Prints, for each of some cells, the types of the messages that the driver sends at once.
import json
import socket
import sys
import threading

from _e2bctl_kernel.kernel import Kernel
from _e2bctl_kernel.plain import Engine

CELLS = "1+1", "pass", "print('a'); 1+1", "1/0", "import time; print('a'); time.sleep(0.5); 1+1"

ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps sends apart
out = sys.__stdout__
kernel = Kernel()


def ask():
    for number, code in enumerate(CELLS):
        ours.sendall(json.dumps({"type": "execute_request", "id": number, "content": {"code": code}}).encode() + b"\n")
        sends = []
        while not sends or "reply" not in sends[-1]:
            sends.append([json.loads(line)["type"] for line in ours.recv(1 << 20).splitlines()])
        print("%s: %s" % (code, " | ".join(",".join(types) for types in sends)), file=out)
    out.flush()
    ours.close()


kernel.connect(theirs.detach())
threading.Thread(target=ask).start()
kernel.serve(Engine(kernel))
