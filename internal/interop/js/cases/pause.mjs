import assert from 'node:assert/strict'
import * as sdk from 'e2b'
import { Sandbox, SandboxNotFoundError, TimeoutError } from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'
import { byDomain, envs, eventually, metadata, rejects, request, signalled, test } from '../harness.mjs'

const interprets = (name, body) => test(name, body, Interpreter)

// The newest SDK can do without the memory that a pause kept. Nothing that it
// exports says so but an error class that came with it.
const newest = 'ServiceBusyError' in sdk

const stateOf = async (sandbox) => (await sandbox.getInfo()).state
const secondsLeft = async (sandbox) => ((await sandbox.getInfo()).endAt - Date.now()) / 1000

// timesOut lets the sandbox's time pause it, without sending it traffic.
async function timesOut(sandbox) {
  await sandbox.setTimeout(1000)
  await eventually(async () => (await stateOf(sandbox)) === 'paused', 'a pause')
  await sandbox.pause() // it is paused only once the pause that has begun ends
}

// notRunning expects the errors of calls to a sandbox that does not run.
const notRunning = (promise) => assert.rejects(promise, (error) => error instanceof TimeoutError || error instanceof SandboxNotFoundError || assert.fail(error))

// using runs body with a sandbox that is not like the others.
async function using(promise, body) {
  const sandbox = await promise
  try {
    await body(sandbox)
  } finally {
    await sandbox.kill()
  }
}

interprets('a pause keeps processes, variables and files', async (sandbox) => {
  await sandbox.files.write('kept', 'here')
  await sandbox.runCode('x = 41')
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  await sandbox.runCode('y = 1', { context })
  const counting = await sandbox.commands.run('n=0; while read line; do n=$((n + 1)); echo $line $n; done', { background: true, stdin: true })
  counting.wait().catch(() => {})
  await sandbox.commands.sendStdin(counting.pid, 'line\n')
  let again
  for (let i = 0; i < 2; i++) {
    assert.equal(await sandbox.pause(), true)
    again = await Interpreter.connect(sandbox.sandboxId)
    assert.equal(again.sandboxId, sandbox.sandboxId)
  }
  assert.equal(await again.files.read('kept'), 'here')
  assert.equal((await again.runCode('x + 1')).text, '42')
  assert.ok((await again.listCodeContexts()).some((one) => one.id === context.id && one.cwd === '/tmp'))
  assert.equal((await again.runCode('y + 1', { context })).text, '2')
  assert.ok((await again.commands.list()).some((one) => one.pid === counting.pid))
  const rejoined = await again.commands.connect(counting.pid)
  await again.commands.sendStdin(counting.pid, 'line\n')
  await again.commands.closeStdin(counting.pid)
  assert.match((await rejoined.wait()).stdout, /line 2\n$/)
  // The handle from before the pause goes on, too.
  assert.equal((await sandbox.runCode('x')).text, '41')
})

test('pausing twice, and what is gone', async (sandbox) => {
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false)
  assert.equal(await Sandbox.pause(sandbox.sandboxId), false)
  await sandbox.connect()
  assert.equal(await sandbox.isRunning(), true)
  assert.equal(await Sandbox.pause(sandbox.sandboxId, { keepMemory: true }), true)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
  assert.equal(await sandbox.kill(), false)
  for (const call of [() => sandbox.pause(), () => sandbox.connect(), () => sandbox.getInfo()]) await rejects(SandboxNotFoundError, call())
})

test('the older name', async (sandbox) => {
  assert.equal(await sandbox.betaPause(), true)
  assert.equal((await Sandbox.getInfo(sandbox.sandboxId)).state, 'paused')
})

test('a paused sandbox is known and does not answer', async (sandbox) => {
  const { state, endAt, sandboxDomain, ...running } = await sandbox.getInfo()
  assert.equal(await sandbox.pause(), true)
  const { state: paused, endAt: pausedAt, sandboxDomain: none, ...info } = await sandbox.getInfo()
  assert.deepEqual([state, paused, info, none], ['running', 'paused', running, undefined])
  assert.ok(pausedAt < endAt && pausedAt >= running.startedAt && pausedAt <= Date.now() + 1000, pausedAt)
  assert.equal(await sandbox.isRunning(), false)
  await rejects(SandboxNotFoundError, sandbox.setTimeout(60_000))
  await rejects(SandboxNotFoundError, sandbox.updateNetwork({ allowInternetAccess: true }))
  for (const call of [
    () => sandbox.commands.run('true'),
    () => sandbox.commands.list(),
    () => sandbox.files.read('.bashrc'),
    () => sandbox.files.write('x', 'y'),
    () => sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} }),
  ]) {
    await notRunning(call())
  }
  assert.equal(await stateOf(sandbox), 'paused')
})

test('a resume starts a new time', async (sandbox) => {
  const first = await sandbox.getInfo()
  await sandbox.pause()
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 900_000 })
  const info = await again.getInfo()
  assert.ok(info.startedAt > first.startedAt)
  assert.deepEqual([info.state, info.metadata], ['running', metadata])
  assert.ok((await secondsLeft(again)) > 800 && (await secondsLeft(again)) <= 901)
  await again.pause()
  await again.connect({ timeoutMs: 60_000 })
  assert.ok((await secondsLeft(again)) <= 61)
})

test('two that connect at once find one sandbox', async (sandbox) => {
  await sandbox.files.write('kept', 'here')
  await sandbox.pause()
  const both = await Promise.all([Sandbox.connect(sandbox.sandboxId), Sandbox.connect(sandbox.sandboxId)])
  assert.deepEqual(await Promise.all(both.map((one) => one.files.read('kept'))), ['here', 'here'])
})

test('paused ones are listed by their state', async (sandbox) => {
  const mine = { ...metadata, of: sandbox.sandboxId }
  const made = []
  for (let i = 0; i < 3; i++) made.push(await Sandbox.create({ metadata: mine }))
  try {
    const [first, second, third] = made.map((one) => one.sandboxId)
    await Promise.all(made.slice(1).map((one) => one.pause()))
    const listed = async (state, limit) => {
      const pages = []
      const paginator = Sandbox.list({ query: { metadata: mine, ...(state && { state }) }, limit })
      while (paginator.hasNext) pages.push((await paginator.nextItems()).map((one) => [one.sandboxId, one.state]))
      return pages.filter((page) => page.length > 0)
    }
    const newest = [[third, 'paused'], [second, 'paused'], [first, 'running']]
    assert.deepEqual(await listed(['paused'], 1), [newest.slice(0, 1), newest.slice(1, 2)])
    assert.deepEqual(await listed(['running']), [newest.slice(2)])
    assert.deepEqual(await listed(['running', 'paused'], 2), [newest.slice(0, 2), newest.slice(2)])
    assert.deepEqual(await listed(), [newest])
    await made[1].connect()
    assert.deepEqual(await listed(['paused']), [newest.slice(0, 1)])
  } finally {
    await Promise.all(made.map((one) => one.kill()))
  }
})

interprets('traffic resumes what its time paused', async () => {
  const lifecycle = { onTimeout: 'pause', autoResume: true }
  await using(Interpreter.create({ timeoutMs: 60_000, lifecycle, envs }), async (sandbox) => {
    assert.deepEqual((await sandbox.getInfo()).lifecycle, lifecycle)
    await sandbox.runCode('x = 41')
    const context = await sandbox.createCodeContext()
    await sandbox.files.write('kept', 'here')
    await timesOut(sandbox)
    assert.equal((await sandbox.runCode('x + 1')).text, '42')
    // The new time is that of the creation, but not less than five minutes.
    assert.ok((await secondsLeft(sandbox)) > 200 && (await secondsLeft(sandbox)) <= 301)
    assert.ok((await sandbox.listCodeContexts()).some((one) => one.id === context.id))
    await timesOut(sandbox)
    assert.equal(await sandbox.files.read('kept'), 'here')
    await timesOut(sandbox)
    assert.equal((await sandbox.commands.run('echo $GREETING')).stdout, 'hello\n')
    assert.deepEqual((await sandbox.getInfo()).lifecycle, lifecycle)
    // It is the same for a pause that was asked for.
    await sandbox.pause()
    assert.equal((await sandbox.runCode('x')).text, '41')
  })
})

test('a request to a port resumes', async () => {
  await using(Sandbox.create({ lifecycle: { onTimeout: 'pause', autoResume: true } }), async (sandbox) => {
    const Host = sandbox.getHost(3000)
    await sandbox.files.write('www/index.html', 'served\n')
    const server = await sandbox.commands.run('exec python3 -m http.server -d www 3000', { background: true })
    server.wait().catch(() => {})
    await eventually(async () => (await request({ Host })).status === 200)
    await timesOut(sandbox)
    const answer = await request({ Host })
    assert.deepEqual([answer.status, answer.body], [200, 'served\n'])
    if (byDomain) {
      await timesOut(sandbox)
      assert.equal(await (await fetch(`https://${Host}`)).text(), 'served\n')
    }
    assert.equal(await stateOf(sandbox), 'running')
  })
})

test('without auto-resume, connect resumes', async () => {
  await using(Sandbox.create({ lifecycle: { onTimeout: 'pause' } }), async (sandbox) => {
    assert.deepEqual((await sandbox.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
    const sleeping = await sandbox.commands.run('sleep 4321', { background: true })
    sleeping.wait().catch(() => {})
    await timesOut(sandbox)
    await notRunning(sandbox.commands.run('true'))
    assert.equal((await request({ Host: sandbox.getHost(3000) })).status, 502)
    assert.equal(await stateOf(sandbox), 'paused')
    await Sandbox.connect(sandbox.sandboxId)
    assert.ok((await sandbox.commands.list()).some((one) => one.pid === sleeping.pid))
  })
})

// described tells what of the work of writtenAndRunning is there, with owners: root's
// files are the user's where the machine gives sandboxes one id only.
async function described(sandbox) {
  const command = "stat -c '%U %a' /opt/kept; cat /opt/kept; readlink link; echo $GREETING"
  return (await sandbox.commands.run(command, { user: 'root', cwd: '/home/user' })).stdout
}

async function writtenAndRunning(sandbox) {
  await sandbox.files.write('kept', 'here')
  await sandbox.commands.run(`umask 077; echo "root's" >/opt/kept; ln -s kept link`, { user: 'root', cwd: '/home/user' })
  await sandbox.runCode('x = 41')
  const sleeping = await sandbox.commands.run('sleep 4321', { background: true })
  sleeping.wait().catch(() => {})
  const was = await described(sandbox)
  assert.match(was, / 600\nroot's\nkept\nhello\n$/)
  return was
}

// onlyFilesAreLeft expects what writtenAndRunning did to be there, processes aside.
async function onlyFilesAreLeft(sandbox, was) {
  assert.equal(await sandbox.files.read('kept'), 'here')
  assert.equal(await described(sandbox), was)
  assert.equal((await sandbox.runCode('x')).error.name, 'NameError')
  assert.equal((await sandbox.runCode("open('/home/user/kept').read()")).text, 'here')
  assert.ok(!(await sandbox.commands.list()).some((one) => one.args.join(' ').includes('4321')))
}

interprets('a pause of the files ends processes', async (sandbox) => {
  const was = await writtenAndRunning(sandbox)
  assert.equal(await sandbox.pause({ keepMemory: false }), true)
  assert.equal(await sandbox.pause(), false)
  const again = await Interpreter.connect(sandbox.sandboxId)
  assert.equal(again.sandboxId, sandbox.sandboxId)
  await onlyFilesAreLeft(again, was)
  // Its token is the same: what was made before the pause goes on.
  assert.equal((await sandbox.commands.run('echo again')).stdout, 'again\n')
  // What was written since is kept by the next one, with what there was.
  await again.files.write('second', 'too')
  assert.equal(await again.pause({ keepMemory: false }), true)
  await again.connect()
  assert.equal(await again.files.read('second'), 'too')
  await onlyFilesAreLeft(again, was)
})

interprets('a timeout may keep files alone', async () => {
  await using(Interpreter.create({ lifecycle: { onTimeout: { action: 'pause', keepMemory: false } }, envs }), async (sandbox) => {
    const was = await writtenAndRunning(sandbox)
    await timesOut(sandbox)
    await notRunning(sandbox.commands.run('true'))
    await sandbox.connect()
    await onlyFilesAreLeft(sandbox, was)
  })
})

test('traffic does not resume what has no memory', async () => {
  await using(Sandbox.create({ lifecycle: { onTimeout: 'pause', autoResume: true } }), async (sandbox) => {
    await sandbox.files.write('kept', 'here')
    assert.equal(await sandbox.pause({ keepMemory: false }), true)
    await notRunning(sandbox.files.read('kept'))
    assert.equal(await stateOf(sandbox), 'paused')
    await sandbox.connect()
    assert.equal(await sandbox.files.read('kept'), 'here')
  })
})

interprets('a resume may forget the memory', async (sandbox) => {
  if (!newest) return
  const was = await writtenAndRunning(sandbox)
  await sandbox.pause()
  const again = await Interpreter.connect(sandbox.sandboxId, { onResume: 'reboot' })
  assert.equal(again.sandboxId, sandbox.sandboxId)
  await onlyFilesAreLeft(again, was)
  // One that runs is left alone.
  await again.runCode('z = 1')
  await again.connect({ onResume: 'reboot' })
  assert.equal((await again.runCode('z')).text, '1')
})

test('a pause cuts what streams', async (sandbox) => {
  const running = await sandbox.commands.run('sleep 4321', { background: true })
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('remembered=yes\n'))
  await sandbox.files.makeDir('watched')
  const ended = []
  await sandbox.files.watchDir('watched', () => {}, { onExit: (error) => ended.push(error) })
  const cut = [notRunning(running.wait()), notRunning(terminal.wait())]
  assert.equal(await sandbox.pause(), true)
  await Promise.all(cut)
  await eventually(() => ended.length > 0, 'the end of the watch')
  await notRunning(Promise.reject(ended[0]))
  await sandbox.connect()
  // The processes live on, and are joined again.
  const pids = (await sandbox.commands.list()).map((one) => one.pid)
  assert.ok(pids.includes(running.pid) && pids.includes(terminal.pid), pids)
  assert.equal(await (await sandbox.commands.connect(running.pid)).kill(), true)
  let shown = ''
  const again = await sandbox.pty.connect(terminal.pid, { onData: (data) => (shown += new TextDecoder().decode(data)) })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo remem=$remembered; exit\n'))
  await again.wait()
  assert.match(shown, /remem=yes/)
})

interprets('a pause interrupts code that runs', async (sandbox) => {
  await sandbox.runCode('x = 41')
  const started = signalled()
  const code = 'import time\nprint("started", flush=True)\ntime.sleep(600)\nx = 0'
  const cut = notRunning(sandbox.runCode(code, { onStdout: started.resolve }))
  await started.promise
  assert.equal(await sandbox.pause(), true)
  await cut
  // As after any client that goes away, the variables are there, and the kernel is free.
  await sandbox.connect()
  assert.equal((await sandbox.runCode('x + 1')).text, '42')
})
