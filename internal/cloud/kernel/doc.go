// Package kernel runs one kernel. It starts the kernel, executes code in it, interrupts and
// restarts it, and handles the death of its process.
//
// A kernel is a Python process that runs the driver in python/. If the driver can import IPython,
// it uses IPython's own shell. Otherwise it uses a small engine that needs only the standard
// library. The driver and this package exchange Jupyter messages as lines of JSON over an inherited
// socket. Descriptors 1 and 2 of the process are pipes, so that the output of subprocesses and C
// code is also output of the cell.
//
// With a [Warm], the process is forked from the zygote, which has already loaded IPython,
// numpy, pandas and matplotlib (python/_e2bctl_kernel/zygote.py). Code must not notice the
// difference. Therefore a process starts cold in three cases: the environment has variables
// that take effect when a program starts, the sandbox has other versions of the loaded modules,
// or the working directory has files with the names of these modules. With Python 3.12 and 3.13, the
// objects of the zygote are immortal, so that processes share their memory (immortal.py).
//
// Figures of matplotlib are also sent as e2b/chart: charts.py reads the chart's data from the
// drawing. Two details are more exact than in E2B's own code. First, the label of a bar is the tick
// at the position of the bar. Second, matplotlib reports whether bars are horizontal, whereas E2B
// guesses this from equal heights. If PIL saves a picture under a name, the picture is displayed as
// well (images.py). The middle of a long traceback is left out.
//
// With a [Wasm], the same driver runs in WebAssembly (python/_e2bctl_kernel/wasm.py), and
// exchanges the lines over standard input and output. Package engine/wasm describes the
// details.
//
// While a cell runs, an asyncio loop counts as running. The loop also runs between cells (tasks.py),
// as in the kernels of E2B's service: tasks continue, and servers answer. Code that runs between
// cells cannot ask for input. Such code may delay a request. An interrupt of the delayed request ends
// the callback that causes the delay. In WebAssembly, tasks continue only while a cell awaits.
//
// Without IPython there are no magics, no display, no charts, tables or pictures, and no
// completion or history.
//
// Package link defines the messages between a kernel and its process. Package python contains
// the driver. Package zmq runs Jupyter kernels that other programs provide.
package kernel
