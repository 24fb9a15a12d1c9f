// This program says that it is a runsc, and then does what its name says.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if slices.Contains(os.Args, "--version") {
		fmt.Println("runsc version fake")
		return
	}
	name, _ := os.Readlink("/proc/self/exe")
	switch filepath.Base(name) {
	case "dies":
		fmt.Fprintln(os.Stderr, "it broke")
		os.Exit(3)
	case "babbles":
		for {
			if _, err := fmt.Println("this is no frame of any protocol"); err != nil {
				return
			}
		}
	case "hangs":
		_, _ = io.Copy(io.Discard, os.Stdin) // until the server is gone
	}
}
