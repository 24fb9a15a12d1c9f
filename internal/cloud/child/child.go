// Package child starts the processes of a sandbox. The agent is its pid 1 and
// must reap orphans without taking the exit status of a process that somebody
// waits for; so every process of the agent is started and waited for here.
package child

import "os/exec"

// Start starts cmd and remembers it until [Wait].
func Start(cmd *exec.Cmd) error { return cmd.Start() }

// Wait waits for a command started with [Start]. It must be called once.
func Wait(cmd *exec.Cmd) error { return cmd.Wait() }
