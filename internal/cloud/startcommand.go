package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// Bounds for waiting until a template's ready command succeeds in a sandbox: the deadline, and the
// interval between two runs of the command.
const (
	readyDeadline    = 30 * time.Second
	minReadyInterval = 20 * time.Millisecond
	maxReadyInterval = time.Second
)

// begin runs the start command of the sandbox's template. It waits until the ready command
// succeeds, or until the deadline. The sandbox is used even if these commands fail. If a failure
// ended the sandbox, a sandbox whose code broke the commands could not be resumed.
func (r *reachable) begin(ctx context.Context, spec lifecycle.Spec) error {
	if spec.Template.Start == "" {
		return nil
	}
	client := envdclient.New(r.Dial, spec.AccessToken)
	defer client.Close()
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended, err := client.Start(waiting, envdclient.Shell(spec.Template.Start))
	// A ready command that only sleeps is skipped: its duration was not measured on this
	// machine.
	if ready := spec.Template.Ready; err == nil && ready != "" && !envdclient.OnlySleeps(ready) {
		go func() {
			// A start command that succeeds may have started a server in the background, so the
			// wait continues.
			if failed, ok := errors.AsType[*envdclient.ExitError](<-ended); ok {
				cancel(failed)
			}
		}()
		err = untilReady(waiting, r.Done(), func(ctx context.Context) error { return client.Run(ctx, envdclient.Check(ready)) })
		if err != nil && waiting.Err() != nil {
			err = fmt.Errorf("the start command failed: %w", context.Cause(waiting))
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.Err() != nil:
		return fmt.Errorf("it ended while it ran the start command of its template: %w", r.Err())
	case err != nil:
		r.cloud.options.Logger.WarnContext(ctx, "the start command of the template failed, or was not ready in time: the sandbox is used as it is", "sandbox", spec.ID, "error", err)
	}
	return nil
}

// untilReady repeats check until it succeeds. At the deadline of ctx, or when gone is closed,
// it returns the error of the last check.
func untilReady(ctx context.Context, gone <-chan struct{}, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	for interval := minReadyInterval; ; interval = min(2*interval, maxReadyInterval) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(interval):
		case <-gone:
			return err
		case <-ctx.Done():
			return err
		}
	}
}
