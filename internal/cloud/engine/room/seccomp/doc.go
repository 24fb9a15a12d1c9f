// Package seccomp contains the filter of system calls for every process of a sandbox: an
// allow-list.
//
// The filter is computed from an architecture and a table of calls (calls.go), each with a rule
// (rules.go). The file testdata/calls.txt lists the filter's answer to every call. It gives the
// reason for each answer that differs from Docker's default list. The tests run the filter and
// compare.
package seccomp
