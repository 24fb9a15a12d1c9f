//go:build linux

package room

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// The programs that make files of every kind, and that describe all files.
var (
	//go:embed testdata/menagerie.py
	menagerieScript string
	//go:embed testdata/describe.py
	describeScript string
)

// saveTo freezes a sandbox, saves its files to a new directory and thaws it.
func saveTo(t testing.TB, s *Sandbox) (dir string) {
	t.Helper()
	dir = t.TempDir()
	freeze(t, s)
	must.Do(t, s.Save(t.Context(), dir))
	thaw(t, s)
	return dir
}

func python(t testing.TB, s *Sandbox, user, script string, args ...string) string {
	t.Helper()
	got := call(t, s, "/run", testRequest{User: user, Command: "python3 - " + strings.Join(args, " ") + " <<'EOF'\n" + script + "\nEOF"})
	if got.Status != 0 {
		t.Fatalf("got %+v", got)
	}
	return got.Output
}

// eachKind runs a test at each isolation level.
func eachKind(t *testing.T, test func(t *testing.T, r *Room)) {
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted, engine.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			tree := filepath.Join(t.TempDir(), "environment", "venv")
			must.Do(t, os.MkdirAll(filepath.Join(tree, "lib", "package"), 0o755))
			for _, name := range []string{"lib/package/code.py", "lib/package/old.py", "lib/other.py"} {
				must.Do(t, os.WriteFile(filepath.Join(tree, name), []byte(name), 0o644))
			}
			r := startRoom(t, Options{Isolation: level, Trees: []string{tree}})
			t.Cleanup(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, r)
		})
	}
}

// TestSave checks that a sandbox that begins with saved files has the same files, of
// every kind, and saves the same files again.
func TestSave(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, r *Room) {
		s := newSandbox(t, r, engine.SandboxOptions{ID: "first"})
		newSandbox(t, r, engine.SandboxOptions{ID: "neighbour"}) // it takes ids, so that the next one has others
		tree := "-"
		if r.level == engine.Full {
			tree = r.trees.paths[len(r.trees.paths)-1]
		}
		setid := "-" // in place, where all files may belong to one user of the machine
		if r.level == engine.Full {
			setid = "setid"
		}
		t.Log(python(t, s, "root", menagerieScript, tree, setid))
		if r.ranged() {
			t.Log(python(t, s, "user", menagerieScript, "-", setid))
		}
		before := python(t, s, "root", describeScript, tree)
		if n := strings.Count(before, "\n"); n < 60 {
			t.Fatalf("only %d files: %s", n, before)
		}
		first, again := t.TempDir(), t.TempDir()
		freeze(t, s)
		for _, dir := range []string{first, again} {
			must.Do(t, s.Save(t.Context(), dir))
		}
		thaw(t, s)
		if !bytes.Equal(readSavedFile(t, first), readSavedFile(t, again)) {
			t.Error("saved twice, the files are not the same")
		}
		next := newSandbox(t, r, engine.SandboxOptions{ID: "next", Files: first})
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(python(t, next, "root", describeScript, tree), "\n")); diff != "" {
			t.Errorf("(-saved +restored):\n%s", diff)
		}
		if got := sh(t, next, "hostname; cat /etc/hostname 2>/dev/null"); r.level == engine.Full && got.Output != "next\nnext\n" {
			t.Errorf("its names: got %+v", got)
		}
		last := newSandbox(t, r, engine.SandboxOptions{ID: "last", Files: saveTo(t, next)})
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(python(t, last, "root", describeScript, tree), "\n")); diff != "" {
			t.Errorf("(-saved +restored twice):\n%s", diff)
		}
	})
}

func readSavedFile(t testing.TB, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, savedName))
	must.Do(t, err)
	return data
}

// TestSaveRefused checks the errors for files that cannot be saved or restored, and
// that the sandbox continues.
func TestSaveRefused(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, r *Room) {
		s := newSandbox(t, r, engine.SandboxOptions{})
		dir := t.TempDir()
		if err := s.Save(t.Context(), dir); !errors.Is(err, errNotFrozen) {
			t.Errorf("a running sandbox: got %v, want %v", err, errNotFrozen)
		}
		if got := sh(t, s, "head -c 4M /dev/urandom > $TMPDIR/big"); got.Status != 0 {
			t.Fatalf("%+v", got)
		}
		freeze(t, s)
		if err := s.Save(t.Context(), filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a directory that is not there: got %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Save(ended, dir); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: got %v, want %v", err, context.Canceled)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("a save that failed left %v, %v", entries, err)
		}
		must.Do(t, s.Save(t.Context(), dir))
		thaw(t, s)
		if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
			t.Errorf("after the thaw: got %+v", got)
		}
		text := readSavedFile(t, dir)
		for name, tt := range map[string]struct {
			text   []byte
			limits engine.Limits
			want   string
		}{
			"cut off":     {text[:len(text)/2], engine.Limits{}, "they end too early"},
			"changed":     {append(bytes.Clone(text[:len(text)-2]), 'x', 'y'), engine.Limits{}, "their checksum is"},
			"not ours":    {[]byte("PK\x03\x04 something else entirely"), engine.Limits{}, "they begin with"},
			"of another":  {bytes.Replace(text, []byte(r.layout()), []byte(strings.Repeat("x", len(r.layout()))), 1), engine.Limits{}, "sandboxes of another kind"},
			"a full disk": {text, engine.Limits{DiskBytes: 2 << 20}, "they do not fit on the disk"},
		} {
			if tt.limits.DiskBytes > 0 && r.level != engine.Full {
				continue // no disk of its own
			}
			files := t.TempDir()
			must.Do(t, os.WriteFile(filepath.Join(files, savedName), tt.text, 0o600))
			bad, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "bad", Files: files, Limits: tt.limits})
			if err == nil {
				bad.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %s", name, err, tt.want)
			}
		}
		if _, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "none", Files: t.TempDir()}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a directory without files: got %v", err)
		}
	})
}

// TestSaveCapability checks that a program keeps its capability, which the kernel
// stores together with an id of the sandbox, and that it can be changed in the next
// sandbox.
func TestSaveCapability(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	program := filepath.Join(tree, "program")
	must.Do(t, os.WriteFile(program, []byte("text"), 0o755))
	value := append([]byte{1, 0, 0, 2, 0, 0x20}, make([]byte, 14)...) // cap_net_raw=ep
	if err := unix.Setxattr(program, "security.capability", value, 0); err != nil {
		t.Skipf("this user gives no capabilities: %v", err)
	}
	r := startRoom(t, Options{Trees: []string{tree}})
	defer r.Close()
	s := newSandbox(t, r, engine.SandboxOptions{})
	const show = `python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "security.capability").hex())' `
	want := call(t, s, "/run", testRequest{User: "root", Command: "chmod 700 " + program + " && " + show + program})
	if want.Status != 0 || len(want.Output) < 40 {
		t.Fatalf("%+v", want)
	}
	newSandbox(t, r, engine.SandboxOptions{ID: "neighbour"})
	next := newSandbox(t, r, engine.SandboxOptions{ID: "next", Files: saveTo(t, s)})
	if got := call(t, next, "/run", testRequest{User: "root", Command: show + program}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	must.Do(t, r.CheckLayers(t.Context(), t.TempDir()))
	above := newSandbox(t, r, engine.SandboxOptions{ID: "above", Layers: []string{layerOf(t, s)}})
	if got := call(t, above, "/run", testRequest{User: "root", Command: show + program}); got != want {
		t.Errorf("above a layer: got %+v, want %+v", got, want)
	}
	for _, s := range []*Sandbox{next, above} {
		if got := call(t, s, "/run", testRequest{User: "root", Command: "echo ' more' >> " + program + "; cat " + program}); got.Output != "text more\n" {
			t.Errorf("changed: got %+v", got)
		}
	}
}

// TestRestoreHostile checks that files that a sandbox put in place of its own mounts
// lead nowhere when it is restored, and remain under another name.
func TestRestoreHostile(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	if !r.ranged() {
		t.Skip("nobody inside may rename what is at the root")
	}
	s := newSandbox(t, r, engine.SandboxOptions{})
	// The last command leaves the sandbox without a shell.
	for _, command := range []string{
		"mv /run /run2; echo file > /run", "mv /var /var2; ln -s ../../../../tmp /var",
		"mv /etc/ssl /etc/ssl2; ln -s /nowhere /etc/ssl", "rm /etc/hosts /etc/resolv.conf; mkfifo /etc/hosts; ln -s /home/user/taken /etc/resolv.conf; rm -r /etc/hostname; mkdir /etc/hostname; echo x > /etc/hostname/x",
		`python3 -c '
import os
os.mkdir("/home/user/deep")
os.chdir("/home/user/deep")
for i in range(300):
    os.mkdir("d" * 25)
    os.chdir("d" * 25)
open("bottom", "w").write("bottom")'`,
		"mv /dev /dev2; ln -s /home/user /dev; rm /bin; mkdir /bin",
	} {
		if got := call(t, s, "/run", testRequest{User: "root", Command: "PATH=/usr/bin:/usr/sbin; " + command}); got.Status != 0 {
			t.Errorf("%s: got %+v", command, got)
		}
	}
	next := newSandbox(t, r, engine.SandboxOptions{ID: "next", Files: saveTo(t, s)})
	want := "next\nfile\nx\n../../../../tmp\n127.0.0.1\nchar\n/nowhere\nno\n"
	got := sh(t, next, `hostname; cat /run.saved1 /etc/hostname.saved1/x; readlink /var.saved1; head -c 9 /etc/hosts; echo; test -c /dev/null && echo char; readlink /etc/ssl.saved1; test -e /home/user/taken || echo no`)
	if got.Output != want {
		t.Errorf("got %+v, want %s", got, want)
	}
	deep := `import os
os.chdir("/home/user/deep")
for i in range(300): os.chdir("d" * 25)
print(open("bottom").read())`
	if got := python(t, next, "root", deep); got != "bottom\n" {
		t.Errorf("at the bottom: got %q", got)
	}
}

// TestRestoreElsewhere checks that changes of a tree that is no longer shown are not
// lost.
func TestRestoreElsewhere(t *testing.T) {
	t.Parallel()
	trees := [2]string{filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")}
	var dir string
	for i, tree := range trees {
		must.Do(t, os.Mkdir(tree, 0o755))
		r := startRoom(t, Options{Trees: []string{tree}})
		if i == 0 {
			s := newSandbox(t, r, engine.SandboxOptions{})
			if got := sh(t, s, "echo kept > "+tree+"/file"); got.Status != 0 {
				t.Skipf("the tree cannot be changed here: %+v", got)
			}
			dir = saveTo(t, s)
		} else {
			s := newSandbox(t, r, engine.SandboxOptions{Files: dir})
			if got := sh(t, s, "cat "+trees[0]+"/file; ls "+tree+" | wc -l"); got.Output != "kept\n0\n" {
				t.Errorf("got %+v", got)
			}
		}
		must.Do(t, r.Close())
	}
}

// TestRestoreMany checks that the garbage collector does not close a file that the
// second stage needs while that is being executed: reading files makes much garbage.
func TestRestoreMany(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{})
	sh(t, s, "cd $TMPDIR; for i in $(seq 300); do echo $i > $i; done")
	dir := saveTo(t, s)
	var starting errgroup.Group
	starting.SetLimit(8)
	for i := range 80 {
		starting.Go(func() error {
			next, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: fmt.Sprintf("next%d", i), Files: dir})
			if err != nil {
				return err
			}
			return next.Close()
		})
	}
	if err := starting.Wait(); err != nil {
		t.Error(err)
	}
}

// TestSaveAndClose checks that the end of a sandbox ends its save.
func TestSaveAndClose(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, r *Room) {
		saves := map[string]func(*Sandbox, context.Context, string) error{"files": (*Sandbox).Save}
		if r.haveLayers() == nil {
			saves["a layer"] = func(s *Sandbox, ctx context.Context, dir string) error { return saveLayer(ctx, s, dir) }
		}
		for what, save := range saves {
			for _, files := range []string{"1", "2000"} {
				s := newSandbox(t, r, engine.SandboxOptions{})
				sh(t, s, "cd $TMPDIR; for i in $(seq "+files+"); do echo $i > $i; done; head -c 100M /dev/zero > big")
				freeze(t, s)
				dir := layerDir(t)
				saved := make(chan error)
				go func() { saved <- save(s, t.Context(), dir) }()
				patience.Until(t, "it has begun", func() bool { entries, _ := os.ReadDir(dir); return len(entries) > 0 })
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if err := <-saved; err != nil && !errors.Is(err, engine.ErrGone) {
					t.Errorf("%s: got %v, want %v", what, err, engine.ErrGone)
				}
			}
		}
	})
}

// BenchmarkSave measures how long saving and restoring files takes.
func BenchmarkSave(b *testing.B) {
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
			var restored time.Duration
			for b.Loop() {
				dir := b.TempDir()
				must.Do(b, s.Save(b.Context(), dir))
				b.StopTimer()
				began := time.Now()
				next, err := r.NewSandbox(b.Context(), engine.SandboxOptions{ID: "next", Files: dir})
				restored += time.Since(began)
				must.Do(b, err)
				must.Do(b, next.Close())
				b.StartTimer()
			}
			b.ReportMetric(float64(restored.Milliseconds())/float64(b.N), "restore-ms")
		})
	}
}
