import assert from 'node:assert/strict'
import { CommandExitError, SandboxError, NotFoundError, TimeoutError } from 'e2b'
import { test, rejects, eventually } from '../harness.mjs'

const encode = (text) => new TextEncoder().encode(text)

// screen collects what a terminal shows.
function screen() {
  const decoder = new TextDecoder()
  const shown = { text: '', onData: (data) => (shown.text += decoder.decode(data, { stream: true })) }
  return shown
}

test('a shell runs what is typed', async (sandbox) => {
  const shown = screen()
  const terminal = await sandbox.pty.create({ cols: 100, rows: 30, onData: shown.onData, cwd: '/tmp', envs: { MARK: 'mark' } })
  await sandbox.pty.sendInput(terminal.pid, encode('stty size; echo "$MARK-$TERM-$LANG-$GREETING"; pwd; tty; exit 3\n'))
  const error = await rejects(CommandExitError, terminal.wait())
  assert.equal(error.exitCode, 3)
  assert.match(shown.text, /30 100/)
  assert.match(shown.text, /mark-xterm-256color-C\.UTF-8-hello/)
  assert.match(shown.text, /^\/tmp\r$/m)
  assert.match(shown.text, /\/dev\/pts\//)
  assert.equal(error.stdout, '')
})

test('resize reaches the shell', async (sandbox) => {
  const shown = screen()
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: shown.onData, envs: { TERM: 'dumb' } })
  await sandbox.pty.resize(terminal.pid, { cols: 132, rows: 50 })
  await sandbox.pty.sendInput(terminal.pid, encode('stty size; echo term=$TERM; exit\n'))
  assert.equal((await terminal.wait()).exitCode, 0)
  assert.match(shown.text, /50 132/)
  assert.match(shown.text, /term=dumb/)
})

test('control-C interrupts', async (sandbox) => {
  const shown = screen()
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: shown.onData })
  // The process that prints this is already in the foreground.
  await sandbox.pty.sendInput(terminal.pid, encode(`bash -c 'echo re""ady; exec sleep 1234'\n`))
  await eventually(() => shown.text.includes('ready'))
  await sandbox.pty.sendInput(terminal.pid, encode('\x03'))
  await sandbox.pty.sendInput(terminal.pid, encode('echo status=$?; exit 0\n'))
  await terminal.wait()
  assert.match(shown.text, /status=130/)
})

test('connect joins and disconnect leaves', async (sandbox) => {
  const first = screen()
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: first.onData, timeoutMs: 0 })
  await terminal.disconnect()
  const second = screen()
  const again = await sandbox.pty.connect(terminal.pid, { onData: second.onData })
  await sandbox.pty.sendInput(terminal.pid, encode('echo a""gain; exit\n'))
  await again.wait()
  assert.match(second.text, /again/)
  await rejects(NotFoundError, sandbox.pty.connect(999_999, { onData: () => {} }))
})

test('users, kill and timeout', async (sandbox) => {
  const shown = screen()
  const root = await sandbox.pty.create({ cols: 80, rows: 24, onData: shown.onData, user: 'root' })
  await sandbox.pty.sendInput(root.pid, encode('echo I am $(id -un)\n'))
  await eventually(() => shown.text.includes('I am root'))
  assert.ok((await sandbox.commands.list()).some((one) => one.pid === root.pid))
  assert.equal(await sandbox.pty.kill(root.pid), true)
  await rejects(CommandExitError, root.wait())
  assert.equal(await sandbox.pty.kill(root.pid), false)
  const short = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 3000 })
  await rejects(TimeoutError, short.wait())
})

test('a terminal has no stdin of a command', async (sandbox) => {
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
  await rejects(SandboxError, terminal.sendStdin('x'))
  await rejects(SandboxError, terminal.closeStdin())
  await rejects(NotFoundError, sandbox.pty.sendInput(999_999, encode('x')))
  await rejects(NotFoundError, sandbox.pty.resize(999_999, { cols: 1, rows: 1 }))
  assert.equal(await terminal.kill(), true)
})
