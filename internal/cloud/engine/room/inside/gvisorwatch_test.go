//go:build linux

package inside

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// silent is an envd that never answers.
func silent(ctx context.Context, _ uint16) (net.Conn, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestWatchEnvd checks that a sandbox ends when its server has gone, or when its envd does not answer for a
// while, unless its processes are stopped. A refusal counts as an answer.
func TestWatchEnvd(t *testing.T) {
	t.Parallel()
	runs := func() (bool, int) { return false, 0 }
	answers := func(context.Context, uint16) (net.Conn, error) {
		ours, theirs := net.Pipe()
		return ours, theirs.Close()
	}
	errGone := errors.New("the server has gone")
	stays := func(ctx context.Context) error { <-ctx.Done(); return errGone }
	leaves := func(context.Context) error { return errGone }
	changes := 0
	for name, test := range map[string]struct {
		receive func(context.Context) error
		dial    func(context.Context, uint16) (net.Conn, error)
		stops   func() (bool, int)
		want    error
		after   time.Duration
	}{
		"silent":            {stays, silent, runs, errSilent, silentTime},
		"stopped":           {stays, silent, func() (bool, int) { return true, 1 }, context.DeadlineExceeded, 10 * silentTime},
		"stopped meanwhile": {stays, silent, func() (bool, int) { changes++; return false, changes }, context.DeadlineExceeded, 10 * silentTime},
		"refuses":           {stays, func(context.Context, uint16) (net.Conn, error) { return nil, errors.New("too many") }, runs, context.DeadlineExceeded, 10 * silentTime},
		"answers":           {stays, answers, runs, context.DeadlineExceeded, 10 * silentTime},
		"without a server":  {leaves, answers, runs, errGone, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				until, end := context.WithTimeout(t.Context(), 10*silentTime)
				defer end()
				ctx, cancel := context.WithCancelCause(until)
				begun := time.Now()
				watchBoth(ctx, cancel, test.receive, test.dial, test.stops)
				<-ctx.Done()
				if got, after := context.Cause(ctx), time.Since(begun); !errors.Is(got, test.want) || after != test.after {
					t.Errorf("got %v after %v, want %v after %v", got, after, test.want, test.after)
				}
			})
		})
	}
}

// TestHeadForgets checks that gVisor's output from long before its end is not reported as the
// reason.
func TestHeadForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &head{}
		write := func(text string) {
			_, err := h.Write([]byte(text))
			must.Do(t, err)
		}
		write("a warning\n")
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble, whose clock it moves
		if got := h.String(); got != "" {
			t.Errorf("a minute later: got %q, want nothing", got)
		}
		write("it broke\n")
		write("for good\n")
		if got := h.String(); got != "it broke for good" {
			t.Errorf("got %q, want the reason", got)
		}
	})
}
