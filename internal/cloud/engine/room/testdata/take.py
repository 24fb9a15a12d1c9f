"""Takes resources that the kernel counts by user: as many as asked for, or as it gets.

take.py FILES MOST USERS: FILES says whether inotify is tried. Each of USERS users,
from the current one on, takes at most MOST of each thing. When everything is taken it
prints what was taken as JSON, and holds it until the end of its standard input.
"""
import ctypes
import json
import os
import resource
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
try:
    rt = libc if hasattr(libc, "mq_open") else ctypes.CDLL("librt.so.1", use_errno=True)
except OSError:
    rt = libc


def take(most, one):
    for n in range(most):
        if not one(n):
            return n
    return most


def instance(_):
    return libc.inotify_init1(0) >= 0


def watches(most):
    directory = "%s/watched-%d" % (os.environ["TMPDIR"], os.getpid())
    os.mkdir(directory)
    fd = libc.inotify_init1(0)
    if fd < 0:
        return 0

    def one(n):
        name = ("%s/%d" % (directory, n)).encode()
        os.mkdir(name)
        return libc.inotify_add_watch(fd, name, 0x100) >= 0

    return take(most, one)


def queue(n):
    name = b"/%d-%d" % (os.getpid(), n)
    if rt.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None) < 0:
        return False
    rt.mq_unlink(name)  # it exists, and is counted, until it is closed
    return True


def timer(_):
    return rt.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0


def pending(_):
    return libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p()) == 0


def holder(most, inotify, report):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    taken = {"queues": take(most, queue), "timers": take(most // 2, timer), "signals": take(most // 2, pending)}
    if inotify:
        taken["watches"] = watches(min(most, 100))
        taken["instances"] = take(most, instance)
    os.write(report, json.dumps(taken).encode() + b"\n")


def main():
    inotify, most, users = sys.argv[1] == "inotify", int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    total = {}
    for n in range(users):
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            if n:
                os.setuid(os.getuid() + n)
            holder(most, inotify, write)
            os.close(write)
            sys.stdin.buffer.read()
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            for name, taken in json.load(answer).items():
                total[name] = total.get(name, 0) + taken
    print(json.dumps(total), flush=True)
    sys.stdin.buffer.read()


main()
