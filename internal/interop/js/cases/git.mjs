import assert from 'node:assert/strict'
import { CommandExitError, GitAuthError, GitUpstreamError, InvalidArgumentError } from 'e2b'
import { test, rejects } from '../harness.mjs'

const author = { authorName: 'Some One', authorEmail: 'some.one@example.com' }

// served makes a repository with one commit and a bare clone of it, and returns
// the URL of the clone.
async function served({ git, files, commands }) {
  await git.init('seed', { initialBranch: 'main' })
  await files.write('seed/readme', 'first\n')
  await git.add('seed')
  await git.commit('seed', 'First', author)
  await commands.run('git clone -q --bare seed /tmp/origin.git')
  return 'file:///tmp/origin.git'
}

test('a repository from init to commit', async (sandbox) => {
  const { git, files } = sandbox
  await git.init('repo', { initialBranch: 'trunk' })
  await git.configureUser('Local User', 'local@example.com', { scope: 'local', path: 'repo' })
  assert.equal(await git.getConfig('user.name', { scope: 'local', path: 'repo' }), 'Local User')
  await files.write('repo/a', '1\n')
  let status = await git.status('repo')
  assert.deepEqual([status.currentBranch, status.hasUntracked, status.untrackedCount, status.isClean], ['trunk', true, 1, false])
  await git.add('repo', { files: ['a'] })
  status = await git.status('repo')
  assert.deepEqual(status.fileStatus, [{ name: 'a', status: 'added', indexStatus: 'A', workingTreeStatus: ' ', staged: true }])
  await git.commit('repo', `it's "quoted" $HOME\n\nwith a body`)
  assert.equal((await sandbox.commands.run('git -C repo log -1 --format=%B%an')).stdout, `it's "quoted" $HOME\n\nwith a body\nLocal User\n`)
  await git.commit('repo', 'Empty', { ...author, allowEmpty: true })
  assert.equal((await sandbox.commands.run('git -C repo log -1 --format="%an <%ae>"')).stdout, 'Some One <some.one@example.com>\n')
  assert.equal((await git.status('repo')).isClean, true)
  await git.init('bare.git', { bare: true })
  assert.equal(await files.exists('bare.git/HEAD'), true)
})

test('branches', async (sandbox) => {
  await served(sandbox)
  const { git } = sandbox
  await git.createBranch('seed', 'feature')
  assert.deepEqual(await git.branches('seed'), { branches: ['feature', 'main'], currentBranch: 'feature' })
  await git.commit('seed', 'More', { ...author, allowEmpty: true })
  await git.checkoutBranch('seed', 'main')
  await rejects(CommandExitError, git.deleteBranch('seed', 'feature'))
  await git.deleteBranch('seed', 'feature', { force: true })
  assert.deepEqual(await git.branches('seed'), { branches: ['main'], currentBranch: 'main' })
  await rejects(CommandExitError, git.checkoutBranch('seed', 'nothing'))
})

test('clone, push and pull', async (sandbox) => {
  const url = await served(sandbox)
  const { git, files } = sandbox
  await git.clone(url, { path: 'one' })
  await git.clone(url, { path: 'two', branch: 'main', depth: 1 })
  assert.equal(await files.read('two/readme'), 'first\n')
  assert.equal(await git.remoteGet('one', 'origin'), url)
  await files.write('one/readme', 'second\n')
  await git.add('one')
  await git.commit('one', 'Second', author)
  let status = await git.status('one')
  assert.deepEqual([status.upstream, status.ahead, status.behind], ['origin/main', 1, 0])
  await git.push('one')
  assert.equal((await git.status('one')).ahead, 0)
  await git.pull('two')
  assert.equal(await files.read('two/readme'), 'second\n')
  await git.createBranch('one', 'topic')
  await git.push('one', { remote: 'origin', branch: 'topic' })
  await git.pull('two', { remote: 'origin', branch: 'topic' })
  await rejects(CommandExitError, git.clone('file:///tmp/nothing.git', { path: 'three' }))
})

test('remotes', async (sandbox) => {
  const url = await served(sandbox)
  const { git } = sandbox
  await git.init('repo')
  assert.equal(await git.remoteGet('repo', 'origin'), undefined)
  await git.remoteAdd('repo', 'origin', 'file:///tmp/elsewhere.git')
  await rejects(CommandExitError, git.remoteAdd('repo', 'origin', url))
  await git.remoteAdd('repo', 'origin', url, { overwrite: true, fetch: true })
  assert.equal(await git.remoteGet('repo', 'origin'), url)
  assert.match((await sandbox.commands.run('git -C repo branch -r')).stdout, /origin\/main/)
})

test('reset and restore', async (sandbox) => {
  await served(sandbox)
  const { git, files } = sandbox
  await files.write('seed/readme', 'changed\n')
  await git.add('seed', { all: false })
  assert.equal((await git.status('seed')).stagedCount, 1)
  await git.restore('seed', { paths: ['readme'], staged: true })
  let status = await git.status('seed')
  assert.deepEqual([status.stagedCount, status.unstagedCount], [0, 1])
  await git.restore('seed', { paths: ['readme'] })
  assert.equal(await files.read('seed/readme'), 'first\n')
  await git.commit('seed', 'Second', { ...author, allowEmpty: true })
  await git.reset('seed', { mode: 'hard', target: 'HEAD~1' })
  assert.equal((await sandbox.commands.run('git -C seed log --format=%s')).stdout, 'First\n')
})

test('configuration and credentials', async (sandbox) => {
  const { git, commands } = sandbox
  await git.configureUser('Global User', 'global@example.com')
  assert.equal(await git.getConfig('user.email'), 'global@example.com')
  await git.setConfig('pull.rebase', 'false')
  assert.equal(await git.getConfig('pull.rebase'), 'false')
  assert.equal(await git.getConfig('no.such'), undefined)
  await rejects(InvalidArgumentError, git.setConfig('a.b', 'c', { scope: 'local' }))
  await git.dangerouslyAuthenticate({ username: 'someone', password: 'secret', host: 'git.example.com' })
  assert.match((await commands.run('cat .git-credentials')).stdout, /someone:secret@git\.example\.com/)
})

test('errors have their class', async (sandbox) => {
  const { git } = sandbox
  await git.init('repo')
  await git.commit('repo', 'First', { ...author, allowEmpty: true })
  await rejects(GitUpstreamError, git.pull('repo'))
  await rejects(CommandExitError, git.status('/tmp'))
  await rejects(InvalidArgumentError, git.clone('https://git.example.com/x', { password: 'only' }))
})

// A server that asks for a password, as a host of private repositories does.
const privately = String.raw`
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
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()`

test('private repositories ask for credentials', async (sandbox) => {
  await served(sandbox)
  const { git, commands, files } = sandbox
  await files.write('/tmp/server.py', privately)
  const server = await commands.run('exec python3 /tmp/server.py', { background: true, cwd: '/tmp' })
  await commands.run('until (echo >/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done')
  const url = 'http://127.0.0.1:8000/origin.git'
  const envs = { no_proxy: '127.0.0.1' }
  await rejects(GitAuthError, git.clone(url, { path: 'refused', envs }))
  await rejects(GitAuthError, git.clone(url, { path: 'refused', envs, username: 'someone', password: 'wrong' }))
  const credentials = { username: 'someone', password: 'secret' }
  await git.clone(url, { path: 'clean', envs, ...credentials })
  assert.equal(await files.read('clean/readme'), 'first\n')
  assert.equal(await git.remoteGet('clean', 'origin'), url)
  await rejects(GitAuthError, git.pull('clean', { envs }))
  await git.pull('clean', { envs, ...credentials })
  await git.commit('clean', 'Second', { ...author, allowEmpty: true })
  await rejects(GitAuthError, git.push('clean', { envs }))
  await git.push('clean', { envs, ...credentials })
  assert.equal((await commands.run('git -C /tmp/origin.git log --format=%s')).stdout, 'Second\nFirst\n')
  assert.equal(await git.remoteGet('clean', 'origin'), url)
  await server.kill()
})
