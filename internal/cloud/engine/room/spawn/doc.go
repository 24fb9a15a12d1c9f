// Package spawn re-executes this program's binary as a process of the room or of a sandbox. The new
// process starts with ids, namespaces and control groups of its own.
package spawn
