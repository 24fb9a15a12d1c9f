// Drives one sandbox with the official SDKs, configured by the environment alone.
import assert from 'node:assert/strict'
import { Sandbox as Core, CommandExitError, NotFoundError } from 'e2b'
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
  assert.equal((await sandbox.commands.run('id -un', { user: 'root' })).stdout, 'root\n')
  step('commands')

  const content = 'line\nünïcode ✓\n'
  await sandbox.files.write('notes/a.txt', content)
  assert.equal(await sandbox.files.read('notes/a.txt'), content)
  assert.deepEqual((await sandbox.files.list('notes')).map((entry) => entry.name), ['a.txt'])
  assert.equal(await sandbox.files.exists('notes/b.txt'), false)
  await assert.rejects(sandbox.files.read('notes/b.txt'), NotFoundError)
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
await assert.rejects(Core.connect(core.sandboxId))
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
  await sandbox.removeCodeContext(context)
  step('code')
} finally {
  assert.equal(await sandbox.kill(), true)
}
step('done')
