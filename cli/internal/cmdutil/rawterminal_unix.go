//go:build unix

package cmdutil

import "os"

// ScreenOf returns the terminal that tells the size of the screen, which is the keyboard's
// terminal.
func ScreenOf(keyboard *os.File) *os.File { return keyboard }

// obeyEscapes does nothing: terminals obey the escape sequences of programs.
func obeyEscapes() (restore func() error, err error) { return func() error { return nil }, nil }
