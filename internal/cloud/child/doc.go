// Package child starts the processes of a sandbox. Envd is pid 1 there: it
// inherits every orphan and must reap it, but must not take the exit status of
// a process that somebody waits for. Therefore every process of envd is
// started and waited for here, and only what was not started here is reaped.
package child
