// Package seccomp is the filter of system calls that every process of a sandbox
// runs under: an allow-list.
//
// The filter is computed from an architecture and a table of calls (calls.go), each
// with a rule (rules.go). What it answers to every call, and why where that differs
// from Docker's default list, is to be read in testdata/calls.txt; the tests run the
// filter and hold it to that.
package seccomp
