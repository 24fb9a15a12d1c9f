from datetime import datetime, timedelta, timezone

from e2b import SandboxNotFoundException


@case
async def metrics(sandbox):
    started = (await sandbox.get_info()).started_at
    first = (await sandbox.get_metrics())[0]
    now = datetime.now(timezone.utc)
    assert started - timedelta(seconds=1) < first.timestamp <= now, first
    assert first.cpu_count > 0 and 0 <= first.cpu_used_pct <= 100, first
    assert 0 < first.mem_used < first.mem_total, first
    assert 0 <= first.disk_used <= first.disk_total and first.disk_total > 0, first
    same((await Core.get_metrics(sandbox.sandbox_id))[0], first)
    assert await sandbox.get_metrics(start=first.timestamp - timedelta(seconds=1), end=now + timedelta(seconds=1))
    same(await sandbox.get_metrics(start=now - timedelta(days=1), end=first.timestamp - timedelta(seconds=5)), [])


@case
async def metrics_of_a_paused_sandbox_and_of_none(sandbox):
    first = (await sandbox.get_metrics())[0]
    await sandbox.pause()
    same((await Core.get_metrics(sandbox.sandbox_id))[0], first)
    with raises(SandboxNotFoundException):
        await Core.get_metrics("inosuchsandbox")
