package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestParseStatus(t *testing.T) {
	t.Parallel()
	const object = "100644 100644 100644 1111111111111111111111111111111111111111 2222222222222222222222222222222222222222 "
	got, err := parseStatus([]byte(strings.Join([]string{
		"# branch.oid 1111111111111111111111111111111111111111", "# branch.head main", "# branch.upstream origin/main", "# branch.ab +2 -1",
		"1 M. N... " + object + "a b", "1 .D N... " + object + "line\nend", "1 AM N... " + object + "\xff",
		"2 R. N... " + object + "R100 new", "old name",
		"u UU N... 100644 100644 100644 100644 1111 2222 3333 both ways", "u AA N... 100644 100644 100644 100644 1111 2222 3333 added",
		"? new dir/", "! ignored", "",
	}, "\x00")))
	must.Do(t, err)
	want := &GitStatus{Branch: "main", Upstream: "origin/main", Ahead: 2, Behind: 1, Files: []GitFile{
		{Path: "a b", Index: 'M', Worktree: ' '},
		{Path: "line\nend", Index: ' ', Worktree: 'D'},
		{Path: "\xff", Index: 'A', Worktree: 'M'},
		{Path: "new", RenamedFrom: "old name", Index: 'R', Worktree: ' '},
		{Path: "both ways", Index: 'U', Worktree: 'U'},
		{Path: "added", Index: 'A', Worktree: 'A'},
		{Path: "new dir/", Index: '?', Worktree: '?'},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(GitCounts{Total: 7, Staged: 3, Unstaged: 4, Untracked: 1, Conflicts: 2}, got.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	var labels []string
	for _, f := range got.Files {
		labels = append(labels, fmt.Sprint(f.Label(), " ", f.Staged()))
	}
	if diff := cmp.Diff([]string{"modified true", "deleted false", "added true", "renamed true", "conflict false", "conflict false", "untracked false"}, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if s, err := parseStatus([]byte("# branch.head (detached)\x00")); err != nil || !s.Detached || s.Branch != "" || !s.Clean() {
		t.Errorf("detached: %+v, %v", s, err)
	}
	for _, bad := range []string{"x", "1 M.", "1 M. N... " + object, "2 R. N... " + object + "R100 new\x00", "? cut", "1 MMM N... " + object + "a\x00"} {
		if s, err := parseStatus([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("# branch.head main\x00# branch.ab +1 -2\x001 M. N... 1 2 3 4 5 a\x002 R. N... 1 2 3 4 5 R1 b\x00c\x00? d\x00"))
	f.Fuzz(func(t *testing.T, out []byte) {
		s, err := parseStatus(out)
		if (s == nil) == (err == nil) {
			t.Errorf("%v, %v", s, err)
		}
		if s != nil && len(s.Files) > len(out) {
			t.Errorf("%d files of %d bytes", len(s.Files), len(out))
		}
	})
}

func TestGitErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"fatal: Authentication failed for 'http://127.0.0.1/x'":                              ErrGitAuth,
		"fatal: could not read Username for 'http://x': terminal prompts disabled":           ErrGitAuth,
		"remote: Invalid username or password.":                                              ErrGitAuth,
		"fatal: The current branch topic has no upstream branch.":                            ErrGitUpstream,
		"There is no tracking information for the current branch.":                           ErrGitUpstream,
		"Please specify which branch you want to merge with.":                                ErrGitUpstream,
		"fatal: not a git repository (or any of the parent directories): .git":               nil,
		"error: pathspec 'nothing' did not match any file(s) known to git, whatever you ask": nil,
	} {
		result := &CommandResult{ExitCode: 128, Stderr: text}
		err := explained(result, &ExitError{result})
		if _, ok := errors.AsType[*ExitError](err); !ok || errors.Is(err, ErrGitAuth) != errors.Is(want, ErrGitAuth) || errors.Is(err, ErrGitUpstream) != errors.Is(want, ErrGitUpstream) {
			t.Errorf("%q: %v", text, err)
		}
	}
	result := &CommandResult{ExitCode: 127, Stderr: "bash: git: command not found"}
	if err := explained(result, &ExitError{result}); !strings.Contains(err.Error(), "no git") {
		t.Error(err)
	}
}

// TestGitSaysWhy checks that git's own words explain the error of a command, and that only the end of git
// is explained.
func TestGitSaysWhy(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		envs := r.GetProcess().GetEnvs()
		if envs["LC_ALL"] != "C.UTF-8" || envs["GIT_TERMINAL_PROMPT"] != "0" {
			t.Errorf("got the variables %v", envs)
		}
		if envs["START"] == "fails" {
			return connect.NewError(connect.CodeInternal, errors.New("terminal prompts disabled"))
		}
		_ = started(stream, 1)
		_ = stderr(stream, []byte("fatal: could not read Username for 'http://x': terminal prompts disabled\n"))
		return ended(stream, 128, "exit status 128")
	}
	g := s.sandbox().Git
	for start, explained := range map[string]bool{"works": true, "fails": false} {
		_, err := g.run(t.Context(), "status", "git status", &GitParams{Envs: map[string]string{"START": start}})
		if err == nil || errors.Is(err, ErrGitAuth) != explained || !strings.HasPrefix(err.Error(), "sandbox: git status in ") {
			t.Errorf("git whose start %s: got error %v", start, err)
		}
	}
}

// Arguments that make no sense are refused before anything runs.
func TestGitRefuses(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := s.sandbox().Git
	secret := &GitCredentials{Username: "me", Password: "hunter2"}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"option as branch":    {g.Clone(t.Context(), "https://example.com/x", &GitCloneParams{Branch: "--upload-pack=x"}), "begins with a dash"},
		"option as remote":    {g.Push(t.Context(), "x", &GitPushParams{Remote: "--mirror"}), "begins with a dash"},
		"option as name":      {g.Checkout(t.Context(), "x", "-f", nil), "begins with a dash"},
		"branch alone":        {g.Pull(t.Context(), "x", &GitPullParams{Branch: "main"}), "needs a Remote"},
		"password in address": {g.Clone(t.Context(), "https://me:hunter2@example.com/x", nil), "use Credentials"},
		"ssh with password":   {g.Clone(t.Context(), "git@example.com:x", &GitCloneParams{Credentials: secret}), "http and https"},
		"remote's password":   {g.AddRemote(t.Context(), "x", "origin", "https://me:hunter2@example.com/x", nil), "use Credentials"},
		"option as target":    {g.Reset(t.Context(), "x", &GitResetParams{Target: "--hard"}), "begins with a dash"},
		"unknown mode":        {g.Reset(t.Context(), "x", &GitResetParams{Mode: "exec=x"}), "not a mode"},
		"mode and paths":      {g.Reset(t.Context(), "x", &GitResetParams{Mode: GitResetHard, Paths: []string{"a"}}), "choose one"},
		"nothing to restore":  {g.Restore(t.Context(), "x", nil, nil), "no paths"},
		"two configurations":  {g.SetConfig(t.Context(), "a.b", "c", &GitConfigParams{Repo: "x", System: true}), "choose one"},
		"stored for ssh":      {g.DangerouslyAuthenticate(t.Context(), *secret, &GitAuthenticateParams{Address: "git@example.com:x"}), "http and https"},
		"stored line end":     {g.DangerouslyAuthenticate(t.Context(), GitCredentials{Username: "me", Password: "hunter2\nhost=evil"}, nil), "line ends"},
		"stored nothing":      {g.DangerouslyAuthenticate(t.Context(), GitCredentials{Username: "me"}, nil), "a Password"},
		"line end":            {g.Clone(t.Context(), "https://example.com/x", &GitCloneParams{Credentials: &GitCredentials{Username: "me\nhost=evil"}}), "line ends"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) || strings.Contains(test.err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%t"} {
		for _, x := range []any{secret, *secret, &GitCloneParams{Credentials: secret}, Network{EgressProxy: &EgressProxy{Password: "hunter2"}}} {
			if got := fmt.Sprintf(verb, x); strings.Contains(got, "hunter2") {
				t.Errorf("%s of %T: %s", verb, x, got)
			}
		}
	}
	if n := s.seen("POST /process"); n != 0 {
		t.Errorf("%d commands ran", n)
	}
}
