package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
)

// place is the environment in which a call finds and installs packages.
type place struct {
	sb *Sandbox
	// run runs a Python script in its own process and returns its output, even with an error. A
	// timeout of 0 means no limit.
	run func(ctx context.Context, script string, arguments []string, timeout time.Duration) (printed string, err error)
	// pip returns the sandbox in which pip runs.
	pip func(ctx context.Context) (*Sandbox, error)
	// close frees the resources of the call.
	close func(ctx context.Context)
	// wasm is the sandbox's Python if it runs in WebAssembly and has no pip; nil otherwise.
	wasm *wasmPython
}

// place returns the environment in which this call installs packages, and a description of the
// packages that are installed in it. The caller must close the returned place.
func (p *Packages) place(ctx context.Context) (*place, *site, error) {
	sb := p.sb
	there := &place{
		sb: sb, run: sb.runScript,
		pip:   func(context.Context) (*Sandbox, error) { return sb, nil },
		close: func(context.Context) {},
	}
	found, err := there.site(ctx)
	if !withoutProcesses(err) {
		return there, found, err
	}
	if there, err = sb.wasmPlace(ctx); err != nil {
		return nil, nil, err
	}
	if found, err = there.site(ctx); err != nil {
		there.close(ctx)
		return nil, nil, err
	}
	return there, found, nil
}

// withoutProcesses reports whether an error means that a sandbox cannot start processes.
func withoutProcesses(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.StatusCode == rpcStatus[connect.CodeUnimplemented]
}

// python runs a script that prints JSON, and decodes its output into out.
func (p *place) python(ctx context.Context, script string, arguments []string, out any) error {
	printed, err := p.run(ctx, script, arguments, 0)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(printed), out)
}

// runScript runs a Python script in its own process, as root.
func (sb *Sandbox) runScript(ctx context.Context, script string, arguments []string, timeout time.Duration) (printed string, err error) {
	argv := append([]string{pipPython, "-c", script}, arguments...)
	result, err := sb.Commands.run(ctx, argv, &CommandParams{User: "root", Cwd: "/", Timeout: timeout, MaxOutputBytes: 16 << 20})
	if result != nil {
		printed = result.Stdout
	}
	return printed, err
}

// stopped describes how a script crashed Python, or why the script was killed. It returns "" for
// any other err.
func stopped(ctx context.Context, err error, timeout time.Duration) string {
	exit, exited := errors.AsType[*ExitError](err)
	switch {
	case exited:
		return fmt.Sprintf("Python ended with status %d", exit.Result.ExitCode)
	case errors.Is(err, ErrKernelDied):
		return "Python ended"
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Sprintf("it took longer than %v", timeout)
	}
	return ""
}
