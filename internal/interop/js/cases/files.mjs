import assert from 'node:assert/strict'
import { gzipSync } from 'node:zlib'
import { AuthenticationError, FileNotFoundError, FileType, InvalidArgumentError, NotFoundError, SandboxError } from 'e2b'
import { patience, together as test, rejects } from '../harness.mjs'

const text = 'line\nünïcode ✓\n'
const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * i) % 251)
const home = '/home/user/'

test('every format reads what was written', async ({ files }) => {
  const written = await files.write('notes/a.txt', text)
  assert.deepEqual([written.name, written.type, written.path], ['a.txt', FileType.FILE, home + 'notes/a.txt'])
  assert.equal(await files.read('notes/a.txt'), text)
  assert.equal(await files.read('notes/a.txt', { format: 'text', gzip: true }), text)
  await files.write('b', bytes.buffer)
  for (const gzip of [false, true]) {
    assert.deepEqual(await files.read('b', { format: 'bytes', gzip }), bytes)
    assert.deepEqual(new Uint8Array(await (await files.read('b', { format: 'blob', gzip })).arrayBuffer()), bytes)
    const chunks = []
    for await (const chunk of await files.read('b', { format: 'stream', gzip, streamIdleTimeoutMs: patience })) chunks.push(chunk)
    assert.deepEqual(new Uint8Array(Buffer.concat(chunks)), bytes)
  }
})

test('every kind of data is written, in every encoding', async ({ files }) => {
  const stream = () => new Blob([bytes]).stream()
  for (const options of [{}, { useOctetStream: true }, { useOctetStream: false }, { gzip: true }]) {
    const kinds = { string: text, buffer: bytes.buffer, blob: new Blob([bytes]), stream: stream() }
    for (const [kind, data] of Object.entries(kinds)) {
      const info = await files.write(`kinds/${kind}`, data, options)
      assert.deepEqual([info.name, info.path, info.type], [kind, `${home}kinds/${kind}`, FileType.FILE])
      const read = await files.read(`kinds/${kind}`, { format: 'bytes' })
      assert.deepEqual(read, kind === 'string' ? new TextEncoder().encode(text) : bytes, `${kind} with ${JSON.stringify(options)}`)
    }
  }
})

test('an empty file', async ({ files }) => {
  for (const options of [{}, { useOctetStream: true }, { gzip: true }]) {
    await files.write('empty', '', options)
    assert.equal(await files.read('empty'), '')
    assert.equal((await files.read('empty', { format: 'bytes' })).length, 0)
    assert.equal((await files.read('empty', { format: 'blob' })).size, 0)
    assert.equal((await files.getInfo('empty')).size, 0)
  }
})

test('many files in one request or in several', async ({ files }) => {
  const entries = [
    { path: 'many/1', data: 'one' },
    { path: 'many/sub/2', data: bytes.buffer },
    { path: '/tmp/many 3 ✓', data: new Blob(['three']) },
  ]
  for (const write of [(o) => files.write(entries, o), (o) => files.writeFiles(entries, o)]) {
    for (const options of [{}, { useOctetStream: true }, { gzip: true }]) {
      const written = await write(options)
      assert.deepEqual(written.map((one) => one.path), [home + 'many/1', home + 'many/sub/2', '/tmp/many 3 ✓'])
    }
  }
  assert.equal(await files.read('many/1'), 'one')
  assert.deepEqual(await files.read('many/sub/2', { format: 'bytes' }), bytes)
  assert.equal(await files.read('/tmp/many 3 ✓'), 'three')
  assert.deepEqual(await files.writeFiles([]), [])
})

test('names with anything in them', async ({ files, commands }) => {
  await files.makeDir('odd')
  for (const name of ['a b', 'ü✓', 'q"uote', "a'b", 'per%20cent', 'plus+', 'semi;colon', 'back\\slash', 'amp&ersand', '#hash?', '-dash']) {
    for (const useOctetStream of [false, true]) {
      const info = await files.write(`odd/${name}`, name, { useOctetStream })
      assert.deepEqual([info.name, info.path], [name, `${home}odd/${name}`])
      assert.equal(await files.read(`odd/${name}`), name)
      await files.remove(`odd/${name}`)
    }
  }
  assert.deepEqual(await files.list('odd'), [])
  await commands.run(`touch odd/$'new\\nline'`)
  assert.deepEqual((await files.list('odd')).map((one) => one.name), ['new\nline'])
})

test('metadata comes back', async ({ files }) => {
  const metadata = { author: 'someone', 'Content-Kind': 'note 1' }
  const want = { author: 'someone', 'content-kind': 'note 1' }
  for (const options of [{}, { useOctetStream: true }]) {
    const written = await files.write('with', 'x', { metadata, ...options })
    assert.deepEqual(written.metadata, want)
    assert.deepEqual((await files.getInfo('with')).metadata, want)
    assert.deepEqual((await files.list('.')).find((one) => one.name === 'with').metadata, want)
  }
  assert.deepEqual((await files.rename('with', 'moved')).metadata, want)
  await rejects(InvalidArgumentError, files.write('bad', 'x', { metadata: { 'no spaces': 'x' } }))
  await rejects(InvalidArgumentError, files.write('bad', 'x', { metadata: { key: 'ü' } }))
})

test('list has a depth', async ({ files, commands }) => {
  await commands.run('mkdir -p tree/a/b/c && echo 1 >tree/1 && echo 2 >tree/a/b/2 && ln -s ../1 tree/a/link && ln -s nowhere tree/broken')
  const paths = async (options) => (await files.list('tree', options)).map((one) => one.path.replace(home + 'tree/', '')).sort()
  assert.deepEqual(await paths(), ['1', 'a'])
  assert.deepEqual(await paths({ depth: 1 }), ['1', 'a'])
  assert.deepEqual(await paths({ depth: 2 }), ['1', 'a', 'a/b', 'a/link'])
  assert.deepEqual(await paths({ depth: 9 }), ['1', 'a', 'a/b', 'a/b/2', 'a/b/c', 'a/link'])
  await rejects(InvalidArgumentError, files.list('tree', { depth: 0 }))
  await rejects(FileNotFoundError, files.list('nowhere'))
  await rejects(InvalidArgumentError, files.list('tree/1'))
})

test('information about a file, a directory and a link', async ({ files, commands }) => {
  const before = Date.now()
  await commands.run('echo hello >f && chmod 640 f && mkdir dir && chmod 751 dir && ln -s f link')
  const file = await files.getInfo('f')
  assert.deepEqual(
    [file.name, file.path, file.type, file.size, file.mode, file.permissions, file.owner, file.group],
    ['f', home + 'f', FileType.FILE, 6, 0o640, '-rw-r-----', 'user', 'user'],
  )
  assert.equal(file.symlinkTarget, undefined)
  assert.ok(file.modifiedTime > before - 1000 && file.modifiedTime <= Date.now())
  const directory = await files.getInfo('dir')
  assert.deepEqual([directory.type, directory.permissions], [FileType.DIR, 'drwxr-x--x'])
  const link = await files.getInfo('link')
  assert.equal(link.symlinkTarget, home + 'f')
  await rejects(FileNotFoundError, files.getInfo('nothing'))
})

test('exists, make, move and remove', async ({ files }) => {
  assert.equal(await files.exists('d'), false)
  assert.equal(await files.makeDir('d/e'), true)
  assert.equal(await files.makeDir('d/e'), false)
  assert.equal(await files.exists('d'), true)
  await files.write('d/e/f', 'content')
  const moved = await files.rename('d/e/f', 'd/g')
  assert.deepEqual([moved.name, moved.path, moved.type, moved.size], ['g', home + 'd/g', FileType.FILE, 7])
  assert.equal(await files.exists('d/e/f'), false)
  const directory = await files.rename('d', 'other')
  assert.deepEqual([directory.path, directory.type], [home + 'other', FileType.DIR])
  assert.equal(await files.read('other/g'), 'content')
  await files.remove('other')
  assert.equal(await files.exists('other/g'), false)
  await files.remove('other') // removing a file that does not exist is no error
  await rejects(FileNotFoundError, files.rename('nothing', 'x'))
  await rejects(InvalidArgumentError, files.makeDir('/etc/passwd'))
})

test('a file is overwritten and belongs to its user', async ({ files, commands }) => {
  await files.write('f', 'a long first content')
  await files.write('f', 'short')
  assert.equal(await files.read('f'), 'short')
  assert.equal((await files.getInfo('f')).owner, 'user')
  await files.write('relative', 'x', { user: 'root' })
  assert.equal((await commands.run('stat -c "%U %n" /root/relative', { user: 'root' })).stdout, 'root /root/relative\n')
  assert.equal(await files.read('relative', { user: 'root' }), 'x')
  assert.equal(await files.exists('relative', { user: 'root' }), true)
  assert.equal(await files.makeDir('made', { user: 'root' }), true)
  assert.equal((await files.getInfo('/root/made')).owner, 'root')
  assert.deepEqual((await files.list('made', { user: 'root' })), [])
  assert.equal((await files.rename('relative', 'renamed', { user: 'root' })).path, '/root/renamed')
  await files.remove('renamed', { user: 'root' })
})

test('what cannot be read or written is an error of its class', async ({ files }) => {
  const missing = await rejects(FileNotFoundError, files.read('nothing'))
  assert.ok(missing instanceof NotFoundError)
  assert.match(missing.message, /nothing/)
  await rejects(FileNotFoundError, files.read('nothing', { format: 'stream' }))
  await rejects(InvalidArgumentError, files.read('/tmp'))
  await rejects(InvalidArgumentError, files.write('/tmp', 'x'))
  await rejects(AuthenticationError, files.read('x', { user: 'nobody-knows' }))
  await rejects(AuthenticationError, files.list('x', { user: 'nobody-knows' }))
  await files.write('file', 'x')
  await assert.rejects(files.write('file/below', 'x'), SandboxError)
})

test('a signal aborts a transfer', async ({ files }) => {
  const signal = AbortSignal.abort()
  await assert.rejects(files.write('aborted', 'x', { signal }))
  await assert.rejects(files.read('/etc/passwd', { signal }))
  await assert.rejects(files.getInfo('/etc/passwd', { signal }))
  assert.equal(await files.exists('aborted'), false)
})

test('what was compressed before stays as it is', async ({ files }) => {
  const packed = new Uint8Array(gzipSync(bytes))
  await files.write('packed.gz', new Blob([packed]))
  for (const gzip of [false, true]) assert.deepEqual(await files.read('packed.gz', { format: 'bytes', gzip }), packed)
})
