package cmdutil

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/term"
)

// MakeRaw puts the terminal into raw mode, so that every key reaches this process. It also makes
// the terminal interpret the escape sequences of programs in the sandbox. restore undoes both, and
// may be called more than once.
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

// RestoreInPanic restores the terminal when its goroutine panics. Every goroutine must defer it,
// because the panic of a goroutine ends the process before another goroutine can restore the
// terminal.
func RestoreInPanic(restore func() error) {
	if cause := recover(); cause != nil {
		_ = restore()
		panic(cause)
	}
}
