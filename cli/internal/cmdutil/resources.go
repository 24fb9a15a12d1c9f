package cmdutil

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// ResourceFlags are the flags for the resources of each sandbox of a local cloud, and for the
// engine of that cloud. If the command starts the cloud, the flags apply to all its sandboxes. If the
// command creates a sandbox in a cloud that is already running, memory, cpus and disk apply to this
// sandbox.
type ResourceFlags struct {
	ofSandbox    bool // the command creates a sandbox
	started      bool // the command has started a cloud, whose sandboxes have these limits
	engine       OwnEngine
	isolation    Isolation
	memory, disk Size
	cpus         Processors
	pids         Count
	dist, runsc  path
	mounts       *hostMounts   // the mounts of the sandbox that the command creates; nil for none
	all          []*pflag.Flag // all flags except engine
	engineFlag   *pflag.Flag
}

// Add adds the flags to cmd.
func (r *ResourceFlags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SetNormalizeFunc(processorNames)
	add := func(value pflag.Value, name, usage string) {
		flags.Var(value, name, usage)
		r.all = append(r.all, flags.Lookup(name))
	}
	add(&atLeast[Size]{&r.memory, 16 << 20}, "memory", "memory of a local sandbox, files included (default 2GiB)")
	add(&r.cpus, "cpus", "processors that a local sandbox may keep busy (default 2,\nnever more than this machine has)")
	add(&atLeast[Size]{&r.disk, 1 << 20}, "disk", "files of a local sandbox (default half of its memory,\nat most 10GiB)")
	add(&atLeast[Count]{&r.pids, 16}, "pids", "processes and threads of a local sandbox (default 1024)")
	AddEngineFlag(cmd, &r.engine)
	add(&r.isolation, "isolation", "isolate sandboxes of room this strongly or start none:\nfull, restricted, or none for trusted code (default the\nstrongest of full and restricted that this machine has)")
	add(&r.runsc, "runsc", "run gVisor by the program at `PATH` (default the one of local setup)")
	add(&r.dist, "pyodide-dist", "full Pyodide distribution in `DIR`, from which local\nsandboxes of wasm install numpy, pandas and more")
	r.engineFlag = flags.Lookup("engine")
	complete(cmd, "isolation", isolations)
}

// processorNames returns the name of a flag that has another name in modal and others.
func processorNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "cpu", "max-cpu":
		name += "s"
	}
	return pflag.NormalizedName(name)
}

// SizeFlags are the flags for new resources of a running sandbox.
type SizeFlags struct {
	memory, disk Size
	cpus         Processors
}

// Add adds the flags to a command.
func (s *SizeFlags) Add(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(processorNames)
	flags.Var(&s.cpus, "cpus", "processors that it may keep busy, such as 2 or 0.5")
	flags.Var(&atLeast[Size]{&s.memory, 16 << 20}, "memory", "its memory, files in memory included")
	flags.Var(&atLeast[Size]{&s.disk, 1 << 20}, "disk", "files that it may write")
}

// Resources returns the resources. One without a flag is zero.
func (s *SizeFlags) Resources() sandbox.Resources {
	return sandbox.Resources{CPUs: float64(s.cpus), MemoryBytes: int64(s.memory), DiskBytes: int64(s.disk)}
}

// complete lets shells complete the values of a flag.
func complete(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was not added before
	}
}

// otherThanLimits describes the flags of [ResourceFlags] that set no limit.
var otherThanLimits = map[string]string{"isolation": "the isolation level", "runsc": "the gVisor program", "pyodide-dist": "the Pyodide distribution"}

// first returns the first flag in r.all that the user gave. If the user gave none of these flags, it
// returns nil.
func (r *ResourceFlags) first() *pflag.Flag { return r.firstOf(func(*pflag.Flag) bool { return true }) }

// firstOfCloud is like first, but returns only a flag that cannot apply to one sandbox of a running
// cloud.
func (r *ResourceFlags) firstOfCloud() *pflag.Flag {
	return r.firstOf(func(flag *pflag.Flag) bool {
		return !r.ofSandbox || flag.Name != "memory" && flag.Name != "cpus" && flag.Name != "disk"
	})
}

func (r *ResourceFlags) firstOf(counts func(*pflag.Flag) bool) *pflag.Flag {
	for _, flag := range r.all {
		if flag.Changed && counts(flag) {
			return flag
		}
	}
	return nil
}

// sandboxOptions returns the options for the resources of the new sandbox. It returns nil if the command
// started the cloud, because all sandboxes of the cloud then have these limits.
func (r *ResourceFlags) sandboxOptions() []sandbox.CreateOption {
	own := sandbox.Resources{CPUs: float64(r.cpus), MemoryBytes: int64(r.memory), DiskBytes: int64(r.disk)}
	if r.started || own == (sandbox.Resources{}) {
		return nil
	}
	return []sandbox.CreateOption{sandbox.WithResources(own)}
}

// Engine returns the engine; "" if the flag is not set.
func (r *ResourceFlags) Engine() string { return r.engine.String() }

// Isolation returns the isolation; "" if the flag is not set.
func (r *ResourceFlags) Isolation() string { return string(r.isolation) }

// Limits returns the limits of each sandbox. A limit without a flag is zero.
func (r *ResourceFlags) Limits() local.Resources {
	return local.Resources{MemoryBytes: int64(r.memory), CPUs: float64(r.cpus), MaxProcesses: int(r.pids), DiskBytes: int64(r.disk)}
}

// Runsc returns the path of the gVisor program; "" if the flag is not set.
func (r *ResourceFlags) Runsc() string { return string(r.runsc) }

// PyodideDist returns the directory of the Pyodide distribution; "" if the flag is not set.
func (r *ResourceFlags) PyodideDist() string { return string(r.dist) }

// flags returns all of the flags.
func (r *ResourceFlags) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, flag := range append(r.all, r.engineFlag) {
		set.AddFlag(flag)
	}
	return set
}

// Options returns the options that start a local cloud with the settings of the flags.
func (r *ResourceFlags) Options() []local.Option {
	options := []local.Option{
		local.WithResources(r.Limits()), local.WithEngine(local.Engine(r.engine.Engine)), local.WithIsolation(local.Isolation(r.isolation)),
		local.WithRunsc(string(r.runsc)), local.WithWasm(local.WasmParams{PyodideDist: string(r.dist)}),
	}
	if r.mounts != nil {
		options = append(options, r.mounts.allowed()...)
	}
	return options
}

// Arguments returns the flags that the user gave, as arguments for another process of e2bctl.
func (r *ResourceFlags) Arguments() []string {
	var arguments []string
	for _, flag := range r.all {
		if flag.Changed {
			arguments = append(arguments, "--"+flag.Name, flag.Value.String())
		}
	}
	if r.mounts != nil {
		for _, m := range *r.mounts {
			arguments = append(arguments, "--allow-mount", m.Dir+map[bool]string{true: ":rw"}[m.Writable])
		}
	}
	return arguments
}

// atLeast is a flag value with a minimum. A sandbox does not start with a smaller value.
type atLeast[T Size | Count] struct {
	to    *T
	least T
}

func (a *atLeast[T]) value() pflag.Value { return any(a.to).(pflag.Value) }
func (a *atLeast[T]) Type() string       { return a.value().Type() }
func (a *atLeast[T]) String() string     { return a.value().String() }

func (a *atLeast[T]) Set(value string) error {
	if err := a.value().Set(value); err != nil {
		return err
	}
	if *a.to < a.least {
		return fmt.Errorf("a sandbox needs at least %v", any(&a.least))
	}
	return nil
}

// path is a flag value that names a file or directory. It is made absolute, so that processes in
// other directories can use it, too.
type path string

func (p *path) Type() string   { return "path" }
func (p *path) String() string { return string(*p) }

func (p *path) Set(value string) error {
	absolute, err := filepath.Abs(value)
	*p = path(absolute)
	return err
}

// NotEnforced returns a line for each limit that the user set and that the local cloud does not
// enforce for its sandboxes.
func (r *ResourceFlags) NotEnforced(report local.Report) []string {
	var lines []string
	for _, limit := range []struct {
		flag  string
		given bool
		how   string
	}{
		{"memory", r.memory != 0, report.Memory}, {"cpus", r.cpus != 0, report.CPU}, {"pids", r.pids != 0, report.Processes}, {"disk", r.disk != 0, report.Disk},
	} {
		if limit.given && strings.HasPrefix(limit.how, "not enforced") {
			lines = append(lines, "--"+limit.flag+" is "+limit.how)
		}
	}
	return lines
}
