//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/relaytest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// onWrite calls a function when a byte arrives.
type onWrite struct {
	once sync.Once
	do   func()
	out  strings.Builder
}

func (w *onWrite) Write(p []byte) (int, error) {
	w.once.Do(w.do)
	return w.out.Write(p)
}

// Wherever the connection is cut during a call, code runs once, and its output is
// either complete or reported as incomplete.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	for _, transport := range transports {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			r := relaytest.New(t, cloud.URL())
			testConnectionCut(t, r, cloud.Create(t, sandbox.WithSandboxURL(r.URL()), sandbox.WithCodeTransport(transport)))
		})
	}
}

func testConnectionCut(t *testing.T, r *relaytest.Relay, sb *sandbox.Sandbox) {
	sandboxtest.Eval(t, sb, "n = 0")
	const lines = 200
	for i := range 10 {
		w := &onWrite{do: r.Cut}
		execution, err := sb.RunCode(t.Context(), "n += 1\nimport time\nfor i in range(200):\n  print(i, flush=True)\n  time.sleep(0.001)\nn", &sandbox.RunCodeParams{Stdout: w})
		if err != nil && !errors.Is(err, sandbox.ErrKernelLost) {
			t.Errorf("%d: %v", i, err)
		}
		if got := strings.Count(w.out.String(), "\n"); got > lines || err == nil && got != lines {
			t.Errorf("%d: %d lines came, %v, want %d, or less and an error", i, got, err, lines)
		}
		if execution == nil {
			t.Errorf("%d: no execution came with %v", i, err)
		}
		if err != nil && sb.CodeTransport() == sandbox.CodeTransportWebsocket {
			t.Errorf("%d: the session was not resumed: %v", i, err)
		}
	}
	if got := sandboxtest.Eval(t, sb, "n"); got != "10" {
		t.Errorf("10 calls ran %s times, want %q", got, "10")
	}
}

// cutting is a reader that calls do in its second Read. It still has bytes left after that, and
// ends after 64 reads.
type cutting struct {
	do    func()
	reads int
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.reads++; c.reads == 2 {
		c.do()
	}
	if c.reads > 64 {
		return 0, io.EOF
	}
	return len(p), nil
}

// checkCut makes calls that are cut off. If fails is set, each of them must fail, and they are made
// at the same time, because some of them try again for a while.
func checkCut(t *testing.T, when string, fails bool, calls map[string]func() error) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for name, call := range calls {
		if fails {
			all.Go(func() { checkCutCall(t, name, when, fails, call()) })
		} else {
			checkCutCall(t, name, when, fails, call())
		}
	}
}

func checkCutCall(t *testing.T, name, when string, fails bool, err error) {
	t.Helper()
	switch {
	case err == nil && fails:
		t.Errorf("%s, %s: no error", name, when)
	case err != nil:
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, %s: %v: it matches a context's error, and none has ended", name, when, err)
		}
		_, ours := errors.AsType[*api.Error](err)
		if !ours && !errors.Is(err, sandbox.ErrCommandLost) && !errors.Is(err, sandbox.ErrKernelLost) && !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s, %s: %T %v, want an error of package api or sandbox", name, when, err, err)
		}
	}
}

// The error of every call that is cut off is one of this module's types, and matches
// no context's error while the caller's context lives: code that ignores a cancelled
// call must not ignore a broken one.
func TestCutCallsAreNotCancelled(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	r := relaytest.New(t, cloud.URL())
	sb := cloud.Create(t, sandbox.WithSandboxURL(r.URL()))
	ctx := t.Context()
	if _, err := sb.RunCode(ctx, "1", nil); err != nil { // over the transport that the handle then keeps
		t.Fatal(err)
	}
	must.Do(t, sb.Files.Write(ctx, "large", make([]byte, 8<<20), nil))
	get := func() error {
		client := &http.Client{Transport: sb.Transport(8000)}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:8000/", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	tool := agent.MustTool("add", "Adds.", func(_ context.Context, in struct{ A int }) (int, error) { return in.A, nil })
	// While the call is under way, everything is cut, and can be reached again.
	checkCut(t, "cut in the middle", false, map[string]func() error{
		"Commands.Run with input": func() error {
			return second(sb.Commands.Run(ctx, "sleep 1; cat", &sandbox.CommandParams{Stdin: &cutting{do: r.Cut}}))
		},
		"Commands.Run": func() error {
			return second(sb.Commands.Run(ctx, "echo x; sleep 1", &sandbox.CommandParams{Stdout: &onWrite{do: r.Cut}}))
		},
		"RunCode": func() error {
			return second(sb.RunCode(ctx, "print(1, flush=True)\nimport time\ntime.sleep(0.2)", &sandbox.RunCodeParams{Stdout: &onWrite{do: r.Cut}}))
		},
		"Files.WriteFrom": func() error { return sb.Files.WriteFrom(ctx, "new", &cutting{do: r.Cut}, nil) },
		"Command.Wait": func() error {
			command, err := sb.Commands.Start(ctx, "read line; echo $line", &sandbox.CommandParams{Input: true})
			if err != nil {
				return err
			}
			r.Cut() // the handle connects again
			if err := command.SendInput(ctx, []byte("said\n")); err != nil {
				return err
			}
			result, err := command.Wait(ctx)
			if err == nil && result.Stdout != "said\n" {
				err = fmt.Errorf("it printed %q", result.Stdout)
			}
			return err
		},
		"Terminal.Wait": func() error {
			terminal, err := sb.PTY.Open(ctx, nil)
			if err != nil {
				return err
			}
			r.Cut() // the handle connects again
			if _, err := io.WriteString(terminal, "exit\n"); err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, terminal)
			return err
		},
		"Watcher.Next": func() error {
			w, err := sb.Files.Watch(ctx, ".", nil)
			if err != nil {
				return err
			}
			defer w.Close()
			r.Cut()
			for _, err = range w.Events(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	})
	r.Shut()
	checkCut(t, "with nothing that passes", true, map[string]func() error{
		"Commands.Run":     func() error { return second(sb.Commands.Run(ctx, "true", nil)) },
		"Commands.List":    func() error { return second(sb.Commands.List(ctx, nil)) },
		"Files.Read":       func() error { return second(sb.Files.Read(ctx, "large", nil)) },
		"Files.Write":      func() error { return sb.Files.Write(ctx, "new", []byte("x"), nil) },
		"Files.List":       func() error { return second(sb.Files.List(ctx, ".", nil)) },
		"Files.Stat":       func() error { return second(sb.Files.Stat(ctx, "large", nil)) },
		"Files.MakeDir":    func() error { return sb.Files.MakeDir(ctx, "d", nil) },
		"Files.Remove":     func() error { return sb.Files.Remove(ctx, "d", nil) },
		"Files.Watch":      func() error { return second(sb.Files.Watch(ctx, ".", nil)) },
		"PTY.Open":         func() error { return second(sb.PTY.Open(ctx, nil)) },
		"Contexts.List":    func() error { return second(sb.Contexts.List(ctx)) },
		"Contexts.Create":  func() error { return second(sb.Contexts.Create(ctx, nil)) },
		"RunCode":          func() error { return second(sb.RunCode(ctx, "1", nil)) },
		"WaitPort":         func() error { return sb.WaitPort(ctx, 8000) },
		"Dial":             func() error { return second(sb.Dial(ctx, 8000)) },
		"Transport":        get,
		"DialWebsocket":    func() error { _, _, err := sb.DialWebsocket(ctx, 8000, "/", nil); return err },
		"Begin with tools": func() error { return second(agent.Begin(ctx, sb, &agent.Params{Tools: []agent.Tool{tool}})) },
	})
	r.Reopen()
}

// The same holds for calls of the control plane.
func TestCutControlCallsAreNotCancelled(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	r := relaytest.New(t, cloud.URL())
	client, err := sandbox.NewClient(cloud.Option(), sandbox.WithAPIURL(r.URL()))
	must.Do(t, err)
	defer client.Close()
	ctx := t.Context()
	id := cloud.Create(t).ID()
	r.Shut()
	checkCut(t, "with nothing that passes", true, map[string]func() error{
		"Create":   func() error { return second(client.Create(ctx)) },
		"Connect":  func() error { return second(client.Connect(ctx, id)) },
		"Info":     func() error { return second(client.Info(ctx, id)) },
		"Fork":     func() error { return second(client.Fork(ctx, id, nil)) },
		"Snapshot": func() error { return second(client.Snapshot(ctx, id, nil)) },
		"Pause":    func() error { return client.Pause(ctx, id, nil) },
		"Metrics":  func() error { return second(client.Metrics(ctx, id, nil)) },
		"Kill":     func() error { return client.Kill(ctx, id) },
		"List": func() error {
			for _, err := range client.List(ctx, nil) {
				return err
			}
			return nil
		},
	})
	r.Reopen()
}

// Tools are refused for a sandbox with open kernels. The error of a sandbox that is
// gone or paused is another one.
func TestBeginWithToolsOfASandboxThatIsGone(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	tool := agent.MustTool("add", "Adds.", func(_ context.Context, in struct{ A int }) (int, error) { return in.A, nil })
	for name, end := range map[string]func(*sandbox.Sandbox) error{
		"killed": func(sb *sandbox.Sandbox) error { return sb.Kill(t.Context()) },
		"paused": func(sb *sandbox.Sandbox) error { return sb.Pause(t.Context(), nil) },
	} {
		sb := cloud.Create(t)
		must.Do(t, end(sb))
		if _, err := agent.Begin(t.Context(), sb, &agent.Params{Tools: []agent.Tool{tool}}); !errors.Is(err, sandbox.ErrGone) || errors.Is(err, sandbox.ErrPublicKernel) {
			t.Errorf("of a %s sandbox: %v, want ErrGone", name, err)
		}
	}
}
