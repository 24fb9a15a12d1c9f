package sandbox

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// gitCall is a run of git in the sandbox.
type gitCall struct{ user, line, input string }

// gitService is a service that answers the command lines of git, by a part of each, with the output of git. A text that begins
// with "!" is the output of a git that fails, to stderr. Every other command line succeeds.
type gitService struct {
	*service
	input strings.Builder
	calls []gitCall
	envs  map[string]string // of the last call
}

func newGitService(t *testing.T, answers map[string]string) *gitService {
	t.Helper()
	g := &gitService{service: newService(t)}
	var mu sync.Mutex
	g.service.input = func(r *process.SendInputRequest) {
		mu.Lock()
		defer mu.Unlock()
		g.input.Write(r.GetInput().GetStdin())
	}
	g.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		args := r.GetProcess().GetArgs()
		line := strings.ReplaceAll(args[len(args)-1], "'", "")
		if strings.Contains(line, "credential") { // it reads the credentials
			patience.Until(t, "the input ends", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.closed == 1 })
		}
		g.mu.Lock()
		user := g.starter
		g.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		g.calls, g.envs = append(g.calls, gitCall{user, line, g.input.String()}), r.GetProcess().GetEnvs()
		for part, answer := range answers {
			if !strings.Contains(line, part) {
				continue
			}
			if text, failed := strings.CutPrefix(answer, "!"); failed {
				_ = stderr(stream, []byte(text))
				return ended(stream, 1, "exit status 1")
			}
			_ = stdout(stream, []byte(answer))
		}
		return ended(stream, 0, "exit status 0")
	}
	return g
}

// gitCase is a call of Git and its runs of git.
type gitCase struct {
	call    func(g *Git) (any, error)
	answers map[string]string
	want    []string // "-" before a line: with the input of credentials
	result  any
}

// does returns a result that is only an error.
func does(err error) (any, error) { return nil, err }

// gitCalls returns the calls within a repository.
func gitCalls(ctx context.Context, given GitParams) map[string]gitCase {
	return map[string]gitCase{
		"init":      {call: func(g *Git) (any, error) { return does(g.Init(ctx, "r", &GitInitParams{GitParams: given})) }, want: []string{"git init --quiet -- r"}},
		"init bare": {call: func(g *Git) (any, error) { return does(g.Init(ctx, "r", &GitInitParams{given, "main", true})) }, want: []string{"git init --quiet --initial-branch=main --bare -- r"}},
		"clone": {call: func(g *Git) (any, error) {
			return does(g.Clone(ctx, "https://h.test/x", &GitCloneParams{GitParams: given}))
		}, want: []string{"git clone --quiet -- https://h.test/x"}},
		"clone less": {call: func(g *Git) (any, error) { return does(g.Clone(ctx, "a", &GitCloneParams{given, "to", "b", 1, nil})) }, want: []string{"git clone --quiet --branch b --single-branch --depth=1 -- a to"}},
		"add":        {call: func(g *Git) (any, error) { return does(g.Add(ctx, "r", &GitAddParams{GitParams: given})) }, want: []string{"git -C r add --all"}},
		"add files":  {call: func(g *Git) (any, error) { return does(g.Add(ctx, "r", &GitAddParams{given, []string{"-a", "b"}})) }, want: []string{"git -C r add --all -- -a b"}},
		"commit":     {call: func(g *Git) (any, error) { return g.Commit(ctx, "r", "m", &GitCommitParams{GitParams: given}) }, answers: map[string]string{"rev-parse": "of a hook\nabc\n"}, want: []string{"git -C r commit --quiet --message=m && git -C r rev-parse HEAD"}, result: "abc"},
		"commit as":  {call: func(g *Git) (any, error) { return g.Commit(ctx, "r", "m", &GitCommitParams{given, "n", "e", true}) }, answers: map[string]string{"rev-parse": "abc\n"}, want: []string{"git -C r -c user.name=n -c user.email=e commit --quiet --message=m --allow-empty && git -C r rev-parse HEAD"}, result: "abc"},
		"branches":   {call: func(g *Git) (any, error) { return g.Branches(ctx, "r", &given) }, answers: map[string]string{"": " a\n*b c\n d\n"}, want: []string{"git -C r for-each-ref --format=%(HEAD)%(refname:lstrip=2) refs/heads"}, result: &GitBranches{[]string{"a", "b c", "d"}, "b c"}},
		"none":       {call: func(g *Git) (any, error) { return g.Branches(ctx, "r", &given) }, want: []string{"git -C r for-each-ref --format=%(HEAD)%(refname:lstrip=2) refs/heads"}, result: &GitBranches{}},
		"new branch": {call: func(g *Git) (any, error) { return does(g.CreateBranch(ctx, "r", "b", &given)) }, want: []string{"git -C r checkout --quiet -b b --"}},
		"checkout":   {call: func(g *Git) (any, error) { return does(g.Checkout(ctx, "r", "b", &given)) }, want: []string{"git -C r checkout --quiet b --"}},
		"delete": {call: func(g *Git) (any, error) {
			return does(g.DeleteBranch(ctx, "r", "b", &GitDeleteBranchParams{GitParams: given}))
		}, want: []string{"git -C r branch --quiet -d -- b"}},
		"delete it": {call: func(g *Git) (any, error) {
			return does(g.DeleteBranch(ctx, "r", "b", &GitDeleteBranchParams{given, true}))
		}, want: []string{"git -C r branch --quiet -D -- b"}},
		"status": {call: func(g *Git) (any, error) { return g.Status(ctx, "r", &given) }, answers: map[string]string{"": "# branch.head b\x00? f\x00"}, want: []string{"git -C r status --porcelain=2 --branch -z"}, result: &GitStatus{Branch: "b", Files: []GitFile{{Path: "f", Index: '?', Worktree: '?'}}}},
		"reset":  {call: func(g *Git) (any, error) { return does(g.Reset(ctx, "r", &GitResetParams{GitParams: given})) }, want: []string{"git -C r reset --quiet --"}},
		"reset hard": {call: func(g *Git) (any, error) {
			return does(g.Reset(ctx, "r", &GitResetParams{given, "t", GitResetHard, nil}))
		}, want: []string{"git -C r reset --quiet --hard t --"}},
		"reset some": {call: func(g *Git) (any, error) {
			return does(g.Reset(ctx, "r", &GitResetParams{given, "t", "", []string{"a", "b"}}))
		}, want: []string{"git -C r reset --quiet t -- a b"}},
		"restore": {call: func(g *Git) (any, error) {
			return does(g.Restore(ctx, "r", []string{"a"}, &GitRestoreParams{GitParams: given}))
		}, want: []string{"git -C r restore --quiet -- a"}},
		"restore to": {call: func(g *Git) (any, error) {
			return does(g.Restore(ctx, "r", []string{"a", "b"}, &GitRestoreParams{given, true, true, "-s"}))
		}, want: []string{"git -C r restore --quiet --staged --worktree --source=-s -- a b"}},
	}
}

// gitExchanges returns the calls for configurations and remotes.
func gitExchanges(ctx context.Context, given GitParams) map[string]gitCase {
	secret := &GitCredentials{Username: "u", Password: "p"}
	with := func(host, args string) string {
		return strings.ReplaceAll(credentialShell, "'", "") + "git -c credential.helper= -c credential." + host + ".helper= -c credential." + host + ".helper=" +
			credentialHelper + " " + args
	}
	return map[string]gitCase{
		"clone with credentials": {
			call: func(g *Git) (any, error) {
				return does(g.Clone(ctx, "https://h.test/x", &GitCloneParams{GitParams: given, Credentials: secret}))
			},
			want: []string{"-" + with("https://h.test", "clone --quiet -- https://h.test/x")},
		},
		"set": {call: func(g *Git) (any, error) { return does(g.SetConfig(ctx, "k", "v", &GitConfigParams{GitParams: given})) }, want: []string{"git config --global -- k v"}},
		"set of a": {call: func(g *Git) (any, error) {
			return does(g.SetConfig(ctx, "k", "v", &GitConfigParams{given, "r", false}))
		}, want: []string{"git -C r config --local -- k v"}},
		"user": {call: func(g *Git) (any, error) {
			return does(g.ConfigureUser(ctx, "n", "e", &GitConfigParams{given, "", true}))
		}, want: []string{"git config --system -- user.name n && git config --system -- user.email e"}},
		"config":    {call: func(g *Git) (any, error) { return g.Config(ctx, "k", &GitConfigParams{GitParams: given}) }, answers: map[string]string{"": "v\n\x00"}, want: []string{"git config --global --null --get -- k"}, result: "v\n"},
		"no config": {call: func(g *Git) (any, error) { return g.Config(ctx, "k", &GitConfigParams{GitParams: given}) }, answers: map[string]string{"": "!"}, want: []string{"git config --global --null --get -- k"}, result: ""},
		"push":      {call: func(g *Git) (any, error) { return does(g.Push(ctx, "r", &GitPushParams{GitParams: given})) }, want: []string{"git -C r push --quiet --"}},
		"push to":   {call: func(g *Git) (any, error) { return does(g.Push(ctx, "r", &GitPushParams{given, "o", "", false, nil})) }, want: []string{"git -C r push --quiet --set-upstream -- o HEAD"}},
		"push a":    {call: func(g *Git) (any, error) { return does(g.Push(ctx, "r", &GitPushParams{given, "o", "b", true, nil})) }, want: []string{"git -C r push --quiet -- o b"}},
		"push with credentials": {
			call: func(g *Git) (any, error) {
				return does(g.Push(ctx, "r", &GitPushParams{given, "o", "b", true, secret}))
			},
			answers: map[string]string{"--get-url": "http://h.test:1/x\n"},
			want:    []string{"git -C r ls-remote --get-url o", "-" + with("http://h.test:1", "-C r push --quiet -- o b")},
		},
		"pull":   {call: func(g *Git) (any, error) { return does(g.Pull(ctx, "r", &GitPullParams{GitParams: given})) }, want: []string{"git -C r pull --quiet --"}},
		"pull a": {call: func(g *Git) (any, error) { return does(g.Pull(ctx, "r", &GitPullParams{given, "o", "b", nil})) }, want: []string{"git -C r pull --quiet -- o b"}},
		"pull with credentials": {
			call:    func(g *Git) (any, error) { return does(g.Pull(ctx, "r", &GitPullParams{given, "", "", secret})) },
			answers: map[string]string{"--get-url": "https://h.test/x\n"},
			want:    []string{"git -C r ls-remote --get-url", "-" + with("https://h.test", "-C r pull --quiet --")},
		},
		"remote": {call: func(g *Git) (any, error) {
			return does(g.AddRemote(ctx, "r", "o", "a", &GitAddRemoteParams{GitParams: given}))
		}, want: []string{"git -C r remote add -- o a"}},
		"new remote": {call: func(g *Git) (any, error) {
			return does(g.AddRemote(ctx, "r", "o", "a", &GitAddRemoteParams{given, true, true, nil}))
		}, want: []string{"if git -C r remote get-url -- o >/dev/null 2>&1; then git -C r remote set-url -- o a; else git -C r remote add -- o a; fi", "git -C r fetch --quiet -- o"}},
		"URL":    {call: func(g *Git) (any, error) { return g.RemoteURL(ctx, "r", "o", &given) }, answers: map[string]string{"": "a\n"}, want: []string{"git -C r remote get-url -- o"}, result: "a"},
		"no URL": {call: func(g *Git) (any, error) { return g.RemoteURL(ctx, "r", "o", &given) }, answers: map[string]string{"": "!error: No such remote 'o'"}, want: []string{"git -C r remote get-url -- o"}, result: ""},
	}
}

// TestGitCalls checks the command line, the user and the input of each call, with each of its parameters, and its result.
func TestGitCalls(t *testing.T) {
	t.Parallel()
	given := GitParams{User: "me", Envs: map[string]string{"A": "b"}}
	const secretInput = "u\x00p\x00"
	cases := gitCalls(t.Context(), given)
	maps.Copy(cases, gitExchanges(t.Context(), given))
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGitService(t, tt.answers)
			got, err := tt.call(g.sandbox().Git)
			if diff := cmp.Diff(tt.result, got); diff != "" || err != nil {
				t.Errorf("got error %v, result (-want +got):\n%s", err, diff)
			}
			var want []gitCall
			for _, line := range tt.want {
				if line, credentials := strings.CutPrefix(line, "-"); credentials {
					want = append(want, gitCall{"me", line, secretInput})
					continue
				}
				want = append(want, gitCall{"me", line, ""})
			}
			if diff := cmp.Diff(want, g.calls, cmp.AllowUnexported(gitCall{})); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
			envs := map[string]string{"LC_ALL": "C.UTF-8", "LANGUAGE": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_MERGE_AUTOEDIT": "no", "A": "b"}
			if !maps.Equal(g.envs, envs) {
				t.Errorf("got the variables %v, want %v", g.envs, envs)
			}
		})
	}
}

// TestGitFails checks that the failure of git is the error of each call, with the name of the operation.
func TestGitFails(t *testing.T) {
	t.Parallel()
	g := newGitService(t, map[string]string{"": "!fatal: bad"}).sandbox().Git
	fetched := newGitService(t, map[string]string{"fetch": "!fatal: bad", "get-url": "!fatal: bad"}).sandbox().Git
	quiet := newGitService(t, map[string]string{"commit": "\n", "status": "x"}).sandbox().Git
	secret := &GitCredentials{Username: "u", Password: "p"}
	ctx := t.Context()
	errOf := func(_ any, err error) error { return err }
	for _, tt := range []struct {
		op, want string
		err      error
	}{
		{"init", "fatal: bad", g.Init(ctx, "r", nil)},
		{"clone", "fatal: bad", g.Clone(ctx, "https://h.test/x", nil)},
		{"add", "fatal: bad", g.Add(ctx, "r", nil)},
		{"commit", "fatal: bad", errOf(g.Commit(ctx, "r", "m", nil))},
		{"branches", "fatal: bad", errOf(g.Branches(ctx, "r", nil))},
		{"create branch", "fatal: bad", g.CreateBranch(ctx, "r", "b", nil)},
		{"checkout", "fatal: bad", g.Checkout(ctx, "r", "b", nil)},
		{"delete branch", "fatal: bad", g.DeleteBranch(ctx, "r", "b", nil)},
		{"status", "fatal: bad", errOf(g.Status(ctx, "r", nil))},
		{"reset", "fatal: bad", g.Reset(ctx, "r", nil)},
		{"restore", "fatal: bad", g.Restore(ctx, "r", []string{"a"}, nil)},
		{"set config", "fatal: bad", g.SetConfig(ctx, "k", "v", nil)},
		{"configure user", "fatal: bad", g.ConfigureUser(ctx, "n", "e", nil)},
		{"config", "fatal: bad", errOf(g.Config(ctx, "k", nil))},
		{"config", "choose one", errOf(g.Config(ctx, "k", &GitConfigParams{Repo: "r", System: true}))},
		{"push", "fatal: bad", g.Push(ctx, "r", nil)},
		{"pull", "fatal: bad", g.Pull(ctx, "r", nil)},
		{"pull", "fatal: bad", g.Pull(ctx, "r", &GitPullParams{Credentials: secret})}, // at the question for the address
		{"push", "a Branch needs a Remote", g.Push(ctx, "r", &GitPushParams{Branch: "b"})},
		{"push", "-b", g.Push(ctx, "r", &GitPushParams{Remote: "o", Branch: "-b"})},
		{"clone", "-p", g.Clone(ctx, "a", &GitCloneParams{Path: "-p"})},
		{"add remote", "fatal: bad", g.AddRemote(ctx, "r", "o", "a", &GitAddRemoteParams{Fetch: true})},
		{"add remote", "-o", g.AddRemote(ctx, "r", "-o", "a", nil)},
		{"fetch", "fatal: bad", fetched.AddRemote(ctx, "r", "o", "a", &GitAddRemoteParams{Fetch: true})},
		{"fetch", "fatal: bad", fetched.AddRemote(ctx, "r", "o", "a", &GitAddRemoteParams{Fetch: true, Credentials: secret})},
		{"remote URL", "fatal: bad", errOf(g.RemoteURL(ctx, "r", "o", nil))},
		{"authenticate", "fatal: bad", g.DangerouslyAuthenticate(ctx, GitCredentials{Username: "u", Password: "p"}, nil)},
		{"commit", "git named no commit", errOf(quiet.Commit(ctx, "r", "m", nil))},
		{"status", "not understood", errOf(quiet.Status(ctx, "r", nil))},
	} {
		if tt.err == nil || !strings.HasPrefix(tt.err.Error(), "sandbox: git "+tt.op+" in "+testID+": ") || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("git %s: got error %v, want one with %q", tt.op, tt.err, tt.want)
		}
		if _, ran := errors.AsType[*ExitError](tt.err); ran != (tt.want == "fatal: bad") {
			t.Errorf("git %s: got error %#v", tt.op, tt.err)
		}
	}
}

// TestGitStoresCredentials checks the credentials that git's own store receives, and the defaults.
func TestGitStoresCredentials(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"": "protocol=https\nhost=github.com\nusername=u\npassword=p\n\n", "http://h.test:1/x": "protocol=http\nhost=h.test:1\nusername=u\npassword=p\n\n",
	} {
		g := newGitService(t, nil)
		if err := g.sandbox().Git.DangerouslyAuthenticate(t.Context(), GitCredentials{"u", "p"}, &GitAuthenticateParams{GitParams{User: "me"}, address}); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]gitCall{{"me", strings.ReplaceAll(storeCredentials, "'", ""), want}}, g.calls, cmp.AllowUnexported(gitCall{})); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", address, diff)
		}
	}
}

// TestGitTexts checks the quotes of words for the shell, the bound of git's output, and the errors of git that say nothing.
func TestGitTexts(t *testing.T) {
	t.Parallel()
	if got, want := gitLine([]string{"a b", "it's", "", "$x"}), `git 'a b' 'it'\''s' '' '$x'`; got != want {
		t.Errorf("got the line %s, want %s", got, want)
	}
	o := &gitOutput{}
	for _, tt := range []struct {
		size int
		fits bool
	}{{maxGitOutput - 1, true}, {2, false}, {1, true}, {1, false}, {0, true}} {
		if n, err := o.Write(make([]byte, tt.size)); (err == nil) != tt.fits || (n == tt.size) != tt.fits {
			t.Errorf("%d bytes after %d: got %d and error %v", tt.size, o.Len(), n, err)
		}
	}
	result := &CommandResult{ExitCode: 1, Stdout: "one\nCONFLICT in a\n", Stderr: " \n"}
	if err := explained(result, &ExitError{result}); !strings.HasSuffix(err.Error(), ": CONFLICT in a") {
		t.Errorf("got %v, want the last line of the output", err)
	}
	result.Stderr = "warning"
	if err := explained(result, &ExitError{result}); strings.Contains(err.Error(), "CONFLICT") {
		t.Errorf("got %v, want only the text of stderr", err)
	}
	if !errors.Is(&NoVolumeError{"v"}, api.ErrNotFound) || errors.Is(&NoVolumeError{"v"}, api.ErrConflict) {
		t.Error("a volume that does not exist is of the wrong kind")
	}
}
