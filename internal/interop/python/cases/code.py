import threading

from e2b import InvalidArgumentException, NotFoundException, SandboxException, TimeoutException


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
@together
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
@together
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
    assert "sandbox was killed while the request was in progress" in str(ended.value), ended.value


@interprets
async def a_timeout_in_a_context_leaves_it_usable(sandbox):
    context = await sandbox.create_code_context()
    await sandbox.run_code("x = 41", context=context)
    with raises(TimeoutException):
        await sandbox.run_code("while True: pass", context=context, timeout=0.3)
    same((await sandbox.run_code("x + 1", context=context, timeout=0)).text, "42")


@interprets
async def contexts_are_listed_in_order_and_named_by_id(sandbox):
    first = await sandbox.create_code_context()
    same((first.cwd, first.language), ("/home/user", "python"))
    second = await sandbox.create_code_context(cwd="/")
    listed = await sandbox.list_code_contexts()
    same([one.id for one in listed[-2:]], [first.id, second.id])
    same(listed[0].language, "python")
    await sandbox.run_code("x = 1", context=second)
    await sandbox.restart_code_context(second.id)
    same((await sandbox.run_code("x", context=second)).error.value, "name 'x' is not defined")
    await sandbox.remove_code_context(second.id)
    for refused in (sandbox.restart_code_context, sandbox.remove_code_context):
        with raises(NotFoundException) as unknown:
            await refused(second.id)
        same(str(unknown.value), f"Context {second.id} not found")


@interprets
async def the_default_context_is_that_of_its_language(sandbox):
    await sandbox.run_code("x = 1")
    same((await sandbox.run_code("x", language=" Python ")).text, "1")
    (default,) = [one for one in await sandbox.list_code_contexts() if one.language == "python"]
    same((await sandbox.run_code("x", context=default)).text, "1")


@interprets
@together
async def a_language_that_is_not_there(sandbox):
    for refused in (
        lambda: sandbox.run_code("1", language="cobol"),
        lambda: sandbox.create_code_context(language="cobol"),
    ):
        with raises(SandboxException) as unknown:
            await refused()
        assert str(unknown.value).startswith("500"), unknown.value
        assert "The 'cobol' kernel is not available." in str(unknown.value), unknown.value
    same((await sandbox.run_code("1")).text, "1")


@interprets
@together
async def output_comes_as_it_is_written(sandbox):
    seen = []
    execution = await sandbox.run_code(
        'import sys\nfor i in range(3):\n    print(i, flush=True)\n    print("!", end="", file=sys.stderr, flush=True)',
        on_stdout=lambda message: seen.append((message.error, message.line, message.timestamp)),
        on_stderr=lambda message: seen.append((message.error, message.line, message.timestamp)),
    )
    same("".join(line for error, line, _ in seen if not error), "0\n1\n2\n")
    same("".join(line for error, line, _ in seen if error), "!!!")
    same("".join(execution.logs.stdout), "0\n1\n2\n")
    # The server's clock, in a form that sorts.
    times = [time for _, _, time in seen]
    assert all(isinstance(time, str) and time.endswith("+00:00") for time in times), times
    same(times, sorted(times))


@interprets
@together
async def output_of_every_kind_of_text(sandbox):
    text = "a\x85b\u2028c\u2029d\u20ac\U0001f600\r\t\x00"
    same("".join((await sandbox.run_code(f"print({ascii(text)}, end='')")).logs.stdout), text)
    same((await sandbox.run_code("'\U0001f600'")).text, "\U0001f600")
    large = await sandbox.run_code("print('x' * 5_000_000)")
    same(sum(map(len, large.logs.stdout)), 5_000_001)


@interprets
@together
async def what_no_environment_can_have_is_refused(sandbox):
    await sandbox.run_code("x = 41")
    for envs in ({"": "x"}, {"A=B": "x"}, {"A": "\0"}):
        with raises(SandboxException) as refused:
            await sandbox.run_code("1", envs=envs)
        assert str(refused.value).startswith("400") and "env_vars" in str(refused.value), refused.value
    same((await sandbox.run_code("x + 1")).text, "42")


@interprets
@together
async def groups_of_exceptions(sandbox):
    error = (await sandbox.run_code("import sys\nif sys.version_info < (3, 11): ExceptionGroup = lambda name, of: of[0]\nraise ExceptionGroup('g', [KeyError(2)])")).error
    assert error.name in ("ExceptionGroup", "KeyError"), error
    assert "KeyError: 2" in error.traceback, error.traceback


@interprets
@together
async def nobody_answers_input(sandbox):
    error = (await sandbox.run_code("input()")).error
    same(error.name, "StdinNotImplementedError")
    same((await sandbox.run_code("1")).text, "1")


@interprets
@together
async def syntax_errors_and_exits(sandbox):
    error = (await sandbox.run_code("x = 1\nif")).error
    same(error.name, "SyntaxError")
    same((await sandbox.run_code("import sys\nx = 2\nsys.exit(3)")).error.name, "SystemExit")
    same((await sandbox.run_code("x")).text, "2")


@interprets
async def a_dead_kernel_is_replaced(sandbox):
    error = (await sandbox.run_code("x = 1\nimport os\nos._exit(1)")).error
    same((error.name, error.value), ("ContextRestarting", "Context was restarted"))
    same((await sandbox.run_code("x")).error.name, "NameError")
    same((await sandbox.run_code("!pwd")).logs.stdout, ["/home/user\n"])


@interprets
@together
async def variables_and_code_of_any_form(sandbox):
    value = "it's \"quoted\" \\ and\nlong"
    code = '    import os\n    os.environ["ODD"] == %r' % value
    same((await sandbox.run_code(code, envs={"ODD": value})).text, "True")
    same((await sandbox.run_code("%%capture out\nprint(1)", envs={"A": "b"})).error, None)
    same((await sandbox.run_code("import asyncio\nawait asyncio.sleep(0, 7)")).text, "7")
