//go:build linux

package room

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

//go:embed testdata/mutate.py
var mutateScript string

// newLayeredRoom starts a room whose sandboxes can have layers, with a tree that they can
// change.
func newLayeredRoom(t testing.TB) (r *Room, tree string) {
	t.Helper()
	tree = filepath.Join(t.TempDir(), "environment", "venv")
	must.Do(t, os.MkdirAll(filepath.Join(tree, "lib", "package"), 0o755))
	for _, name := range []string{"lib/package/code.py", "lib/package/old.py", "lib/other.py"} {
		must.Do(t, os.WriteFile(filepath.Join(tree, name), []byte(name), 0o644))
	}
	r = startRoom(t, Options{Trees: []string{tree}, Warm: &engine.Limits{}})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, r.CheckLayers(t.Context(), t.TempDir()))
	return r, tree
}

// layerDir makes a directory for a layer. Its files may lock out their owner, and be deeper than
// paths may be long.
func layerDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if out, err := exec.Command("chmod", "-R", "u+rwx", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return dir
}

// layerOf makes a layer of the files written in a sandbox.
func layerOf(t testing.TB, s *Sandbox) (dir string) {
	t.Helper()
	dir = layerDir(t)
	freeze(t, s)
	complete, err := s.SaveLayer(t.Context(), dir)
	must.Do(t, err)
	thaw(t, s)
	must.Do(t, complete())
	return dir
}

// saveLayer makes a layer of a frozen sandbox.
func saveLayer(ctx context.Context, s *Sandbox, dir string) error {
	complete, err := s.SaveLayer(ctx, dir)
	if err != nil {
		return err
	}
	return complete()
}

// describe describes files of a sandbox.
func describe(t testing.TB, s *Sandbox, places ...string) []string {
	t.Helper()
	return strings.Split(python(t, s, "root", describeScript, places...), "\n")
}

// TestLayers checks that a sandbox over layers sees the same files, of every kind, as the sandbox
// from which they were made. The same holds for a sandbox that begins with files saved above
// them.
func TestLayers(t *testing.T) {
	t.Parallel()
	r, tree := newLayeredRoom(t)
	first := newSandbox(t, r, engine.SandboxOptions{ID: "first"})
	t.Log(python(t, first, "root", menagerieScript, tree, "setid"))
	if r.ranged() {
		t.Log(python(t, first, "user", menagerieScript, "-", "setid"))
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

// TestLayerChain checks that a sandbox sees every change above any number of layers, also if all
// or some of them are merged.
func TestLayerChain(t *testing.T) {
	t.Parallel()
	r, tree := newLayeredRoom(t)
	places := []string{"/home/user/changed", "/opt/changed", filepath.Join(tree, "lib"), "/usr/share/changed"}
	if !r.ranged() {
		places = places[:3] // the rest cannot be changed
	}
	names := regexp.MustCompile(` n\d+ i\S*`)
	see := func(o engine.SandboxOptions, change int) (*Sandbox, []string) {
		s := newSandbox(t, r, o)
		if change >= 0 {
			python(t, s, "root", mutateScript, append([]string{fmt.Sprint(change)}, places...)...)
		}
		got := describe(t, s, append([]string{"-"}, places...)...)
		for i := range got {
			got[i] = names.ReplaceAllString(got[i], "") // a merged file has more names, and an overlay does not show hard links as one file
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
		limits := engine.Limits{MaxProcesses: 1024 + n%2} // every second one begins without a warm sandbox
		s, want := see(engine.SandboxOptions{ID: fmt.Sprintf("number%d", n), Limits: limits, Layers: chain}, n)
		freeze(t, s)
		files := t.TempDir()
		must.Do(t, s.Save(t.Context(), files))
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
	must.Do(t, r.Merge(t.Context(), layers, dir))
	return dir
}

// TestLayersApart checks that twenty sandboxes have a layer at the same time, and that changes in
// one of them are visible neither in the others nor in the layer.
func TestLayersApart(t *testing.T) {
	t.Parallel()
	r, _ := newLayeredRoom(t)
	first := newSandbox(t, r, engine.SandboxOptions{ID: "first"})
	python(t, first, "root", mutateScript, "1", "/home/user/changed")
	wantOutput(t, first, "root", "mkdir /opt/dir && echo shared > /opt/dir/file && echo gone > /opt/dir/gone", "")
	dir := layerOf(t, first)
	before := onHost(t, dir)
	var all [20]*Sandbox
	var starting errgroup.Group
	for i := range all {
		starting.Go(func() (err error) {
			all[i], err = r.NewSandbox(t.Context(), engine.SandboxOptions{ID: fmt.Sprintf("number%d", i), Layers: []string{dir}})
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		t.Error(err)
	}
	for i, s := range all {
		if s != nil {
			defer s.Close()
			wantOutput(t, s, "root", fmt.Sprintf("cd /opt/dir && cat file gone && echo %d > file && rm gone && chmod 700 /opt && rm -r /home/user/changed", i), "shared\ngone")
		}
	}
	for i, s := range all {
		if s != nil {
			wantOutput(t, s, "root", "cat /opt/dir/file; ls /opt/dir /home/user", fmt.Sprintf("%d\n/home/user:\n\n/opt/dir:\nfile", i))
		}
	}
	if diff := cmp.Diff(before, onHost(t, dir)); diff != "" {
		t.Errorf("the layer was changed (-before +after):\n%s", diff)
	}
}

// onHost lists a directory as the host shows it.
func onHost(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("find", dir, "-printf", "%P %i %s %m %U %G %T@ %l\n").Output()
	must.Do(t, err)
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestLayersRefused checks that errors name layers that do not exist, are damaged or do not
// belong together.
func TestLayersRefused(t *testing.T) {
	t.Parallel()
	r, _ := newLayeredRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{})
	first, files := layerOf(t, s), saveTo(t, s)
	second := layerOf(t, newSandbox(t, r, engine.SandboxOptions{ID: "next", Layers: []string{first}}))
	text, err := os.ReadFile(filepath.Join(second, "layer.json"))
	must.Do(t, err)
	damaged := func(change func(dir string) error) string {
		dir := layerDir(t)
		err := errors.Join(os.WriteFile(filepath.Join(dir, "layer.json"), text, 0o600), os.MkdirAll(filepath.Join(dir, "trees", "0"), 0o755))
		err = errors.Join(err, change(dir))
		must.Do(t, err)
		return dir
	}
	manifest := func(text string) func(string) error {
		return func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "layer.json"), []byte(text), 0o600)
		}
	}
	for name, tt := range map[string]struct {
		layers []string
		files  string
		want   string
	}{
		"missing":            {[]string{first, "/nowhere/layer"}, "", "/nowhere/layer"},
		"relative":           {[]string{"layer"}, "", "is not a clean absolute path"},
		"not a layer":        {[]string{files}, "", layer.ErrDamaged.Error()},
		"in another order":   {[]string{second, first}, "", "not on the layers that it was made on"},
		"without the first":  {[]string{second}, "", "not on the layers that it was made on"},
		"no JSON":            {[]string{first, damaged(manifest("{"))}, "", layer.ErrDamaged.Error()},
		"of a later version": {[]string{first, damaged(manifest(`{"version":2}`))}, "", "another version of e2bctl"},
		"without a root":     {[]string{first, damaged(manifest(`{"version":1,"layout":"` + r.layout() + `"}`))}, "", "it has no root"},
		"of others":          {[]string{first, damaged(manifest(`{"version":1,"layout":"other","trees":[""]}`))}, "", saved.ErrLayout.Error()},
		"without its files":  {[]string{first, damaged(func(dir string) error { return os.RemoveAll(filepath.Join(dir, "trees")) })}, "", layer.ErrDamaged.Error()},
		"a file for its root": {[]string{first, damaged(func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "trees", "0")), os.WriteFile(filepath.Join(dir, "trees", "0"), nil, 0o600))
		})}, "", layer.ErrDamaged.Error()},
		"files of a sandbox without layers": {[]string{first}, files, saved.ErrLayout.Error()},
	} {
		bad, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "bad", Layers: tt.layers, Files: tt.files})
		if err == nil {
			bad.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
	if err := r.Merge(t.Context(), []string{first, "/nowhere/layer"}, layerDir(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("merged with one that is missing: got %v, want %v", err, os.ErrNotExist)
	}
	running := saveLayer(t.Context(), s, layerDir(t))
	freeze(t, s)
	for what, err := range map[string]error{
		"running": running, "save": saveLayer(t.Context(), s, "relative"), "merge": r.Merge(t.Context(), []string{first}, "relative"), "try": r.CheckLayers(t.Context(), "relative"), "merge nothing": r.Merge(t.Context(), nil, layerDir(t)),
	} {
		if err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	none := newRoomOn(t, engine.None)
	plain := newSandbox(t, none, engine.SandboxOptions{})
	freeze(t, plain)
	_, start := none.NewSandbox(t.Context(), engine.SandboxOptions{ID: "bad", Layers: []string{first}})
	for what, err := range map[string]error{
		"try": none.CheckLayers(t.Context(), t.TempDir()), "save": saveLayer(t.Context(), plain, t.TempDir()), "merge": none.Merge(t.Context(), []string{first}, t.TempDir()), "start": start,
	} {
		if !errors.Is(err, &engine.LackError{Feature: engine.SharedLayers}) {
			t.Errorf("%s without namespaces: got %v, want %v", what, err, &engine.LackError{Feature: engine.SharedLayers})
		}
	}
}

// TestCheckLayersRefused checks that refusals of a file system are reported, and that no files
// remain there.
func TestCheckLayersRefused(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	if !r.ranged() {
		t.Skip("this user cannot mount another file system")
	}
	dir := t.TempDir()
	upper, work := t.TempDir(), t.TempDir()
	if err := unix.Mount("overlay", dir, "overlay", 0, "lowerdir="+t.TempDir()+",upperdir="+upper+",workdir="+work); err != nil {
		pinned.Skip(t, "no file system without id-mapped mounts: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	if err := r.CheckLayers(t.Context(), dir); !errors.Is(err, &engine.LackError{Feature: engine.SharedLayers}) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want %v that names the directory", err, &engine.LackError{Feature: engine.SharedLayers})
	}
	if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
		t.Errorf("got %v, %v left, want nothing", entries, err)
	}
}

// TestSaveLayerFails checks the errors for damaged input, a full disk and an end in the middle. A
// disk with space for the files once is not full.
func TestSaveLayerFails(t *testing.T) {
	t.Parallel()
	r, _ := newLayeredRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{})
	sh(t, s, "head -c 4M /dev/urandom > /tmp/big")
	text := readSavedFile(t, saveTo(t, s))
	unpack := func(ctx context.Context, dir string, text []byte) error {
		name := filepath.Join(t.TempDir(), savedName)
		must.Do(t, os.WriteFile(name, text, 0o600))
		from, err := os.Open(name)
		must.Do(t, err)
		defer from.Close()
		_, err = r.unpack(ctx, dir, r.layout(), from)
		return err
	}
	for name, tt := range map[string]struct {
		text []byte
		want string
	}{
		"cut off":    {text[:len(text)/2], "they end too early"},
		"empty":      {nil, "they end too early"},
		"changed":    {append(bytes.Clone(text[:len(text)-2]), 'x', 'y'), "their checksum is"},
		"not ours":   {[]byte("PK\x03\x04 something else entirely"), "they begin with"},
		"of another": {bytes.Replace(text, []byte(r.layout()), []byte(strings.Repeat("x", len(r.layout()))), 1), "sandboxes of another kind"},
	} {
		dir := layerDir(t)
		if err := unpack(t.Context(), dir, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
		if _, err := layer.Read(dir); err == nil {
			t.Errorf("%s: it is a layer nevertheless", name)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	freeze(t, s)
	for what, err := range map[string]error{"unpack": unpack(ended, layerDir(t), text), "save": saveLayer(ended, s, layerDir(t))} {
		if !errors.Is(err, stopped) {
			t.Errorf("%s with an ended context: got %v, want %v", what, err, stopped)
		}
	}
	readyWarm(t, r)
	if r.roster.mu.Lock(); len(r.roster.slots) != 2 {
		t.Errorf("got %d slots in use, want those of the sandbox and of the warm one", len(r.roster.slots))
	}
	r.roster.mu.Unlock()
	if !r.ranged() {
		return // this user cannot make a small disk
	}
	disk := func(size string) string {
		dir := t.TempDir()
		must.Do(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	if err := saveLayer(t.Context(), s, disk("3m")); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("a full disk: got %v, want that it has no space left", err)
	}
	if err := saveLayer(t.Context(), s, disk("6m")); err != nil {
		t.Errorf("files that fit once: got %v", err)
	}
}

// TestLayersHostile checks that files that a sandbox put in place of its own mounts lead nowhere
// when they are in a layer, and remain under another name.
func TestLayersHostile(t *testing.T) {
	t.Parallel()
	r, _ := newLayeredRoom(t)
	if !r.ranged() {
		t.Skip("nobody inside may rename what is at the root")
	}
	var chain []string
	for n, tt := range []struct {
		commands   []string
		look, want string
	}{
		{
			[]string{
				"mv /run /run2; echo file > /run", "mv /var /var2; ln -s ../../../../tmp /var", "mv /etc/ssl /etc/ssl2; ln -s /nowhere /etc/ssl",
				"rm /etc/hosts /etc/resolv.conf /etc/hostname; mkfifo /etc/hosts; ln -s /home/user/taken /etc/resolv.conf; mkdir /etc/hostname; echo x > /etc/hostname/x",
				"mv /dev /dev2; ln -s /home/user /dev; rm /bin; mkdir /bin",
			},
			"cat /run.saved1 /etc/hostname.saved1/x; readlink /var.saved1 /etc/ssl.saved1",
			"file\nx\n../../../../tmp\n/nowhere\n",
		},
		{ // above the changes of the first one
			[]string{
				"mv /run /run3; echo again > /run", "mv /etc/ssl /etc/ssl3; ln -s / /etc/ssl",
				"rm /etc/hosts /etc/resolv.conf; mkdir /etc/resolv.conf; ln -s /home/user/taken /etc/hosts", "mv /opt /opt2; ln -s /home/user /opt",
			},
			"cat /run.saved1 /run.saved2; ls -d /etc/resolv.conf.saved1; readlink /etc/ssl.saved2 /opt",
			"file\nagain\n/etc/resolv.conf.saved1\n/\n/home/user\n",
		},
	} {
		s := newSandbox(t, r, engine.SandboxOptions{ID: "hostile", Layers: chain})
		for _, command := range tt.commands {
			if got := call(t, s, "/run", testRequest{User: "root", Command: "PATH=/usr/bin:/usr/sbin; " + command}); got.Status != 0 {
				t.Errorf("%d: %s: got %+v", n, command, got)
			}
		}
		chain = append(chain, layerOf(t, s))
		for _, layers := range [][]string{chain, {mergeOf(t, r, chain...)}} {
			next := newSandbox(t, r, engine.SandboxOptions{ID: "next", Layers: layers})
			got := sh(t, next, "hostname; head -c 9 /etc/hosts; echo; cat /etc/hostname; test -f /etc/resolv.conf && test -c /dev/null && echo made; test -e /home/user/taken || echo no; "+tt.look)
			if want := "next\n127.0.0.1\nnext\nmade\nno\n" + tt.want; got.Output != want {
				t.Errorf("%d, above %d layers: got %+v, want %s", n, len(layers), got, want)
			}
		}
	}
}

// TestLayersPrivate checks that files that are closed to others on the host are not shown through
// layers, and that a sandbox keeps its own file at the same path.
func TestLayersPrivate(t *testing.T) {
	t.Parallel()
	tree := privateTree(t)
	r := startRoom(t, Options{Trees: []string{tree}})
	defer r.Close()
	if !r.ranged() {
		t.Skip("the host's permissions apply inside")
	}
	s := newSandbox(t, r, engine.SandboxOptions{})
	want := call(t, s, "/run", testRequest{User: "root", Command: "cd " + tree + " && find . | sort"})
	first := layerOf(t, s)
	next := newSandbox(t, r, engine.SandboxOptions{ID: "next", Layers: []string{first}})
	if got := call(t, next, "/run", testRequest{User: "root", Command: "cd " + tree + " && find . | sort"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	wantOutput(t, next, "root", "cd "+tree+" && echo mine > secret && cat secret", "mine")
	last := newSandbox(t, r, engine.SandboxOptions{ID: "last", Layers: []string{first, layerOf(t, next)}})
	wantOutput(t, last, "root", "cat "+tree+"/secret", "mine")
}

// TestLayersElsewhere checks that the changes that layers and saved files have of a tree are not
// lost if the tree is no longer shown, and neither are later changes there.
func TestLayersElsewhere(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	trees := []string{filepath.Join(parent, "one"), filepath.Join(parent, "two"), filepath.Join(parent, "three")}
	for _, tree := range trees {
		must.Do(t, errors.Join(os.Mkdir(tree, 0o755), os.WriteFile(filepath.Join(tree, "host"), nil, 0o644)))
	}
	var chain []string
	var files string
	for n, command := range []string{"cd %s && echo one > file && rm host", "cd %s && echo two > file", ""} {
		r := startRoom(t, Options{Trees: trees[n : n+1]})
		o := engine.SandboxOptions{ID: fmt.Sprintf("number%d", n), Layers: chain, Files: files}
		s := newSandbox(t, r, o)
		switch n {
		case 0:
			if got := sh(t, s, fmt.Sprintf(command, trees[0])); got.Status != 0 {
				t.Skipf("the tree cannot be changed here: %+v", got)
			}
			chain = append(chain, layerOf(t, s))
		case 1:
			wantOutput(t, s, "root", "cat "+trees[0]+"/file; ls "+trees[0], "one\nfile")
			wantOutput(t, s, "root", "echo more > "+trees[0]+"/more", "")
			wantOutput(t, s, "root", fmt.Sprintf(command, trees[1]), "")
			files = saveTo(t, s)
		case 2:
			for range 2 {
				wantOutput(t, s, "root", "cat "+trees[0]+"/file "+trees[0]+"/more "+trees[1]+"/file; ls "+trees[2], "one\nmore\ntwo\nhost")
				s = newSandbox(t, r, engine.SandboxOptions{ID: "again", Layers: append(chain, layerOf(t, s))})
			}
		}
		must.Do(t, r.Close())
	}
	for _, inTheWay := range []string{parent, filepath.Join(trees[0], "below")} {
		must.Do(t, os.MkdirAll(inTheWay, 0o755))
		r := startRoom(t, Options{Trees: []string{inTheWay}})
		_, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "bad", Layers: chain})
		if err == nil || !strings.Contains(err.Error(), "shows as a part of something else") {
			t.Errorf("%s in the way of %s: got %v, want that it is named", inTheWay, trees[0], err)
		}
		must.Do(t, r.Close())
	}
}
