package sandbox

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// createFlags are the flags for a new sandbox that keeps running after the command.
type createFlags struct {
	cmdutil.NewSandboxFlags

	Envs          cmdutil.KeyValues
	OnTimeout     onTimeout
	AutoPauseMode pauseMode
	AutoResume    bool
}

// addTimeoutFlags adds the flags for the end of the lifetime, and the same flags under their names
// in E2B's official CLI.
func (c *createFlags) addTimeoutFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&c.OnTimeout, "on-timeout", "when the lifetime is over: kill or pause (default kill)")
	flags.BoolVar(&c.AutoResume, "auto-resume", false, "with --on-timeout pause: any request for the sandbox\nresumes it")
	flags.Var(&c.AutoPauseMode, "auto-pause-mode", "with --on-timeout pause, what is kept: full, or filesystem\nfor the files alone (default full)")
	cmdutil.AddOfficialName(cmd, "on-timeout", "lifecycle.ontimeout", "")
	cmdutil.AddOfficialName(cmd, "auto-resume", "lifecycle.autoresume", "")
}

// checkTimeoutFlags refuses flags that would have no effect.
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

func (c *createFlags) create(ctx context.Context, conn *cmdutil.Connection) (*sandbox.Sandbox, error) {
	c.End = sandbox.Expiry{Then: sandbox.Then(c.OnTimeout), Resume: c.AutoResume}
	if sandbox.PauseMode(c.AutoPauseMode) == sandbox.PauseFilesystem {
		c.End.Then = sandbox.ThenPauseFilesystem
	}
	if len(c.Envs) > 0 {
		return c.Create(ctx, conn, sandbox.WithEnvs(c.Envs))
	}
	return c.Create(ctx, conn)
}
