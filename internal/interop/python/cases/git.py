import re

from e2b import CommandExitException, GitAuthException, GitUpstreamException, InvalidArgumentException

AUTHOR = dict(author_name="Some One", author_email="some.one@example.com")
ORIGIN = "file:///tmp/origin.git"


async def seed(sandbox):
    """Makes a repository with one commit, and a bare clone of it at ORIGIN."""
    await sandbox.git.init("seed", initial_branch="main")
    await sandbox.files.write("seed/readme", "first\n")
    await sandbox.git.add("seed")
    await sandbox.git.commit("seed", "First", **AUTHOR)
    await sandbox.commands.run("git clone -q --bare seed /tmp/origin.git")


@case
async def a_repository_from_init_to_commit(sandbox):
    git, commands = sandbox.git, sandbox.commands
    await git.init("repo", initial_branch="trunk")
    await git.configure_user("Local User", "local@example.com", scope="local", path="repo")
    same(await git.get_config("user.name", scope="local", path="repo"), "Local User")
    await sandbox.files.write("repo/a", "1\n")
    status = await git.status("repo")
    same((status.current_branch, status.untracked_count, status.is_clean), ("trunk", 1, False))
    await git.add("repo", files=["a"])
    [file] = (await git.status("repo")).file_status
    same((file.name, file.status, file.index_status, file.staged), ("a", "added", "A", True))
    message = 'it\'s "quoted" $HOME\n\nwith a body'
    await git.commit("repo", message)
    same((await commands.run("git -C repo log -1 --format=%B%an")).stdout, message + "\nLocal User\n")
    await git.commit("repo", "Empty", allow_empty=True, **AUTHOR)
    same((await commands.run('git -C repo log -1 --format="%an <%ae>"')).stdout, "Some One <some.one@example.com>\n")
    assert (await git.status("repo")).is_clean
    await git.init("bare.git", bare=True)
    assert await sandbox.files.exists("bare.git/HEAD")


@case
async def branches(sandbox):
    await seed(sandbox)
    git = sandbox.git
    await git.create_branch("seed", "feature")
    found = await git.branches("seed")
    same((found.branches, found.current_branch), (["feature", "main"], "feature"))
    await git.commit("seed", "More", allow_empty=True, **AUTHOR)
    await git.checkout_branch("seed", "main")
    with raises(CommandExitException):
        await git.delete_branch("seed", "feature")
    await git.delete_branch("seed", "feature", force=True)
    same((await git.branches("seed")).branches, ["main"])
    with raises(CommandExitException):
        await git.checkout_branch("seed", "nothing")


@case
async def clone_push_and_pull(sandbox):
    await seed(sandbox)
    git, files = sandbox.git, sandbox.files
    await git.clone(ORIGIN, path="one")
    await git.clone(ORIGIN, path="two", branch="main", depth=1)
    same(await files.read("two/readme"), "first\n")
    same(await git.remote_get("one", "origin"), ORIGIN)
    await files.write("one/readme", "second\n")
    await git.add("one")
    await git.commit("one", "Second", **AUTHOR)
    status = await git.status("one")
    same((status.upstream, status.ahead, status.behind), ("origin/main", 1, 0))
    await git.push("one")
    same((await git.status("one")).ahead, 0)
    await git.pull("two")
    same(await files.read("two/readme"), "second\n")
    await git.create_branch("one", "topic")
    await git.push("one", remote="origin", branch="topic")
    await git.pull("two", remote="origin", branch="topic")
    with raises(CommandExitException):
        await git.clone("file:///tmp/nothing.git", path="three")


@case
async def remotes(sandbox):
    await seed(sandbox)
    git = sandbox.git
    await git.init("repo")
    same(await git.remote_get("repo", "origin"), None)
    await git.remote_add("repo", "origin", "file:///tmp/elsewhere.git")
    with raises(CommandExitException):
        await git.remote_add("repo", "origin", ORIGIN)
    await git.remote_add("repo", "origin", ORIGIN, overwrite=True, fetch=True)
    same(await git.remote_get("repo", "origin"), ORIGIN)
    assert "origin/main" in (await sandbox.commands.run("git -C repo branch -r")).stdout


@case
async def reset_and_restore(sandbox):
    await seed(sandbox)
    git, files = sandbox.git, sandbox.files
    await files.write("seed/readme", "changed\n")
    await git.add("seed", all=False)
    same((await git.status("seed")).staged_count, 1)
    await git.restore("seed", paths=["readme"], staged=True)
    status = await git.status("seed")
    same((status.staged_count, status.unstaged_count), (0, 1))
    await git.restore("seed", paths=["readme"])
    same(await files.read("seed/readme"), "first\n")
    await git.commit("seed", "Second", allow_empty=True, **AUTHOR)
    await git.reset("seed", mode="hard", target="HEAD~1")
    same((await sandbox.commands.run("git -C seed log --format=%s")).stdout, "First\n")


@case
async def configuration_and_credentials(sandbox):
    git = sandbox.git
    await git.configure_user("Global User", "global@example.com")
    same(await git.get_config("user.email"), "global@example.com")
    await git.set_config("pull.rebase", "false")
    same(await git.get_config("pull.rebase"), "false")
    same(await git.get_config("no.such"), None)
    with raises(InvalidArgumentException):
        await git.set_config("a.b", "c", scope="local")
    await git.dangerously_authenticate("someone", "secret", host="git.example.com")
    assert re.search("someone:secret@git.example.com", await sandbox.files.read(".git-credentials"))


@case
async def errors_have_their_class(sandbox):
    git = sandbox.git
    await git.init("repo")
    await git.commit("repo", "First", allow_empty=True, **AUTHOR)
    with raises(GitUpstreamException):
        await git.pull("repo")
    with raises(CommandExitException):
        await git.status("/tmp")
    with raises(InvalidArgumentException):
        await git.clone("https://git.example.com/x", password="only")


# A server that asks for a password, as a host of private repositories does.
PRIVATELY = r"""
import http.server, os, subprocess
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Authorization") != "Basic c29tZW9uZTpzZWNyZXQ=":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            return self.end_headers()
        path, _, query = self.path.partition("?")
        env = {**os.environ, "GIT_PROJECT_ROOT": "/tmp", "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "someone",
               "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query,
               "CONTENT_TYPE": self.headers.get("Content-Type", ""),
               "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", "")}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, env=env).stdout
        head, _, body = answer.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@case
async def private_repositories_ask_for_credentials(sandbox):
    await seed(sandbox)
    git, commands, files = sandbox.git, sandbox.commands, sandbox.files
    await files.write("/tmp/server.py", PRIVATELY)
    server = await commands.run("exec python3 /tmp/server.py", background=True, cwd="/tmp")
    await commands.run("until (echo >/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done")
    url, envs = "http://127.0.0.1:8000/origin.git", {"no_proxy": "127.0.0.1"}
    with raises(GitAuthException):
        await git.clone(url, path="refused", envs=envs)
    with raises(GitAuthException):
        await git.clone(url, path="refused", envs=envs, username="someone", password="wrong")
    credentials = {"username": "someone", "password": "secret"}
    await git.clone(url, path="clean", envs=envs, **credentials)
    same(await files.read("clean/readme"), "first\n")
    same(await git.remote_get("clean", "origin"), url)
    with raises(GitAuthException):
        await git.pull("clean", envs=envs)
    await git.pull("clean", envs=envs, **credentials)
    await git.commit("clean", "Second", allow_empty=True, **AUTHOR)
    with raises(GitAuthException):
        await git.push("clean", envs=envs)
    await git.push("clean", envs=envs, **credentials)
    same((await commands.run("git -C /tmp/origin.git log --format=%s")).stdout, "Second\nFirst\n")
    same(await git.remote_get("clean", "origin"), url)
    await server.kill()
