package cmdutil

import (
	"os"

	"golang.org/x/sys/windows"
)

// ScreenOf returns the file that reports the size of the screen. That is the standard output of
// this process, because on Windows only the output of a console has a size.
func ScreenOf(*os.File) *os.File { return os.Stdout }

// obeyEscapes makes the console interpret the escape sequences of programs in the sandbox until
// restore is called. Otherwise the console would print them. If the output is not a console,
// obeyEscapes changes nothing, and the output receives the sequences unchanged.
func obeyEscapes() (restore func() error, err error) {
	console := windows.Handle(os.Stdout.Fd())
	var before uint32
	if windows.GetConsoleMode(console, &before) != nil {
		return func() error { return nil }, nil
	}
	err = windows.SetConsoleMode(console, before|windows.ENABLE_PROCESSED_OUTPUT|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
	return func() error { return windows.SetConsoleMode(console, before) }, err
}
