package cmdutil

import (
	"os"

	"golang.org/x/sys/windows"
)

// ScreenOf returns the output of this process: only a console's output has a size.
func ScreenOf(*os.File) *os.File { return os.Stdout }

// obeyEscapes makes the console obey the escape sequences of programs in the sandbox until restore
// is called; otherwise it would print them. An output that is no console gets them unchanged.
func obeyEscapes() (restore func() error, err error) {
	console := windows.Handle(os.Stdout.Fd())
	var before uint32
	if windows.GetConsoleMode(console, &before) != nil {
		return func() error { return nil }, nil
	}
	err = windows.SetConsoleMode(console, before|windows.ENABLE_PROCESSED_OUTPUT|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
	return func() error { return windows.SetConsoleMode(console, before) }, err
}
