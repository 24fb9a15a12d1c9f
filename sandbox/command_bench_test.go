package sandbox

import (
	"context"
	"testing"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// echoes returns a sandbox in which each command prints a line and ends at once. It is in this process,
// so measurements include its share.
func echoes(tb testing.TB) *Sandbox {
	tb.Helper()
	s := newService(tb)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		_ = stdout(stream, []byte("hello\n"))
		return ended(stream, 0, "exit status 0")
	}
	c, err := NewClient(WithAPIKey(testKey), WithAPIURL(s.url), WithSandboxURL(s.url), WithMaxRetries(0))
	must.Do(tb, err)
	tb.Cleanup(func() { c.Close() })
	sb, err := c.Connect(tb.Context(), testID)
	must.Do(tb, err)
	tb.Cleanup(func() { sb.Close() })
	return sb
}

// BenchmarkEcho measures the cost of a command apart from running it.
func BenchmarkEcho(b *testing.B) {
	sb := echoes(b)
	b.Run("Run", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := sb.Commands.Run(b.Context(), "echo hello", nil)
			must.Do(b, err)
		}
	})
	b.Run("Start and Wait", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			command, err := sb.Commands.Start(b.Context(), "echo hello", nil)
			must.Do(b, err)
			if _, err := command.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
