//go:build linux

package e2e

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// The description of the users of code and commands in sandbox/README.md is correct:
// neither the local cloud nor the service uses the same one for both.
func TestFilesOfCodeAndCommands(t *testing.T) {
	t.Parallel()
	cloud := shared(t)
	sb := cloud.Create(t)
	one := cloud.Report().UserIDs == 1 // both are the same id
	const code = `import os
for path in "shared", "given":
    with open(path, "a") as f:
        f.write("code\n")
os.chmod("given", 0o666)
os.getuid()`
	if got := sandboxtest.Eval(t, sb, code); got != "0" {
		t.Skipf("code runs as user %s: this isolation has one user only", got)
	}
	for _, test := range []struct {
		user, command string
		works         bool
	}{
		{"", "echo command >> shared", one},
		{"root", "echo command >> shared", true},
		{"", "echo command >> given", true},
		{"", "mv shared moved && echo command >> new && rm moved", true},
	} {
		result, err := sb.Commands.Run(t.Context(), test.command, &sandbox.CommandParams{User: test.user})
		failed, _ := errors.AsType[*sandbox.ExitError](err)
		if works := err == nil; works != test.works || !works && (failed == nil || !strings.Contains(result.Stderr, "Permission denied")) {
			t.Errorf("%s as %q: got %v, want success: %v", test.command, test.user, err, test.works)
		}
	}
	if got, want := sandboxtest.Eval(t, sb, `open("new", "a").write("code\n"), open("new").read()`), `(5, 'command\ncode\n')`; got != want {
		t.Errorf("code appends to a command's file: got %s, want %s", got, want)
	}
}

// Connect finds the result of a command for a while after its end, and no output.
func TestConnectAfterTheEnd(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	command, err := sb.Commands.Start(t.Context(), "echo out; exit 3", &sandbox.CommandParams{Tag: "short"})
	must.Do(t, err)
	if _, err := command.Wait(t.Context()); err == nil {
		t.Fatal("got no error, want status 3")
	}
	for _, which := range []sandbox.ProcessSelector{sandbox.ByTag("short"), sandbox.ByPID(command.PID())} {
		late, err := sb.Commands.Connect(t.Context(), which, nil)
		if err != nil {
			t.Errorf("%v: %v", which, err)
			continue
		}
		result, err := late.Wait(t.Context())
		if result == nil || result.ExitCode != 3 || result.Stdout != "" || err == nil {
			t.Errorf("%v: got %+v, %v, want status 3 without output", which, result, err)
		}
		if err := late.Kill(t.Context()); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%v: got %v, want %v", which, err, os.ErrProcessDone)
		}
	}
	if _, err := sb.Commands.Connect(t.Context(), sandbox.ByTag("never"), nil); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("got %v, want %v", err, api.ErrNotFound)
	}
}
