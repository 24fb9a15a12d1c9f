package sandbox

import (
	"context"
	"testing"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// The cost of a command apart from running it: the other side answers at once, in
// this process, so the figure includes its share.
func BenchmarkEcho(b *testing.B) {
	s := newService(b)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		_ = stdout(stream, []byte("hello\n"))
		return ended(stream, 0, "exit status 0")
	}
	c, err := NewClient(WithAPIKey(testKey), WithAPIURL(s.url), WithSandboxURL(s.url), WithMaxRetries(0))
	must.Do(b, err)
	b.Cleanup(func() { c.Close() })
	sb, err := c.Connect(b.Context(), testID)
	must.Do(b, err)
	b.Cleanup(func() { sb.Close() })
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
