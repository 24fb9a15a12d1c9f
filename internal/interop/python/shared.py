"""What all files of cases share. It is loaded into them, once for each style."""

import contextlib
import time

METADATA = {"suite": "interop"}
ENVS = {"GREETING": "hello"}


async def one_case(body):
    """Runs a case with a sandbox of its own."""
    sandbox = await getattr(body, "kind", Core).create(metadata=METADATA, envs=ENVS)
    try:
        await body(sandbox)
    finally:
        await sandbox.kill()


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
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"in a minute: {what}"
        await pause(0.02)


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"
