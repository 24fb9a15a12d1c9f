import io
import os
import time
from pathlib import Path

from agents.extensions.sandbox import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Manifest
from agents.sandbox.entries import File


async def start(**options):
    """Starts a session as its documentation does: everything else is left to the library."""
    session = await E2BSandboxClient().create(options=E2BSandboxClientOptions(**{"sandbox_type": "e2b", **options}))
    await session.start()
    return session


class Session:
    """A session that a case gets, and ends."""

    @classmethod
    async def create(cls, metadata, envs):
        session = await start(metadata=metadata, envs=envs)
        session.kill = session.aclose
        return session


def in_a_session(body):
    body.kind = Session
    return case(body)


async def run(session, *command, **options):
    result = await session.exec(*command, **options)
    return result.exit_code, result.stdout.decode(), result.stderr.decode()


async def read(session, path):
    return (await session.read(Path(path))).read()


def state_of(session):
    return Core.get_info(session.state.sandbox_id)


async def until(session, state):
    end = time.monotonic() + PATIENCE
    while (await state_of(session)).state.value != state:
        assert time.monotonic() < end, f"not {state} in {PATIENCE} s"
        await pause(0.05)


async def times_out(session):
    await Core.set_timeout(session.state.sandbox_id, 1)
    await until(session, "paused")
    await Core.pause(session.state.sandbox_id)  # it is paused only once the pause that has begun ends


async def resumed(session):
    """Returns another session of the same sandbox, from the stored state of the first."""
    client = E2BSandboxClient()
    stored = client.serialize_session_state(session.state)
    again = await client.resume(client.deserialize_session_state(stored))
    await again.start()
    return again


@in_a_session
async def commands_and_files(session):
    same(await run(session, "echo $GREETING; echo bad >&2; exit 3"), (3, "hello\n", "bad\n"))
    await session.mkdir("dir/deep", parents=True)
    await session.write(Path("dir/deep/file"), io.BytesIO(b"content\x00\xff"))
    same(await read(session, "dir/deep/file"), b"content\x00\xff")
    same([Path(one.path).name for one in await session.ls("dir/deep") if one.kind.value == "file"], ["file"])
    same((await run(session, "cat dir/deep/file | wc -c", shell=True))[1].strip(), "9")
    same((await run(session, "id -un", user="root"))[:2], (0, "root\n"))
    await session.rm("dir", recursive=True)
    same((await run(session, "test -e dir"))[0], 1)
    same(await session.running(), True)
    info = await state_of(session)
    same(info.metadata, METADATA)
    same(info.lifecycle, {"on_timeout": "pause", "auto_resume": True})


@in_a_session
async def a_terminal(session):
    update = await session.pty_exec_start("bash", tty=True, shell=False, yield_time_s=0.25)
    shown = update.output
    end = time.monotonic() + PATIENCE
    send = "echo typed=$((40 + 2))\n"
    while b"typed=42" not in shown:
        assert time.monotonic() < end, shown
        update = await session.pty_write_stdin(session_id=update.process_id, chars=send, yield_time_s=0.25)
        shown, send = shown + update.output, ""


@in_a_session
async def after_its_time_a_session_goes_on(session):
    await session.write(Path("kept"), io.BytesIO(b"here"))
    same((await run(session, "sleep 4321 >/dev/null 2>&1 & echo $! >pid"))[0], 0)
    for step in (lambda: run(session, "kill -0 $(cat pid) && cat kept"), lambda: read(session, "kept")):
        await times_out(session)
        got = await step()
        assert got in ((0, "here", ""), b"here"), got
        same((await state_of(session)).state.value, "running")


@in_a_session
async def after_its_time_a_stored_session_is_connected(session):
    await session.write(Path("kept"), io.BytesIO(b"here"))
    same((await run(session, "sleep 4321 >/dev/null 2>&1 & echo $! >pid"))[0], 0)
    await times_out(session)
    again = await resumed(session)
    same(again.state.sandbox_id, session.state.sandbox_id)
    same(await run(again, "kill -0 $(cat pid) && cat kept"), (0, "here", ""))


@case
async def a_session_may_pause_at_its_end(_):
    session = await start(pause_on_exit=True)
    try:
        await session.write(Path("kept"), io.BytesIO(b"here"))
        await session.aclose()
        same((await state_of(session)).state.value, "paused")
        again = await resumed(session)
        same(again.state.sandbox_id, session.state.sandbox_id)
        same(await read(again, "kept"), b"here")
    finally:
        await Core.kill(session.state.sandbox_id)


@case
async def a_session_ends_with_its_sandbox(_):
    session = await start()
    async with session:
        same((await run(session, "true"))[0], 0)
    same(await Core.kill(session.state.sandbox_id), False)
    # A new sandbox replaces one that is gone.
    again = await resumed(session)
    try:
        assert again.state.sandbox_id != session.state.sandbox_id
        same(await run(again, "echo new"), (0, "new\n", ""))
    finally:
        await again.aclose()


@in_a_session
async def a_workspace_moves_to_another_sandbox(session):
    await session.write(Path("kept"), io.BytesIO(b"here"))
    other = await start()
    try:
        await other.hydrate_workspace(await session.persist_workspace())
        same(await read(other, "kept"), b"here")
    finally:
        await other.aclose()


@case
async def a_manifest_is_laid_out(_):
    manifest = Manifest(entries={"notes/read.me": File(content=b"laid out")})
    session = await E2BSandboxClient().create(manifest=manifest, options=E2BSandboxClientOptions(sandbox_type="e2b"))
    async with session:
        same(await run(session, "cat notes/read.me"), (0, "laid out", ""))


@case
async def a_port_is_exposed(_):
    session = await start(exposed_ports=(3000,))
    try:
        await session.write(Path("www/index.html"), io.BytesIO(b"served\n"))
        await run(session, "(python3 -m http.server -d www 3000 >/dev/null 2>&1 &); until (echo >/dev/tcp/127.0.0.1/3000) 2>/dev/null; do sleep 0.05; done", shell=["bash", "-c"])
        endpoint = await session.resolve_exposed_port(3000)
        same(f"{endpoint.host}:{endpoint.port}", f"3000-{session.state.sandbox_id}.{os.environ['E2B_DOMAIN']}")
        for step in (lambda: until(session, "running"), lambda: times_out(session)):
            await step()
            if BY_DOMAIN:
                answer = await request("GET", endpoint.url_for("http"))
            else:
                answer = await request("GET", SHARED, headers={"Host": f"{endpoint.host}:{endpoint.port}"})
            same((answer.status_code, answer.text), (200, "served\n"))
    finally:
        await session.aclose()


@case
async def a_session_of_the_code_interpreter(_):
    session = await start(sandbox_type="e2b_code_interpreter")
    try:
        same((await state_of(session)).name, "code-interpreter-v1")
        same((await run(session, "python3 -c 'import pandas; print(6 * 7)'"))[1], "42\n")
    finally:
        await session.aclose()
