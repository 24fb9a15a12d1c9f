package cloud

import (
	"context"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// adopt takes over the sandboxes that other servers left with the cloud's own engine. After that it
// also takes over the sandboxes that other servers make while this cloud runs.
func (c *Cloud) adopt(ctx context.Context) error {
	own := c.ownEngine()
	by, adopts := own.(engine.Adopter)
	if !adopts {
		return nil
	}
	report, life := own.Report(), c.life
	return by.Adopt(ctx, func(f engine.Found) {
		err := c.sandboxes.Adopt(f.ID, f.Record, func(spec lifecycle.Spec) (lifecycle.Lasting, error) {
			return c.adoptOne(life, f, spec, report)
		})
		if err != nil && !errors.Is(err, lifecycle.ErrClosed) {
			c.options.Logger.WarnContext(life, "a sandbox of another server cannot be adopted, and is left alone", "sandbox", f.ID, "error", err)
		}
	})
}

// idOf returns the id of the sandbox that a request with an idempotency key makes, or "" if the cloud's
// own engine does not choose it.
func (c *Cloud) idOf(key string) string {
	if by, adopts := c.ownEngine().(engine.Adopter); adopts {
		return by.IDOf(key)
	}
	return ""
}

func (c *Cloud) adoptOne(ctx context.Context, f engine.Found, spec lifecycle.Spec, report engine.Report) (lifecycle.Lasting, error) {
	c.telemetry.Open(spec.ID)
	sandbox, err := f.Open(engine.SandboxOptions{
		ID: spec.ID, Config: c.config(spec, report),
		Tell: func(line []byte) { c.telemetry.Inside(spec.ID, line) },
	})
	if err != nil {
		return nil, err
	}
	r := c.reach(spec, sandbox, report)
	r.denials, r.release = c.newDenials(ctx, spec.ID), func() {}
	l := &lasting{r, sandbox}
	if f.Record.Paused {
		l.Follow(true)
	}
	return l, nil
}

// lasting is a reachable sandbox that can outlive the cloud.
type lasting struct {
	*reachable

	kept engine.Lasting // the same sandbox
}

var _ lifecycle.Lasting = (*lasting)(nil)

// instance returns the sandbox in the form for the registry.
func (r *reachable) instance() lifecycle.Instance {
	if kept, lasts := r.Sandbox.(engine.Lasting); lasts {
		return &lasting{r, kept}
	}
	return r
}

// Keep stores the record of the sandbox.
func (l *lasting) Keep(ctx context.Context, r engine.Record) error {
	err := l.kept.Keep(ctx, r)
	if errors.Is(err, engine.ErrTooLarge) {
		return &lifecycle.RefusedError{Reason: fmt.Sprintf("envVars and metadata are too large together: %v", err)}
	}
	return err
}

// Kept returns the stored record, and a channel that is closed when another server changes it.
func (l *lasting) Kept() (engine.Record, <-chan struct{}) { return l.kept.Kept() }

// Follow makes the sandbox unreachable or reachable, because another server has paused or resumed it.
func (l *lasting) Follow(paused bool) {
	if paused {
		l.cloud.router.Pause(l.id)
		l.cloud.telemetry.Rest(l.id)
		return
	}
	l.run()
}

// Leave makes the sandbox unreachable. The sandbox continues to run without the cloud.
func (l *lasting) Leave() error { return l.leave(l.kept.Leave) }
