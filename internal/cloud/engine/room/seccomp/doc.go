// Package seccomp contains the filter of system calls for every process of a sandbox: an
// allow-list.
//
// The filter is computed from an architecture and a table of calls (calls.go), each with a rule
// (rules.go). The file testdata/calls.txt lists the filter's answer to every call. If that
// differs from Docker's default list, it has the reason. The tests run the filter and compare.
package seccomp
