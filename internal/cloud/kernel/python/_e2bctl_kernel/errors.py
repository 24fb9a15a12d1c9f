"""The content of the errors that clients get."""
import builtins
import importlib.util
import os
import re
import types

# The maximum length in characters of an exception's text and of each part of its traceback.
MAX_ERROR = 1 << 20
# How many characters of it are read for what is missing.
MAX_ADVISED = 4096

# Before Python 3.11 there are no groups, and nothing is an instance of ().
GROUP = getattr(builtins, "BaseExceptionGroup", ())

# Where the code of this package is.
_OWN = os.path.join(os.path.dirname(__file__), "")


class StdinNotImplementedError(NotImplementedError):
    """Raised by input() if no client can answer. It has the name of IPython's class."""

    __module__ = "__main__"  # tracebacks show any other


# The modules that `e2bctl local setup` installs, with what pip calls those that have
# another name there.
PREPARED = {"IPython": "ipython", "numpy": "numpy", "pandas": "pandas", "matplotlib": "matplotlib", "PIL": "pillow", "requests": "requests", "jinja2": "jinja2", "nbformat": "nbformat", "nest_asyncio": "nest-asyncio"}

# The same for `e2bctl local setup --full`.
FULL = {
    "aiohttp": "aiohttp", "bokeh": "bokeh", "bs4": "beautifulsoup4", "cv2": "opencv-python", "docx": "python-docx",
    "e2b_charts": "e2b-charts", "gensim": "gensim", "imageio": "imageio", "ipykernel": "ipykernel", "joblib": "joblib",
    "jupyter_server": "jupyter-server", "kaleido": "kaleido", "librosa": "librosa", "nltk": "nltk", "numba": "numba",
    "openpyxl": "openpyxl", "orjson": "orjson", "plotly": "plotly", "pytest": "pytest", "pytz": "pytz", "scipy": "scipy",
    "seaborn": "seaborn", "skimage": "scikit-image", "sklearn": "scikit-learn", "soundfile": "soundfile", "spacy": "spacy",
    "sympy": "sympy", "textblob": "textblob", "tornado": "tornado", "urllib3": "urllib3", "xarray": "xarray", "xlrd": "xlrd",
}


# A word that may be the name of a module or of what pip installs.
_WORD = re.compile(r"\w+(?:-\w+)*")


def remedy(module, package):
    """Returns what to do about a module that is missing, and that pip calls package."""
    command, call = ("setup", "local.Setup") if module in PREPARED else ("setup --full", "local.Setup with WithFullPackages")
    return "run `e2bctl local %s` on the machine of the local cloud (%s in Go) and start it again, or in this sandbox: pip install %s" % (command, call, package)


def advise(error, remedy=remedy):
    """Adds to the text of an exception what to do about a module that is missing only
    because nobody has prepared this Python."""
    try:
        text = str(error)
        module = next(filter(_missing, _wanted(error, text)), None)
    except Exception:
        return  # the cell has replaced the module or the finders, or its exception has no text
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
    """Yields the modules that an exception is about: the one that it names or, if it says that
    something is to be installed, that of the import that failed before it, and those in its text."""
    if isinstance(error, ModuleNotFoundError) and isinstance(error.msg, str):
        yield str(error.name).partition(".")[0]
    # A library's own exception. Some are a ValueError, but none of more than a text.
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
    """Returns an exception together with its causes and contexts, and for groups with the
    exceptions in them."""
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
    """Removes the frames of this package from an exception's traceback: the author of a
    cell called input(), and not what it is made of. A frame without a line, which nothing
    that shows tracebacks expects, gets the first of its function: some instructions belong
    to no line, and an interrupt may strike there."""
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
    """Returns text, without its middle if it is long: a line to the agent is limited."""
    if len(text) <= MAX_ERROR:
        return text
    half = MAX_ERROR // 2
    return "%s\n[... %d characters left out ...]\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def no_stdin(running):
    """Returns the class to raise for input() if no client can answer: IPython's own if there
    is one. Between cells it is an EOFError, too, as when a client goes away."""
    try:
        from IPython.core.error import StdinNotImplementedError as refusal
    except ImportError:
        refusal = StdinNotImplementedError
    return refusal if running else type(refusal.__name__, (refusal, EOFError), {"__module__": refusal.__module__})
