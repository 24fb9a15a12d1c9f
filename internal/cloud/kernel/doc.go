// Package kernel runs one kernel: start, execute, interrupt, restart, death.
//
// A kernel is a Python process that runs the driver in python/: IPython's own
// shell where it can be imported, a small engine on the standard library
// elsewhere. The driver and this package speak Jupyter's messages as lines of
// JSON over one inherited socket; descriptors 1 and 2 of the process are pipes,
// so that what subprocesses and C code write is output of the cell as well.
//
// Where there is a [Warm] the process is forked from one that has IPython, numpy,
// pandas and matplotlib loaded already (python/_e2bctl_kernel/zygote.py). Code
// must not notice: an environment that acts when a program starts, other versions
// of what is loaded, and files in the working directory of the same name get a
// process that starts cold.
//
// Figures of matplotlib are also e2b/chart, read back from what was drawn
// (charts.py). In two places it is more exact than E2B's own reading: bars are
// named by the tick at their place, and whether they lie is asked, not guessed
// from heights that are equal. A picture that PIL saves under a name is displayed
// as well (images.py). Of a long traceback the middle is left out.
//
// Without IPython there are no magics, no display, no charts, tables and
// pictures, and no completion or history.
package kernel
