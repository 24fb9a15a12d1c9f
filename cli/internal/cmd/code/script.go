package code

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// This file runs a Python file as python3 does: with its exit status, and without showing the last value as a
// cell does.

//go:embed script.py
var script string

// isScript reports whether the code is a Python file.
func (o *runOptions) isScript() bool {
	return !o.HasCode && o.File != "-" && o.Context == "" && isPython(o.Language)
}

// exits reports whether an exception is SystemExit, by which a Python file ends itself.
func (o *runOptions) exits(raised *sandbox.ExecutionError) bool {
	return o.isScript() && raised != nil && raised.Name == "SystemExit"
}

// beginScript returns Python code that prepares the kernel for a program. The code that runs next
// has the given name and arguments.
func beginScript(name string, arguments []string) string {
	return script + "_e2bctl_begin([" + literals(name, arguments) + "])\ndel _e2bctl_begin"
}

// endScript ends a Python file that ran to its end or raised an exception, and returns the error of
// the program's end, such as its exit status. It adds the remaining output to execution.
func (o *runOptions) endScript(ctx context.Context, sb *sandbox.Sandbox, execution *sandbox.Execution, params sandbox.RunCodeParams, raised *sandbox.ExecutionError) error {
	params.OnResult = nil
	exits := o.exits(raised)
	code := fmt.Sprintf("__import__('sys').modules.pop(__name__ + '._e2bctl_end')(%s, %s)", python(o.Sandbox == ""), python(exits))
	ended, err := sb.RunCode(ctx, code, &params)
	if ended != nil {
		execution.Stdout += ended.Stdout
		execution.Stderr += ended.Stderr
	}
	if _, failed := errors.AsType[*sandbox.ExecutionError](err); err != nil && !failed {
		return &cmdutil.OwnError{Err: fmt.Errorf("waiting for the program's threads and exit handlers: %w", err), Running: true}
	}
	if raised != nil && !exits {
		return cmdutil.RemoteStatus(1)
	}
	if err != nil {
		return fmt.Errorf("ending the program: %w", err)
	}
	status, err := strconv.Atoi(ended.Text())
	if err != nil {
		return fmt.Errorf("the program's status is %.100q, not a number", ended.Text())
	}
	if status != 0 {
		return cmdutil.RemoteStatus(status)
	}
	return nil
}

// python returns b as a Python literal.
func python(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
