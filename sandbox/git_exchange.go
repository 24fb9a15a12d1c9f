package sandbox

import (
	"context"
	"errors"
	"strings"
)

// GitPushParams sets how to push a branch.
type GitPushParams struct {
	GitParams
	// Remote is the remote's name; empty means the branch's upstream.
	Remote string
	// Branch is the branch to push; empty means the current branch. If Branch is set, Remote must be
	// set, too.
	Branch string
	// NoUpstream leaves the branch's upstream unchanged. Without NoUpstream, Remote and Branch become
	// the upstream.
	NoUpstream bool
	// Credentials are used for this call only; nil means none.
	Credentials *GitCredentials
}

// Push pushes a branch to a remote.
func (g *Git) Push(ctx context.Context, repo string, p *GitPushParams) error {
	p = orZero(p)
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

// GitPullParams sets how to pull a branch.
type GitPullParams struct {
	GitParams
	// Remote is the remote's name; empty means the branch's upstream.
	Remote string
	// Branch is the branch to pull from the remote; empty means the upstream. If Branch is set, Remote
	// must be set, too.
	Branch string
	// Credentials are used for this call only; nil means none.
	Credentials *GitCredentials
}

// Pull fetches from a remote and merges into the current branch.
func (g *Git) Pull(ctx context.Context, repo string, p *GitPullParams) error {
	p = orZero(p)
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
