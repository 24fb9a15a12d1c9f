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
	// run runs a script of Python on its own, for at most timeout unless that is 0, and
	// returns what it printed, also with an error.
	run func(ctx context.Context, script string, arguments []string, timeout time.Duration) (printed string, err error)
	// pip returns the sandbox in which pip runs.
	pip func(ctx context.Context) (*Sandbox, error)
	// close ends what was started for the call.
	close func(ctx context.Context)
	// wasm is the sandbox's Python if it is one in WebAssembly, which has no pip.
	wasm *wasmPython
}

// place returns where packages are, and what is there. The place must be closed.
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

// withoutProcesses reports whether an error says that a sandbox starts no processes.
func withoutProcesses(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.StatusCode == rpcStatus[connect.CodeUnimplemented]
}

// python runs a script that prints JSON.
func (p *place) python(ctx context.Context, script string, arguments []string, out any) error {
	printed, err := p.run(ctx, script, arguments, 0)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(printed), out)
}

// runScript runs a script in a process of its own, as root.
func (sb *Sandbox) runScript(ctx context.Context, script string, arguments []string, timeout time.Duration) (printed string, err error) {
	argv := append([]string{pipPython, "-c", script}, arguments...)
	result, err := sb.Commands.run(ctx, argv, &CommandParams{User: "root", Cwd: "/", Timeout: timeout, MaxOutputBytes: 16 << 20})
	if result != nil {
		printed = result.Stdout
	}
	return printed, err
}

// stopped returns how a script ended Python, or why it was ended; "" if it ended by itself,
// or if err says something else.
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
