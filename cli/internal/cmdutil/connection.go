package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// Where says which service a command uses.
type Where int

const (
	remote         Where = iota // the one in the flags and the environment
	LocalRunning                // the user's `local up`; an error when none is running
	LocalStarting               // the user's `local up`, started when none is running
	LocalEphemeral              // a local cloud that ends with the command
)

// Connection is a client and, for a cloud of the command's own, that cloud.
type Connection struct {
	*sandbox.Client
	cloud *local.Cloud
}

// Close also ends the cloud if it is the command's own.
func (c *Connection) Close() error {
	err := c.Client.Close()
	if c.cloud != nil {
		err = errors.Join(err, c.cloud.Close())
	}
	return err
}

// AddLocalFlag adds --local to cmd.
func AddLocalFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "local", LocalByDefault(), "use the local cloud, without an account (E2BCTL_LOCAL=1)")
}

// LocalByDefault reports whether E2BCTL_LOCAL turns --local on.
func LocalByDefault() bool {
	switch strings.ToLower(os.Getenv("E2BCTL_LOCAL")) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}

// Opener connects a command to the service that it uses.
type Opener func(context.Context) (*Connection, error)

// Opener resolves --local: ifLocal when it is on, and the remote service
// otherwise. An address on the command line overrides E2BCTL_LOCAL and conflicts
// with the flag.
func (f *Factory) Opener(cmd *cobra.Command, isLocal bool, ifLocal Where) (Opener, error) {
	w := remote
	if isLocal {
		w = ifLocal
	}
	if f.flags.apiURL != "" || f.flags.domain != "" {
		if cmd.Flags().Changed("local") && isLocal {
			return nil, Usagef(cmd, "--local and an address (--api-url, --domain) exclude each other")
		}
		w = remote
	}
	return func(ctx context.Context) (*Connection, error) { return f.open(ctx, w) }, nil
}

// open connects to the service. It sends nothing to a remote one.
func (f *Factory) open(ctx context.Context, w Where) (*Connection, error) {
	options := f.ClientOptions()
	if w != remote {
		options = append(options, sandbox.WithEnvFile("")) // the file says nothing about the local cloud
	}
	var cloud *local.Cloud
	switch w {
	case remote:
	case LocalRunning, LocalStarting:
		record, err := f.runningLocalCloud(ctx, w == LocalStarting)
		if err != nil {
			return nil, err
		}
		options = append(options, record.Options()...)
	case LocalEphemeral:
		var err error
		if cloud, err = local.Start(ctx, local.WithLogger(f.Logger())); err != nil {
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
	return &Connection{Client: client, cloud: cloud}, nil
}

// autoIdle is how long a local cloud that `create --local` started keeps
// running after its last sandbox has ended.
const autoIdle = 10 * time.Minute

// runningLocalCloud finds the user's local cloud. If none is running and start
// is set, it starts one and says so.
func (f *Factory) runningLocalCloud(ctx context.Context, start bool) (localcloud.Record, error) {
	place, err := localcloud.Find()
	if err != nil {
		return localcloud.Record{}, err
	}
	record, err := place.Read()
	if !start || !errors.Is(err, localcloud.ErrNone) {
		return record, err
	}
	if !f.Quiet() {
		fmt.Fprintf(f.IO.Err, "starting a local cloud in the background; it ends %v after its last sandbox, or with e2bctl local down\n", autoIdle)
	}
	record, _, err = place.Background(ctx, 0, autoIdle)
	return record, err
}

// ClientOptions returns the options that the global flags set.
func (f *Factory) ClientOptions() []sandbox.Option {
	options := []sandbox.Option{sandbox.WithLogger(f.Logger()), sandbox.WithUserAgent("e2bctl")}
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

// Logger returns a logger that writes to stderr with -v and discards everything
// without it. The SDK keeps secrets out of its logs.
func (f *Factory) Logger() *slog.Logger {
	if !f.flags.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(f.IO.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
