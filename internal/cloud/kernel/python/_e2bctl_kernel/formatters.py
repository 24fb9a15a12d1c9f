"""Representations that E2B's kernel gives beyond IPython's own."""
import json
import sys

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

from .wire import clean

# A larger table is shown, but not sent as data: turning it into lists would
# take seconds and gigabytes.
MAX_CELLS = 2000000


class DataFormatter(BaseFormatter):
    """A table as columns: e2b/data."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


def register(display_formatter):
    data = DataFormatter(parent=display_formatter)
    data.for_type_by_name("pandas.core.frame", "DataFrame", _columns)
    data.for_type_by_name("pandas", "DataFrame", _columns)
    display_formatter.formatters["e2b/data"] = data
    as_json = display_formatter.formatters["application/json"]
    as_json.for_type(list, _json)
    as_json.for_type(dict, _json)


def _columns(frame):
    if frame.size > MAX_CELLS:
        print("e2b/data is left out of a result: %d cells, the limit is %d" % (frame.size, MAX_CELLS), file=sys.stderr)
        return None
    return clean(frame.to_dict(orient="list"))


def _json(value):
    """Lists and dicts as JSON, where they can be; NaN is null."""
    try:
        json.dumps(value, allow_nan=False)
        return value
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return clean(value, nonfinite=lambda _: None)
    except (TypeError, ValueError, RecursionError):
        return None
