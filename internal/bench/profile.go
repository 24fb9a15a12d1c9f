//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"golang.org/x/sys/unix"
)

// profiled measures a row and, if the plan has a directory for them, writes two profiles of the
// time of its processors. NAME.pprof is about this program, which is client and server. NAME.perf
// is about the whole machine, so it contains envd, the driver and the kernel; perf makes it, and
// without perf it is left out with a notice.
func (p plan) profiled(ctx context.Context, row row, runs int) (m outcome, err error) {
	if p.profile == "" {
		return row.inTurns(ctx, runs)
	}
	if err := os.MkdirAll(p.profile, 0o755); err != nil {
		return outcome{}, err
	}
	path := filepath.Join(p.profile, fileName(row.name))
	file, err := os.Create(path + ".pprof")
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	stop, err := recordMachine(ctx, path+".perf")
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return outcome{}, err
	}
	defer pprof.StopCPUProfile()
	row.floor = nil // the profile is about the row alone
	return row.inTurns(ctx, runs)
}

// fileName returns the name of a row with a hyphen for everything but letters and digits.
func fileName(row string) string {
	words := strings.FieldsFunc(row, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-")
}

// recordMachine starts perf for the whole machine. The caller must call the returned function, which
// waits until the file is written.
func recordMachine(ctx context.Context, path string) (stop func() error, err error) {
	perf, err := exec.LookPath("perf")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: no profile of envd, driver and kernel: perf is not installed (Debian's package linux-perf)")
		return func() error { return nil }, nil //nolint:nilerr // half of the profiles is better than none
	}
	command := exec.CommandContext(ctx, perf, "record", "--quiet", "--all-cpus", "--call-graph", "fp", "--freq", "999", "--output", path)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return nil, err
	}
	return func() error {
		if err := command.Process.Signal(unix.SIGINT); err != nil {
			return err
		}
		return ignoreExit(command.Wait()) // perf ends with the signal
	}, nil
}

// ignoreExit drops the error that says how a program ended.
func ignoreExit(err error) error {
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		return err
	}
	return nil
}
