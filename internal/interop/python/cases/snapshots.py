import inspect
import re
import uuid
from datetime import datetime, timezone

from e2b import SandboxException, SandboxNotFoundException


async def collect(paginator):
    found = []
    while paginator.has_next:
        found += await paginator.next_items()
    return [one.snapshot_id for one in found]


@case
async def a_snapshot_has_the_files_of_its_moment(sandbox):
    await sandbox.files.write("text", "before")
    snapshot = await sandbox.create_snapshot()
    assert re.fullmatch("[a-z0-9]{20}:default", snapshot.snapshot_id), snapshot
    same(snapshot.names, [])
    await sandbox.files.write("text", "after")
    same(await collect(sandbox.list_snapshots()), [snapshot.snapshot_id])
    child = await Core.create(snapshot.snapshot_id, envs={"MORE": "yes"})
    try:
        same(await child.files.read("text"), "before")
        same((await child.commands.run("echo $GREETING $MORE")).stdout, "hello yes\n")
        same((await child.get_info()).template_id, snapshot.snapshot_id.split(":")[0])
        with raises(SandboxException) as refused:
            await Core.delete_snapshot(snapshot.snapshot_id)
        assert "running or paused sandboxes use it" in str(refused.value), refused.value
    finally:
        await child.kill()
    same(await sandbox.files.read("text"), "after")
    same(await Core.delete_snapshot(snapshot.snapshot_id), True)
    same(await Core.delete_snapshot(snapshot.snapshot_id), False)
    with raises(SandboxException):
        await Core.create(snapshot.snapshot_id)


@case
async def snapshots_have_names_and_tags(sandbox):
    name = f"job-{uuid.uuid4()}"
    await sandbox.files.write("text", "1")
    first = await sandbox.create_snapshot(name=f"{name}:v1")
    same((first.snapshot_id, first.names), (f"local/{name}:v1", [f"local/{name}"]))
    await sandbox.files.write("text", "2")
    second = await sandbox.create_snapshot(name=name)
    same(second.snapshot_id, f"local/{name}:default")
    same(await collect(Core.list_snapshots(name=name, limit=1)), [second.snapshot_id, first.snapshot_id])
    same(await collect(sandbox.list_snapshots(name=f"{name}:v1")), [first.snapshot_id])
    same(await collect(Core.list_snapshots(name="nothing-has-this-name")), [])
    same(sorted((await Template.assign_tags(f"{name}:v1", ["stable", "old"])).tags), ["old", "stable"])
    await Template.remove_tags(name, "old")
    same(sorted(one.tag for one in await Template.get_tags(name)), ["default", "stable", "v1"])
    same(await Template.exists(name), True)
    same(await Template.alias_exists(name), True)
    for reference, text in (f"{name}:stable", "1"), (name, "2"):
        child = await Core.create(reference)
        try:
            same(await child.files.read("text"), text)
        finally:
            await child.kill()
    with raises(SandboxException):
        await Core.create(f"{name}:old")
    same(await Core.delete_snapshot(first.snapshot_id), True)
    same(await Template.exists(name), False)


@case
async def forks_have_the_files_and_go_their_own_way(sandbox):
    await sandbox.files.write("text", "before")
    forks = await sandbox.fork(count=2)
    try:
        same(len(forks), 2)
        for fork in forks:
            assert fork.sandbox_id != sandbox.sandbox_id
            same(await fork.files.read("text"), "before")
            same((await fork.commands.run("echo $GREETING")).stdout, "hello\n")
            await fork.files.write("text", fork.sandbox_id)
            same((await fork.get_info()).metadata, METADATA)
        same(await forks[0].files.read("text"), forks[0].sandbox_id)
        seconds = ((await forks[0].get_info()).end_at - datetime.now(timezone.utc)).total_seconds()
        assert 200 < seconds <= 300, seconds
    finally:
        for fork in forks:
            await fork.kill()
    same(await sandbox.files.read("text"), "before")


@case
async def a_paused_sandbox_is_resumed_first(sandbox):
    await sandbox.pause()
    with raises(SandboxException) as refused:
        await sandbox.fork()
    assert "resume it first" in str(refused.value), refused.value
    with raises(SandboxNotFoundException):
        await sandbox.create_snapshot()
    await sandbox.connect()
    (fork,) = await sandbox.fork()
    same(await fork.is_running(), True)
    await fork.kill()


@case
async def the_memory_is_refused_by_name(sandbox):
    if "mode" not in inspect.signature(Core.create_snapshot).parameters:
        return  # an SDK that cannot ask for it
    snapshot = await sandbox.create_snapshot(mode="filesystem")
    same(await Core.delete_snapshot(snapshot.snapshot_id), True)
    with raises(SandboxException) as refused:
        await sandbox.create_snapshot(mode="full")
    assert "memory in snapshots" in str(refused.value), refused.value
