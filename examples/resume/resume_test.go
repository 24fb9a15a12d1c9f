package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/state"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"resume": main})
}

// outcome is the result of a run.
type outcome struct {
	line   []float64
	losses []float64
}

func outcomeOf(t *testing.T, st *state.State) outcome {
	t.Helper()
	var line state.Array
	var o outcome
	err := errors.Join(st.Get("line", &line), st.Get("losses", &o.losses))
	if err == nil {
		o.line, err = state.Elements[float64](line)
	}
	must.Do(t, err)
	return o
}

// without returns the outcome after as many epochs as goal says, in a run that is never stopped.
func without(t *testing.T, cloud *sandboxtest.Cloud, goal int) outcome {
	t.Helper()
	st, err := beginning()
	must.Do(t, err)
	err = sandbox.Use(t.Context(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		return fit(ctx, io.Discard, sb, st, goal, func() error { return nil })
	}, cloud.Option())
	must.Do(t, err)
	return outcomeOf(t, st)
}

func check(t *testing.T, got, want outcome) {
	t.Helper()
	if !slices.Equal(got.line, want.line) || !slices.Equal(got.losses, want.losses) {
		t.Errorf("it ended with %v after %d epochs, without a stop with %v after %d", got.line, len(got.losses), want.line, len(want.losses))
	}
}

// TestKilled checks that a sandbox that is killed in the middle of a run loses only the
// epochs after the last save, and that another sandbox that continues has the same result
// to the last bit.
func TestKilled(t *testing.T) {
	cloud := sandboxtest.New(t)
	file := filepath.Join(t.TempDir(), "run.state")
	st, err := beginning()
	must.Do(t, err)
	saves := 0
	err = sandbox.Use(t.Context(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		return fit(ctx, t.Output(), sb, st, 50, func() error {
			if saves++; saves == 2 {
				return errors.Join(save(file, st), sb.Kill(ctx))
			}
			return save(file, st)
		})
	}, cloud.Option())
	if !errors.Is(err, sandbox.ErrGone) {
		t.Fatalf("without its sandbox the run ended with %v", err)
	}
	saved, err := load(file)
	must.Do(t, err)
	if o := outcomeOf(t, saved); len(o.losses) != 20 {
		t.Errorf("%d epochs were saved", len(o.losses))
	}
	err = sandbox.Use(t.Context(), func(ctx context.Context, sb *sandbox.Sandbox) error {
		return fit(ctx, t.Output(), sb, saved, 50, func() error { return nil })
	}, cloud.Option())
	must.Do(t, err)
	check(t, outcomeOf(t, saved), without(t, cloud, 50))
}

// TestProcesses checks that two processes, each with its own sandbox, have the result of
// one.
func TestProcesses(t *testing.T) {
	cloud := sandboxtest.New(t)
	file := filepath.Join(t.TempDir(), "run.state")
	for _, run := range []struct{ goal, first, last string }{
		{"15", "10 epochs: ", "15 epochs: "}, {"35", "25 epochs: ", "35 epochs: y = 2.999 x"},
	} {
		cmd := exec.CommandContext(t.Context(), "resume", "-state", file, "-epochs", run.goal)
		cmd.Env = append(os.Environ(), cloud.Env()...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), run.first) || !strings.Contains(string(out), "\n"+run.last) {
			t.Fatalf("to %s: %v\n%s", run.goal, err, out)
		}
	}
	st, err := load(file)
	must.Do(t, err)
	check(t, outcomeOf(t, st), without(t, cloud, 35))
}

// TestDamaged checks that an unreadable file is neither continued nor overwritten.
func TestDamaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.state")
	st, err := beginning()
	if err == nil {
		err = save(file, st)
	}
	if err == nil {
		err = os.Truncate(file, 1000)
	}
	must.Do(t, err)
	err = resume(t.Context(), false, file, 10)
	if _, ok := errors.AsType[*state.FormatError](err); !ok {
		t.Errorf("half a file: %v", err)
	}
	if err := save(filepath.Join(file, "below"), st); err == nil {
		t.Error("a file was a directory")
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
