import assert from 'node:assert/strict'
import { Sandbox, SandboxNotFoundError } from 'e2b'
import { test, rejects } from '../harness.mjs'

test('metrics', async (sandbox) => {
  const { startedAt } = await sandbox.getInfo()
  const [first] = await sandbox.getMetrics()
  assert.ok(first.timestamp instanceof Date && first.timestamp > startedAt - 1000 && first.timestamp <= Date.now(), JSON.stringify(first))
  assert.ok(first.cpuCount > 0 && first.cpuUsedPct >= 0 && first.cpuUsedPct <= 100, JSON.stringify(first))
  assert.ok(first.memUsed > 0 && first.memUsed < first.memTotal, JSON.stringify(first))
  assert.ok(first.diskUsed <= first.diskTotal && first.diskTotal > 0, JSON.stringify(first))
  const now = new Date()
  assert.deepEqual((await Sandbox.getMetrics(sandbox.sandboxId))[0], first)
  assert.equal((await sandbox.getMetrics({ start: new Date(first.timestamp - 1000), end: now })).length > 0, true)
  assert.deepEqual(await sandbox.getMetrics({ start: new Date(0), end: new Date(first.timestamp - 5000) }), [])
})

test('metrics of a paused sandbox, and of none', async (sandbox) => {
  const before = await sandbox.getMetrics()
  await sandbox.pause()
  assert.deepEqual((await Sandbox.getMetrics(sandbox.sandboxId))[0], before[0])
  await rejects(SandboxNotFoundError, Sandbox.getMetrics('inosuchsandbox'))
})
