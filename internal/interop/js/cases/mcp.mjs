import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { Sandbox, SandboxError, Template } from 'e2b'
import { byDomain, rejects, request, test } from '../harness.mjs'

// The template mcp-gateway has a stand-in for the program, of testdata.

test('a sandbox with MCP servers', async () => {
  const sandbox = await Sandbox.create({ mcp: { exa: { apiKey: "it's a secret" }, 'github/owner/repo': { runCmd: 'npm start' } } })
  try {
    const token = await sandbox.getMcpToken()
    assert.match(token, /^[0-9a-f-]{36}$/)
    const other = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await other.getMcpToken(), token) // of the file
    const Host = sandbox.getHost(50005)
    assert.equal(sandbox.getMcpUrl(), `https://${Host}/mcp`)
    const Authorization = `Bearer ${token}`
    const names = '["exa", "github/owner/repo"]'
    assert.deepEqual(await request({ Host, Authorization }, '/mcp'), { status: 200, body: names })
    assert.equal((await request({ Host }, '/mcp')).status, 401)
    if (byDomain) assert.equal(await (await fetch(sandbox.getMcpUrl(), { headers: { Authorization } })).text(), names)
  } finally {
    await sandbox.kill()
  }
})

test('MCP servers that do not start', async () => {
  const metadata = { which: randomUUID() }
  const error = await rejects(SandboxError, Sandbox.create({ mcp: { broken: {} }, metadata }))
  assert.match(error.message, /no server is broken/)
  assert.deepEqual(await Sandbox.list({ query: { metadata } }).nextItems(), [])
})

test('MCP servers in a template without their program', async () => {
  const error = await rejects(SandboxError, Sandbox.create('base', { mcp: { exa: {} } }))
  assert.match(error.message, /Failed to start MCP gateway: .*mcp-gateway: command not found/)
})

test('a template with MCP servers', async () => {
  const name = `servers-${randomUUID()}`
  await Template.build(Template().fromTemplate('mcp-gateway').addMcpServer(['exa', 'brave']), name)
  const sandbox = await Sandbox.create(name, { mcp: { brave: {} } })
  try {
    assert.equal((await sandbox.commands.run('cat /etc/mcp-gateway/pulled')).stdout, 'exa\nbrave\n')
  } finally {
    await sandbox.kill()
  }
})
