//go:build linux

package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Image is the name of the image that daemons have. It contains busybox, and the bash and the
// Python of this machine. Bare is the name of an image with only busybox.
const (
	Image = "e2bctl-test:python"
	Bare  = "e2bctl-test:bare"
)

// Files returns the files of [Image] or [Bare] as a layer: a tar that is not compressed.
func Files(name string) ([]byte, error) {
	files := bareFiles
	if name == Image {
		files = pythonFiles
	}
	data, err := files()
	if err != nil {
		return nil, fmt.Errorf("the files of %s: %w", name, err)
	}
	return data, nil
}

func (d *Daemon) addImage(ctx context.Context) error {
	for _, name := range []string{Image, Bare} {
		data, err := Files(name)
		if err != nil {
			return err
		}
		if _, err := d.docker(ctx, data, "import", "--change", "ENV FROM_IMAGE=yes", "-", name); err != nil {
			return err
		}
	}
	return nil
}

var (
	bareFiles   = sync.OnceValues(func() ([]byte, error) { return archive(context.Background(), nil) })
	pythonFiles = sync.OnceValues(func() ([]byte, error) { return archive(context.Background(), addPython) })
)

// tree collects the files of an image.
type tree struct {
	*tar.Writer
	have map[string]bool
}

func archive(ctx context.Context, more func(context.Context, *tree) error) ([]byte, error) {
	var data bytes.Buffer
	t := &tree{tar.NewWriter(&data), map[string]bool{}}
	err := t.addBase(ctx)
	if err == nil && more != nil {
		err = more(ctx, t)
	}
	return data.Bytes(), errors.Join(err, t.Close())
}

func (t *tree) addBase(ctx context.Context) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	for _, dir := range []string{"bin", "etc", "usr", "usr/bin", "proc", "sys", "dev", "var"} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	if err := t.addText("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"); err != nil {
		return err
	}
	if err := t.addAs(busybox, "bin/busybox"); err != nil {
		return err
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(applets)) {
		if name == "busybox" {
			continue
		}
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}); err != nil {
			return err
		}
	}
	return nil
}

// addPython adds this machine's bash and Python, if they exist.
func addPython(ctx context.Context, t *tree) error {
	where, err := exec.CommandContext(ctx, "python3", "-c", "import os, sys, sysconfig; print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib')); print(sysconfig.get_config_var('DESTSHARED') or '')").Output()
	if err != nil {
		return fmt.Errorf("ask python3 where it is: %w", err)
	}
	lines := strings.Split(string(where), "\n")
	python, library := lines[0], lines[1]
	bash, err := exec.LookPath("bash")
	if err != nil {
		return err
	}
	programs := []string{python, bash}
	err = filepath.WalkDir(library, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{"test", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages", "dist-packages"}, entry.Name()) {
			return fs.SkipDir
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		if strings.HasSuffix(path, ".so") {
			programs = append(programs, path)
		}
		return t.add(path)
	})
	if err != nil {
		return err
	}
	for _, program := range programs {
		if err := t.addWithLibraries(ctx, program); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"usr/bin/python3": python, "bin/bash": bash} {
		if "/"+link != to {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: to}); err != nil {
				return err
			}
		}
	}
	return nil
}

// addWithLibraries adds a program and the libraries that it is linked to.
func (t *tree) addWithLibraries(ctx context.Context, path string) error {
	if err := t.add(path); err != nil {
		return err
	}
	linked, err := exec.CommandContext(ctx, "ldd", path).Output()
	if err != nil {
		return nil //nolint:nilerr // it is static
	}
	for _, word := range strings.Fields(string(linked)) {
		if filepath.IsAbs(word) {
			if err := t.add(word); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a file of this machine under its own path, following symbolic links.
func (t *tree) add(path string) error { return t.addAs(path, path[1:]) }

func (t *tree) addAs(path, name string) error {
	if t.have[name] {
		return nil
	}
	t.have[name] = true
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}); err != nil {
		return err
	}
	_, err = t.Write(data)
	return err
}

func (t *tree) addText(name, text string) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o644}); err != nil {
		return err
	}
	_, err := t.Write([]byte(text))
	return err
}
