// Package kernelconn has the connections of a client to the kernels of one sandbox.
package kernelconn
