"""What all files of cases share. It is loaded into them, once for each style."""

import asyncio
import contextlib
import os
import time

import httpx

METADATA = {"suite": "interop"}
ENVS = {"GREETING": "hello"}

# How many seconds a case waits for an event that must come.
PATIENCE = float(os.environ["PATIENCE"])

# Without an address for all sandboxes, each has a host name of its own.
BY_DOMAIN = "E2B_SANDBOX_URL" not in os.environ
SHARED = "https://" + os.environ["E2B_DOMAIN"] if BY_DOMAIN else os.environ["E2B_SANDBOX_URL"]


async def run_cases(cases, reported):
    """Runs cases one after the other, with one sandbox, unless they call that _ because
    they need none."""
    sandbox = None
    for name, body in cases:
        with reported(name):
            if sandbox is None and body.__code__.co_varnames[0] != "_":
                sandbox = await getattr(body, "kind", Core).create(metadata=METADATA, envs=ENVS)
            try:
                await body(sandbox)
            finally:
                if sandbox is not None and name == cases[-1][0]:
                    await sandbox.kill()


def together(body):
    """Has a case use the one sandbox of all such cases of its file, in which they run one
    after the other: each leaves behind what does not disturb the next."""
    body.together = True
    return body


def interprets(body):
    """Registers a case that receives a sandbox of the code interpreter."""
    body.kind = Interpreter
    return case(body)


@contextlib.contextmanager
def raises(*kinds):
    """Expects an error of exactly one of the kinds: a parent class would hide a
    wrong mapping. It yields an object whose value is the error afterwards."""

    class Caught:
        value = None

    caught = Caught()
    try:
        yield caught
    except Exception as error:
        if type(error) not in kinds:
            raise
        caught.value = error
        return
    raise AssertionError(f"no {[kind.__name__ for kind in kinds]}")


async def eventually(condition, what="the condition"):
    """Waits until the condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"in vain for {PATIENCE} s: {what}"
        await pause(0.02)


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


async def pages(query, **options):
    """Returns the pages of a list that have something in them."""
    found, paginator = [], Core.list(query=query, **options)
    while paginator.has_next:
        found.append(await paginator.next_items())
    try:
        await paginator.next_items()
    except Exception:
        return [page for page in found if page]
    raise AssertionError("a page after the last")


async def request(method, url, **options):
    """Sends a request without the SDK."""
    if BLOCKING:
        return httpx.request(method, url, **options)
    return await asyncio.to_thread(httpx.request, method, url, **options)
