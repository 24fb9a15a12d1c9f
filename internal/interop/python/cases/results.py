import base64

RICH = """
class Rich:
    def _repr_html_(self): return "<b>x</b>"
    def _repr_markdown_(self): return "**x**"
    def _repr_latex_(self): return "$x$"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"png"
    def _repr_jpeg_(self): return b"jpeg"
    def _repr_json_(self): return {"a": [1]}
    def _repr_javascript_(self): return "1"
from IPython.display import display
display(Rich())
{"list": [1, 2]}"""


@interprets
@together
async def every_form_of_a_result(sandbox):
    rich, main = (await sandbox.run_code(RICH)).results
    same((rich.html, rich.markdown, rich.latex, rich.svg), ("<b>x</b>", "**x**", "$x$", "<svg/>"))
    same((rich.png.strip(), rich.jpeg.strip(), rich.json, rich.javascript), ("cG5n", "anBlZw==", {"a": [1]}, "1"))
    same((rich.is_main_result, main.is_main_result, main.json), (False, True, {"list": [1, 2]}))
    assert {"html", "png", "text"} <= set(rich.formats()), list(rich.formats())


@interprets
@together
async def tables_and_figures(sandbox):
    execution = await sandbox.run_code("""
import pandas as pd, matplotlib.pyplot as plt
plt.plot([1, 2], [3, 4]); plt.show()
pd.DataFrame({"a": [1, 2, 3]})""")
    figure, table = execution.results
    assert figure.png and "<table" in table.html
    same(list(table.data["a"]), [1, 2, 3])


@interprets
@together
async def the_other_forms_of_a_result(sandbox):
    execution = await sandbox.run_code("""
display({"text/latex": "$x$"}, raw=True)
display({"application/pdf": "cGRm", "application/vnd.own+json": {"a": [None]}, "text/plain": "t"}, raw=True)
"'quoted'"
""")
    latex, other, main = execution.results
    same((list(latex.formats()), latex.text), (["latex"], None))
    same((other.pdf, other.extra, other.text), ("cGRm", {"application/vnd.own+json": {"a": [None]}}, "t"))
    same((main.text, main.extra, list(main.formats())), ("'quoted'", {}, ["text"]))


@interprets
@together
async def values_that_are_not_json(sandbox):
    # NaN, infinity and dates have no form in JSON.
    main = (await sandbox.run_code("import math\n[1, math.nan, math.inf, None, {'a': (1, 'b')}]")).results[0]
    same(main.json, [1, None, None, None, {"a": [1, "b"]}])
    table = (await sandbox.run_code("""
import pandas as pd
pd.DataFrame({"when": pd.to_datetime(["2024-01-02", "2024-01-03"]), "part": [0.5, None]})""")).results[0]
    same(table.data["when"], ["2024-01-02T00:00:00", "2024-01-03T00:00:00"])
    same(table.data["part"], [0.5, "nan"])
    opaque = (await sandbox.run_code("{1: object}")).results[0]
    same((opaque.json, opaque.text), (None, "{1: object}"))


@interprets
@together
async def pictures(sandbox):
    execution = await sandbox.run_code("""
from PIL import Image
picture = Image.new("RGB", (2, 1), "red")
picture.show()
picture.save("/tmp/picture.png")
picture""")
    same([one.is_main_result for one in execution.results], [False, False, True])
    same([base64.b64decode(one.png)[:4] for one in execution.results], [b"\x89PNG"] * 3)


@interprets
@together
async def what_only_changes_a_display_is_no_result(sandbox):
    execution = await sandbox.run_code("""
from IPython.display import clear_output
handle = display("one", display_id=True)
handle.update("two")
clear_output()""")
    same([(one.text, one.is_main_result) for one in execution.results], [("one", False)])
