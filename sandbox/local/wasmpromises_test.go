//go:build linux

package local_test

import (
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
)

// wasmTries returns the trials for an engine without commands.
func (w *promised) wasmTries() map[string]func(*testing.T) (bool, error) {
	return map[string]func(*testing.T) (bool, error){
		"commands":     w.commands,
		"terminals":    w.terminals,
		"header rules": w.headerRules,
		"memory limit": func(t *testing.T) (bool, error) {
			e := code(t, w.small.Create(t), "x = bytearray(400 << 20)", nil)
			return e.Error != nil && e.Error.Name == "MemoryError", nil
		},
		"disk limit": func(t *testing.T) (bool, error) {
			e := code(t, w.small.Create(t), "with open('big', 'wb') as f:\n    for _ in range(32): f.write(bytes(1 << 20))", nil)
			return e.Error != nil && e.Error.Name == "OSError", nil
		},
		"pause with memory": func(t *testing.T) (bool, error) {
			sb := w.cloud.Create(t)
			code(t, sb, "x = 'lives'", nil)
			if err := sb.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFull}); err != nil {
				return false, err
			}
			if err := sb.Resume(t.Context(), nil); err != nil {
				return false, err
			}
			return code(t, sb, "x", nil).Text() == "lives", nil
		},
		"snapshots, forks and file pauses": func(t *testing.T) (bool, error) {
			sb := w.cloud.Create(t)
			code(t, sb, "with open('file', 'w') as f: f.write('mine')", nil)
			snapshot, err := sb.Snapshot(t.Context(), nil)
			if err != nil {
				return false, err
			}
			if err := sb.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}); err != nil {
				return false, err
			}
			if err := sb.Resume(t.Context(), nil); err != nil {
				return false, err
			}
			made := w.cloud.Create(t, sandbox.WithTemplate(snapshot.ID))
			return code(t, sb, "open('file').read()", nil).Text() == "mine" && code(t, made, "open('file').read()", nil).Text() == "mine", nil
		},
		"shared layers": w.sharedLayers,
		"volumes": func(t *testing.T) (bool, error) {
			client, err := sandbox.NewClient(w.cloud.Option())
			if err != nil {
				return false, err
			}
			defer client.Close()
			if _, err := client.Volumes.Create(t.Context(), "data"); err != nil {
				return false, err
			}
			var all []*sandbox.Sandbox
			for range 2 {
				sb, err := client.Create(t.Context(), sandbox.WithVolume("data", "/data"))
				if err != nil {
					return false, err
				}
				defer sb.Close()
				all = append(all, sb)
			}
			code(t, all[0], "with open('/data/file', 'w') as f: f.write('shared')", nil)
			return code(t, all[1], "open('/data/file').read()", nil).Text() == "shared", nil
		},
		"mounts of host directories": func(t *testing.T) (bool, error) {
			sb, err := sandbox.Create(t.Context(), w.cloud.Option(), sandbox.WithMount(sandbox.Mount{Dir: w.shown, Path: "/shown"}))
			if err != nil {
				return false, err
			}
			defer sb.Close()
			e := code(t, sb, "print(open('/shown/file').read())\nopen('/shown/new', 'w')", nil)
			return e.Stdout == "of the host\n" && e.Error != nil && e.Error.Name == "OSError", nil
		},
	}
}
