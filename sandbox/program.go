package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// ProgramParams say what program to run in a sandbox, an agent as a whole for
// instance.
type ProgramParams struct {
	// Dir is a directory of this machine that is uploaded; empty means none.
	Dir string
	// Exclude leaves out what it says true of, as in [UploadDirParams]. May be nil.
	Exclude func(name string, entry fs.DirEntry) bool
	// Files are uploaded besides, by their path in the program's directory.
	Files map[string][]byte
	// Packages are installed first, as by [Packages.Install].
	Packages []string
	// Lock, when not nil, is what is installed, as by [Packages.InstallLock]. The
	// names of Packages have to be in it or in the sandbox already, and the
	// versions are those of the lock.
	Lock *Lock
	// Command is run with bash, in the program's directory.
	Command string
	// Envs are environment variables of that command, and so of what it starts:
	// not of other commands, of kernels, or of the sandbox.
	Envs map[string]string
	// User is who runs it; empty means the default user.
	User string
	// Timeout, Stdin, Stdout, Stderr and MaxOutput are those of [CommandParams].
	Timeout        time.Duration
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	MaxOutput      int
}

// RunProgram uploads a program to a directory of its own in the user's home,
// installs packages, runs it to its end and removes the directory. Its result and
// errors are those of [Commands.Run], besides those of Files and of
// Packages.Install.
//
// The price, against a run of package agent with tools: what Envs hold is in the sandbox. The
// program, every package it loads, code of a model that it executes and every
// process of the same user (in /proc) can read it, print it, and send it where
// the network lets it. Give it short-lived credentials, which you can revoke, and
// a network that reaches no more than it needs: install packages before, without
// Packages and Lock, and close the network with [Sandbox.SetNetwork] then. Nothing of
// the output is redacted, and it, an exit status and files are all that comes
// back.
func (sb *Sandbox) RunProgram(ctx context.Context, p *ProgramParams) (*CommandResult, error) {
	if p == nil || p.Command == "" {
		return nil, errors.New("sandbox: run a program: ProgramParams.Command is empty")
	}
	for name := range p.Files {
		if fs.ValidPath(name) && name != "." {
			continue
		}
		return nil, fmt.Errorf("sandbox: run a program: the file %.128q has to be a clean path within the program's directory", name)
	}
	var err error
	switch {
	case p.Lock != nil:
		_, err = sb.Packages.InstallLock(ctx, p.Lock, &InstallLockParams{Require: p.Packages})
	case len(p.Packages) > 0:
		_, err = sb.Packages.Install(ctx, p.Packages...)
	}
	if err != nil {
		return nil, err
	}
	directory := ".e2bctl-program-" + jupyter.NewID()
	// A call of the handle: what is removed afterwards, Close waits for.
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	defer sb.background(ctx, func(ctx context.Context) {
		_, _ = sb.Commands.run(ctx, []string{"rm", "-rf", directory}, &CommandParams{User: p.User})
	})
	if err := sb.Files.MakeDir(ctx, directory, &PathParams{User: p.User}); err != nil {
		return nil, err
	}
	if p.Dir != "" {
		if err := sb.Files.UploadDir(ctx, p.Dir, directory, &UploadDirParams{User: p.User, Exclude: p.Exclude}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		if err := sb.Files.Write(ctx, path.Join(directory, name), p.Files[name], &FileParams{User: p.User}); err != nil {
			return nil, err
		}
	}
	return sb.Commands.Run(ctx, p.Command, &CommandParams{
		User: p.User, Cwd: directory, Envs: p.Envs, Timeout: p.Timeout,
		Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, MaxOutput: p.MaxOutput,
	})
}
