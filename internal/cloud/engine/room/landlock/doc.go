// Package landlock restricts the files that a process can reach, where no mount namespace does.
package landlock
