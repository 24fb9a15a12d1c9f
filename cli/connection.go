package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// where is the service that a command means.
type where int

const (
	remote         where = iota // what flags and environment say
	localRunning                // the user's `local up`, an error when none runs
	localStarting               // the user's `local up`, started when none runs
	localEphemeral              // a local cloud that ends with the command
)

// connection is a client and, when the command carries it, the cloud behind it.
type connection struct {
	*sandbox.Client
	cloud *local.Cloud
}

// Close ends the cloud too, when it is the command's own.
func (c *connection) Close() error {
	err := c.Client.Close()
	if c.cloud != nil {
		err = errors.Join(err, c.cloud.Close())
	}
	return err
}

// Open connects to the service. Nothing is sent for a remote one.
func (f *Factory) Open(ctx context.Context, w where) (*connection, error) {
	options := f.clientOptions()
	if w != remote {
		options = append(options, sandbox.WithEnvFile("")) // it says nothing about the local cloud
	}
	var cloud *local.Cloud
	switch w {
	case remote:
	case localRunning, localStarting:
		record, err := f.runningLocalCloud(ctx, w == localStarting)
		if err != nil {
			return nil, err
		}
		options = append(options, record.options()...)
	case localEphemeral:
		var err error
		if cloud, err = local.Start(ctx, local.WithLogger(f.logger())); err != nil {
			return nil, err
		}
		options = append(options, cloud.Options()...)
	}
	client, err := sandbox.NewClient(options...)
	if err != nil {
		if cloud != nil {
			err = errors.Join(err, cloud.Close())
		}
		return nil, err
	}
	return &connection{Client: client, cloud: cloud}, nil
}

// clientOptions are what the global flags say.
func (f *Factory) clientOptions() []sandbox.Option {
	options := []sandbox.Option{sandbox.WithLogger(f.logger()), sandbox.WithUserAgent("e2bctl")}
	if f.flags.apiURL != "" {
		options = append(options, sandbox.WithAPIURL(f.flags.apiURL))
	}
	if f.flags.domain != "" {
		options = append(options, sandbox.WithDomain(f.flags.domain))
	}
	if f.flags.noEnvFile || f.flags.envFile != "" {
		options = append(options, sandbox.WithEnvFile(f.flags.envFile))
	}
	return options
}

// logger writes to stderr with -v and nowhere without. The SDK keeps secrets
// out of what it logs.
func (f *Factory) logger() *slog.Logger {
	if !f.flags.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(f.IO.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func addLocalFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "local", localByDefault(), "on this machine, without an account (E2BCTL_LOCAL=1)")
}

// place resolves --local: ifLocal when it is on, else the remote service. An
// address on the command line wins over E2BCTL_LOCAL and contradicts the flag.
func (f *Factory) place(cmd *cobra.Command, isLocal bool, ifLocal where) (func(context.Context) (*connection, error), error) {
	w := remote
	if isLocal {
		w = ifLocal
	}
	if f.flags.apiURL != "" || f.flags.domain != "" {
		if cmd.Flags().Changed("local") && isLocal {
			return nil, usagef(cmd, "--local and an address (--api-url, --domain) exclude each other")
		}
		w = remote
	}
	return func(ctx context.Context) (*connection, error) { return f.Open(ctx, w) }, nil
}
