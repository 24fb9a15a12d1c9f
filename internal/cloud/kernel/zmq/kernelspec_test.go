//go:build linux

package zmq

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestKernelspecs(t *testing.T) {
	t.Parallel()
	home, prefix := t.TempDir(), t.TempDir()
	write := func(root, name, data string) string {
		t.Helper()
		dir := filepath.Join(root, "share/jupyter/kernels", name)
		must.Do(t, os.MkdirAll(dir, 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, "kernel.json"), []byte(data), 0o644))
		return dir
	}
	mine := write(filepath.Join(home, ".local"), "Mine", `{"argv":["x","{connection_file}","{resource_dir}/y"],"language":"l","env":{"A":"${B}c${UNKNOWN}$B"}}`)
	write(prefix, "mine", `{"argv":["shadowed"]}`)
	write(prefix, "empty", `{"argv":[]}`)
	write(prefix, "broken", `{`)
	write(prefix, "other", `{"argv":["/bin/true"],"interrupt_mode":"message"}`)
	pipe := filepath.Join(prefix, "share/jupyter/kernels/pipe")
	must.Do(t, os.Mkdir(pipe, 0o755))
	must.Do(t, unix.Mkfifo(filepath.Join(pipe, "kernel.json"), 0o644))
	specs := Dirs([]string{"HOME=" + home, "JUPYTER_PATH=relative"}, prefix)
	for name, want := range map[string]string{
		"empty": "argv is empty", "broken": "unexpected end", "pipe": "is not a file",
		"nobody": "not installed", "../kernels/mine": "not installed", "..": "not installed", "": "not installed", "a/b": "not installed",
	} {
		if _, err := specs.Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	if _, err := specs.Find("nobody"); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v, want ErrNotInstalled", err)
	}
	spec, err := specs.Find("MINE")
	must.Do(t, err)
	if spec.Dir != mine || spec.Name != "mine" || spec.InterruptMode != "signal" {
		t.Fatalf("got %+v, want %q in %s, interrupted by signal", spec, "mine", mine)
	}
	environ := spec.environ([]string{"B=b", "PATH=/nowhere:" + home})
	if !slices.Contains(environ, "A=bc${UNKNOWN}$B") {
		t.Errorf("got %q, want %q in it", environ, "A=bc${UNKNOWN}$B")
	}
	if _, err := spec.command(environ, "/c"); err == nil {
		t.Error("a program that is not there was found, want an error")
	}
	must.Do(t, os.WriteFile(filepath.Join(home, "x"), []byte("#!/bin/sh\n"), 0o755))
	argv, err := spec.command(environ, "/c")
	if want := []string{filepath.Join(home, "x"), "/c", mine + "/y"}; err != nil || !slices.Equal(argv, want) {
		t.Errorf("got %q, %v, want %q and no error", argv, err, want)
	}
	var names []string
	for _, spec := range specs.All() {
		if strings.HasPrefix(spec.Dir, home) || strings.HasPrefix(spec.Dir, prefix) {
			names = append(names, spec.Name)
		}
	}
	if !slices.Equal(names, []string{"mine", "other"}) {
		t.Errorf("got %q, want %q", names, []string{"mine", "other"})
	}
}
