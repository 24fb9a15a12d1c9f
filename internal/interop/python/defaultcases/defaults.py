"""What a program asks for that leaves everything to the SDK."""

import uuid
from pathlib import Path

from e2b import PtySize, SandboxQuery, wait_for_timeout


@case
async def calls_of_a_sandbox(_):
    sandbox = await Core.create()
    try:
        await sandbox.get_info()
        await sandbox.get_metrics()
        await Core.list().next_items()
        await Core.list(query=SandboxQuery(metadata=METADATA)).next_items()
        await sandbox.set_timeout(60)
        await sandbox.pause()
        await sandbox.connect()
        await Core.connect(sandbox.sandbox_id)
        await sandbox.is_running()
        await sandbox.update_network({"allow_internet_access": True})

        await sandbox.files.write("dir/file", "content")
        await sandbox.files.read("dir/file")
        await sandbox.files.list("dir")
        await sandbox.files.exists("dir/file")
        await sandbox.files.get_info("dir/file")
        await sandbox.files.rename("dir/file", "dir/other")
        await sandbox.files.make_dir("watched")
        watch = await sandbox.files.watch_dir("watched", **({} if BLOCKING else {"on_event": print}))
        if BLOCKING:
            watch.get_new_events()
        await watch.stop()
        await sandbox.files.remove("dir")

        await sandbox.commands.run("true")
        running = await sandbox.commands.run("cat", background=True, stdin=True)
        await sandbox.commands.list()
        await sandbox.commands.connect(running.pid)
        await sandbox.commands.send_stdin(running.pid, "x")
        await sandbox.commands.close_stdin(running.pid)
        await sandbox.commands.kill(running.pid)

        terminal = await sandbox.pty.create(PtySize(24, 80), **({} if BLOCKING else {"on_data": lambda _: None}))
        await sandbox.pty.resize(terminal.pid, PtySize(25, 81))
        await sandbox.pty.send_stdin(terminal.pid, b"x")
        await sandbox.pty.kill(terminal.pid)
    finally:
        await sandbox.kill()


@case
async def calls_of_the_code_interpreter(_):
    sandbox = await Interpreter.create()
    try:
        await sandbox.run_code("1")
        context = await sandbox.create_code_context()
        await sandbox.list_code_contexts()
        await sandbox.run_code("1", context=context)
        await sandbox.restart_code_context(context)
        await sandbox.remove_code_context(context)
    finally:
        await sandbox.kill()


@case
async def lifecycles(_):
    for lifecycle in ({"on_timeout": "pause"}, {"on_timeout": "pause", "auto_resume": True}, {"on_timeout": "kill"}):
        await (await Core.create(lifecycle=lifecycle)).kill()


@case
async def builds(_):
    name = f"defaults-{uuid.uuid4()}"
    template = (
        Template(file_context_path=Path("python"))
        .from_base_image()
        .copy("shared.py", "/srv/")
        .run_cmd("true")
        .set_start_cmd("sleep 1000", wait_for_timeout(1_000))
    )
    built = await Template.build(template, name)
    await Template.build_in_background(Template().from_template(name), name)
    await Template.get_build_status(built)
    await Template.exists(name)
    await Template.assign_tags(name, "tagged")
    await Template.get_tags(name)
    await Template.remove_tags(name, "tagged")
