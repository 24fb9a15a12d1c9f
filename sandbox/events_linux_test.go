package sandbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestEvents checks that a reader who follows receives each event of a sandbox once, and that the
// newest ones can be read afterwards.
func TestEvents(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	sb := cloud.Create(t, sandbox.WithInternet(false))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	come := make(chan sandbox.Event, 100)
	ended := make(chan error, 1)
	go func() {
		for e, err := range client.Events(ctx, &sandbox.EventsParams{SandboxID: sb.ID(), Follow: true}) {
			if err != nil {
				ended <- err
				return
			}
			come <- e
		}
	}()
	next := func(want sandbox.EventType) sandbox.Event {
		t.Helper()
		select {
		case e := <-come:
			if e.Type != want || e.SandboxID != sb.ID() || e.Missed != 0 || e.ID == "" {
				t.Errorf("got %+v, want %s", e, want)
			}
			return e
		case err := <-ended:
			t.Fatalf("it ended while %s was awaited: %v", want, err)
		}
		return sandbox.Event{}
	}
	next(sandbox.EventCreated)
	_, err = sb.Commands.Run(t.Context(), "getent hosts denied.test || true", nil)
	must.Do(t, err)
	if e := next(sandbox.EventRefused); e.Host != "denied.test" || e.Rule == "" {
		t.Errorf("got %+v, want the name and the rule", e)
	}
	must.Do(t, sb.SetLifetime(t.Context(), time.Minute))
	if e := next(sandbox.EventUpdated); time.Until(e.EndAt) > time.Minute {
		t.Errorf("got %+v, want the new end", e)
	}
	must.Do(t, sb.Close())
	if e := next(sandbox.EventKilled); e.Reason != "killed" || e.Message == "" {
		t.Errorf("got %+v, want the reason", e)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	var last []sandbox.EventType
	for e, err := range client.Events(t.Context(), &sandbox.EventsParams{SandboxID: sb.ID(), Last: 2}) {
		must.Do(t, err)
		last = append(last, e.Type)
	}
	if len(last) != 2 || last[0] != sandbox.EventUpdated || last[1] != sandbox.EventKilled {
		t.Errorf("the last two: got %q", last)
	}
}
