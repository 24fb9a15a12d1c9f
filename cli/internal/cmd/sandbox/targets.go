package sandbox

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// target is a sandbox that a command acts on and the service that has it; err says
// why the command failed for it.
type target struct {
	id   string
	conn *cmdutil.Connection
	err  error
}

// namedTargets are the sandboxes of the command line, each once however often it is
// named.
func namedTargets(ctx context.Context, find *cmdutil.Services, ids []string) (targets []*target) {
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			continue
		}
		conn, err := find.Of(ctx, id)
		targets = append(targets, &target{id: id, conn: conn, err: err})
	}
	return targets
}

// parallel is how many sandboxes are acted on at a time.
const parallel = 10

// forEach does the same to all targets that have not failed yet.
func forEach(targets []*target, do func(*target) error) {
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, t := range targets {
		if t.err == nil {
			group.Go(func() error {
				t.err = do(t)
				return nil
			})
		}
	}
	_ = group.Wait() // errors are in targets
}

// report prints the IDs of targets that did not fail, and returns the error of the
// command. Where there are several, why one failed goes to stderr.
func report(ios *cmdutil.IOStreams, targets []*target) error {
	for _, t := range targets {
		if t.err == nil {
			fmt.Fprintln(ios.Out, cmdutil.Printable(t.id))
		}
	}
	return failures(ios, targets)
}

func failures(ios *cmdutil.IOStreams, targets []*target) error {
	if len(targets) == 1 {
		return targets[0].err
	}
	failed := 0
	for _, t := range targets {
		if t.err != nil {
			failed++
			fmt.Fprintf(ios.Err, "%s: %s\n", cmdutil.Printable(t.id), cmdutil.Message(t.err))
		}
	}
	if failed == 0 {
		return nil
	}
	return &cmdutil.PartialError{Failed: failed, Total: len(targets)}
}

// reportViews is report, with -o json as a list of what the sandboxes are now.
func reportViews(ctx context.Context, ios *cmdutil.IOStreams, asJSON bool, targets []*target) error {
	if !asJSON {
		return report(ios, targets)
	}
	views := make([]sandboxView, len(targets))
	index := make(map[*target]int, len(targets))
	for i, t := range targets {
		index[t] = i
	}
	forEach(targets, func(t *target) error {
		info, err := t.conn.Info(ctx, t.id)
		if err == nil {
			views[index[t]] = viewOf(info)
		}
		return err
	})
	views = slices.DeleteFunc(views, func(v sandboxView) bool { return v.SandboxID == "" })
	if err := cmdutil.WriteJSON(ios.Out, views); err != nil {
		return err
	}
	return failures(ios, targets)
}
