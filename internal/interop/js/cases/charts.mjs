import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'
import { together } from '../harness.mjs'

const test = (name, body) => together(name, body, Sandbox)

// On a busy machine a kernel that starts cold takes long to draw its first figure.
const patient = { timeoutMs: 300_000 }

// drawn returns the one chart that the code shows.
async function drawn(sandbox, code) {
  const execution = await sandbox.runCode(`import matplotlib.pyplot as plt\n${code}\nplt.show()`, patient)
  assert.equal(execution.error, undefined)
  assert.equal(execution.results.length, 1)
  const [result] = execution.results
  assert.deepEqual([result.formats(), result.isMainResult, typeof result.text], [['png'], false, 'string'])
  return result.chart
}

// described leaves the ticks out of a chart: they are matplotlib's choice.
function described({ x_ticks, x_tick_labels, y_ticks, y_tick_labels, ...chart }) {
  assert.equal(x_ticks?.length, x_tick_labels?.length)
  assert.equal(y_ticks?.length, y_tick_labels?.length)
  return chart
}

const noAxes = { x_label: null, y_label: null, x_unit: null, y_unit: null }
const linear = { ...noAxes, x_scale: 'linear', y_scale: 'linear' }
const title = null

for (const [name, code, want] of [
  [
    'lines',
    'plt.plot([1, 2], [3, 4], label="a"); plt.title("T"); plt.xlabel("Time (s)")',
    { type: 'line', title: 'T', elements: [{ label: 'a', points: [[1, 3], [2, 4]] }], ...linear, x_label: 'Time (s)', x_unit: 's' },
  ],
  [
    'dates',
    'import datetime\nplt.plot([datetime.date(2024, 1, day) for day in (1, 2)], [1, 2])',
    { type: 'line', title, elements: [{ label: 'Line 0', points: [['2024-01-01', 1], ['2024-01-02', 2]] }], ...linear, x_scale: 'datetime' },
  ],
  ['points', 'plt.scatter([1, 2], [3, 4], label="a")', { type: 'scatter', title, elements: [{ label: 'a', points: [[1, 3], [2, 4]] }], ...linear }],
  [
    'bars',
    'plt.bar(["a", "b"], [1, 2], label="m")',
    { type: 'bar', title, elements: [{ label: 'a', group: 'm', value: 1 }, { label: 'b', group: 'm', value: 2 }], ...noAxes },
  ],
  [
    'slices',
    'plt.pie([1, 3], labels=["a", "b"], radius=2)',
    { type: 'pie', title, elements: [{ label: 'a', angle: 90, radius: 2 }, { label: 'b', angle: 270, radius: 2 }] },
  ],
  [
    'boxes',
    'plt.boxplot([[1, 2, 3, 4, 100]], tick_labels=["a"], patch_artist=True)',
    {
      type: 'box_and_whisker',
      title,
      elements: [{ label: 'a', min: 1, first_quartile: 2, median: 3, third_quartile: 4, max: 4, outliers: [100] }],
      ...noAxes,
    },
  ],
  [
    'several',
    '_, (a, b) = plt.subplots(1, 2); a.pie([1], labels=["x"]); b.imshow([[1]]); plt.suptitle("S")',
    {
      type: 'superchart',
      title: 'S',
      elements: [
        { type: 'pie', title, elements: [{ label: 'x', angle: 360, radius: 1 }] },
        { type: 'unknown', title, elements: [] },
      ],
    },
  ],
]) {
  test(name, async (sandbox) => assert.deepEqual(described(await drawn(sandbox, code)), want))
}

test('a figure and a value', async (sandbox) => {
  const { results } = await sandbox.runCode('import matplotlib.pyplot as plt\nx = 3\nplt.plot([1, 2, 3])\nplt.show()\nx', patient)
  const [figure, value] = results
  assert.deepEqual([results.length, figure.isMainResult, figure.chart.type, figure.formats()], [2, false, 'line', ['png']])
  assert.deepEqual([value.isMainResult, value.text, value.chart, value.formats()], [true, '3', undefined, []])
})
