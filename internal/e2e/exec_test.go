//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// everyByte has every byte that an argument can have.
func everyByte() string {
	var all []byte
	for b := 1; b < 256; b++ {
		all = append(all, byte(b))
	}
	return string(all)
}

// Arguments arrive unchanged, regardless of their content.
func TestExecArguments(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	for name, args := range map[string][]string{
		"every byte":             {everyByte()},
		"an empty one":           {"", "x", ""},
		"100 kB":                 {strings.Repeat("é", 50_000)},
		"100 kB of every byte":   {strings.Repeat(everyByte(), 400)},
		"bytes that are no text": {"\xff", "", "\\\xfe\n", "-\xfd\n\n"},
		"what a shell reads":     {"$(touch /tmp/injected)", "`id`", "'; exit 1 #", "*", "~", "a b", "-n", "--"},
	} {
		want := strings.Join(args, "\x00") + "\x00"
		got, err := sb.Commands.Output(t.Context(), "printf", append([]string{`%s\0`}, args...), nil)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %.80q, %v, want %.80q", name, got, err, want)
		}
	}
	// The same words in a line, quoted.
	for _, word := range []string{"", "$(touch /tmp/injected)", "it's", "a\nb", "~", "X=1"} {
		if got := sandboxtest.Run(t, sb, "printf %s. "+sandbox.Quote(word)); got != word+"." {
			t.Errorf("quoted: got %q, want %q", got, word+".")
		}
	}
	if sandboxtest.Run(t, sb, "ls /tmp/injected 2>/dev/null || true") != "" {
		t.Error("an argument was run")
	}
}

// Only a missing program is an exec.ErrNotFound.
func TestExecFailures(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	sandboxtest.Run(t, sb, "printf '#!/bin/sh\nexit 127\n' >ends127; printf '#!/no/such\n' >noshell; chmod +x ends127 noshell; : >plain; mkdir dir")
	for name, tt := range map[string]struct {
		program string
		status  int
		missing bool
	}{
		"missing in PATH":               {"no-such-program", 127, true},
		"missing file":                  {"./no-such-program", 127, true},
		"missing, with a name of bytes": {"no\xff", 127, true},
		"a name like a flag":            {"-x", 127, true},
		"ends with 127":                 {"./ends127", 127, false},
		"not executable":                {"./plain", 126, false},
		"a directory":                   {"./dir", 126, false},
	} {
		result, err := sb.Commands.Exec(t.Context(), tt.program, nil, nil)
		if failed, ok := errors.AsType[*sandbox.ExitError](err); !ok || failed.Result != result || result.ExitCode != tt.status {
			t.Errorf("%s: got %+v, %v, want an ExitError with status %d", name, result, err, tt.status)
		}
		if errors.Is(err, exec.ErrNotFound) != tt.missing {
			t.Errorf("%s: %v, want that it is exec.ErrNotFound: %v", name, err, tt.missing)
		}
	}
	if _, err := sb.Commands.Exec(t.Context(), "./noshell", nil, nil); err == nil || errors.Is(err, exec.ErrNotFound) {
		t.Errorf("without its interpreter: %v, want an error that is no exec.ErrNotFound", err)
	}
	for name, argv := range map[string][]string{"no name": {""}, "NUL": {"echo", "a\x00b"}} {
		if _, err := sb.Commands.Exec(t.Context(), argv[0], argv[1:], nil); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%s: %v, want api.ErrInvalidArgument", name, err)
		}
	}
	if found, err := sb.Commands.Output(t.Context(), "ends127", nil, &sandbox.CommandParams{Envs: map[string]string{"PATH": "/home/user"}}); err == nil || errors.Is(err, exec.ErrNotFound) {
		t.Errorf("by the PATH of its own: %q, %v, want that it ended with 127", found, err)
	}
}

// Output returns all of the output or an error.
func TestExecOutput(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	const both = `printf 'out\377'; printf err >&2; exit 3`
	got, err := sb.Commands.Output(t.Context(), "sh", []string{"-c", both}, nil)
	if failed, ok := errors.AsType[*sandbox.ExitError](err); !ok || failed.Result.Stderr != "err" || string(got) != "out\xff" {
		t.Errorf("Output: got %q, %v, want %q and an ExitError", got, err, "out\xff")
	}
	if got, err := sb.Commands.CombinedOutput(t.Context(), "sh", []string{"-c", `echo out; echo err >&2`}, nil); err != nil || len(got) != len("out\nerr\n") || !bytes.Contains(got, []byte("err\n")) {
		t.Errorf("CombinedOutput: got %q, %v, want both streams", got, err)
	}
	got, err = sb.Commands.Output(t.Context(), "yes", nil, &sandbox.CommandParams{MaxOutputBytes: 1001})
	if !errors.Is(err, sandbox.ErrTooLarge) || len(got) != 1001 {
		t.Errorf("too much: got %d bytes, %v, want 1001 and sandbox.ErrTooLarge", len(got), err)
	}
	for name, p := range map[string]*sandbox.CommandParams{"Stdout": {Stdout: t.Output()}, "Stderr": {Stderr: t.Output()}, "MaxOutputBytes": {MaxOutputBytes: -1}, "Input": {Input: true}} {
		if _, err := sb.Commands.CombinedOutput(t.Context(), "true", nil, p); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is set: %v, want an error with its name", name, err)
		}
	}
}
