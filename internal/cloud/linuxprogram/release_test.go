//go:build linux

package linuxprogram_test

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/cloud/linuxprogram"
	"github.com/e2bctl/e2bctl/internal/must"
)

// other returns an architecture that this machine does not have, with its names in Go and in
// daemons.
func other() (golang, daemon string) {
	if runtime.GOARCH == "arm64" {
		return "amd64", "x86_64"
	}
	return "arm64", "aarch64"
}

// root returns the working tree.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	must.Do(t, err)
	return dir
}

// goEnv returns a variable of the go command.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	must.Do(t, err)
	return strings.TrimSpace(string(out))
}

// TestRelease checks that a release for another system contains the programs for containers, which are byte
// for byte those that other builds compile. A release for Linux contains none, and takes the release for
// the other processor, without Go.
func TestRelease(t *testing.T) {
	enginetest.Need(t) // it compiles for minutes
	golang, named := other()
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"Architecture": named, "OSType": "linux"})
	}))
	defer daemon.Close()
	dir := t.TempDir()
	release := exec.CommandContext(t.Context(), "make", "-C", root(t), "release", "RELEASE="+dir, "RELEASES=linux/amd64 linux/arm64 darwin/arm64")
	release.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := release.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	if left, err := filepath.Glob("linux_*.gz"); len(left) > 0 || err != nil {
		t.Errorf("make release left %v, %v", left, err)
	}
	checkContained(t, dir, golang)
	home, from := t.TempDir(), filepath.Join(dir, "e2bctl-linux-"+golang)
	setUp := func(args ...string) ([]byte, error) {
		setup := exec.CommandContext(t.Context(), filepath.Join(dir, "e2bctl-linux-"+runtime.GOARCH), append([]string{"local", "setup", "--engine", "docker", "-o", "json"}, args...)...)
		setup.Dir, setup.Env = home, []string{"HOME=" + home, "PATH=" + home, "DOCKER_HOST=tcp://" + daemon.Listener.Addr().String()}
		return setup.CombinedOutput()
	}
	if out, err := setUp(); err == nil || !strings.Contains(string(out), "name the e2bctl of the release for linux/"+golang+" with --from") {
		t.Errorf("local setup without a program: %v\n%s, want what to name", err, out)
	}
	out, err := setUp("--from", from, "--quiet")
	if err != nil {
		t.Fatalf("local setup --from: %v\n%s", err, out)
	}
	var prepared struct{ Program string }
	if err := json.Unmarshal(out, &prepared); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want, err := os.ReadFile(from)
	must.Do(t, err)
	if taken, err := os.ReadFile(prepared.Program); err != nil || !bytes.Equal(taken, want) {
		t.Errorf("it took %d bytes, %v, want the %d bytes of %s", len(taken), err, len(want), from)
	}
	carried, err := os.ReadFile(filepath.Join(dir, "contained-linux-"+golang))
	must.Do(t, err)
	t.Setenv("GOCACHE", goEnv(t, "GOCACHE"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path, err := linuxprogram.Make(t.Context(), io.Discard, golang)
	must.Do(t, err)
	compiled, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(carried, compiled) {
		t.Errorf("the release carries %d bytes, %d are compiled (%v), want the same bytes", len(carried), len(compiled), err)
	}
	if found, err := linuxprogram.Find(golang); found != path || err != nil {
		t.Errorf("got %q, %v once it was made, want %s", found, err, path)
	}
	file, err := elf.Open(path)
	must.Do(t, err)
	defer file.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[golang]; file.Machine != want {
		t.Errorf("got a program for %v, want %v", file.Machine, want)
	}
}

// checkContained checks which releases in dir contain the packed program for an architecture.
func checkContained(t *testing.T, dir, architecture string) {
	t.Helper()
	packed, err := exec.CommandContext(t.Context(), "gzip", "-9nc", filepath.Join(dir, "contained-linux-"+architecture)).Output()
	must.Do(t, err)
	for name, want := range map[string]bool{"darwin-arm64": true, "linux-amd64": false, "linux-arm64": false} {
		program, err := os.ReadFile(filepath.Join(dir, "e2bctl-"+name))
		must.Do(t, err)
		if bytes.Contains(program, packed) != want {
			t.Errorf("the release for %s contains the program for %s: %v, want %v", name, architecture, !want, want)
		}
	}
}

// TestVersion compiles the program from a version of the module, which a module proxy serves.
func TestVersion(t *testing.T) {
	enginetest.Need(t) // it compiles for minutes
	const version = "v0.0.1-test"
	proxy, modules := t.TempDir(), t.TempDir()
	writeVersion(t, root(t), filepath.Join(proxy, "github.com/e2bctl/e2bctl/@v"), version)
	have := filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download")
	t.Setenv("GOMODCACHE", modules)
	t.Setenv("GOPROXY", "file://"+proxy+",file://"+have)
	t.Setenv("GONOSUMDB", linuxprogram.ModulePath)
	defer func() { // its files are read-only
		if out, err := exec.Command("go", "clean", "-modcache").CombinedOutput(); err != nil {
			t.Errorf("go clean -modcache: %v\n%s", err, out)
		}
	}()
	program := filepath.Join(t.TempDir(), "program")
	must.Do(t, linuxprogram.Build(t.Context(), version, runtime.GOARCH, program))
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != 2 || !strings.Contains(string(out), "in containers") {
		t.Errorf("got %v: %s, want that it says what it is", err, out)
	}
	err = linuxprogram.Build(t.Context(), "v0.0.2-none", runtime.GOARCH, filepath.Join(t.TempDir(), "program"))
	if err == nil || !strings.Contains(err.Error(), "fetch "+linuxprogram.ModulePath+" v0.0.2-none") {
		t.Errorf("got %v of a version that there is none of, want that it cannot be fetched", err)
	}
}

// writeVersion writes the files of a module proxy for a version of this module, as far as the test
// needs them.
func writeVersion(t *testing.T, tree, to, version string) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	must.Do(t, err)
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	add := func(path string) error {
		text, err := os.ReadFile(filepath.Join(tree, path))
		if err != nil {
			return err
		}
		w, err := archive.Create(linuxprogram.ModulePath + "@" + version + "/" + filepath.ToSlash(path))
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	err = errors.Join(add("go.mod"), add("go.sum"), filepath.WalkDir(filepath.Join(tree, "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{"tools", "interop", "testdata", "__pycache__"}, entry.Name()) {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); entry.IsDir() && err == nil {
			return fs.SkipDir // a module of its own, which no version of this one contains
		}
		if !entry.Type().IsRegular() || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		name, err := filepath.Rel(tree, path)
		return errors.Join(err, add(name))
	}), archive.Close(), os.MkdirAll(to, 0o700))
	for name, text := range map[string][]byte{".info": []byte(`{"Version":"` + version + `"}`), ".mod": mod, ".zip": packed.Bytes()} {
		err = errors.Join(err, os.WriteFile(filepath.Join(to, version+name), text, 0o600))
	}
	must.Do(t, err)
}
