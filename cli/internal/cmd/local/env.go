package local

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/shell"
)

type envOptions struct {
	IO    *cmdutil.IOStreams
	JSON  bool
	State string
	Mask  func(secret string)
}

func newCmdEnv(f *cmdutil.Factory) *cobra.Command {
	opts := &envOptions{IO: f.IO, Mask: f.Mask}
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print the variables that point any E2B SDK at the local cloud",
		Long: `Print shell lines that make every E2B SDK, in any language, use the running local
cloud of this user. E2B_API_KEY and E2B_DOMAIN are enough for https, with
SSL_CERT_FILE (Python, Go, curl), REQUESTS_CA_BUNDLE (Python's requests) and
NODE_EXTRA_CA_CERTS (Node): files with the certificates that were trusted when the
cloud started, and its own. E2B_API_URL, E2B_SANDBOX_URL and E2B_VOLUME_API_URL lead
to the same port without TLS; SDKs prefer them. --state-dir chooses the one with that
state directory, which may run beside another one.`,
		Example: `  eval "$(e2bctl local env)"
  python agent.py
  eval "$(e2bctl local env)"; unset E2B_API_URL E2B_SANDBOX_URL E2B_VOLUME_API_URL   # https`,
		Args: cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) (err error) {
			opts.JSON = f.JSON()
			if opts.State, err = absolute(opts.State); err != nil {
				return err
			}
			return envRun(opts)
		},
	}
	addStateDir(cmd, &opts.State)
	return cmd
}

func envRun(opts *envOptions) error {
	place, err := localcloud.FindFor(opts.State)
	if err != nil {
		return err
	}
	record, err := place.Read()
	if err == nil && opts.State != "" && record.State != opts.State {
		err = fmt.Errorf("%s: %w", opts.State, localcloud.ErrNone)
	}
	if err != nil {
		return err
	}
	opts.Mask(record.Key)
	if opts.JSON {
		variables := make(map[string]string, len(record.Env))
		for _, pair := range record.Env {
			name, value, _ := strings.Cut(pair, "=")
			variables[name] = value
		}
		return cmdutil.WriteJSON(opts.IO.Out, variables)
	}
	return writeExports(opts.IO.Out, record)
}

// writeExports writes lines for a POSIX shell.
func writeExports(w io.Writer, record localcloud.Record) error {
	var lines strings.Builder
	for _, pair := range record.Env {
		name, value, _ := strings.Cut(pair, "=")
		fmt.Fprintf(&lines, "export %s=%s\n", name, shell.Quote(value))
	}
	_, err := io.WriteString(w, lines.String())
	return err
}
