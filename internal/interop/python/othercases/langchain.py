import asyncio

import e2b
from langchain_e2b import AsyncE2BSandbox, E2BSandbox

HOME = "/home/user"


async def the_tools_of_an_agent(backend):
    """Uses each tool that an agent has: a shell and files."""
    ran = await backend.aexecute("echo $GREETING; echo bad >&2; exit 3")
    same((ran.exit_code, "hello" in ran.output, "bad" in ran.output), (3, True, True))
    same((await backend.awrite(f"{HOME}/dir/a.txt", "one\ntwo ü✓\n")).error, None)
    assert (await backend.awrite(f"{HOME}/dir/a.txt", "again")).error
    same((await backend.aedit(f"{HOME}/dir/a.txt", "two", "three")).occurrences, 1)
    same((await backend.aread(f"{HOME}/dir/a.txt")).file_data["content"], "one\nthree ü✓")
    same([one["path"].split("/")[-1] for one in (await backend.als(f"{HOME}/dir")).entries], ["a.txt"])
    same([(one["line"], one["text"]) for one in (await backend.agrep("three", f"{HOME}/dir")).matches], [(2, "three ü✓")])
    same([one["path"] for one in (await backend.aglob("**/*.txt", f"{HOME}")).matches], ["dir/a.txt"])
    large = bytes(range(256)) * 1000
    [up] = await backend.aupload_files([(f"{HOME}/large", large)])
    same(up.error, None)
    found, none = await backend.adownload_files([f"{HOME}/large", f"{HOME}/none"])
    same((found.content == large, none.error), (True, "file_not_found"))


@case
async def tools_of_the_asynchronous_backend(sandbox):
    backend = AsyncE2BSandbox(sandbox=sandbox)
    same(backend.id, sandbox.sandbox_id)
    await the_tools_of_an_agent(backend)
    # A program keeps the sandbox for the next turn of its agent.
    await sandbox.pause()
    await Core.connect(sandbox.sandbox_id)
    same((await backend.aexecute("cat dir/a.txt")).output.split(), ["one", "three", "ü✓"])


@case
async def tools_of_the_blocking_backend(sandbox):
    blocking = await asyncio.to_thread(e2b.Sandbox.connect, sandbox.sandbox_id)
    await the_tools_of_an_agent(E2BSandbox(sandbox=blocking))
