// Drives one sandbox with the official SDKs, configured by the environment alone.
import assert from 'node:assert/strict'
import {
  Sandbox as Core,
  AuthenticationError,
  CommandExitError,
  FileNotFoundError,
  FileType,
  InvalidArgumentError,
  NotFoundError,
  SandboxNotFoundError,
  TimeoutError,
} from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'

const step = (name) => console.log('ok', name)

async function drive(sandbox, Class) {
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.equal(info.metadata.suite, 'interop')
  assert.equal(await sandbox.isRunning(), true)
  step('info')

  const listed = []
  for (const pages = Class.list({ query: { metadata: { suite: 'interop' } } }); pages.hasNext; ) {
    listed.push(...(await pages.nextItems()))
  }
  assert.ok(listed.some((one) => one.sandboxId === sandbox.sandboxId))
  step('list')

  const seen = []
  const result = await sandbox.commands.run('echo "$GREETING"; echo warning >&2; id -un', { onStdout: (text) => seen.push(text) })
  assert.equal(result.stdout, 'hello\nuser\n')
  assert.equal(result.stderr, 'warning\n')
  assert.equal(seen.join(''), result.stdout)
  await assert.rejects(sandbox.commands.run('exit 7'), (error) => error instanceof CommandExitError && error.exitCode === 7)
  assert.equal((await sandbox.commands.run('echo $USER', { user: 'root' })).stdout, 'root\n')
  assert.equal((await sandbox.commands.run('echo "$GREETING $EXTRA"; pwd', { envs: { EXTRA: 'you' }, cwd: '/tmp' })).stdout, 'hello you\n/tmp\n')
  await assert.rejects(sandbox.commands.run('true', { cwd: '/no/such/directory' }), InvalidArgumentError)
  await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 500 }), TimeoutError)
  step('commands')

  const sleeper = await sandbox.commands.run('sleep 1234', { background: true })
  assert.ok((await sandbox.commands.list()).some((one) => one.pid === sleeper.pid))
  assert.equal(await sleeper.kill(), true)
  await assert.rejects(sleeper.wait(), CommandExitError)
  assert.equal(await sandbox.commands.kill(sleeper.pid), false)
  const echo = await sandbox.commands.run('cat', { background: true, stdin: true })
  const joined = await sandbox.commands.connect(echo.pid)
  await echo.sendStdin('first\n')
  await sandbox.commands.sendStdin(echo.pid, 'second\n')
  await echo.closeStdin()
  assert.equal((await echo.wait()).stdout, 'first\nsecond\n')
  assert.equal((await joined.wait()).exitCode, 0)
  step('background')

  const content = 'line\nünïcode ✓\n'
  await sandbox.files.write('notes/a.txt', content)
  assert.equal(await sandbox.files.read('notes/a.txt'), content)
  assert.deepEqual((await sandbox.files.list('notes')).map((entry) => entry.name), ['a.txt'])
  assert.equal(await sandbox.files.exists('notes/b.txt'), false)
  await assert.rejects(sandbox.files.read('notes/b.txt'), (error) => error instanceof FileNotFoundError && error instanceof NotFoundError)
  await assert.rejects(sandbox.files.list('nowhere'), NotFoundError)
  assert.equal(await sandbox.files.makeDir('tree/a/b'), true)
  assert.equal(await sandbox.files.makeDir('tree/a/b'), false)
  await sandbox.files.write([{ path: 'tree/a/1', data: 'one' }, { path: 'tree/a/b/2', data: 'two' }])
  assert.deepEqual((await sandbox.files.list('tree', { depth: 3 })).map((entry) => entry.path).sort(), ['', '/1', '/b', '/b/2'].map((path) => '/home/user/tree/a' + path))
  const moved = await sandbox.files.rename('tree/a/1', 'tree/one')
  assert.deepEqual([moved.path, moved.type, moved.size], ['/home/user/tree/one', FileType.FILE, 3])
  assert.equal(await sandbox.files.exists('tree/a/1'), false)
  assert.equal((await sandbox.files.getInfo('tree')).type, FileType.DIR)
  await sandbox.files.remove('tree')
  assert.equal(await sandbox.files.exists('tree/one'), false)
  await sandbox.files.write('/root/private', 'x', { user: 'root' })
  assert.equal((await sandbox.commands.run('test $(stat -c %u /root/private) = $(id -u) && echo owned', { user: 'root' })).stdout, 'owned\n')
  const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => i % 251)
  await sandbox.files.write('bytes', bytes.buffer)
  assert.deepEqual(await sandbox.files.read('bytes', { format: 'bytes' }), bytes)
  assert.equal((await sandbox.commands.run('wc -c < /home/user/bytes')).stdout.trim(), '100000')
  step('files')

  await sandbox.setTimeout(120_000)
  const again = await Class.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('cat notes/a.txt')).stdout, content)
  step('connect')
}

const options = { metadata: { suite: 'interop' }, envs: { GREETING: 'hello' } }

const core = await Core.create(options)
try {
  await drive(core, Core)
} finally {
  assert.equal(await core.kill(), true)
}
assert.equal(await core.isRunning(), false)
assert.equal(await core.kill(), false)
await assert.rejects(Core.connect(core.sandboxId), NotFoundError)
await assert.rejects(core.commands.run('true'), SandboxNotFoundError)
await assert.rejects(Core.create('no-such-template', options), /no-such-template/)
await assert.rejects(Core.create({ ...options, apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
step('kill')

const sandbox = await Sandbox.create(options)
try {
  await drive(sandbox, Sandbox)
  const output = []
  const first = await sandbox.runCode('import sys\nprint("out")\nprint("err", file=sys.stderr)\nx = 41\nx + 1', {
    onStdout: (message) => output.push(message.line),
  })
  assert.equal(first.error, undefined)
  assert.equal(first.text, '42')
  assert.equal(first.logs.stdout.join(''), 'out\n')
  assert.equal(first.logs.stderr.join(''), 'err\n')
  assert.equal(output.join(''), 'out\n')
  assert.equal((await sandbox.runCode('x')).text, '41')
  const failed = await sandbox.runCode('1/0')
  assert.equal(failed.error.name, 'ZeroDivisionError')
  assert.match(failed.error.traceback, /ZeroDivisionError/)
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError')
  assert.ok((await sandbox.listCodeContexts()).some((one) => one.id === context.id && one.cwd === '/tmp'))
  await sandbox.runCode('y = 1', { context })
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('y', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context)
  assert.ok(!(await sandbox.listCodeContexts()).some((one) => one.id === context.id))
  assert.equal((await sandbox.runCode('import os; os.environ["GREETING"] + os.environ["EXTRA"]', { envs: { EXTRA: '!' } })).text, 'hello!')
  assert.equal((await sandbox.runCode('import os; os.environ.get("EXTRA", "gone")')).text, 'gone')
  await assert.rejects(sandbox.runCode('import time\ntime.sleep(60)', { timeoutMs: 500 }), TimeoutError)
  assert.equal((await sandbox.runCode('x')).text, '41')
  const results = []
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  const picture = `
class Picture:
    def _repr_png_(self):
        import base64
        return base64.b64decode('${png}')
Picture()`
  const drawn = await sandbox.runCode(picture, { onResult: (result) => results.push(result) })
  assert.equal(drawn.results[0].png.trim(), png)
  assert.equal(results.length, 1)
  step('code')
} finally {
  assert.equal(await sandbox.kill(), true)
}
step('done')
