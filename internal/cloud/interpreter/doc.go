// Package interpreter serves code execution inside a sandbox: the code
// interpreter on port 49999 and Jupyter on port 8888, over the same kernels.
package interpreter
