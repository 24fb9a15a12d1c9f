//go:build linux

package e2e

import (
	"errors"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestContexts(t *testing.T) {
	onBothTransports(t, func(t *testing.T, sb *sandbox.Sandbox) {
		sandboxtest.Eval(t, sb, "x = 'default'")
		made, err := sb.Contexts.Create(t.Context(), &sandbox.CodeContextParams{Cwd: "/tmp"})
		must.Do(t, err)
		if made.Language != "python" || made.Cwd != "/tmp" {
			t.Errorf("made %+v, want the language %q and the directory %q", made, "python", "/tmp")
		}
		in := func(code string) (string, error) {
			execution, err := sb.RunCode(t.Context(), code, &sandbox.RunCodeParams{Context: made.ID})
			return execution.Text(), err
		}
		if got, err := in("x = 'made'; import os; os.getcwd()"); err != nil || got != "/tmp" {
			t.Errorf("cwd %q, %v, want %q and no error", got, err, "/tmp")
		}
		if got := sandboxtest.Eval(t, sb, "x"); got != "default" {
			t.Errorf("x of the default context is %q, want %q", got, "default")
		}
		contexts, err := sb.Contexts.List(t.Context())
		if err != nil || !slices.Contains(contexts, *made) || len(contexts) < 2 {
			t.Errorf("got %+v, %v, want %+v beside the default one and no error", contexts, err, *made)
		}

		must.Do(t, sb.Contexts.Restart(t.Context(), made.ID))
		if _, err := in("x"); !isException(err, "NameError") {
			t.Errorf("after its restart: %v, want the Python exception NameError", err)
		}
		if got := sandboxtest.Eval(t, sb, "x"); got != "default" {
			t.Errorf("the restart of another context changed x to %q, want %q", got, "default")
		}

		for _, id := range []sandbox.ContextID{"", "default"} {
			sandboxtest.Eval(t, sb, "x = 1")
			if err := sb.Contexts.Restart(t.Context(), id); err != nil {
				t.Errorf("restart the default context by %q: %v", id, err)
			}
			if got := sandboxtest.Eval(t, sb, "'x' in globals()"); got != "False" {
				t.Errorf("after its restart by %q x is there", id)
			}
		}

		must.Do(t, sb.Contexts.Remove(t.Context(), made.ID))
		for name, call := range map[string]func() error{
			"run":     func() error { _, err := in("1"); return err },
			"restart": func() error { return sb.Contexts.Restart(t.Context(), made.ID) },
			"remove":  func() error { return sb.Contexts.Remove(t.Context(), made.ID) },
		} {
			if err := call(); !errors.Is(err, api.ErrNotFound) || errors.Is(err, sandbox.ErrGone) {
				t.Errorf("%s what is removed: %v, want api.ErrNotFound and not sandbox.ErrGone", name, err)
			}
		}
		if _, err := sb.Contexts.Create(t.Context(), &sandbox.CodeContextParams{Language: "klingon"}); !errors.Is(err, sandbox.ErrUnknownLanguage) {
			t.Errorf("a context for klingon: %v, want sandbox.ErrUnknownLanguage", err)
		}
		if err := sb.Contexts.Remove(t.Context(), "../health"); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("an id that is a path: %v, want api.ErrInvalidArgument", err)
		}
	})
}

// Processes that code left running end with its kernel, and do not delay a
// restart.
func TestRestartEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	pid := sandboxtest.Eval(t, sb, `
import atexit, asyncio, subprocess, threading, time
_ = atexit.register(time.sleep, 3600)
threading.Thread(target=time.sleep, args=(3600,)).start()
left = asyncio.ensure_future(asyncio.sleep(3600))
await asyncio.sleep(0)
int(subprocess.Popen(["sh", "-c", "trap '' INT TERM HUP; echo $$; while :; do sleep 3600; done"], stdout=subprocess.PIPE).stdout.readline())`)
	must.Do(t, sb.Contexts.Restart(t.Context(), "default"))
	if got := sandboxtest.Run(t, sb, "test -e /proc/"+pid+" && echo there || echo gone"); got != "gone" {
		t.Errorf("process %s is %s, want %s", pid, got, "gone\n")
	}
	if got := sandboxtest.Eval(t, sb, "'left' in globals()"); got != "False" {
		t.Errorf("the variables are still there: %s, want %s", got, "False")
	}
}

func isException(err error, name string) bool {
	exception, ok := errors.AsType[*sandbox.ExecutionError](err)
	return ok && exception.Name == name
}
