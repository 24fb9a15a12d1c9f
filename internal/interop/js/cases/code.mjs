import assert from 'node:assert/strict'
import { InvalidArgumentError, NotFoundError, SandboxError, TimeoutError } from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'
import { rejects, test as registered, together as registeredTogether } from '../harness.mjs'

const test = (name, body) => registered(name, body, Sandbox)
const together = (name, body) => registeredTogether(name, body, Sandbox)

test('output, value and state', async (sandbox) => {
  const out = []
  const err = []
  const results = []
  const execution = await sandbox.runCode('import sys\nprint("out")\nprint("err", file=sys.stderr)\nx = 41\nx + 1', {
    onStdout: (message) => out.push(message.line),
    onStderr: (message) => err.push(message.line),
    onResult: (result) => results.push(result),
  })
  assert.deepEqual([execution.error, execution.text, execution.executionCount], [undefined, '42', 1])
  assert.deepEqual(execution.logs, { stdout: ['out\n'], stderr: ['err\n'] })
  assert.deepEqual([out.join(''), err.join(''), results.length, results[0].isMainResult], ['out\n', 'err\n', 1, true])
  const second = await sandbox.runCode('x', { language: 'python' })
  assert.deepEqual([second.text, second.executionCount], ['41', 2])
  assert.equal((await sandbox.runCode("'ü✓'")).text, 'ü✓')
  assert.equal((await sandbox.runCode('!pwd')).logs.stdout.join(''), '/home/user\n')
  assert.equal((await sandbox.runCode('    y = 1\n    y + 1')).text, '2')
})

together('an exception is part of the execution', async (sandbox) => {
  const errors = []
  const { error } = await sandbox.runCode('1/0', { onError: (one) => errors.push(one) })
  assert.deepEqual([error.name, error.value], ['ZeroDivisionError', 'division by zero'])
  assert.match(error.traceback, /ZeroDivisionError/)
  assert.equal(errors.length, 1)
})

test('contexts are apart', async (sandbox) => {
  const context = await sandbox.createCodeContext({ cwd: '/tmp', language: 'python' })
  assert.deepEqual([context.cwd, context.language], ['/tmp', 'python'])
  assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  await sandbox.runCode('x = 1')
  assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError')
  assert.ok((await sandbox.listCodeContexts()).some((one) => one.id === context.id && one.cwd === '/tmp'))
  await sandbox.runCode('y = 1', { context })
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('y', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context.id)
  assert.ok(!(await sandbox.listCodeContexts()).some((one) => one.id === context.id))
  await rejects(NotFoundError, sandbox.runCode('1', { context }))
  await rejects(InvalidArgumentError, sandbox.runCode('1', { context, language: 'python' }))
})

together('variables of the sandbox and of a call', async (sandbox) => {
  const code = 'import os; os.environ["GREETING"] + os.environ.get("EXTRA", "-")'
  assert.equal((await sandbox.runCode(code, { envs: { EXTRA: '!' } })).text, 'hello!')
  assert.equal((await sandbox.runCode(code, { envs: { GREETING: 'other' } })).text, 'other-')
  assert.equal((await sandbox.runCode(code)).text, 'hello-')
})

test('the timeout interrupts and keeps the state', async (sandbox) => {
  await sandbox.runCode('x = 41')
  await rejects(TimeoutError, sandbox.runCode('import time\ntime.sleep(60)', { timeoutMs: 300 }))
  assert.equal((await sandbox.runCode('x')).text, '41')
})

test('contexts are listed in order and named by id', async (sandbox) => {
  const first = await sandbox.createCodeContext()
  assert.deepEqual([first.cwd, first.language], ['/home/user', 'python'])
  const second = await sandbox.createCodeContext({ cwd: '/' })
  const listed = await sandbox.listCodeContexts()
  assert.deepEqual(listed.slice(-2).map((one) => one.id), [first.id, second.id])
  await sandbox.runCode('x = 1', { context: second })
  await rejects(TimeoutError, sandbox.runCode('while True: pass', { context: second, timeoutMs: 300 }))
  assert.equal((await sandbox.runCode('x', { context: second })).text, '1')
  await sandbox.restartCodeContext(second.id)
  assert.equal((await sandbox.runCode('x', { context: second })).error.value, "name 'x' is not defined")
  await sandbox.removeCodeContext(second.id)
  await rejects(NotFoundError, sandbox.restartCodeContext(second.id))
  await rejects(NotFoundError, sandbox.removeCodeContext(second.id))
})

test('one context runs one call at a time, several run at once', async (sandbox) => {
  const alone = 'import time\nassert not globals().get("running")\nrunning = True\ntime.sleep(0.01)\nrunning = False'
  const executions = await Promise.all(Array.from({ length: 8 }, () => sandbox.runCode(alone)))
  assert.deepEqual(executions.map((one) => one.error), Array(8).fill(undefined))
  assert.deepEqual(executions.map((one) => one.executionCount).sort(), [1, 2, 3, 4, 5, 6, 7, 8])
  const context = await sandbox.createCodeContext()
  const waiting = sandbox.runCode('import os\nwhile not os.path.exists("/tmp/go"): pass\n"went"')
  await sandbox.runCode('open("/tmp/go", "w").close()', { context })
  assert.equal((await waiting).text, 'went')
})

together('what no environment can have is refused', async (sandbox) => {
  await sandbox.runCode('x = 41')
  for (const envs of [{ '': 'x' }, { 'A=B': 'x' }, { A: '\0' }]) await rejects(SandboxError, sandbox.runCode('1', { envs }))
  assert.equal((await sandbox.runCode('x + 1')).text, '42')
})

together('a language that is not there', async (sandbox) => {
  await rejects(SandboxError, sandbox.runCode('1', { language: 'cobol' }))
  await rejects(SandboxError, sandbox.createCodeContext({ language: 'cobol' }))
  assert.equal((await sandbox.runCode('1')).text, '1')
})

test('a dead kernel is replaced', async (sandbox) => {
  const { error } = await sandbox.runCode('x = 1\nimport os\nos._exit(1)')
  assert.equal(error.name, 'ContextRestarting')
  // WebAssembly knows why its Python has ended, and says so behind the words of the service.
  assert.match(error.value, /^Context was restarted(: Python has ended with the status 1)?$/)
  assert.equal((await sandbox.runCode('x')).error.name, 'NameError')
})

together('output of every kind of text', async (sandbox) => {
  const { logs } = await sandbox.runCode('print("a\\x85b\\u2028c\\u20ac\\U0001f600\\0", end="")')
  assert.equal(logs.stdout.join(''), 'a\x85b\u2028c\u20ac\u{1f600}\0')
  const large = await sandbox.runCode('print("€" * 2_000_000)')
  assert.equal(large.logs.stdout.join(''), '€'.repeat(2_000_000) + '\n')
})

together('every form of a result', async (sandbox) => {
  const execution = await sandbox.runCode(`
class Rich:
    def _repr_html_(self): return "<b>x</b>"
    def _repr_markdown_(self): return "**x**"
    def _repr_latex_(self): return "$x$"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"png"
    def _repr_jpeg_(self): return b"jpeg"
    def _repr_json_(self): return {"a": [1]}
    def _repr_javascript_(self): return "1"
from IPython.display import display
display(Rich())
{"list": [1, 2]}`)
  const [rich, main] = execution.results
  assert.deepEqual(
    [rich.html, rich.markdown, rich.latex, rich.svg, rich.png.trim(), rich.jpeg.trim(), rich.json, rich.javascript, rich.isMainResult],
    ['<b>x</b>', '**x**', '$x$', '<svg/>', 'cG5n', 'anBlZw==', { a: [1] }, '1', false],
  )
  assert.deepEqual([main.json, main.isMainResult], [{ list: [1, 2] }, true])
})

together('tables and figures', async (sandbox) => {
  const { results } = await sandbox.runCode(`
import pandas as pd, matplotlib.pyplot as plt
plt.plot([1, 2], [3, 4]); plt.show()
pd.DataFrame({"a": [1, 2, 3]})`)
  assert.ok(results[0].png)
  assert.deepEqual(Array.from(results[1].data.a), [1, 2, 3])
  assert.match(results[1].html, /<table/)
})

together('a picture that is shown, saved or the value', async (sandbox) => {
  const { results } = await sandbox.runCode(`
from PIL import Image
picture = Image.new("RGB", (2, 1), "red")
picture.show()
picture.save("/tmp/picture.png")
picture`)
  assert.deepEqual(results.map((one) => one.isMainResult), [false, false, true])
  for (const { png } of results) assert.equal(Buffer.from(png, 'base64').toString('latin1', 1, 4), 'PNG')
})

test('a killed sandbox ends the execution', async (sandbox) => {
  let started
  const printed = new Promise((resolve) => (started = resolve))
  const execution = rejects(TimeoutError, sandbox.runCode('print("go", flush=True)\nimport time\ntime.sleep(60)', { onStdout: started }))
  await printed
  await sandbox.kill()
  assert.match((await execution).message, /sandbox was killed while the request was in progress/)
})
