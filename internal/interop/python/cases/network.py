import os
import re

import e2b
from e2b import ALL_TRAFFIC, SandboxNetworkOpts

DENIED = "denied by the sandbox's network rules"
OFF = "internet access is off"
RULES = {"allow_out": ["*.example.com"], "deny_out": [ALL_TRAFFIC], "dns_servers": ["1.1.1.1"]}


async def refusal(sandbox, host):
    """Requests a page from inside and returns why the cloud refused, if it did; any
    other outcome depends on the machine."""
    result = await sandbox.commands.run(f"curl -sS -m 20 http://{host} 2>&1 || true")
    found = re.search(f"{DENIED}|{OFF}", result.stdout)
    return found and found[0]


@case
async def rules_of_the_network_bind_a_sandbox(_):
    sandbox = await Core.create(network=RULES)
    try:
        same(await refusal(sandbox, "example.org"), DENIED)
        same(await refusal(sandbox, "www.example.com"), None)
        if not hasattr(sandbox, "update_network"):
            return  # before there was one
        if "dns_servers" in SandboxNetworkOpts.__annotations__:
            same((await sandbox.get_info()).network["dns_servers"], RULES["dns_servers"])
        await sandbox.update_network({"deny_out": [ALL_TRAFFIC]})
        same(await refusal(sandbox, "www.example.com"), DENIED)
        await sandbox.update_network({})
        same(await refusal(sandbox, "example.org"), None)
    finally:
        await sandbox.kill()


@case
async def a_proxy_is_told_without_its_password(_):
    if not hasattr(e2b.sandbox.sandbox_api, "SandboxEgressProxyTLSOpts"):
        return  # before there was one
    told = {"address": "203.0.113.8:1080", "username": "someone", "tls": {"server_name": "proxy.example.com"}}
    sandbox = await Core.create(network={"egress_proxy": {**told, "password": "secret"}})
    try:
        same((await sandbox.get_info()).network["egress_proxy"], told)
        await sandbox.update_network({"deny_out": [ALL_TRAFFIC]})
        same("egress_proxy" in (await sandbox.get_info()).network, False)
    finally:
        await sandbox.kill()


@case
async def internet_access_may_be_off(_):
    sandbox = await Core.create(allow_internet_access=False)
    try:
        same(await refusal(sandbox, "example.org"), OFF)
    finally:
        await sandbox.kill()


@case
async def a_sandbox_may_be_without_an_access_token(_):
    sandbox = await Core.create(secure=False)
    try:
        await sandbox.files.write("a", "content")
        same((await sandbox.commands.run("cat a")).stdout, "content")
    finally:
        await sandbox.kill()


@case
async def a_service_of_the_machine_has_a_name(_):
    address = os.environ["HOST_SERVICE"]
    sandbox = await Core.create(network={"allow_out": [address.partition(":")[0]], "deny_out": [ALL_TRAFFIC]})
    try:
        same((await sandbox.commands.run(f"curl -sS -m 20 http://{address}")).stdout, "from the machine")
    finally:
        await sandbox.kill()
    sandbox = await Core.create(network={"deny_out": [ALL_TRAFFIC]})
    try:
        same(await refusal(sandbox, address), DENIED)
    finally:
        await sandbox.kill()
