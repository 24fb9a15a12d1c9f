package cli

import (
	"os"
	"strings"
)

// Factory creates what commands need, when they need it: a command that only
// prints its version reads no key and opens no connection.
type Factory struct {
	IO *IOStreams

	// flags are the global flags, filled in before a command runs.
	flags globalFlags
	// started is set once the command line has been understood. Any failure before
	// that is a mistake in the command line.
	started bool
}

type globalFlags struct {
	output    outputFormat
	quiet     bool
	verbose   bool
	envFile   string
	noEnvFile bool
	apiURL    string
	domain    string
}

func newFactory(ios *IOStreams) *Factory {
	return &Factory{IO: ios, flags: globalFlags{output: outputTable}}
}

func (f *Factory) jsonOutput() bool { return f.flags.output == outputJSON }

// localByDefault reports whether E2BCTL_LOCAL turns --local on.
func localByDefault() bool {
	switch strings.ToLower(os.Getenv("E2BCTL_LOCAL")) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}
