"""The kernel. It serves requests one at a time on the main thread, which signals interrupt."""
import builtins
import contextlib
import faulthandler
import getpass
import os
import queue
import sys
import threading
import traceback

from .errors import failure, hide_own_frames, no_stdin
from .streams import Message, Output, Stream
from .tasks import Requests
from .wire import Interrupts, Wire, bundle, dumps, encode

# Before one of these events, all printed text is sent. Then a process of user code cannot
# write to descriptor 1 or 2 first, so that the output stays in order.
SPAWNS = frozenset(("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn"))

# The variables of this process, even if user code replaces os.environ.
ENVIRON = os.environ


class Kernel:
    """The object get_ipython().kernel, through which an engine sends messages.

    An engine has two methods. execute(request) returns the content of the execute_reply.
    answer(type, content) returns the content of the reply to any other request."""

    def __init__(self, wire=Wire, output=Output, requests=Requests):
        self.interrupts = Interrupts()
        self.wire = wire(self.interrupts)
        self.output = output(self.wire, self.interrupts)
        self.stamp = None  # only in a forked kernel: checks whether the kernel may be used
        self.allow_stdin = None  # whether the client answers questions; None while no cell runs
        self._requests = requests(self.wire, self.interrupts)
        self.tasks = self._requests.tasks
        self._input_lock = threading.Lock()
        self._inputs = queue.SimpleQueue()
        self._asked = 0
        self._modules = {}  # the modules that were loaded before the first cell

    def connect(self, fd):
        """Takes over the process, whose output is sent to envd from now on."""
        # If C code crashes, the report goes to descriptor 2, and so to the client.
        faulthandler.enable(file=2)
        self.wire.connect(fd)
        self.output.start()
        sys.stdout = sys.__stdout__ = Stream("stdout", 1, self.output, self.wire)
        sys.stderr = sys.__stderr__ = Stream("stderr", 2, self.output, self.wire)
        builtins.input = self.raw_input
        getpass.getpass = self.getpass
        os.register_at_fork(after_in_child=self._forked)
        self.interrupts.watch_finalizers()
        sys.addaudithook(self._audit)
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def emit(self, type, content):
        """Sends a message on iopub, after all text that was printed before."""
        self.output.flush(encode(type, content))

    def emit_last(self, type, content):
        """Emits a message that the reply usually follows. It waits for the reply, at most as
        long as printed text, to be sent together with it."""
        if not self.wire.forked:
            self.output.write(Message(encode(type, content)))

    def display(self, type, data, metadata=None, **fields):
        """Emits display_data, update_display_data or execute_result."""
        text, refused = bundle(data)
        for line in refused:
            print(line, file=sys.stderr)
        content = '{"data":%s,"metadata":%s' % (text, dumps(metadata or {}))
        for name, value in fields.items():
            content += ",%s:%s" % (dumps(name), dumps(value))
        emit = self.emit_last if type == "execute_result" else self.emit
        emit(type, content + "}")

    def raw_input(self, prompt=""):
        """Asks the client for a line. Any thread may call it. Questions are asked one at a
        time."""
        return self._ask(str(prompt), False)

    def getpass(self, prompt="Password: ", stream=None):
        """Asks the client for a line that must not be displayed."""
        return self._ask(str(prompt), True)

    def _ask(self, prompt, password):
        if not self.allow_stdin:
            raise no_stdin(self.allow_stdin is not None)("raw_input was called, but this frontend does not support input requests.")
        with self._input_lock:
            self._asked += 1
            number = self._asked
            self.output.flush(encode("input_request", {"prompt": prompt, "password": password}, seq=number))
            reply = self._answer_to(number)
        if reply.get("eof"):
            raise EOFError("the client that could answer is gone")
        if reply["value"] == "\x04":  # clients send this for Ctrl-D
            raise EOFError
        return reply["value"]

    def _answer_to(self, number):
        while True:
            reply = self._inputs.get()
            if reply["seq"] == number:  # otherwise, it answers a question that was interrupted
                return reply

    def _read(self):
        try:
            for message in self.wire.lines():
                type = message["type"]
                if type == "input_reply":
                    self._inputs.put(message)
                elif type == "ack":
                    self.wire.ack(message["seq"])
                elif type == "interrupt_request":
                    self.interrupts.expect_signal(message["seq"])
                else:
                    self._requests.put(message)
        finally:
            # Envd has ended, or user code has broken the connection to it. A kernel that
            # can receive nothing would hang.
            os._exit(0)

    def keep_modules(self):
        """Remembers the loaded modules. restore_modules restores them.
        A zygote calls this for its kernels, because it touches every module, which costs a
        kernel megabytes."""
        self._modules.update(sys.modules)

    def restore_modules(self):
        """Makes imports work again after a cell that has cleared sys.modules. From Python 3.13
        on, tracebacks import modules, too."""
        if sys.modules.get("builtins") is not builtins or "__main__" not in sys.modules:
            sys.modules.update(self._modules)

    def serve(self, engine):
        if not self._modules:
            self.keep_modules()
        while True:
            request = self._requests.next()
            if request["type"] == "check":
                self.wire.send("checked", {"changed": self.stamp.changed()})
            else:
                self.answer(engine, request)

    def answer(self, engine, request):
        content = request.get("content")
        self.tasks.lend()
        if request["type"] == "execute_request":
            reply = self._execute(engine, content, request.get("env") or {})
        else:
            reply = self._guarded(lambda: engine.answer(request["type"], content), announce=True)
        self.tasks.take_back()
        if self.wire.forked:
            os._exit(reply["status"] != "ok")  # a child that the cell forked, and that ran to the end of the cell
        self.restore_modules()
        self._reply(encode("reply", reply, id=request["id"]))

    def rehearse(self, engine, codes):
        """Runs cells before connect, without sending messages. Python specialises its bytecode
        while it runs. After a number of rounds, the bytecode no longer changes."""
        with self.muted():
            for code in codes:
                self.answer(engine, {"type": "execute_request", "id": 0, "content": {"code": code, "store_history": False}})

    @contextlib.contextmanager
    def muted(self):
        """Installs the streams of a cell before connect, without sending messages."""
        self.wire.mute()
        stdout, sys.stdout = sys.stdout, Stream("stdout", 1, self.output, self.wire)
        try:
            yield
        finally:
            sys.stdout = stdout

    def _execute(self, engine, content, env):
        self.allow_stdin = bool(content.get("allow_stdin"))
        before = {}

        def execute():
            for name in env:  # an invalid name or value is an error of this execution
                before[name] = ENVIRON.get(name)
                ENVIRON[name] = env[name]
            return engine.execute(content)

        try:
            # An execution that is not silent begins with an execute_input.
            return self._guarded(execute, announce=content.get("silent", False))
        finally:
            self.allow_stdin = None
            for name, value in before.items():
                if value is not None:
                    ENVIRON[name] = value
                elif name in ENVIRON:
                    del ENVIRON[name]

    def _guarded(self, call, announce):
        """Runs a step of an engine, and sends an error message for an exception that the engine
        did not catch, such as an interrupt at the very end. The engine catches the
        exceptions of user code."""
        try:
            try:
                self.interrupts.arm()
                if announce:  # interrupts take effect from here on; envd does not send earlier ones
                    self.wire.send("armed", {})
                return call()
            finally:
                self.interrupts.disarm()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                hide_own_frames(error)
            self.restore_modules()
            content = failure(error, ["".join(traceback.format_exception(type(error), error, error.__traceback__))])
            self.emit_last("error", content)
            return dict(content, status="error")

    def _reply(self, message):
        """Sends a reply, after everything that was printed before."""
        ctypes = sys.modules.get("ctypes")
        if ctypes is not None:  # without ctypes, hardly any code here prints through libc
            try:
                ctypes.pythonapi.fflush(None)
            except Exception:
                pass  # a C library without this function
        self.output.flush(message)

    def _audit(self, event, args):
        if event in SPAWNS and not self.wire.forked:
            self.output.flush()
            self.wire.sync()

    def _forked(self):
        self.wire.close_in_child()
        self.output.forget()
        self._requests.forget()
