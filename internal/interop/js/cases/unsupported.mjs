import assert from 'node:assert/strict'
import { Template } from 'e2b'
import { test } from '../harness.mjs'

// The local cloud refuses, by name, what it does not have.
const refused = (what, promise) => assert.rejects(promise, (error) => new RegExp(`not supported by this local cloud: .*${what}`).test(error.message) || assert.fail(error))

test('building templates with the logins of other services', async () => {
  const login = { accessKeyId: 'id', secretAccessKey: 'key', region: 'eu' }
  await refused('fromImageRegistry of type aws: use type registry', Template.build(Template().fromAWSRegistry('one.two/image', login), 'mine', { cpuCount: 1, memoryMB: 512 }))
})
