// Package place is where a sandbox without namespaces lives: its envd and its
// processes are among those of the host, restricted or not, in a root directory of
// their own.
package place
