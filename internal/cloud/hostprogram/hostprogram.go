// Package hostprogram starts programs of this machine for a setup or a local cloud. The contents of
// the caller's current directory never decide which program runs, or which files the program reads.
// The reason is that this directory may be another person's project, and the caller may be root.
package hostprogram

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// Find returns the absolute path of a program. A name without a separator is searched in the
// directories of PATH, except directories that depend on the current directory.
func Find(name string) (string, error) {
	if filepath.Base(name) != name {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", err
		}
		return filepath.Abs(path)
	}
	for _, dir := range absolute(os.Getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// FindOfRoot returns the absolute path of a program for administrators, as [Find] does. It also
// searches the usual directories of such programs, because the PATH of other users may lack them.
func FindOfRoot(name string) (string, error) {
	program, err := Find(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err != nil {
			program, err = Find(filepath.Join(dir, name))
		}
	}
	return program, err
}

// Command returns a command that runs the program at an absolute path, in dir and with [Environ].
// If dir is "", the command runs in the program's own directory, because anyone who can write to
// that directory can change the program anyway.
func Command(ctx context.Context, dir, path string, arguments ...string) *exec.Cmd {
	if dir == "" {
		dir = filepath.Dir(path)
	}
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Dir, cmd.Env = dir, Environ(dir)
	return cmd
}
