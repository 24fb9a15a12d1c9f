//go:build linux

package room

import (
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// BenchmarkStart measures the time from the start of a cloud until the first
// sandbox answers, with the trees and the warm sandbox of a cloud.
func BenchmarkStart(b *testing.B) {
	env, err := pyenv.Find(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var start time.Duration
	for b.Loop() {
		began := time.Now()
		r := startRoom(b, Options{Trees: env.Trees, Warm: &engine.Limits{}})
		start += time.Since(began)
		s, err := r.NewSandbox(b.Context(), engine.SandboxOptions{ID: "first"})
		if err != nil {
			b.Fatal(err)
		}
		conn, err := s.Dial(b.Context(), 49983)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		conn.Close()
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(start.Milliseconds())/float64(b.N), "start-ms")
}
