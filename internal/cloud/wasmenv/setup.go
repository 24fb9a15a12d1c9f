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
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
)

// making is how the directory of an unfinished setup begins. One that is older than abandoned
// has no process left. What another version of this program prepared is kept for keptUnused:
// that version may be used tomorrow.
const (
	making     = "making-"
	abandoned  = 24 * time.Hour
	keptUnused = 30 * 24 * time.Hour
)

// Setup prepares this machine, unless that has been done, and writes what it does to
// progress. from is a directory with the files of the packages, as `npm pack` names them;
// "" fetches them. Any number of processes may do so at once.
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
	removeUnused(filepath.Dir(dir), progress)
	temporary, err := os.MkdirTemp(filepath.Dir(dir), making)
	if err != nil {
		return nil, fmt.Errorf("wasm: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }() // it is removed later, else
	packed, made := filepath.Join(temporary, "packages"), filepath.Join(temporary, "made")
	if err := errors.Join(os.Mkdir(packed, 0o700), os.Mkdir(made, 0o755)); err != nil {
		return nil, fmt.Errorf("wasm: %w", err)
	}
	if from == "" {
		fmt.Fprintf(progress, "fetching %v through npm\n", all)
		if err := fetch(ctx, all, packed); err != nil {
			return nil, err
		}
		from = packed
	}
	if err := unpack(all, from, made); err != nil {
		return nil, err
	}
	fmt.Fprintln(progress, "making a snapshot of Python")
	if err := makeSnapshot(ctx, made, filepath.Join(temporary, "driver")); err != nil {
		return nil, err
	}
	if err := writeSizes(made); err != nil {
		return nil, fmt.Errorf("wasm: %w", err)
	}
	if err := openToAll(made); err != nil {
		return nil, fmt.Errorf("wasm: %w", err)
	}
	if _, found := Find(); errors.Is(found, ErrDamaged) {
		fmt.Fprintf(progress, "replacing %s: not all of it is there\n", dir)
		if err := os.Rename(dir, filepath.Join(temporary, "damaged")); err != nil && !errors.Is(err, fs.ErrNotExist) { // another process may do the same
			return nil, fmt.Errorf("wasm: %w", err)
		}
	}
	err = os.Rename(made, dir)
	env, found := Find() // another process may have been faster
	if found != nil {
		return nil, fmt.Errorf("wasm: %w", errors.Join(err, found))
	}
	return env, nil
}

// openToAll makes everything below dir readable and executable for all ids, of which
// sandboxes have others: what the umask of this process left out.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755))
	})
}

// makeSnapshot adds to a directory the programs and the snapshot. driver is a directory for
// the driver's files, which are needed only now.
func makeSnapshot(ctx context.Context, dir, driver string) error {
	deno, err := fs.Sub(programs, "deno")
	if err != nil {
		return fmt.Errorf("wasm: %w", err)
	}
	if err := errors.Join(os.CopyFS(dir, deno), os.CopyFS(driver, python.Files())); err != nil {
		return fmt.Errorf("wasm: %w", err)
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
		return fmt.Errorf("wasm: make the snapshot of Python: %w: %s", err, clip.Text(strings.TrimSpace(string(output)), 2<<10))
	}
	return nil
}

// removeUnused removes what setups that were killed left, and what nobody has used for a long
// time. What cannot be removed only takes up space.
func removeUnused(cache string, progress io.Writer) {
	all, _ := filepath.Glob(filepath.Join(cache, "*")) // the pattern is right
	for _, dir := range all {
		used, kept := dir, abandoned
		if !strings.HasPrefix(filepath.Base(dir), making) {
			used, kept = filepath.Join(dir, snapshotName), keptUnused
		}
		if info, err := os.Stat(used); err == nil && time.Since(info.ModTime()) > kept {
			fmt.Fprintf(progress, "removing %s, unused since %s\n", dir, info.ModTime().Format(time.DateOnly))
			_ = os.RemoveAll(dir)
		}
	}
}
