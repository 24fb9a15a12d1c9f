from e2b import CommandExitException, NotFoundException, PtySize, SandboxException, TimeoutException


class Screen:
    """Collects what a terminal shows. The asynchronous SDK delivers it from the
    start, the blocking one while the caller waits."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.data = b""

    def show(self, data):
        self.data += data

    async def create(self, **options):
        if BLOCKING:
            return self.sandbox.pty.create(PtySize(rows=24, cols=80), **options)
        return await self.sandbox.pty.create(PtySize(rows=24, cols=80), on_data=self.show, **options)

    async def connect(self, pid, **options):
        if BLOCKING:
            return self.sandbox.pty.connect(pid, **options)
        return await self.sandbox.pty.connect(pid, on_data=self.show, **options)

    async def wait(self, terminal):
        if BLOCKING:
            return terminal.wait(on_pty=self.show)
        return await terminal.wait()

    async def until(self, terminal, text):
        if BLOCKING:
            while text not in self.data:
                self.show(next(terminal_output(terminal)))
        else:
            await eventually(lambda: text in self.data, text)


def terminal_output(terminal):
    for _, _, data in terminal:
        if data:
            yield data


@case
async def a_shell_runs_what_is_typed(sandbox):
    screen = Screen(sandbox)
    terminal = await screen.create(cwd="/tmp", envs={"MARK": "mark"})
    await sandbox.pty.send_stdin(terminal.pid, b'stty size; echo "$MARK-$TERM-$LANG-$GREETING"; pwd; tty; exit 3\n')
    with raises(CommandExitException) as ended:
        await screen.wait(terminal)
    same((ended.value.exit_code, ended.value.stdout), (3, ""))
    for text in (b"24 80", b"mark-xterm-256color-C.UTF-8-hello", b"\n/tmp\r", b"/dev/pts/"):
        assert text in screen.data, (text, screen.data)


@case
async def resize_reaches_the_shell(sandbox):
    screen = Screen(sandbox)
    terminal = await screen.create(envs={"TERM": "dumb"})
    await sandbox.pty.resize(terminal.pid, PtySize(rows=50, cols=132))
    await sandbox.pty.send_stdin(terminal.pid, b"stty size; echo term=$TERM; exit\n")
    same((await screen.wait(terminal)).exit_code, 0)
    assert b"50 132" in screen.data and b"term=dumb" in screen.data, screen.data


@case
async def control_c_interrupts(sandbox):
    screen = Screen(sandbox)
    terminal = await screen.create()
    # The process that prints this is already in the foreground.
    await sandbox.pty.send_stdin(terminal.pid, b"bash -c 'echo re\"\"ady; exec sleep 1234'\n")
    await screen.until(terminal, b"ready")
    await sandbox.pty.send_stdin(terminal.pid, b"\x03")
    await sandbox.pty.send_stdin(terminal.pid, b"echo status=$?; exit 0\n")
    await screen.wait(terminal)
    assert b"status=130" in screen.data, screen.data


@case
async def connect_joins_and_disconnect_leaves(sandbox):
    terminal = await Screen(sandbox).create(timeout=0)
    await terminal.disconnect()
    screen = Screen(sandbox)
    again = await screen.connect(terminal.pid)
    await sandbox.pty.send_stdin(terminal.pid, b'echo a""gain; exit\n')
    await screen.wait(again)
    assert b"again" in screen.data, screen.data
    with raises(NotFoundException):
        await screen.connect(999_999)


@case
async def users_kill_and_timeout(sandbox):
    screen = Screen(sandbox)
    root = await screen.create(user="root")
    await sandbox.pty.send_stdin(root.pid, b"echo I am $(id -un)\n")
    await screen.until(root, b"I am root")
    assert root.pid in [one.pid for one in await sandbox.commands.list()]
    assert await sandbox.pty.kill(root.pid)
    with raises(CommandExitException):
        await screen.wait(root)
    assert not await sandbox.pty.kill(root.pid)
    short = await screen.create(timeout=3)
    with raises(TimeoutException):
        await screen.wait(short)


@case
async def a_terminal_has_no_stdin_of_a_command(sandbox):
    terminal = await Screen(sandbox).create()
    with raises(SandboxException):
        await terminal.send_stdin("x")
    with raises(SandboxException):
        await terminal.close_stdin()
    with raises(NotFoundException):
        await sandbox.pty.send_stdin(999_999, b"x")
    with raises(NotFoundException):
        await sandbox.pty.resize(999_999, PtySize(rows=1, cols=1))
    assert await terminal.kill()


@case
async def input_is_streamed_in_order(sandbox):
    if not hasattr(sandbox.pty, "stream_input"):
        return  # newer than the older generation
    screen = Screen(sandbox)
    terminal = await screen.create()
    lines = [b"echo $((40", b" + 2", b"))\n", b"exit\n"]
    if BLOCKING:
        sandbox.pty.stream_input(terminal.pid, iter(lines))
    else:
        async with sandbox.pty.stream_input(terminal.pid) as stream:
            for line in lines:
                await stream.send(line)
    await screen.wait(terminal)
    assert b"42\r\n" in screen.data, screen.data
