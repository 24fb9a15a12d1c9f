//go:build linux

package realservice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/realservice"
	"github.com/e2bctl/e2bctl/internal/relaytest"
	"github.com/e2bctl/e2bctl/sandbox"
)

// suicide ends the kernel without any message.
const suicide = "import os; os._exit(1)"

// exhaust makes a context's kernel die until Jupyter gives it up, and returns
// how often it died.
func exhaust(t *testing.T, sb *sandbox.Sandbox, in *sandbox.RunCodeParams) (deaths int) {
	t.Helper()
	for before := kernels(t, sb); ; deaths++ {
		if deaths > 12 {
			t.Fatal("the kernel is not given up")
		}
		_, err := sb.RunCode(patience.Context(t), suicide, in)
		if !errors.Is(err, sandbox.ErrKernelDied) && !errors.Is(err, sandbox.ErrKernelRestarted) {
			t.Fatalf("death %d: %v", deaths+1, err)
		}
		if kernels(t, sb) < before {
			return deaths + 1
		}
	}
}

// kernels returns the number of kernels of the Jupyter server, which forgets
// dead ones.
func kernels(t *testing.T, sb *sandbox.Sandbox) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:8888/api/kernels", nil)
	must.Do(t, err)
	response, err := (&http.Client{Transport: sb.Transport(8888)}).Do(request)
	must.Do(t, err)
	defer response.Body.Close()
	var all []json.RawMessage
	must.Do(t, json.NewDecoder(response.Body).Decode(&all))
	return len(all)
}

// After six deaths the service does not use a kernel again. The handle does not
// hang: it replaces the context, both the default one and one of its own.
func TestKernelIsGivenUp(t *testing.T) {
	t.Parallel()
	s := realservice.Start(t)
	sb := connect(t, s)
	made, err := sb.Contexts.Create(t.Context(), &sandbox.CodeContextParams{Cwd: s.Home})
	must.Do(t, err)
	for name, in := range map[string]*sandbox.RunCodeParams{"default": {}, "created": {Context: made.ID}} {
		if _, err := sb.RunCode(t.Context(), "x = 1", in); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s: given up after %d deaths", name, exhaust(t, sb, in))
		for _, test := range []struct{ code, want string }{{"'x' in globals()", "False"}, {"x = 2; x", "2"}, {"x + 1", "3"}} {
			if e, err := sb.RunCode(patience.Context(t), test.code, in); err != nil || e.Text() != test.want {
				t.Errorf("%s, then %s: %+v, %v, want text %v and no error", name, test.code, e, err, test.want)
			}
		}
		if err := sb.Contexts.Restart(patience.Context(t), in.Context); err != nil {
			t.Errorf("%s: restart what took its place: %v", name, err)
		}
		if e, err := sb.RunCode(patience.Context(t), "'x' in globals()", in); err != nil || e.Text() != "False" {
			t.Errorf("%s, after its restart: %+v, %v, want text %q and no error", name, e, err, "False")
		}
	}
	// A handle that is opened later finds the default context that this one created.
	if _, err := sb.RunCode(t.Context(), "shared = 42", nil); err != nil {
		t.Fatal(err)
	}
	if e, err := connect(t, s).RunCode(patience.Context(t), "shared", nil); err != nil || e.Text() != "42" {
		t.Errorf("another handle: %+v, %v, want text %q and no error", e, err, "42")
	}
}

// Contexts.Restart works even if the interpreter only answers 500.
func TestRestartContextThatWasGivenUp(t *testing.T) {
	t.Parallel()
	s := realservice.Start(t)
	sb := connect(t, s)
	exhaust(t, sb, nil)
	if err := sb.Contexts.Restart(patience.Context(t), ""); err != nil {
		t.Error(err)
	}
	if e, err := sb.RunCode(patience.Context(t), "6 * 7", nil); err != nil || e.Text() != "42" {
		t.Errorf("got %+v, %v, want text %q and no error", e, err, "42")
	}
}

// If another client restarts or removes a context, the code that runs there or the
// next call gets an error that says so.
func TestContextIsEndedByAnotherClient(t *testing.T) {
	t.Parallel()
	s := realservice.Start(t)
	sb, other := connect(t, s), connect(t, s)
	// The service interrupts a kernel before it ends it: code that heeds the interrupt may end with it first.
	const stubborn = "import time\nprint('begun', flush=True)\nwhile True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass"
	for _, test := range []struct {
		name string
		end  func(ctx context.Context, id sandbox.ContextID) error
		want string
	}{
		{"restarted", other.Contexts.Restart, "a client restarted its context"},
		{"removed", other.Contexts.Remove, "a client removed its context"},
	} {
		made, err := sb.Contexts.Create(t.Context(), nil)
		must.Do(t, err)
		ended := make(chan error, 1)
		begun := sync.OnceFunc(func() { go func() { ended <- test.end(patience.Context(t), made.ID) }() })
		in := &sandbox.RunCodeParams{Context: made.ID, Stdout: writer(func([]byte) { begun() })}
		e, err := sb.RunCode(patience.Context(t), stubborn, in)
		if !errors.Is(err, sandbox.ErrKernelDied) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want ErrKernelDied with %q", test.name, err, test.want)
		}
		if e == nil || e.Stdout != "begun\n" {
			t.Errorf("%s: got %+v, want stdout %q", test.name, e, "begun\n")
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		switch e, err := sb.RunCode(patience.Context(t), "6 * 7", &sandbox.RunCodeParams{Context: made.ID}); {
		case test.name == "removed" && !errors.Is(err, api.ErrNotFound):
			t.Errorf("the next after %s: %v", test.name, err)
		case test.name != "removed" && (err != nil || e.Text() != "42"):
			t.Errorf("the next after %s: %+v, %v", test.name, e, err)
		}
	}
	// Between two calls the next call gets the error, once.
	if _, err := sb.RunCode(t.Context(), "x = 1", nil); err != nil {
		t.Fatal(err)
	}
	must.Do(t, other.Contexts.Restart(patience.Context(t), ""))
	if e, err := sb.RunCode(patience.Context(t), "x", nil); !errors.Is(err, sandbox.ErrKernelRestarted) || e != nil {
		t.Errorf("after a restart between calls: %v, want sandbox.ErrKernelRestarted and no execution", err)
	}
	if e, err := sb.RunCode(patience.Context(t), "'x' in globals()", nil); err != nil || e.Text() != "False" {
		t.Errorf("the one after that: %+v, %v, want text %q and no error", e, err, "False")
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// The service does not keep messages sent while a websocket is cut, because the
// interpreter has a websocket of its own. An execution continues over another
// websocket. It is complete if there were no messages in between; otherwise it is an
// error.
func TestCutWebsocket(t *testing.T) {
	t.Parallel()
	s := realservice.Start(t)
	relay := relaytest.New(t, s.URL)
	sb := connect(t, s, sandbox.WithSandboxURL(relay.URL()))
	if err := runCut(t, s, sb, relay, "print('missed', flush=True)", 0); !errors.Is(err, sandbox.ErrKernelLost) {
		t.Errorf("output was missed: %v, want sandbox.ErrKernelLost", err)
	}
	// It is not visible from outside when the kernel first sends to the new
	// websocket; messages that it sends earlier are lost.
	for tries := 1; ; tries++ {
		err := runCut(t, s, sb, relay, "pass", time.Duration(tries)*500*time.Millisecond)
		if err == nil {
			return
		}
		if !errors.Is(err, sandbox.ErrKernelLost) || tries == 10 {
			t.Fatalf("nothing was missed: %v", err)
		}
	}
}

// runCut runs code whose websocket is cut in the middle. The code continues with
// meanwhile while there is no websocket, or with the next one. The rest of the code
// waits for a pause in which the next websocket is served.
func runCut(t *testing.T, s *realservice.Service, sb *sandbox.Sandbox, relay *relaytest.Relay, meanwhile string, pause time.Duration) error {
	t.Helper()
	wait := func(name string) string {
		return fmt.Sprintf("\nwhile not os.path.exists(%q): time.sleep(0.01)\nos.remove(%[1]q)\n", filepath.Join(s.Home, name))
	}
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(s.Home, name), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	said := filepath.Join(s.Home, "said")
	code := "import os, time\nprint('before', flush=True)" + wait("cut") + meanwhile + fmt.Sprintf("\nopen(%q, 'w').close()", said) + wait("again") + "print('after')\n42"
	var out strings.Builder
	var steps sync.WaitGroup
	cut := sync.OnceFunc(func() {
		steps.Go(func() {
			relay.Shut()
			touch("cut")
			for err := errors.New("not yet"); err != nil && t.Context().Err() == nil; {
				_, err = os.Stat(said)
			}
			select {
			case <-relay.Reopen():
			case <-t.Context().Done():
			}
			select {
			case <-time.After(pause):
			case <-t.Context().Done():
			}
			touch("again")
		})
	})
	e, err := sb.RunCode(patience.Context(t), code, &sandbox.RunCodeParams{Stdout: writer(func(p []byte) { out.Write(p); cut() })})
	steps.Wait()
	if complete := out.String() == "before\nafter\n" && e.Text() == "42"; err == nil && !complete || strings.Count(out.String(), "before") != 1 {
		t.Errorf("wrote %q, %+v, %v", out.String(), e, err)
	}
	if e, err := sb.RunCode(patience.Context(t), "6 * 7", nil); err != nil || e.Text() != "42" {
		t.Errorf("the next: %+v, %v, want text %q and no error", e, err, "42")
	}
	_ = os.Remove(said)
	return err
}
