"""Uses a server of e2bctl serve, configured by the environment alone, as a program on another
machine would: creates a sandbox, runs code in it and in a context of its own, writes a file and
reads it, runs a command, finds the sandbox in the list and kills it. Prints its id."""

from e2b_code_interpreter import Sandbox

with Sandbox.create() as sandbox:
    assert sandbox.run_code("x = 20 + 1; x * 2").text == "42"
    context = sandbox.create_code_context()
    assert sandbox.run_code("'x' in globals()", context=context).text == "False"
    sandbox.files.write("/home/user/a.txt", "over TLS")
    assert sandbox.files.read("/home/user/a.txt") == "over TLS"
    assert sandbox.commands.run("cat a.txt").stdout == "over TLS"
    assert any(one.sandbox_id == sandbox.sandbox_id for one in Sandbox.list().next_items())
    print(sandbox.sandbox_id)
assert not Sandbox.list().next_items()
