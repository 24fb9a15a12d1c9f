import assert from 'node:assert/strict'
import { Sandbox, SandboxError, SandboxNotFoundError, Template } from 'e2b'
import { envs, rejects, test } from '../harness.mjs'

const create = (...args) => Sandbox.create(...args)

// using runs body with sandboxes that are not like the others.
async function using(promise, body) {
  const made = [await promise].flat()
  try {
    await body(...made)
  } finally {
    await Promise.all(made.map((one) => one.kill()))
  }
}

async function collect(paginator) {
  const all = []
  while (paginator.hasNext) all.push(...(await paginator.nextItems()))
  return all.map((one) => one.snapshotId)
}

test('a snapshot has the files of its moment', async (sandbox) => {
  await sandbox.files.write('text', 'before')
  const counting = await sandbox.commands.run('read line; echo $line', { background: true, stdin: true })
  const snapshot = await sandbox.createSnapshot()
  assert.match(snapshot.snapshotId, /^[a-z0-9]{20}:default$/)
  assert.deepEqual(snapshot.names, [])
  await sandbox.commands.sendStdin(counting.pid, 'line\n')
  assert.equal((await counting.wait()).stdout, 'line\n')
  await sandbox.files.write('text', 'after')
  assert.deepEqual(await collect(sandbox.listSnapshots()), [snapshot.snapshotId])
  await using(create(snapshot.snapshotId, { envs: { MORE: 'yes' } }), async (child) => {
    assert.equal(await child.files.read('text'), 'before')
    assert.equal((await child.commands.run('echo $GREETING $MORE')).stdout, `${envs.GREETING} yes\n`)
    assert.equal((await child.getInfo()).templateId, snapshot.snapshotId.split(':')[0])
    await child.files.write('text', 'mine')
    const error = await rejects(SandboxError, Sandbox.deleteSnapshot(snapshot.snapshotId))
    assert.match(error.message, /running or paused sandboxes use it/)
  })
  assert.equal(await sandbox.files.read('text'), 'after')
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
  await rejects(SandboxError, create(snapshot.snapshotId))
})

test('snapshots have names and tags', async (sandbox) => {
  const name = `job-${sandbox.sandboxId}-${crypto.randomUUID()}`
  await sandbox.files.write('text', '1')
  const first = await sandbox.createSnapshot({ name: `${name}:v1` })
  assert.deepEqual(first, { snapshotId: `local/${name}:v1`, names: [`local/${name}`] })
  await sandbox.files.write('text', '2')
  const second = await sandbox.createSnapshot({ name })
  assert.equal(second.snapshotId, `local/${name}:default`)
  assert.deepEqual(await collect(Sandbox.listSnapshots({ name, limit: 1 })), [second.snapshotId, first.snapshotId])
  assert.deepEqual(await collect(sandbox.listSnapshots({ name: `${name}:v1` })), [first.snapshotId])
  assert.deepEqual(await collect(Sandbox.listSnapshots({ name: 'nothing-has-this-name' })), [])
  const tagged = await Template.assignTags(`${name}:v1`, ['stable', 'old'])
  assert.deepEqual(tagged.tags.sort(), ['old', 'stable'])
  await Template.removeTags(name, 'old')
  assert.deepEqual((await Template.getTags(name)).map((one) => one.tag).sort(), ['default', 'stable', 'v1'])
  assert.equal(await Template.exists(name), true)
  assert.equal(await Template.aliasExists(name), true)
  for (const [reference, text] of [[`${name}:stable`, '1'], [name, '2']]) {
    await using(create(reference), async (child) => assert.equal(await child.files.read('text'), text))
  }
  await rejects(SandboxError, create(`${name}:old`))
  assert.equal(await Sandbox.deleteSnapshot(first.snapshotId), true)
  assert.equal(await Template.exists(name), false)
})

test('forks have the files and go their own way', async (sandbox) => {
  await sandbox.files.write('text', 'before')
  await using(sandbox.fork({ count: 2 }), async (...forks) => {
    assert.equal(forks.length, 2)
    for (const fork of forks) {
      assert.notEqual(fork.sandboxId, sandbox.sandboxId)
      assert.equal(await fork.files.read('text'), 'before')
      assert.equal((await fork.commands.run('echo $GREETING')).stdout, `${envs.GREETING}\n`)
      await fork.files.write('text', fork.sandboxId)
      assert.deepEqual((await fork.getInfo()).metadata, (await sandbox.getInfo()).metadata)
    }
    const [one] = forks
    assert.equal(await one.files.read('text'), one.sandboxId)
    const seconds = ((await one.getInfo()).endAt - Date.now()) / 1000
    assert.ok(seconds > 200 && seconds <= 300, seconds)
  })
  assert.equal(await sandbox.files.read('text'), 'before')
})

test('a paused sandbox is resumed first', async (sandbox) => {
  await sandbox.pause()
  const error = await rejects(SandboxError, sandbox.fork())
  assert.match(error.message, /resume it first/)
  await rejects(SandboxNotFoundError, sandbox.createSnapshot())
  await sandbox.connect()
  await using(sandbox.fork(), async (fork) => assert.equal(await fork.isRunning(), true))
})
