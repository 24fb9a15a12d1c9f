"""The command e2bctl, and a cloud of sandboxes on this machine for the SDKs of E2B.

    import e2bctl
    from e2b_code_interpreter import Sandbox

    with e2bctl.local_cloud():
        with Sandbox.create() as sandbox:
            print(sandbox.run_code("1 + 1").text)
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Cloud", "binary", "local_cloud"]


def binary() -> str:
    """Returns the path of the command e2bctl that was installed with this module.

    Raises FileNotFoundError if it is not there, or not complete because its installation was interrupted.
    """
    name = "e2bctl.exe" if sys.platform == "win32" else "e2bctl"
    schemes = ["", sysconfig.get_preferred_scheme("user")] if hasattr(sysconfig, "get_preferred_scheme") else [""]
    for scheme in schemes:
        directory = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            if not os.access(path, os.X_OK):  # pip makes it executable when it is complete
                raise FileNotFoundError(f"{path} is not complete: run pip install --force-reinstall e2bctl")
            return path
    # pip install --target has no directory for scripts but this one.
    beside = os.path.join(os.path.dirname(os.path.dirname(__file__)), "bin", name)
    if os.path.isfile(beside):
        return beside
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not where pip puts programs, and not in PATH: install the package e2bctl again")
    return found


@dataclass(frozen=True)
class Cloud:
    """A local cloud that runs."""

    url: str
    """URL of its API."""
    api_key: str
    """Its API key. Nothing outside of this machine accepts it."""
    env: dict[str, str]
    """Variables with which the SDKs of E2B use it."""


@contextlib.contextmanager
def local_cloud(arguments: Sequence[str] = ()) -> Iterator[Cloud]:
    """Runs a cloud of sandboxes on this machine, and lets the SDKs of E2B use it.

    Inside the block the variables of the SDKs, such as E2B_API_KEY, lead to this cloud. At the end they
    are as before, and the cloud and its sandboxes have ended. If this process is killed, the cloud ends
    five minutes after its last sandbox. arguments are further flags of "e2bctl local up", such as
    "--memory" and "4GiB".

    Raises RuntimeError, with the text of e2bctl, if the cloud does not start.
    """
    with tempfile.TemporaryDirectory(prefix="e2bctl-") as state, tempfile.TemporaryFile("w+") as errors:
        command = [binary(), "local", "up", "--state-dir", state, "--port", "0", "--idle", "5m", "-o", "json", *arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                process.wait()
                errors.seek(0)
                raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}: {errors.read().strip()}")
            record = json.loads(line)
            env = dict(pair.split("=", 1) for pair in record["env"])
            before = {name: os.environ.get(name) for name in env}
            os.environ.update(env)
            try:
                yield Cloud(record["url"], record["apiKey"], env)
            finally:
                for name, value in before.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
