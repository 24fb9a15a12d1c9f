//go:build linux

package cloud

import (
	"context"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// Bounds of the wait for what a template runs in its sandboxes.
const (
	readyDeadline    = 30 * time.Second
	minReadyInterval = 20 * time.Millisecond
	maxReadyInterval = time.Second
)

// onlySleeps matches a command that waits for nothing: here the wait would be in vain, since
// what it is for was not measured on this machine.
var onlySleeps = lazyregexp.New(`^\s*sleep\s+[0-9.]+[smhd]?\s*$`)

// begin runs the start command of the sandbox's template, and waits until its ready command
// succeeds, or for so long that there is no point in waiting further.
func (r *reachable) begin(ctx context.Context, spec lifecycle.Spec) error {
	start, ready := spec.Template.Start, spec.Template.Ready
	if start == "" {
		return nil
	}
	client := envdclient.New(r.Dial, spec.AccessToken)
	defer client.Close()
	if err := client.Start(ctx, envdclient.Shell(start)); err != nil {
		return fmt.Errorf("the start command of the template: %w", err)
	}
	if ready == "" || onlySleeps().MatchString(ready) {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	for interval := minReadyInterval; ; interval = min(2*interval, maxReadyInterval) {
		err := client.Run(bounded, envdclient.Shell(ready))
		if err == nil {
			return nil
		}
		select {
		case <-time.After(interval):
			continue
		case <-r.Done():
			return fmt.Errorf("it ended before the ready command of the template succeeded: %w", r.Err())
		case <-bounded.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.cloud.options.Logger.WarnContext(ctx, "the ready command of the template did not succeed in time: the sandbox is used as it is", "sandbox", spec.ID, "after", readyDeadline, "error", err)
		return nil
	}
}
