import assert from 'node:assert/strict'
import { CommandExitError, InvalidArgumentError, AuthenticationError, NotFoundError, TimeoutError } from 'e2b'
import { test as alone, together as test, rejects, eventually } from '../harness.mjs'

test('run returns output and status', async (sandbox) => {
  const result = await sandbox.commands.run('echo "$GREETING"; echo warning >&2; id -un')
  assert.deepEqual([result.exitCode, result.stdout, result.stderr, result.error], [0, 'hello\nuser\n', 'warning\n', undefined])
})

test('run hands output to callbacks as it comes', async (sandbox) => {
  const out = []
  const err = []
  const handle = await sandbox.commands.run('echo one; read x; echo two; echo bad >&2', {
    background: true,
    stdin: true,
    onStdout: (text) => out.push(text),
    onStderr: async (text) => err.push(text),
  })
  await eventually(() => out.join('') === 'one\n')
  assert.equal(handle.stdout, 'one\n')
  assert.equal(handle.exitCode, undefined)
  await handle.sendStdin('\n')
  assert.equal((await handle.wait()).stdout, 'one\ntwo\n')
  assert.deepEqual([out.join(''), err.join('')], ['one\ntwo\n', 'bad\n'])
  assert.deepEqual([handle.exitCode, handle.stdout, handle.stderr, handle.error], [0, 'one\ntwo\n', 'bad\n', undefined])
})

test('a failed command is an error with its result', async (sandbox) => {
  const failed = await rejects(CommandExitError, sandbox.commands.run('echo out; echo err >&2; exit 7'))
  assert.deepEqual([failed.exitCode, failed.stdout, failed.stderr, failed.error], [7, 'out\n', 'err\n', 'exit status 7'])
  const missing = await rejects(CommandExitError, sandbox.commands.run('no-such-program'))
  assert.equal(missing.exitCode, 127)
  assert.match(missing.stderr, /no-such-program/)
  const killed = await rejects(CommandExitError, sandbox.commands.run('kill -KILL $$'))
  assert.deepEqual([killed.exitCode, killed.error], [-1, 'signal: killed'])
})

test('a command ends when it leaves a server that holds its output', async (sandbox) => {
  const result = await sandbox.commands.run('sleep 1234 & echo started')
  assert.deepEqual([result.exitCode, result.stdout, result.stderr, result.error], [0, 'started\n', '', undefined])
})

test('a command that was killed is gone', async (sandbox) => {
  const { pid } = await sandbox.commands.run('sleep 1235', { background: true })
  assert.equal(await sandbox.commands.kill(pid), true)
  assert.deepEqual((await sandbox.commands.list()).filter((one) => one.pid === pid), [])
  assert.equal(await sandbox.commands.kill(pid), false)
})

test('user, cwd and envs', async (sandbox) => {
  const { commands } = sandbox
  assert.equal((await commands.run('id -un; echo $HOME', { user: 'root' })).stdout, 'root\n/root\n')
  assert.equal((await commands.run('id -un; echo $HOME; pwd')).stdout, 'user\n/home/user\n/home/user\n')
  assert.equal((await commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  await sandbox.files.makeDir('work')
  assert.equal((await commands.run('pwd', { cwd: 'work' })).stdout, '/home/user/work\n')
  assert.equal((await commands.run('echo "$GREETING $EXTRA"', { envs: { EXTRA: 'you' } })).stdout, 'hello you\n')
  assert.equal((await commands.run('echo "$GREETING"', { envs: { GREETING: 'other' } })).stdout, 'other\n')
  assert.equal((await commands.run('echo "[$EXTRA]"')).stdout, '[]\n')
  const odd = 'a "b" \'c\' $d\n`e` ✓'
  assert.equal((await commands.run('printf %s "$ODD"', { envs: { ODD: odd } })).stdout, odd)
})

test('an explicit PATH wins', async (sandbox) => {
  const { commands, files } = sandbox
  await files.write('tools/mine', '#!/bin/sh\necho mine\n')
  await commands.run('chmod +x tools/mine')
  const path = '/home/user/tools:' + (await commands.run('printf %s $PATH')).stdout
  assert.equal((await commands.run('mine; printf %s $PATH', { envs: { PATH: path } })).stdout, 'mine\n' + path)
  assert.equal((await commands.run('command -v mine || echo none')).stdout, 'none\n')
})

alone('.bashrc is read', async (sandbox) => {
  const { commands, files } = sandbox
  await files.write('.bashrc', 'export FROM=bashrc\n')
  assert.equal((await commands.run('echo $FROM')).stdout, 'bashrc\n')
  // What the file prints, more than once as on the service, comes before the command; its end is the command's.
  await files.write('.bashrc', 'echo noise\n')
  assert.match((await commands.run('echo done')).stdout, /^(noise\n)+done\n$/)
  await files.write('.bashrc', 'exit 3\n')
  const ended = await rejects(CommandExitError, commands.run('echo done'))
  assert.equal(ended.exitCode, 3)
})

test('a missing directory and an unknown user are refused', async (sandbox) => {
  await rejects(InvalidArgumentError, sandbox.commands.run('true', { cwd: '/no/such/directory' }))
  const error = await rejects(AuthenticationError, sandbox.commands.run('true', { user: 'nobody-knows' }))
  assert.match(error.message, /nobody-knows/)
})

test('the timeout ends the process', async (sandbox) => {
  await rejects(TimeoutError, sandbox.commands.run('sleep 1231', { timeoutMs: 300 }))
  await eventually(async () => !(await sandbox.commands.list()).some((one) => one.args.includes('sleep 1231')))
  const handle = await sandbox.commands.run('sleep 1232', { background: true, timeoutMs: 3000 })
  await rejects(TimeoutError, handle.wait())
  const endless = await sandbox.commands.run('sleep 1233', { background: true, timeoutMs: 0 })
  assert.equal(await endless.kill(), true)
})

test('list tells what was started', async (sandbox) => {
  const handle = await sandbox.commands.run('sleep 1234', { background: true, cwd: '/tmp', envs: { MARK: 'x' } })
  const found = (await sandbox.commands.list()).find((one) => one.pid === handle.pid)
  assert.equal(found.cmd, '/bin/bash')
  assert.deepEqual(found.args, ['-l', '-c', 'sleep 1234'])
  assert.equal(found.envs.MARK, 'x')
  assert.equal(found.cwd, '/tmp')
  assert.equal(found.tag, undefined)
  await handle.kill()
})

test('kill tells whether there was one', async (sandbox) => {
  const first = await sandbox.commands.run('sleep 1234', { background: true })
  assert.equal(await first.kill(), true)
  const error = await rejects(CommandExitError, first.wait())
  assert.deepEqual([error.exitCode, error.error], [-1, 'signal: killed'])
  assert.equal(await first.kill(), false)
  assert.equal(await sandbox.commands.kill(first.pid), false)
  const second = await sandbox.commands.run('sleep 1234', { background: true })
  assert.equal(await sandbox.commands.kill(second.pid), true)
})

test('stdin is sent and closed', async (sandbox) => {
  assert.equal(sandbox.commands.supportsStdinClose, true)
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  await cat.sendStdin('first ✓\n')
  await sandbox.commands.sendStdin(cat.pid, 'second\n')
  await sandbox.commands.sendStdin(cat.pid, new TextEncoder().encode('bytes\n'))
  await cat.closeStdin()
  assert.equal((await cat.wait()).stdout, 'first ✓\nsecond\nbytes\n')
  const counter = await sandbox.commands.run('wc -c', { background: true, stdin: true })
  await counter.sendStdin('x'.repeat(300_000))
  await sandbox.commands.closeStdin(counter.pid)
  assert.equal((await counter.wait()).stdout.trim(), '300000')
  // Without stdin a command reads end of file at once.
  assert.equal((await sandbox.commands.run('cat; echo end')).stdout, 'end\n')
  await rejects(NotFoundError, sandbox.commands.sendStdin(cat.pid, 'late'))
})

test('connect joins a running command', async (sandbox) => {
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  const seen = []
  const joined = await sandbox.commands.connect(cat.pid, { onStdout: (text) => seen.push(text) })
  assert.equal(joined.pid, cat.pid)
  await joined.sendStdin('shared\n')
  await joined.closeStdin()
  assert.equal((await cat.wait()).stdout, 'shared\n')
  assert.equal((await joined.wait()).stdout, 'shared\n')
  assert.equal(seen.join(''), 'shared\n')
  await rejects(NotFoundError, sandbox.commands.connect(999_999))
})

test('the timeout of connect ends the stream, not the process', async (sandbox) => {
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  const joined = await sandbox.commands.connect(cat.pid, { timeoutMs: 3000 })
  await rejects(TimeoutError, joined.wait())
  await cat.sendStdin('alive\n')
  await cat.closeStdin()
  assert.equal((await cat.wait()).stdout, 'alive\n')
})

test('disconnect leaves the process', async (sandbox) => {
  const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
  await handle.disconnect()
  const again = await sandbox.commands.connect(handle.pid)
  await again.sendStdin('still here\n')
  await again.closeStdin()
  assert.equal((await again.wait()).stdout, 'still here\n')
})

test('much output and split characters arrive whole', async (sandbox) => {
  const { stdout } = await sandbox.commands.run(`python3 -c 'print("✓" * 400_000)'`)
  assert.equal(stdout.length, 400_001)
  assert.match(stdout, /^✓+\n$/)
  assert.equal((await sandbox.commands.run(`printf 'a\\377b\\342\\234'`)).stdout, 'a\ufffdb\ufffd')
})

test('many at once', async (sandbox) => {
  const results = await Promise.all(Array.from({ length: 30 }, (_, i) => sandbox.commands.run(`echo ${i}`)))
  assert.deepEqual(results.map((one) => one.stdout), Array.from({ length: 30 }, (_, i) => `${i}\n`))
})

test('a signal aborts the request', async (sandbox) => {
  const controller = new AbortController()
  const handle = await sandbox.commands.run('sleep 1235', { background: true, signal: controller.signal })
  controller.abort()
  await assert.rejects(handle.wait())
  const aborted = AbortSignal.abort()
  await assert.rejects(sandbox.commands.run('touch /tmp/started', { signal: aborted }))
  await assert.rejects(sandbox.commands.list({ signal: aborted }))
  assert.equal(await sandbox.files.exists('/tmp/started'), false)
})
