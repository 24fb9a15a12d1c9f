import os
import re


def form(content, name="any"):
    return {"file": (name, content)}


@case
async def a_download_url_is_enough(sandbox):
    await sandbox.files.write("dir/a b+ü✓", "content")
    for options in ({}, {"use_signature_expiration": 60}, {"user": "user"}):
        answer = await request("GET", sandbox.download_url("dir/a b+ü✓", **options))
        same((answer.status_code, answer.text), (200, "content"))
    same((await request("GET", sandbox.download_url("/home/user/nothing"))).status_code, 404)


@case
async def an_upload_url_is_enough(sandbox):
    for i, options in enumerate(({}, {"use_signature_expiration": 60}, {"user": "root"})):
        url = sandbox.upload_url(f"/tmp/uploaded {i}", **options)
        answer = await request("POST", url, files=form(f"content {i}"))
        same(answer.status_code, 200)
        same(await sandbox.files.read(f"/tmp/uploaded {i}"), f"content {i}")
    same((await sandbox.files.get_info("/tmp/uploaded 2")).owner, "root")
    # Without a path the file's name is the path.
    answer = await request("POST", sandbox.upload_url(""), files=form("named", "by-name"))
    same(answer.status_code, 200)
    same(await sandbox.files.read("by-name"), "named")


@case
async def a_url_is_for_one_file_one_use_and_its_time(sandbox):
    await sandbox.files.write("a", "content")
    await sandbox.files.write("b", "content")
    url = sandbox.download_url("a")
    same((await request("GET", url)).status_code, 200)
    changed = [url.replace("path=a", "path=b"), re.sub("signature=[^&]*", "signature=v1_x", url)]
    # At the shared address, only the signature of a URL says which sandbox it is for.
    refused = 401 if BY_DOMAIN else 502
    for one in changed:
        same((await request("GET", one)).status_code, refused)
    same((await request("POST", url, files=form("x"))).status_code, refused)
    host = {"Host": sandbox.get_host(49983)}
    same((await request("GET", url, headers=host)).status_code, 200)
    for one in changed:
        answer = await request("GET", one, headers=host)
        same((answer.status_code, answer.json()), (401, {"code": 401, "message": "invalid signature"}))
    late = await request("GET", sandbox.download_url("a", use_signature_expiration=-10))
    same((late.status_code, late.json()), (401, {"code": 401, "message": "signature is already expired"}))


@case
async def a_port_is_reached_by_its_host_name(sandbox):
    serve = "mkdir www && cd www && echo served >index.html && exec python3 -m http.server 3000"
    server = await sandbox.commands.run(serve, background=True)
    await sandbox.commands.run("until (echo >/dev/tcp/127.0.0.1/3000) 2>/dev/null; do sleep 0.05; done")
    host = sandbox.get_host(3000)
    same(host, f"3000-{sandbox.sandbox_id}.{os.environ['E2B_DOMAIN']}")
    by_header = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "3000"}
    for headers in ({"Host": host}, by_header):
        answer = await request("GET", SHARED, headers=headers)
        same((answer.status_code, answer.text), (200, "served\n"))
    if BY_DOMAIN:
        same((await request("GET", "https://" + host)).text, "served\n")
    await server.kill()
    closed = await request("GET", SHARED, headers={"Host": sandbox.get_host(3001)})
    message = "The sandbox is running but port is not open"
    same(closed.json(), {"sandboxId": sandbox.sandbox_id, "message": message, "port": 3001, "code": 502})
    same(sandbox.get_mcp_url(), f"https://{sandbox.get_host(50005)}/mcp")


@case
async def a_sandbox_without_public_traffic_asks_for_its_token(_):
    sandbox = await Core.create(network={"allow_public_traffic": False})
    try:
        assert sandbox.traffic_access_token
        for token, status in ((None, 403), ("wrong", 403), (sandbox.traffic_access_token, 502)):
            headers = {"Host": sandbox.get_host(3000), **({"e2b-traffic-access-token": token} if token else {})}
            same((await request("GET", SHARED, headers=headers)).status_code, status)
        same((await sandbox.commands.run("echo own token")).stdout, "own token\n")
    finally:
        await sandbox.kill()
