package sandbox

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// target is a sandbox that a command handles, together with the service that has the sandbox. err is
// the command's error for this sandbox.
type target struct {
	id   string
	conn *cmdutil.Connection
	err  error
}

// namedTargets returns the sandboxes of the command line. If an ID is repeated, its sandbox is
// returned once.
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

// parallel limits the sandboxes that a command handles at the same time.
const parallel = 10

// forEach calls do for all targets that have not failed yet.
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

// outcomes returns the result of the command for each of the targets.
func outcomes(targets []*target) []cmdutil.Outcome {
	all := make([]cmdutil.Outcome, len(targets))
	for i, t := range targets {
		all[i] = cmdutil.Outcome{Name: t.id, Err: t.err}
	}
	return all
}

// failedView is a sandbox for which a command failed, as -o json shows it.
type failedView struct {
	SandboxID string             `json:"sandboxID"`
	Error     *cmdutil.ErrorView `json:"error"`
}

// reportViews reports the results for the targets. With -o json it prints a list of the sandboxes
// in their present state.
func reportViews(ctx context.Context, f *cmdutil.Factory, targets []*target) error {
	if !f.JSON() {
		return f.Report(outcomes(targets))
	}
	views := make([]any, len(targets))
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
	for i, t := range targets {
		if t.err != nil {
			views[i] = failedView{t.id, f.ErrorView(t.err)}
		}
	}
	if err := cmdutil.WriteJSON(f.IO.Out, views); err != nil {
		return err
	}
	return f.Failures(outcomes(targets))
}
