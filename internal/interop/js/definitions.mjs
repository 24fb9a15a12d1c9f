// Prints what the SDK would send for some definitions of templates: an object of their
// names. The argument is the directory that they copy from.
import { Template, waitForFile, waitForPort, waitForProcess, waitForTimeout, waitForURL } from 'e2b'

const fileContextPath = process.argv[2]
const from = () => Template({ fileContextPath, fileIgnorePatterns: ['top/hidden.txt'] })

const definitions = {
  steps: from()
    .fromBaseImage()
    .runCmd('echo one')
    .runCmd(['echo two', 'echo three'], { user: 'root' })
    .setWorkdir('/srv/app')
    .setUser('root')
    .setEnvs({ A: '1', B: 'two $A' })
    .remove('/tmp/a b', { recursive: true, force: true })
    .remove('/tmp/c', { user: 'root' })
    .rename('/tmp/d', '/tmp/e', { force: true })
    .makeDir('/srv/data', { mode: 0o750, user: 'root' })
    .makeDir('/srv/more')
    .makeSymlink('/srv/data', '/srv/link', { force: true })
    .pipInstall(['requests', 'numpy==2.*'])
    .pipInstall(undefined, { g: false })
    .npmInstall(['lodash'], { g: true })
    .npmInstall(['eslint'], { dev: true })
    .npmInstall()
    .bunInstall(['tsx'], { dev: true })
    .aptInstall(['jq', 'curl'], { noInstallRecommends: true })
    .gitClone('https://example.com/a.git', '/srv/a', { branch: 'main', depth: 1 })
    .skipCache()
    .runCmd('echo last')
    .setStartCmd('python3 -m http.server 8000', waitForPort(8000)),
  url: from().fromImage('debian:stable', { username: 'me', password: 'word' }).setReadyCmd(waitForURL('http://localhost:1/?a=b', 204)),
  process: from().fromTemplate('other:v1').setReadyCmd(waitForProcess('sleep')),
  file: from().fromAWSRegistry('one.two/image', { accessKeyId: 'id', secretAccessKey: 'key', region: 'eu' }).setReadyCmd(waitForFile('/tmp/x y')),
  timeout: from().fromGCPRegistry('gcr.io/image', { serviceAccountJSON: 'account.json' }).setReadyCmd(waitForTimeout(2500)),
  files: from()
    .fromBaseImage()
    .copy('a.txt', '/app/')
    .copy('top/*.txt', '/app/', { user: 'user:user', mode: 0o644 })
    .copy('**/*.py', '/app/py')
    .copy('link', '/app/link')
    .copy('link', '/app/followed', { resolveSymlinks: true })
    .copy('run', '/app/run', { mode: 0o755, forceUpload: true, gzip: false }),
  directories: from().fromBaseImage().copy('top', '/app').copy('.', '/all'),
  dockerfile: from().fromDockerfile(
    'FROM e2bdev/base\nEXPOSE 80\nRUN echo hello && \\\necho again\nCOPY a.txt run /app/\nCOPY --chown=user:user top/one.txt /app/\nENV A=1\nARG B=2\nWORKDIR /app\nUSER root\nCMD python3 app.py\n'
  ),
}

const printed = {}
for (const [name, definition] of Object.entries(definitions)) {
  printed[name] = JSON.parse(await Template.toJSON(definition, true))
}
console.log(JSON.stringify(printed))
process.exit()
