"""Drives one sandbox with the official SDKs, configured by the environment alone."""

import asyncio

from e2b import (
    AuthenticationException,
    CommandExitException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)
from e2b import Sandbox as Core
from e2b_code_interpreter import AsyncSandbox, Sandbox

OPTIONS = dict(metadata={"suite": "interop"}, envs={"GREETING": "hello"})

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = f"""
class Picture:
    def _repr_png_(self):
        import base64
        return base64.b64decode("{PNG}")
Picture()"""


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
    assert sandbox.commands.run("echo $USER", user="root").stdout == "root\n"
    result = sandbox.commands.run('echo "$GREETING $EXTRA"; pwd', envs={"EXTRA": "you"}, cwd="/tmp")
    assert result.stdout == "hello you\n/tmp\n", result
    raises(InvalidArgumentException, lambda: sandbox.commands.run("true", cwd="/no/such/directory"))
    raises(TimeoutException, lambda: sandbox.commands.run("sleep 60", timeout=0.5))
    step("commands")

    sleeper = sandbox.commands.run("sleep 1234", background=True)
    assert sleeper.pid in [one.pid for one in sandbox.commands.list()]
    assert sleeper.kill()
    raises(CommandExitException, sleeper.wait)
    assert not sandbox.commands.kill(sleeper.pid)
    echo = sandbox.commands.run("cat", background=True, stdin=True)
    joined = sandbox.commands.connect(echo.pid)
    echo.send_stdin("first\n")
    sandbox.commands.send_stdin(echo.pid, "second\n")
    echo.close_stdin()
    assert echo.wait().stdout == "first\nsecond\n"
    assert joined.wait().exit_code == 0
    step("background")

    content = "line\nünïcode ✓\n"
    sandbox.files.write("notes/a.txt", content)
    assert sandbox.files.read("notes/a.txt") == content
    assert [entry.name for entry in sandbox.files.list("notes")] == ["a.txt"]
    assert not sandbox.files.exists("notes/b.txt")
    raises(FileNotFoundException, lambda: sandbox.files.read("notes/b.txt"))
    raises(NotFoundException, lambda: sandbox.files.list("nowhere"))
    assert sandbox.files.make_dir("tree/a/b")
    assert not sandbox.files.make_dir("tree/a/b")
    sandbox.files.write_files([{"path": "tree/a/1", "data": "one"}, {"path": "tree/a/b/2", "data": "two"}])
    paths = sorted(entry.path for entry in sandbox.files.list("tree", depth=3))
    assert paths == ["/home/user/tree/a" + path for path in ("", "/1", "/b", "/b/2")], paths
    moved = sandbox.files.rename("tree/a/1", "tree/one")
    assert (moved.path, moved.type, moved.size) == ("/home/user/tree/one", FileType.FILE, 3), moved
    assert not sandbox.files.exists("tree/a/1")
    assert sandbox.files.get_info("tree").type == FileType.DIR
    sandbox.files.remove("tree")
    assert not sandbox.files.exists("tree/one")
    sandbox.files.write("/root/private", "x", user="root")
    assert sandbox.commands.run("test $(stat -c %u /root/private) = $(id -u) && echo owned", user="root").stdout == "owned\n"
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
    assert not sandbox.kill()
    raises(NotFoundException, lambda: Core.connect(sandbox.sandbox_id))
    raises(TimeoutException, lambda: sandbox.commands.run("true"))
    assert "no-such-template" in str(raises(SandboxException, lambda: Core.create("no-such-template")))
    raises(AuthenticationException, lambda: Core.create(api_key="e2b_" + "0" * 40))
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
        assert (context.id, "/tmp") in [(one.id, one.cwd) for one in sandbox.list_code_contexts()]
        sandbox.run_code("y = 1", context=context)
        sandbox.restart_code_context(context)
        assert sandbox.run_code("y", context=context).error.name == "NameError"
        sandbox.remove_code_context(context)
        assert context.id not in [one.id for one in sandbox.list_code_contexts()]
        code = 'import os; os.environ["GREETING"] + os.environ["EXTRA"]'
        assert sandbox.run_code(code, envs={"EXTRA": "!"}).text == "hello!"
        assert sandbox.run_code('os.environ.get("EXTRA", "gone")').text == "gone"
        raises(TimeoutException, lambda: sandbox.run_code("import time\ntime.sleep(60)", timeout=0.5))
        assert sandbox.run_code("x").text == "41"
        results = []
        drawn = sandbox.run_code(PICTURE, on_result=results.append)
        assert drawn.results[0].png.strip() == PNG and len(results) == 1, drawn
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
