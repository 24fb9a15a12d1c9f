import re
import time
from datetime import datetime, timedelta, timezone

from e2b import (
    AuthenticationException,
    PtySize,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)


@case
async def information(sandbox):
    info = await sandbox.get_info()
    same((info.sandbox_id, info.state, info.metadata, info.name), (sandbox.sandbox_id, SandboxState.RUNNING, METADATA, "base"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", info.envd_version), info
    assert info.cpu_count > 0 and info.memory_mb > 0 and info.end_at > info.started_at, info
    same((await Core.get_info(sandbox.sandbox_id)).sandbox_id, sandbox.sandbox_id)
    assert await sandbox.is_running()


@case
async def list_pages_through_what_a_filter_leaves(sandbox):
    mine = {**METADATA, "of": sandbox.sandbox_id, "odd": "a=b&c d"}
    made = [await Core.create(metadata=mine) for _ in range(3)]
    try:
        ids = [one.sandbox_id for one in made]
        paged = await pages(SandboxQuery(metadata=mine), limit=2)
        same([len(page) for page in paged], [2, 1])
        same([one.sandbox_id for page in paged for one in page], ids[::-1])
        same(paged[0][0].metadata, mine)
        same(await pages(SandboxQuery(metadata={**mine, "of": "other"})), [])
        same(await pages(SandboxQuery(metadata=mine, state=[SandboxState.PAUSED])), [])
        both = SandboxQuery(metadata=mine, state=[SandboxState.RUNNING, SandboxState.PAUSED])
        same(len((await pages(both))[0]), 3)
        [ascending] = await pages(SandboxQuery(metadata=mine, template="base"), order="asc")
        same([one.sandbox_id for one in ascending], ids)
        same(await pages(SandboxQuery(metadata=mine, template="code-interpreter-v1")), [])
        later = datetime.now(timezone.utc) + timedelta(minutes=1)
        same(await pages(SandboxQuery(metadata=mine, started_after=later)), [])
    finally:
        for one in made:
            await one.kill()


@case
async def connect_finds_the_same_sandbox(sandbox):
    await sandbox.files.write("kept", "here")
    again = await Core.connect(sandbox.sandbox_id)
    same(again.sandbox_id, sandbox.sandbox_id)
    same(await again.files.read("kept"), "here")
    same(await (await sandbox.connect()).files.read("kept"), "here")


@case
async def the_timeout_is_set_and_connecting_does_not_shorten_it(sandbox):
    async def left():
        return (await sandbox.get_info()).end_at.timestamp() - time.time()

    await sandbox.set_timeout(600)
    assert abs(await left() - 600) < 60
    await Core.connect(sandbox.sandbox_id, timeout=60)
    assert await left() > 500
    await Core.connect(sandbox.sandbox_id, timeout=1200)
    assert await left() > 1000
    await Core.set_timeout(sandbox.sandbox_id, 60)
    assert await left() <= 61


@case
async def a_sandbox_ends_at_its_time(_):
    sandbox = await Core.create(timeout=1)
    while await sandbox.is_running():
        await pause(0.05)
    with raises(SandboxNotFoundException):
        await sandbox.get_info()


@case
async def leaving_the_block_kills(_):
    async with await Core.create() as sandbox:
        assert await sandbox.is_running()
    assert not await sandbox.is_running()


@case
async def after_kill_everything_says_so(_):
    sandbox = await Core.create()
    running = await sandbox.commands.run("sleep 1234", background=True)
    assert await sandbox.kill()
    try:
        await running.wait()
    except SandboxException:
        pass
    else:
        raise AssertionError("a command of a killed sandbox ended well")
    assert not await sandbox.is_running()
    assert not await sandbox.kill()
    assert not await Core.kill(sandbox.sandbox_id)
    for call in (lambda: Core.connect(sandbox.sandbox_id), sandbox.get_info, lambda: sandbox.set_timeout(60)):
        with raises(SandboxNotFoundException):
            await call()
    terminal = {} if BLOCKING else {"on_data": print}
    for call in (
        lambda: sandbox.commands.run("true"),
        lambda: sandbox.commands.list(),
        lambda: sandbox.files.list("."),
        lambda: sandbox.files.read("x"),
        lambda: sandbox.files.write("x", "y"),
        lambda: sandbox.pty.create(PtySize(24, 80), **terminal),
    ):
        try:
            await call()
        except TimeoutException as error:
            assert "sandbox" in str(error), error
        else:
            raise AssertionError("a call to a killed sandbox ended well")


@case
async def create_refuses_what_it_cannot_make(_):
    with raises(SandboxException) as unknown:
        await Core.create("no-such-template")
    assert "no-such-template" in str(unknown.value)
    with raises(AuthenticationException):
        await Core.create(api_key="e2b_" + "0" * 40)
    with raises(SandboxException):
        await Core.create(timeout=100 * 24 * 3600)


@case
async def environment_and_template_are_those_asked_for(_):
    sandbox = await Core.create("code-interpreter-v1", envs={"ONE": "1", "SPACED": "a b"}, timeout=120)
    try:
        result = await sandbox.commands.run('echo "$ONE,$SPACED,$E2B_SANDBOX,$E2B_SANDBOX_ID,$E2B_TEMPLATE_ID"')
        info = await sandbox.get_info()
        same(result.stdout, f"1,a b,true,{sandbox.sandbox_id},{info.template_id}\n")
        same(info.name, "code-interpreter-v1")
    finally:
        await sandbox.kill()
