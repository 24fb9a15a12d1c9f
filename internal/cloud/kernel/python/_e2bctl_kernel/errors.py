"""The contents of error messages to clients."""
import builtins
import importlib.util
import os
import re
import types

# Maximum number of characters of an exception's text, and of each part of its traceback.
MAX_ERROR = 1 << 20
# Number of characters of the text that are searched for missing modules.
MAX_ADVISED = 4096

# Python before 3.11 has no exception groups. No exception is an instance of ().
GROUP = getattr(builtins, "BaseExceptionGroup", ())

# The directory of this package.
_OWN = os.path.join(os.path.dirname(__file__), "")


class StdinNotImplementedError(NotImplementedError):
    """Raised by input() if no client can answer. It has the same name as IPython's class."""

    __module__ = "__main__"  # tracebacks display any other module name


# The modules that `e2bctl local setup` installs, with their names in pip.
PREPARED = {"IPython": "ipython", "numpy": "numpy", "pandas": "pandas", "matplotlib": "matplotlib", "PIL": "pillow", "requests": "requests", "jinja2": "jinja2", "nbformat": "nbformat", "nest_asyncio": "nest-asyncio"}

# The modules that `e2bctl local setup --full` installs in addition.
FULL = {
    "aiohttp": "aiohttp", "bokeh": "bokeh", "bs4": "beautifulsoup4", "cv2": "opencv-python", "docx": "python-docx",
    "e2b_charts": "e2b-charts", "gensim": "gensim", "imageio": "imageio", "ipykernel": "ipykernel", "joblib": "joblib",
    "jupyter_server": "jupyter-server", "kaleido": "kaleido", "librosa": "librosa", "nltk": "nltk", "numba": "numba",
    "openpyxl": "openpyxl", "orjson": "orjson", "plotly": "plotly", "pytest": "pytest", "pytz": "pytz", "scipy": "scipy",
    "seaborn": "seaborn", "skimage": "scikit-image", "sklearn": "scikit-learn", "soundfile": "soundfile", "spacy": "spacy",
    "sympy": "sympy", "textblob": "textblob", "tornado": "tornado", "urllib3": "urllib3", "xarray": "xarray", "xlrd": "xlrd",
}


# A word that may be the name of a module or of a pip package.
_WORD = re.compile(r"\w+(?:-\w+)*")


def remedy(module, package):
    """Returns the remedy for a missing module, which pip calls package."""
    command, call = ("setup", "local.Setup") if module in PREPARED else ("setup --full", "local.Setup with WithFullPackages")
    return "run `e2bctl local %s` on the machine of the local cloud (%s in Go) and start it again, or in this sandbox: pip install %s" % (command, call, package)


def advise(error, remedy=remedy):
    """Adds the remedy to the text of an exception about a missing module, if the module is
    missing only because this Python was not prepared."""
    try:
        text = str(error)
        module = next(filter(_missing, _wanted(error, text)), None)
    except Exception:
        return  # the cell has replaced the module or the finders, or the exception has no text
    if module is None:
        return
    advice = "; " + remedy(module, PREPARED.get(module) or FULL[module])
    if advice in text:
        return
    advice = text.rstrip(" .\n") + advice
    if isinstance(error, ImportError):
        error.msg = advice
    else:
        error.args = (advice,)


def _wanted(error, text):
    """Yields the modules that an exception is about. If the exception names a module, that is
    the first one. If it says that something must be installed, the module of the import that
    failed before is yielded. Modules in the exception's text follow."""
    if isinstance(error, ModuleNotFoundError) and isinstance(error.msg, str):
        yield str(error.name).partition(".")[0]
    # A library may raise its own exception. Some libraries raise a ValueError, always with
    # a single text.
    if not isinstance(error, ImportError) and (type(error) is not ValueError or error.args != (text,)):
        return
    if "install" not in text.lower() and "require" not in text.lower():
        return
    if isinstance(error.__cause__, ModuleNotFoundError):
        yield str(error.__cause__.name).partition(".")[0]
    words = {word.lower() for word in _WORD.findall(text[:MAX_ADVISED])}
    for module, package in {**PREPARED, **FULL}.items():
        if module.lower() in words or package in words:
            yield module


def _missing(module):
    return (module in PREPARED or module in FULL) and importlib.util.find_spec(module) is None


def failure(error, trace):
    """Returns the content of an error message."""
    try:
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    return {"ename": type(error).__name__, "evalue": _shortened(value), "traceback": [_shortened(part) for part in trace]}


def chain(error):
    """Yields an exception with its causes and contexts, and the exceptions in groups."""
    found, rest = {}, [error]
    while rest:
        error = rest.pop()
        if error is not None and id(error) not in found:
            found[id(error)] = error
            rest += error.__context__, error.__cause__
            if isinstance(error, GROUP):
                rest += error.exceptions
    return list(found.values())


def hide_own_frames(error):
    """Removes the frames of this package from an exception's traceback, because the author of a
    cell does not know how input() is implemented. A frame without a line gets the first line
    of its function. Such frames exist because some instructions belong to no line, where an
    interrupt may occur, and code that displays tracebacks does not expect them."""
    frames, frame = [], error.__traceback__
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    kept = [f for f in frames if not f.tb_frame.f_code.co_filename.startswith(_OWN)]
    if len(kept) == len(frames) and all(f.tb_lineno is not None for f in frames):
        return
    rest = None
    for f in reversed(kept):
        line = f.tb_frame.f_code.co_firstlineno if f.tb_lineno is None else f.tb_lineno
        rest = types.TracebackType(rest, f.tb_frame, f.tb_lasti, line)
    error.__traceback__ = rest


def _shortened(text):
    """Returns text, without its middle if it is long, because the size of a line to envd is
    bounded."""
    if len(text) <= MAX_ERROR:
        return text
    half = MAX_ERROR // 2
    return "%s\n[... %d characters left out ...]\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def no_stdin(running):
    """Returns the class that input() raises if no client can answer. This is IPython's own
    class, if there is one. Between cells, the class is also an EOFError, as when a client
    has gone."""
    try:
        from IPython.core.error import StdinNotImplementedError as refusal
    except ImportError:
        refusal = StdinNotImplementedError
    return refusal if running else type(refusal.__name__, (refusal, EOFError), {"__module__": refusal.__module__})
