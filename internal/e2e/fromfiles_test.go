//go:build linux

package e2e

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestResumedFromFiles checks that a pause that keeps only files keeps all files written
// by code, commands and installations. The handle continues with new processes and
// contexts, and does not claim that the old ones exist.
func TestResumedFromFiles(t *testing.T) {
	x := newIndex(t)
	x.add(t, "words", "1.5", "n = 17\n")
	sb := x.cloud(t).Create(t, sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}}))
	if _, err := sb.Packages.Install(t.Context(), []string{"words"}, nil); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eval(t, sb, "import words; kept = words.n; open('made', 'w').write(str(kept))")
	other, err := sb.Contexts.Create(t.Context(), nil)
	must.Do(t, err)
	command, err := sb.Commands.Start(t.Context(), "sleep 5000", nil)
	must.Do(t, err)
	for range 2 { // kept files are kept again
		must.Do(t, sb.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}))
		must.Do(t, sb.Resume(t.Context(), nil))
		if got := sandboxtest.Eval(t, sb, "import words; open('made').read() + str(words.n)"); got != "1717" {
			t.Errorf("got %s, want 1717", got)
		}
	}
	if _, err := sb.RunCode(t.Context(), "kept", nil); !isException(err, "NameError") {
		t.Errorf("the variable of a process that ended: got %v, want a NameError", err)
	}
	if _, err := command.Wait(t.Context()); err == nil || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("the command that ended: got %v, want an error about the command alone", err)
	}
	if _, err := sb.RunCode(t.Context(), "1", &sandbox.RunCodeParams{Context: other.ID}); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("the context that ended: got %v, want %v", err, api.ErrNotFound)
	}
	run, err := agent.Begin(t.Context(), sb, nil)
	must.Do(t, err)
	defer run.Close()
	if step, err := run.Exec(t.Context(), "print(open('made').read())"); err != nil || strings.TrimSpace(step.Stdout) != "17" {
		t.Errorf("a run: got %+v, %v, want 17", step, err)
	}
}

// TestResumedOften checks that starting a sandbox from its files, which reads more than
// starting another one, does not lose the connection to the server when memory is
// collected.
func TestResumedOften(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	var work errgroup.Group
	for range 4 {
		sb := cloud.Create(t)
		work.Go(func() error {
			for range 12 {
				if err := sb.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}); err != nil {
					return err
				}
				if err := sb.Resume(t.Context(), nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		t.Error(err)
	}
}
