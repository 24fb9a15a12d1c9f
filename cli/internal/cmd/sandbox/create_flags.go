package sandbox

import (
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// createFlags are the flags that describe the sandbox to create.
type createFlags struct {
	Template string
	Lifetime time.Duration // 0: a lease, renewed while the command runs
	Envs     map[string]string
	Metadata map[string]string
	Network  cmdutil.NetworkFlags
}

func (c createFlags) options() []sandbox.Option {
	options := []sandbox.Option{sandbox.WithTemplate(c.Template)}
	if c.Lifetime > 0 {
		options = append(options, sandbox.WithLifetime(c.Lifetime))
	}
	if len(c.Envs) > 0 {
		options = append(options, sandbox.WithEnvs(c.Envs))
	}
	if len(c.Metadata) > 0 {
		options = append(options, sandbox.WithMetadata(c.Metadata))
	}
	return append(options, c.Network.Options()...)
}
