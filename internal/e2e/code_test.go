//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// transports are the two ways to reach the kernel: failures must look the same
// on both.
var transports = []sandbox.CodeTransport{sandbox.CodeTransportWebsocket, sandbox.CodeTransportHTTP}

func onBothTransports(t *testing.T, test func(t *testing.T, sb *sandbox.Sandbox)) {
	t.Parallel()
	cloud := shared(t)
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			test(t, cloud.Create(t, sandbox.WithCodeTransport(transport)))
		})
	}
}

func TestExceptions(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		sandboxtest.Eval(t, sb, "x = 41")
		for _, tt := range []struct {
			code, name, value string
			line              int
		}{
			{"if True:\n  y = = 3", "SyntaxError", "invalid syntax", 2},
			{"y = 1\n\n1/0", "ZeroDivisionError", "division by zero", 3},
			{"def f():\n  return undefined\n\n\nf()", "NameError", "undefined", 2},
			{"import sys; sys.exit(3)", "SystemExit", "3", -1}, // it has no traceback,
			{"raise KeyboardInterrupt", "KeyboardInterrupt", "", 1},
			{"raise ValueError('é\\n2')", "ValueError", "é\n2", 1},
		} {
			execution, err := sb.RunCode(t.Context(), "print('before')\n"+tt.code, nil)
			exception, ok := errors.AsType[*sandbox.ExecutionError](err)
			if !ok || exception.Name != tt.name || !strings.Contains(exception.Value, tt.value) {
				t.Errorf("%q: got %v, want the exception %s with %q", tt.code, err, tt.name, tt.value)
				continue
			}
			if strings.Contains(exception.Traceback, "\x1b") {
				t.Errorf("%q: the traceback has colours: %q", tt.code, exception.Traceback)
				continue
			}
			if exception.Line != tt.line+1 {
				t.Errorf("%q: line %d, want %d", tt.code, exception.Line, tt.line+1)
			}
			if printed := tt.name != "SyntaxError"; printed != (execution.Stdout == "before\n") {
				t.Errorf("%q: printed %q, want %q: %v", tt.code, execution.Stdout, "before\n", printed)
			}
		}
		if got := sandboxtest.Eval(t, sb, "x + 1"); got != "42" {
			t.Errorf("after them x + 1 is %q, want %q", got, "42")
		}
	})
}

// The death of a kernel in the middle of a call is reported at once, and the
// next call finds a fresh one.
func TestKernelKilled(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		patience.SoonAfter(t, "code whose kernel is killed", soon, func() func() {
			sandboxtest.Eval(t, sb, "x = 1")
			return func() {
				execution, err := sb.RunCode(t.Context(), "import os\nprint('before', flush=True)\nos.kill(os.getpid(), 9)", nil)
				if !errors.Is(err, sandbox.ErrKernelDied) {
					t.Errorf("killed: %v, want sandbox.ErrKernelDied", err)
				}
				if execution == nil || execution.Stdout != "before\n" {
					t.Errorf("what came before is lost: %+v, want stdout %q", execution, "before\n")
				}
			}
		})
		if got := sandboxtest.Eval(t, sb, "'x' in globals()"); got != "False" {
			t.Errorf("the fresh kernel has x: %s, want %s", got, "False")
		}
	})
}

func TestMuchOutputOfCode(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		var written counter
		code := fmt.Sprintf("for i in range(%d):\n    print('x' * ((1 << 20) - 1))", muchPrinted>>20)
		execution, err := sb.RunCode(t.Context(), code, &sandbox.RunCodeParams{Stdout: &written})
		must.Do(t, err)
		if written != muchPrinted {
			t.Errorf("the writer got %d bytes, want %d", written, muchPrinted)
		}
		checkKept(t, execution.Stdout, execution.StdoutDropped)
	})
}

func TestMuchOutputOfCommand(t *testing.T) {
	t.Parallel()
	reports := reportCounter{RoundTripper: clienttest.New(t).Transport}
	sb := shared(t).Create(t, sandbox.WithTransport(&reports))
	var written counter
	result, err := sb.Commands.Run(t.Context(), fmt.Sprintf("yes | head -c %d", muchPrinted), &sandbox.CommandParams{Stdout: &written})
	must.Do(t, err)
	if written != muchPrinted {
		t.Errorf("the writer got %d bytes, want %d", written, muchPrinted)
	}
	checkKept(t, result.Stdout, result.StdoutDropped)
	// A busy machine may delay a report so long that the daemon asks for one.
	if streams, asked := reports.streams.Load(), reports.updates.Load(); streams != 1 || asked > muchPrinted>>23 {
		t.Errorf("received output was reported by %d streams of reports and %d single ones, want 1 and at most %d", streams, asked, muchPrinted>>23)
	}
}

// reportCounter counts the requests that report received output.
type reportCounter struct {
	http.RoundTripper
	streams, updates atomic.Int64
}

func (c *reportCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	switch path.Base(r.URL.Path) {
	case "StreamInput":
		c.streams.Add(1)
	case "Update":
		c.updates.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// checkKept checks the kept part of a large output: it is bounded, and every
// byte that was dropped is counted.
func checkKept(t *testing.T, kept string, dropped int64) {
	t.Helper()
	notice := 256 // at most this many bytes for the line that says that bytes are missing
	if n := len(kept); n > sandbox.DefaultMaxOutputBytes+notice || int64(n)+dropped < muchPrinted || int64(n)+dropped > muchPrinted+int64(notice) {
		t.Errorf("%d bytes are kept, %d dropped, want at most %d kept and %d to %d together", n, dropped, sandbox.DefaultMaxOutputBytes+notice, muchPrinted, muchPrinted+int64(notice))
	}
}

func TestCancelCode(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		sandboxtest.Eval(t, sb, "x = 41")
		for name, code := range map[string]string{
			"busy":     "print('begun', flush=True)\nwhile True: pass",
			"sleeping": "import time\nprint('begun', flush=True)\ntime.sleep(1000)",
		} {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := sb.RunCode(ctx, code, &sandbox.RunCodeParams{Stdout: whenWritten{cancel}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v, want context.Canceled", name, err)
			}
			if got := sandboxtest.Eval(t, sb, "x + 1"); got != "42" {
				t.Errorf("%s: x + 1 is %q after it, want %q", name, got, "42")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := sb.RunCode(ctx, "while True: pass", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline: %v, want context.DeadlineExceeded", err)
		}
	})
}

// A writer that fails stops the code.
func TestWriterFails(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		broken := errors.New("disk full")
		r, w := io.Pipe()
		_ = r.CloseWithError(broken)
		_, err := sb.RunCode(t.Context(), "while True: print('x')", &sandbox.RunCodeParams{Stdout: w})
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
		if got := sandboxtest.Eval(t, sb, "1 + 1"); got != "2" {
			t.Errorf("after it: %q, want %q", got, "2")
		}
	})
}

func TestStdin(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	ask := func(_ context.Context, prompt string, password bool) (string, error) {
		if password {
			return "", io.EOF
		}
		return prompt + "Ada", nil
	}
	execution, err := sb.RunCode(t.Context(), "input('name? ') + '!'", &sandbox.RunCodeParams{Stdin: ask})
	if err != nil || execution.Text() != "name? Ada!" {
		t.Errorf("got %q %v, want %q and no error", execution.Text(), err, "name? Ada!")
	}
	for _, tt := range []struct {
		code string
		ask  func(context.Context, string, bool) (string, error)
		name string
	}{
		{"import getpass; getpass.getpass()", ask, "EOFError"},
		{"input()", nil, "StdinNotImplementedError"},
	} {
		_, err := sb.RunCode(t.Context(), tt.code, &sandbox.RunCodeParams{Stdin: tt.ask})
		if exception, ok := errors.AsType[*sandbox.ExecutionError](err); !ok || exception.Name != tt.name {
			t.Errorf("%s: got %v, want a *sandbox.ExecutionError and the exception %q", tt.code, err, tt.name)
		}
	}
}

// Without a websocket code runs, and its error when it asks for input names the
// missing websocket.
func TestStdinOverHTTP(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t, sandbox.WithCodeTransport(sandbox.CodeTransportHTTP))
	ask := func(context.Context, string, bool) (string, error) { return "Ada", nil }
	if execution, err := sb.RunCode(t.Context(), "1 + 1", &sandbox.RunCodeParams{Stdin: ask}); err != nil || execution.Text() != "2" {
		t.Errorf("code that does not ask: %v, want text %q and no error", err, "2")
	}
	execution, err := sb.RunCode(t.Context(), "print('before')\ninput()", &sandbox.RunCodeParams{Stdin: ask})
	if exception, ok := errors.AsType[*sandbox.ExecutionError](err); !ok || exception.Line != 2 || !strings.Contains(err.Error(), "websocket") {
		t.Errorf("code that asks: %v, want a *sandbox.ExecutionError in line 2 with %q", err, "websocket")
	}
	if execution == nil || execution.Stdout != "before\n" {
		t.Errorf("what came before is lost: %+v, want stdout %q", execution, "before\n")
	}
}

// A plot finds the list of fonts that was made with the Python environment.
// Making it takes seconds, and every process of a sandbox would have to.
func TestFontsAreKnown(t *testing.T) {
	t.Parallel()
	python, err := local.FindPython(t.Context())
	must.Do(t, err)
	if python.Level != "venv" {
		t.Skipf("%s is not the prepared Python", python.Path)
	}
	sb := shared(t).Create(t, sandbox.WithEnvs(startsCold))
	const code = "import logging; logging.basicConfig(level=logging.INFO)\nimport matplotlib.pyplot"
	execution, err := sb.RunCode(t.Context(), code, nil)
	must.Do(t, err)
	said := map[string]string{"code": execution.Stderr}
	for _, user := range []string{"user", "root"} {
		result, err := sb.Commands.Run(t.Context(), "python3 -c '"+code+"'", &sandbox.CommandParams{User: user})
		must.Do(t, err)
		said[user] = result.Stderr
	}
	for who, said := range said {
		if strings.Contains(said, "fontManager") || strings.Contains(said, "temporary") {
			t.Errorf("%s: got %s, want no %q in it and no %q in it", who, said, "fontManager", "temporary")
		}
	}
}
