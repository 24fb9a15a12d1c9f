//go:build linux

package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func client(t *testing.T, cloud *sandboxtest.Cloud) *sandbox.Client {
	t.Helper()
	c, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// soon is much less than the 30 seconds after which a handle by itself notices that
// its sandbox has ended.
const soon = 10 * time.Second

// gone checks that every call on a sandbox reports that it is gone, with its state.
func gone(t *testing.T, sb *sandbox.Sandbox, state sandbox.GoneState) {
	t.Helper()
	calls := map[string]func() error{
		"Commands.Run":     func() error { _, err := sb.Commands.Run(t.Context(), "true", nil); return err },
		"Files.Read":       func() error { _, err := sb.Files.Read(t.Context(), "x", nil); return err },
		"Files.Write":      func() error { return sb.Files.Write(t.Context(), "x", nil, nil) },
		"RunCode":          func() error { _, err := sb.RunCode(t.Context(), "1", nil); return err },
		"Packages.Install": func() error { _, err := sb.Packages.Install(t.Context(), []string{"six"}, nil); return err },
		"Begin":            func() error { _, err := agent.Begin(t.Context(), sb, nil); return err },
		"Info":             func() error { _, err := sb.Info(t.Context()); return err },
		"SetLifetime":      func() error { return sb.SetLifetime(t.Context(), time.Minute) },
		"Kill":             func() error { return sb.Kill(t.Context()) },
	}
	for name, call := range calls {
		var err error
		patience.Soon(t, name+" of a sandbox that is gone", soon, func() { err = call() })
		told, ok := errors.AsType[*sandbox.GoneError](err)
		if !ok || !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: got %v, want a *sandbox.GoneError", name, err)
		} else if told.ID != sb.ID() || told.State != state {
			t.Errorf("%s: got sandbox %q, state %q, want %q, %q", name, told.ID, told.State, sb.ID(), state)
		}
	}
	for range 2 {
		if err := sb.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := sb.Commands.Run(t.Context(), "true", nil); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("after Close: %v, want sandbox.ErrClosed", err)
	}
}

func TestDeadSandbox(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	sb := cloud.Create(t)
	sandboxtest.Eval(t, sb, "1")
	other, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option())
	must.Do(t, err)
	defer other.Close()
	must.Do(t, other.Kill(t.Context()))
	gone(t, sb, "killed")
	if _, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("connect: %v, want sandbox.ErrGone", err)
	}
}

func TestExpiredSandbox(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t, sandbox.WithEnvs(startsCold), sandbox.WithExpiry(sandbox.Expiry{After: time.Hour}))
	sandboxtest.Eval(t, sb, "1")
	must.Do(t, sb.SetLifetime(t.Context(), time.Second))
	cloud.Advance(2 * time.Second)
	<-time.After(time.Second) // the handle uses its own clock, which must reach the end too
	gone(t, sb, "expired")
}

// Calls that are under way when the sandbox ends fail at once.
func TestEndsDuringCalls(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	c := client(t, cloud)
	for name, call := range map[string]func(*sandbox.Sandbox, func()) error{
		"command": func(sb *sandbox.Sandbox, begun func()) error {
			_, err := sb.Commands.Run(t.Context(), "echo; sleep 1000", &sandbox.CommandParams{Stdout: whenWritten{begun}})
			return err
		},
		"code": func(sb *sandbox.Sandbox, begun func()) error {
			_, err := sb.RunCode(t.Context(), "print(flush=True)\nwhile True: pass", &sandbox.RunCodeParams{Stdout: whenWritten{begun}})
			return err
		},
	} {
		patience.SoonAfter(t, name+" whose sandbox is killed", soon, func() func() {
			sb := cloud.Create(t)
			begun, ended := make(chan struct{}), make(chan error, 1)
			go func() { ended <- call(sb, sync.OnceFunc(func() { close(begun) })) }()
			patience.Receive(t, name+" to begin", begun)
			return func() {
				if err := c.API().Sandboxes.Kill(t.Context(), sb.ID()); err != nil {
					t.Error(err)
				}
				err := patience.Receive(t, name+" to end", ended)
				if told, ok := errors.AsType[*sandbox.GoneError](err); !ok || told.State != "killed" {
					t.Errorf("%s: got %v, want a *sandbox.GoneError with the state %q", name, err, "killed")
				}
			}
		})
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	c := client(t, cloud)

	ctx, cancel := context.WithCancel(t.Context())
	sb, err := c.Create(ctx)
	must.Do(t, err)
	begun := make(chan struct{})
	ended := make(chan error)
	go func() {
		_, err := sb.Commands.Run(t.Context(), "echo; sleep 1000", &sandbox.CommandParams{Stdout: whenWritten{func() { close(begun) }}})
		ended <- err
	}()
	<-begun
	cancel() // the context of Create does not determine how long the sandbox lives
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if err := patience.Receive(t, "the end of the call in flight", ended); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("the call in flight: %v, want sandbox.ErrClosed", err)
	}
	if err := sb.Close(); err != nil {
		t.Errorf("twice: %v", err)
	}
	if err := sb.Detach(); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("detach after close: %v, want sandbox.ErrClosed", err)
	}
	if _, err := c.API().Sandboxes.Get(t.Context(), sb.ID()); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("it is still there: %v, want api.ErrNotFound", err)
	}

	killed, err := c.Create(t.Context())
	must.Do(t, err)
	must.Do(t, killed.Kill(t.Context()))
	if err := killed.Close(); err != nil {
		t.Errorf("close after kill: %v", err)
	}

	var none *sandbox.Sandbox
	if err := none.Close(); err != nil {
		t.Errorf("close of nil: %v", err)
	}
}

func TestDetachThenConnect(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	sb := cloud.Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
	sandboxtest.Eval(t, sb, "x = 41")
	must.Do(t, sb.Detach())
	if err := sb.Detach(); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("twice: %v, want sandbox.ErrClosed", err)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	again, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option())
	must.Do(t, err)
	defer again.Close()
	if got := sandboxtest.Eval(t, again, "import os; x, os.environ['GREETING']"); got != "(41, 'hello')" {
		t.Errorf("it became %s, want %s", got, "(41, 'hello')")
	}
	if got := sandboxtest.Run(t, again, "echo $GREETING"); got != "hello" {
		t.Errorf("its environment has %q, want %q", got, "hello\n")
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	// A handle that was connected, not created, does not end the sandbox.
	if _, err := client(t, cloud).API().Sandboxes.Get(t.Context(), sb.ID()); err != nil {
		t.Error(err)
	}
}

// The lease is renewed while the handle is open, and no longer afterwards.
func TestLease(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t, sandbox.WithExpiry(sandbox.Expiry{After: 15 * time.Second, Renew: true}))
	before, err := sb.Info(t.Context())
	must.Do(t, err)
	var after *sandbox.Info
	patience.Until(t, "the lease is renewed", func() bool {
		after, err = sb.Info(t.Context())
		must.Do(t, err)
		return after.EndAt.After(before.EndAt)
	})
	if left := time.Until(after.EndAt); left > 15*time.Second {
		t.Errorf("renewed by %v, want at most %v", left, 15*time.Second)
	}
	must.Do(t, sb.Detach())
	cloud.Advance(16 * time.Second)
	if _, err := sandbox.Connect(t.Context(), sb.ID(), cloud.Option()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("it outlives its lease: %v, want sandbox.ErrGone", err)
	}
}

func TestUse(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	c := client(t, cloud)
	left := func() (ids []string) {
		for info, err := range c.List(t.Context(), nil) {
			must.Do(t, err)
			ids = append(ids, info.ID)
		}
		return ids
	}
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic is lost")
			}
		}()
		_ = sandbox.Use(t.Context(), func(context.Context, *sandbox.Sandbox) error { panic("boom") }, cloud.Option())
	}()
	if ids := left(); len(ids) != 0 {
		t.Errorf("a panic leaves %v, want none", ids)
	}
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(t.Context())
	err := sandbox.Use(ctx, func(context.Context, *sandbox.Sandbox) error { cancel(); return broken }, cloud.Option())
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if ids := left(); len(ids) != 0 {
		t.Errorf("a cancelled context leaves %v, want none", ids)
	}
}
