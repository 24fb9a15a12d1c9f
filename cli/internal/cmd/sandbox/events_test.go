package sandbox

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestPrintEvents checks that texts of a service cannot forge a row or reach the terminal as they are,
// that missed events are reported, and that events of an unknown type are printed.
func TestPrintEvents(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	events := []sandbox.Event{
		{Time: at, SandboxID: "i1\x1b[2J", Type: "other.new", Reason: "why\nnot", Missed: 7},
		{Time: at, SandboxID: "i1", Type: sandbox.EventUpdated, Missed: -1},
		{Time: at, SandboxID: "i1", Type: sandbox.EventRefused, Host: "::1", Port: 443, Rule: "a \u202erule"},
		{Time: at, SandboxID: "i1", Type: sandbox.EventRefused, Host: "denied.test", Rule: "a rule"},
		{Time: at, SandboxID: "i1", Type: sandbox.EventKilled, Reason: "expired", Message: "its time was over"},
		{Time: at, SandboxID: "i2", Type: sandbox.EventCreated, TemplateID: "after the end"},
	}
	var out, errs bytes.Buffer
	opts := &eventsOptions{Factory: cmdutil.NewFactory(cmdutil.NewIOStreams(strings.NewReader(""), &out, &errs), nil)}
	must.Do(t, opts.print(func(yield func(sandbox.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}, true))
	want := `TIME                   SANDBOX                 EVENT      DETAILS
2026-01-02T02:04:05Z   i1[2J                   new        why not
2026-01-02T02:04:05Z   i1                      updated    network
2026-01-02T02:04:05Z   i1                      refused    [::1]:443 (a rule)
2026-01-02T02:04:05Z   i1                      refused    denied.test (a rule)
2026-01-02T02:04:05Z   i1                      killed     its time was over
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	want = "e2bctl: events: 7 older events, of all sandboxes and types, are no longer kept.\n" +
		"e2bctl: events: the service was started anew; events before that may be missing.\n"
	if errs.String() != want {
		t.Errorf("on stderr: got %q, want %q", &errs, want)
	}
}
