// Package capability reads the capabilities of this process, defines those that the processes of a
// sandbox keep, and drops all others.
package capability
