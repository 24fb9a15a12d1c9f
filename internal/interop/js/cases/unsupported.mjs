import assert from 'node:assert/strict'
import { Template } from 'e2b'
import { test } from '../harness.mjs'

// The local cloud refuses, by name, what it does not have.
const refused = (what, promise) => assert.rejects(promise, (error) => new RegExp(`not supported by this local cloud: .*${what}`).test(error.message) || assert.fail(error))

test('building templates from other images', async () => {
  await refused("the image 'debian:stable'", Template.build(Template().fromDebianImage(), 'mine', { cpuCount: 1, memoryMB: 512 }))
})
