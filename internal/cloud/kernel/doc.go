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
// that take effect when a program starts, other versions of the loaded modules are installed,
// or the working directory has files with the names of these modules.
//
// Figures of matplotlib are also sent as e2b/chart, which charts.py reads from the drawing. Two
// details are more exact than in E2B's own code. Bars are named by the tick at their position.
// matplotlib reports whether bars are horizontal, whereas E2B guesses this from equal heights. A
// picture that PIL saves under a name is displayed as well (images.py). The middle of a long
// traceback is left out.
//
// With a [Wasm], the same driver runs in WebAssembly (python/_e2bctl_kernel/wasm.py), and
// exchanges the lines over standard input and output. Package engine/wasm describes the
// details.
//
// An asyncio loop counts as running while a cell runs, and also runs between cells (tasks.py), as
// in the service's kernels: tasks continue, and servers answer. Code that runs between cells cannot
// ask for input. Such code may delay a request. Interrupting the request then ends the callback
// that causes the delay. In WebAssembly, tasks continue only while a cell awaits.
//
// Without IPython there are no magics, no display, no charts, tables or pictures, and no
// completion or history.
//
// Package link defines the messages between a kernel and its process. Package python contains
// the driver. Package zmq runs Jupyter kernels that other programs provide.
package kernel
