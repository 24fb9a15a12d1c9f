// Runs every case of the folder that it is given with the SDK in node_modules, configured by
// the environment alone, and prints a line of JSON at the start and the end of
// each. LEFT_OUT, a list in JSON, names cases that do not run; commands/ names all of that file.
// AT_ONCE is how many run at once, PATIENCE how many seconds one waits for what must come.
import { readdir } from 'node:fs/promises'
import { inspect } from 'node:util'
import { cases, metadata, envs, setFeature } from './harness.mjs'

const atOnce = Number(process.env.AT_ONCE ?? 8)

const folder = new URL(`${process.argv[2]}/`, import.meta.url)
for (const file of (await readdir(folder)).sort()) {
  setFeature(file.replace('.mjs', ''))
  await import(new URL(file, folder))
}

const report = (line) => console.log(JSON.stringify(line))

// run runs cases one after the other, with one sandbox if they take one.
async function run(group) {
  let sandbox
  for (const { name, Sandbox, body } of group) {
    const began = performance.now()
    report({ started: name })
    let error
    try {
      if (body.length > 0) sandbox ??= await Sandbox.create({ metadata, envs })
      try {
        await body(sandbox)
      } finally {
        if (name === group.at(-1).name) await sandbox?.kill()
      }
    } catch (thrown) {
      error = inspect(thrown)
    }
    report({ ended: name, seconds: (performance.now() - began) / 1000, error })
  }
}

const leftOut = JSON.parse(process.env.LEFT_OUT ?? '[]')
const means = (left, name) => left === name || (left.endsWith('/') && name.startsWith(left))
const unknown = leftOut.filter((left) => !cases.some((one) => means(left, one.name)))
if (unknown.length) throw new Error(`no such cases are there to leave out: ${unknown.join(', ')}`)
const groups = new Map()
for (const one of cases.filter((one) => !leftOut.some((left) => means(left, one.name)))) {
  const key = one.group ?? one.name
  groups.set(key, [...(groups.get(key) ?? []), one])
}
const waiting = groups.values()
async function work() {
  for (const group of waiting) await run(group)
}
await Promise.all(Array.from({ length: atOnce }, work))
// The SDKs leave timers behind that would keep this process for a minute.
process.exit()
