package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// logger is the name of the field that contains the source of a log entry.
const logger = "logger"

type logsOptions struct {
	IO      *cmdutil.IOStreams
	JSON    bool
	Open    cmdutil.Opener
	ID      string
	Since   since
	Level   logLevel
	Loggers []string
	Params  sandbox.LogParams
}

// NewCmdLogs returns e2bctl logs.
func NewCmdLogs(f *cmdutil.Factory) *cobra.Command {
	opts := &logsOptions{IO: f.IO, Level: logLevel(sandbox.LogInfo)}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "logs <id>",
		Short: "Show what happened to a sandbox",
		Long: `Show the log of a sandbox: what the service and its daemon inside say about it, not
what programs print. On the local cloud these are starts, pauses, snapshots and the
end; commands and kernels; and connections that were denied. The
logs of the 1,000 sandboxes that ended last are kept for an hour.

Entries of envd, process and kernel come from inside the sandbox, where code may make
them say anything.`,
		Example: `  e2bctl logs "$ID"
  e2bctl logs -f --level warn "$ID"
  e2bctl logs --since 10m --search kernel -o json "$ID"
  e2bctl logs --loggers network,kernel "$ID"`,
		Args: cmdutil.Wants("the ID of one sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.JSON(), args[0]
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return logsRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	f.AddFollowFlag(cmd, &opts.Params.Follow, "follow", "f", "go on until the sandbox has ended")
	flags.Var(&opts.Since, "since", "only entries from that time on, or so long ago (10m)")
	flags.IntVarP(&opts.Params.Tail, "tail", "n", 0, "only the newest `N` entries so far, at most 1000")
	flags.Var(&opts.Level, "level", "only entries at least as serious: debug, info, warn, error")
	flags.StringVar(&opts.Params.Search, "search", "", "only entries whose message contains this")
	flags.StringSliceVar(&opts.Loggers, "loggers", nil, "only entries of these `LOGGERS` (network,kernel); --tail counts the others, too")
	f.AddOfficialFormat(cmd, "")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func logsRun(ctx context.Context, opts *logsOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	opts.Params.From, opts.Params.Level = time.Time(opts.Since), sandbox.LogLevel(opts.Level)
	for entry, err := range conn.Logs(ctx, opts.ID, &opts.Params) {
		if err == nil && len(opts.Loggers) > 0 && !slices.Contains(opts.Loggers, entry.Fields[logger]) {
			continue
		}
		if err == nil {
			err = writeEntry(opts.IO.Out, entry, opts.JSON)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeEntry writes an entry as one line, even if its content has line breaks.
func writeEntry(w io.Writer, e sandbox.LogEntry, asJSON bool) error {
	if asJSON {
		return cmdutil.WriteJSONLine(w, e)
	}
	line := fmt.Sprintf("%s  %-5s  %-9s  %s", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), strings.ToUpper(string(e.Level)), e.Fields[logger], e.Message)
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		if name != logger {
			line += "  " + name + "=" + fieldText(e.Fields[name])
		}
	}
	_, err := fmt.Fprintln(w, cmdutil.Printable(strings.ReplaceAll(line, "\n", `\n`)))
	return err
}

// fieldText returns the value of a field. It quotes a value whose end would not be visible
// otherwise.
func fieldText(value string) string {
	if value == "" || strings.ContainsAny(value, " =\"\n\t") {
		return strconv.Quote(value)
	}
	return value
}

// logLevel is a flag value that accepts a level of a log.
type logLevel sandbox.LogLevel

func (l *logLevel) Type() string   { return "debug|info|warn|error" }
func (l *logLevel) String() string { return string(*l) }

func (l *logLevel) Set(value string) error {
	switch level := sandbox.LogLevel(strings.ToLower(value)); level {
	case sandbox.LogDebug, sandbox.LogInfo, sandbox.LogWarn, sandbox.LogError:
		*l = logLevel(level)
		return nil
	}
	return errors.New("want debug, info, warn or error")
}
