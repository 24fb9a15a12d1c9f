"""Runs every case of a folder with the SDK of one style, blocking or
asynchronous, configured by the environment alone, and prints a line of JSON at
the start and the end of each. LEFT_OUT, a list in JSON, names cases that do not
run; commands/ names all of that file. AT_ONCE is how many run at once, PATIENCE how
many seconds one waits for what must come."""

import ast
import asyncio
import json
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import e2b
import e2b_code_interpreter

AT_ONCE = int(os.environ.get("AT_ONCE", "8"))
HERE = Path(__file__).parent


class Blocking(ast.NodeTransformer):
    """Turns code for the asynchronous SDK into code for the blocking one: the same
    without async and await."""

    def become(self, kind, node):
        fields = dict(ast.iter_fields(self.generic_visit(node)))
        return ast.copy_location(kind(**fields), node)

    def visit_AsyncFunctionDef(self, node):
        return self.become(ast.FunctionDef, node)

    def visit_AsyncFor(self, node):
        return self.become(ast.For, node)

    def visit_AsyncWith(self, node):
        return self.become(ast.With, node)

    def visit_Await(self, node):
        return self.generic_visit(node).value

    def visit_comprehension(self, node):
        node.is_async = 0
        return self.generic_visit(node)


def load(path, names, blocking):
    tree = ast.parse(path.read_text(), str(path))
    if blocking:
        tree = Blocking().visit(tree)
    exec(compile(tree, str(path), "exec"), names)


def collect(folder, blocking):
    """Returns the cases of the folder, in groups that share a sandbox, and the function
    that runs a group. The differences between the styles are filled in."""
    cases, feature = [], None

    def case(body):
        cases.append((f"{feature}/{body.__name__}", body))
        return body

    names = {
        "__name__": "cases",
        "case": case,
        "BLOCKING": blocking,
        "Core": e2b.Sandbox if blocking else e2b.AsyncSandbox,
        "Interpreter": e2b_code_interpreter.Sandbox if blocking else e2b_code_interpreter.AsyncSandbox,
        "Volume": e2b.Volume if blocking else e2b.AsyncVolume,
        "Secret": getattr(e2b, "Secret" if blocking else "AsyncSecret", None),  # older ones have none
        "Template": e2b.Template if blocking else e2b.AsyncTemplate,
        "pause": time.sleep if blocking else asyncio.sleep,
    }
    load(HERE / "shared.py", names, blocking)
    for path in sorted((HERE / folder).glob("*.py")):
        feature = path.stem
        load(path, dict(names), blocking)
    left_out = json.loads(os.environ.get("LEFT_OUT", "[]"))

    def means(left, name):
        return left == name or left.endswith("/") and name.startswith(left)

    if unknown := [left for left in left_out if not any(means(left, name) for name, _ in cases)]:
        raise LookupError(f"no such cases are there to leave out: {unknown}")
    groups = {}
    for name, body in cases:
        if not any(means(left, name) for left in left_out):
            key = name.split("/")[0] if hasattr(body, "together") else name
            groups.setdefault(key, []).append((name, body))
    return list(groups.values()), names["run_cases"]


def report(**line):
    # One write, so that threads do not mix their lines.
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Reported:
    """Reports a case; an exception that it raises ends here."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.began = time.monotonic()
        report(started=self.name)

    def __exit__(self, kind, error, _):
        text = "".join(traceback.format_exception(error)) if error else ""
        report(ended=self.name, seconds=time.monotonic() - self.began, error=text)
        return isinstance(error, Exception)


def run_blocking(groups, run_cases):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(run_cases, group, Reported) for group in groups]:
            done.result()


async def run_asynchronous(groups, run_cases):
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(group):
        async with slots:
            await run_cases(group, Reported)

    await asyncio.gather(*(run(group) for group in groups))


if __name__ == "__main__":
    folder, style = sys.argv[1:]
    if style == "blocking":
        run_blocking(*collect(folder, blocking=True))
    else:
        asyncio.run(run_asynchronous(*collect(folder, blocking=False)))
    # All has been reported. The SDKs' threads may still run, and one of them makes the
    # interpreter abort when it ends by itself.
    sys.stdout.flush()
    os._exit(0)
