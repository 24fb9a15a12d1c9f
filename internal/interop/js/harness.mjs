// What all files of cases/ share.
import assert from 'node:assert/strict'
import http from 'node:http'
import https from 'node:https'
import { Sandbox as Core } from 'e2b'

export const metadata = { suite: 'interop' }
export const envs = { GREETING: 'hello' }

// Without an address for all sandboxes, each has a host name of its own.
export const byDomain = !process.env.E2B_SANDBOX_URL
const shared = byDomain ? `https://${process.env.E2B_DOMAIN}` : process.env.E2B_SANDBOX_URL

// patience is the longest time, in milliseconds, that a case waits for something that must come.
export const patience = Number(process.env.PATIENCE) * 1000

export const cases = []

let feature

export function setFeature(name) {
  feature = name
}

// test registers a case: body gets a sandbox of its own, unless it takes none.
export function test(name, body, Sandbox = Core) {
  cases.push({ name: `${feature}/${name}`, Sandbox, body })
}

// together registers a case that gets the one sandbox of all such cases of its file, in
// which they run one after the other: each leaves behind what does not disturb the next.
export function together(name, body, Sandbox = Core) {
  cases.push({ name: `${feature}/${name}`, Sandbox, body, group: feature })
}

// rejects waits for an error of the class, and returns it.
export async function rejects(Class, promise) {
  let error
  await assert.rejects(promise, (thrown) => {
    error = thrown
    return true
  })
  // The class is compared exactly: a parent class would hide a wrong mapping.
  assert.equal(error.constructor, Class, error)
  return error
}

// eventually waits until the condition holds.
export async function eventually(condition, what) {
  const end = Date.now() + patience
  for (;;) {
    const value = await condition()
    if (value) return value
    assert.ok(Date.now() < end, `in vain for ${patience} ms: ${what ?? condition}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

// signalled returns a promise and the function that resolves it.
export function signalled() {
  let resolve
  const promise = new Promise((done) => (resolve = done))
  return { promise, resolve }
}

// request sends a request to the cloud as a client that uses another name for it.
export function request(headers, path = '/') {
  return new Promise((resolve, reject) => {
    const get = byDomain ? https.get : http.get
    get(new URL(path, shared), { headers }, (answer) => {
      let body = ''
      answer.on('data', (data) => (body += data)).on('end', () => resolve({ status: answer.statusCode, body }))
    }).on('error', reject)
  })
}
