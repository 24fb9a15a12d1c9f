import asyncio
import time
from datetime import datetime, timedelta, timezone

import e2b
from e2b import PtySize, SandboxNotFoundException, SandboxQuery, SandboxState, TimeoutException

# The newest SDK has other names for the modes of a pause, and more of them.
NEWEST = hasattr(e2b, "SnapshotMode")
ONLY_FILES = {"mode": "filesystem"} if NEWEST else {"keep_memory": False}
NOT_RUNNING = (TimeoutException, getattr(e2b, "SandboxNotRunningException", TimeoutException))


async def until_paused(sandbox):
    """Waits until its time has paused the sandbox, without sending it traffic."""
    end = time.monotonic() + PATIENCE
    while (await sandbox.get_info()).state != SandboxState.PAUSED:
        assert time.monotonic() < end, f"not paused in {PATIENCE} s"
        await pause(0.05)
    await sandbox.pause()  # it is paused only once the pause that has begun ends


async def times_out(sandbox):
    await sandbox.set_timeout(1)
    await until_paused(sandbox)


async def left(sandbox):
    return ((await sandbox.get_info()).end_at - datetime.now(timezone.utc)).total_seconds()


@interprets
async def a_pause_keeps_processes_variables_and_files(sandbox):
    await sandbox.files.write("kept", "here")
    await sandbox.run_code("x = 41")
    context = await sandbox.create_code_context(cwd="/tmp")
    await sandbox.run_code("y = 1", context=context)
    count = "n=0; while read line; do n=$((n + 1)); echo $line $n; done"
    counting = await sandbox.commands.run(count, background=True, stdin=True)
    await sandbox.commands.send_stdin(counting.pid, "line\n")
    for _ in range(2):
        same(await sandbox.pause(), True)
        again = await Interpreter.connect(sandbox.sandbox_id)
        same(again.sandbox_id, sandbox.sandbox_id)
    same(await again.files.read("kept"), "here")
    same((await again.run_code("x + 1")).text, "42")
    assert (context.id, "/tmp") in [(one.id, one.cwd) for one in await again.list_code_contexts()]
    same((await again.run_code("y + 1", context=context)).text, "2")
    assert counting.pid in [one.pid for one in await again.commands.list()]
    rejoined = await again.commands.connect(counting.pid)
    await again.commands.send_stdin(counting.pid, "line\n")
    await again.commands.close_stdin(counting.pid)
    assert (await rejoined.wait()).stdout.endswith("line 2\n"), rejoined.stdout
    # The handle from before the pause goes on, too.
    same((await sandbox.run_code("x")).text, "41")


@case
async def pausing_twice_and_what_is_gone(sandbox):
    same(await sandbox.pause(), True)
    same(await sandbox.pause(), False)
    same(await Core.pause(sandbox.sandbox_id), False)
    await sandbox.connect()
    same(await sandbox.is_running(), True)
    same(await Core.pause(sandbox.sandbox_id), True)
    same(await Core.kill(sandbox.sandbox_id), True)
    same(await sandbox.kill(), False)
    for call in (sandbox.pause, sandbox.connect, sandbox.get_info):
        with raises(SandboxNotFoundException):
            await call()


@case
async def the_older_name(sandbox):
    same(await sandbox.beta_pause(), True)
    same((await Core.get_info(sandbox.sandbox_id)).state, SandboxState.PAUSED)


@case
async def a_paused_sandbox_is_known_and_does_not_answer(sandbox):
    running = await sandbox.get_info()
    await sandbox.pause()
    info = await sandbox.get_info()
    for name in ("sandbox_id", "template_id", "name", "metadata", "started_at", "cpu_count", "memory_mb", "envd_version", "lifecycle"):
        same((name, getattr(info, name)), (name, getattr(running, name)))
    same(info.state, SandboxState.PAUSED)
    assert running.started_at <= info.end_at <= datetime.now(timezone.utc) + timedelta(seconds=1), info
    same(await sandbox.is_running(), False)
    for call in (lambda: sandbox.set_timeout(60), lambda: sandbox.update_network({"allow_internet_access": True})):
        with raises(SandboxNotFoundException):
            await call()
    terminal = {} if BLOCKING else {"on_data": print}
    for call in (
        lambda: sandbox.commands.run("true"),
        lambda: sandbox.commands.list(),
        lambda: sandbox.files.read(".bashrc"),
        lambda: sandbox.files.write("x", "y"),
        lambda: sandbox.pty.create(PtySize(24, 80), **terminal),
    ):
        with raises(*NOT_RUNNING):
            await call()
    same((await sandbox.get_info()).state, SandboxState.PAUSED)


@case
async def a_resume_starts_a_new_time(sandbox):
    first = await sandbox.get_info()
    await sandbox.pause()
    again = await Core.connect(sandbox.sandbox_id, timeout=900)
    assert 800 < await left(again) <= 901, await left(again)
    info = await again.get_info()
    assert info.started_at > first.started_at, (info, first)
    same((info.state, info.metadata), (SandboxState.RUNNING, METADATA))
    await again.pause()
    await again.connect(timeout=60)
    assert 0 < await left(again) <= 61, await left(again)


@case
async def paused_ones_are_listed_by_their_state(sandbox):
    mine = {**METADATA, "of": sandbox.sandbox_id}
    made = [await Core.create(metadata=mine) for _ in range(3)]
    try:
        ids = [one.sandbox_id for one in made]
        for one in made[1:]:
            await one.pause()

        async def listed(*states, limit=None):
            query = SandboxQuery(metadata=mine, state=list(states)) if states else SandboxQuery(metadata=mine)
            return [[(one.sandbox_id, one.state) for one in page] for page in await pages(query, limit=limit)]

        running, paused = SandboxState.RUNNING, SandboxState.PAUSED
        newest = [(ids[2], paused), (ids[1], paused), (ids[0], running)]
        same(await listed(paused, limit=1), [newest[:1], newest[1:2]])
        same(await listed(running), [newest[2:]])
        same(await listed(running, paused, limit=2), [newest[:2], newest[2:]])
        same(await listed(), [newest])
        same((await pages(SandboxQuery(metadata=mine, state=[paused])))[0][0].metadata, mine)
        await made[1].connect()
        same(await listed(paused), [newest[:1]])
    finally:
        for one in made:
            await one.kill()


@interprets
async def traffic_resumes_what_its_time_paused(_):
    sandbox = await Interpreter.create(timeout=60, lifecycle={"on_timeout": "pause", "auto_resume": True}, envs=ENVS)
    try:
        same((await sandbox.get_info()).lifecycle, {"on_timeout": "pause", "auto_resume": True})
        await sandbox.run_code("x = 41")
        context = await sandbox.create_code_context()
        await sandbox.files.write("kept", "here")
        await times_out(sandbox)
        same((await sandbox.run_code("x + 1")).text, "42")
        # The new time is that of the creation, but not less than five minutes.
        assert 200 < await left(sandbox) <= 301, await left(sandbox)
        assert context.id in [one.id for one in await sandbox.list_code_contexts()]
        await times_out(sandbox)
        same(await sandbox.files.read("kept"), "here")
        await times_out(sandbox)
        same((await sandbox.commands.run("echo $GREETING")).stdout, "hello\n")
        same((await sandbox.get_info()).lifecycle, {"on_timeout": "pause", "auto_resume": True})
        # It is the same for a pause that was asked for.
        await sandbox.pause()
        same((await sandbox.run_code("x")).text, "41")
    finally:
        await sandbox.kill()


@case
async def a_request_to_a_port_resumes(_):
    sandbox = await Core.create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        await sandbox.files.write("www/index.html", "served\n")
        await sandbox.commands.run("exec python3 -m http.server -d www 3000", background=True)
        await sandbox.commands.run("until (echo >/dev/tcp/127.0.0.1/3000) 2>/dev/null; do sleep 0.05; done")
        await times_out(sandbox)
        answer = await request("GET", SHARED, headers={"Host": sandbox.get_host(3000)})
        same((answer.status_code, answer.text), (200, "served\n"))
        same((await sandbox.get_info()).state, SandboxState.RUNNING)
    finally:
        await sandbox.kill()


@case
async def without_auto_resume_connect_resumes(_):
    sandbox = await Core.create(lifecycle={"on_timeout": "pause"})
    try:
        same((await sandbox.get_info()).lifecycle, {"on_timeout": "pause", "auto_resume": False})
        sleeping = await sandbox.commands.run("sleep 4321", background=True)
        await times_out(sandbox)
        with raises(*NOT_RUNNING):
            await sandbox.commands.run("true")
        answer = await request("GET", SHARED, headers={"Host": sandbox.get_host(3000)})
        same((answer.status_code, answer.json()["code"]), (502, 502))
        same((await sandbox.get_info()).state, SandboxState.PAUSED)
        await Core.connect(sandbox.sandbox_id)
        assert sleeping.pid in [one.pid for one in await sandbox.commands.list()]
    finally:
        await sandbox.kill()


async def described(sandbox):
    """Returns the state of written_and_running that is there, with owners: root's files
    are the user's where the machine gives sandboxes one id only."""
    command = "stat -c '%U %a' /opt/kept; cat /opt/kept; readlink link; echo $GREETING"
    return (await sandbox.commands.run(command, user="root", cwd="/home/user")).stdout


async def only_files_are_left(sandbox, was):
    """Expects the state of written_and_running to be there, processes aside."""
    same(await sandbox.files.read("kept"), "here")
    same(await described(sandbox), was)
    same((await sandbox.run_code("x")).error.name, "NameError")
    same((await sandbox.run_code("open('/home/user/kept').read()")).text, "here")
    assert not [one for one in await sandbox.commands.list() if "4321" in [one.cmd, *one.args][-1]]


async def written_and_running(sandbox):
    await sandbox.files.write("kept", "here")
    await sandbox.commands.run("umask 077; echo \"root's\" >/opt/kept; ln -s kept link", user="root", cwd="/home/user")
    await sandbox.run_code("x = 41")
    await sandbox.commands.run("sleep 4321", background=True)
    was = await described(sandbox)
    assert was.endswith(" 600\nroot's\nkept\nhello\n"), was
    return was


@interprets
async def a_pause_of_the_files_ends_processes(sandbox):
    was = await written_and_running(sandbox)
    same(await sandbox.pause(**ONLY_FILES), True)
    same(await sandbox.pause(), False)
    same((await sandbox.get_info()).state, SandboxState.PAUSED)
    again = await Interpreter.connect(sandbox.sandbox_id)
    same(again.sandbox_id, sandbox.sandbox_id)
    await only_files_are_left(again, was)
    # Its token is the same: handles made before the pause still work.
    same((await sandbox.commands.run("echo again")).stdout, "again\n")
    # The next pause keeps the files written since, and the earlier ones.
    await again.files.write("second", "too")
    same(await again.pause(**ONLY_FILES), True)
    await again.connect()
    same(await again.files.read("second"), "too")
    await only_files_are_left(again, was)


@interprets
async def a_timeout_may_keep_files_alone(_):
    sandbox = await Interpreter.create(lifecycle={"on_timeout": {"action": "pause", **ONLY_FILES}}, envs=ENVS)
    try:
        was = await written_and_running(sandbox)
        await times_out(sandbox)
        with raises(*NOT_RUNNING):
            await sandbox.commands.run("true")
        await sandbox.connect()
        await only_files_are_left(sandbox, was)
    finally:
        await sandbox.kill()


@case
async def traffic_does_not_resume_what_has_no_memory(_):
    sandbox = await Core.create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        await sandbox.files.write("kept", "here")
        same(await sandbox.pause(**ONLY_FILES), True)
        with raises(*NOT_RUNNING):
            await sandbox.files.read("kept")
        same((await sandbox.get_info()).state, SandboxState.PAUSED)
        await sandbox.connect()
        same(await sandbox.files.read("kept"), "here")
    finally:
        await sandbox.kill()


@interprets
async def a_resume_may_forget_the_memory(sandbox):
    if not NEWEST:
        return
    was = await written_and_running(sandbox)
    await sandbox.pause(mode="full")
    again = await Interpreter.connect(sandbox.sandbox_id, on_resume="reboot")
    same(again.sandbox_id, sandbox.sandbox_id)
    await only_files_are_left(again, was)
    # One that runs is left alone.
    await again.run_code("z = 1")
    await again.connect(on_resume="reboot")
    same((await again.run_code("z")).text, "1")


@case
async def a_strict_pause_of_a_healthy_sandbox(sandbox):
    if not NEWEST:
        return
    same(await sandbox.pause(strict=True), True)
    assert not (await sandbox.get_info()).envd_unresponsive_at_pause


@case
async def a_pause_cuts_what_streams(sandbox):
    shown = []
    running = await sandbox.commands.run("sleep 4321", background=True)
    terminal = await sandbox.pty.create(PtySize(24, 80), **({} if BLOCKING else {"on_data": shown.append}))
    await sandbox.pty.send_stdin(terminal.pid, b"remembered=yes\n")
    await sandbox.files.make_dir("watched")
    ended = []
    watch = await sandbox.files.watch_dir("watched", **({} if BLOCKING else {"on_event": shown.append, "on_exit": ended.append}))
    await sandbox.pause()
    for stream in (running, terminal):
        with raises(*NOT_RUNNING):
            await stream.wait()
    if BLOCKING:
        with raises(*NOT_RUNNING):
            watch.get_new_events()
    else:
        await eventually(lambda: ended, "the end of the watch")
        assert type(ended[0]) in NOT_RUNNING, ended
    await sandbox.connect()
    # The processes live on, and are joined again.
    assert {running.pid, terminal.pid} <= {one.pid for one in await sandbox.commands.list()}
    joined = await sandbox.commands.connect(running.pid)
    same(await joined.kill(), True)
    collected = []
    again = await sandbox.pty.connect(terminal.pid, **({} if BLOCKING else {"on_data": collected.append}))
    await sandbox.pty.send_stdin(terminal.pid, b"echo remem=$remembered; exit\n")
    await again.wait(**({"on_pty": collected.append} if BLOCKING else {}))
    assert b"remem=yes" in b"".join(collected), collected


@interprets
async def a_pause_interrupts_code_that_runs(sandbox):
    if BLOCKING:
        return  # one caller does one thing at a time
    await sandbox.run_code("x = 41")
    started = asyncio.Event()
    code = "import time\nprint('started', flush=True)\ntime.sleep(600)\nx = 0"
    running = asyncio.create_task(sandbox.run_code(code, on_stdout=lambda _: started.set()))
    await asyncio.wait_for(started.wait(), 60)
    same(await sandbox.pause(), True)
    with raises(*NOT_RUNNING):
        await running
    # As after any client that goes away, the variables are there, and the kernel is free.
    await sandbox.connect()
    same((await sandbox.run_code("x + 1")).text, "42")
