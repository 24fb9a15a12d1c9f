from e2b_code_interpreter import charts

DRAW = "import matplotlib.pyplot as plt\n"


async def drawn(sandbox, code):
    """Returns the one chart that the code shows."""
    execution = await sandbox.run_code(DRAW + code + "\nplt.show()")
    assert not execution.error, execution.error
    (result,) = execution.results
    same((result.is_main_result, bool(result.png), bool(result.text), result.extra), (False, True, True, {}))
    assert {"png", "text", "chart"} == set(result.formats()), list(result.formats())
    return result.chart


def fields(*chosen):
    """Returns a function that makes an element comparable: the chosen fields."""
    return lambda element: tuple(getattr(element, field) for field in chosen)


def plain(points):
    return [tuple(point) for point in points]


@interprets
@together
async def lines(sandbox):
    chart = await drawn(
        sandbox,
        """
plt.plot([1, 2, 3], [4, 5, 6], label="a")
plt.plot([1, 2, 3], [10, 100, 1000])
plt.axhline(50)
plt.title("T"); plt.xlabel("Time (s)"); plt.ylabel("Speed [m/s]"); plt.yscale("log")
""",
    )
    same((type(chart), chart.type, chart.title), (charts.LineChart, charts.ChartType.LINE, "T"))
    same((chart.x_label, chart.y_label, chart.x_unit, chart.y_unit), ("Time (s)", "Speed [m/s]", "s", "m/s"))
    same((chart.x_scale, chart.y_scale), (charts.ScaleType.LINEAR, charts.ScaleType.LOG))
    same([one.label for one in chart.elements], ["a", "Line 1"])
    same([plain(one.points) for one in chart.elements], [[(1, 4), (2, 5), (3, 6)], [(1, 10), (2, 100), (3, 1000)]])
    same(len(chart.x_ticks), len(chart.x_tick_labels))
    same(len(chart.y_ticks), len(chart.y_tick_labels))


@interprets
@together
async def dates_and_names(sandbox):
    chart = await drawn(sandbox, "import datetime\nplt.plot([datetime.date(2024, 1, day) for day in (1, 2)], ['a', 'b'])")
    same((chart.x_scale, chart.y_scale), (charts.ScaleType.DATETIME, charts.ScaleType.CATEGORICAL))
    same(plain(chart.elements[0].points), [("2024-01-01", "a"), ("2024-01-02", "b")])
    same((chart.title, chart.x_label, chart.x_unit), (None, None, None))
    assert all(isinstance(tick, str) for tick in chart.x_ticks), chart.x_ticks


@interprets
@together
async def points(sandbox):
    chart = await drawn(sandbox, 'plt.scatter([1, 2], [3, 4], label="a"); plt.scatter([5], [6], label="b")')
    same((type(chart), chart.type), (charts.ScatterChart, charts.ChartType.SCATTER))
    same([(one.label, plain(one.points)) for one in chart.elements], [("a", [(1, 3), (2, 4)]), ("b", [(5, 6)])])


@interprets
@together
async def bars(sandbox):
    bar = fields("label", "group", "value")
    chart = await drawn(sandbox, 'plt.bar(["a", "b"], [1, 2], label="m"); plt.bar(["a", "b"], [3, 4], bottom=[1, 2])')
    same((type(chart), chart.type), (charts.BarChart, charts.ChartType.BAR))
    want = [("a", "m", 1), ("b", "m", 2), ("a", "Group 1", 3), ("b", "Group 1", 4)]
    same([bar(one) for one in chart.elements], want)
    lying = await drawn(sandbox, 'plt.barh(["a", "b"], [1, 2]); plt.xlabel("X (u)"); plt.ylabel("Y")')
    same([bar(one) for one in lying.elements], [("a", "Group 0", 1), ("b", "Group 0", 2)])
    same((lying.x_label, lying.y_label, lying.x_unit, lying.y_unit), ("Y", "X (u)", None, "u"))


@interprets
@together
async def slices(sandbox):
    chart = await drawn(sandbox, 'plt.pie([1, 3], labels=["a", "b"], radius=2)')
    same((type(chart), chart.type), (charts.PieChart, charts.ChartType.PIE))
    same([fields("label", "angle", "radius")(one) for one in chart.elements], [("a", 90, 2), ("b", 270, 2)])


@interprets
@together
async def boxes(sandbox):
    chart = await drawn(sandbox, 'plt.boxplot([[1, 2, 3, 4, 100], [2, 3, 4]], tick_labels=["a", "b"], patch_artist=True)')
    same((type(chart), chart.type), (charts.BoxAndWhiskerChart, charts.ChartType.BOX_AND_WHISKER))
    box = fields("label", "min", "first_quartile", "median", "third_quartile", "max", "outliers")
    same([box(one) for one in chart.elements], [("a", 1, 2, 3, 4, 4, [100]), ("b", 2, 2.5, 3, 3.5, 4, [])])


@interprets
@together
async def several_and_unknown(sandbox):
    chart = await drawn(sandbox, '_, (a, b) = plt.subplots(1, 2); a.pie([1]); b.bar(["x"], [2]); plt.suptitle("S")')
    same((type(chart), chart.type, chart.title), (charts.SuperChart, charts.ChartType.SUPERCHART, "S"))
    same([type(one) for one in chart.elements], [charts.PieChart, charts.BarChart])
    unknown = await drawn(sandbox, "plt.imshow([[1]])")
    same((type(unknown), unknown.type, unknown.elements), (charts.Chart, charts.ChartType.UNKNOWN, []))


@interprets
@together
async def a_figure_and_a_value(sandbox):
    execution = await sandbox.run_code(DRAW + "x = 3\nplt.plot([1, 2, 3])\nplt.show()\nx")
    figure, value = execution.results
    same((figure.is_main_result, bool(figure.png), bool(figure.chart), figure.extra), (False, True, True, {}))
    same((value.is_main_result, value.text, value.chart, list(value.formats())), (True, "3", None, ["text"]))
    # The execution as a whole can be stored.
    assert '"chart"' in execution.to_json()


@interprets
@together
async def objects_of_ones_own(sandbox):
    execution = await sandbox.run_code("""
class Chart:
    def _repr_e2b_chart_(self):
        return {"type": "pie", "title": "own", "elements": [{"label": "a", "angle": 360, "radius": 1}]}
class Data:
    def _repr_e2b_data_(self):
        return {"a": [1, None]}
display(Chart())
Data()""")
    chart, data = execution.results
    same((type(chart.chart), chart.chart.title, data.data), (charts.PieChart, "own", {"a": [1, None]}))
