"""The engine for a Python with IPython. It is IPython's own shell, with redirected output."""
import asyncio
import contextlib
import inspect
import io
import os
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
import zlib

import IPython
from IPython.core import page
from IPython.core.compilerop import CachingCompiler
from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.profiledir import ProfileDir
from IPython.utils.tokenutil import token_at_cursor
from traitlets import Type
from traitlets.config import Config

from . import formatters, images
from .errors import GROUP, advise, chain, failure, hide_own_frames
from .history import History
from .sources import Sources


# The magics that ipykernel adds to IPython's, by module. A module is loaded when one of its
# magics is first used.
MAGICS = {
    __package__ + ".magics": ("autosave", "clear", "connect_info", "less", "man", "more", "qtconsole"),
    "IPython.extensions.storemagic": ("store",),
}

# Number of times that a cell must run until Python no longer changes the cell's bytecode.
ROUNDS = 20


class Hook(DisplayHook):
    """Sends the value of a cell as execute_result."""

    def quiet(self):
        # IPython runs a tokenizer to check whether the cell ends in a semicolon. Hardly any
        # cell contains one.
        return ";" in self.shell.history_manager.input_hist_parsed[-1] and super().quiet()

    def write_output_prompt(self):
        pass

    def finish_displayhook(self):
        self._is_active = False  # there is no line to end, and sys.stdout may be any object

    def cull_cache(self):
        outputs = self.shell.user_ns.get("_oh", {})
        before = list(outputs)
        super().cull_cache()
        # IPython leaves each value that it removes from Out in another namespace, and its text in the
        # history.
        for cell in before:
            if cell not in outputs:
                self.shell.user_ns_hidden.pop("_%d" % cell, None)
                self.shell.history_manager.output_hist_reprs.pop(cell, None)

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.kernel.display("execute_result", format_dict, md_dict, execution_count=self.prompt_count)


class Publisher(DisplayPublisher):
    """Implements display() and similar functions."""

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        kind = "update_display_data" if update else "display_data"
        self.shell.kernel.display(kind, data, metadata, transient=transient or {})

    def clear_output(self, wait=False):
        self.shell.kernel.emit("clear_output", {"wait": bool(wait)})


class Compiler(CachingCompiler):
    """Names cells as ipykernel does. Libraries, and programs that receive a traceback,
    recognise such a name as a notebook's cell."""

    def __init__(self):
        super().__init__()
        self._sources = Sources(self._forget)

    def cache(self, transformed_code, number=0, raw_code=None):
        name = super().cache(transformed_code, number, raw_code)
        self._sources.keep(name, transformed_code)
        return name

    def _forget(self, name):
        self._filename_map.pop(name, None)
        inspect.modulesbyfile.pop(name, None)

    def get_code_name(self, raw_code, transformed_code, number):
        code = raw_code.encode("utf-8", "surrogatepass")
        name = os.path.join(tempfile.gettempdir(), "ipykernel_%d" % os.getpid(), "%d.py" % zlib.crc32(code))
        # A traceback needs the module of each frame's file. For a file that does not exist,
        # inspect searches all modules, which takes longer than everything else.
        inspect.modulesbyfile[name] = "__main__"
        return name


class ZMQInteractiveShell(InteractiveShell):
    """The shell. It has the name of ipykernel's shell, and an attribute kernel. Libraries check
    both to detect a notebook, and then display tables and progress as HTML instead of text
    for a terminal."""

    compiler_class = Type(Compiler)
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)

    def __init__(self, kernel, **options):
        self.kernel = kernel
        self.failure = None
        self.cancelled = False  # the cell was interrupted while it was awaiting
        self._left_out = 0  # number of frames that are left out of the next traceback
        super().__init__(**options)

    def init_hooks(self):
        super().init_hooks()
        # The output of `name?` is displayed, because there is no terminal with a pager.
        self.set_hook("show_in_pager", page.as_hook(page.display_page), 99)
        self.set_hook("editor", _no_editor, 0)

    def init_magics(self):
        super().init_magics()
        for module, names in MAGICS.items():
            for name in names:
                self.magics_manager.register_lazy(name, module)

    def init_traceback_handlers(self, *arguments):
        super().init_traceback_handlers(*arguments)
        records = self.InteractiveTB.get_records

        def get_records(etb, *options):
            # For code without a file, IPython uses the frame's current line. The frame may
            # have continued to a finally or an except since the exception.
            lines, found = {}, records(etb, *options)
            while etb is not None:
                lines[etb.tb_frame] = etb.tb_lineno
                etb = etb.tb_next
            for record in found:
                if getattr(record, "frame", None) in lines:
                    record.lineno = lines[record.frame]
            return found

        self.InteractiveTB.get_records = get_records

    def init_display_formatter(self):
        self.display_formatter = formatters.Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def init_history(self):
        self.history_manager = History(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    def _tee(self, channel):
        return contextlib.nullcontext()  # outputs are not kept

    def showtraceback(self, exc_tuple=None, *arguments, **options):
        self.kernel.restore_modules()
        try:
            etype, error, frames = self._get_exc_info(exc_tuple)
        except ValueError:
            error = None
        if error is None:
            print("No traceback available to show.", file=sys.stderr)
            return
        if self.kernel.wire.forked:  # a child that the cell forked: it ends here and reports to no client
            os._exit(1)
        advise(error)
        linked = chain(error)
        for e in linked:
            hide_own_frames(e)
        if any(isinstance(e, GROUP) for e in linked):  # IPython would print these exceptions
            self._showtraceback(etype, error, _plainly(error, error.__traceback__))
            return
        # IPython takes a millisecond or more for each frame, and does not respond to
        # interrupts during that time.
        self._left_out = sum(_cut(e) for e in linked)
        super().showtraceback((etype, error, error.__traceback__ or frames), *arguments, **options)

    def show_usage_error(self, error):
        super().show_usage_error(error)
        self.failure = failure(error, [])  # reported only in the reply, as in ipykernel

    def _format_exception_for_storage(self, *arguments, **options):
        return None  # not kept, like outputs; formatting it would double the work

    async def run_code(self, *arguments, **options):
        # From here to the cell, no code swallows an interrupt.
        self.kernel.interrupts.admit()
        return await super().run_code(*arguments, **options)

    def _showtraceback(self, etype, evalue, stb):
        name, lines = etype.__name__, list(stb)
        if self._left_out:
            lines.insert(-1, "    [... %d frames are left out]\n" % self._left_out)
            self._left_out = 0
        if self.cancelled and issubclass(etype, asyncio.CancelledError):
            # An interrupt reaches an awaiting cell as a cancellation.
            lines = [line.replace(name, "KeyboardInterrupt") for line in lines]
            name = "KeyboardInterrupt"
        self.failure = dict(failure(evalue, lines), ename=name)
        self.kernel.emit_last("error", self.failure)

    def ask_exit(self):
        raise SystemExit  # `exit` ends the cell and not the kernel, like sys.exit()

    def enable_gui(self, gui=None):
        pass  # there is no screen, but matplotlib calls this method

    def system(self, command):
        """Runs `!command`. Its output is part of the cell's output, in order."""
        shell = "/bin/bash" if os.path.exists("/bin/bash") else None
        process = subprocess.Popen(self.var_expand(command, depth=1), shell=True, executable=shell,
                                   stdin=subprocess.DEVNULL, stdout=1, stderr=subprocess.STDOUT)
        try:
            self.user_ns["_exit_code"] = process.wait()
        except BaseException:
            # The whole process group received the interrupt. A command that does not end
            # soon will not end by itself.
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise

    system_piped = system_raw = system


def _no_editor(shell, filename, *arguments, **options):
    raise UsageError("there is no editor here: %%writefile writes a file")


# A longer traceback is displayed without its middle.
MAX_FRAMES = 40


def _cut(error):
    """Removes the middle of an exception's traceback. Returns the number of removed frames."""
    frames, frame = [], error.__traceback__
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    left_out = len(frames) - 2 * MAX_FRAMES
    if left_out <= 0:
        return 0
    rest = frames[-MAX_FRAMES]
    for frame in reversed(frames[:MAX_FRAMES]):
        rest = types.TracebackType(rest, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    error.__traceback__ = rest
    return left_out


def _plainly(error, frames):
    """Formats a traceback as Python itself does. It begins where the user's code begins."""
    while frames is not None and frames.tb_frame.f_globals.get("__name__") != "__main__":
        frames = frames.tb_next
    return ["".join(traceback.format_exception(type(error), error, frames))]


def scratch():
    """Returns the directory to which IPython may write. It is next to the driver and not in the
    user's home, unless another user owns it."""
    directory = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "ipython")
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        directory = ""
    return directory if os.access(directory, os.W_OK) else tempfile.mkdtemp(prefix="ipython-")


class Engine:
    name = "ipython"
    version = IPython.__version__

    def __init__(self, kernel):
        config = Config()
        config.HistoryManager.enabled = False  # the database of the history costs a millisecond per cell
        config.PlainTextFormatter.max_seq_length = 0
        config.InteractiveShell.colors = "NoColor"
        config.InteractiveShell.banner1 = ""
        config.IPKernelApp.connection_file = ""  # tqdm and others recognise a notebook by this section
        self._choose_backend()
        sys.meta_path.insert(0, images.Finder)
        directory = scratch()
        profile = ProfileDir.create_profile_dir(directory, config=config)
        self._shell = ZMQInteractiveShell.instance(kernel=kernel, config=config, profile_dir=profile, ipython_dir=directory)
        self.kernel = kernel
        self._shell.loop_runner = self._run_async
        # IPython's advice is useful at a terminal. Here, sys.exit() ends only the cell.
        warnings.filterwarnings("ignore", message="To exit: use")

    @staticmethod
    def _choose_backend():
        # This backend sends figures as PNG, through the display formatters.
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")

    def load(self, names):
        """Imports modules as a cell would, because some modules look for the shell and
        sys.stdout when they are imported."""
        with self.kernel.muted(), self._shell.builtin_trap:
            for name in names:
                try:
                    __import__(name)
                except Exception:
                    pass  # missing or broken; code that imports it receives the error

    def warm(self):
        """Does the same as cells, so that all code for them is loaded and initialised. Leaves
        no other effect."""
        cells = ["1+1", "print(1)"]
        if "numpy" in sys.modules:
            cells.append("import numpy; numpy.ones(2)")
        if "pandas" in sys.modules:
            cells.append("import pandas; pandas.DataFrame({'a': [1.5]})")
        # The first traceback imports a dozen modules, and the first frame of a library
        # makes inspect read all files. Both take longer than an interrupted cell may take
        # to answer.
        self.rehearse(['[{"a": ""}]', "import json; json.loads('')"] + cells * ROUNDS)
        for name in "last_type", "last_value", "last_traceback", "last_exc":
            vars(sys).pop(name, None)
        if "matplotlib" in sys.modules:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure

            from . import charts

            figure = Figure()
            figure.add_subplot().plot([1, 2])
            charts.extract(figure)
            FigureCanvasAgg(figure).print_png(io.BytesIO())

    def rehearse(self, cells):
        """Runs cells, and removes their effects."""
        shell = self._shell
        names, hidden = dict(shell.user_ns), dict(shell.user_ns_hidden)
        self.kernel.rehearse(self, cells)
        shell.displayhook.flush()
        shell.last_execution_result = None
        for kept, namespace in (names, shell.user_ns), (hidden, shell.user_ns_hidden):
            namespace.clear()
            namespace.update(kept)

    def attach(self):
        """Repeats in a forked process the steps of __init__ that acted on the process."""
        self._choose_backend()
        os.makedirs(self._shell.profile_dir.location, exist_ok=True)
        self._shell.profile_dir.check_dirs()

    def enter(self, directory):
        """Enters a directory, which becomes the first directory of `%cd -` and `%dhist`."""
        try:
            os.chdir(directory)
        finally:
            self._shell.history_manager.dir_hist[:] = [os.getcwd()]

    def execute(self, request):
        shell, silent = self._shell, request.get("silent", False)
        store = request.get("store_history", True) and not silent
        if not silent:
            self.kernel.emit("execute_input", {"code": request["code"], "execution_count": shell.execution_count})
        shell.failure, shell.cancelled = None, False
        if "_oh" not in shell.user_ns:  # a cell has cleared its globals, which the shell needs to display a value
            shell.user_ns.setdefault("__name__", "__main__")
            shell.init_user_ns()
        count = shell.execution_count
        self.kernel.interrupts.defer()
        result = shell.run_cell(request["code"], store_history=store, silent=silent)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            self.kernel.restore_modules()
            content = shell.failure
            if content is None:  # the cell has broken the code that would have reported the error
                content = failure(error, _plainly(error, error.__traceback__))
                self.kernel.emit_last("error", content)
            return dict(content, status="error", execution_count=count, payload=[])
        expressions = shell.user_expressions(request.get("user_expressions") or {})
        return {"status": "ok", "execution_count": count, "user_expressions": expressions, "payload": []}

    def _run_async(self, coroutine):
        return self.kernel.tasks.run(coroutine, self._cancelling)

    def _cancelling(self):
        self._shell.cancelled = True

    def answer(self, type, content):
        handler = getattr(self, "_" + type, None)
        if handler is None:
            raise ValueError("%s is not supported" % type)
        return dict({"status": "ok"}, **handler(content))

    def _complete_request(self, content):
        code = content["code"]
        position = content.get("cursor_pos", len(code))
        with provisionalcompleter():
            found = list(rectify_completions(code, self._shell.Completer.completions(code, position)))
        start, end = (found[0].start, found[0].end) if found else (position, position)
        types = [{"start": c.start, "end": c.end, "text": c.text, "type": c.type} for c in found]
        return {"matches": [c.text for c in found], "cursor_start": start, "cursor_end": end,
                "metadata": {"_jupyter_types_experimental": types}}

    def _inspect_request(self, content):
        name = token_at_cursor(content["code"], content.get("cursor_pos", len(content["code"])))
        try:
            data = self._shell.object_inspect_mime(name, detail_level=content.get("detail_level", 0))
        except KeyError:
            return {"found": False, "data": {}, "metadata": {}}
        return {"found": True, "data": data, "metadata": {}}

    def _is_complete_request(self, content):
        status, indent = self._shell.input_transformer_manager.check_complete(content["code"])
        return {"status": status, "indent": " " * (indent or 0)} if status == "incomplete" else {"status": status}

    def _history_request(self, content):
        history, kind = self._shell.history_manager, content.get("hist_access_type")
        raw, output = content.get("raw", True), content.get("output", False)
        if kind == "range":
            found = history.get_range(0, content.get("start", 0) or 0, content.get("stop"), raw=raw, output=output)
        elif kind == "search":
            found = history.search(content.get("pattern") or "*", raw=raw, output=output, n=content.get("n"), unique=content.get("unique", False))
        else:
            found = history.get_tail(content.get("n") or 1000, raw=raw, output=output, include_latest=True)
        return {"history": list(found)}
