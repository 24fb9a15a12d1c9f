import io
from datetime import datetime, timezone

from e2b import SandboxException, VolumeException, VolumeNotFoundException, VolumePathNotFoundException


async def new_volume(sandbox):
    return await Volume.create(f"py-{sandbox.sandbox_id}")


@case
async def made_found_listed_and_destroyed(sandbox):
    volume = await new_volume(sandbox)
    try:
        assert volume.token
        assert any(one.volume_id == volume.volume_id and one.name == volume.name for one in await Volume.list())
        info = await Volume.get_info(volume.volume_id)
        same((info.volume_id, info.name), (volume.volume_id, volume.name))
        again = await Volume.connect(volume.volume_id)
        await again.write_file("/a", "x")
        same(await volume.read_file("/a"), "x")
        with raises(VolumeException):
            await Volume.create(volume.name)
        with raises(VolumeException):
            await Volume.create("not a name")
    finally:
        same(await Volume.destroy(volume.volume_id), True)
    with raises(VolumeNotFoundException):
        await Volume.get_info(volume.volume_id)
    with raises(VolumeNotFoundException):
        await Volume.connect(volume.volume_id)
    same(await Volume.destroy(volume.volume_id), False)


@case
async def files_of_a_volume(sandbox):
    volume = await new_volume(sandbox)
    try:
        data = bytes(i * i % 251 for i in range(300_000))
        written = await volume.write_file("/notes/a b ✓.txt", "hello", force=True, mode=0o640)
        same((written.name, written.path, written.type.value, written.size, written.mode), ("a b ✓.txt", "/notes/a b ✓.txt", "file", 5, 0o640))
        assert abs((written.mtime - datetime.now(timezone.utc)).total_seconds()) < 60, written
        same(await volume.read_file("/notes/a b ✓.txt"), "hello")
        with raises(VolumeException):
            await volume.write_file("/notes/a b ✓.txt", "again")
        same((await volume.write_file("/bytes", data)).size, len(data))
        same((await volume.write_file("/stream", io.BytesIO(data))).size, len(data))
        same((await volume.write_file("/text", io.StringIO("text"))).size, 4)
        same((await volume.write_file("/empty", "")).size, 0)
        same(await volume.read_file("/bytes", format="bytes"), data)
        same(b"".join([chunk async for chunk in await volume.read_file("/stream", format="stream")]), data)
        same(await volume.read_file("/empty"), "")
        with raises(VolumePathNotFoundException):
            await volume.read_file("/nothing")
        with raises(VolumePathNotFoundException):
            await volume.write_file("/no/where", "x")
    finally:
        await Volume.destroy(volume.volume_id)


@case
async def directories_and_attributes(sandbox):
    volume = await new_volume(sandbox)
    try:
        directory = await volume.make_dir("/d", mode=0o700)
        same((directory.type.value, directory.path, directory.mode), ("directory", "/d", 0o700))
        with raises(VolumeException):
            await volume.make_dir("/d")
        await volume.make_dir("/d", force=True)
        with raises(VolumePathNotFoundException):
            await volume.make_dir("/e/f")
        await volume.make_dir("/e/f", force=True)
        await volume.write_file("/e/f/g", "x")
        same([one.path for one in await volume.list("/")], ["/d", "/e"])
        same([one.path for one in await volume.list("/", depth=3)], ["/d", "/e", "/e/f", "/e/f/g"])
        with raises(VolumePathNotFoundException):
            await volume.list("/nothing")
        same((await volume.update_metadata("/e/f/g", mode=0o400)).mode, 0o400)
        same((await volume.get_info("/e/f/g")).mode, 0o400)
        same(await volume.exists("/e"), True)
        await volume.remove("/e")
        same(await volume.exists("/e"), False)
        with raises(VolumePathNotFoundException):
            await volume.remove("/e")
    finally:
        await Volume.destroy(volume.volume_id)


@case
async def sandboxes_share_it(sandbox):
    volume = await new_volume(sandbox)
    sandboxes = []
    try:
        sandboxes.append(await Core.create(volume_mounts={"/data": volume}))
        sandboxes.append(await Core.create(volume_mounts={"/home/user/shared": volume.name}))
        one, other = sandboxes
        mounts = (await one.get_info()).volume_mounts
        same([(mount["name"], mount["path"]) if isinstance(mount, dict) else (mount.name, mount.path) for mount in mounts], [(volume.name, "/data")])
        await volume.write_file("/from-outside", "hello")
        await one.commands.run("cat /data/from-outside >/data/copy && echo more >>/data/copy")
        same(await other.files.read("/home/user/shared/copy"), "hellomore\n")
        same(await volume.read_file("/copy"), "hellomore\n")
        with raises(VolumeException):
            await Volume.destroy(volume.volume_id)
        await one.pause()
        with raises(VolumeException):
            await Volume.destroy(volume.volume_id)
        await other.files.write("/home/user/shared/later", "x")
        await one.connect()
        same((await one.commands.run("cat /data/later")).stdout, "x")
    finally:
        for made in sandboxes:
            await made.kill()
        await Volume.destroy(volume.volume_id)
    with raises(SandboxException):
        await Core.create(volume_mounts={"/data": "there-is-none"})
