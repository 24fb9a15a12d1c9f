// Package kernel runs one kernel: start, execute, interrupt, restart, death.
package kernel
