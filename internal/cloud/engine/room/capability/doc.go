// Package capability says which capabilities the processes of a sandbox keep, and
// drops all others.
package capability
