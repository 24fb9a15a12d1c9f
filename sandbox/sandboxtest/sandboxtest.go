package sandboxtest

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// Cloud is a local cloud that runs until its test ends. Create creates sandboxes in it. Option and
// Env are for programs that create their own sandboxes. For tests of failures, Advance moves the
// clock of lifetimes, Inject makes requests fail, and Requests returns the requests that were sent.
type Cloud struct{ *local.Cloud }

// New starts a cloud that logs to t. The cloud and its sandboxes are closed when t ends. If the
// machine cannot run a cloud, New skips the test. If the variable CI is "true", New fails the test
// instead, because nobody reads the skips of a CI run.
func New(t testing.TB, opts ...local.Option) *Cloud {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	cloud, err := local.Start(t.Context(), append([]local.Option{local.WithLogger(logger)}, opts...)...)
	switch {
	case impossible(err) && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if unmet := cloud.UnmetFaults(); len(unmet) > 0 && !t.Failed() {
			t.Errorf("no request met these faults: %+v", unmet)
		}
		if err := cloud.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Cloud{cloud}
}

// Inject makes a later request fail, like [local.Cloud.Inject]. It fails t at once if f is invalid.
// If no request meets f, the test that was passed to New fails at its end. Like t.Fatal, Inject
// must be called from the goroutine of t.
func (c *Cloud) Inject(t testing.TB, f local.Fault) {
	t.Helper()
	if err := c.Cloud.Inject(f); err != nil {
		t.Fatal(err)
	}
}

// Create creates a sandbox that is closed when t ends, before the cloud is closed. It fails t at
// once if it cannot create the sandbox; an error of closing fails t at its end. opts are applied
// after the options of the cloud. Like t.Fatal, Create must be called from the goroutine of t.
func (c *Cloud) Create(t testing.TB, opts ...sandbox.CreateOption) *sandbox.Sandbox {
	t.Helper()
	sb, err := sandbox.Create(t.Context(), append([]sandbox.CreateOption{c.Option()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	})
	return sb
}

// Run runs a command in sb. It returns the command's stdout without the newlines at the end, as
// $(…) of a shell does. If the command fails, Run fails t at once with the command's stderr.
// Like t.Fatal, Run must be called from the goroutine of t.
func Run(t testing.TB, sb *sandbox.Sandbox, command string) string {
	t.Helper()
	result, err := sb.Commands.Run(t.Context(), command, nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimRight(result.Stdout, "\n")
}

// Eval runs Python code in the default context of sb. It returns the value of the last expression
// as [sandbox.Execution.Text] does. It fails t at once if the code raises an exception or does not
// run. Like t.Fatal, Eval must be called from the goroutine of t.
func Eval(t testing.TB, sb *sandbox.Sandbox, code string) string {
	t.Helper()
	execution, err := sb.RunCode(t.Context(), code, nil)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return execution.Text()
}

// RunCode runs Python code that may raise an exception. The field Error of the execution contains
// the exception. RunCode fails t at once if the code does not run to its end or to an exception. Like
// t.Fatal, RunCode must be called from the goroutine of t.
func RunCode(t testing.TB, sb *sandbox.Sandbox, code string, params *sandbox.RunCodeParams) *sandbox.Execution {
	t.Helper()
	execution, err := sb.RunCode(t.Context(), code, params)
	if _, raised := errors.AsType[*sandbox.ExecutionError](err); err != nil && !raised {
		t.Fatalf("%s: %v", code, err)
	}
	return execution
}

// Setenv sets the variables of Env until t ends, for code in this process and for programs that
// it starts. Like t.Setenv it cannot be used in parallel tests.
func (c *Cloud) Setenv(t testing.TB) {
	t.Helper()
	for _, setting := range c.Env() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
}

// impossible reports whether the machine, and not the program, causes the error.
func impossible(err error) bool {
	return errors.Is(err, local.ErrNoIsolation) || errors.Is(err, local.ErrUnsupported)
}
