//go:build linux

package room

import (
	"fmt"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// BenchmarkLayers measures how long a sandbox above layers takes to start, with the trees
// that a cloud has, against one without: from a warm sandbox, and not.
func BenchmarkLayers(b *testing.B) {
	env, err := pyenv.Find(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	warm := engine.Limits{}
	r := startRoom(b, Options{Trees: env.Trees, Warm: &warm})
	defer r.Close()
	var layers []string
	for n := range 20 {
		s := newSandbox(b, r, engine.SandboxOptions{ID: "layer", Layers: layers})
		sh(b, s, fmt.Sprintf("mkdir -p ~/%d; echo %d > ~/%d/file; echo %d > /tmp/%d", n, n, n, n, n))
		layers = append(layers, layerOf(b, s))
		s.Close()
	}
	start := func(b *testing.B, o engine.SandboxOptions) {
		for b.Loop() {
			o.ID = "started"
			s, err := r.NewSandbox(b.Context(), o)
			if err != nil {
				b.Fatal(err)
			}
			conn, err := s.Dial(b.Context(), 49983)
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			conn.Close()
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // in which the next one becomes warm
			b.StartTimer()
		}
	}
	b.Run("warm", func(b *testing.B) { start(b, engine.SandboxOptions{}) })
	b.Run("cold", func(b *testing.B) { start(b, engine.SandboxOptions{Limits: engine.Limits{Processes: 500}}) })
	for _, n := range []int{1, 12, 20} {
		b.Run(fmt.Sprintf("%d layers", n), func(b *testing.B) { start(b, engine.SandboxOptions{Layers: layers[:n]}) })
	}
}
