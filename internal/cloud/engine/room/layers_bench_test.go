//go:build linux

package room

import (
	"fmt"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// BenchmarkLayers compares how long a sandbox takes to start with and without layers, with the
// trees of a cloud: from a warm sandbox, and not.
func BenchmarkLayers(b *testing.B) {
	env, err := pyenv.Find(b.Context())
	must.Do(b, err)
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
			must.Do(b, err)
			conn, err := s.Dial(b.Context(), 49983)
			must.Do(b, err)
			b.StopTimer()
			conn.Close()
			must.Do(b, s.Close())
			readyWarm(b, r)
			b.StartTimer()
		}
	}
	b.Run("warm", func(b *testing.B) { start(b, engine.SandboxOptions{}) })
	b.Run("cold", func(b *testing.B) { start(b, engine.SandboxOptions{Limits: engine.Limits{MaxProcesses: 500}}) })
	for _, n := range []int{1, 12, 20} {
		b.Run(fmt.Sprintf("%d layers", n), func(b *testing.B) { start(b, engine.SandboxOptions{Layers: layers[:n]}) })
	}
}

// BenchmarkSaveLayer measures how long making a layer of a frozen sandbox takes; frozen-ms is how
// long the sandbox has to be frozen for it.
func BenchmarkSaveLayer(b *testing.B) {
	for name, command := range map[string]string{
		"one of 100 MB":   "head -c 100M /dev/urandom > $TMPDIR/big",
		"10000 of 100 MB": "python3 -c 'import os\nfor i in range(10000): open(\"/tmp/%d\" % i, \"wb\").write(os.urandom(10000))'",
	} {
		b.Run(name, func(b *testing.B) {
			r := newRoomOn(b, engine.Full)
			s := newSandbox(b, r, engine.SandboxOptions{})
			if got := sh(b, s, command); got.Status != 0 {
				b.Fatalf("%+v", got)
			}
			freeze(b, s)
			var frozen, merged time.Duration
			for b.Loop() {
				b.StopTimer()
				dir := layerDir(b)
				b.StartTimer()
				began := time.Now()
				complete, err := s.SaveLayer(b.Context(), dir)
				frozen += time.Since(began)
				if err == nil {
					err = complete()
				}
				must.Do(b, err)
				b.StopTimer()
				began = time.Now()
				mergeOf(b, r, dir)
				merged += time.Since(began)
				b.StartTimer()
			}
			b.ReportMetric(float64(frozen.Milliseconds())/float64(b.N), "frozen-ms")
			b.ReportMetric(float64(merged.Milliseconds())/float64(b.N), "merge-ms")
		})
	}
}
