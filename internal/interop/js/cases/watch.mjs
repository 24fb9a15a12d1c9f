import assert from 'node:assert/strict'
import { FileNotFoundError, FilesystemEventType, InvalidArgumentError, TimeoutError } from 'e2b'
import { test, rejects, eventually, signalled } from '../harness.mjs'

const { CHMOD, CREATE, REMOVE, RENAME, WRITE } = FilesystemEventType

test('each change is an event', async ({ files, commands }) => {
  await files.makeDir('watched')
  const events = []
  const handle = await files.watchDir('watched', (event) => events.push(event))
  const seen = (type, name) => eventually(() => events.some((one) => one.type === type && one.name === name), `${type} of ${name}`)
  await files.write('watched/new', 'x')
  await seen(WRITE, 'new')
  assert.deepEqual(events.map((one) => one.type), [CREATE, CHMOD, WRITE])
  assert.equal(events[0].entry, undefined)
  await files.write('watched/new', 'y')
  await eventually(() => events.filter((one) => one.type === WRITE).length > 1)
  await commands.run('chmod 600 watched/new')
  await eventually(() => events.filter((one) => one.type === CHMOD).length > 1)
  await files.rename('watched/new', 'watched/renamed')
  await seen(RENAME, 'new')
  await seen(CREATE, 'renamed')
  await files.remove('watched/renamed')
  await seen(REMOVE, 'renamed')
  await files.makeDir('watched/sub')
  await seen(CREATE, 'sub')
  await files.write('watched/sub/deep', 'x')
  await files.write('watched/last', 'x')
  await seen(WRITE, 'last')
  assert.ok(!events.some((one) => one.name.includes('deep')))
  await handle.stop()
})

test('recursively, with what changed', async ({ files }) => {
  await files.makeDir('watched/a')
  const events = []
  const handle = await files.watchDir('watched', async (event) => void events.push(event), { recursive: true, includeEntry: true })
  await files.write('watched/a/old', 'four')
  const written = await eventually(() => events.find((one) => one.type === WRITE && one.name === 'a/old' && one.entry?.size === 4))
  assert.deepEqual([written.entry.path, written.entry.type], ['/home/user/watched/a/old', 'file'])
  await files.makeDir('watched/b/c')
  await eventually(() => events.some((one) => one.type === CREATE && one.name === 'b'))
  // A new directory is watched only after a moment; a file created later is seen.
  let count = 0
  await eventually(async () => {
    await files.write(`watched/b/c/file${count++}`, 'x')
    return events.some((one) => one.name.startsWith('b/c/file'))
  })
  await handle.stop()
})

test('stop ends it and calls onExit once', async ({ files }) => {
  await files.makeDir('watched')
  const events = []
  const exits = []
  const exited = signalled()
  const handle = await files.watchDir('watched', (event) => events.push(event), {
    timeoutMs: 0,
    onExit: (error) => {
      exits.push(error)
      exited.resolve()
    },
  })
  await files.write('watched/1', 'x')
  await eventually(() => events.length > 2)
  await handle.stop()
  await exited.promise
  const count = events.length
  await files.write('watched/2', 'x')
  assert.equal((await files.list('watched')).length, 2)
  assert.deepEqual([events.length, exits.length], [count, 1])
})

test('the timeout ends it with an error', async ({ files }) => {
  const exited = signalled()
  await files.watchDir('.', () => {}, { timeoutMs: 3000, onExit: exited.resolve })
  assert.equal((await exited.promise).constructor, TimeoutError)
})

test('only a directory can be watched', async ({ files }) => {
  await rejects(FileNotFoundError, files.watchDir('nowhere', () => {}))
  await files.write('file', 'x')
  await rejects(InvalidArgumentError, files.watchDir('file', () => {}))
  const handle = await files.watchDir('/tmp', () => {}, { allowNetworkMounts: true, user: 'root' })
  await handle.stop()
})
