//go:build !linux

// Testrun runs the tests of this module. On this system it only runs go test. It does not repeat
// failed tests, and has no tests of an ordinary user, no times and no stress.
package main

import (
	"fmt"
	"os"
	"os/exec"
)

func main() {
	arguments := os.Args[1:]
	if len(arguments) > 0 && (arguments[0] == "times" || arguments[0] == "stress") {
		fmt.Fprintf(os.Stderr, "testrun: %s needs Linux\n", arguments[0])
		os.Exit(2)
	}
	if len(arguments) == 0 {
		arguments = []string{"./..."}
	}
	command := exec.Command("go", append([]string{"test", "-vet=off", "-timeout=30m"}, arguments...)...) //nolint:noctx // it ends with this program
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	if command.Run() != nil {
		os.Exit(1)
	}
}
