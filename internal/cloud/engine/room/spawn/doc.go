// Package spawn re-executes this program's binary as a process of the room or of a
// sandbox: with ids, namespaces and control groups of its own from its beginning.
package spawn
