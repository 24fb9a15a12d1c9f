import re
import uuid

from e2b import SandboxException, SandboxQuery

# The template mcp-gateway has a stand-in for the program, of testdata.


@case
async def a_sandbox_with_mcp_servers(_):
    servers = {"exa": {"apiKey": "it's a secret"}, "github/owner/repo": {"run_cmd": "npm start"}}
    sandbox = await Core.create(mcp=servers)
    try:
        token = await sandbox.get_mcp_token()
        assert re.fullmatch("[0-9a-f-]{36}", token), token
        other = await Core.connect(sandbox.sandbox_id)
        same(await other.get_mcp_token(), token)  # of the file
        host = sandbox.get_host(50005)
        same(sandbox.get_mcp_url(), f"https://{host}/mcp")
        bearer = {"Authorization": f"Bearer {token}"}
        urls = {SHARED + "/mcp": {"Host": host}, **({sandbox.get_mcp_url(): {}} if BY_DOMAIN else {})}
        for url, headers in urls.items():
            same((await request("GET", url, headers=headers)).status_code, 401)
            answer = await request("GET", url, headers={**headers, **bearer})
            same((answer.status_code, answer.json()), (200, ["exa", "github/owner/repo"]))
    finally:
        await sandbox.kill()


@case
async def mcp_servers_that_do_not_start(_):
    metadata = {"which": str(uuid.uuid4())}
    with raises(SandboxException) as caught:
        await Core.create(mcp={"broken": {}}, metadata=metadata)
    assert "no server is broken" in str(caught.value), caught.value
    same(await Core.list(query=SandboxQuery(metadata=metadata)).next_items(), [])


@case
async def mcp_servers_in_a_template_without_their_program(_):
    metadata = {"which": str(uuid.uuid4())}
    with raises(SandboxException) as caught:
        await Core.create("base", mcp={"exa": {}}, metadata=metadata)
    assert re.search("Failed to start MCP gateway: .*mcp-gateway: command not found", str(caught.value)), caught.value
    same(await Core.list(query=SandboxQuery(metadata=metadata)).next_items(), [])


@case
async def a_template_with_mcp_servers(_):
    name = f"servers-{uuid.uuid4()}"
    await Template.build(Template().from_template("mcp-gateway").add_mcp_server(["exa", "brave"]), name)
    sandbox = await Core.create(name, mcp={"brave": {}})
    try:
        same((await sandbox.commands.run("cat /etc/mcp-gateway/pulled")).stdout, "exa\nbrave\n")
    finally:
        await sandbox.kill()
