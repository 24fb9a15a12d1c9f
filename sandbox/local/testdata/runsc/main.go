// This program pretends to be a runsc. Its name determines its behaviour.
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
		_, _ = io.Copy(io.Discard, os.Stdin) // until the server ends
	}
}
