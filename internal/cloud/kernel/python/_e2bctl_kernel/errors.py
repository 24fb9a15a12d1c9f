"""The content of the errors that clients get."""
import importlib.util

# The maximum length in characters of an exception's text and of each part of its traceback.
MAX_ERROR = 1 << 20


class StdinNotImplementedError(NotImplementedError):
    """Raised by input() if no client can answer. It has the name of IPython's class."""


# The modules that `e2bctl local setup` installs, with what pip calls those that have
# another name there.
PREPARED = {"IPython": "ipython", "numpy": "numpy", "pandas": "pandas", "matplotlib": "matplotlib", "PIL": "pillow", "requests": "requests"}

# The same for `e2bctl local setup --full`.
FULL = {
    "aiohttp": "aiohttp", "bokeh": "bokeh", "bs4": "beautifulsoup4", "cv2": "opencv-python", "docx": "python-docx",
    "e2b_charts": "e2b-charts", "gensim": "gensim", "imageio": "imageio", "ipykernel": "ipykernel", "joblib": "joblib",
    "jupyter_server": "jupyter-server", "kaleido": "kaleido", "librosa": "librosa", "nltk": "nltk", "numba": "numba",
    "openpyxl": "openpyxl", "orjson": "orjson", "plotly": "plotly", "pytest": "pytest", "pytz": "pytz", "scipy": "scipy",
    "seaborn": "seaborn", "skimage": "scikit-image", "sklearn": "scikit-learn", "soundfile": "soundfile", "spacy": "spacy",
    "sympy": "sympy", "textblob": "textblob", "tornado": "tornado", "urllib3": "urllib3", "xarray": "xarray", "xlrd": "xlrd",
}


def advise(error):
    """Adds to the text of an exception what to do about a module that is missing only
    because nobody has prepared this Python."""
    if not isinstance(error, ModuleNotFoundError) or not isinstance(error.msg, str):
        return
    module = str(error.name).partition(".")[0]
    try:
        missing = (module in PREPARED or module in FULL) and importlib.util.find_spec(module) is None
    except Exception:
        return  # the cell has replaced the module or the finders
    command, call = ("setup", "local.Setup") if module in PREPARED else ("setup --full", "local.Setup with WithFullPackages")
    advice = "; run `e2bctl local %s` on the machine of the local cloud (%s in Go) and start it again, or in this sandbox: pip install " % (command, call)
    if missing and advice not in error.msg:
        error.msg += advice + (PREPARED.get(module) or FULL[module])


def failure(error, trace):
    """Returns the content of an error message."""
    try:
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    return {"ename": type(error).__name__, "evalue": _shortened(value), "traceback": [_shortened(part) for part in trace]}


def _shortened(text):
    """Returns text, without its middle if it is long: a line to the agent is limited."""
    if len(text) <= MAX_ERROR:
        return text
    half = MAX_ERROR // 2
    return "%s\n[... %d characters left out ...]\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def no_stdin():
    """Returns the class to raise for input() if no client can answer: IPython's own if there is one."""
    try:
        from IPython.core.error import StdinNotImplementedError as IPythons
    except ImportError:
        return StdinNotImplementedError
    return IPythons
