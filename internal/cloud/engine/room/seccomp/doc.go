// Package seccomp is the filter of system calls that every process of a sandbox
// runs under: an allow-list.
package seccomp
