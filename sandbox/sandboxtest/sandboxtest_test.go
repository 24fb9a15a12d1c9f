package sandboxtest_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestCreate checks that a sandbox lives as long as its test, although the cloud lives longer.
func TestCreate(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	var id string
	t.Run("its test", func(t *testing.T) {
		sb := cloud.Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
		if got := sandboxtest.Run(t, sb, `printf "$GREETING"`); got != "hello" {
			t.Errorf("got %q, want hello", got)
		}
		id = sb.ID()
	})
	if _, err := sandbox.Connect(t.Context(), id, cloud.Option()); !errors.Is(err, sandbox.ErrGone) && !errors.Is(err, api.ErrNotFound) {
		t.Errorf("after its test: %v", err)
	}
}

func TestCreateFails(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	for _, fault := range []local.Fault{
		{Operation: local.OpCreateSandbox, Status: http.StatusBadRequest, Message: "no sandbox today"},
		{Operation: local.OpKillSandbox, Status: http.StatusBadRequest, Message: "it stays"},
	} {
		cloud.Inject(t, fault)
		went := false
		failures := failing(t, func(t testing.TB) {
			cloud.Create(t)
			went = true
		})
		if len(failures) != 1 || !strings.Contains(failures[0], fault.Message) {
			t.Errorf("after %q the test failed with %q", fault.Message, failures)
		}
		if created := fault.Operation == local.OpKillSandbox; went != created {
			t.Errorf("after %q the test went on: %v", fault.Message, went)
		}
	}
}

// A fault that a test injects is met, or the test fails.
func TestFaultThatNoRequestMet(t *testing.T) {
	t.Parallel()
	failures := failing(t, func(t testing.TB) {
		cloud := sandboxtest.New(t, local.WithWarm(0))
		cloud.Inject(t, local.Fault{Operation: local.OpPauseSandbox})
		cloud.Inject(t, local.Fault{Path: "["})
	})
	if len(failures) != 1 || !strings.Contains(failures[0], "syntax error in pattern") {
		t.Errorf("a pattern that cannot be parsed: the test failed with %q", failures)
	}
	failures = failing(t, func(t testing.TB) {
		cloud := sandboxtest.New(t, local.WithWarm(0))
		cloud.Inject(t, local.Fault{Operation: local.OpPauseSandbox})
		cloud.Inject(t, local.Fault{Operation: local.OpCreateSandbox, Status: http.StatusServiceUnavailable, Times: 3})
		if sb, err := sandbox.Create(t.Context(), cloud.Option()); err == nil {
			t.Error("created", sb.ID())
		}
	})
	if len(failures) != 1 || !strings.Contains(failures[0], "PauseSandbox") {
		t.Errorf("the test failed with %q, want once, for the fault of PauseSandbox", failures)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t).Create(t)
	if got := sandboxtest.Run(t, sb, `printf ' two\n\nlines \n\n'; echo aside >&2`); got != " two\n\nlines " {
		t.Errorf("got %q, want what was printed on stdout, without the newlines at its end", got)
	}
	failures := failing(t, func(t testing.TB) { sandboxtest.Run(t, sb, "echo because >&2; exit 3") })
	if len(failures) != 1 || !strings.Contains(failures[0], "exit 3") || !strings.Contains(failures[0], "because") {
		t.Errorf("the test failed with %q, want the command and its last words", failures)
	}
}

func TestRunCode(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t).Create(t)
	if got := sandboxtest.Eval(t, sb, "x = 6\nx * 7"); got != "42" {
		t.Errorf("got %q, want 42", got)
	}
	e := sandboxtest.RunCode(t, sb, "print('before')\n1 / 0", nil)
	if e.Stdout != "before\n" || e.Error == nil || e.Error.Name != "ZeroDivisionError" {
		t.Errorf("got %q, %v, want what was printed and the exception", e.Stdout, e.Error)
	}
	failures := failing(t, func(t testing.TB) { sandboxtest.Eval(t, sb, "1 / 0") })
	if len(failures) != 1 || !strings.Contains(failures[0], "1 / 0: ZeroDivisionError") {
		t.Errorf("Eval: the test failed with %q, want the code and its exception", failures)
	}
	failures = failing(t, func(t testing.TB) { sandboxtest.RunCode(t, sb, "1", &sandbox.RunCodeParams{Context: "none"}) })
	if len(failures) != 1 || !strings.Contains(failures[0], "none") {
		t.Errorf("RunCode: the test failed with %q, want that there is no such context", failures)
	}
}

func TestSetenv(t *testing.T) {
	cloud := sandboxtest.New(t)
	t.Setenv("E2B_API_KEY", "another's")
	t.Run("its test", func(t *testing.T) {
		cloud.Setenv(t)
		sb, err := sandbox.Create(t.Context())
		must.Do(t, err)
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	})
	if key := os.Getenv("E2B_API_KEY"); key != "another's" {
		t.Error("after its test the key is not the one of before")
	}
}

// TestNewLogs checks that the log of the test lists the parts that the sandboxes' Python
// lacks.
func TestNewLogs(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // without the prepared Python
	t.Setenv("E2BCTL_PYTHON", "")
	python, err := local.FindPython(t.Context())
	if err != nil || python.Note == "" {
		t.Skipf("this machine's own Python lacks nothing, or there is none: %v", err)
	}
	log := &logged{TB: t}
	sandboxtest.New(log)
	if got := log.text.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, python.Note[strings.LastIndex(python.Note, "lacks "):]) {
		t.Errorf("got the log %q, want a warning with %q", got, python.Note)
	}
}

// logged is a test whose log is kept.
type logged struct {
	testing.TB
	text strings.Builder
}

func (t *logged) Output() io.Writer { return &t.text }

// expected is a test in which failures are expected.
type expected struct {
	testing.TB
	failures []string
	cleanup  []func()
}

func (t *expected) Error(args ...any)                 { t.failures = append(t.failures, fmt.Sprint(args...)) }
func (t *expected) Errorf(format string, args ...any) { t.Error(fmt.Sprintf(format, args...)) }
func (t *expected) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }
func (t *expected) Failed() bool                      { return len(t.failures) > 0 }
func (t *expected) Cleanup(f func())                  { t.cleanup = append(t.cleanup, f) }

func (t *expected) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

// failing runs a test and returns its failures.
func failing(t *testing.T, test func(testing.TB)) []string {
	t.Helper()
	run := &expected{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test(run)
	}()
	<-ended
	for _, f := range slices.Backward(run.cleanup) {
		f()
	}
	return run.failures
}
