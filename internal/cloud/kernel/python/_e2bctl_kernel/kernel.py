"""The kernel: takes requests one at a time on the main thread, where signals strike."""
import builtins
import faulthandler
import getpass
import os
import queue
import sys
import threading
import traceback

from .errors import failure, no_stdin
from .streams import Output, Stream
from .wire import Interrupts, Wire, bundle, dumps

# Before a process of the user's code may write to descriptor 1 or 2, all that
# was printed is out: that keeps the two in order.
SPAWNS = frozenset(("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn"))

# The variables of this process, also when code puts something else in their place.
ENVIRON = os.environ


class Kernel:
    """What get_ipython().kernel is, and what an engine uses to speak.

    An engine has execute(request) -> content of execute_reply, and
    answer(type, content) -> content of the reply to any other request."""

    def __init__(self):
        self.interrupts = Interrupts()
        self.wire = Wire(self.interrupts)
        self.output = Output(self.wire, self.interrupts)
        self.stamp = None  # of a kernel that was forked: tells whether it may be used
        self.allow_stdin = False
        self._requests = queue.SimpleQueue()
        self._input_lock = threading.Lock()
        self._inputs = queue.SimpleQueue()
        self._asked = 0
        self._modules = {}  # that were loaded before the first cell

    def connect(self, fd):
        """Takes over the process: from now on it speaks to the agent."""
        # For C code that dies: its last words go to descriptor 2 and so to the client.
        faulthandler.enable(file=2)
        self.wire.connect(fd)
        self.output.start()
        sys.stdout = sys.__stdout__ = Stream("stdout", 1, self.output, self.wire)
        sys.stderr = sys.__stderr__ = Stream("stderr", 2, self.output, self.wire)
        builtins.input = self.raw_input
        getpass.getpass = self.getpass
        os.register_at_fork(after_in_child=self._forked)
        sys.addaudithook(self._audit)
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def emit(self, type, content):
        """Says something on iopub, after all that was printed before."""
        self.output.flush()
        self.wire.send(type, content)

    def display(self, type, data, metadata=None, **fields):
        """Emits display_data, update_display_data or execute_result."""
        text, refused = bundle(data)
        for line in refused:
            print(line, file=sys.stderr)
        content = '{"data":%s,"metadata":%s' % (text, dumps(metadata or {}))
        for name, value in fields.items():
            content += ",%s:%s" % (dumps(name), dumps(value))
        self.emit(type, content + "}")

    def raw_input(self, prompt=""):
        """Asks the client for a line; from any thread, one question at a time."""
        return self._ask(str(prompt), False)

    def getpass(self, prompt="Password: ", stream=None):
        """Asks the client for a line that is not to be shown."""
        return self._ask(str(prompt), True)

    def _ask(self, prompt, password):
        if not self.allow_stdin:
            raise no_stdin()("raw_input was called, but this frontend does not support input requests.")
        with self._input_lock:
            self._asked += 1
            number = self._asked
            self.output.flush()
            self.wire.send("input_request", {"prompt": prompt, "password": password}, seq=number)
            while True:
                reply = self._inputs.get()
                if reply["seq"] == number:  # else the answer to a question that was interrupted
                    break
        if reply.get("eof"):
            raise EOFError("the client that could answer is gone")
        if reply["value"] == "\x04":  # what a client sends for Ctrl-D
            raise EOFError
        return reply["value"]

    def _read(self):
        try:
            for message in self.wire.lines():
                type = message["type"]
                if type == "input_reply":
                    self._inputs.put(message)
                elif type == "ack":
                    self.wire.ack(message["seq"])
                else:
                    self._requests.put(message)
        finally:
            # The agent is gone, or user code has broken what this needs: to hear
            # nothing more would be to hang.
            os._exit(0)

    def keep_modules(self):
        """Has what is loaded at hand for after a cell that clears sys.modules. A zygote
        does it for its kernels: to touch each module costs them megabytes."""
        self._modules.update(sys.modules)

    def serve(self, engine):
        if not self._modules:
            self.keep_modules()
        while True:
            request = self._requests.get()
            if request["type"] == "check":
                self.wire.send("checked", {"changed": self.stamp.changed()})
            else:
                self.answer(engine, request)

    def answer(self, engine, request):
        content = request.get("content")
        if request["type"] == "execute_request":
            reply = self._execute(engine, content, request.get("env") or {})
        else:
            reply = self._guarded(lambda: engine.answer(request["type"], content), announce=True)
        if self.wire.forked:
            os._exit(reply["status"] != "ok")  # a child that the cell forked and let run to its end
        if sys.modules.get("builtins") is not builtins or "__main__" not in sys.modules:
            sys.modules.update(self._modules)  # the cell has cleared them: imports would fail for good
        self._flush_all()
        self.wire.send("reply", reply, id=request["id"])

    def rehearse(self, engine, codes):
        """Runs cells to nobody's hearing, before connect: Python writes down in its
        bytecode how it came along, until that has settled after some rounds."""
        self.wire.mute()
        stdout, sys.stdout = sys.stdout, Stream("stdout", 1, self.output, self.wire)
        try:
            for code in codes:
                self.answer(engine, {"type": "execute_request", "id": 0, "content": {"code": code, "store_history": False}})
        finally:
            sys.stdout = stdout

    def _execute(self, engine, content, env):
        self.allow_stdin = bool(content.get("allow_stdin"))
        before = {}

        def execute():
            for name in env:  # one that no process can have is an error of this execution
                before[name] = ENVIRON.get(name)
                ENVIRON[name] = env[name]
            return engine.execute(content)

        try:
            # An execution that is not silent announces itself with execute_input.
            return self._guarded(execute, announce=content.get("silent", False))
        finally:
            for name, value in before.items():
                if value is not None:
                    ENVIRON[name] = value
                elif name in ENVIRON:
                    del ENVIRON[name]

    def _guarded(self, call, announce):
        """An engine catches what user code raises. What gets past it, such as
        an interrupt at the very end, becomes an error all the same."""
        try:
            try:
                self.interrupts.arm()
                if announce:  # an interrupt strikes from here on; the agent keeps those before
                    self.wire.send("armed", {})
                return call()
            finally:
                self.interrupts.disarm()
        except BaseException as error:
            content = failure(error, ["".join(traceback.format_exception(type(error), error, error.__traceback__))])
            self.emit("error", content)
            return dict(content, status="error")

    def _flush_all(self):
        ctypes = sys.modules.get("ctypes")
        if ctypes is not None:  # else hardly anything here prints through libc
            try:
                ctypes.pythonapi.fflush(None)
            except Exception:
                pass  # a C library without it
        self.output.flush()

    def _audit(self, event, args):
        if event in SPAWNS and not self.wire.forked:
            self.output.flush()
            self.wire.sync()

    def _forked(self):
        self.wire.close_in_child()
        self.output.forget()
