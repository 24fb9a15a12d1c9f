# Does the same as the template's startup script, in the same places: it runs in
# the user's namespace, leaves its names there, and its formatters look up modules
# in that namespace whenever a value is displayed.
import sys

import orjson
from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets.traitlets import ObjectName, Unicode


def _loaded(module, name):
    """Returns a class of a module if the module was imported: libraries that the
    code does not use must not cost anything."""
    found = sys.modules.get(module)
    return getattr(found, name, None) if found is not None else None


class E2BDataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict

    def __call__(self, value):
        frame = _loaded("pandas", "DataFrame")
        if frame is not None and isinstance(value, frame):
            from pandas import Timestamp

            def plain(item):
                return item.isoformat() if isinstance(item, Timestamp) else item

            return {name: [plain(item) for item in column] for name, column in value.to_dict(orient="list").items()}
        return super().__call__(value)


class E2BChartFormatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def __call__(self, value):
        figure = _loaded("matplotlib.figure", "Figure")
        if figure is not None and isinstance(value, figure):
            titles = [axes.get_title() for axes in value.get_axes()]
            return {"type": "unknown", "title": titles[0] or None, "elements": []} if titles else {}
        return super().__call__(value)


class E2BJSONFormatter(JSONFormatter):
    def __call__(self, value):
        if isinstance(value, (list, dict)):
            try:
                return orjson.loads(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)), {"expanded": True}
            except (TypeError, ValueError):
                pass
        return super().__call__(value)


ip = get_ipython()  # noqa: F821
for formatter in (E2BDataFormatter, E2BChartFormatter, E2BJSONFormatter):
    made = formatter(parent=ip.display_formatter)
    ip.display_formatter.formatters[made.format_type] = made
