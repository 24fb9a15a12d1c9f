// Command contained is the first process of containers that cannot run the program of the
// server, because that is for macOS or Windows, or for another processor than the daemon's. It
// is compiled for Linux and does nothing else.
package main

import (
	"fmt"
	"os"

	_ "github.com/e2bctl/e2bctl/internal/cloud/reexec" // whose init function is the first process of a container
)

func main() {
	fmt.Fprintln(os.Stderr, "contained: e2bctl starts this program in containers, as their first process")
	os.Exit(2)
}
