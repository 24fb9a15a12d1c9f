//go:build linux

package room

import (
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// BenchmarkStart measures the time from the start of a cloud until the first
// sandbox answers, with the trees and the warm sandbox of a cloud.
func BenchmarkStart(b *testing.B) {
	env, err := pyenv.Find(b.Context())
	must.Do(b, err)
	var start time.Duration
	for b.Loop() {
		began := time.Now()
		r := startRoom(b, Options{Trees: env.Trees, Warm: &engine.Limits{}})
		start += time.Since(began)
		s, err := r.NewSandbox(b.Context(), engine.SandboxOptions{ID: "first"})
		must.Do(b, err)
		conn, err := s.Dial(b.Context(), 49983)
		must.Do(b, err)
		b.StopTimer()
		conn.Close()
		must.Do(b, r.Close())
		b.StartTimer()
	}
	b.ReportMetric(float64(start.Milliseconds())/float64(b.N), "start-ms")
}
