import asyncio
import json
import os
import queue
import socket
import uuid

import requests
import smolagents.remote_executors as smolagents
import websocket
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.gateway.managers import GatewayKernelManager, GatewayKernelSpecManager
from jupyter_server.services.kernels.connection import base
from smolagents.monitoring import AgentLogger, LogLevel

V1 = "v1.kernel.websocket.jupyter.org"
look_up = socket.getaddrinfo


def getaddrinfo(host, *arguments, **options):
    """Resolves every name under localhost to this machine, as browsers do; not
    every system's resolver does."""
    return look_up("127.0.0.1" if str(host).endswith(".localhost") else host, *arguments, **options)


socket.getaddrinfo = getaddrinfo


# By its domain, a sandbox is reached with TLS.
TLS = "s" if BY_DOMAIN else ""
API = f"https://api.{os.environ['E2B_DOMAIN']}" if BY_DOMAIN else os.environ["E2B_API_URL"]


def address(sandbox, path, scheme="http"):
    """Returns the URL of a path of the sandbox's Jupyter server, with the token
    that sandboxes require by default."""
    return f"{scheme}{TLS}://{sandbox.get_host(8888)}/api{path}?token={sandbox._envd_access_token}"


def channels(sandbox, kernel, **options):
    url = address(sandbox, f"/kernels/{kernel}/channels", "ws")
    return websocket.create_connection(url, timeout=PATIENCE, **options)


def message(kind, content, parent=None):
    header = {"msg_id": uuid.uuid4().hex, "session": "s", "username": "", "msg_type": kind, "version": "5.3"}
    return {"header": header, "parent_header": parent or {}, "metadata": {}, "content": content}


class Default:
    """The framing of clients that do not ask for one: JSON."""

    protocols = None

    @staticmethod
    def send(socket, channel, message):
        socket.send(json.dumps({**message, "channel": channel, "buffers": []}))

    @staticmethod
    def receive(socket):
        message = json.loads(socket.recv())
        return message["channel"], message


class Buffers(Default):
    """The same, sent in the form of messages that have buffers."""

    @staticmethod
    def send(socket, channel, message):
        socket.send_binary(base.serialize_binary_message({**message, "channel": channel, "buffers": [b"a", b"bc"]}))


class Parts:
    """The framing of version 1: binary."""

    protocols = [V1]

    @staticmethod
    def send(socket, channel, message):
        socket.send_binary(base.serialize_msg_to_ws_v1(message, channel, lambda part: json.dumps(part).encode()))

    @staticmethod
    def receive(socket):
        channel, parts = base.deserialize_msg_from_ws_v1(socket.recv())
        return channel, dict(zip(("header", "parent_header", "metadata", "content"), map(json.loads, parts)))


def execute(socket, framing, code):
    """Runs the code, answers what it asks, and returns everything received: the
    channel, type and content of each message."""
    request = message("execute_request", {"code": code, "allow_stdin": True})
    framing.send(socket, "shell", request)
    got = []
    while not {"execute_reply", "idle"} <= {content.get("execution_state", kind) for _, kind, content in got}:
        channel, received = framing.receive(socket)
        if received["parent_header"].get("msg_id") != request["header"]["msg_id"]:
            continue
        kind, content = received["header"]["msg_type"], received["content"]
        got.append((channel, kind, content))
        if kind == "input_request":
            framing.send(socket, "stdin", message("input_reply", {"value": f"answer to {content['prompt']}"}, received["header"]))
    return got


def only(got, kind):
    (content,) = [content for _, one, content in got if one == kind]
    return content


def talk(sandbox, kernel, framing):
    connection = channels(sandbox, kernel, subprotocols=framing.protocols)
    try:
        same(connection.getsubprotocol(), V1 if framing.protocols else None)
        got = execute(connection, framing, "print('ü✓')\nx = 41\nx + 1")
        same([(channel, kind) for channel, kind, _ in got if channel == "iopub"],
             [("iopub", kind) for kind in ("status", "execute_input", "stream", "execute_result", "status")])
        same(only(got, "stream"), {"name": "stdout", "text": "ü✓\n"})
        same(only(got, "execute_result")["data"], {"text/plain": "42"})
        same([(channel, content["status"]) for channel, kind, content in got if kind == "execute_reply"], [("shell", "ok")])
        got = execute(connection, framing, "1/0")
        same((only(got, "error")["ename"], only(got, "execute_reply")["status"]), ("ZeroDivisionError", "error"))
        got = execute(connection, framing, "input('name')")
        same((only(got, "input_request")["password"], only(got, "execute_result")["data"]["text/plain"]), (False, "'answer to name'"))
    finally:
        connection.close()


async def default_kernel(sandbox):
    """Returns the id of the kernel behind the default context."""
    (context,) = [one for one in await sandbox.list_code_contexts() if one.language == "python"]
    return context.id


@interprets
async def messages_as_text(sandbox):
    await asyncio.to_thread(talk, sandbox, await default_kernel(sandbox), Default)
    # Both ports lead to the same kernel.
    same((await sandbox.run_code("x")).text, "41")


@interprets
async def messages_with_buffers(sandbox):
    await asyncio.to_thread(talk, sandbox, await default_kernel(sandbox), Buffers)


@interprets
async def messages_in_parts(sandbox):
    await asyncio.to_thread(talk, sandbox, await default_kernel(sandbox), Parts)


@interprets
async def kernels_by_rest(sandbox):
    def ask(method, path, **body):
        return requests.request(method, address(sandbox, path), **body)

    def drive():
        refused = requests.get(f"http://{sandbox.get_host(8888)}/api/kernels")
        same((refused.status_code, refused.json()["message"]), (403, "Forbidden"))
        assert ask("GET", "/status").json()["started"]
        made = ask("POST", "/kernels", json={"name": "python"})
        same((made.status_code, made.json()["name"]), (201, "python3"))
        kernel = made.json()["id"]
        same(made.headers["Location"], f"/api/kernels/{kernel}")
        assert kernel in [one["id"] for one in ask("GET", "/kernels").json()]
        session = ask("POST", "/sessions", json={"path": "p", "type": "notebook", "kernel": {"id": kernel}})
        same((session.status_code, session.json()["kernel"]["id"]), (201, kernel))
        same(ask("DELETE", f"/kernels/{kernel}").status_code, 204)
        same(ask("GET", f"/kernels/{kernel}").status_code, 404)
        with raises(websocket.WebSocketBadStatusException) as gone:
            channels(sandbox, kernel)
        same(gone.value.status_code, 404)

    await asyncio.to_thread(drive)


class Gateway:
    """A sandbox whose Jupyter server is the gateway of Jupyter's client; a process
    has one gateway. The client sends no token when it opens a websocket, and only
    the first version of the API creates sandboxes that require none."""

    @classmethod
    async def create(cls, metadata, envs):
        self = cls()
        made = requests.post(
            API + "/sandboxes",
            headers={"X-API-Key": os.environ["E2B_API_KEY"]},
            json={"templateID": Interpreter.default_template, "secure": False, "timeout": 300, "metadata": metadata, "envVars": envs},
        )
        self.sandbox = await Interpreter.connect(made.json()["sandboxID"])
        GatewayClient.instance(url=f"http{TLS}://" + self.sandbox.get_host(8888))
        self.manager = GatewayKernelManager()
        await self.manager.start_kernel(kernel_name="python3")
        self.client = self.manager.client()
        await self.client.start_channels()
        await self.client.wait_for_ready(timeout=PATIENCE)
        return self

    async def until(self, get, request, found):
        """Returns the first message about the request that found accepts."""
        while True:
            try:
                received = await get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError("a minute without a message") from None
            if received["parent_header"].get("msg_id") == request and found(received):
                return received

    async def run(self, code):
        """Runs the code and returns its reply and, by type, what it published."""
        request = self.client.execute(code)
        published = {}

        def idle(received):
            published.setdefault(received["msg_type"], received["content"])
            return received["content"].get("execution_state") == "idle"

        await self.until(self.client.get_iopub_msg, request, idle)
        reply = await self.until(self.client.get_shell_msg, request, lambda _: True)
        return reply["content"], published

    async def kill(self):
        self.client.stop_channels()
        await self.sandbox.kill()


async def the_client_of_jupyter_itself(gateway):
    client, manager = gateway.client, gateway.manager
    same((await GatewayKernelSpecManager().get_kernel_spec("python3"))["spec"]["language"], "python")
    reply, published = await gateway.run("print('out')\nx = 41\nx + 1")
    same((reply["status"], published["stream"]["text"]), ("ok", "out\n"))
    same(published["execute_result"]["data"], {"text/plain": "42"})
    reply, published = await gateway.run("1/0")
    same((reply["status"], reply["ename"], published["error"]["ename"]), ("error",) + ("ZeroDivisionError",) * 2)

    request = client.complete("prin")
    reply = await gateway.until(client.get_shell_msg, request, lambda _: True)
    assert "print" in reply["content"]["matches"], reply["content"]

    request = client.execute("print('go', flush=True)\nwhile True: pass")
    await gateway.until(client.get_iopub_msg, request, lambda received: received["msg_type"] == "stream")
    await manager.interrupt_kernel()
    reply = await gateway.until(client.get_shell_msg, request, lambda _: True)
    same(reply["content"]["ename"], "KeyboardInterrupt")
    _, published = await gateway.run("x")
    same(published["execute_result"]["data"], {"text/plain": "41"})

    await manager.restart_kernel()
    await client.wait_for_ready(timeout=PATIENCE)
    reply, _ = await gateway.run("x")
    same(reply["ename"], "NameError")
    same((await manager.is_alive(), manager.execution_state), (True, "idle"))
    await manager.shutdown_kernel()


the_client_of_jupyter_itself.kind = Gateway
# It reads and writes one connection in two threads, which Python's TLS does not support:
# the reader sometimes sees an end that nobody sent (python/cpython#151508).
if not TLS:
    case(the_client_of_jupyter_itself)


@interprets
async def the_websocket_of_smolagents(sandbox):
    """Does what its executors for containers do once their server runs."""

    def drive():
        logger = AgentLogger(level=LogLevel.OFF)
        kernel = smolagents._create_kernel_http(address(sandbox, "/kernels"), logger)
        # A new connection for each step, as they do.
        for code, want in (
            ("x = 41\nprint('out')", (None, "out\n", False)),
            ("x + 1", ("42", "", False)),
            ("class FinalAnswerException(BaseException): pass\nraise FinalAnswerException('safe:[1]')", ([1], "", True)),
        ):
            connection = channels(sandbox, kernel)
            output = smolagents._websocket_run_code_raise_errors(code, connection, logger)
            connection.close()
            same((output.output, output.logs, output.is_final_answer), want)
        connection = channels(sandbox, kernel)
        with raises(smolagents.AgentError) as failed:
            smolagents._websocket_run_code_raise_errors("1/0", connection, logger)
        connection.close()
        assert "ZeroDivisionError" in str(failed.value), failed.value

    await asyncio.to_thread(drive)
