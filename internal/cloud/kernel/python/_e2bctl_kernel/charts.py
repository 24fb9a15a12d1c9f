"""Converts a matplotlib figure to the data that it displays: e2b/chart.

All values are read from the drawing, not from the call that drew it. The module is imported
when the first figure is displayed; matplotlib is then already loaded."""
import decimal
import re
import sys

import numpy
from matplotlib import dates
from matplotlib.category import StrCategoryLocator
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.container import BarContainer, ErrorbarContainer, StemContainer
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Polygon, Rectangle, StepPatch, Wedge

# A figure with more points is displayed as a picture, but not sent as data.
MAX_POINTS = 500000

_UNIT = re.compile(r"\s(?:\(([^()]+)\)|\[([^][]+)\])")


class TooLarge(Exception):
    """Raised for a figure with more points than MAX_POINTS."""


def extract(figure):
    """Returns the chart of a figure. Returns {} if nothing was drawn."""
    if not any(axes.has_data() for axes in figure.axes):
        return {}
    points = sum(_size(artist) for axes in figure.axes for artist in _drawn(axes))
    if points > MAX_POINTS:
        raise TooLarge("%d points, the limit is %d" % (points, MAX_POINTS))
    charts = [_chart(axes) for axes in figure.axes]
    if len(charts) == 1:
        return charts[0]
    return {"type": "superchart", "title": figure.get_suptitle(), "elements": charts}


def _size(artist):
    if isinstance(artist, Line2D):
        return len(artist.get_xdata())
    if isinstance(artist, PolyCollection):
        return sum(len(path.vertices) for path in artist.get_paths())
    return len(artist.get_offsets()) if isinstance(artist, PathCollection) else 1


def _chart(axes):
    kind, content = _described(axes)
    return {"type": kind, "title": axes.get_title() or None, **content}


def _described(axes):
    """Returns the type and the elements of a chart. If it has several kinds of elements, these
    are those of the kind with the most elements."""
    if _all(_drawn(axes), Line2D):
        return "line", _line(axes)
    kinds = (("scatter", _scatter, PathCollection), ("pie", _pie, Wedge), ("bar", _bar, (Rectangle, Polygon, StepPatch)), ("box_and_whisker", _box, PathPatch))
    described = [(kind, describe(axes)) for kind, describe, types in kinds if _those(axes, types)]
    if not any(kind == "box_and_whisker" and content["elements"] for kind, content in described):  # the boxes already include these lines
        described.append(("line", _line(axes)))
    kind, content = max(described, key=lambda one: len(one[1]["elements"]))
    return (kind, content) if content["elements"] else ("unknown", {"elements": []})


def _drawn(axes):
    return [*axes.lines, *axes.patches, *axes.collections, *axes.images, *axes.tables, *axes.artists]


def _all(artists, types):
    return all(isinstance(artist, types) for artist in artists)


def _those(axes, types):
    """Returns the artists of types that display data. Leaves out artists across the whole
    chart, as from axhline and axvspan, because their position is not a position in the data."""
    return [artist for artist in _drawn(axes) if isinstance(artist, types) and _in_data(artist, axes)]


def _in_data(artist, axes):
    transform = artist.get_offset_transform() if isinstance(artist, PathCollection) else artist.get_transform()
    return all(transform.contains_branch_seperately(axes.transData))


def _series(axes):
    """Returns the lines that display data, each with the label of its container. Leaves out the
    lines of error bars and stems."""
    labels, left_out = {}, set()
    for container in axes.containers:
        if isinstance(container, ErrorbarContainer):
            line, *parts = container
            left_out.update(part for several in parts for part in several)
        elif isinstance(container, StemContainer):
            line = container.markerline
            left_out.add(container.baseline)
        else:
            continue
        if line is not None:
            labels[line] = str(container.get_label())
    return [(line, _name([labels.get(line, ""), str(line.get_label())], "Line"))
            for line in _those(axes, Line2D) if line not in left_out]


def _name(labels, kind):
    """Returns the first label that was set. If none was, returns kind with matplotlib's number."""
    for label in labels:
        if label and not label.startswith("_"):
            return label
    for label in reversed(labels):
        if re.match(r"_(child|container)\d+$", label):
            return re.sub(r"^_(child|container)", kind + " ", label)
    return labels[-1]


def _line(axes):
    elements = [
        {"label": label,
         "points": _pairs(_own(axes.xaxis, line.get_xdata(orig=True), line.get_xdata(orig=False)),
                          _own(axes.yaxis, line.get_ydata(orig=True), line.get_ydata(orig=False)))}
        for line, label in _series(axes)
    ]
    if not elements:
        elements = [{"label": label, "points": _pairs(_places(axes.xaxis, x), _places(axes.yaxis, y))}
                    for label, x, y in _areas(axes)]
    return {"elements": elements, **_labels(axes), **_scales(axes)}


def _areas(axes):
    """Returns the label, x and y of areas between curves. y is the curve above or below zero,
    the thickness of an area that is stacked on another one, or both curves of a band."""
    found, below = [], None
    for area in _those(axes, PolyCollection):
        parts = [_curves(path.vertices) for path in area.get_paths()]
        if not parts or None in parts:
            continue
        label = _name([str(area.get_label())], "Line")
        x, first, second = (numpy.concatenate(several) for several in zip(*parts))
        if not second.any():
            curves = [first]
        elif not first.any():
            curves = [second]
        elif below is not None and numpy.array_equal(below, first):
            curves = [second - first]
        else:
            curves = [first, second]
        below = second
        found += [(label, x, curve) for curve in curves]
    return found


def _curves(outline):
    """Returns x and both y of an outline that fill_between drew: there along one curve, and
    back along the other. Returns None for any other outline."""
    n = (len(outline) - 3) // 2
    there, back = outline[1:n + 1], outline[2 * n + 1:n + 1:-1]
    if n < 1 or len(outline) != 2 * n + 3 or not numpy.array_equal(there[:, 0], back[:, 0]):
        return None
    return there[:, 0], there[:, 1], back[:, 1]


def _scatter(axes):
    elements = []
    for series in _those(axes, PathCollection):
        x, y = numpy.ma.filled(numpy.ma.asarray(series.get_offsets(), dtype=float), numpy.nan).T
        elements.append({"label": str(series.get_label()),
                         "points": _pairs(_places(axes.xaxis, x), _places(axes.yaxis, y))})
    return {"elements": elements, **_labels(axes), **_scales(axes)}


def _pie(axes):
    return {"elements": [
        {"label": str(wedge.get_label()), "angle": abs(_rounded(float(wedge.theta2) - float(wedge.theta1))), "radius": float(wedge.r)}
        for wedge in _those(axes, Wedge)
    ]}


def _rounded(value):
    """Returns value, rounded as the service rounds the numbers of pies and boxes: to eight
    digits after the point if there is one digit before it, and to fewer if there are more."""
    exact = decimal.Decimal(str(value))
    if not exact.is_finite():
        return value
    return float(decimal.Context(prec=max(1, 8 - exact.adjusted())).plus(exact))


def _bar(axes):
    groups = [group for group in axes.containers if isinstance(group, BarContainer)]
    horizontal = any(group.orientation == "horizontal" for group in groups)
    axis = axes.yaxis if horizontal else axes.xaxis
    elements = []
    for group in groups:
        name = re.sub(r"^_container(\d+)$", r"Group \1", str(group.get_label()))
        places = [(_middle(bar.get_y(), bar.get_height()) if horizontal else _middle(bar.get_x(), bar.get_width()))
                  for bar in group]
        for bar, label in zip(group, _tick_labels(axis, places)):
            value = bar.get_width() if horizontal else bar.get_height()
            elements.append({"label": label, "group": name, "value": float(value)})
    for name, places, values, across in _steps(axes):
        horizontal = horizontal or across
        labels = _tick_labels(axes.yaxis if across else axes.xaxis, places)
        elements += [{"label": label, "group": name, "value": value} for label, value in zip(labels, values)]
    return {"elements": elements, **_labels(axes, swapped=horizontal)}


def _steps(axes):
    """Returns the name, the positions and the values of the bars of histograms that are drawn
    as one outline, and whether the bars are horizontal."""
    found = []
    for patch in _those(axes, (Polygon, StepPatch)):
        if isinstance(patch, StepPatch):
            values, bounds, base = patch.get_data()
            values = values - (0 if base is None else base)
            horizontal = patch.orientation == "horizontal"
        else:
            along, up = patch.get_xy().T
            horizontal = along[0] != along[1]
            if horizontal:
                along, up = up, along
            rises = numpy.diff(up) != 0
            if len(along) < 4 or (rises & (numpy.diff(along) != 0))[:-1].any():
                continue  # the outline of something other than a histogram
            back = numpy.flatnonzero(numpy.diff(along) < 0)
            turn = back[0] if len(back) else len(along) - 1
            bounds = along[:turn + 1:2]
            values = up[1:turn:2]
            if len(bounds) != len(values) + 1:
                continue
            # A filled outline returns along its bottom.
            bottom = up[turn + 1:turn + 2 * len(values) + 1:2][::-1] if len(along) >= turn + 2 * len(values) else 0
            values = values - bottom
        places = [_middle(low, high - low) for low, high in zip(bounds, bounds[1:])]
        label = patch.get_label()  # None if hist received no label
        name = "Group %d" % len(found) if label is None else _name([str(label)], "Group")
        found.append((name, places, [float(value) for value in values], horizontal))
    return found


def _middle(start, length):
    return float(start) + float(length) / 2


def _boxes(axes):
    return [patch for patch in _those(axes, PathPatch) if not isinstance(patch, StepPatch)]


def _box(axes):
    lines = [[numpy.asarray(values, dtype=float) for values in line.get_data(orig=False)] for line in axes.lines]
    outlines = [patch.get_path().vertices.T for patch in _boxes(axes)]
    # The first argument runs along the axis of the values, and the second one across it.
    boxes = [_Box(y, x, [(y, x) for x, y in lines]) for x, y in outlines]
    swapped = not any(box.whiskers for box in boxes)
    if swapped:
        boxes = [_Box(x, y, lines) for x, y in outlines]
    names = _tick_labels(axes.yaxis if swapped else axes.xaxis, [box.place for box in boxes])
    elements = [{"label": name, **box.describe()} for name, box in zip(names, boxes) if box.drawn]
    return {"elements": elements, **_labels(axes, swapped)}


class _Box:
    """A box with its lines: whiskers, median and outliers."""

    def __init__(self, along, across, lines):
        left, right = float(across.min()), float(across.max())
        # A notch may extend beyond the quartiles. The quartiles are the sides with full
        # width.
        sides = along[:-1][(along[:-1] == along[1:]) & numpy.isclose(abs(numpy.diff(across)), right - left)]
        self.low, self.high = (float(f(sides if len(sides) else along)) for f in (numpy.min, numpy.max))
        self.place = (left + right) / 2
        lines = [line for line in lines if len(line[0]) and line[1].min() >= left and line[1].max() <= right]
        self._middle = [v for v, beside in lines if numpy.allclose(beside, self.place)]
        self.whiskers = [v for v in self._middle
                         if len(v) == 2 and (numpy.isclose(v.max(), self.low) or numpy.isclose(v.min(), self.high))]
        self._levels = [(v[0], abs(beside[1] - beside[0])) for v, beside in lines
                        if len(v) == 2 and v[0] == v[1] and self.low <= v[0] <= self.high and beside[0] != beside[1]]
        self.drawn = bool(self._levels)  # otherwise, it is the outline of something else

    def describe(self):
        ends = [float(end) for whisker in self.whiskers for end in whisker]
        least, most = min(ends, default=self.low), max(ends, default=self.high)
        # The median is not a cap: a cap is on a side if its whisker has no length. Nor is
        # it a mean, which is drawn later.
        median = max(self._levels, key=lambda level: (round(level[1], 9), self.low < level[0] < self.high), default=None)
        last = self._middle[-1] if self._middle else ()  # the marker of a mean is drawn before the outliers
        return {"min": _rounded(least), "first_quartile": _rounded(self.low), "median": median and _rounded(float(median[0])),
                "third_quartile": _rounded(self.high), "max": _rounded(most),
                "outliers": [_rounded(float(v)) for v in last if v < least or v > most]}


def _labels(axes, swapped=False):
    x, y = axes.get_xlabel() or None, axes.get_ylabel() or None
    if swapped:
        x, y = y, x
    return {"x_label": x, "y_label": y, "x_unit": _unit(x), "y_unit": _unit(y)}


def _unit(label):
    """Returns the part of a label in parentheses or brackets."""
    found = _UNIT.search(label or "")
    return (found.group(1) or found.group(2)) if found else None


def _scales(axes):
    found = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ticks = axis.get_majorticklocs()
        found[name + "_ticks"] = _places(axis, ticks)
        found[name + "_tick_labels"] = _tick_names(axis, ticks)
        found[name + "_scale"] = _scale(axis)
    return found


def _scale(axis):
    locator = axis.get_major_locator()
    if isinstance(locator, dates.DateLocator) or _frequency(axis):
        return "datetime"
    if isinstance(locator, StrCategoryLocator):
        return "categorical"
    return axis.get_scale()


def _frequency(axis):
    """Returns the length of the periods, if pandas has numbered periods along an axis."""
    locator = axis.get_major_locator()
    return locator.freq if type(locator).__module__.startswith("pandas.") and hasattr(locator, "plot_obj") else None


def _places(axis, values):
    """Returns positions on an axis. Positions on an axis of dates are in ISO 8601."""
    frequency = _frequency(axis)
    if frequency:
        period = sys.modules["pandas"].Period
        return [period(ordinal=int(value), freq=frequency).to_timestamp().isoformat() for value in values]
    if _scale(axis) == "datetime":
        return [date.isoformat() for date in dates.num2date(values)]
    return [float(value) for value in values]


def _own(axis, given, plotted):
    """Returns the values of a line. Dates and names are returned as they were given, and other
    values as they were plotted."""
    if _frequency(axis):
        return _places(axis, plotted)
    values = list(given)
    if values and all(isinstance(value, numpy.datetime64) for value in values):
        return [value.astype("datetime64[us]").item().isoformat() for value in values]
    if values and all(isinstance(value, str) or hasattr(value, "isoformat") for value in values):
        return [value if isinstance(value, str) else value.isoformat() for value in values]
    return [float(value) for value in numpy.ma.filled(numpy.ma.asarray(plotted, dtype=float), numpy.nan)]


def _pairs(x, y):
    return [list(pair) for pair in zip(x, y)]


def _tick_labels(axis, places):
    """Returns the names of positions. If there is one tick for each position, all at equal
    distances, as in a chart of groups, the names are those of the ticks in order. Otherwise,
    a name is that of the tick at the position, or the position itself."""
    ticks = axis.get_majorticklocs()
    names = _tick_names(axis, ticks)
    if places and len(names) == len(places) and numpy.allclose(numpy.subtract(places, ticks), places[0] - ticks[0]):
        return names
    names = {round(float(tick), 9): name for tick, name in zip(ticks, names)}
    return [names.get(round(place, 9)) or (own if isinstance(own, str) else "%g" % own)
            for place, own in zip(places, _places(axis, places))]


def _tick_names(axis, ticks):
    return [str(name) for name in axis.get_major_formatter().format_ticks(ticks)]
