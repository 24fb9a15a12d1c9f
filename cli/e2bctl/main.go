// Command e2bctl manages E2B-style sandboxes from a shell.
package main

import (
	"os"

	"github.com/e2bctl/e2bctl/cli"
)

func main() { os.Exit(cli.Main()) }
