//go:build unix

package cmdutil

import "os"

// ScreenOf returns the file that reports the size of the screen. On Unix that is the keyboard's
// terminal itself.
func ScreenOf(keyboard *os.File) *os.File { return keyboard }

// obeyEscapes does nothing: on Unix, terminals always interpret escape sequences.
func obeyEscapes() (restore func() error, err error) { return func() error { return nil }, nil }
