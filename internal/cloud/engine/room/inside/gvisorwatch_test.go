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

// TestWatchEnvd checks that an envd that does not answer is reported as silent after a while, unless
// its processes are stopped, and that a refusal counts as an answer.
func TestWatchEnvd(t *testing.T) {
	t.Parallel()
	changes := 0
	for name, test := range map[string]struct {
		dial  func(context.Context, uint16) (net.Conn, error)
		stops func() (bool, int)
		want  error
	}{
		"silent":            {silent, func() (bool, int) { return false, 0 }, errSilent},
		"stopped":           {silent, func() (bool, int) { return true, 1 }, nil},
		"stopped meanwhile": {silent, func() (bool, int) { changes++; return false, changes }, nil},
		"refuses":           {func(context.Context, uint16) (net.Conn, error) { return nil, errors.New("too many") }, func() (bool, int) { return false, 0 }, nil},
		"answers": {func(context.Context, uint16) (net.Conn, error) {
			ours, theirs := net.Pipe()
			return ours, theirs.Close()
		}, func() (bool, int) { return false, 0 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*silentTime)
				defer cancel()
				if got := watchEnvd(ctx, test.dial, test.stops); !errors.Is(got, test.want) {
					t.Errorf("got %v, want %v", got, test.want)
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
