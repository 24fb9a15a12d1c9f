import assert from 'node:assert/strict'
import { AuthenticationError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } from 'e2b'
import { test, rejects, eventually, metadata } from '../harness.mjs'

test('information', async (sandbox) => {
  const info = await sandbox.getInfo()
  assert.deepEqual([info.sandboxId, info.state, info.metadata, info.name], [sandbox.sandboxId, 'running', metadata, 'base'])
  assert.match(info.envdVersion, /^\d+\.\d+\.\d+$/)
  assert.ok(info.cpuCount > 0 && info.memoryMB > 0)
  assert.ok(info.endAt > info.startedAt)
  assert.deepEqual(await Sandbox.getInfo(sandbox.sandboxId), info)
  assert.deepEqual(await Sandbox.getFullInfo(sandbox.sandboxId), info)
  assert.equal(await sandbox.isRunning(), true)
})

test('list pages through what a filter leaves', async (sandbox) => {
  const mine = { ...metadata, of: sandbox.sandboxId, odd: 'a=b&c d' }
  const made = await Promise.all([1, 2, 3].map(() => Sandbox.create({ metadata: mine })))
  try {
    const collect = async (options) => {
      const pages = []
      const paginator = Sandbox.list({ query: { metadata: mine }, ...options })
      while (paginator.hasNext) pages.push(await paginator.nextItems())
      return pages
    }
    const ids = made.map((one) => one.sandboxId).sort()
    const all = (pages) => pages.flat().map((one) => one.sandboxId)
    assert.deepEqual(all(await collect({})).sort(), ids)
    const paged = await collect({ limit: 2 })
    assert.deepEqual(paged.filter((page) => page.length > 0).map((page) => page.length), [2, 1])
    assert.deepEqual(all(paged).sort(), ids)
    assert.deepEqual(paged[0][0].metadata, mine)
    assert.deepEqual(all(await collect({ query: { metadata: { ...mine, of: 'other' } } })), [])
    assert.deepEqual(all(await collect({ query: { metadata: mine, state: ['paused'] } })), [])
    assert.deepEqual(all(await collect({ query: { metadata: mine, state: ['running', 'paused'] } })).sort(), ids)
    const newest = all(await collect({}))
    assert.deepEqual(all(await collect({ query: { metadata: mine, template: 'base' }, order: 'asc' })), newest.reverse())
    assert.deepEqual(all(await collect({ query: { metadata: mine, template: 'code-interpreter-v1' } })), [])
    assert.deepEqual(all(await collect({ query: { metadata: mine, startedAfter: new Date(Date.now() + 60_000) } })), [])
    const done = Sandbox.list({ query: { metadata: mine } })
    while (done.hasNext) await done.nextItems()
    await assert.rejects(done.nextItems())
  } finally {
    await Promise.all(made.map((one) => one.kill()))
  }
})

test('connect finds the same sandbox', async (sandbox) => {
  await sandbox.files.write('kept', 'here')
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(again.sandboxId, sandbox.sandboxId)
  assert.equal(await again.files.read('kept'), 'here')
  assert.equal(await (await sandbox.connect()).files.read('kept'), 'here')
})

test('the timeout is set, and connecting does not shorten it', async (sandbox) => {
  const left = async () => (await sandbox.getInfo()).endAt.getTime() - Date.now()
  await sandbox.setTimeout(600_000)
  assert.ok(Math.abs((await left()) - 600_000) < 60_000)
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
  assert.ok((await left()) > 500_000)
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1_200_000 })
  assert.ok((await left()) > 1_000_000)
  await Sandbox.setTimeout(sandbox.sandboxId, 60_000)
  assert.ok((await left()) <= 61_000)
})

test('a sandbox ends at its time', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 1000 })
  await eventually(async () => !(await sandbox.isRunning()))
  await rejects(SandboxNotFoundError, sandbox.getInfo())
})

test('after kill everything says so', async () => {
  const sandbox = await Sandbox.create({ metadata })
  const running = await sandbox.commands.run('sleep 1234', { background: true })
  const ended = assert.rejects(running.wait())
  assert.equal(await sandbox.kill(), true)
  await ended
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await sandbox.kill(), false)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  await rejects(SandboxNotFoundError, Sandbox.connect(sandbox.sandboxId))
  await rejects(SandboxNotFoundError, sandbox.getInfo())
  await rejects(SandboxNotFoundError, sandbox.setTimeout(60_000))
  for (const call of [
    () => sandbox.commands.run('true'),
    () => sandbox.commands.list(),
    () => sandbox.files.list('.'),
    () => sandbox.files.read('x'),
    () => sandbox.files.write('x', 'y'),
    () => sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} }),
  ]) {
    await assert.rejects(call(), (error) => error instanceof TimeoutError || error instanceof SandboxNotFoundError, String(call))
  }
})

test('create refuses what it cannot make', async () => {
  assert.match((await rejects(SandboxError, Sandbox.create('no-such-template'))).message, /no-such-template/)
  await rejects(AuthenticationError, Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }))
  await assert.rejects(Sandbox.create({ timeoutMs: 100 * 24 * 3600 * 1000 }), SandboxError)
})

test('environment and template are those asked for', async () => {
  const sandbox = await Sandbox.create('code-interpreter-v1', { envs: { ONE: '1', SPACED: 'a b' }, timeoutMs: 120_000 })
  try {
    const { stdout } = await sandbox.commands.run('echo "$ONE,$SPACED,$E2B_SANDBOX,$E2B_SANDBOX_ID,$E2B_TEMPLATE_ID"')
    const { templateId, name } = await sandbox.getInfo()
    assert.equal(stdout, `1,a b,true,${sandbox.sandboxId},${templateId}\n`)
    assert.equal(name, 'code-interpreter-v1')
  } finally {
    await sandbox.kill()
  }
})

test('a request has its own timeout', async (sandbox) => {
  await assert.rejects(sandbox.getInfo({ signal: AbortSignal.abort() }))
  await assert.rejects(sandbox.isRunning({ signal: AbortSignal.abort() }))
  assert.equal((await sandbox.commands.run('echo ok', { requestTimeoutMs: 0, timeoutMs: 0 })).stdout, 'ok\n')
})
