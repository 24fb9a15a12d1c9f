// Package cgroup limits sandboxes by control groups: it finds the hierarchies of
// either version that this process may use, makes a group for an instance and one
// for each sandbox, and removes them together with the processes in them.
package cgroup
