// Package kernel runs one kernel: start, execute, interrupt, restart, death.
//
// A kernel is a Python process that runs the driver in python/: IPython's own
// shell where it can be imported, a small engine on the standard library
// elsewhere. The driver and this package speak Jupyter's messages as lines of
// JSON over one inherited socket; descriptors 1 and 2 of the process are pipes,
// so that what subprocesses and C code write is output of the cell as well.
package kernel
