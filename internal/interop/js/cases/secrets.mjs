import assert from 'node:assert/strict'
import { ALL_TRAFFIC, Sandbox, Secret, SecretError, SecretNotFoundError } from 'e2b'
import { test, rejects } from '../harness.mjs'

// withSecret gives a secret of its own to body, and destroys it afterwards.
async function withSecret(sandbox, body) {
  const made = await Secret.create(`JS-${sandbox.sandboxId}`, 'sk-never-shown', { metadata: { team: 'a' } })
  try {
    await body(made)
  } finally {
    assert.equal(await Secret.destroy(made.secretId), true)
  }
}

test('made, found, listed, changed and destroyed', async (sandbox) => {
  let id
  await withSecret(sandbox, async (made) => {
    id = made.secretId
    assert.deepEqual([made.name, made.version, made.metadata], [`js-${sandbox.sandboxId}`, 1, { team: 'a' }])
    assert.ok(Math.abs(made.createdAt.getTime() - Date.now()) < 60_000)
    assert.deepEqual(await Secret.getInfo(id), made)
    assert.deepEqual(await Secret.getInfo(made.name.toUpperCase()), made)
    assert.equal(await Secret.exists(made.name), true)
    const listed = []
    for (const pages = Secret.list({ limit: 1 }); pages.hasNext; ) listed.push(...(await pages.nextItems()))
    assert.ok(listed.some((one) => one.secretId === id))
    assert.ok(!JSON.stringify(listed).includes('sk-never-shown'))
    const kept = await Secret.update(made.name, 'sk-2')
    assert.deepEqual([kept.version, kept.metadata], [2, { team: 'a' }])
    const cleared = await Secret.update(id, 'sk-3', { metadata: {} })
    assert.deepEqual([cleared.version, cleared.metadata], [3, {}])
    await assert.rejects(Secret.create(made.name, 'x'), SecretError)
    await assert.rejects(Secret.create('not a name', 'x'))
  })
  await rejects(SecretNotFoundError, Secret.getInfo(id))
  await rejects(SecretNotFoundError, Secret.update(id, 'x'))
  assert.equal(await Secret.exists(id), false)
  assert.equal(await Secret.destroy(id), false)
})

test('rules put them into headers', (outer) =>
  withSecret(outer, async ({ name }) => {
    const headers = { Authorization: `Bearer ${Secret.fill(name)}` }
    const rules = { 'api.invalid': [{ transform: { headers } }] }
    const sandbox = await Sandbox.create({ network: { rules } })
    try {
      // The host does not exist. Who answers is the cloud, which curl trusts.
      const ask = async (host) => (await sandbox.commands.run(`curl -sS -m 20 --noproxy '*' --resolve ${host}:443:203.0.113.9 https://${host}/ 2>&1 || true`)).stdout
      assert.match(await ask('api.invalid'), /the request was not sent to api\.invalid/)
      assert.deepEqual((await sandbox.getInfo()).network.rules, rules)
      if (!sandbox.updateNetwork) return // before there was one
      await sandbox.updateNetwork({ rules: { '*.invalid': [{ transform: { headers: { 'X-Api-Key': Secret.fill(name) } } }] }, denyOut: [ALL_TRAFFIC], allowOut: ['other.test'] })
      assert.match(await ask('below.invalid'), /denied by the sandbox's network rules/)
      await assert.rejects(sandbox.updateNetwork({ rules: { 'api.invalid': [{ transform: { headers: { A: '${e2b.secrets.not-there}' } } }] } }), /not-there/)
    } finally {
      await sandbox.kill()
    }
    await assert.rejects(Sandbox.create({ network: { rules: { '10.0.0.1': [{ transform: { headers } }] } } }), /hosts with a name/)
  })
)
