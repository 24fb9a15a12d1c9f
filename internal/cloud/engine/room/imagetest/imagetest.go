//go:build linux

// Package imagetest makes layers of container images by hand, for tests of sandboxes that
// are made from them.
package imagetest

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// Layer makes a layer for an engine whose sandboxes have the given number of ids. fill makes the
// files of the layer in root. whole means that there is no layer below this layer.
func Layer(t testing.TB, ids uint32, whole bool, fill func(root string) error) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Cleanup(func() { // its files may lock out their owner
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "chmod", "-R", "u+rwx", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	layout := "one id"
	if ids > 1 {
		layout = fmt.Sprintf("%d ids", guest.IDs)
	}
	root := filepath.Join(dir, layer.Trees, "0")
	err := os.MkdirAll(root, 0o755)
	if err == nil {
		err = fill(root)
	}
	if err == nil {
		err = layer.Manifest{Layout: layout, Whole: whole, Trees: []string{""}}.Write(dir)
	}
	must.Do(t, err)
	return dir
}

// busybox returns the path of a static busybox.
func busybox(t testing.TB) string {
	t.Helper()
	path := pinned.Program(t, "busybox", "busybox-static")
	f, err := elf.Open(path)
	must.Do(t, err)
	defer func() { _ = f.Close() }()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		pinned.Skip(t, "busybox-static is needed: %s is linked to libraries", path)
	}
	return path
}

// Busybox makes the files of an image that contains only busybox. busybox is in /bin under the
// given names. Without names, it is in /bin under every name that "busybox --list" prints.
func Busybox(t testing.TB, root string, names ...string) error {
	t.Helper()
	program := busybox(t)
	if len(names) == 0 {
		list, err := exec.CommandContext(t.Context(), program, "--list").Output()
		if err != nil {
			return err
		}
		names = strings.Fields(string(list))
	}
	err := copyFile(program, filepath.Join(root, "bin", "busybox"))
	for _, name := range names {
		if name != "busybox" {
			err = errors.Join(err, os.Symlink("busybox", filepath.Join(root, "bin", name)))
		}
	}
	return err
}

// library matches the path of a library in the output of ldd.
var library = regexp.MustCompile(`(/\S+) \(0x`)

// Programs adds programs of this machine and the libraries that they are linked to. All files keep
// their paths.
func Programs(t testing.TB, root string, paths ...string) error {
	t.Helper()
	for _, path := range paths {
		out, err := exec.CommandContext(t.Context(), "ldd", path).CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("not a dynamic executable")) {
			return fmt.Errorf("ldd %s: %w: %s", path, err, out)
		}
		files := []string{path}
		for _, found := range library.FindAllSubmatch(out, -1) {
			files = append(files, string(found[1]))
		}
		for _, file := range files {
			to := filepath.Join(root, file)
			if _, err := os.Lstat(to); err == nil {
				continue
			}
			if err := copyFile(file, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// Python adds this machine's python3 with its standard library, as /bin/python3.
func Python(t testing.TB, root string) error {
	t.Helper()
	const where = "import os, sys, sysconfig; print(os.path.realpath(getattr(sys, '_base_executable', sys.executable))); print(sysconfig.get_path('stdlib'))"
	out, err := exec.CommandContext(t.Context(), "python3", "-c", where).Output()
	if err != nil {
		pinned.Skip(t, "python3 is needed: %v", err)
	}
	program, stdlib, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	modules, err := filepath.Glob(filepath.Join(stdlib, "lib-dynload", "*.so"))
	if err != nil {
		return err
	}
	if err := Programs(t, root, append(modules, program)...); err != nil {
		return err
	}
	copying := exec.CommandContext(t.Context(), "sh", "-c", `tar -C / -chf - --exclude=test --exclude=tests --exclude=site-packages --exclude=dist-packages --exclude=__pycache__ --exclude=idlelib --exclude='config-*' ".$1" | tar -C "$2" -xf -`, "sh", stdlib, root)
	if out, err := copying.CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", stdlib, err, out)
	}
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		return err
	}
	return os.Symlink(program, filepath.Join(root, "bin", "python3"))
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, w.Close())
}
