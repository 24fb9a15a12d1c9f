from e2b import AuthenticationException, CommandExitException, InvalidArgumentException, NotFoundException, TimeoutException


@case
@together
async def run_returns_output_and_status(sandbox):
    out, err = [], []
    result = await sandbox.commands.run(
        'echo "$GREETING"; echo warning >&2; id -un', on_stdout=out.append, on_stderr=err.append
    )
    same((result.exit_code, result.stdout, result.stderr, result.error), (0, "hello\nuser\n", "warning\n", None))
    same(("".join(out), "".join(err)), (result.stdout, result.stderr))


@case
@together
async def output_comes_while_the_command_runs(sandbox):
    handle = await sandbox.commands.run("echo one; read x; echo two; echo bad >&2", background=True, stdin=True)
    if BLOCKING:
        # With the blocking SDK a caller iterates and answers to talk to a command.
        seen = []
        for stdout, stderr, pty in handle:
            assert pty is None
            if stdout and not seen:
                handle.send_stdin("\n")
            seen.append(stdout or stderr)
        same(sorted(seen), ["bad\n", "one\n", "two\n"])
        same(handle.wait().stdout, "one\ntwo\n")
        return
    await eventually(lambda: handle.stdout == "one\n")
    same(handle.exit_code, None)
    await handle.send_stdin("\n")
    same((await handle.wait()).stdout, "one\ntwo\n")
    same((handle.exit_code, handle.stdout, handle.stderr), (0, "one\ntwo\n", "bad\n"))


@case
@together
async def callbacks_of_a_background_command(sandbox):
    out, err = [], []
    command = "echo out; echo err >&2"
    if BLOCKING:
        result = sandbox.commands.run(command, background=True).wait(on_stdout=out.append, on_stderr=err.append)
    else:

        async def on_stderr(text):
            err.append(text)

        handle = await sandbox.commands.run(command, background=True, on_stdout=out.append, on_stderr=on_stderr)
        result = await handle.wait()
    same(("".join(out), "".join(err), result.exit_code), ("out\n", "err\n", 0))


@case
@together
async def a_command_ends_when_it_leaves_a_server_that_holds_its_output(sandbox):
    result = await sandbox.commands.run("sleep 1234 & echo started")
    same((result.exit_code, result.stdout, result.stderr, result.error), (0, "started\n", "", None))


@case
@together
async def a_command_that_was_killed_is_gone(sandbox):
    handle = await sandbox.commands.run("sleep 1235", background=True)
    same(await sandbox.commands.kill(handle.pid), True)
    same([one for one in await sandbox.commands.list() if one.pid == handle.pid], [])
    same(await sandbox.commands.kill(handle.pid), False)


@case
@together
async def a_failed_command_is_an_exception_with_its_result(sandbox):
    with raises(CommandExitException) as failed:
        await sandbox.commands.run("echo out; echo err >&2; exit 7")
    error = failed.value
    same((error.exit_code, error.stdout, error.stderr, error.error), (7, "out\n", "err\n", "exit status 7"))
    with raises(CommandExitException) as missing:
        await sandbox.commands.run("no-such-program")
    same(missing.value.exit_code, 127)
    assert "no-such-program" in missing.value.stderr
    with raises(CommandExitException) as killed:
        await sandbox.commands.run("kill -KILL $$")
    same((killed.value.exit_code, killed.value.error), (-1, "signal: killed"))


@case
@together
async def user_cwd_and_envs(sandbox):
    commands = sandbox.commands
    same((await commands.run("id -un; echo $HOME", user="root")).stdout, "root\n/root\n")
    same((await commands.run("id -un; echo $HOME; pwd")).stdout, "user\n/home/user\n/home/user\n")
    same((await commands.run("pwd", cwd="/tmp")).stdout, "/tmp\n")
    await sandbox.files.make_dir("work")
    same((await commands.run("pwd", cwd="work")).stdout, "/home/user/work\n")
    same((await commands.run('echo "$GREETING $EXTRA"', envs={"EXTRA": "you"})).stdout, "hello you\n")
    same((await commands.run('echo "$GREETING"', envs={"GREETING": "other"})).stdout, "other\n")
    same((await commands.run('echo "[$EXTRA]"')).stdout, "[]\n")
    odd = "a \"b\" 'c' $d\n`e` ✓"
    same((await commands.run('printf %s "$ODD"', envs={"ODD": odd})).stdout, odd)


@case
@together
async def an_explicit_path_wins(sandbox):
    commands = sandbox.commands
    await sandbox.files.write("tools/mine", "#!/bin/sh\necho mine\n")
    await commands.run("chmod +x tools/mine")
    path = "/home/user/tools:" + (await commands.run("printf %s $PATH")).stdout
    same((await commands.run("mine; printf %s $PATH", envs={"PATH": path})).stdout, "mine\n" + path)
    same((await commands.run("command -v mine || echo none")).stdout, "none\n")


@case
async def bashrc_is_read(sandbox):
    commands = sandbox.commands
    await sandbox.files.write(".bashrc", "export FROM=bashrc\n")
    same((await commands.run("echo $FROM")).stdout, "bashrc\n")
    # The file's output comes first, more than once as on the service. An exit in the file ends the command.
    await sandbox.files.write(".bashrc", "echo noise\n")
    same(set((await commands.run("echo done")).stdout.split("\n")), {"noise", "done", ""})
    await sandbox.files.write(".bashrc", "exit 3\n")
    with raises(CommandExitException) as ended:
        await commands.run("echo done")
    same(ended.value.exit_code, 3)


@case
@together
async def a_missing_directory_and_an_unknown_user_are_refused(sandbox):
    with raises(InvalidArgumentException):
        await sandbox.commands.run("true", cwd="/no/such/directory")
    with raises(AuthenticationException) as unknown:
        await sandbox.commands.run("true", user="nobody-knows")
    assert "nobody-knows" in str(unknown.value)


@case
@together
async def the_timeout_ends_the_process(sandbox):
    with raises(TimeoutException):
        await sandbox.commands.run("sleep 1231", timeout=0.3)
    while any("sleep 1231" in one.args for one in await sandbox.commands.list()):
        await pause(0.02)
    handle = await sandbox.commands.run("sleep 1232", background=True, timeout=3)
    with raises(TimeoutException):
        await handle.wait()
    endless = await sandbox.commands.run("sleep 1233", background=True, timeout=0)
    assert await endless.kill()


@case
@together
async def list_tells_what_was_started(sandbox):
    handle = await sandbox.commands.run("sleep 1234", background=True, cwd="/tmp", envs={"MARK": "x"})
    [found] = [one for one in await sandbox.commands.list() if one.pid == handle.pid]
    same((found.cmd, found.args, found.cwd), ("/bin/bash", ["-l", "-c", "sleep 1234"], "/tmp"))
    same(found.envs["MARK"], "x")
    assert not found.tag
    await handle.kill()


@case
@together
async def kill_tells_whether_there_was_one(sandbox):
    first = await sandbox.commands.run("sleep 1234", background=True)
    assert await first.kill()
    with raises(CommandExitException) as ended:
        await first.wait()
    same((ended.value.exit_code, ended.value.error), (-1, "signal: killed"))
    assert not await first.kill()
    assert not await sandbox.commands.kill(first.pid)
    second = await sandbox.commands.run("sleep 1234", background=True)
    assert await sandbox.commands.kill(second.pid)


@case
@together
async def stdin_is_sent_and_closed(sandbox):
    cat = await sandbox.commands.run("cat", background=True, stdin=True)
    await cat.send_stdin("first ✓\n")
    await sandbox.commands.send_stdin(cat.pid, "second\n")
    await sandbox.commands.send_stdin(cat.pid, b"bytes\n")
    await cat.close_stdin()
    same((await cat.wait()).stdout, "first ✓\nsecond\nbytes\n")
    counter = await sandbox.commands.run("wc -c", background=True, stdin=True)
    await counter.send_stdin("x" * 300_000)
    await sandbox.commands.close_stdin(counter.pid)
    same((await counter.wait()).stdout.strip(), "300000")
    # Without stdin a command reads end of file at once.
    same((await sandbox.commands.run("cat; echo end")).stdout, "end\n")
    with raises(NotFoundException):
        await sandbox.commands.send_stdin(cat.pid, "late")


@case
@together
async def input_is_streamed_in_order(sandbox):
    if not hasattr(sandbox.commands, "stream_input"):
        return  # newer than the older generation
    lines = [f"line {i}\n" for i in range(200)]
    cat = await sandbox.commands.run("head -n 200", background=True, stdin=True)
    if BLOCKING:
        sandbox.commands.stream_input(cat.pid, iter(lines))
    else:
        async with sandbox.commands.stream_input(cat.pid) as stream:
            for line in lines:
                await stream.send(line)
    same((await cat.wait()).stdout, "".join(lines))


@case
@together
async def connect_joins_a_running_command(sandbox):
    cat = await sandbox.commands.run("cat", background=True, stdin=True)
    joined = await sandbox.commands.connect(cat.pid)
    same(joined.pid, cat.pid)
    await joined.send_stdin("shared\n")
    await joined.close_stdin()
    same((await cat.wait()).stdout, "shared\n")
    same((await joined.wait()).stdout, "shared\n")
    with raises(NotFoundException):
        await sandbox.commands.connect(999_999)


@case
@together
async def the_timeout_of_connect_ends_the_stream_not_the_process(sandbox):
    cat = await sandbox.commands.run("cat", background=True, stdin=True)
    joined = await sandbox.commands.connect(cat.pid, timeout=3)
    with raises(TimeoutException):
        await joined.wait()
    await cat.send_stdin("alive\n")
    await cat.close_stdin()
    same((await cat.wait()).stdout, "alive\n")


@case
@together
async def disconnect_leaves_the_process(sandbox):
    handle = await sandbox.commands.run("cat", background=True, stdin=True)
    await handle.disconnect()
    again = await sandbox.commands.connect(handle.pid)
    await again.send_stdin("still here\n")
    await again.close_stdin()
    same((await again.wait()).stdout, "still here\n")


@case
@together
async def much_output_and_split_characters_arrive_whole(sandbox):
    result = await sandbox.commands.run("""python3 -c 'print("✓" * 400_000)'""")
    assert result.stdout == "✓" * 400_000 + "\n"
    same((await sandbox.commands.run(r"printf 'a\377b\342\234'")).stdout, "a\ufffdb\ufffd")


@case
@together
async def a_request_has_its_own_timeout(sandbox):
    same((await sandbox.commands.run("echo ok", timeout=0, request_timeout=0)).stdout, "ok\n")
    same((await sandbox.commands.run("echo ok", timeout=PATIENCE, request_timeout=PATIENCE)).stdout, "ok\n")
