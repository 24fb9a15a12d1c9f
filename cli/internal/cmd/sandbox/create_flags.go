package sandbox

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// createFlags are the flags that describe the sandbox to create.
type createFlags struct {
	Template string
	Lifetime cmdutil.Duration // 0: a lease, renewed while the command runs
	Envs     cmdutil.KeyValues
	Metadata cmdutil.KeyValues
	Network  cmdutil.NetworkFlags

	OnTimeout     onTimeout
	AutoPauseMode pauseMode
	AutoResume    bool

	Volumes volumeMounts
	Mounts  hostMounts
}

// volumeMounts is a flag value of the form NAME:PATH, repeatable.
type volumeMounts []sandbox.VolumeMount

func (*volumeMounts) Type() string { return "name:path" }

func (v *volumeMounts) String() string { return "" }

func (v *volumeMounts) Set(value string) error {
	name, path, _ := strings.Cut(value, ":")
	if name == "" || !strings.HasPrefix(path, "/") {
		return errors.New("want the name of a volume and a directory, such as data:/data")
	}
	*v = append(*v, sandbox.VolumeMount{Name: name, Path: path})
	return nil
}

// addTimeoutFlags adds the flags that say what happens when the lifetime is over,
// also under the names that they have in the official CLI.
func (c *createFlags) addTimeoutFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&c.OnTimeout, "on-timeout", "when the lifetime is over: kill or pause (default kill)")
	flags.BoolVar(&c.AutoResume, "auto-resume", false, "with --on-timeout pause: any request for the sandbox\nresumes it")
	flags.Var(&c.AutoPauseMode, "auto-pause-mode", "with --on-timeout pause, what is kept: full, or filesystem\nfor the files alone (default full)")
	for _, name := range [][2]string{{"on-timeout", "lifecycle.ontimeout"}, {"auto-resume", "lifecycle.autoresume"}} {
		official := *flags.Lookup(name[0])
		official.Name, official.Hidden = name[1], true
		flags.AddFlag(&official)
		cmd.MarkFlagsMutuallyExclusive(name[0], name[1])
	}
}

// checkTimeoutFlags refuses what would have no effect.
func (c *createFlags) checkTimeoutFlags(cmd *cobra.Command) error {
	pauses := sandbox.OnTimeout(c.OnTimeout) == sandbox.OnTimeoutPause
	switch {
	case c.AutoResume && !pauses:
		return cmdutil.Usagef(cmd, "--auto-resume needs --on-timeout pause: a sandbox that is killed cannot be resumed")
	case c.AutoPauseMode != "" && !pauses:
		return cmdutil.Usagef(cmd, "--auto-pause-mode needs --on-timeout pause")
	case c.AutoResume && sandbox.PauseMode(c.AutoPauseMode) == sandbox.PauseFilesystem:
		return cmdutil.Usagef(cmd, "--auto-resume and --auto-pause-mode filesystem exclude each other: only e2bctl resume starts a sandbox from its files")
	}
	return nil
}

func (c createFlags) options() []sandbox.Option {
	options := []sandbox.Option{sandbox.WithTemplate(c.Template)}
	if c.Lifetime > 0 {
		options = append(options, sandbox.WithLifetime(time.Duration(c.Lifetime)))
	}
	if len(c.Envs) > 0 {
		options = append(options, sandbox.WithEnvs(c.Envs))
	}
	if len(c.Metadata) > 0 {
		options = append(options, sandbox.WithMetadata(c.Metadata))
	}
	if c.OnTimeout != "" {
		options = append(options, sandbox.WithOnTimeout(sandbox.OnTimeout(c.OnTimeout)))
	}
	if c.AutoPauseMode != "" {
		options = append(options, sandbox.WithAutoPauseMode(sandbox.PauseMode(c.AutoPauseMode)))
	}
	if c.AutoResume {
		options = append(options, sandbox.WithAutoResume())
	}
	for _, m := range c.Mounts {
		options = append(options, sandbox.WithMount(m))
	}
	for _, v := range c.Volumes {
		options = append(options, sandbox.WithVolume(v.Name, v.Path))
	}
	return append(options, c.Network.Options()...)
}
