// Package capability says which capabilities this process has and which ones the processes
// of a sandbox keep, and drops all others.
package capability
