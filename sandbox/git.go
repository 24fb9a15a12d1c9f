package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
)

var (
	// ErrGitAuth: the remote wants credentials, or other ones.
	ErrGitAuth = errors.New("git: the remote refused the credentials, or wants some: set Credentials")
	// ErrGitUpstream: the branch follows no branch of a remote.
	ErrGitUpstream = errors.New("git: the branch has no upstream: name Remote and Branch")
)

// maxGitOutput bounds what is read of git's output.
const maxGitOutput = 32 << 20

// Git runs git in a sandbox, which must have it. These are small helpers: for
// all else there is [Commands.Run]. Paths of repositories that are relative
// start in the user's default directory. A git that fails is an [*ExitError],
// and [ErrGitAuth] or [ErrGitUpstream] where it says so. It is safe for
// concurrent use, as far as git is in one repository.
type Git struct{ sb *Sandbox }

// GitParams say how to run git.
type GitParams struct {
	// User is who runs it; empty means the default user.
	User string
	// Envs are added to its environment.
	Envs map[string]string
}

// GitCloneParams say what to clone, and where to.
type GitCloneParams struct {
	GitParams
	// Path is the directory to make; empty means the repository's name.
	Path string
	// Branch is the only one to clone; empty means all, with the default one
	// checked out.
	Branch string
	// Depth is how many commits of history to have; 0 means all.
	Depth int
	// Credentials are for this call alone.
	Credentials *GitCredentials
}

// Clone clones a repository.
func (g *Git) Clone(ctx context.Context, address string, p *GitCloneParams) error {
	p = given(p)
	if err := plainWords("a path", p.Path, "a branch", p.Branch); err != nil {
		return g.failed("clone", err)
	}
	args := []string{"clone", "--quiet"}
	if p.Branch != "" {
		args = append(args, "--branch", p.Branch, "--single-branch")
	}
	if p.Depth != 0 {
		args = append(args, fmt.Sprintf("--depth=%d", p.Depth))
	}
	args = append(args, "--", address)
	if p.Path != "" {
		args = append(args, p.Path)
	}
	if u, err := url.Parse(address); err == nil && u.User != nil {
		if _, secret := u.User.Password(); secret {
			return g.failed("clone", errors.New("the address has a password, which would stay in the repository: use Credentials"))
		}
	}
	if p.Credentials != nil {
		return g.withCredentials(ctx, "clone", p.Credentials, address, args, &p.GitParams)
	}
	_, err := g.run(ctx, "clone", gitLine(args), &p.GitParams)
	return err
}

// GitAddParams say what to add.
type GitAddParams struct {
	GitParams
	// Files are relative to the repository; none means all that changed.
	Files []string
}

// Add puts changes into the index.
func (g *Git) Add(ctx context.Context, repo string, p *GitAddParams) error {
	p = given(p)
	args := []string{"-C", repo, "add", "--all"}
	if len(p.Files) > 0 {
		args = append(append(args, "--"), p.Files...)
	}
	_, err := g.run(ctx, "add", gitLine(args), &p.GitParams)
	return err
}

// GitCommitParams say who commits, and what.
type GitCommitParams struct {
	GitParams
	// AuthorName and AuthorEmail are author and committer; empty means what git
	// is configured with.
	AuthorName, AuthorEmail string
	// AllowEmpty commits also when nothing changed.
	AllowEmpty bool
}

// Commit commits the index, and gives the commit's hash.
func (g *Git) Commit(ctx context.Context, repo, message string, p *GitCommitParams) (hash string, err error) {
	p = given(p)
	args := []string{"-C", repo}
	if p.AuthorName != "" {
		args = append(args, "-c", "user.name="+p.AuthorName)
	}
	if p.AuthorEmail != "" {
		args = append(args, "-c", "user.email="+p.AuthorEmail)
	}
	args = append(args, "commit", "--quiet", "--message="+message)
	if p.AllowEmpty {
		args = append(args, "--allow-empty")
	}
	out, err := g.run(ctx, "commit", gitLine(args)+" && "+gitLine([]string{"-C", repo, "rev-parse", "HEAD"}), &p.GitParams)
	if err != nil {
		return "", err
	}
	lines := strings.Fields(string(out))
	if len(lines) == 0 {
		return "", g.failed("commit", errors.New("git named no commit"))
	}
	return lines[len(lines)-1], nil // hooks may have spoken before
}

// GitPushParams say what to push, and where to.
type GitPushParams struct {
	GitParams
	// Remote is the remote's name; empty means the branch's upstream.
	Remote string
	// Branch is the branch to push; empty means the one checked out. It needs a
	// Remote.
	Branch string
	// NoUpstream leaves the branch's upstream alone; it becomes Remote and
	// Branch otherwise.
	NoUpstream bool
	// Credentials are for this call alone.
	Credentials *GitCredentials
}

// Push pushes a branch to a remote.
func (g *Git) Push(ctx context.Context, repo string, p *GitPushParams) error {
	p = given(p)
	args := []string{"-C", repo, "push", "--quiet"}
	if p.Remote != "" && !p.NoUpstream {
		args = append(args, "--set-upstream")
	}
	branch := p.Branch
	if branch == "" && p.Remote != "" {
		branch = "HEAD"
	}
	return g.exchange(ctx, "push", repo, args, p.Remote, branch, p.Credentials, &p.GitParams)
}

// GitPullParams say what to pull, and where from.
type GitPullParams struct {
	GitParams
	// Remote is the remote's name; empty means the branch's upstream.
	Remote string
	// Branch is the remote's branch to pull; empty means the upstream. It needs
	// a Remote.
	Branch string
	// Credentials are for this call alone.
	Credentials *GitCredentials
}

// Pull fetches from a remote and merges into the branch checked out.
func (g *Git) Pull(ctx context.Context, repo string, p *GitPullParams) error {
	p = given(p)
	args := []string{"-C", repo, "pull", "--quiet"}
	return g.exchange(ctx, "pull", repo, args, p.Remote, p.Branch, p.Credentials, &p.GitParams)
}

// exchange pushes or pulls.
func (g *Git) exchange(ctx context.Context, op, repo string, args []string, remote, branch string, c *GitCredentials, p *GitParams) error {
	if branch != "" && remote == "" {
		return g.failed(op, errors.New("a Branch needs a Remote"))
	}
	if err := plainWords("a remote", remote, "a branch", branch); err != nil {
		return g.failed(op, err)
	}
	var named []string
	if remote != "" {
		named = append(named, remote)
	}
	if branch != "" {
		named = append(named, branch)
	}
	args = append(append(args, "--"), named...)
	if c == nil {
		_, err := g.run(ctx, op, gitLine(args), p)
		return err
	}
	query := []string{"-C", repo, "ls-remote", "--get-url"}
	if remote != "" {
		query = append(query, remote)
	}
	address, err := g.run(ctx, op, gitLine(query), p)
	if err != nil {
		return err
	}
	return g.withCredentials(ctx, op, c, strings.TrimSuffix(string(address), "\n"), args, p)
}

// run runs a command line and gives what it wrote.
func (g *Git) run(ctx context.Context, op, command string, p *GitParams) ([]byte, error) {
	return g.runWith(ctx, op, &CommandParams{}, command, p)
}

func (g *Git) runWith(ctx context.Context, op string, c *CommandParams, command string, p *GitParams) ([]byte, error) {
	c.User = p.User
	// The words of errors are those that are looked for; nobody is there to be
	// asked for a password or a message.
	c.Envs = map[string]string{"LC_ALL": "C.UTF-8", "LANGUAGE": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_MERGE_AUTOEDIT": "no"}
	maps.Copy(c.Envs, p.Envs)
	out := &gitOutput{}
	c.Stdout = out
	result, err := g.sb.Commands.Run(ctx, command, c)
	if err == nil {
		return out.Bytes(), nil
	}
	if _, ok := errors.AsType[*ExitError](err); ok {
		err = explained(result, err)
	}
	return nil, g.failed(op, err)
}

func (g *Git) failed(op string, err error) error {
	return fmt.Errorf("sandbox: git %s in %s: %w", op, g.sb.ID(), err)
}

// gitTexts are what git says, in lower case, and what that means.
var gitTexts = []struct {
	text string
	err  error
}{
	{"authentication failed", ErrGitAuth},
	{"terminal prompts disabled", ErrGitAuth},
	{"could not read username", ErrGitAuth},
	{"invalid username or password", ErrGitAuth},
	{"access denied", ErrGitAuth},
	{"permission denied", ErrGitAuth},
	{"not authorized", ErrGitAuth},
	{"has no upstream branch", ErrGitUpstream},
	{"no upstream branch", ErrGitUpstream},
	{"no upstream configured", ErrGitUpstream},
	{"no tracking information", ErrGitUpstream},
	{"set the remote as upstream", ErrGitUpstream},
	{"set the upstream branch", ErrGitUpstream},
	{"please specify which branch you want to merge with", ErrGitUpstream},
}

// explained says what an exit of git means.
func explained(r *CommandResult, exit error) error {
	said := strings.ToLower(r.Stderr + r.Stdout)
	for _, known := range gitTexts {
		if strings.Contains(said, known.text) {
			return fmt.Errorf("%w: %w", known.err, exit)
		}
	}
	if r.ExitCode == 127 {
		return fmt.Errorf("the sandbox has no git: install it in the template: %w", exit)
	}
	if strings.TrimSpace(r.Stderr) == "" {
		return fmt.Errorf("%w: %s", exit, clip.LastLine(r.Stdout, maxLastLine))
	}
	return exit
}

// gitLine makes a command line of git's arguments.
func gitLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return "git " + strings.Join(quoted, " ")
}

// plainWords refuses values that git would take for options. It is given pairs
// of a name and a value.
func plainWords(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if strings.HasPrefix(pairs[i+1], "-") {
			return fmt.Errorf("%q cannot be %s: it begins with a dash", clip.Text(pairs[i+1], 64), pairs[i])
		}
	}
	return nil
}

// given gives params that may be nil.
func given[P any](p *P) *P {
	if p == nil {
		return new(P)
	}
	return p
}

// gitOutput keeps output as it came, up to a bound.
type gitOutput struct{ bytes.Buffer }

func (l *gitOutput) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxGitOutput {
		return 0, fmt.Errorf("git wrote more than %d MiB", maxGitOutput>>20)
	}
	return l.Buffer.Write(p)
}
