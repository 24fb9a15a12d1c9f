"""The zygote. It has all modules loaded, and forks kernels into sandboxes.

It runs in the room, with the template's files and without a network, and never runs user
code. The server sends one order for each kernel on descriptor 3, with these descriptors: the
kernel's socket, the sandbox's first process, and the files for joining its control groups.

After it joins the namespaces of the sandbox, and until it gives up the privileges of their
owner, the code must not touch any file of the sandbox, because files there may be hostile.
So everything that it needs is created before, and any unexpected error ends the process."""
import csv
import ctypes
import fcntl
import gc
import importlib.metadata
import json
import os
import resource
import select
import signal
import site
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback

from . import immortal
from .kernel import Kernel
from .main import run

PRELOADED = ("numpy", "pandas", "matplotlib.pyplot")

CONTROL = 3  # in the zygote; in a kernel, the same number is the kernel's socket
SOCKET, SANDBOX, PARENT_READ, PARENT_WRITE = 3, 4, 5, 6
MAX_ORDER = 64 << 10
MAX_FILES = 16

# These values are from linux/prctl.h, linux/sched.h, linux/capability.h and
# linux/seccomp.h.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT = 36, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
TIME_NAMESPACE = 0x00000080
EINVAL = 22
MADV_COLLAPSE, HUGE = 25, 2 << 20  # from asm-generic/mman-common.h; number of bytes

_libc = ctypes.CDLL(None, use_errno=True)
_prctl, _setns, _syscall = _libc.prctl, _libc.setns, _libc.syscall
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}.get(os.uname().machine)
_SYS_CLOSE_RANGE = 436


class _Program(ctypes.Structure):  # struct sock_fprog
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


class Order:
    """Describes a kernel to fork. Everything is computed in advance, so that no work is left
    for later."""

    def __init__(self, message, files):
        spec, named = message["spec"], dict(zip(message["files"], files))
        self.socket, self.sandbox = named.pop("kernel"), named.pop("pidfd")
        self.groups = list(named.values())  # and a pipe, to which it writes like to them
        self.ranged, self.owner = spec["ranged"], spec["owner"]
        self.cpus, self.processors = spec["cpus"], spec["processors"]
        self.limits = [tuple(limit) for limit in spec["limits"]]
        self.keep = spec["keep"]
        self.filter = bytes.fromhex(spec["filter"])
        self.program = _Program(len(self.filter) // 8, self.filter)
        low, high = self.keep & 0xFFFFFFFF, self.keep >> 32
        self.header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION_3, 0))
        self.sets = ctypes.create_string_buffer(struct.pack("=6I", low, low, 0, high, high, 0))

    def arrange(self):
        """Joins the control groups, moves to the processors of the sandbox, and closes all
        descriptors that are not needed."""
        for group in self.groups:
            os.write(group, b"0")
        if self.processors:
            os.sched_setaffinity(0, self.processors)
        _call(_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)
        read, write = os.pipe()
        # First move the descriptors to numbers that do not conflict with their final
        # numbers.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (self.socket, self.sandbox, read, write)]
        for fd, to in zip(high, (SOCKET, SANDBOX, PARENT_READ, PARENT_WRITE)):
            os.dup2(fd, to, inheritable=False)
        for fd in (0, 1, 2):
            os.close(fd)
        _call(_syscall, _SYS_CLOSE_RANGE, PARENT_WRITE + 1, ctypes.c_uint(0xFFFFFFFF), 0)

    def enter(self):
        """Joins the namespaces of the sandbox as their owner, because only the owner may join
        them. Processes that are forked from now on are in the sandbox."""
        os.setresuid(self.owner, self.owner, self.owner)
        _call(_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)
        if _setns(SANDBOX, NAMESPACES | TIME_NAMESPACE) < 0:  # the sandbox has the machine's clock
            _call(_setns, SANDBOX, NAMESPACES)
        _call(_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)  # the change of user may have reset it
        os.close(SANDBOX)

    def drop(self):
        """Gives up every privilege that processes of the sandbox do not have, in the same order
        as the sandbox's first process."""
        os.umask(0o022)
        for which, value in self.limits:
            resource.setrlimit(which, (value, value))
        if self.ranged:
            os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        _call(_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)
        if not self.ranged:
            _call(_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call(_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(self.program), 0, 0)
        for capability in range(64):
            if self.keep >> capability & 1:
                continue
            if _prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
                if ctypes.get_errno() == EINVAL:
                    break  # beyond the last capability of this machine's kernel
                _fail()
        _call(_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        _call(_syscall, _SYS_CAPSET, self.header, self.sets)
        # This is the same as in every other process that was executed in the sandbox.
        _call(_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0)


def _heed_signals():
    """Resets the signals that the server ignores because of nohup, or because it is a shell's
    background job. Otherwise the kernels would ignore them, too. Signals that every Python
    ignores stay ignored."""
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _call(function, *arguments):
    if function(*arguments) < 0:
        _fail()


def _fail():
    os._exit(1)


def main():
    control = socket.socket(fileno=CONTROL)
    control.setblocking(True)
    sys.dont_write_bytecode = True  # no process would read it
    _heed_signals()
    try:
        engine, stamp, blas = _load()
        _check_threads()
    except Exception as error:  # another try would fail in the same way
        control.send(json.dumps({"kind": "failed", "error": "no kernel can be forked: %s" % error}).encode())
        os._exit(0)
    # No code waits for the processes that fork kernels, nor for the orphans of these
    # processes.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _call(_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _rest()
    control.send(json.dumps({"kind": "ready"}).encode())
    while True:
        order = _fork(control)
        if order is not None:
            break
    _live(engine, stamp, blas, order)


def _load():
    """Creates the shell, and loads modules that user code is likely to use."""
    from .ipython import ROUNDS, Engine

    engine = Engine(Kernel())
    before = set(sys.modules)
    engine.load(PRELOADED)
    engine.warm()
    for _ in range(ROUNDS):
        _rehearse(engine)
    engine.kernel.keep_modules()
    extra = {name.partition(".")[0] for name in set(sys.modules) - before}
    return engine, Stamp(extra), _blas()


def _rehearse(engine):
    """Does the same as kernels do before their first cell, so that Python specialises the
    bytecode in this process. The pages that change here need not change again in each
    kernel."""
    spec = {"ranged": True, "owner": 0, "cpus": 1, "processors": [0], "limits": [[resource.RLIMIT_CORE, 1]], "keep": 1, "filter": "00" * 1024}
    Order(json.loads(json.dumps({"kind": "kernel", "spec": spec, "files": ["kernel", "pidfd"]})), (SOCKET, SANDBOX))
    _differ()
    _forget(dict(os.environ))
    engine.attach()


def _rest():
    """Prevents changes of the memory that all kernels share."""
    sys.dont_write_bytecode = False
    gc.collect()
    gc.disable()
    immortal.make()
    gc.freeze()
    _enlarge_pages()


def _enlarge_pages():
    """Moves the memory to pages of 2 MiB if the machine's kernel supports it, because a fork
    copies the page table. When a kernel changes memory, only small pages are copied."""
    madvise = _libc.madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    with open("/proc/self/maps") as maps:
        regions = [line.split() for line in maps if " rw-p " in line]
    for region in regions:
        if len(region) == 5 or region[5] == "[heap]":
            start, end = (int(address, 16) for address in region[0].split("-"))
            start, end = -(-start // HUGE) * HUGE, end // HUGE * HUGE
            if start < end:
                madvise(start, end - start, MADV_COLLAPSE)


def _fork(control):
    """Forks the process for the next order in advance, and returns when that process has an
    order. In the kernel it returns the order, and in the zygote None."""
    _check_threads()
    read, write = os.pipe()
    zygote = os.getpid()
    if os.fork():
        os.close(write)
        taken = os.read(read, 1)
        os.close(read)
        if not taken:
            os._exit(0)  # the server has ended, or the forked process was killed
        return None
    order = None
    try:
        _differ()
        order = _take(control, zygote, write)
        _divide(order)
    except BaseException:
        # An error may be printed only before joining the sandbox, because printing an error
        # opens files.
        if order is None:
            traceback.print_exc()
        _fail()
    return order


def _check_threads():
    """Raises an error if there are other threads. A fork copies the locks of all threads, but
    only one thread."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("a library has started a thread")


def _take(control, zygote, taken):
    """Waits for an order and returns it."""
    _call(_prctl, PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != zygote:
        _fail()
    data, files, _, _ = socket.recv_fds(control, MAX_ORDER, MAX_FILES)
    if not data:
        os._exit(0)
    order = Order(json.loads(data), files)
    _call(_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.write(taken, b"1")
    return order


def _divide(order):
    """Turns this process into the kernel; returns only in the kernel.

    The kernel must be a child of the sandbox's first process. An orphan becomes a child of
    the first process of its parent's namespace. Therefore the kernel's parent is also in the
    sandbox. That process's own parent is outside, and reports when the kernel's parent has
    ended."""
    finders, sys.meta_path[:] = list(sys.meta_path), []  # nothing can be imported
    order.arrange()
    order.enter()
    parent = os.fork()
    if parent:
        os.waitpid(parent, 0)
        os.close(PARENT_WRITE)  # closed here, because exiting first frees all memory
        os._exit(0)
    os.close(PARENT_WRITE)
    if os.fork():
        os._exit(0)
    os.setsid()
    order.drop()
    sys.meta_path[:] = finders
    gc.enable()


def _live(engine, stamp, blas, order):
    """Runs the kernel. From here on, the process has only the privileges of user code."""
    agent = socket.socket(fileno=SOCKET)
    agent.setblocking(True)
    if not select.select([agent], [], [], 0)[0]:
        _get_ready(engine, stamp)
    data, files, _, _ = socket.recv_fds(agent, 1, 3)
    if len(files) != 3:
        os._exit(0)  # envd gave up
    for fd, to in zip([fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in files], range(3)):
        os.dup2(fd, to)
        os.close(fd)
    for fd in files:
        if fd > 2:
            os.close(fd)
    setup = b""
    while not setup.endswith(b"\n"):
        chunk = agent.recv(1 << 16)
        if not chunk:
            os._exit(0)
        setup += chunk
    setup = json.loads(setup)
    _forget(setup["environ"])
    engine.attach()
    if order.cpus > 1:
        for use_processors in blas:
            use_processors(order.cpus)
    if os.read(PARENT_READ, 1):
        _fail()
    os.close(PARENT_READ)
    agent.sendall(b'{"pid":%d}\n' % os.getpid())
    agent.detach()
    engine.kernel.connect(SOCKET)
    engine.kernel.stamp = stamp
    sys.orig_argv = [sys.executable, sys.argv[0]]
    run(engine, setup["dir"])


def _get_ready(engine, stamp):
    """Does the same as a kernel until the end of its first cell, before a client waits for it.
    The memory that changes meanwhile is copied now, and not later."""
    engine.rehearse(("1+1", "print(1)"))
    _forget(dict(os.environ))
    stamp.changed()
    threads = [threading.Thread(target=time.sleep, args=(0,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _differ():
    """Renews the values that must differ between kernels. It runs in the process from which a
    single kernel is forked."""
    modules = sys.modules
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "uuid" in modules:
        modules["uuid"]._node = modules["uuid"]._last_timestamp = None
    if "multiprocessing.process" in modules:
        modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def _forget(environ):
    """Replaces values that come from the zygote's environment."""
    if "LC_CTYPE" in os.environ:  # Python sets this variable itself if there is no locale
        environ.setdefault("LC_CTYPE", os.environ["LC_CTYPE"])
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    tempfile.tempdir = tempfile._name_sequence = None
    site.USER_BASE = site.USER_SITE = None
    site.getusersitepackages()
    if "platform" in sys.modules:
        sys.modules["platform"]._uname_cache = None


def _blas():
    """Returns functions that set the number of processors for the linear algebra libraries. In
    the zygote these libraries use one processor, because a process with a second thread
    cannot fork."""
    found = []
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "openblas" in line}
    for path in libraries:
        library = ctypes.CDLL(path)
        for name in ("openblas_set_num_threads", "scipy_openblas_set_num_threads"):
            found += [getattr(library, name + suffix) for suffix in ("", "64_", "_64") if hasattr(library, name + suffix)]
    return found


class Stamp:
    """Records the files that import would use for the modules that are already loaded. If
    import would use other files in a sandbox, a forked kernel must not be used there."""

    def __init__(self, extra):
        # Files in the working directory cannot shadow modules that even a cold kernel has
        # loaded before it enters the directory.
        self._shadows = extra | {"matplotlibrc"}
        self._loaded = {name.partition(".")[0] for name in sys.modules}
        self._distributions = _distributions(self._loaded)
        self._places = {path: self._look(path) for path in sys.path[1:]}

    def changed(self):
        """Returns the names of modules that differ. If there are none, the kernel is equivalent
        to a new one."""
        found = {_stem(name) for name in _names(os.curdir) if _stem(name) == name or name.endswith((".py", ".pyc", ".so"))}
        found &= self._shadows
        if site.ENABLE_USER_SITE and os.path.isdir(site.USER_SITE):
            found.add(site.USER_SITE)
        for path, (time, names) in self._places.items():
            if _time(path) != time:
                found.update(_stem(name) for name in self._look(path)[1] ^ names)
        return sorted(found)

    def _look(self, path):
        return _time(path), frozenset(name for name in _names(path) if self._matters(name))

    def _matters(self, name):
        if name.endswith((".dist-info", ".egg-info")):
            return _stem(name).lower() in self._distributions
        return _stem(name) in self._loaded or name.endswith(".pth") or _stem(name) in ("sitecustomize", "usercustomize")


def _names(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def _time(path):
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _stem(name):
    return name.partition(".")[0].partition("-")[0]


def _distributions(modules):
    """Returns the distributions that contain the modules, keyed by the names of their
    directories."""
    found = set()
    for distribution in importlib.metadata.distributions():
        top = (distribution.read_text("top_level.txt") or "").split()
        record = distribution.read_text("RECORD")  # distribution.files would make an object for each file
        files = (line[0] for line in csv.reader(record.splitlines()) if line) if record else map(str, distribution.files or ())
        top += {file.partition("/")[0].partition(".")[0] for file in files if file.endswith(".py")}
        if not modules.isdisjoint(top):
            found.add(distribution.metadata["Name"].replace("-", "_").lower())
    return found
