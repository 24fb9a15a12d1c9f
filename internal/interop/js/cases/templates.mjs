import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtemp, mkdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { BuildError, Sandbox, Template, waitForFile, waitForPort, waitForTimeout } from 'e2b'
import { rejects, test } from '../harness.mjs'

// All clients share one cloud, and what one of them built is cached for all.
const unique = (name) => `${name}-${randomUUID()}`

// context calls body with a directory to copy from.
async function context(files, body) {
  const dir = await mkdtemp(path.join(tmpdir(), 'interop-'))
  try {
    for (const [name, text] of Object.entries(files)) {
      await mkdir(path.dirname(path.join(dir, name)), { recursive: true })
      if (text.startsWith('-> ')) await symlink(text.slice(3), path.join(dir, name))
      else await writeFile(path.join(dir, name), text)
    }
    await body(dir)
  } finally {
    await rm(dir, { recursive: true })
  }
}

// prints returns what a command prints in a sandbox of a template.
async function prints(template, command) {
  const sandbox = await Sandbox.create(template)
  try {
    return (await sandbox.commands.run(command)).stdout
  } finally {
    await sandbox.kill()
  }
}

test('a template with every step', async () => {
  const files = { 'app/main.sh': 'echo main $GREETING\n', 'app/sub/data': 'data\n', 'app/.new': unique(''), 'app/no.log': 'no\n', 'app/link': '-> main.sh', 'one.txt': 'one\n', 'two.txt': 'two\n', '.dockerignore': '# logs\n**/*.log\n' }
  await context(files, async (fileContextPath) => {
    const name = unique('every')
    const log = []
    const template = Template({ fileContextPath })
      .fromBaseImage()
      .setUser('root')
      .makeDir('/srv/app', { mode: 0o755 })
      .setWorkdir('/srv/app')
      .copy('app', '.')
      .copy('*.txt', 'texts/', { user: 'user', mode: 0o640 })
      .copyItems([{ src: 'one.txt', dest: '/srv/renamed' }])
      .setEnvs({ GREETING: 'hello' })
      .runCmd(['echo "$GREETING there" > said', 'touch gone'])
      .rename('said', 'kept')
      .makeSymlink('/srv/app/kept', '/srv/app/again')
      .remove('gone', { force: true })
      .runCmd('chown -R user /srv')
      .setUser('user')
      .setStartCmd('exec python3 -m http.server 8123', waitForPort(8123))
    const onBuildLogs = (entry) => log.push(`${entry.level} ${entry.message}`)
    const built = await Template.build(template, `${name}:v1`, { tags: ['stable'], cpuCount: 2, memoryMB: 512, onBuildLogs })
    assert.deepEqual([built.name, built.alias, built.tags.toSorted()], [`${name}:v1`, `${name}:v1`, ['stable', 'v1']])
    assert.match(built.templateId, /^[a-z0-9]{20}$/)
    assert.match(built.buildId, /^[0-9a-f-]{36}$/)
    for (const wanted of ['debug Build started', "info Uploaded 'app'", 'debug Build finished']) assert.ok(log.includes(wanted), log.join('\n'))
    assert.ok(log.some((line) => line.includes('RUN echo "$GREETING there" > said && touch gone')), log.join('\n'))
    const command = "pwd; whoami; ls; cat sub/data again texts/two.txt /srv/renamed; sh link; stat -c '%a %U' texts/one.txt; curl -s localhost:8123/kept"
    assert.equal(
      await prints(`${name}:stable`, command),
      '/srv/app\nuser\nagain\nkept\nlink\nmain.sh\nsub\ntexts\ndata\nhello there\ntwo\none\nmain hello\n640 user\nhello there\n'
    )

    // Again: nothing is sent or run.
    log.length = 0
    await Template.build(template, `${name}:v2`, { onBuildLogs })
    assert.ok(log.some((line) => line === "info Skipping upload of 'app', already cached"), log.join('\n'))
    assert.ok(log.some((line) => /CACHED .*RUN/.test(line)), log.join('\n'))
    const tags = await Template.getTags(name)
    assert.deepEqual(tags.map((one) => one.tag).toSorted(), ['stable', 'v1', 'v2'])

    // A template of a template.
    const child = unique('child')
    await Template.build(Template().fromTemplate(`${name}:v1`).runCmd('echo child >> sub/data'), child)
    assert.equal(await prints(child, 'pwd; cat sub/data; echo $GREETING; curl -s localhost:8123/kept'), '/srv/app\ndata\nchild\nhello\nhello there\n')
    assert.ok(await Template.exists(child))
    const sandbox = await Sandbox.create(child)
    try {
      assert.equal((await sandbox.getInfo()).name, child)
    } finally {
      await sandbox.kill()
    }
  })
})

test('a template with packages and a repository', async () => {
  // What installs packages is replaced by what says how it was called.
  const tools = `mkdir -p /srv/tools && cd /srv/tools && for tool in pip npm bun apt-get; do
printf '#!/bin/sh\\necho %s "$@" as $(whoami) >> /tmp/called\\n' $tool > $tool && chmod +x $tool; done
echo 'PATH=/srv/tools:$PATH' > /etc/profile.d/zz-tools.sh && touch /tmp/called && chmod 666 /tmp/called`
  const repository = 'git init -q -b main r && cd r && echo text > file && git add . && git -c user.name=a -c user.email=a@b.c commit -qm first'
  const name = unique('packages')
  const template = Template()
    .fromImage('e2bdev/base:latest')
    .runCmd(tools, { user: 'root' })
    .pipInstall(['one', 'two'])
    .npmInstall('three', { g: true })
    .bunInstall('four')
    .aptInstall('five')
    .runCmd(repository)
    .gitClone('file:///home/user/r', 'cloned', { branch: 'main' })
  await Template.build(template, name)
  const called = 'pip install one two as root\nnpm install -g three as root\nbun install four as user\napt-get update as root\napt-get install -y five as root\n'
  assert.equal(await prints(name, 'cat /tmp/called cloned/file'), called + 'text\n')
})

test('a template without a cache', async () => {
  const name = unique('anew')
  const log = []
  const onBuildLogs = (entry) => log.push(entry.message)
  const define = () => Template().fromBaseImage().runCmd('echo one').runCmd(`echo ${name}`).skipCache().runCmd('cat /proc/sys/kernel/random/uuid > id')
  await Template.build(define(), name)
  const first = await prints(name, 'cat id')
  await Template.build(define(), name, { onBuildLogs })
  assert.ok(log.some((line) => /CACHED .*RUN echo anew/.test(line)), log.join('\n'))
  assert.notEqual(await prints(name, 'cat id'), first)
  log.length = 0
  await Template.build(define(), name, { onBuildLogs, skipCache: true })
  assert.ok(!log.some((line) => line.includes('CACHED')), log.join('\n'))
})

test('a template that fails', async () => {
  const name = unique('fails')
  const log = []
  const template = Template().fromBaseImage().runCmd('true').runCmd('echo the reason >&2; exit 3')
  const error = await rejects(BuildError, Template.build(template, name, { onBuildLogs: (entry) => log.push(entry.message) }))
  assert.match(error.message, /exit 3.*: exit status 3/)
  assert.match(error.stack, /templates\.mjs/) // where the step was defined
  assert.ok(log.includes('the reason'), log.join('\n'))
  await rejects(BuildError, Template.build(Template().fromTemplate(unique('nowhere')), unique('orphan')))
  await rejects(BuildError, Template.build(Template().fromBaseImage().setStartCmd('exit 7', waitForFile('/nowhere')), unique('start')))
  assert.equal(await Template.exists(unique('never')), false)
})

test('a template of a Dockerfile', async () => {
  const dockerfile = 'FROM e2bdev/base:latest\nENV NAME=value\nCOPY one.txt /srv/copied\nRUN echo built by $(whoami) > /srv/by && chmod -R a+rX /srv\nWORKDIR /srv\nUSER user\nCMD sleep 1000\n'
  await context({ 'one.txt': 'one\n' }, async (fileContextPath) => {
    const name = unique('docker')
    await Template.build(Template({ fileContextPath }).fromDockerfile(dockerfile).setReadyCmd('true'), name)
    assert.equal(await prints(name, 'pwd; whoami; cat copied by; echo $NAME; until pgrep sleep >/dev/null; do :; done; pgrep -c sleep'), '/srv\nuser\none\nbuilt by root\nvalue\n1\n')
  })
})

test('a build in the background', async () => {
  const info = await Template.buildInBackground(Template().fromBaseImage().runCmd(`echo ${unique('slow')}; sleep 0.5; echo done`), unique('background'))
  let status
  const log = []
  do {
    status = await Template.getBuildStatus(info, { logsOffset: log.length })
    log.push(...status.logEntries.map((entry) => entry.message))
  } while (status.status === 'building' || status.status === 'waiting')
  assert.equal(status.status, 'ready')
  assert.ok(log.includes('done'), log.join('\n'))
  const all = (await Template.getBuildStatus(info)).logEntries
  assert.ok(all.length >= log.length)
})

// The documentation's first template, as it stands there but for its name.
test('the quickstart', async () => {
  const template = Template()
    .fromBaseImage()
    .setEnvs({
      HELLO: 'Hello, World!',
    })
    .setStartCmd('echo $HELLO', waitForTimeout(5_000))
  const alias = unique('template-tag-dev')
  await Template.build(template, {
    alias,
    cpuCount: 1,
    memoryMB: 1024,
    onBuildLogs: (logEntry) => logEntry.toString(),
  })
  const sandbox = await Sandbox.create(alias)
  try {
    assert.equal((await sandbox.commands.run('echo $HELLO')).stdout, 'Hello, World!\n')
  } finally {
    await sandbox.kill()
  }
})

// The images are those of a mirror, and have nothing but a shell and their name.
test('templates from images', async () => {
  const images = {
    'library/debian:stable': (t) => t.fromDebianImage(),
    'library/ubuntu:latest': (t) => t.fromUbuntuImage(),
    'library/python:3': (t) => t.fromPythonImage(),
    'library/node:lts': (t) => t.fromNodeImage(),
    'oven/bun:latest': (t) => t.fromBunImage(),
    'library/python:3.10': (t) => t.fromImage('python:3.10'),
    'library/alpine:3.24': (t) => t.fromAlpineImage && t.fromAlpineImage(),
    'library/fedora:44': (t) => t.fromFedoraImage && t.fromFedoraImage(),
    'library/archlinux:latest': (t) => t.fromArchImage && t.fromArchImage(),
  }
  for (const [image, from] of Object.entries(images)) {
    const begun = from(Template())
    if (begun === undefined) continue // an older SDK
    const name = unique('image')
    await Template.build(begun.runCmd('cat /name > /tmp/said; echo $FROM >> /tmp/said'), name, { cpuCount: 1, memoryMB: 512 })
    assert.equal(await prints(name, 'cat /tmp/said; id -u -n'), `${image}\n${image}\nuser\n`)
  }
})

test('a template of a Dockerfile from an image', async () => {
  await context({ 'main.sh': 'echo $GREETING from $(cat /name)\n' }, async (fileContextPath) => {
    const name = unique('dockerfile')
    const template = Template({ fileContextPath }).fromDockerfile('FROM python:3.10\nWORKDIR /app\nCOPY main.sh /app/\nENV GREETING=hello\nRUN sh main.sh > said\n')
    await Template.build(template, name, { cpuCount: 1, memoryMB: 512 })
    assert.equal(await prints(name, 'cat /app/said'), 'hello from library/python:3.10\n')
  })
})
