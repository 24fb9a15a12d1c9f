import gzip
import io
import time

from e2b import AuthenticationException, FileNotFoundException, FileType, InvalidArgumentException, SandboxException

TEXT = "line\nünïcode ✓\n"
DATA = bytes(i * i % 251 for i in range(300_000))
HOME = "/home/user/"


@case
@together
async def every_format_reads_what_was_written(sandbox):
    files = sandbox.files
    written = await files.write("notes/a.txt", TEXT)
    same((written.name, written.type, written.path), ("a.txt", FileType.FILE, HOME + "notes/a.txt"))
    same(await files.read("notes/a.txt"), TEXT)
    same(await files.read("notes/a.txt", format="text", gzip=True), TEXT)
    await files.write("b", DATA)
    for packed in (False, True):
        assert bytes(await files.read("b", format="bytes", gzip=packed)) == DATA
        for options in ({}, {"stream_idle_timeout": PATIENCE}, {"stream_idle_timeout": 0}):
            chunks = b""
            async for chunk in await files.read("b", format="stream", gzip=packed, **options):
                chunks += chunk
            assert chunks == DATA


@case
@together
async def every_kind_of_data_is_written_in_every_encoding(sandbox):
    for options in ({}, {"use_octet_stream": True}, {"use_octet_stream": False}, {"gzip": True}):
        kinds = {"text": TEXT, "bytes": DATA, "file": io.BytesIO(DATA), "text-file": io.StringIO(TEXT)}
        for kind, data in kinds.items():
            info = await sandbox.files.write(f"kinds/{kind}", data, **options)
            same((info.name, info.path, info.type), (kind, f"{HOME}kinds/{kind}", FileType.FILE))
            got = await sandbox.files.read(f"kinds/{kind}", format="bytes")
            assert bytes(got) == (TEXT.encode() if "text" in kind else DATA), (kind, options)


@case
@together
async def an_empty_file(sandbox):
    for options in ({}, {"use_octet_stream": True}, {"gzip": True}):
        await sandbox.files.write("empty", "", **options)
        same(await sandbox.files.read("empty"), "")
        same(bytes(await sandbox.files.read("empty", format="bytes")), b"")
        same((await sandbox.files.get_info("empty")).size, 0)


@case
@together
async def many_files_in_one_request_or_in_several(sandbox):
    paths = [HOME + "many/1", HOME + "many/sub/2", "/tmp/many 3 ✓"]
    for options in ({}, {"use_octet_stream": True}, {"gzip": True}):
        entries = [
            {"path": "many/1", "data": "one"},
            {"path": "many/sub/2", "data": DATA},
            {"path": "/tmp/many 3 ✓", "data": "three"},
        ]
        same([one.path for one in await sandbox.files.write_files(entries, **options)], paths)
    same(await sandbox.files.read("many/1"), "one")
    assert bytes(await sandbox.files.read("many/sub/2", format="bytes")) == DATA
    same(await sandbox.files.read("/tmp/many 3 ✓"), "three")
    same(await sandbox.files.write_files([]), [])


@case
@together
async def names_with_anything_in_them(sandbox):
    files = sandbox.files
    await files.make_dir("odd")
    names = ["a b", "ü✓", 'q"uote', "a'b", "per%20cent", "plus+", "semi;colon", "back\\slash", "amp&ersand", "#hash?", "-dash"]
    for name in names:
        for octets in (False, True):
            info = await files.write(f"odd/{name}", name, use_octet_stream=octets)
            same((info.name, info.path), (name, f"{HOME}odd/{name}"))
            same(await files.read(f"odd/{name}"), name)
            await files.remove(f"odd/{name}")
    same(await files.list("odd"), [])
    await sandbox.commands.run(r"touch odd/$'new\nline'")
    same([one.name for one in await files.list("odd")], ["new\nline"])


@case
@together
async def metadata_comes_back(sandbox):
    files = sandbox.files
    want = {"author": "someone", "content-kind": "note 1"}
    for options in ({}, {"use_octet_stream": True}):
        written = await files.write("with", "x", metadata={"author": "someone", "Content-Kind": "note 1"}, **options)
        same(written.metadata, want)
        same((await files.get_info("with")).metadata, want)
        same([one.metadata for one in await files.list(".") if one.name == "with"], [want])
    same((await files.rename("with", "moved")).metadata, want)
    for bad in ({"no spaces": "x"}, {"key": "ü"}):
        with raises(InvalidArgumentException):
            await files.write("bad", "x", metadata=bad)


@case
@together
async def list_has_a_depth(sandbox):
    make = "mkdir -p tree/a/b/c && echo 1 >tree/1 && echo 2 >tree/a/b/2 && ln -s ../1 tree/a/link && ln -s nowhere tree/broken"
    await sandbox.commands.run(make)
    for options, want in [
        ({}, ["1", "a"]),
        ({"depth": 1}, ["1", "a"]),
        ({"depth": 2}, ["1", "a", "a/b", "a/link"]),
        ({"depth": 9}, ["1", "a", "a/b", "a/b/2", "a/b/c", "a/link"]),
    ]:
        entries = await sandbox.files.list("tree", **options)
        same(sorted(one.path.removeprefix(HOME + "tree/") for one in entries), want)
    with raises(InvalidArgumentException):
        await sandbox.files.list("tree", depth=0)
    with raises(FileNotFoundException):
        await sandbox.files.list("nowhere")
    with raises(InvalidArgumentException):
        await sandbox.files.list("tree/1")


@case
@together
async def information_about_a_file_a_directory_and_a_link(sandbox):
    before = time.time()
    await sandbox.commands.run("echo hello >f && chmod 640 f && mkdir dir && chmod 751 dir && ln -s f link")
    file = await sandbox.files.get_info("f")
    same(
        (file.name, file.path, file.type, file.size, file.mode, file.permissions, file.owner, file.group),
        ("f", HOME + "f", FileType.FILE, 6, 0o640, "-rw-r-----", "user", "user"),
    )
    assert not file.symlink_target
    assert before - 1 < file.modified_time.timestamp() <= time.time(), file
    directory = await sandbox.files.get_info("dir")
    same((directory.type, directory.permissions), (FileType.DIR, "drwxr-x--x"))
    same((await sandbox.files.get_info("link")).symlink_target, HOME + "f")
    with raises(FileNotFoundException):
        await sandbox.files.get_info("nothing")


@case
@together
async def exists_make_move_and_remove(sandbox):
    files = sandbox.files
    assert not await files.exists("d")
    assert await files.make_dir("d/e")
    assert not await files.make_dir("d/e")
    assert await files.exists("d")
    await files.write("d/e/f", "content")
    moved = await files.rename("d/e/f", "d/g")
    same((moved.name, moved.path, moved.type, moved.size), ("g", HOME + "d/g", FileType.FILE, 7))
    assert not await files.exists("d/e/f")
    directory = await files.rename("d", "other")
    same((directory.path, directory.type), (HOME + "other", FileType.DIR))
    same(await files.read("other/g"), "content")
    await files.remove("other")
    assert not await files.exists("other/g")
    await files.remove("other")  # removing a file that does not exist is no error
    with raises(FileNotFoundException):
        await files.rename("nothing", "x")
    with raises(InvalidArgumentException):
        await files.make_dir("/etc/passwd")


@case
@together
async def a_file_is_overwritten_and_belongs_to_its_user(sandbox):
    files = sandbox.files
    await files.write("f", "a long first content")
    await files.write("f", "short")
    same(await files.read("f"), "short")
    same((await files.get_info("f")).owner, "user")
    await files.write("relative", "x", user="root")
    result = await sandbox.commands.run('stat -c "%U %n" /root/relative', user="root")
    same(result.stdout, "root /root/relative\n")
    same(await files.read("relative", user="root"), "x")
    assert await files.exists("relative", user="root")
    assert await files.make_dir("made", user="root")
    same((await files.get_info("/root/made")).owner, "root")
    same(await files.list("made", user="root"), [])
    same((await files.rename("relative", "renamed", user="root")).path, "/root/renamed")
    await files.remove("renamed", user="root")


@case
@together
async def what_cannot_be_read_or_written_is_an_exception_of_its_class(sandbox):
    files = sandbox.files
    with raises(FileNotFoundException) as missing:
        await files.read("nothing")
    assert "nothing" in str(missing.value)
    with raises(FileNotFoundException):
        await files.read("nothing", format="stream")
    with raises(InvalidArgumentException):
        await files.read("/tmp")
    with raises(InvalidArgumentException):
        await files.write("/tmp", "x")
    with raises(AuthenticationException):
        await files.read("x", user="nobody-knows")
    with raises(AuthenticationException):
        await files.list("x", user="nobody-knows")
    await files.write("file", "x")
    try:
        await files.write("file/below", "x")
    except SandboxException:
        return
    raise AssertionError("a file below a file was written")


@case
@together
async def what_was_compressed_before_stays_as_it_is(sandbox):
    packed = gzip.compress(DATA)
    await sandbox.files.write("packed.gz", packed)
    for option in (False, True):
        assert bytes(await sandbox.files.read("packed.gz", format="bytes", gzip=option)) == packed
