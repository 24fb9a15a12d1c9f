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
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/cloud/setupdir"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// Version is the version of gVisor that Setup builds.
const Version = "v0.0.0-20260905035102-160fafc42237"

const source = "gvisor.dev/gvisor/runsc@" + Version

var (
	// ErrNotSetUp reports that there is no runsc.
	ErrNotSetUp = errors.New("there is no runsc, the program of gVisor: run `e2bctl local setup --engine gvisor`, which builds it with the Go of this machine, or name one with --runsc PATH")
	// ErrDamaged reports that the runsc that Setup built does not run.
	ErrDamaged = errors.New("this runsc, which was built here, no longer runs: run `e2bctl local setup --engine gvisor`, which builds it again")
)

// used marks the time when the runsc that Setup built was last used.
const used = setupdir.Marker(name)

const name = "runsc" // name of the program's file in its directory

// Program is a runsc.
type Program struct {
	Path    string
	Version string // as printed by runsc
	dir     string // directory that Setup created for the program; "": Setup did not build it
}

// NoteUse records that the runsc is in use, as [setupdir.Marker.NoteUse] does. It does nothing if
// Setup did not build the runsc. Later versions of this program remove a runsc that is no longer
// used.
func (p Program) NoteUse() {
	if p.dir != "" {
		used.NoteUse(p.dir)
	}
}

// Find returns the runsc at path. If path is "", it returns the runsc that Setup built. The error
// matches [ErrNotSetUp] if Setup has built no runsc, and [ErrDamaged] if the runsc that Setup built
// does not run.
func Find(ctx context.Context, path string) (Program, error) {
	if path == "" {
		return findBuilt(ctx)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return Program{}, fmt.Errorf("gvisor: %w", err)
	}
	version, err := versionOf(ctx, path)
	if err != nil {
		return Program{}, fmt.Errorf("gvisor: %s is not a runsc that runs here: %w", path, err)
	}
	return Program{Path: path, Version: version}, nil
}

// findBuilt returns the runsc that Setup built.
func findBuilt(ctx context.Context) (Program, error) {
	dir, err := home()
	if err != nil {
		return Program{}, err
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return Program{}, fmt.Errorf("gvisor: %w (%w)", ErrNotSetUp, err)
	}
	version, err := versionOf(ctx, path)
	switch {
	case err == nil:
		return Program{Path: path, Version: version, dir: dir}, nil
	case ctx.Err() != nil || errors.Is(err, errSlow) || shortage.Of(err) != nil: // it may be intact
		return Program{}, fmt.Errorf("gvisor: %s: %w", path, err)
	}
	return Program{}, fmt.Errorf("gvisor: %s: %w (%w)", path, ErrDamaged, err)
}

// versionTimeout bounds the time in which a program must print its version.
const versionTimeout = 20 * time.Second

var errSlow = fmt.Errorf("it did not say its version within %v", versionTimeout)

// versionOf returns the version that the program at path prints. This proves that the program
// is a runsc.
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
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, errSlow)
	defer cancel()
	cmd := hostprogram.Command(ctx, "", path, "--version")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.WaitDelay = time.Second
	said, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, clip.Text(strings.TrimSpace(string(exit.Stderr)), 500))
		}
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(said), "\n")
	version, ok := strings.CutPrefix(line, "runsc version ")
	if !ok {
		return "", fmt.Errorf("%s --version says %q", path, clip.Text(line, 100))
	}
	version = clip.Text(strings.TrimSpace(version), 100)
	if info, err := buildinfo.ReadFile(path); err == nil && version == "VERSION_MISSING" { // version as recorded by the go command
		version = info.Main.Version
	}
	return "runsc " + version, nil
}

// home returns the directory of the runsc of this version. The directory is private to this
// user, because the program in it runs as this user.
func home() (string, error) {
	cache, err := privatedir.Make("gvisor", privatedir.Cache)
	if err != nil {
		return "", fmt.Errorf("gvisor: the directory for runsc: %w", err)
	}
	return filepath.Join(cache, Version), nil
}

// Setup builds runsc with the go command of this machine, unless Setup has already built a
// runsc that works. The go command fetches the source of gVisor like the source of any module.
// Setup writes its progress to progress. Any number of processes may call Setup at the same time.
// command is the go command; "" means go.
func Setup(ctx context.Context, progress io.Writer, command string) (Program, error) {
	if progress == nil {
		progress = io.Discard
	}
	if runtime.GOOS != "linux" {
		return Program{}, fmt.Errorf("gvisor: it runs on Linux, and this is %s", runtime.GOOS)
	}
	program, err := Find(ctx, "")
	if !errors.Is(err, ErrNotSetUp) && !errors.Is(err, ErrDamaged) {
		return program, err
	}
	command, err = hostprogram.Find(cmp.Or(command, "go"))
	if err != nil {
		return Program{}, fmt.Errorf("gvisor: runsc is built with the go command, which is not there: install Go (https://go.dev/dl), or name a runsc with --runsc PATH: %w", err)
	}
	dir, err := home()
	if err != nil {
		return Program{}, err
	}
	fmt.Fprintf(progress, "building %s, which takes some minutes\n", source)
	works := func(dir string) error {
		if _, err := versionOf(ctx, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("it is not a runsc that runs here: %w", err)
		}
		return nil
	}
	err = used.Make(dir, progress, works, func(made, scratch string) error { return build(ctx, progress, command, made, scratch) })
	if err != nil {
		return Program{}, fmt.Errorf("gvisor: build %s: %w", source, err)
	}
	return findBuilt(ctx)
}

// build builds runsc in dir.
func build(ctx context.Context, progress io.Writer, command, dir, scratch string) error {
	var said bytes.Buffer
	// In scratch, no module of the caller affects the build.
	cmd := hostprogram.Command(ctx, scratch, command, "install", "-trimpath", "-ldflags=-s -w", source)
	cmd.Env = append(cmd.Env, "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Stdout = io.MultiWriter(&said, progress)
	cmd.Stderr = cmd.Stdout // the same writer as Stdout, so that writes do not overlap
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("go install: %w: %s", err, clip.LastLine(strings.TrimSpace(said.String()), 1<<10))
	}
	return nil
}
