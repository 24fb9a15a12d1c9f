package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
)

var (
	// ErrGitAuth means that the remote requires credentials, or refused the credentials that it
	// received.
	ErrGitAuth = errors.New("git: the remote refused the credentials, or wants some: set Credentials")
	// ErrGitUpstream means that the branch has no upstream branch.
	ErrGitUpstream = errors.New("git: the branch has no upstream: name Remote and Branch")
)

// maxGitOutput limits the number of bytes that are read from git's output.
const maxGitOutput = 32 << 20

// Git runs git in a sandbox, where git must be installed. It has the operations of E2B's SDKs; for
// other operations use [Commands.Run]. Relative paths of repositories begin at the user's default
// directory. If git fails, the error is an [*ExitError]. The error also matches [ErrGitAuth] or
// [ErrGitUpstream] if git's output reports that cause. Git is safe for concurrent use on different
// repositories. Within one repository, git itself limits concurrent operations.
type Git struct{ sb *Sandbox }

// GitParams sets how to run git.
type GitParams struct {
	// User is the user who runs git; empty means the default user.
	User string
	// Envs are environment variables that are added to those of git.
	Envs map[string]string
}

// GitInitParams are the optional parameters of [Git.Init].
type GitInitParams struct {
	GitParams
	// InitialBranch is the name of the first branch; empty means git's default. InitialBranch needs
	// git 2.28.
	InitialBranch string
	// Bare creates a repository without a working tree, as a target of pushes.
	Bare bool
}

// Init creates an empty repository in a directory. It creates the directory if it is missing. It
// does not change an existing repository.
func (g *Git) Init(ctx context.Context, repo string, p *GitInitParams) error {
	p = orZero(p)
	args := []string{"init", "--quiet"}
	if p.InitialBranch != "" {
		args = append(args, "--initial-branch="+p.InitialBranch)
	}
	if p.Bare {
		args = append(args, "--bare")
	}
	_, err := g.run(ctx, "init", gitLine(append(args, "--", repo)), &p.GitParams)
	return err
}

// GitCloneParams sets how to clone a repository.
type GitCloneParams struct {
	GitParams
	// Path is the directory to create; empty means the repository's name.
	Path string
	// Branch is the only branch to clone. Empty means that Clone clones all branches and checks out
	// the default branch.
	Branch string
	// Depth limits the number of commits to fetch from the history. Zero means all.
	Depth int
	// Credentials are used for this call only; nil means none.
	Credentials *GitCredentials
}

// Clone clones a repository.
func (g *Git) Clone(ctx context.Context, address string, p *GitCloneParams) error {
	p = orZero(p)
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
	if err := withoutPassword(address); err != nil {
		return g.failed("clone", err)
	}
	if p.Credentials != nil {
		return g.withCredentials(ctx, "clone", p.Credentials, address, args, &p.GitParams)
	}
	_, err := g.run(ctx, "clone", gitLine(args), &p.GitParams)
	return err
}

// GitAddParams selects the files to add.
type GitAddParams struct {
	GitParams
	// Files are paths relative to the repository; none means all changed files.
	Files []string
}

// Add adds changes to the index.
func (g *Git) Add(ctx context.Context, repo string, p *GitAddParams) error {
	p = orZero(p)
	args := []string{"-C", repo, "add", "--all"}
	if len(p.Files) > 0 {
		args = append(append(args, "--"), p.Files...)
	}
	_, err := g.run(ctx, "add", gitLine(args), &p.GitParams)
	return err
}

// GitCommitParams sets the author and the options of a commit.
type GitCommitParams struct {
	GitParams
	// AuthorName and AuthorEmail are the name and the address of both the author and the committer.
	// Empty means the value of git's configuration.
	AuthorName, AuthorEmail string
	// AllowEmpty commits even if nothing changed.
	AllowEmpty bool
}

// Commit commits the index, and returns the commit's hash.
func (g *Git) Commit(ctx context.Context, repo, message string, p *GitCommitParams) (hash string, err error) {
	p = orZero(p)
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
	return lines[len(lines)-1], nil // hooks may have printed lines before it
}

// run runs a command line and returns its output.
func (g *Git) run(ctx context.Context, op, command string, p *GitParams) ([]byte, error) {
	return g.runWith(ctx, op, &CommandParams{}, command, p)
}

func (g *Git) runWith(ctx context.Context, op string, c *CommandParams, command string, p *GitParams) ([]byte, error) {
	c.User = p.User
	// The locale is fixed because errors are recognized by their English texts. git must not
	// ask for a password or a message, because no user can answer.
	c.Envs = map[string]string{"LC_ALL": "C.UTF-8", "LANGUAGE": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_MERGE_AUTOEDIT": "no"}
	maps.Copy(c.Envs, p.Envs)
	out := &gitOutput{}
	c.Stdout = out
	result, err := g.sb.Commands.runOwn(ctx, command, c)
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

// gitTexts contains messages of git, in lower case, with the errors that they mean.
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

// explained adds the cause of the failure to git's error, for example [ErrGitAuth]. It infers the
// cause from git's output or exit code.
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

// gitLine returns the command line that runs git with args.
func gitLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return "git " + strings.Join(quoted, " ")
}

// plainWords returns an error if git would interpret one of the values as an option. The arguments
// of plainWords are pairs of a name and a value.
func plainWords(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if strings.HasPrefix(pairs[i+1], "-") {
			return fmt.Errorf("%q cannot be %s: it begins with a dash", clip.Text(pairs[i+1], 64), pairs[i])
		}
	}
	return nil
}

// orZero returns p, or a pointer to the zero value if p is nil.
func orZero[P any](p *P) *P {
	if p == nil {
		return new(P)
	}
	return p
}

// gitOutput keeps output unchanged, up to a limit.
type gitOutput struct{ bytes.Buffer }

func (l *gitOutput) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxGitOutput {
		return 0, fmt.Errorf("git wrote more than %d MiB", maxGitOutput>>20)
	}
	return l.Buffer.Write(p)
}
