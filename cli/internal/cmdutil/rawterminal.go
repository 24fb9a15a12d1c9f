package cmdutil

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/term"
)

// MakeRaw makes the terminal pass on every key, and obey the escape sequences
// of programs in the sandbox. restore may be called more than once.
func MakeRaw(keyboard *os.File) (restore func() error, err error) {
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return nil, err
	}
	forget, err := obeyEscapes()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("have the console obey escape sequences: %w", err), term.Restore(int(keyboard.Fd()), before))
	}
	return func() error { return errors.Join(term.Restore(int(keyboard.Fd()), before), forget()) }, nil
}

// RestoreInPanic restores the terminal when its goroutine panics. Every goroutine has to
// defer it: its panic ends the process before another goroutine could restore the terminal.
func RestoreInPanic(restore func() error) {
	if cause := recover(); cause != nil {
		_ = restore()
		panic(cause)
	}
}
