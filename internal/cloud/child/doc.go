// Package child starts the processes of a sandbox. Envd is pid 1 of the sandbox: it inherits
// every orphan and must reap it. It must not take the exit status of a process that another
// goroutine waits for. Therefore every process of envd is started and waited for here, and only
// processes that were not started here are reaped.
package child
