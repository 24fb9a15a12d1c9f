from datetime import datetime, timezone

from e2b import ALL_TRAFFIC, SecretException, SecretNotFoundException


async def new_secret(sandbox):
    return await Secret.create(f"PY-{sandbox.sandbox_id}", "sk-never-shown", metadata={"team": "a"})


@case
async def made_found_listed_changed_and_destroyed(sandbox):
    made = await new_secret(sandbox)
    try:
        same((made.name, made.version, made.metadata), (f"py-{sandbox.sandbox_id}", 1, {"team": "a"}))
        assert abs((made.created_at - datetime.now(timezone.utc)).total_seconds()) < 60
        same(await Secret.get_info(made.secret_id), made)
        same(await Secret.get_info(made.name.upper()), made)
        same(await Secret.exists(made.name), True)
        listed, pages = [], Secret.list(limit=1)
        while pages.has_next:
            listed += await pages.next_items()
        assert any(one.secret_id == made.secret_id for one in listed)
        assert "sk-never-shown" not in repr(listed)
        kept = await Secret.update(made.name, "sk-2")
        same((kept.version, kept.metadata), (2, {"team": "a"}))
        cleared = await Secret.update(made.secret_id, "sk-3", metadata={})
        same((cleared.version, cleared.metadata), (3, {}))
        with raises(SecretException):
            await Secret.create(made.name, "x")
    finally:
        same(await Secret.destroy(made.secret_id), True)
    with raises(SecretNotFoundException):
        await Secret.get_info(made.secret_id)
    with raises(SecretNotFoundException):
        await Secret.update(made.secret_id, "x")
    same(await Secret.exists(made.secret_id), False)
    same(await Secret.destroy(made.secret_id), False)


@case
async def rules_put_them_into_headers(outer):
    made = await new_secret(outer)
    sandbox = None
    try:
        rules = {"api.invalid": [{"transform": {"headers": {"Authorization": "Bearer " + Secret.fill(made.name)}}}]}
        sandbox = await Core.create(network={"rules": rules})

        async def ask(host):
            # The host does not exist. Who answers is the cloud, which curl trusts.
            command = f"curl -sS -m 20 --noproxy '*' --resolve {host}:443:203.0.113.9 https://{host}/ 2>&1 || true"
            return (await sandbox.commands.run(command)).stdout

        assert "the request was not sent to api.invalid" in await ask("api.invalid")
        info = await sandbox.get_info()
        same(info.network["rules"], rules)
        if not hasattr(sandbox, "update_network"):
            return  # before there was one
        header = {"X-Api-Key": Secret.fill(made.name)}
        await sandbox.update_network({"rules": {"*.invalid": [{"transform": {"headers": header}}]}, "deny_out": [ALL_TRAFFIC], "allow_out": ["other.test"]})
        assert "denied by the sandbox's network rules" in await ask("below.invalid")
    finally:
        if sandbox:
            await sandbox.kill()
        await Secret.destroy(made.secret_id)
