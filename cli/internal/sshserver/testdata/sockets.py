import os, socket, sys, threading


def upper(peer):
    """Answers when the client has ended its side."""
    data = peer.makefile("rb").read()
    peer.sendall(data.upper())
    peer.close()


def greet(peer):
    """Ends its side first, and still reads."""
    peer.sendall(b"greeting")
    peer.shutdown(socket.SHUT_WR)
    with open("got", "wb") as file:
        file.write(peer.makefile("rb").read())


def hold(peer):
    """Never ends, and says when its client has."""
    peer.sendall(b"held")
    peer.recv(1)
    open("released", "x").close()


def serve(name, answer):
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()
    os.chmod(name, 0o600)

    def accept():
        while True:
            threading.Thread(target=answer, args=[server.accept()[0]]).start()

    threading.Thread(target=accept).start()


os.makedirs(sys.argv[1], mode=0o755)
os.chdir(sys.argv[1])
for name, answer in {"upper": upper, "greet": greet, "hold": hold}.items():
    serve(name, answer)
datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
datagrams.bind("datagrams")
gone = socket.socket(socket.AF_UNIX)
gone.bind("gone")
gone.close()
print("ready", flush=True)
