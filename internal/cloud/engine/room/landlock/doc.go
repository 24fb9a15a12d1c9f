// Package landlock restricts the files that a process can reach. It is for sandboxes without a
// mount namespace.
package landlock
