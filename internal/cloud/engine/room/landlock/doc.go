// Package landlock restricts the files that a process can reach if no mount namespace does.
package landlock
