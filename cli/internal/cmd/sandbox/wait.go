package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type waitOptions struct {
	IO      *cmdutil.IOStreams
	JSON    bool
	Open    cmdutil.Opener
	ID      string
	For     []string
	Timeout cmdutil.Duration
	states  []sandbox.SandboxState // states to wait for, in this order; stateStopped is not a state of the service
	ports   []int
	files   []string
}

// stateStopped is the state of a sandbox that has ended. The service has no such state.
const stateStopped sandbox.SandboxState = "stopped"

// NewCmdWait returns e2bctl wait.
func NewCmdWait(f *cmdutil.Factory) *cobra.Command {
	opts := &waitOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "wait <id>",
		Short: "Wait until a sandbox runs, has ended, serves a port or has a file",
		Long: `Wait for conditions of a sandbox, and print its ID when all of them were seen:

  running, paused    its state
  stopped            it has ended
  port=N             a server listens on the port
  file=PATH          there is a file or directory, relative to the user's home

A sandbox that is paused is not resumed: port= and file= wait until somebody else does,
and keep it alive from then on, as e2bctl exec does. If it ends, the status is 3, unless
that was waited for; when --timeout is over, it is 7.`,
		Example: `  e2bctl wait "$ID" --for port=8080 --timeout 1m && curl "$(e2bctl url "$ID" 8080)"
  e2bctl wait "$ID" --for file=done.txt
  e2bctl wait "$ID" --for stopped`,
		Args: cmdutil.Wants("the ID of one sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.ID = f.JSON(), args[0]
			for _, condition := range opts.For {
				if err := opts.add(condition); err != nil {
					return cmdutil.Usagef(cmd, "--for %s: %w", condition, err)
				}
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return waitRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&opts.For, "for", []string{"running"}, "wait for this `CONDITION`, repeatable")
	flags.Var(&opts.Timeout, "timeout", "give up after this time")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

var errCondition = errors.New("want running, paused, stopped, port=N or file=PATH")

// add adds a condition.
func (o *waitOptions) add(condition string) error {
	kind, value, valued := strings.Cut(condition, "=")
	switch {
	case kind == "port" && valued:
		port, err := parsePort(value)
		if err != nil {
			return errors.New("want a port, a number from 1 to 65535")
		}
		o.ports = append(o.ports, port)
	case kind == "file" && value != "":
		o.files = append(o.files, value)
	case condition == string(sandbox.StateRunning), condition == string(sandbox.StatePaused), condition == string(stateStopped):
		o.states = append(o.states, sandbox.SandboxState(condition))
	default:
		return errCondition
	}
	return nil
}

// waitView contains the conditions that were met, as -o json shows them.
type waitView struct {
	SandboxID string   `json:"sandboxID"`
	For       []string `json:"for"`
}

func waitRun(ctx context.Context, opts *waitOptions) (err error) {
	ctx, cancel := cmdutil.WithLimit(ctx, "timeout", opts.Timeout)
	defer cancel()
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	for _, state := range opts.states {
		if err := awaitState(ctx, conn, opts.ID, state); err != nil {
			return err
		}
	}
	if len(opts.ports)+len(opts.files) > 0 {
		if err := opts.awaitInside(ctx, conn); err != nil {
			return err
		}
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, waitView{opts.ID, opts.For})
	}
	_, err = fmt.Fprintln(opts.IO.Out, cmdutil.Printable(opts.ID))
	return err
}

// waitEvery is the interval between checks of a condition.
const waitEvery = 250 * time.Millisecond

// poll calls done until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(waitEvery)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// awaitState waits until a sandbox is in the given state.
func awaitState(ctx context.Context, conn *cmdutil.Connection, id string, state sandbox.SandboxState) error {
	return poll(ctx, func() (bool, error) {
		info, err := conn.Info(ctx, id)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case state == stateStopped && errors.Is(err, sandbox.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		}
		return info.State == state, nil
	})
}

// awaitInside waits for the ports and files.
func (o *waitOptions) awaitInside(ctx context.Context, conn *cmdutil.Connection) (err error) {
	if err := awaitState(ctx, conn, o.ID, sandbox.StateRunning); err != nil {
		return err
	}
	sb, err := conn.Connect(ctx, o.ID, sandbox.WithExpiry(sandbox.Expiry{Renew: true}))
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err)
	defer func() { err = ended(err) }()
	for _, port := range o.ports {
		if err := sb.WaitPort(ctx, port); err != nil {
			return inTime(ctx, err)
		}
	}
	for _, file := range o.files {
		err := poll(ctx, func() (bool, error) {
			ok, err := sb.Files.Exists(ctx, file, nil)
			return ok, inTime(ctx, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inTime returns err. If err is not nil and ctx has ended, inTime returns the cause of that end
// instead, because the cause names the flag that set the time limit.
func inTime(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
