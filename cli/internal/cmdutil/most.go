package cmdutil

import (
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// MostFlags are the flags for the maximum resources of one sandbox of a cloud. No sandbox gets more,
// even if its client or its template requests more. A zero field means the resources of the machine.
type MostFlags struct {
	CPUs   Processors
	Memory Size
}

// Add adds the flags.
func (m *MostFlags) Add(flags *pflag.FlagSet) {
	flags.Var(&m.CPUs, "max-cpus", "the most processors that one sandbox gets, whatever is asked for\n(default all of this machine)")
	flags.Var(&atLeast[Size]{&m.Memory, 16 << 20}, "max-memory", "the most memory that one sandbox gets, whatever is asked for\n(default all of this machine)")
}

// Arguments returns the flags that the user gave, as arguments for another process of e2bctl.
func (m *MostFlags) Arguments() []string {
	var arguments []string
	if m.CPUs > 0 {
		arguments = append(arguments, "--max-cpus", m.CPUs.String())
	}
	if m.Memory > 0 {
		arguments = append(arguments, "--max-memory", m.Memory.String())
	}
	return arguments
}

// Options returns the options that start a local cloud with the settings of the flags.
func (m *MostFlags) Options() []local.Option {
	return []local.Option{local.WithMaxCPUs(float64(m.CPUs)), local.WithMaxMemoryBytes(int64(m.Memory))}
}
