package pinned

import (
	"bytes"
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

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Fetch fetches the set, unless it has already been fetched. It removes other directories of the
// set's name that nobody has used for a long time. It reports progress to output. Any number of
// processes may call Fetch at the same time. If a process is killed, tests do not use its
// incomplete directory.
func (s Set) Fetch(ctx context.Context, output io.Writer) error {
	directory, err := s.directory()
	if err == nil {
		err = s.fetch(ctx, output, directory)
	}
	if err != nil {
		return fmt.Errorf("the packages %s: %w", s.Name, err)
	}
	return nil
}

func (s Set) fetch(ctx context.Context, output io.Writer, directory string) error {
	if check(directory) == nil {
		return nil
	}
	parent := filepath.Dir(directory)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(parent, "lock")).Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if check(directory) == nil { // another process was faster
		return nil
	}
	fmt.Fprintf(output, "fetching the packages %s\n", s.Name)
	if err := errors.Join(removeOthers(directory), os.RemoveAll(directory)); err != nil {
		return err
	}
	if err := os.CopyFS(directory, s.Pins); err != nil {
		return err
	}
	for _, command := range s.Commands {
		if err := run(ctx, directory, command); err != nil {
			return err
		}
	}
	if s.Finish != nil {
		if err := s.Finish(directory); err != nil {
			return err
		}
	}
	return writeComplete(directory)
}

// run runs a command in a directory.
func run(ctx context.Context, directory string, command []string) error {
	program := command[0]
	if program == Interpreter {
		python, err := prepared()
		if err != nil {
			return err
		}
		program = python.Python
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = directory, &said, &said
	cmd.Env = append(os.Environ(), "NO_UPDATE_NOTIFIER=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1")
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, &said)
	}
	return nil
}

// removeOthers removes directories beside directory. It removes incomplete directories that no
// process is creating now, and directories that nobody has used for a long time.
func removeOthers(directory string) error {
	parent := filepath.Dir(directory)
	entries, err := os.ReadDir(parent)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		other := filepath.Join(parent, entry.Name())
		_, failed := os.Stat(filepath.Join(other, complete))
		if _, unused := used.Unused(other); unused || errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, os.RemoveAll(other))
		}
	}
	return err
}
