// Command contained is the first process of containers that cannot run the program of the server,
// because that program is for macOS, Windows, or another processor than the daemon's. Command
// contained is compiled for Linux and has no other purpose.
package main

import (
	"fmt"
	"os"

	_ "github.com/e2bctl/e2bctl/internal/cloud/reexec" // its init function starts the first process of a container
)

func main() {
	fmt.Fprintln(os.Stderr, "contained: e2bctl starts this program in containers, as their first process")
	os.Exit(2)
}
