package cmdutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// Where selects the service that a command uses.
type Where int

const (
	remote         Where = iota // the service that the flags and the environment name
	LocalRunning                // the local cloud that the user started with `local up`; an error if none is running
	LocalStarting               // the local cloud of `local up`, which is started if none is running
	LocalEphemeral              // a local cloud that ends with the command
)

// Connection is a client and, if the command has a local cloud of its own, that cloud.
type Connection struct {
	*sandbox.Client
	cloud *local.Cloud
}

// Close closes the client. It also ends the local cloud if that belongs to the command.
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
func LocalByDefault() bool { return isOn("E2BCTL_LOCAL") }

// isOn reports whether the value of an environment variable turns a flag on.
func isOn(variable string) bool {
	switch strings.ToLower(os.Getenv(variable)) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}

// Opener connects a command to its service.
type Opener func(context.Context) (*Connection, error)

// Opener returns a function that connects to the service of the command. With --local that is the
// service ifLocal, and otherwise the remote service. An address on the command line overrides
// E2BCTL_LOCAL, but an address together with the flag --local is an error. limits apply to a local
// cloud that the command starts. With any other service, limits that cannot apply to one sandbox are
// an error. limits may be nil.
func (f *Factory) Opener(cmd *cobra.Command, isLocal bool, ifLocal Where, limits *ResourceFlags) (Opener, error) {
	w, err := f.where(cmd, isLocal, ifLocal)
	if err != nil {
		return nil, err
	}
	if limits == nil {
		limits = &ResourceFlags{}
	}
	if flag := limits.firstOfCloud(); flag != nil && w == remote {
		if what := otherThanLimits[flag.Name]; what != "" {
			return nil, Usagef(cmd, "--%s is %s of the local cloud and needs --local", flag.Name, what)
		}
		return nil, Usagef(cmd, "--%s is a limit of the local cloud and needs --local; on a service the template decides what a sandbox has, so choose another template", flag.Name)
	}
	if limits.Engine() != "" && w == remote {
		return nil, Usagef(cmd, "--engine says what runs the sandboxes of the local cloud and needs --local")
	}
	limits.started = w == LocalEphemeral
	return func(ctx context.Context) (*Connection, error) { return f.open(ctx, w, limits) }, nil
}

// Connected adds --local to cmd, and makes cmd call run with a connection to its service.
// [Factory.Opener] resolves the service. The connection is closed after run.
func (f *Factory) Connected(cmd *cobra.Command, ifLocal Where, run func(ctx context.Context, conn *Connection, args []string) error) *cobra.Command {
	var isLocal bool
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		open, err := f.Opener(cmd, isLocal, ifLocal, nil)
		if err != nil {
			return err
		}
		conn, err := open(cmd.Context())
		if err != nil {
			return err
		}
		defer Closing(conn, &err)
		return run(cmd.Context(), conn, args)
	}
	AddLocalFlag(cmd, &isLocal)
	return cmd
}

// where returns the service that --local and the address select, for [Factory.Opener].
func (f *Factory) where(cmd *cobra.Command, isLocal bool, ifLocal Where) (Where, error) {
	switch {
	case !isLocal:
		return remote, nil
	case !f.hasAddress():
		return ifLocal, nil
	case cmd.Flags().Changed("local"):
		return remote, Usagef(cmd, "--local and an address (--api-url, --domain) exclude each other")
	}
	return remote, nil
}

// LacksKey reports whether the command cannot use a remote service because it has no key. It sends
// no request.
func (f *Factory) LacksKey() bool {
	client, err := sandbox.NewClient(f.ClientOptions()...)
	if err == nil {
		err = client.Close()
	}
	return errors.Is(err, api.ErrNoAPIKey)
}

// hasAddress reports whether the command line names a service.
func (f *Factory) hasAddress() bool { return f.flags.apiURL != "" || f.flags.domain != "" }

// open connects to the service. It sends no request to a remote service.
func (f *Factory) open(ctx context.Context, w Where, limits *ResourceFlags) (*Connection, error) {
	f.usesRunning = w == LocalRunning || w == LocalStarting
	options := f.ClientOptions()
	if w != remote {
		if _, err := os.Stat(f.flags.envFile); err != nil && f.flags.envFile != "" {
			return nil, fmt.Errorf("--env-file: %w", err)
		}
		options = append(options, sandbox.WithEnvFile("")) // the file is not about the local cloud
	}
	var cloud *local.Cloud
	switch w {
	case remote:
	case LocalRunning, LocalStarting:
		record, err := f.runningLocalCloud(ctx, w == LocalStarting, limits)
		if err != nil {
			return nil, err
		}
		options = append(options, record.Option())
	case LocalEphemeral:
		var err error
		if cloud, err = local.Start(ctx, append(limits.Options(), local.WithLogger(f.Logger()))...); err != nil {
			return nil, err
		}
		f.WarnOfIsolation(cloud.Report().IsolationNote)
		options = append(options, cloud.Option())
	}
	client, err := sandbox.NewClient(options...)
	if errors.Is(err, api.ErrNoAPIKey) {
		err = errNoKey
	}
	if err != nil {
		if cloud != nil {
			err = errors.Join(err, cloud.Close())
		}
		return nil, err
	}
	return &Connection{Client: client, cloud: cloud}, nil
}

// noKeyError matches [api.ErrNoAPIKey]. Its text is for users of the command.
type noKeyError struct{}

var errNoKey noKeyError

func (noKeyError) Error() string {
	return "no key: set " + api.EnvAPIKey + " for a service, or add --local for the local cloud of this machine"
}
func (noKeyError) Is(target error) bool { return target == api.ErrNoAPIKey }

// autoIdle is the time that a local cloud started by `create --local` keeps running after its
// last sandbox has ended.
const autoIdle = 10 * time.Minute

// runningLocalCloud finds the user's local cloud. If none is running and start is set, it starts
// one with these limits and prints a message about it.
func (f *Factory) runningLocalCloud(ctx context.Context, start bool, limits *ResourceFlags) (localcloud.Record, error) {
	place, err := localcloud.Find()
	if err != nil {
		return localcloud.Record{}, err
	}
	record, err := place.Read()
	if flag := limits.firstOfCloud(); err == nil && flag != nil {
		what := cmp.Or(otherThanLimits[flag.Name], "a limit")
		return record, fmt.Errorf("--%s is %s of all sandboxes of a local cloud, set when it starts: %w", flag.Name, what, &localcloud.ConflictError{URL: record.URL})
	}
	if engine := limits.Engine(); err == nil && engine != "" && engine != record.Engine {
		return record, fmt.Errorf("--engine %s is set when a local cloud starts, and this one has %s; with the template base-%s it has a sandbox of the other: %w",
			engine, record.Engine, engine, &localcloud.ConflictError{URL: record.URL})
	}
	if !start || !errors.Is(err, localcloud.ErrNone) {
		return record, err
	}
	if !f.Quiet() {
		fmt.Fprintf(f.IO.Err, "starting a local cloud in the background; it ends %v after its last sandbox, or with e2bctl local down\n", autoIdle)
	}
	record, _, err = place.Background(ctx, localcloud.Settings{Idle: autoIdle, Engine: limits.Engine(), Flags: limits.Arguments()})
	limits.started = err == nil
	f.WarnOfIsolation(record.IsolationNote)
	return record, err
}

// WarnOfIsolation writes one line to stderr about a local cloud whose isolation is less than
// full. Otherwise the user would notice only when something fails in a sandbox. If note is empty,
// WarnOfIsolation writes nothing.
func (f *Factory) WarnOfIsolation(note string) {
	if note != "" && !f.Quiet() {
		fmt.Fprintln(f.IO.Err, "isolation: "+Printable(note))
	}
}

// LocalCloudRuns reports whether the user's local cloud is running.
func (f *Factory) LocalCloudRuns() bool {
	_, err := f.localCloud()
	return err == nil
}

func (f *Factory) localCloud() (localcloud.Record, error) {
	place, err := localcloud.Find()
	if err != nil {
		return localcloud.Record{}, err
	}
	return place.Read()
}

// IsElsewhere reports whether the user's local cloud is running but is not the service of conn.
func (f *Factory) IsElsewhere(conn *Connection) bool {
	record, err := f.localCloud()
	return err == nil && record.URL != conn.API().BaseURL()
}

// UsesRunningLocalCloud reports whether the command's sandboxes belong to the user's local
// cloud.
func (f *Factory) UsesRunningLocalCloud() bool { return f.usesRunning }

// ClientOptions returns the client options that result from the global flags.
func (f *Factory) ClientOptions() []sandbox.ClientOption {
	options := []sandbox.ClientOption{sandbox.WithLogger(f.Logger()), sandbox.WithUserAgent("e2bctl")}
	options = append(options, f.tracing.Options()...)
	if f.Annotates() {
		options = append(options, sandbox.WithTransport(f.newMasking()))
	}
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

// Logger returns a logger that writes to stderr with -v and discards everything without it. The SDK
// logs no secrets.
func (f *Factory) Logger() *slog.Logger {
	if !f.flags.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(f.IO.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
