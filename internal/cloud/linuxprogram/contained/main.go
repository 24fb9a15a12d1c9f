// Command contained is the first process of containers whose server is no program that they
// could run: on macOS and Windows, or with another processor than the daemon's. It is compiled
// for Linux and does nothing else.
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
