import assert from 'node:assert/strict'
import { ALL_TRAFFIC, Sandbox } from 'e2b'
import { test } from '../harness.mjs'

// refusal requests a page from inside and returns why the cloud refused, if it did;
// any other outcome depends on the machine.
async function refusal(sandbox, host) {
  const { stdout } = await sandbox.commands.run(`curl -sS -m 20 http://${host} 2>&1 || true`)
  return /(denied by the sandbox's network rules|internet access is off)/.exec(stdout)?.[0]
}

const rules = { allowOut: ['*.example.com'], denyOut: [ALL_TRAFFIC] }

test('rules of the network bind a sandbox', async () => {
  const sandbox = await Sandbox.create({ network: rules })
  try {
    assert.equal(await refusal(sandbox, 'example.org'), "denied by the sandbox's network rules")
    assert.equal(await refusal(sandbox, 'www.example.com'), undefined)
    const { network } = await sandbox.getInfo()
    assert.deepEqual([network.allowOut, network.denyOut], [rules.allowOut, rules.denyOut])
    if (!sandbox.updateNetwork) return // before there was one
    await sandbox.updateNetwork({ denyOut: [ALL_TRAFFIC] })
    assert.equal(await refusal(sandbox, 'www.example.com'), "denied by the sandbox's network rules")
    await sandbox.updateNetwork({})
    assert.equal(await refusal(sandbox, 'example.org'), undefined)
  } finally {
    await sandbox.kill()
  }
})

test('internet access may be off', async () => {
  const sandbox = await Sandbox.create({ allowInternetAccess: false })
  try {
    assert.equal(await refusal(sandbox, 'example.org'), 'internet access is off')
    assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
  } finally {
    await sandbox.kill()
  }
})

test('a sandbox may be without an access token', async () => {
  const sandbox = await Sandbox.create({ secure: false })
  try {
    await sandbox.files.write('a', 'content')
    assert.equal((await sandbox.commands.run('cat a')).stdout, 'content')
    const answer = await fetch(await sandbox.downloadUrl('a'), { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' } })
    assert.deepEqual([answer.status, await answer.text()], [200, 'content'])
  } finally {
    await sandbox.kill()
  }
})
