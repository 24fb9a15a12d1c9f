package cli

import (
	"errors"
	"os"
)

// become returns an error: Windows cannot replace the program of a running process.
func become(string, []string, []string) error { return errors.ErrUnsupported }

// interrupt does nothing: a process on the same console receives the interruption itself.
func interrupt(*os.Process) error { return nil }
