//go:build linux

package room

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/google/go-cmp/cmp"
)

//go:embed testdata/mutate.py
var mutateScript string

// newLayeredRoom starts a room whose sandboxes can have layers, with a tree that they can
// change.
func newLayeredRoom(t testing.TB) (r *Room, tree string) {
	t.Helper()
	tree = filepath.Join(t.TempDir(), "environment", "venv")
	if err := os.MkdirAll(filepath.Join(tree, "lib", "package"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lib/package/code.py", "lib/package/old.py", "lib/other.py"} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r = startRoom(t, Options{Trees: []string{tree}})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.CheckLayers(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return r, tree
}

// layerDir makes a directory for a layer, on a disk and not where each test has its own
// tree. What is in it may lock out its owner.
func layerDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "layer-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("chmod", "-R", "u+rwx", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// layerOf makes a layer of what was written in a sandbox.
func layerOf(t testing.TB, s *Sandbox) (dir string) {
	t.Helper()
	dir = layerDir(t)
	freeze(t, s)
	if err := s.Save(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	thaw(t, s)
	if err := s.room.Unpack(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// describe describes files of a sandbox.
func describe(t testing.TB, s *Sandbox, places ...string) []string {
	t.Helper()
	return strings.Split(python(t, s, "root", describeScript, places...), "\n")
}

// TestLayers: a sandbox over layers sees what the one saw of which they were made, of every
// kind of file, and so does one that begins with what another one wrote above them.
func TestLayers(t *testing.T) {
	t.Parallel()
	r, tree := newLayeredRoom(t)
	first := newSandbox(t, r, engine.SandboxOptions{ID: "first"})
	t.Log(python(t, first, "root", menagerieScript, tree))
	if r.ranged() {
		t.Log(python(t, first, "user", menagerieScript, "-"))
	}
	want := describe(t, first, tree)
	if len(want) < 60 {
		t.Fatalf("only %d files: %s", len(want), want)
	}
	layers := []string{layerOf(t, first)}
	next := newSandbox(t, r, engine.SandboxOptions{ID: "next", Layers: layers})
	if diff := cmp.Diff(want, describe(t, next, tree)); diff != "" {
		t.Errorf("(-saved +above a layer):\n%s", diff)
	}
	if got := sh(t, next, "hostname; cat /etc/hostname"); got.Output != "next\nnext\n" {
		t.Errorf("its names: got %+v", got)
	}
}

// TestLayerChain: whatever is changed above any number of layers, a sandbox above it sees
// it, and one above all of them merged, or above some that are merged.
func TestLayerChain(t *testing.T) {
	t.Parallel()
	r, tree := newLayeredRoom(t)
	places := []string{"/home/user/changed", "/opt/changed", filepath.Join(tree, "lib"), "/usr/share/changed"}
	if !r.ranged() {
		places = places[:3] // nobody may change the rest
	}
	names := regexp.MustCompile(` n\d+ i\S*`)
	see := func(o engine.SandboxOptions, change int) (*Sandbox, []string) {
		s := newSandbox(t, r, o)
		if change >= 0 {
			python(t, s, "root", mutateScript, append([]string{fmt.Sprint(change)}, places...)...)
		}
		got := describe(t, s, append([]string{"-"}, places...)...)
		for i := range got {
			got[i] = names.ReplaceAllString(got[i], "") // a merged file has more names, and an overlay forgets that they are of one file
		}
		return s, got
	}
	same := func(what string, want, got []string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	var chain []string
	for n := range 20 {
		s, want := see(engine.SandboxOptions{ID: fmt.Sprintf("number%d", n), Layers: chain}, n)
		freeze(t, s)
		files := t.TempDir()
		if err := s.Save(t.Context(), files); err != nil {
			t.Fatal(err)
		}
		thaw(t, s)
		_, got := see(engine.SandboxOptions{ID: "copy", Layers: chain, Files: files}, -1)
		same(fmt.Sprintf("above %d layers and saved files", n), want, got)
		chain = append(chain, layerOf(t, s))
		s.Close()
		if n != 1 && n != 9 && n != 19 {
			continue
		}
		_, got = see(engine.SandboxOptions{ID: "next", Layers: chain}, -1)
		same(fmt.Sprintf("above %d layers", n+1), want, got)
		all, upper := mergeOf(t, r, chain...), mergeOf(t, r, chain[1:]...)
		_, got = see(engine.SandboxOptions{ID: "merged", Layers: []string{all}}, -1)
		same(fmt.Sprintf("above %d merged layers", n+1), want, got)
		_, got = see(engine.SandboxOptions{ID: "upper", Layers: []string{chain[0], upper}}, -1)
		same(fmt.Sprintf("above %d layers, all but the first one merged", n+1), want, got)
		_, got = see(engine.SandboxOptions{ID: "again", Layers: []string{mergeOf(t, r, chain[0], upper)}}, -1)
		same(fmt.Sprintf("above %d layers, merged twice", n+1), want, got)
	}
}

func mergeOf(t testing.TB, r *Room, layers ...string) (dir string) {
	t.Helper()
	dir = layerDir(t)
	if err := r.Merge(t.Context(), layers, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
