// Package cgroup limits sandboxes by control groups. It finds the hierarchies of version 1 and 2 that
// this process may use. There it makes a group for an instance and a group for each sandbox. It ends
// the processes in these groups when it removes the groups.
package cgroup
