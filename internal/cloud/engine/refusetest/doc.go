// Package refusetest makes the kernel refuse to tests the calls that containers, distributions and
// older kernels refuse to programs.
package refusetest
