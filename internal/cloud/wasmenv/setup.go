package wasmenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
)

// Setup prepares this machine, unless it is already prepared. It reports progress to the writer
// progress. from is a directory that contains the archives of the packages, under the names that
// `npm pack` uses. If from is "", Setup fetches the archives. Any number of processes may call
// Setup at the same time.
func Setup(ctx context.Context, progress io.Writer, from string) (*Env, error) {
	if progress == nil {
		progress = io.Discard
	}
	env, err := Find()
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotSetUp) {
		return env, err
	}
	all, err := packages(system())
	if err != nil {
		return nil, err
	}
	dir, err := home()
	if err != nil {
		return nil, err
	}
	err = used.Make(dir, progress, Check, func(made, scratch string) error {
		return prepare(ctx, progress, all, from, made, scratch)
	})
	if err != nil {
		return nil, fmt.Errorf("wasm: %w", err)
	}
	return Find()
}

// prepare writes all files of an [Env] to dir.
func prepare(ctx context.Context, progress io.Writer, all []npmPackage, from, dir, scratch string) error {
	if from == "" {
		fmt.Fprintf(progress, "fetching %v through npm\n", all)
		from = filepath.Join(scratch, "packages")
		if err := os.Mkdir(from, 0o700); err != nil {
			return err
		}
		if err := fetch(ctx, all, from); err != nil {
			return err
		}
	}
	if err := unpack(all, from, dir); err != nil {
		return err
	}
	fmt.Fprintln(progress, "making a snapshot of Python")
	if err := makeSnapshot(ctx, dir, filepath.Join(scratch, "driver")); err != nil {
		return err
	}
	return writeSizes(dir)
}

// makeSnapshot adds the programs and the snapshot to dir. driver is a directory for the kernel
// driver's files. These files are needed only while the snapshot is made.
func makeSnapshot(ctx context.Context, dir, driver string) error {
	deno, err := fs.Sub(programs, "deno")
	if err != nil {
		return err
	}
	if err := errors.Join(os.CopyFS(dir, deno), os.CopyFS(driver, python.Files())); err != nil {
		return err
	}
	snapshot := filepath.Join(dir, snapshotName)
	arguments := append([]string{"run"}, sealed...)
	arguments = append(arguments, "--allow-read="+dir+","+driver, "--allow-write="+snapshot, filepath.Join(dir, makerName), driver, snapshot)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, denoName), arguments...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, Environ(), waitDelay
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		_, err = os.Stat(snapshot)
	}
	if err != nil {
		return fmt.Errorf("make the snapshot of Python: %w: %s", err, clip.Text(strings.TrimSpace(string(output)), 2<<10))
	}
	return nil
}
