// Package kernel runs one kernel: it starts it, executes code in it, interrupts it, restarts
// it, and handles its death.
//
// A kernel is a Python process that runs the driver in python/: IPython's own shell if it can
// be imported, else a small engine on the standard library. The driver and this package
// exchange Jupyter's messages as lines of JSON over one inherited socket. Descriptors 1 and 2
// of the process are pipes, so that the output of subprocesses and C code is output of the cell
// as well.
//
// With a [Warm] the process is forked from one that has IPython, numpy, pandas and
// matplotlib already loaded (python/_e2bctl_kernel/zygote.py). Code must not be
// able to tell the difference, so a process is started cold if the environment has
// variables that act when a program starts, if other versions of the loaded modules
// are installed, or if the working directory has files with the names of those
// modules.
//
// Figures of matplotlib are also sent as e2b/chart, read back from the drawing (charts.py). In
// two places this is more exact than E2B's own reading: bars are named by the tick at their
// position, and matplotlib says if they are horizontal, instead of a guess from equal
// heights. A picture that PIL saves under a name is displayed as well (images.py). The middle
// of a long traceback is left out.
//
// With a [Wasm] the same driver runs in WebAssembly (python/_e2bctl_kernel/wasm.py), with the
// lines on standard input and output. Package engine/wasm describes all of it.
//
// A loop of asyncio counts as running while a cell runs, and runs between cells
// (tasks.py), as in the service's kernels: tasks go on, and servers answer. Code between
// cells cannot ask for input. A request that has to wait for it can be interrupted, which
// ends the callback that keeps it waiting. In WebAssembly tasks go on only while a cell awaits.
//
// Without IPython there are no magics, no display, no charts, tables or pictures,
// and no completion or history.
//
// Package link defines the messages between a kernel and its process, package python is the
// driver, and package zmq runs the kernels of other programs.
package kernel
