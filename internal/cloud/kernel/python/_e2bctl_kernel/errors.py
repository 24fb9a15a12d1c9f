"""What errors say to clients."""

# An exception may say this much, in characters, and so may each part of its traceback.
MAX_ERROR = 1 << 20


class StdinNotImplementedError(NotImplementedError):
    """input() where no client answers; named as IPython names it."""


def failure(error, trace):
    """The content of error."""
    try:
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    return {"ename": type(error).__name__, "evalue": _shortened(value), "traceback": [_shortened(part) for part in trace]}


def _shortened(text):
    """A text whose middle is left out when it is long: a line to the agent is limited."""
    if len(text) <= MAX_ERROR:
        return text
    half = MAX_ERROR // 2
    return "%s\n[... %d characters left out ...]\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def no_stdin():
    """The class to raise for input() where no client answers: IPython's own where there is one."""
    try:
        from IPython.core.error import StdinNotImplementedError as IPythons
    except ImportError:
        return StdinNotImplementedError
    return IPythons
