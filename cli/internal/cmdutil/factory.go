// Package cmdutil contains the shared parts of the commands of e2bctl: the Factory that creates
// their dependencies, streams, output, flag values, and the errors that determine the exit status.
package cmdutil

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/cli/internal/tracing"
)

// Factory creates the dependencies of commands only when a command needs them. A command that only
// prints its version thus reads no key and opens no connection.
type Factory struct {
	IO *IOStreams

	// flags are the global flags, filled in before a command runs.
	flags globalFlags

	// tracing reports the command to a collector of traces. It is nil when the environment names no
	// collector.
	tracing *tracing.Tracing

	// describe returns an error as -o json shows it.
	describe func(error) ErrorView

	// usesRunning means that the service in use is the user's local cloud.
	usesRunning bool
}

type globalFlags struct {
	output    outputFormat
	jq        jqFilter
	noHeaders bool
	quiet     bool
	verbose   bool
	annotate  bool
	envFile   string
	noEnvFile bool
	apiURL    string
	domain    string
}

// NewFactory returns a Factory for one run of e2bctl. describe returns an error as -o json
// shows it.
func NewFactory(ios *IOStreams, describe func(error) ErrorView) *Factory {
	return &Factory{IO: ios, flags: globalFlags{output: outputTable}, describe: describe}
}

// AddFlags adds the global flags to the root command.
func (f *Factory) AddFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.VarP(&f.flags.output, "output", "o", "output format")
	flags.Var(&f.flags.jq, "jq", "print what this jq expression makes of the JSON")
	flags.BoolVar(&f.flags.noHeaders, "no-headers", false, "print tables without their header, each row on one line")
	flags.BoolVarP(&f.flags.quiet, "quiet", "q", false, "print IDs only, and no progress")
	flags.BoolVarP(&f.flags.verbose, "verbose", "v", false, "log requests on stderr, without secrets")
	flags.BoolVar(&f.flags.annotate, "annotate", isOn("E2BCTL_ANNOTATE"), "in GitHub Actions, show errors above the log, too\n(E2BCTL_ANNOTATE=1); elsewhere it does nothing")
	flags.StringVar(&f.flags.envFile, "env-file", "", "read E2B_* from `FILE` instead of ./.env")
	flags.BoolVar(&f.flags.noEnvFile, "no-env-file", false, "read no .env file")
	flags.StringVar(&f.flags.apiURL, "api-url", "", "use the API at `URL` (E2B_API_URL)")
	flags.StringVar(&f.flags.domain, "domain", "", "use the service of the domain `NAME` (E2B_DOMAIN)")
	root.MarkFlagsMutuallyExclusive("env-file", "no-env-file")
}

// ReadOutputFlag reads -o and --annotate from a command line that cannot be parsed. It finds these
// flags even behind the part that cannot be parsed.
func (f *Factory) ReadOutputFlag(args []string) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.VarP(&f.flags.output, "output", "o", "")
	flags.Var(&f.flags.jq, "jq", "")
	flags.BoolVar(&f.flags.annotate, "annotate", f.flags.annotate, "")
	_ = flags.Parse(args) // the mistake is known
	if f.flags.jq.code != nil && !flags.Changed("output") {
		f.flags.output = outputJSON
	}
}

// Trace begins the report about a command, if the environment names a collector of traces. It
// returns the context for the command.
func (f *Factory) Trace(ctx context.Context, command string) context.Context {
	ctx, traced, err := tracing.Start(ctx, command, f.Logger())
	if err != nil && !f.Quiet() {
		fmt.Fprintf(f.IO.Err, "e2bctl: %s\n", Message(err))
	}
	f.tracing = traced
	return ctx
}

// EndTrace ends the report that Trace began. It takes at most a second.
func (f *Factory) EndTrace(status int) { f.tracing.End(status) }

// JSON reports whether results go to [WriteJSON]. With -o name, WriteJSON writes only their names.
func (f *Factory) JSON() bool { return f.JSONErrors() || f.flags.output == outputName }

// JSONErrors reports whether errors are written as JSON.
func (f *Factory) JSONErrors() bool {
	return f.flags.output == outputJSON || f.flags.output == outputLines
}

// JSONLines reports whether each result is a line of JSON.
func (f *Factory) JSONLines() bool { return f.flags.output == outputLines }

// Wide reports whether tables are written with all of their columns.
func (f *Factory) Wide() bool { return f.flags.output == outputWide }

// Quiet reports whether results are reduced to IDs and progress is left out.
func (f *Factory) Quiet() bool { return f.flags.quiet }

// Verbose reports whether requests are logged.
func (f *Factory) Verbose() bool { return f.flags.verbose }

// Progress returns the writer for progress. With [Factory.Quiet] that writer discards the progress,
// and otherwise it is standard error.
func (f *Factory) Progress() io.Writer {
	if f.Quiet() {
		return io.Discard
	}
	return f.IO.Err
}
