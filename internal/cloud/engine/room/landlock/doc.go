// Package landlock restricts which files a process reaches, where no mount
// namespace does.
package landlock
