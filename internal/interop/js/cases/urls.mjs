import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'
import { byDomain, request, test, eventually } from '../harness.mjs'

function form(content, name = 'any') {
  const body = new FormData()
  body.append('file', new Blob([content]), name)
  return body
}

test('a download URL is enough', async (sandbox) => {
  await sandbox.files.write('dir/a b+ü✓', 'content')
  for (const options of [{}, { useSignatureExpiration: 60 }, { user: 'user' }]) {
    const answer = await fetch(await sandbox.downloadUrl('dir/a b+ü✓', options))
    assert.deepEqual([answer.status, await answer.text()], [200, 'content'])
  }
  assert.equal((await fetch(await sandbox.downloadUrl('/home/user/nothing'))).status, 404)
})

test('an upload URL is enough', async (sandbox) => {
  for (const [i, options] of [{}, { useSignatureExpiration: 60 }, { user: 'root' }].entries()) {
    const answer = await fetch(await sandbox.uploadUrl(`/tmp/uploaded ${i}`, options), { method: 'POST', body: form(`content ${i}`) })
    assert.equal(answer.status, 200, await answer.text())
    assert.equal(await sandbox.files.read(`/tmp/uploaded ${i}`), `content ${i}`)
  }
  assert.equal((await sandbox.files.getInfo('/tmp/uploaded 2')).owner, 'root')
  // Without a path the file's name is the path.
  const answer = await fetch(await sandbox.uploadUrl(), { method: 'POST', body: form('named', 'by-name') })
  assert.equal(answer.status, 200, await answer.text())
  assert.equal(await sandbox.files.read('by-name'), 'named')
})

test('a URL is for one file, one use and its time', async (sandbox) => {
  await sandbox.files.write('a', 'content')
  await sandbox.files.write('b', 'content')
  const url = await sandbox.downloadUrl('a')
  assert.equal((await fetch(url)).status, 200)
  const changed = [url.replace('path=a', 'path=b'), url.replace(/signature=[^&]*/, 'signature=v1_x')]
  // At the shared address, only the signature of a URL says which sandbox it is for.
  const refused = byDomain ? 401 : 502
  for (const one of changed) assert.equal((await fetch(one)).status, refused)
  assert.equal((await fetch(url, { method: 'POST', body: form('x') })).status, refused)
  const Host = sandbox.getHost(49983)
  assert.equal((await request({ Host }, url)).status, 200)
  for (const one of changed) {
    const { status, body } = await request({ Host }, one)
    assert.deepEqual([status, JSON.parse(body)], [401, { code: 401, message: 'invalid signature' }])
  }
  const late = await fetch(await sandbox.downloadUrl('a', { useSignatureExpiration: -10 }))
  assert.deepEqual([late.status, await late.json()], [401, { code: 401, message: 'signature is already expired' }])
})

test('a port is reached by its host name', async (sandbox) => {
  const server = await sandbox.commands.run('mkdir www && cd www && echo served >index.html && exec python3 -m http.server 3000', { background: true })
  const host = sandbox.getHost(3000)
  assert.equal(host, `3000-${sandbox.sandboxId}.${process.env.E2B_DOMAIN}`)
  const answer = await eventually(async () => {
    const one = await request({ Host: host })
    return one.status === 200 && one
  })
  assert.equal(answer.body, 'served\n')
  assert.equal((await request({ 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '3000' })).body, 'served\n')
  if (byDomain) assert.equal(await (await fetch(`https://${host}`)).text(), 'served\n')
  await server.kill()
  const closed = await request({ Host: sandbox.getHost(3001) })
  assert.deepEqual([closed.status, JSON.parse(closed.body)], [502, { sandboxId: sandbox.sandboxId, message: 'The sandbox is running but port is not open', port: 3001, code: 502 }])
  assert.equal(sandbox.getMcpUrl(), `https://${sandbox.getHost(50005)}/mcp`)
})

test('a sandbox without public traffic asks for its token', async () => {
  const sandbox = await Sandbox.create({ network: { allowPublicTraffic: false } })
  try {
    assert.ok(sandbox.trafficAccessToken)
    const Host = sandbox.getHost(3000)
    assert.equal((await request({ Host })).status, 403)
    assert.equal((await request({ Host, 'e2b-traffic-access-token': 'wrong' })).status, 403)
    assert.equal((await request({ Host, 'e2b-traffic-access-token': sandbox.trafficAccessToken })).status, 502)
    assert.equal((await sandbox.commands.run('echo own token')).stdout, 'own token\n')
  } finally {
    await sandbox.kill()
  }
})
