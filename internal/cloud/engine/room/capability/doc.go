// Package capability reads the capabilities of this process. It defines the capabilities that the
// processes of a sandbox keep, and drops all others.
package capability
