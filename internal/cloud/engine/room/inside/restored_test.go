//go:build linux

package inside

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// reopen returns a file at its beginning, as a file that is passed.
func reopen(t *testing.T, path string, files *wire.Files, name wire.FileName) {
	t.Helper()
	f, err := os.Open(path)
	must.Do(t, err)
	files.Add(name, f)
}

// saveChanged builds the file system of a description, changes it, and saves it to a file. It returns the
// name of that file.
func saveChanged(t *testing.T, spec *wire.InitSpec, files *wire.Files) string {
	t.Helper()
	path := t.TempDir() + "/saved"
	to, err := os.Create(path)
	must.Do(t, err)
	server, control, err := bridgeEnds()
	must.Do(t, err)
	defer server.Close()
	defer control.Close()
	apart(t, func() error {
		b, err := build(namespaces{}, spec, files)
		if err != nil {
			return err
		}
		err = errors.Join(
			os.WriteFile("/kept", []byte("kept"), 0o640), os.WriteFile(spec.Trees[0]+"/file", []byte("changed"), 0o644), os.WriteFile("/etc/hosts", []byte("own"), 0o644),
			os.WriteFile("/dev/shm/left", nil, 0o644), os.MkdirAll(runDirectory, 0o755), os.WriteFile(runDirectory+"/left", nil, 0o644), os.Remove("/etc/mtab"),
			os.Mkdir(spec.Trees[0]+"/new", 0o700), os.Symlink("/kept", "/link9"),
		)
		if err != nil && len(spec.Layers) == 0 {
			return err
		}
		var passed wire.Files
		passed.Add(wire.FileFiles, b.files)
		passed.Add(wire.FileTo, to)
		return runSaver(control, wire.Encode(wire.SaveSpec{Layout: "layout", Trees: spec.Trees, Layered: len(spec.Layers) > 0}), &passed)
	})
	_, _, err = server.Expect(wire.KindReady, 0)
	must.Do(t, errors.Join(err, to.Close()))
	return path
}

// TestSavedFilesReturn saves the changed files of a sandbox, and builds the next file system from them, in
// which its tree is shown again or no longer.
func TestSavedFilesReturn(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	for _, layered := range []bool{false, true} {
		specify := func(t *testing.T, files *wire.Files) *wire.InitSpec {
			if layered {
				return layeredSpec(t, false, files)
			}
			return buildSpec(t, files)
		}
		var files wire.Files
		spec := specify(t, &files)
		tree := spec.Trees[0]
		path := saveChanged(t, spec, &files)
		for _, outcome := range []string{"again", "lost", "part", "layout"} {
			var files wire.Files
			next := &wire.InitSpec{Runner: spec.Runner, Disk: spec.Disk, Layers: spec.Layers, Saved: "layout"}
			reopen(t, path, &files, wire.FileSaved)
			var want error
			switch outcome {
			case "again":
				next.Trees, next.Mounted = []string{tree}, []bool{false}
			case "part":
				next.Trees, next.Mounted = []string{tree + "/in"}, []bool{false}
				must.Do(t, os.MkdirAll(tree+"/in", 0o755))
			case "layout":
				next.Saved, want = "another", saved.ErrLayout
			}
			apart(t, func() error {
				b, err := build(namespaces{}, next, &files)
				if outcome == "part" && (err == nil || !strings.Contains(err.Error(), "which this machine now shows as a part of something else")) {
					return fmt.Errorf("a tree of which a part is shown: got error %w", err)
				}
				if outcome == "part" || want != nil && errors.Is(err, want) {
					return nil
				}
				if err != nil {
					return err
				}
				defer b.files.Close()
				if notes := strings.Join(b.notes, "\n"); strings.Contains(notes, tree+" is no longer shown") != (outcome == "lost") {
					t.Errorf("layered %v, %s: got the notes %s", layered, outcome, notes)
				}
				if (len(b.lost) > 0) != (layered) {
					t.Errorf("layered %v, %s: got the lost trees %v", layered, outcome, b.lost)
				}
				info, err := os.Stat(tree + "/new")
				if err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("layered %v, %s: a new directory has the mode %v, error %v", layered, outcome, info.Mode(), err)
				}
				target, err := os.Readlink("/link9")
				if err != nil || target != "/kept" {
					t.Errorf("layered %v, %s: a link leads to %q, error %v", layered, outcome, target, err)
				}
				return errors.Join(shows("/kept", "kept", true), shows(tree+"/file", "changed", true), shows("/etc/hosts", "", true), lacks("/dev/shm/left", runDirectory+"/left", "/etc/mtab"))
			})
		}
	}
}

// TestSaverIsRefused checks that a saver whose files cannot be written, or that gets other files, fails.
func TestSaverIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(dir+"/root/a", 0o755))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must.Do(t, err)
	for name, tt := range map[string]struct {
		files []wire.FileName
		spec  wire.SaveSpec
		want  error
	}{
		"nothing":      {nil, wire.SaveSpec{}, wire.ErrProtocol},
		"no file":      {[]wire.FileName{wire.FileFiles}, wire.SaveSpec{}, wire.ErrProtocol},
		"another file": {[]wire.FileName{wire.FileFiles, wire.FileTo, wire.FileConfig}, wire.SaveSpec{}, wire.ErrProtocol},
		"no layers":    {[]wire.FileName{wire.FileFiles, wire.FileTo}, wire.SaveSpec{Layered: true}, unix.ENOENT},
		"no tree":      {[]wire.FileName{wire.FileFiles, wire.FileTo}, wire.SaveSpec{Trees: []string{"/usr"}}, unix.ENOENT},
		"a full disk":  {[]wire.FileName{wire.FileFiles, wire.FileTo}, wire.SaveSpec{}, unix.ENOSPC},
	} {
		var files wire.Files
		for _, name := range tt.files {
			if name == wire.FileTo {
				files.Lend(name, full)
			} else {
				reopen(t, dir, &files, name)
			}
		}
		if err := runSaver(nil, wire.Encode(tt.spec), &files); !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		files.Close()
	}
	must.Do(t, full.Close())
}
