package proc

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// ending is a flag value that accepts the signals that a service can send to a process.
type ending syscall.Signal

func (e *ending) Type() string { return "KILL|TERM" }

func (e *ending) String() string {
	if *e == ending(syscall.SIGTERM) {
		return "TERM"
	}
	return "KILL"
}

func (e *ending) Set(value string) error {
	switch strings.TrimPrefix(strings.ToUpper(value), "SIG") {
	case "KILL", "9":
		*e = ending(syscall.SIGKILL)
	case "TERM", "15":
		*e = ending(syscall.SIGTERM)
	default:
		return errors.New("sandboxes take KILL and TERM only; others can be sent from inside: e2bctl exec <id> -- kill -s <signal> <pid>")
	}
	return nil
}

func newCmdKill(f *cmdutil.Factory) *cobra.Command {
	signal := ending(syscall.SIGKILL)
	cmd := command(f, &cobra.Command{
		Use:   "kill <id> <pid>...",
		Short: "End processes of a sandbox",
		Long: `End processes that e2bctl proc ls shows: at once, or with --signal TERM by asking
them. The numbers of the processes that got the signal are printed. If a process does
not exist, the status is 3; if others got the signal, it is 8.`,
		Example: `  e2bctl proc kill "$ID" 42
  e2bctl proc ls -q "$ID" | xargs e2bctl proc kill --signal TERM "$ID"`,
		Args: wants("the ID of a sandbox and numbers of processes", 1, 1<<20),
	}, func(ctx context.Context, sb *sandbox.Sandbox, pids []string) error {
		return f.EachNamed(pids, func(name string) error {
			pid, err := parsePID(name)
			if err != nil {
				return err
			}
			return sb.Commands.Kill(ctx, sandbox.ByPID(pid), &sandbox.CommandKillParams{Signal: syscall.Signal(signal)})
		})
	})
	cmd.Flags().VarP(&signal, "signal", "s", "send this signal: KILL or TERM")
	return cmd
}
