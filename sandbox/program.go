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

// ProgramParams sets how to run a program in a sandbox, for instance a complete agent.
type ProgramParams struct {
	// Dir is a directory of this machine to upload; empty means none.
	Dir string
	// Exclude returns true for an entry that must not be uploaded, like [UploadDirParams].Exclude.
	// Exclude may be nil.
	Exclude func(name string, entry fs.DirEntry) bool
	// Files are uploaded in addition to Dir. The keys are paths relative to the program's directory,
	// and the values are the contents.
	Files map[string][]byte
	// Packages are installed before the program runs, as by [Packages.Install].
	Packages []string
	// Lock is installed before the program runs, as by [Packages.InstallLock]; nil means none. With a
	// Lock, each package in Packages must be in the Lock or in the sandbox, and the versions of the
	// Lock are installed.
	Lock *LockFile
	// Command is the command line of the program. bash runs it in the program's directory.
	Command string
	// Envs are environment variables of the command and its child processes, but not of other
	// commands, kernels or the sandbox.
	Envs map[string]string
	// User is the user who runs the program; empty means the default user.
	User string
	// Timeout, Stdin, Stdout, Stderr and MaxOutputBytes have the meaning of the fields of
	// [CommandParams].
	Timeout        time.Duration
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	MaxOutputBytes int64
}

// RunProgram uploads a program to a new directory in the user's home, installs packages, runs the
// program to its end and removes the directory. It returns the results and errors of
// [Commands.Run], and also the errors of Files and of Packages.Install.
//
// Compared to a run of package agent with tools, RunProgram has a disadvantage: the values in Envs
// are in the sandbox. The program, every package that it loads, code from a model if the program
// executes such code, and every process of the same user (through /proc) can read these values,
// print them, and send them wherever the network allows. Use short-lived credentials that you can
// revoke, and a network that reaches only the destinations that the program needs: install packages
// beforehand, not with Packages and Lock, and then close the network with [Sandbox.SetNetwork]. The
// output is not redacted, and the only results are the output, an exit status and files.
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
		_, err = sb.Packages.Install(ctx, p.Packages, nil)
	}
	if err != nil {
		return nil, err
	}
	directory := ".e2bctl-program-" + jupyter.NewID()
	// This is a call of the handle, so Close waits for the removal at its end.
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	defer sb.removeTree(ctx, p.User, directory)
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
		Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, MaxOutputBytes: p.MaxOutputBytes,
	})
}
