// Package place describes the place of a sandbox without namespaces: its envd and its processes are
// among those of the host, restricted or not, in their own root directory.
package place
