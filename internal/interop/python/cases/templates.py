import contextlib
import re
import tempfile
import uuid
from pathlib import Path

from e2b import BuildException, wait_for_file, wait_for_port, wait_for_timeout


def unique(name):
    """Returns a name that no other client uses: all share one cloud, and a build of
    one of them is cached for all."""
    return f"{name}-{uuid.uuid4()}"


@contextlib.contextmanager
def context(files):
    """Makes a directory to copy from."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                path.symlink_to(text[3:])
            else:
                path.write_text(text)
        yield directory


async def prints(template, command):
    """Returns what a command prints in a sandbox of a template."""
    sandbox = await Core.create(template)
    try:
        return (await sandbox.commands.run(command)).stdout
    finally:
        await sandbox.kill()


@case
async def a_template_with_every_step(_):
    files = {
        "app/main.sh": "echo main $GREETING\n", "app/sub/data": "data\n", "app/.new": unique(""), "app/no.log": "no\n", "app/link": "-> main.sh",
        "one.txt": "one\n", "two.txt": "two\n", ".dockerignore": "# logs\n**/*.log\n",
    }
    with context(files) as directory:
        name, log = unique("every"), []
        template = (
            Template(file_context_path=directory)
            .from_base_image()
            .set_user("root")
            .make_dir("/srv/app", mode=0o755)
            .set_workdir("/srv/app")
            .copy("app", ".")
            .copy("*.txt", "texts/", user="user", mode=0o640)
            .copy_items([{"src": "one.txt", "dest": "/srv/renamed"}])
            .set_envs({"GREETING": "hello"})
            .run_cmd(['echo "$GREETING there" > said', "touch gone"])
            .rename("said", "kept")
            .make_symlink("/srv/app/kept", "/srv/app/again")
            .remove("gone", force=True)
            .run_cmd("chown -R user /srv")
            .set_user("user")
            .set_start_cmd("exec python3 -m http.server 8123", wait_for_port(8123))
        )

        def listen(entry):
            log.append(f"{entry.level} {entry.message}")

        built = await Template.build(template, f"{name}:v1", tags=["stable"], cpu_count=2, memory_mb=512, on_build_logs=listen)
        same((built.name, built.alias, sorted(built.tags)), (f"{name}:v1", f"{name}:v1", ["stable", "v1"]))
        assert re.fullmatch("[a-z0-9]{20}", built.template_id), built
        for wanted in ("debug Build started", "info Uploaded 'app'", "debug Build finished"):
            assert wanted in log, log
        assert any('RUN echo "$GREETING there" > said && touch gone' in line for line in log), log
        command = (
            "pwd; whoami; ls; cat sub/data again texts/two.txt /srv/renamed; sh link;"
            " stat -c '%a %U' texts/one.txt; curl -s localhost:8123/kept"
        )
        same(
            await prints(f"{name}:stable", command),
            "/srv/app\nuser\nagain\nkept\nlink\nmain.sh\nsub\ntexts\ndata\nhello there\ntwo\none\nmain hello\n640 user\nhello there\n",
        )

        # Clients that start many sandboxes of one build name it by its id.
        for named in (name, built.template_id):
            same(await prints(f"{named}:{built.build_id}", "cat kept"), "hello there\n")

        # Again: nothing is sent or run.
        log.clear()
        await Template.build(template, f"{name}:v2", on_build_logs=listen)
        assert "info Skipping upload of 'app', already cached" in log, log
        assert any(re.search("CACHED .*RUN", line) for line in log), log
        same(sorted(one.tag for one in await Template.get_tags(name)), ["stable", "v1", "v2"])

        # A template of a template.
        child = unique("child")
        await Template.build(Template().from_template(f"{name}:v1").run_cmd("echo child >> sub/data"), child)
        same(
            await prints(child, "pwd; cat sub/data; echo $GREETING; curl -s localhost:8123/kept"),
            "/srv/app\ndata\nchild\nhello\nhello there\n",
        )
        same(await Template.exists(child), True)


@case
async def a_template_with_packages_and_a_repository(_):
    # Scripts that write down their arguments replace the package managers.
    tools = r"""mkdir -p /srv/tools && cd /srv/tools && for tool in pip npm bun apt-get; do
printf '#!/bin/sh\necho %s "$@" as $(whoami) >> /tmp/called\n' $tool > $tool && chmod +x $tool; done
echo 'PATH=/srv/tools:$PATH' > /etc/profile.d/zz-tools.sh && touch /tmp/called && chmod 666 /tmp/called"""
    repository = (
        "git init -q -b main r && cd r && echo text > file && git add ."
        " && git -c user.name=a -c user.email=a@b.c commit -qm first"
    )
    name = unique("packages")
    template = (
        Template()
        .from_image("e2bdev/base:latest")
        .run_cmd(tools, user="root")
        .pip_install(["one", "two"])
        .npm_install("three", g=True)
        .bun_install("four")
        .apt_install("five")
        .run_cmd(repository)
        .git_clone("file:///home/user/r", "cloned", branch="main")
    )
    await Template.build(template, name)
    called = (
        "pip install one two as root\nnpm install -g three as root\nbun install four as user\n"
        "apt-get update as root\napt-get install -y five as root\n"
    )
    same(await prints(name, "cat /tmp/called cloned/file"), called + "text\n")


@case
async def a_template_without_a_cache(_):
    name, log = unique("anew"), []

    def define():
        return Template().from_base_image().run_cmd("echo one").run_cmd(f"echo {name}").skip_cache().run_cmd("cat /proc/sys/kernel/random/uuid > id")

    def listen(entry):
        log.append(entry.message)

    await Template.build(define(), name)
    first = await prints(name, "cat id")
    await Template.build(define(), name, on_build_logs=listen)
    assert any(re.search("CACHED .*RUN echo anew", line) for line in log), log
    assert await prints(name, "cat id") != first
    log.clear()
    await Template.build(define(), name, skip_cache=True, on_build_logs=listen)
    assert not any("CACHED" in line for line in log), log


@case
async def a_template_that_fails(_):
    log = []
    template = Template().from_base_image().run_cmd("true").run_cmd("echo the reason >&2; exit 3")
    with raises(BuildException) as failed:
        await Template.build(template, unique("fails"), on_build_logs=lambda entry: log.append(entry.message))
    assert re.search("exit 3.*: exit status 3", str(failed.value)), failed.value
    assert "the reason" in log, log
    with raises(BuildException):
        await Template.build(Template().from_template(unique("nowhere")), unique("orphan"))
    with raises(BuildException):
        await Template.build(Template().from_base_image().set_start_cmd("exit 7", wait_for_file("/nowhere")), unique("start"))
    same(await Template.exists(unique("never")), False)


@case
async def a_template_of_a_Dockerfile(_):
    dockerfile = (
        "FROM e2bdev/base:latest\nENV NAME=value\nCOPY one.txt /srv/copied\n"
        "RUN echo built by $(whoami) > /srv/by && chmod -R a+rX /srv\nWORKDIR /srv\nUSER user\nCMD sleep 1000\n"
    )
    with context({"one.txt": "one\n"}) as directory:
        name = unique("docker")
        template = Template(file_context_path=directory).from_dockerfile(dockerfile).set_ready_cmd("true")
        await Template.build(template, name)
        same(
            await prints(name, "pwd; whoami; cat copied by; echo $NAME; until pgrep sleep >/dev/null; do :; done; pgrep -c sleep"),
            "/srv\nuser\none\nbuilt by root\nvalue\n1\n",
        )


@case
async def a_build_in_the_background(_):
    info = await Template.build_in_background(Template().from_base_image().run_cmd(f"echo {unique('slow')}; sleep 0.5; echo done"), unique("background"))
    log = []
    while True:
        status = await Template.get_build_status(info, logs_offset=len(log))
        log += [entry.message for entry in status.log_entries]
        if status.status.value not in ("building", "waiting"):
            break
        await pause(0.1)
    same(status.status.value, "ready")
    assert "done" in log, log


@case
async def the_quickstart(_):
    """The documentation's first template, as it stands there but for its name."""
    template = (
        Template()
        .from_base_image()
        .set_envs(
            {
                "HELLO": "Hello, World!",
            }
        )
        .set_start_cmd("echo $HELLO", wait_for_timeout(5_000))
    )
    alias = unique("template-tag-dev")
    await Template.build(
        template,
        alias=alias,
        cpu_count=1,
        memory_mb=1024,
        on_build_logs=lambda log_entry: str(log_entry),
    )
    same(await prints(alias, "echo $HELLO"), "Hello, World!\n")


@case
async def templates_from_images(_):
    # The images are those of a mirror, and have nothing but a shell and their name.
    images = {
        "library/debian:stable": lambda t: t.from_debian_image(),
        "library/ubuntu:latest": lambda t: t.from_ubuntu_image(),
        "library/python:3": lambda t: t.from_python_image(),
        "library/node:lts": lambda t: t.from_node_image(),
        "oven/bun:latest": lambda t: t.from_bun_image(),
        "library/python:3.10": lambda t: t.from_image("python:3.10"),
        "library/alpine:3.24": lambda t: hasattr(t, "from_alpine_image") and t.from_alpine_image(),
        "library/fedora:44": lambda t: hasattr(t, "from_fedora_image") and t.from_fedora_image(),
        "library/archlinux:latest": lambda t: hasattr(t, "from_arch_image") and t.from_arch_image(),
    }
    for image, begin in images.items():
        begun = begin(Template())
        if not begun:  # an older SDK
            continue
        name = unique("image")
        await Template.build(begun.run_cmd("cat /name > /tmp/said; echo $FROM >> /tmp/said"), name)
        same(await prints(name, "cat /tmp/said; id -u -n"), f"{image}\n{image}\nuser\n")


@case
async def sandboxes_of_images(_):
    image = "library/python:3"
    same(await prints(f"docker.io/{image}", "cat /name; echo $FROM; id -u -n"), f"{image}\n{image}\nuser\n")


@case
async def a_template_of_a_dockerfile_from_an_image(_):
    name = unique("dockerfile")
    text = "FROM python:3.10\nWORKDIR /app\nENV GREETING=hello\nRUN echo $GREETING from $(cat /name) > said\n"
    await Template.build(Template().from_dockerfile(text), name)
    same(await prints(name, "cat /app/said"), "hello from library/python:3.10\n")
