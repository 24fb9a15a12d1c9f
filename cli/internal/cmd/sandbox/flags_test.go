package sandbox

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestSandboxesOfAJob checks the metadata by which --ci selects sandboxes, beside that of --metadata, and where it is refused.
func TestSandboxesOfAJob(t *testing.T) {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		for _, prefix := range []string{"GITHUB_", "GITLAB_", "BUILDKITE", "CIRCLE", "TF_BUILD", "BITBUCKET_", "JENKINS_", "RUNNER_"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "")
			}
		}
	}
	for value, want := range map[string]string{"job": "job", "run": "run", "": "", "jobs": ""} {
		var scope ciScope
		if err := scope.Set(value); (err == nil) != (want != "") || scope.String() != want {
			t.Errorf("%q: got error %v and %q", value, err, scope)
		}
	}
	given := cmdutil.KeyValues{"a": "b", "ci_repository": "mine"}
	for _, tt := range []struct {
		scope     ciScope
		run, job  string
		want      cmdutil.KeyValues
		isRefused bool
	}{
		{"", "", "", given, false}, {ciJob, "", "build", given, true}, {ciRun, "", "build", given, true}, {ciJob, "7", "", given, true},
		{ciRun, "7", "", cmdutil.KeyValues{"a": "b", "ci_repository": "mine", "ci": "7", "ci_system": "github"}, false},
		{ciRun, "7", "build", cmdutil.KeyValues{"a": "b", "ci_repository": "mine", "ci": "7", "ci_system": "github"}, false},
		{ciJob, "7", "build", cmdutil.KeyValues{"a": "b", "ci_repository": "mine", "ci": "7", "ci_system": "github", "ci_job": "build"}, false},
	} {
		t.Setenv("GITHUB_ACTIONS", "true")
		t.Setenv("GITHUB_RUN_ID", tt.run)
		t.Setenv("GITHUB_REPOSITORY", "theirs")
		t.Setenv("GITHUB_JOB", tt.job)
		o := &killOptions{CI: tt.scope, Metadata: given}
		err := o.addCI(&cobra.Command{})
		if diff := cmp.Diff(tt.want, o.Metadata); diff != "" || (err != nil) != tt.isRefused {
			t.Errorf("--ci=%s in the job %q of the run %q: got error %v, metadata (-want +got):\n%s", tt.scope, tt.job, tt.run, err, diff)
		}
	}
}

// TestWordsOfACommand checks which words are a command.
func TestWordsOfACommand(t *testing.T) {
	t.Parallel()
	const misplaced = `" stands where the command begins`
	for text, want := range map[string]string{
		"": "want a command", "--": "want a command", "-- a -b": "", "a": "", "a -- b": "", "-a": `"-a` + misplaced, "-- -a": `"-a` + misplaced, "-- --": `"--` + misplaced,
	} {
		words, err := commandWords(&cobra.Command{}, strings.Fields(text))
		if (err != nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
		if got := strings.Join(words, " "); err == nil && got != strings.TrimPrefix(text, "-- ") {
			t.Errorf("%q: got %q", text, got)
		}
	}
	for line, want := range map[string]bool{"sh": true, "/bin/bash": true, "python3": true, "bash -l": false, "shell": false, "": false, "cat": false} {
		if got := readsCommands(line); got != want {
			t.Errorf("%q reads commands: got %t", line, got)
		}
	}
}

// TestEntryOfALog checks the line of an entry, whose values cannot be mistaken for others, and that it is written whole.
func TestEntryOfALog(t *testing.T) {
	t.Parallel()
	entry := sandbox.LogEntry{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), Level: sandbox.LogWarn, Message: "a\nb\x1b[2J",
		Fields: map[string]string{logger: "kernel", "z": "1", "empty": "", "blank": "a b", "equal": "a=b", "quote": `"`, "lines": "a\nb", "tab": "a\tb"},
	}
	want := "2026-01-02T03:04:05.006Z  WARN   kernel     " + `a\nb` + cmdutil.Printable("\x1b[2J") + `  blank="a b"  empty=""  equal="a=b"  lines="a\nb"  quote="\""  tab="a\tb"  z=1` + "\n"
	var out bytes.Buffer
	must.Do(t, writeEntry(&out, entry, false))
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, asJSON := range []bool{false, true} {
		must.Is(t, writeEntry(failingOutput{syscall.ENOSPC}, entry, asJSON), syscall.ENOSPC)
	}
}
