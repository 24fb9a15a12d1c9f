//go:build linux

package room

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/imagetest"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// BenchmarkImage measures how long a sandbox takes from its start to the output of a first
// command: with the trees of a cloud, with an image, and with an image of many layers, each
// from a warm sandbox and not.
func BenchmarkImage(b *testing.B) {
	env, err := pyenv.Find(b.Context())
	must.Do(b, err)
	r := startRoom(b, Options{Trees: env.Trees, Warm: &engine.Limits{}})
	defer r.Close()
	layers := busyboxImage(b, r, nil)
	many := layers
	for n := range 19 {
		many = append(many, imageLayer(b, r, false, func(root string) error { return exec.Command("mkdir", fmt.Sprintf("%s/%d", root, n)).Run() }))
	}
	for _, what := range []struct {
		name string
		o    engine.SandboxOptions
	}{{"trees", engine.SandboxOptions{}}, {"image", engine.SandboxOptions{Image: anImage, Layers: layers}}, {"20 layers", engine.SandboxOptions{Image: anImage, Layers: many}}} {
		for _, from := range []struct {
			name      string
			processes int
		}{{"warm", 0}, {"cold", 500}} {
			b.Run(what.name+" "+from.name, func(b *testing.B) {
				o := what.o
				o.ID, o.Limits.MaxProcesses = "started", from.processes
				for b.Loop() {
					s, err := r.NewSandbox(b.Context(), o)
					must.Do(b, err)
					if got := sh(b, s, "echo"); got.Output != "\n" {
						b.Fatalf("%+v", got)
					}
					b.StopTimer()
					must.Do(b, s.Close())
					readyWarm(b, r)
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkImageMemory measures the memory of each of twenty sandboxes of one image that
// run a program of it: the files of the image are in memory once.
func BenchmarkImageMemory(b *testing.B) {
	r := newRoomOn(b, engine.Full)
	layers := busyboxImage(b, r, func(root string) error { return errors.Join(imagetest.Python(b, root)) })
	for b.Loop() {
		const count = 20
		var memory, cache uint64
		for n := range count {
			s := newSandbox(b, r, engine.SandboxOptions{ID: fmt.Sprintf("number%d", n), Image: anImage, Layers: layers})
			if got := sh(b, s, "python3 -c 'import asyncio, json; print(1)'"); got.Output != "1\n" {
				b.Fatalf("%+v", got)
			}
			usage, ok := s.Usage()
			if !ok {
				b.Skip("this machine does not count the memory of sandboxes")
			}
			memory, cache = memory+usage.Memory, cache+usage.Cache
		}
		b.ReportMetric(float64(memory)/count/(1<<20), "MiB/sandbox")
		b.ReportMetric(float64(cache)/(1<<20), "MiB-cache")
	}
}
