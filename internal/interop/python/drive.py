"""Drives one sandbox with the official SDKs, configured by the environment alone."""

import asyncio

from e2b import CommandExitException, NotFoundException
from e2b import Sandbox as Core
from e2b_code_interpreter import AsyncSandbox, Sandbox

OPTIONS = dict(metadata={"suite": "interop"}, envs={"GREETING": "hello"})


def step(name):
    print("ok", name, flush=True)


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def drive(sandbox, kind):
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id, info
    assert info.metadata == {"suite": "interop"}, info
    assert sandbox.is_running()
    step("info")

    pages, listed = kind.list(), []
    while pages.has_next:
        listed += pages.next_items()
    assert sandbox.sandbox_id in [one.sandbox_id for one in listed], listed
    step("list")

    seen = []
    result = sandbox.commands.run('echo "$GREETING"; echo warning >&2; id -un', on_stdout=seen.append)
    assert (result.stdout, result.stderr) == ("hello\nuser\n", "warning\n"), result
    assert "".join(seen) == result.stdout, seen
    assert raises(CommandExitException, lambda: sandbox.commands.run("exit 7")).exit_code == 7
    assert sandbox.commands.run("id -un", user="root").stdout == "root\n"
    step("commands")

    content = "line\nünïcode ✓\n"
    sandbox.files.write("notes/a.txt", content)
    assert sandbox.files.read("notes/a.txt") == content
    assert [entry.name for entry in sandbox.files.list("notes")] == ["a.txt"]
    assert not sandbox.files.exists("notes/b.txt")
    raises(NotFoundException, lambda: sandbox.files.read("notes/b.txt"))
    data = bytes(i % 251 for i in range(100_000))
    sandbox.files.write("bytes", data)
    assert bytes(sandbox.files.read("bytes", format="bytes")) == data
    assert sandbox.commands.run("wc -c < /home/user/bytes").stdout.strip() == "100000"
    step("files")

    sandbox.set_timeout(120)
    again = kind.connect(sandbox.sandbox_id)
    assert again.commands.run("cat notes/a.txt").stdout == content
    step("connect")


def core():
    sandbox = Core.create(**OPTIONS)
    try:
        drive(sandbox, Core)
    finally:
        assert sandbox.kill()
    assert not sandbox.is_running()
    raises(Exception, lambda: Core.connect(sandbox.sandbox_id))
    step("kill")


def interpreter():
    sandbox = Sandbox.create(**OPTIONS)
    try:
        drive(sandbox, Sandbox)
        output = []
        code = 'import sys\nprint("out")\nprint("err", file=sys.stderr)\nx = 41\nx + 1'
        first = sandbox.run_code(code, on_stdout=lambda message: output.append(message.line))
        assert first.error is None and first.text == "42", first
        assert "".join(first.logs.stdout) == "".join(output) == "out\n", first
        assert "".join(first.logs.stderr) == "err\n", first
        assert sandbox.run_code("x").text == "41"
        failed = sandbox.run_code("1/0").error
        assert failed.name == "ZeroDivisionError" and "ZeroDivisionError" in failed.traceback, failed
        context = sandbox.create_code_context(cwd="/tmp")
        assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
        assert sandbox.run_code("x", context=context).error.name == "NameError"
        sandbox.remove_code_context(context)
        step("code")
    finally:
        assert sandbox.kill()


async def concurrently():
    sandbox = await AsyncSandbox.create(**OPTIONS)
    try:
        command, execution = await asyncio.gather(sandbox.commands.run("echo hi"), sandbox.run_code("2 + 2"))
        assert command.stdout == "hi\n" and execution.text == "4", (command, execution)
        step("async")
    finally:
        assert await sandbox.kill()


core()
interpreter()
asyncio.run(concurrently())
step("done")
