package gvisorenv

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// Version is the version of gVisor that Setup builds.
const Version = "v0.0.0-20260905035102-160fafc42237"

const source = "gvisor.dev/gvisor/runsc@" + Version

// ErrNotSetUp means that there is no runsc.
var ErrNotSetUp = errors.New("there is no runsc, the program of gVisor: run `e2bctl local setup --engine gvisor`, which builds it with the Go of this machine, or name one with --runsc PATH or local.WithRunsc(path)")

// Program is a runsc.
type Program struct {
	Path    string
	Version string // as it says itself
}

// Find returns the runsc at path, or what Setup built if path is "". If there is none the
// error matches [ErrNotSetUp].
func Find(ctx context.Context, path string) (Program, error) {
	p := Program{Path: path}
	if path == "" {
		dir, err := home()
		if err != nil {
			return Program{}, err
		}
		p.Path = filepath.Join(dir, "runsc")
		if _, err := os.Stat(p.Path); err != nil {
			return Program{}, fmt.Errorf("gvisor: %w (%w)", ErrNotSetUp, err)
		}
	}
	var err error
	if p.Path, err = filepath.Abs(p.Path); err != nil {
		return Program{}, fmt.Errorf("gvisor: %w", err)
	}
	p.Version, err = versionOf(ctx, p.Path)
	if err != nil {
		return Program{}, fmt.Errorf("gvisor: %s is no runsc that runs here: %w", p.Path, err)
	}
	return p, nil
}

// versionTimeout bounds how long a program may take to say its version.
const versionTimeout = 20 * time.Second

// versionOf asks a program for its version, which proves that it is a runsc.
func versionOf(ctx context.Context, path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", errors.New("it is not a regular file")
	case info.Mode()&0o005 != 0o005 && os.Geteuid() == 0:
		return "", fmt.Errorf("the ids of sandboxes may not execute it: chmod 755 %s", path)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, fmt.Errorf("it did not say its version within %v", versionTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.WaitDelay = time.Second
	said, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(said), "\n")
	version, ok := strings.CutPrefix(line, "runsc version ")
	if !ok {
		return "", fmt.Errorf("%s --version says %q", path, clip.Text(line, 100))
	}
	version = clip.Text(strings.TrimSpace(version), 100)
	if info, err := buildinfo.ReadFile(path); err == nil && version == "VERSION_MISSING" { // as the go command builds it
		version = info.Main.Version
	}
	return "runsc " + version, nil
}

// home returns the directory of the runsc of this version. It is private to this user: what is
// in it runs as this user, too.
func home() (string, error) {
	cache, err := privatedir.Make("gvisor", privatedir.Cache)
	if err != nil {
		return "", fmt.Errorf("gvisor: the directory for runsc: %w", err)
	}
	return filepath.Join(cache, Version), nil
}

// Setup builds runsc, unless that has been done, with the go command of this machine, which
// fetches its source as it does any module's. It writes what it does to progress. Any number
// of processes may do so at once. command is the go command; "" stands for go.
func Setup(ctx context.Context, progress io.Writer, command string) (Program, error) {
	if progress == nil {
		progress = io.Discard
	}
	if runtime.GOOS != "linux" {
		return Program{}, fmt.Errorf("gvisor: it runs on Linux, and this is %s", runtime.GOOS)
	}
	program, err := Find(ctx, "")
	if !errors.Is(err, ErrNotSetUp) {
		return program, err
	}
	command, err = exec.LookPath(cmp.Or(command, "go"))
	if err != nil {
		return Program{}, fmt.Errorf("gvisor: runsc is built with the go command, which is not there: install Go (https://go.dev/dl), or name a runsc with --runsc PATH: %w", err)
	}
	dir, err := home()
	if err != nil {
		return Program{}, err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "making-")
	if err != nil {
		return Program{}, fmt.Errorf("gvisor: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }() // it only takes up space
	fmt.Fprintf(progress, "building %s, which takes some minutes\n", source)
	if err := build(ctx, progress, command, temporary); err != nil {
		return Program{}, err
	}
	// The ids of sandboxes are others, whatever the umask of this process.
	if err := errors.Join(os.Chmod(temporary, 0o755), os.Chmod(filepath.Join(temporary, "runsc"), 0o755)); err != nil {
		return Program{}, fmt.Errorf("gvisor: %w", err)
	}
	if _, err := versionOf(ctx, filepath.Join(temporary, "runsc")); err != nil {
		return Program{}, fmt.Errorf("gvisor: what %s built is no runsc that runs here: %w", source, err)
	}
	renamed := os.Rename(temporary, dir)
	program, err = Find(ctx, "") // another process may have been faster
	if errors.Is(err, ErrNotSetUp) && renamed != nil {
		return Program{}, fmt.Errorf("gvisor: %w", renamed)
	}
	return program, err
}

// build builds runsc in dir.
func build(ctx context.Context, progress io.Writer, command, dir string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, command, "install", "-trimpath", "-ldflags=-s -w", source)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Dir = dir // no module of the caller's decides anything
	cmd.Stdout = io.MultiWriter(&said, progress)
	cmd.Stderr = cmd.Stdout // the same, so that nothing is written at once
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("gvisor: go install %s: %w: %s", source, err, clip.LastLine(strings.TrimSpace(said.String()), 1<<10))
	}
	return nil
}
