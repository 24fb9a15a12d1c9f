"""The content of the errors that clients get."""

# The maximum length in characters of an exception's text and of each part of its traceback.
MAX_ERROR = 1 << 20


class StdinNotImplementedError(NotImplementedError):
    """Raised by input() if no client can answer. It has the name of IPython's class."""


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
