import threading

from e2b import InvalidArgumentException, NotFoundException, TimeoutException


def interprets(body):
    body.kind = Interpreter
    return case(body)


@interprets
async def output_value_and_state(sandbox):
    out, err, results = [], [], []
    execution = await sandbox.run_code(
        'import sys\nprint("out")\nprint("err", file=sys.stderr)\nx = 41\nx + 1',
        on_stdout=lambda message: out.append(message.line),
        on_stderr=lambda message: err.append(message.line),
        on_result=results.append,
    )
    same((execution.error, execution.text, execution.execution_count), (None, "42", 1))
    same((execution.logs.stdout, execution.logs.stderr), (["out\n"], ["err\n"]))
    same((out, err, [one.is_main_result for one in results]), (["out\n"], ["err\n"], [True]))
    second = await sandbox.run_code("x", language="python")
    same((second.text, second.execution_count), ("41", 2))
    same((await sandbox.run_code("'ü✓'")).text, "ü✓")
    same((await sandbox.run_code("!pwd")).logs.stdout, ["/home/user\n"])
    same((await sandbox.run_code("    y = 1\n    y + 1")).text, "2")


@interprets
async def an_exception_is_part_of_the_execution(sandbox):
    errors = []
    error = (await sandbox.run_code("1/0", on_error=errors.append)).error
    same((error.name, error.value, len(errors)), ("ZeroDivisionError", "division by zero", 1))
    assert "ZeroDivisionError" in error.traceback


@interprets
async def contexts_are_apart(sandbox):
    context = await sandbox.create_code_context(cwd="/tmp", language="python")
    same((context.cwd, context.language), ("/tmp", "python"))
    same((await sandbox.run_code("import os; os.getcwd()", context=context)).text, "/tmp")
    await sandbox.run_code("x = 1")
    same((await sandbox.run_code("x", context=context)).error.name, "NameError")
    assert (context.id, "/tmp") in [(one.id, one.cwd) for one in await sandbox.list_code_contexts()]
    await sandbox.run_code("y = 1", context=context)
    await sandbox.restart_code_context(context)
    same((await sandbox.run_code("y", context=context)).error.name, "NameError")
    await sandbox.remove_code_context(context.id)
    assert context.id not in [one.id for one in await sandbox.list_code_contexts()]
    with raises(NotFoundException):
        await sandbox.run_code("1", context=context)
    with raises(InvalidArgumentException):
        await sandbox.run_code("1", context=context, language="python")


@interprets
async def variables_of_the_sandbox_and_of_a_call(sandbox):
    code = 'import os; os.environ["GREETING"] + os.environ.get("EXTRA", "-")'
    same((await sandbox.run_code(code, envs={"EXTRA": "!"})).text, "hello!")
    same((await sandbox.run_code(code, envs={"GREETING": "other"})).text, "other-")
    same((await sandbox.run_code(code)).text, "hello-")


@interprets
async def the_timeout_interrupts_and_keeps_the_state(sandbox):
    await sandbox.run_code("x = 41")
    with raises(TimeoutException):
        await sandbox.run_code("import time\ntime.sleep(60)", timeout=0.3)
    same((await sandbox.run_code("x")).text, "41")


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
async def every_form_of_a_result(sandbox):
    rich, main = (await sandbox.run_code(RICH)).results
    same((rich.html, rich.markdown, rich.latex, rich.svg), ("<b>x</b>", "**x**", "$x$", "<svg/>"))
    same((rich.png.strip(), rich.jpeg.strip(), rich.json, rich.javascript), ("cG5n", "anBlZw==", {"a": [1]}, "1"))
    same((rich.is_main_result, main.is_main_result, main.json), (False, True, {"list": [1, 2]}))
    assert {"html", "png", "text"} <= set(rich.formats()), list(rich.formats())


@interprets
async def tables_and_figures(sandbox):
    execution = await sandbox.run_code("""
import pandas as pd, matplotlib.pyplot as plt
plt.plot([1, 2], [3, 4]); plt.show()
pd.DataFrame({"a": [1, 2, 3]})""")
    figure, table = execution.results
    assert figure.png and "<table" in table.html
    same(list(table.data["a"]), [1, 2, 3])


@interprets
async def a_killed_sandbox_ends_the_execution(sandbox):
    code = 'print("go", flush=True)\nimport time\ntime.sleep(60)'

    if BLOCKING:
        killed = threading.Thread(target=sandbox.kill)
        with raises(TimeoutException) as ended:
            sandbox.run_code(code, on_stdout=lambda _: killed.start())
        killed.join()
    else:

        async def kill(_):
            await sandbox.kill()

        with raises(TimeoutException) as ended:
            await sandbox.run_code(code, on_stdout=kill)
    assert "killed" in str(ended.value), ended.value
