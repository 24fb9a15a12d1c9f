// Package workspace is the part of a tool for models that does not depend on a framework: one
// directory of a sandbox, with bounds on time and output, and with errors that tell a model its
// next step.
//
// The sandbox confines the model. The directory only keeps its files in one place: a command and
// a symbolic link can leave it.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/sandbox"
)

// Workspace is a directory of a sandbox. Set its fields before its first use. It is safe for
// concurrent use: frameworks run the tool calls of one turn at the same time.
type Workspace struct {
	Sandbox *sandbox.Sandbox
	// Root is the directory, as an absolute path.
	Root string
	// Timeout limits each command, each piece of code, and each operation on files.
	Timeout time.Duration
	// MaxBytes limits each part of a result: stdout, stderr, the values of code, and the text of a
	// file.
	MaxBytes int

	mu   sync.Mutex
	gone error
}

// New returns the home directory of a sandbox, with a minute for each call and 20,000 bytes for
// each part of a result, which are about 5,000 tokens.
func New(sb *sandbox.Sandbox) *Workspace {
	return &Workspace{Sandbox: sb, Root: "/home/user", Timeout: time.Minute, MaxBytes: 20_000}
}

// Err returns the error of a call that found the sandbox gone, or nil. No later call can succeed,
// so end the run of the agent: a model would try until it reaches its last turn.
func (w *Workspace) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

// Command runs a command line with bash in the directory. An exit status other than 0 is a
// result, and not an error. After an error, the result has the output before it, or is nil. The
// writers may be nil; an error of one ends the command.
func (w *Workspace) Command(ctx context.Context, command string, stdout, stderr io.Writer) (*sandbox.CommandResult, error) {
	result, err := w.Sandbox.Commands.Run(ctx, command, &sandbox.CommandParams{
		Cwd: w.Root, Timeout: w.Timeout, MaxOutputBytes: int64(w.MaxBytes), Stdout: stdout, Stderr: stderr,
	})
	if failed := (*sandbox.ExitError)(nil); errors.As(err, &failed) {
		return failed.Result, nil
	}
	return result, w.explain(ctx, "the command", err)
}

// Code runs Python code. The variables of one call are there in the next. An exception of the
// code is in the execution, and is not an error.
func (w *Workspace) Code(ctx context.Context, code string) (*sandbox.Execution, error) {
	limited, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	execution, err := w.Sandbox.RunCode(limited, code, &sandbox.RunCodeParams{MaxOutputBytes: int64(w.MaxBytes)})
	if raised := (*sandbox.ExecutionError)(nil); errors.As(err, &raised) && execution != nil {
		return execution, nil
	}
	return execution, w.explain(ctx, "the code", err)
}

// Read returns up to MaxBytes of the text of a file, and whether there is more. A file that is no
// text is an error.
func (w *Workspace) Read(ctx context.Context, name string) (text string, more bool, err error) {
	err = w.Stream(ctx, name, func(content io.Reader) error {
		data, err := io.ReadAll(io.LimitReader(content, int64(w.MaxBytes)+1))
		if err != nil {
			return err
		}
		text, more = Cut(string(data), w.MaxBytes)
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fmt.Errorf("%s is not text: use a program that knows its format", name)
		}
		return nil
	})
	return text, more, err
}

// Stream calls read with the content of a file.
func (w *Workspace) Stream(ctx context.Context, name string, read func(content io.Reader) error) error {
	full, err := w.Path(name)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	file, err := w.Sandbox.Files.Open(limited, full, nil)
	if err != nil {
		return w.explain(ctx, "reading the file", err)
	}
	defer file.Close()
	return w.explain(ctx, "reading the file", read(file))
}

// Write writes a file, and creates its directories. It replaces a file that is there.
func (w *Workspace) Write(ctx context.Context, name, content string) error {
	full, err := w.Path(name)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	return w.explain(ctx, "writing the file", w.Sandbox.Files.WriteText(limited, full, content, nil))
}

// List returns the files in a directory, ordered by name.
func (w *Workspace) List(ctx context.Context, name string) ([]sandbox.FileInfo, error) {
	full, err := w.Path(name)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	files, err := w.Sandbox.Files.List(limited, full, nil)
	return files, w.explain(ctx, "listing the directory", err)
}

// Exists reports whether there is a file or a directory.
func (w *Workspace) Exists(ctx context.Context, name string) (bool, error) {
	full, err := w.Path(name)
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	there, err := w.Sandbox.Files.Exists(limited, full, nil)
	return there, w.explain(ctx, "looking for the file", err)
}

// Path returns the absolute form of a path from a model. A relative path begins at Root. A path
// outside of Root is an error.
func (w *Workspace) Path(name string) (string, error) {
	full := name
	if !path.IsAbs(full) {
		full = path.Join(w.Root, full)
	}
	full = path.Clean(full)
	if full != w.Root && !strings.HasPrefix(full, strings.TrimSuffix(w.Root, "/")+"/") {
		return "", fmt.Errorf("%q is outside of %s: use a path below this directory, or a relative one", name, w.Root)
	}
	if strings.ContainsRune(full, 0) || !utf8.ValidString(full) {
		return "", fmt.Errorf("%q is no path: use UTF-8 without NUL", name)
	}
	return full, nil
}

// explain adds the next step of the model to an error. The context of the caller has its own
// error, and so has a sandbox that is gone: there the model can do nothing.
func (w *Workspace) explain(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, sandbox.ErrGone):
		w.mu.Lock()
		defer w.mu.Unlock()
		w.gone = err
		return fmt.Errorf("%s: the sandbox has ended, and its files with it: stop: %w", what, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s took more than %v and was ended: do less in one call, or start it in the background with its output in a file: %w", what, w.Timeout, err)
	case errors.Is(err, sandbox.ErrKernelDied), errors.Is(err, sandbox.ErrKernelLost), errors.Is(err, sandbox.ErrKernelRestarted):
		return fmt.Errorf("%s: Python was started anew, and all variables are lost: define them again: %w", what, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: there is no such file: list the directory to see the names: %w", what, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// Cut returns at most limit bytes from the beginning of a text, without half a character at the
// end, and whether it left out any.
func Cut(text string, limit int) (string, bool) {
	if len(text) <= limit {
		return text, false
	}
	end := limit
	for end > 0 && limit-end < utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], true
}
