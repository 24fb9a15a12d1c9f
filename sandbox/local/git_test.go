//go:build linux

package local_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// gitServer serves the repositories below ~/served over HTTP to clients that know the
// password. It has only the hash of the password. While it answers, it looks for the
// password on every command line, in every environment and in every file of
// the sandbox's user, and writes down where it found it.
const gitServer = `
import base64, glob, hashlib, http.server, os, subprocess
HOME = os.path.expanduser("~")
def look(secret):
    seen = []
    for kind in ("cmdline", "environ"):
        for path in glob.glob("/proc/[0-9]*/" + kind):
            try:
                with open(path, "rb") as f:
                    if secret in f.read(): seen.append(path)
            except OSError: pass
    for top in (HOME, "/tmp", "/dev/shm", "/var/tmp"):
        for root, _, names in os.walk(top):
            for name in names:
                path = os.path.join(root, name)
                if not os.path.isfile(path): continue
                try:
                    with open(path, "rb") as f:
                        if secret in f.read(): seen.append(path)
                except OSError: pass
    with open(HOME + "/looked", "a") as f: f.write("looked " + " ".join(seen) + "\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def handle_git(self):
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        user, _, secret = base64.b64decode(token).partition(b":")
        if secret: look(secret)
        if (user, hashlib.sha256(secret).hexdigest()) != (b"me", HASH):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        env = dict(os.environ, GIT_PROJECT_ROOT=HOME + "/served", GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path, QUERY_STRING=query, REMOTE_USER="me",
            REQUEST_METHOD=self.command, CONTENT_TYPE=self.headers.get("Content-Type", ""), CONTENT_LENGTH=str(len(body)), HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""))
        answer = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE).stdout
        head, _, rest = answer.partition(b"\r\n\r\n")
        fields = dict(l.split(b": ", 1) for l in head.split(b"\r\n"))
        self.send_response(int(fields.pop(b"Status", b"200").split()[0]))
        for name, value in fields.items(): self.send_header(name.decode(), value.decode())
        self.end_headers()
        self.wfile.write(rest)
    do_GET = do_POST = handle_git
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 3000), Handler)
print("ready", flush=True)
server.serve_forever()
`

const (
	gitSecret = "tok-3n with 'quotes' $and \\more"
	gitRemote = "http://127.0.0.1:3000/project.git"
)

func sum(secret string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(secret))) }

func gitSandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	if _, err := sb.Commands.Run(t.Context(), "git --version", nil); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("this machine has no git: %v", err)
	}
	sandboxtest.Run(t, sb, `git config --global user.name Tester; git config --global user.email tester@example.com; git config --global init.defaultBranch main
		git init -q --bare served/project.git; git -C served/project.git config http.receivepack true
		git init -q seed; cd seed; echo one >a; git add a; git commit -qm one; git push -q ../served/project.git main`)
	return sb
}

// stderrHas reports whether git failed with these words.
func stderrHas(err error, words string) bool {
	exit, ok := errors.AsType[*sandbox.ExitError](err)
	return ok && strings.Contains(exit.Result.Stderr, words)
}

func TestGit(t *testing.T) {
	t.Parallel()
	sb := gitSandbox(t)
	git := sb.Git
	must.Do(t, git.Clone(t.Context(), "served/project.git", &sandbox.GitCloneParams{Path: "it's here"}))
	const repo = "it's here"
	status, err := git.Status(t.Context(), repo, nil)
	must.Do(t, err)
	if diff := cmp.Diff(&sandbox.GitStatus{Branch: "main", Upstream: "origin/main"}, status); diff != "" {
		t.Errorf("fresh (-want +got):\n%s", diff)
	}
	must.Do(t, git.CreateBranch(t.Context(), repo, "topic", nil))
	sandboxtest.Run(t, sb, `cd "it's here"; git mv a b; echo two >"c d"; printf x >$'e\nf'`)
	must.Do(t, git.Add(t.Context(), repo, &sandbox.GitAddParams{Files: []string{"c d"}}))
	status, err = git.Status(t.Context(), repo, nil)
	must.Do(t, err)
	want := []sandbox.GitFile{{Path: "b", RenamedFrom: "a", Index: 'R', Worktree: ' '}, {Path: "c d", Index: 'A', Worktree: ' '}, {Path: "e\nf", Index: '?', Worktree: '?'}}
	if diff := cmp.Diff(want, status.Files); diff != "" || status.Branch != "topic" || status.Upstream != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	must.Do(t, git.Add(t.Context(), repo, nil))
	hash, err := git.Commit(t.Context(), repo, "it's \"two\"\n\n$HOME", &sandbox.GitCommitParams{AuthorName: "A B", AuthorEmail: "a@example.com"})
	must.Do(t, err)
	if got := sandboxtest.Run(t, sb, `git -C "it's here" log -1 '--format=%H %an %ae %B'`); got != hash+" A B a@example.com it's \"two\"\n\n$HOME" {
		t.Errorf("commit %q", got)
	}
	if _, err := git.Commit(t.Context(), repo, "nothing", nil); err == nil || !strings.Contains(err.Error(), "nothing to commit") {
		t.Errorf("empty commit: %v", err)
	}
	if err := git.Push(t.Context(), repo, nil); !errors.Is(err, sandbox.ErrGitUpstream) {
		t.Errorf("push without upstream: %v", err)
	}
	if err := git.Pull(t.Context(), repo, nil); !errors.Is(err, sandbox.ErrGitUpstream) {
		t.Errorf("pull without upstream: %v", err)
	}
	must.Do(t, git.Push(t.Context(), repo, &sandbox.GitPushParams{Remote: "origin"}))
	branches, err := git.Branches(t.Context(), repo, nil)
	must.Do(t, err)
	if diff := cmp.Diff(&sandbox.GitBranches{All: []string{"main", "topic"}, Current: "topic"}, branches); diff != "" {
		t.Errorf("branches (-want +got):\n%s", diff)
	}
	_, err = git.Commit(t.Context(), repo, "three", &sandbox.GitCommitParams{AllowEmpty: true})
	must.Do(t, err)
	if status, err := git.Status(t.Context(), repo, nil); err != nil || status.Upstream != "origin/topic" || status.Ahead != 1 || !status.Clean() {
		t.Errorf("ahead: %+v, %v", status, err)
	}
	must.Do(t, git.Checkout(t.Context(), repo, "main", nil))
	if err := git.DeleteBranch(t.Context(), repo, "topic", nil); !stderrHas(err, "not fully merged") {
		t.Errorf("delete of unmerged: %v", err)
	}
	must.Do(t, git.DeleteBranch(t.Context(), repo, "topic", &sandbox.GitDeleteBranchParams{Force: true}))
	must.Do(t, git.Pull(t.Context(), repo, &sandbox.GitPullParams{Remote: "origin", Branch: "topic"}))
	if status, err := git.Status(t.Context(), repo, nil); err != nil || status.Ahead != 1 {
		t.Errorf("pulled: %+v, %v", status, err)
	}
	must.Do(t, git.Clone(t.Context(), "file://"+sandboxtest.Run(t, sb, "echo ~")+"/served/project.git", &sandbox.GitCloneParams{Path: "shallow", Branch: "topic", Depth: 1}))
	if got := sandboxtest.Run(t, sb, "git -C shallow rev-list --count HEAD; git -C shallow rev-parse HEAD; git -C shallow branch -r"); got != "1\n"+hash+"\n  origin/topic" {
		t.Errorf("shallow clone: %q", got)
	}
	if err := git.Clone(t.Context(), "served/none.git", nil); err == nil || errors.Is(err, sandbox.ErrGitAuth) {
		t.Errorf("clone of nothing: %v", err)
	}
	if _, ok := errors.AsType[*sandbox.ExitError](git.Checkout(t.Context(), "none", "main", nil)); !ok {
		t.Error("no exit error")
	}
}

// gitRepo is a directory whose name needs quoting.
const gitRepo = "it's new"

// newGitRepo returns a sandbox with an empty repository gitRepo.
func newGitRepo(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	sb := gitSandbox(t)
	must.Do(t, sb.Git.Init(t.Context(), gitRepo, &sandbox.GitInitParams{InitialBranch: "trunk"}))
	return sb
}

func TestGitInit(t *testing.T) {
	t.Parallel()
	sb := newGitRepo(t)
	git := sb.Git
	must.Do(t, git.Init(t.Context(), gitRepo, nil)) // once more changes nothing
	must.Do(t, git.Init(t.Context(), "bare.git", &sandbox.GitInitParams{Bare: true}))
	if got := sandboxtest.Run(t, sb, `git -C "it's new" symbolic-ref HEAD; git -C bare.git rev-parse --is-bare-repository`); got != "refs/heads/trunk\ntrue" {
		t.Errorf("init: %q", got)
	}
}

func TestGitConfig(t *testing.T) {
	t.Parallel()
	git := newGitRepo(t).Git
	own := &sandbox.GitConfigParams{Repo: gitRepo}
	must.Do(t, git.ConfigureUser(t.Context(), "It's \"me\"", "me@example.com", own))
	must.Do(t, git.SetConfig(t.Context(), "test.text", "-two\nlines\n", own))
	for _, test := range []struct {
		key, want string
		of        *sandbox.GitConfigParams
	}{
		{"user.name", "It's \"me\"", own}, {"user.email", "me@example.com", own}, {"test.text", "-two\nlines\n", own},
		{"user.name", "Tester", nil}, {"test.text", "", nil}, {"test.none", "", own}, {"test.none", "", &sandbox.GitConfigParams{System: true}},
	} {
		if got, err := git.Config(t.Context(), test.key, test.of); err != nil || got != test.want {
			t.Errorf("%s of %+v: %q, %v, want %q", test.key, test.of, got, err, test.want)
		}
	}
	if _, err := git.Config(t.Context(), "nothing", nil); !stderrHas(err, "section") {
		t.Errorf("a key without a section: %v", err)
	}
	if err := git.SetConfig(t.Context(), "a.b", "c", &sandbox.GitConfigParams{Repo: "none"}); !stderrHas(err, "none") {
		t.Errorf("the configuration of no repository: %v", err)
	}
}

func TestGitRemotes(t *testing.T) {
	t.Parallel()
	sb := newGitRepo(t)
	git := sb.Git
	served := sandboxtest.Run(t, sb, "echo ~") + "/served/project.git"
	must.Do(t, git.AddRemote(t.Context(), gitRepo, "origin", "https://example.com/wrong.git", nil))
	if err := git.AddRemote(t.Context(), gitRepo, "origin", served, nil); !stderrHas(err, "already exists") {
		t.Errorf("a second remote of one name: %v", err)
	}
	must.Do(t, git.AddRemote(t.Context(), gitRepo, "origin", served, &sandbox.GitAddRemoteParams{Overwrite: true, Fetch: true}))
	must.Do(t, git.AddRemote(t.Context(), gitRepo, "other", "https://me@example.com/x.git", &sandbox.GitAddRemoteParams{Overwrite: true}))
	for name, want := range map[string]string{"origin": served, "other": "https://me@example.com/x.git", "none": ""} {
		if got, err := git.RemoteURL(t.Context(), gitRepo, name, nil); err != nil || got != want {
			t.Errorf("remote %s: %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := git.RemoteURL(t.Context(), "none", "origin", nil); !stderrHas(err, "none") {
		t.Errorf("a remote of no repository: %v", err)
	}
	if got := sandboxtest.Run(t, sb, `git -C "it's new" branch -r`); got != "  origin/main" {
		t.Errorf("fetched %q", got)
	}
}

// TestGitTakesChangesBack checks what is left of changes after each way to reset or restore them.
func TestGitTakesChangesBack(t *testing.T) {
	t.Parallel()
	sb := newGitRepo(t)
	git := sb.Git
	served := sandboxtest.Run(t, sb, "echo ~") + "/served/project.git"
	must.Do(t, git.AddRemote(t.Context(), gitRepo, "origin", served, &sandbox.GitAddRemoteParams{Fetch: true}))
	must.Do(t, git.Checkout(t.Context(), gitRepo, "main", nil))
	changed := func(what string, want ...string) {
		t.Helper()
		status, err := git.Status(t.Context(), gitRepo, nil)
		must.Do(t, err)
		var got []string
		for _, f := range status.Files {
			got = append(got, fmt.Sprintf("%c%c %s", f.Index, f.Worktree, f.Path))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	edit := func() {
		t.Helper()
		sandboxtest.Run(t, sb, `cd "it's new"; echo two >a; echo new >"b c"`)
		must.Do(t, git.Add(t.Context(), gitRepo, nil))
	}
	edit()
	must.Do(t, git.Reset(t.Context(), gitRepo, &sandbox.GitResetParams{Paths: []string{"b c"}}))
	changed("one path reset", "M  a", "?? b c")
	must.Do(t, git.Reset(t.Context(), gitRepo, nil))
	changed("the index reset", " M a", "?? b c")
	must.Do(t, git.Restore(t.Context(), gitRepo, []string{"a"}, nil))
	changed("the file restored", "?? b c")
	edit()
	must.Do(t, git.Restore(t.Context(), gitRepo, []string{"."}, &sandbox.GitRestoreParams{Staged: true}))
	changed("the index restored", " M a", "?? b c")
	edit()
	must.Do(t, git.Restore(t.Context(), gitRepo, []string{"."}, &sandbox.GitRestoreParams{Staged: true, Worktree: true, Source: "HEAD"}))
	changed("both restored")
	edit()
	_, err := git.Commit(t.Context(), gitRepo, "two", nil)
	must.Do(t, err)
	must.Do(t, git.Reset(t.Context(), gitRepo, &sandbox.GitResetParams{Target: "HEAD~1", Mode: sandbox.GitResetSoft}))
	changed("soft reset", "M  a", "A  b c")
	must.Do(t, git.Reset(t.Context(), gitRepo, &sandbox.GitResetParams{Target: "origin/main", Mode: sandbox.GitResetHard}))
	changed("hard reset")
	if err := git.Restore(t.Context(), gitRepo, []string{"none"}, nil); !stderrHas(err, "did not match") {
		t.Errorf("restore of nothing: %v", err)
	}
}

// TestGitAuthenticate checks that stored credentials serve later calls, that they are
// on no command line and in no environment on their way, and in one file afterwards.
func TestGitAuthenticate(t *testing.T) {
	t.Parallel()
	sb := gitSandbox(t)
	git := sb.Git
	listen(t, sb, "server.py", strings.Replace(gitServer, "HASH", `"`+sum(gitSecret)+`"`, 1))
	// A git that says on which command lines and in which environments the password
	// was when it was called; the words are read from a file, not to find itself.
	sandboxtest.Run(t, sb, `mkdir bin; cat >bin/git <<'EOF'
#!/bin/bash
printf "tok-3n with" >/dev/shm/words
grep -lsFf /dev/shm/words /proc/[0-9]*/cmdline /proc/[0-9]*/environ >>~/seen
echo "called: $1" >>~/seen
rm /dev/shm/words
exec "$(type -aP git | tail -n 1)" "$@"
EOF
chmod +x bin/git; git config --global credential.helper 'cache --timeout=1'`)
	seen := sandbox.GitParams{Envs: map[string]string{"PATH": sandboxtest.Run(t, sb, "echo ~/bin:$PATH")}}
	credentials := sandbox.GitCredentials{Username: "me", Password: gitSecret}
	for range 2 { // the helper is added once
		must.Do(t, git.DangerouslyAuthenticate(t.Context(), credentials, &sandbox.GitAuthenticateParams{GitParams: seen, Address: gitRemote}))
	}
	if got, want := sandboxtest.Run(t, sb, "grep -v config seen"), "called: credential-store\ncalled: credential-store"; got != want {
		t.Errorf("while git ran the password was in %q, want %q", got, want)
	}
	if got := sandboxtest.Run(t, sb, "git config --global --get-all credential.helper; stat -c %a .git-credentials; wc -l <.git-credentials"); got != "cache --timeout=1\nstore\n600\n1" {
		t.Errorf("helpers and file: %q", got)
	}
	if err := git.Clone(t.Context(), gitRemote, nil); err != nil {
		t.Errorf("clone with stored credentials: %v", err)
	}
	if err := git.AddRemote(t.Context(), "project", "again", gitRemote, &sandbox.GitAddRemoteParams{Fetch: true}); err != nil {
		t.Errorf("fetch with stored credentials: %v", err)
	}
	sandboxtest.Run(t, sb, "rm .git-credentials; git config --global --unset-all credential.helper")
	if err := git.AddRemote(t.Context(), "project", "third", gitRemote, &sandbox.GitAddRemoteParams{Fetch: true}); !errors.Is(err, sandbox.ErrGitAuth) {
		t.Errorf("fetch without credentials: %v", err)
	}
	if err := git.AddRemote(t.Context(), "project", "third", gitRemote, &sandbox.GitAddRemoteParams{Overwrite: true, Fetch: true, Credentials: &credentials}); err != nil {
		t.Errorf("fetch with credentials: %v", err)
	}
	sandboxtest.Run(t, sb, "mkdir .git-credentials.lock .git-credentials")
	if err := git.DangerouslyAuthenticate(t.Context(), credentials, &sandbox.GitAuthenticateParams{Address: gitRemote}); err == nil || strings.Contains(err.Error(), "tok-3n") {
		t.Errorf("credentials that cannot be stored: %v", err)
	}
}

// TestGitCredentials checks that a password reaches the remote and nothing else: no
// command line, environment or file, whether the call succeeds or not, although git is
// told to store passwords.
func TestGitCredentials(t *testing.T) {
	t.Parallel()
	sb := gitSandbox(t)
	git := sb.Git
	sandboxtest.Run(t, sb, `git config --global credential.helper store; git config --global credential.http://127.0.0.1:3000.helper store`)
	listen(t, sb, "server.py", strings.Replace(gitServer, "HASH", `"`+sum(gitSecret)+`"`, 1))
	right := &sandbox.GitCredentials{Username: "me", Password: gitSecret}
	wrong := &sandbox.GitCredentials{Username: "me", Password: "wr0ng-secret"}

	if err := git.Clone(t.Context(), gitRemote, nil); !errors.Is(err, sandbox.ErrGitAuth) {
		t.Errorf("clone without credentials: %v", err)
	}
	if err := git.Clone(t.Context(), gitRemote, &sandbox.GitCloneParams{Credentials: wrong}); !errors.Is(err, sandbox.ErrGitAuth) || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("clone with wrong credentials: %v", err)
	}
	must.Do(t, git.Clone(t.Context(), gitRemote, &sandbox.GitCloneParams{Credentials: right}))
	if _, err := git.Commit(t.Context(), "project", "two", &sandbox.GitCommitParams{AllowEmpty: true}); err != nil {
		t.Fatal(err)
	}
	if err := git.Push(t.Context(), "project", &sandbox.GitPushParams{Credentials: wrong}); !errors.Is(err, sandbox.ErrGitAuth) {
		t.Errorf("push with wrong credentials: %v", err)
	}
	for range 2 { // a password given for one call is not kept
		must.Do(t, git.Push(t.Context(), "project", &sandbox.GitPushParams{Credentials: right}))
		if err := git.Push(t.Context(), "project", nil); !errors.Is(err, sandbox.ErrGitAuth) {
			t.Errorf("push without credentials: %v", err)
		}
	}
	must.Do(t, git.Pull(t.Context(), "project", &sandbox.GitPullParams{Remote: "origin", Branch: "main", Credentials: right}))
	if got, want := sandboxtest.Run(t, sb, "git -C served/project.git rev-parse main; git -C project remote get-url origin"), sandboxtest.Run(t, sb, "git -C project rev-parse main")+"\n"+gitRemote; got != want {
		t.Errorf("pushed %q, want %q", got, want)
	}

	looked := sandboxtest.Run(t, sb, "cat looked")
	if strings.Count(looked, "looked") < 5 {
		t.Errorf("the server looked too seldom: %q", looked)
	}
	for found := range strings.Lines(looked) {
		if strings.TrimSpace(found) != "looked" {
			t.Errorf("while git ran the password was in %q", found)
		}
	}
	// The words are sent as input, so that the search does not find itself.
	result, err := sb.Commands.Run(t.Context(), `cat >/dev/shm/words; grep -rlFf /dev/shm/words --exclude=words ~ /tmp /var/tmp /dev/shm 2>/dev/null; rm /dev/shm/words; test ! -e ~/.git-credentials`,
		&sandbox.CommandParams{Stdin: strings.NewReader(gitSecret + "\nwr0ng-secret\n")})
	if err != nil || result.Stdout != "" {
		t.Errorf("left in %q, %v", result.Stdout, err)
	}
}
