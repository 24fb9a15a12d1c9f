package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"

	detach "github.com/moby/term"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/shell"
	"github.com/e2bctl/e2bctl/sandbox"
)

type connectOptions struct {
	IO         *cmdutil.IOStreams
	Progress   io.Writer
	Open       cmdutil.Opener
	ID         string                  // the ID of the sandbox; "": a new sandbox
	New        cmdutil.NewSandboxFlags // the flags for the new sandbox, if ID is ""
	Remove     bool                    // kill the new sandbox at the end
	Process    processFlags
	Shell      string // the shell to start; "": bash
	PID        int    // the process whose terminal is opened again; 0 means that a shell is started
	DetachKeys []byte
}

// NewCmdConnect returns e2bctl connect.
func NewCmdConnect(f *cmdutil.Factory) *cobra.Command {
	opts := &connectOptions{IO: f.IO}
	var isLocal bool
	var detachKeys string
	cmd := &cobra.Command{
		Use:        "connect [flags] (<id> | --new <template>)",
		Aliases:    []string{"shell", "attach", "cn"},
		SuggestFor: []string{"ssh", "terminal"},
		Short:      "Open a shell of a sandbox in this terminal",
		Long: `Open a shell of a sandbox in this terminal, and return its status. A sandbox that is
paused is resumed, and it is kept alive meanwhile. With --new, a sandbox is created.

The sandbox is kept when the shell ends, and lives until its lifetime is over. The
detach keys leave the shell, too, and it goes on, as it does when this terminal is
closed: connect --pid comes back to it, also to a terminal that exec -t has opened.
With --new and --rm, the sandbox is killed in each of these cases.

Detach keys are characters, or ctrl- and one of a to z, @ [ \ ] ^ _, with commas
between them. The first of them reaches the shell when the next key shows that it
was meant. All other keys, such as Ctrl-C, are for the program in the sandbox.`,
		Example: `  e2bctl connect "$ID"
  e2bctl connect --new code-interpreter-v1 --rm
  e2bctl connect -u root -w /etc --shell sh "$ID"
  e2bctl connect --pid 42 "$ID"`,
		Args: cmdutil.Wants("the ID of a sandbox, or --new and a template", cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Progress = f.Progress()
			if len(args) == 1 {
				opts.ID = args[0]
			}
			if err := opts.check(cmd, f); err != nil {
				return err
			}
			if opts.DetachKeys, err = parseDetachKeys(detachKeys); err != nil {
				return cmdutil.Usagef(cmd, "--detach-keys %s: %w", detachKeys, err)
			}
			switch {
			case opts.ID != "":
				opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID)
			case opts.Remove:
				opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalEphemeral, &opts.New.Resources)
			default:
				opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalStarting, &opts.New.Resources)
			}
			if err != nil {
				return err
			}
			return cmdutil.OwnFailure(connectRun(cmd.Context(), opts))
		},
	}
	opts.New.AddNew(cmd, "with --new, how long the sandbox lives (default 5m)")
	opts.Process.addStart(cmd)
	flags := cmd.Flags()
	cmdutil.AddOfficialName(cmd, "workdir", "cwd", "c")
	flags.StringVar(&opts.Shell, "shell", "", "run `PROGRAM`, a name or a path (default bash)")
	flags.IntVar(&opts.PID, "pid", 0, "come back to the terminal of process `N`")
	flags.StringVar(&detachKeys, "detach-keys", "ctrl-p,ctrl-q", "these `KEYS` leave the shell; '' for none")
	flags.BoolVar(&opts.Remove, "rm", false, "with --new, kill the sandbox at the end")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	for _, name := range []string{"workdir", "cwd", "env", "shell", "new"} {
		cmd.MarkFlagsMutuallyExclusive("pid", name) // a terminal that is there has them already
	}
	return cmd
}

// check refuses flags that contradict each other, and standard streams that are not a terminal.
func (o *connectOptions) check(cmd *cobra.Command, f *cmdutil.Factory) error {
	isNew := cmd.Flags().Changed("new")
	switch {
	case isNew == (o.ID != ""):
		return cmdutil.Usagef(cmd, "want one of: the ID of a sandbox, --new and a template")
	case o.ID != "" && o.New.Changed() != "":
		return cmdutil.Usagef(cmd, "--%s needs --new: the sandbox already exists", o.New.Changed())
	case o.ID != "" && o.Remove:
		return cmdutil.Usagef(cmd, "--rm needs --new: e2bctl kill ends a sandbox that exists already")
	case cmd.Flags().Changed("pid") && o.PID < 1:
		return cmdutil.Usagef(cmd, "--pid %d: want the number of a process, from 1 on", o.PID)
	case f.JSON():
		return cmdutil.Usagef(cmd, "connect and -o json exclude each other: a terminal shows its output")
	case !f.IO.InIsTerminal && o.ID != "":
		return cmdutil.Usagef(cmd, "connect needs a terminal as standard input; e2bctl exec %s -- <command> works without one", cmdutil.Printable(o.ID))
	case !f.IO.InIsTerminal:
		return cmdutil.Usagef(cmd, "connect needs a terminal as standard input; e2bctl create and e2bctl exec <id> -- <command> work without one")
	}
	return nil
}

// parseDetachKeys parses detach keys in the syntax of docker. An empty text means no keys.
func parseDetachKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	keys, err := detach.ToBytes(text)
	if err != nil {
		return nil, errors.New("want characters, or ctrl- and one of a to z, @ [ \\ ] ^ _, with commas between them")
	}
	return keys, nil
}

func connectRun(ctx context.Context, opts *connectOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	id, end, err := opts.sandbox(ctx, conn)
	if err != nil {
		return err
	}
	defer func() { err = cmdutil.KeepStatus(err, end()) }()
	// A handle that connects also keeps a new sandbox alive beyond its lifetime.
	sb, err := conn.Connect(ctx, id, sandbox.WithExpiry(sandbox.Expiry{Renew: true}))
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err) // connected to, not created here: it keeps running
	if err := opts.New.Install(ctx, sb, opts.Progress); err != nil {
		return err
	}
	return opts.session(ctx, sb)
}

// sandbox returns the sandbox to connect to. If the command line names no sandbox, it creates one,
// and end closes the handle of the created sandbox. With --rm, closing the handle kills the
// sandbox. Otherwise the sandbox keeps running.
func (o *connectOptions) sandbox(ctx context.Context, conn *cmdutil.Connection) (id string, end func() error, err error) {
	if o.ID != "" {
		return o.ID, func() error { return nil }, nil
	}
	if o.New.Lifetime == 0 && !o.Remove {
		o.New.Lifetime = cmdutil.Duration(defaultLifetime)
	}
	created, err := o.New.Create(ctx, conn)
	if err != nil {
		return "", nil, err
	}
	fmt.Fprintf(o.Progress, "sandbox %s\n", cmdutil.Printable(created.ID()))
	if o.Remove {
		return created.ID(), created.Close, nil
	}
	return created.ID(), created.Detach, nil
}

// session shows the shell until the shell ends or the user detaches from it. Then session prints
// the commands by which the user can return to the sandbox or kill it.
func (o *connectOptions) session(ctx context.Context, sb *sandbox.Sandbox) error {
	pid := 0
	session := terminalSession{IO: o.IO, DetachKeys: o.DetachKeys, Keep: true, Open: func(ctx context.Context, cols, rows int) (*sandbox.Terminal, error) {
		terminal, err := o.open(ctx, sb, cols, rows)
		if err == nil {
			pid = terminal.PID()
		}
		return terminal, err
	}}
	err := session.run(ctx)
	_, ended := errors.AsType[cmdutil.RemoteStatus](err)
	switch {
	case o.Remove, pid == 0, errors.Is(err, sandbox.ErrGone): // nothing to come back to
	case err == nil, ended:
		o.tellHowToReturn(sb.ID(), "")
	default:
		o.tellHowToReturn(sb.ID(), fmt.Sprintf("--pid %d ", pid))
	}
	if errors.Is(err, errLeft) {
		return nil
	}
	return err
}

// open starts a shell in a new terminal, or opens the terminal of the process PID.
func (o *connectOptions) open(ctx context.Context, sb *sandbox.Sandbox, cols, rows int) (*sandbox.Terminal, error) {
	if o.PID == 0 {
		params := &sandbox.PTYParams{Cols: cols, Rows: rows, User: o.Process.User, Cwd: o.Process.Cwd, Envs: o.Process.Envs}
		if o.Shell != "" {
			params.Command = "exec " + shell.Quote(o.Shell)
		}
		return sb.PTY.Open(ctx, params)
	}
	terminal, err := sb.PTY.Connect(ctx, sandbox.ByPID(o.PID), &sandbox.PTYConnectParams{User: o.Process.User})
	if err != nil || cols == 0 {
		return terminal, err
	}
	// A program shows its screen again when the size changes.
	for _, height := range []int{rows + 1, rows} {
		if err := terminal.Resize(ctx, cols, height); err != nil {
			terminal.Disconnect()
			return nil, err
		}
	}
	return terminal, nil
}

// tellHowToReturn prints how to return to a sandbox that keeps running. If a shell is still running
// in the sandbox, flags are the flags of the printed command that select this shell.
func (o *connectOptions) tellHowToReturn(id, flags string) {
	id = cmdutil.Printable(id)
	left := "sandbox " + id + " is kept"
	if flags != "" {
		left = "the shell goes on in sandbox " + id
	}
	fmt.Fprintf(o.Progress, "%s\n  e2bctl connect %s%s comes back\n  e2bctl kill %s ends it\n", left, flags, id, id)
}
