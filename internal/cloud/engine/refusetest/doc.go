// Package refusetest makes the kernel refuse those system calls of a test that containers,
// distributions or older kernels refuse.
package refusetest
