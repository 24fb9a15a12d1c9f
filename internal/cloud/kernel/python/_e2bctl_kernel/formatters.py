"""Representations that E2B's kernel adds to those of IPython."""
import json
import sys
import warnings

from IPython.core.formatters import BaseFormatter, DisplayFormatter
from traitlets import ObjectName, Unicode

from .wire import clean

# A larger table is displayed, but not sent as data: the conversion to lists would take
# seconds and gigabytes.
MAX_CELLS = 2000000


class DataFormatter(BaseFormatter):
    """Formats a table as columns: e2b/data."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class ChartFormatter(BaseFormatter):
    """Formats a figure as data: e2b/chart."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def pop(self, typ, default=None):
        # When matplotlib's backend chooses the format of pictures, it removes figures from
        # all formatters. This formatter must keep them, because it does not create
        # pictures.
        if getattr(typ, "__module__", None) == "matplotlib.figure":
            return default
        return super().pop(typ, default)


# Types whose only representation is text.
PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))


class Formatter(DisplayFormatter):
    """IPython's formatter, with E2B's representations. IPython asks a dozen formatters for each
    value, which is a large part of the cost of a small cell. This class asks only the
    formatter for text if no other formatter can have an answer."""

    def __init__(self, **options):
        super().__init__(**options)
        data = DataFormatter(parent=self)
        data.for_type_by_name("pandas.core.frame", "DataFrame", _columns)
        data.for_type_by_name("pandas", "DataFrame", _columns)
        self.formatters["e2b/data"] = data
        chart = ChartFormatter(parent=self)
        chart.for_type_by_name("matplotlib.figure", "Figure", _chart)
        self.formatters["e2b/chart"] = chart
        as_json = self.formatters["application/json"]
        as_json.for_type(list, _json)
        as_json.for_type(dict, _json)
        self._own = dict(self.formatters)

    def format(self, obj, include=None, exclude=None):
        if type(obj) in PLAIN and not include and not exclude and self._only_text(obj):
            text = self.formatters["text/plain"](obj)
            return ({} if text is None else {"text/plain": text}), {}
        return super().format(obj, include=include, exclude=exclude)

    def _only_text(self, obj):
        """Reports whether no other formatter is registered for such a value."""
        if self.formatters != self._own:
            return False
        bases = type(obj).__mro__
        if any(_registered(f, obj, bases) for f in (self.ipython_display_formatter, self.mimebundle_formatter)):
            return False
        return not any(_registered(f, obj, bases) for mime, f in self._own.items() if mime != "text/plain")


def _registered(formatter, obj, bases):
    if id(obj) in formatter.singleton_printers or not formatter.type_printers.keys().isdisjoint(bases):
        return True
    deferred = formatter.deferred_printers
    return bool(deferred) and any((t.__module__, t.__name__) in deferred for t in bases)


def _columns(frame):
    if frame.size > MAX_CELLS:
        _left_out("e2b/data", "%d cells, the limit is %d" % (frame.size, MAX_CELLS))
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two columns with the same name, the last one is used
        return clean(frame.to_dict(orient="list"), other=str)


def _chart(figure):
    """Returns a figure as data. A figure that cannot be converted is still displayed as a
    picture."""
    from . import charts

    try:
        return clean(charts.extract(figure))
    except charts.TooLarge as error:
        _left_out("e2b/chart", error)
        return None
    except Exception:
        return {}


def _left_out(mime, why):
    print("%s is left out of a result: %s" % (mime, why), file=sys.stderr)


def _json(value):
    """Returns lists and dicts as JSON if possible. NaN becomes null."""
    try:
        json.dumps(value, allow_nan=False)
        return value
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return clean(value, nonfinite=lambda _: None)
    except (TypeError, ValueError, RecursionError):
        return None
