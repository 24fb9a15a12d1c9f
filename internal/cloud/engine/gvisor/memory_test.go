//go:build linux

package gvisor_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
)

// save saves the memory and the files of a sandbox, which runs on.
func save(t *testing.T, s engine.Sandbox) (files, memory string) {
	t.Helper()
	files, memory = filepath.Join(t.TempDir(), "files"), filepath.Join(t.TempDir(), "memory")
	for _, dir := range []string{files, memory} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveMemory(t.Context(), memory); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	if err := s.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	return files, memory
}

// restored starts a sandbox from saved files and memory.
func restored(t *testing.T, e engine.Engine, id, files, memory string) (engine.Sandbox, func(command string) string) {
	t.Helper()
	config, err := json.Marshal(guest.Config{SandboxID: id, TemplateID: "base", Path: room.SearchPath(), Envs: map[string]string{"WHO": id}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSandbox(t.Context(), engine.SandboxOptions{ID: id, Config: config, Files: files, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return s, shellOf(t, s)
}

// TestMemory checks that processes go on where they were saved: in the sandbox itself, and in
// others, each of which is a sandbox of its own.
func TestMemory(t *testing.T) {
	t.Parallel()
	e := open(t)
	s, run := start(t, e, nil)
	run(`(n=0; while read line; do n=$((n+1)); echo "$n $line" > /tmp/said.new; mv /tmp/said.new /tmp/said; done < /tmp/in) & mkfifo /tmp/in 2>/dev/null`)
	files, memory := save(t, s)
	t.Log(run("ls -la /tmp; ps aux"), files, memory)
	out, _ := os.ReadDir(memory)
	for _, e := range out {
		info, _ := e.Info()
		t.Log(info.Name(), info.Size(), info.Mode())
	}
	if got := run("echo alive"); got != "alive" {
		t.Errorf("the sandbox itself: got %q", got)
	}
	for _, id := range []string{"one", "two"} {
		_, run := restored(t, e, id, files, memory)
		got := run("hostname; cat /etc/hostname; echo $E2B_SANDBOX_ID $WHO; ls /tmp; ps aux")
		t.Log(got)
		if !strings.Contains(got, id) {
			t.Error(got)
		}
	}
}
