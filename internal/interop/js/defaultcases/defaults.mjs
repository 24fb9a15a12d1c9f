// What a program asks for that leaves everything to the SDK.
import { randomUUID } from 'node:crypto'
import { Sandbox, Template, waitForTimeout } from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'
import { metadata, test } from '../harness.mjs'

test('calls of a sandbox', async () => {
  const sandbox = await Sandbox.create()
  try {
    await sandbox.getInfo()
    await sandbox.getMetrics()
    await Sandbox.list().nextItems()
    await Sandbox.list({ query: { metadata } }).nextItems()
    await sandbox.setTimeout(60_000)
    await sandbox.pause()
    await sandbox.connect()
    await Sandbox.connect(sandbox.sandboxId)
    await sandbox.isRunning()
    await sandbox.updateNetwork({ allowInternetAccess: true })

    await sandbox.files.write('dir/file', 'content')
    await sandbox.files.read('dir/file')
    await sandbox.files.list('dir')
    await sandbox.files.exists('dir/file')
    await sandbox.files.getInfo('dir/file')
    await sandbox.files.rename('dir/file', 'dir/other')
    await sandbox.files.makeDir('watched')
    await (await sandbox.files.watchDir('watched', () => {})).stop()
    await sandbox.files.remove('dir')

    await sandbox.commands.run('true')
    const running = await sandbox.commands.run('cat', { background: true, stdin: true })
    running.wait().catch(() => {})
    await sandbox.commands.list()
    const again = await sandbox.commands.connect(running.pid)
    again.wait().catch(() => {})
    await sandbox.commands.sendStdin(running.pid, 'x')
    await sandbox.commands.closeStdin(running.pid)
    await sandbox.commands.kill(running.pid)

    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
    terminal.wait().catch(() => {})
    await sandbox.pty.resize(terminal.pid, { cols: 81, rows: 25 })
    await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('x'))
    await sandbox.pty.kill(terminal.pid)
  } finally {
    await sandbox.kill()
  }
})

test('calls of the code interpreter', async () => {
  const sandbox = await Interpreter.create()
  try {
    await sandbox.runCode('1')
    const context = await sandbox.createCodeContext()
    await sandbox.listCodeContexts()
    await sandbox.runCode('1', { context })
    await sandbox.restartCodeContext(context)
    await sandbox.removeCodeContext(context)
  } finally {
    await sandbox.kill()
  }
})

test('lifecycles', async () => {
  for (const lifecycle of [{ onTimeout: 'pause' }, { onTimeout: 'pause', autoResume: true }, { onTimeout: 'kill' }]) {
    await (await Sandbox.create({ lifecycle })).kill()
  }
})

test('builds', async () => {
  const name = `defaults-${randomUUID()}`
  const template = Template().fromBaseImage().copy('defaults.mjs', '/srv/').runCmd('true').setStartCmd('sleep 1000', waitForTimeout(1_000))
  const built = await Template.build(template, name)
  await Template.buildInBackground(Template().fromTemplate(name), name)
  await Template.getBuildStatus(built)
  await Template.exists(name)
  await Template.assignTags(name, 'tagged')
  await Template.getTags(name)
  await Template.removeTags(name, 'tagged')
})
