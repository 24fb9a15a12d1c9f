import assert from 'node:assert/strict'
import { Sandbox, SandboxError, Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError } from 'e2b'
import { test, rejects } from '../harness.mjs'

// withVolume gives a volume of its own to body, and destroys it afterwards.
async function withVolume(sandbox, body) {
  const volume = await Volume.create(`js-${sandbox.sandboxId}`)
  try {
    await body(volume)
  } finally {
    assert.equal(await Volume.destroy(volume.volumeId), true)
  }
}

test('made, found, listed and destroyed', async (sandbox) => {
  let id
  await withVolume(sandbox, async (volume) => {
    id = volume.volumeId
    assert.ok(volume.token)
    assert.ok((await Volume.list()).some((one) => one.volumeId === id && one.name === volume.name))
    const info = await Volume.getInfo(id)
    assert.deepEqual([info.volumeId, info.name], [id, volume.name])
    const again = await Volume.connect(id)
    await again.writeFile('/a', 'x')
    assert.equal(await volume.readFile('/a'), 'x')
    await rejects(VolumeError, Volume.create(volume.name))
    await rejects(VolumeError, Volume.create('not a name'))
  })
  await rejects(VolumeNotFoundError, Volume.getInfo(id))
  await rejects(VolumeNotFoundError, Volume.connect(id))
  assert.equal(await Volume.destroy(id), false)
})

test('files', (sandbox) =>
  withVolume(sandbox, async (volume) => {
    const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * i) % 251)
    const written = await volume.writeFile('/notes/a b ✓.txt', 'hello', { force: true, mode: 0o640 })
    assert.deepEqual([written.name, written.path, written.type, written.size, written.mode], ['a b ✓.txt', '/notes/a b ✓.txt', 'file', 5, 0o640])
    assert.ok(Math.abs(written.mtime.getTime() - Date.now()) < 60_000)
    assert.equal(await volume.readFile('/notes/a b ✓.txt'), 'hello')
    await rejects(VolumeError, volume.writeFile('/notes/a b ✓.txt', 'again'))
    const kinds = { string: 'text', buffer: bytes.buffer, blob: new Blob([bytes]), stream: new Blob([bytes]).stream(), empty: '' }
    for (const [kind, data] of Object.entries(kinds)) {
      const info = await volume.writeFile(`/${kind}`, data)
      assert.equal(info.size, { string: 4, empty: 0 }[kind] ?? bytes.length, kind)
    }
    assert.deepEqual(await volume.readFile('/buffer', { format: 'bytes' }), bytes)
    assert.equal((await volume.readFile('/blob', { format: 'blob' })).size, bytes.length)
    const chunks = []
    for await (const chunk of await volume.readFile('/stream', { format: 'stream' })) chunks.push(chunk)
    assert.deepEqual(new Uint8Array(Buffer.concat(chunks)), bytes)
    assert.equal(await volume.readFile('/empty'), '')
    await rejects(VolumePathNotFoundError, volume.readFile('/nothing'))
    await rejects(VolumePathNotFoundError, volume.writeFile('/no/where', 'x'))
  }))

test('directories and attributes', (sandbox) =>
  withVolume(sandbox, async (volume) => {
    const dir = await volume.makeDir('/d', { mode: 0o700 })
    assert.deepEqual([dir.type, dir.path, dir.mode], ['directory', '/d', 0o700])
    await rejects(VolumeError, volume.makeDir('/d'))
    await volume.makeDir('/d', { force: true })
    await rejects(VolumePathNotFoundError, volume.makeDir('/e/f'))
    await volume.makeDir('/e/f', { force: true })
    await volume.writeFile('/e/f/g', 'x')
    const paths = async (path, options) => (await volume.list(path, options)).map((one) => one.path)
    assert.deepEqual(await paths('/'), ['/d', '/e'])
    assert.deepEqual(await paths('/', { depth: 3 }), ['/d', '/e', '/e/f', '/e/f/g'])
    await rejects(VolumePathNotFoundError, volume.list('/nothing'))
    assert.equal((await volume.updateMetadata('/e/f/g', { mode: 0o400 })).mode, 0o400)
    assert.equal((await volume.getInfo('/e/f/g')).mode, 0o400)
    await rejects(VolumePathNotFoundError, volume.updateMetadata('/nothing', { mode: 0o400 }))
    assert.equal(await volume.exists('/e'), true)
    await volume.remove('/e')
    assert.equal(await volume.exists('/e'), false)
    await rejects(VolumePathNotFoundError, volume.remove('/e'))
  }))

test('sandboxes share it', (sandbox) =>
  withVolume(sandbox, async (volume) => {
    const sandboxes = []
    try {
      sandboxes.push(await Sandbox.create({ volumeMounts: { '/data': volume } }))
      sandboxes.push(await Sandbox.create({ volumeMounts: { '/home/user/shared': volume.name } }))
      const [a, b] = sandboxes
      assert.deepEqual((await a.getInfo()).volumeMounts, [{ name: volume.name, path: '/data' }])
      await volume.writeFile('/from-outside', 'hello')
      await a.commands.run('cat /data/from-outside >/data/copy && echo more >>/data/copy')
      assert.equal(await b.files.read('/home/user/shared/copy'), 'hellomore\n')
      assert.equal(await volume.readFile('/copy'), 'hellomore\n')
      await rejects(VolumeError, Volume.destroy(volume.volumeId))
      await a.pause()
      await rejects(VolumeError, Volume.destroy(volume.volumeId))
      await b.files.write('/home/user/shared/later', 'x')
      await a.connect()
      assert.equal((await a.commands.run('cat /data/later')).stdout, 'x')
    } finally {
      await Promise.all(sandboxes.map((one) => one.kill()))
    }
    await rejects(SandboxError, Sandbox.create({ volumeMounts: { '/data': 'there-is-none' } }))
  }))
