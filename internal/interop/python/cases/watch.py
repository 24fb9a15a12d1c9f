import asyncio
import sys

from e2b import FileNotFoundException, FilesystemEventType, InvalidArgumentException, SandboxException, TimeoutException

CHMOD, CREATE, REMOVE, RENAME, WRITE = (getattr(FilesystemEventType, name) for name in "CHMOD CREATE REMOVE RENAME WRITE".split())


class Watch:
    """A watch of a directory: the asynchronous SDK receives events, the blocking
    one asks for them."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.events = []

    async def start(self, path, **options):
        if BLOCKING:
            self.handle = self.sandbox.files.watch_dir(path, **options)
        else:
            self.handle = await self.sandbox.files.watch_dir(path, on_event=self.events.append, **options)

    async def until(self, condition, what):
        def reached():
            if BLOCKING:
                self.events += self.handle.get_new_events()
            return condition()

        await eventually(reached, what)

    async def seen(self, kind, name):
        await self.until(lambda: self.find(kind, name), f"{kind} of {name} in {self.events}")

    def find(self, kind, name=None):
        return [one for one in self.events if one.type == kind and name in (None, one.name)]


@case
async def each_change_is_an_event(sandbox):
    files = sandbox.files
    await files.make_dir("watched")
    watch = Watch(sandbox)
    await watch.start("watched")
    await files.write("watched/new", "x")
    await watch.seen(WRITE, "new")
    same([one.type for one in watch.events], [CREATE, CHMOD, WRITE])
    assert watch.events[0].entry is None
    await sandbox.commands.run("chmod 600 watched/new")
    await watch.until(lambda: len(watch.find(CHMOD)) > 1, "a second chmod")
    await files.rename("watched/new", "watched/renamed")
    await watch.seen(RENAME, "new")
    await watch.seen(CREATE, "renamed")
    await files.remove("watched/renamed")
    await watch.seen(REMOVE, "renamed")
    await files.make_dir("watched/sub")
    await watch.seen(CREATE, "sub")
    await files.write("watched/sub/deep", "x")
    await files.write("watched/last", "x")
    await watch.seen(WRITE, "last")
    assert not [one for one in watch.events if "deep" in one.name]
    await watch.handle.stop()


@case
async def recursively_with_what_changed(sandbox):
    await sandbox.files.make_dir("watched/a")
    watch = Watch(sandbox)
    await watch.start("watched", recursive=True, include_entry=True)
    await sandbox.files.write("watched/a/old", "four")
    await watch.seen(WRITE, "a/old")
    entry = watch.find(WRITE, "a/old")[0].entry
    same((entry.path, entry.size), ("/home/user/watched/a/old", 4))
    await sandbox.files.make_dir("watched/b/c")
    await watch.seen(CREATE, "b")
    await watch.handle.stop()


@case
async def stop_ends_it(sandbox):
    await sandbox.files.make_dir("watched")
    watch, exits = Watch(sandbox), []
    if BLOCKING:
        await watch.start("watched")
    else:
        await watch.start("watched", timeout=0, on_exit=exits.append)
    await sandbox.files.write("watched/1", "x")
    await watch.seen(WRITE, "1")
    await watch.handle.stop()
    if BLOCKING:
        with raises(SandboxException):
            watch.handle.get_new_events()
        return
    same(exits, [None])
    count = len(watch.events)
    await sandbox.files.write("watched/2", "x")
    same(len(await sandbox.files.list("watched")), 2)
    same(len(watch.events), count)


@case
async def the_timeout_ends_it_with_an_error(sandbox):
    if BLOCKING:
        return  # asks for events and has no timeout
    exits = []

    async def watch():
        await Watch(sandbox).start(".", timeout=3, on_exit=exits.append)
        await eventually(lambda: exits)

    try:
        await asyncio.create_task(watch())
    except asyncio.CancelledError:
        # With Python 3.12 and newer, the SDK cancels the task that began the watch, and does not call on_exit.
        same(sys.version_info >= (3, 12), True)
        return
    same([type(one) for one in exits], [TimeoutException])


@case
async def only_a_directory_can_be_watched(sandbox):
    await sandbox.files.write("file", "x")
    for path, kind in (("nowhere", FileNotFoundException), ("file", InvalidArgumentException)):
        with raises(kind):
            await Watch(sandbox).start(path)
    watch = Watch(sandbox)
    await watch.start("/tmp", allow_network_mounts=True, user="root")
    await watch.handle.stop()
