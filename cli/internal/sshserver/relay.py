import os, socket, sys, threading

peer = socket.socket(socket.AF_UNIX)
try:
    peer.connect(sys.argv[1])
except OSError as error:
    sys.exit(error.strerror or str(error))


def send():
    try:
        while data := os.read(0, 65536):
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side no longer reads


def receive():
    try:
        return peer.recv(65536)
    except OSError:
        return b""


with open(1, "wb", buffering=0, closefd=False) as out:
    out.write(sys.argv[2].encode())
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    total = 0
    while data := receive():
        total += len(data)
        while data:
            data = data[out.write(data) :]
os.write(2, b"%s %d\n" % (sys.argv[2].encode(), total))
sending.join()
