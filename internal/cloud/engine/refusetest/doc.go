// Package refusetest has the kernel refuse tests what containers, distributions and older
// kernels refuse programs.
package refusetest
