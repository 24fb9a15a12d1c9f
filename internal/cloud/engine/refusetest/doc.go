// Package refusetest makes the kernel refuse system calls of tests. These are the system calls that
// containers, distributions or older kernels refuse.
package refusetest
