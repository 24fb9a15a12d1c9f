package sandbox

import (
	"context"
	"strings"
)

// GitBranches are the local branches of a repository.
type GitBranches struct {
	// All contains the names of the branches, sorted.
	All []string
	// Current is the branch that is checked out; empty if no branch is checked out.
	Current string
}

// Branches lists the branches.
func (g *Git) Branches(ctx context.Context, repo string, p *GitParams) (*GitBranches, error) {
	out, err := g.run(ctx, "branches", gitLine([]string{"-C", repo, "for-each-ref", "--format=%(HEAD)%(refname:lstrip=2)", "refs/heads"}), orZero(p))
	if err != nil {
		return nil, err
	}
	branches := &GitBranches{}
	for text := range strings.Lines(string(out)) {
		text = strings.TrimSuffix(text, "\n")
		name, current := strings.CutPrefix(text, "*")
		name = strings.TrimPrefix(name, " ")
		branches.All = append(branches.All, name)
		if current {
			branches.Current = name
		}
	}
	return branches, nil
}

// CreateBranch creates a branch at the current commit, and checks it out.
func (g *Git) CreateBranch(ctx context.Context, repo, name string, p *GitParams) error {
	return g.branch(ctx, "create branch", name, p, "-C", repo, "checkout", "--quiet", "-b", name, "--")
}

// Checkout checks out a branch.
func (g *Git) Checkout(ctx context.Context, repo, name string, p *GitParams) error {
	return g.branch(ctx, "checkout", name, p, "-C", repo, "checkout", "--quiet", name, "--")
}

// GitDeleteBranchParams sets how to delete a branch.
type GitDeleteBranchParams struct {
	GitParams
	// Force deletes the branch even if it contains commits that no other branch contains.
	Force bool
}

// DeleteBranch deletes a branch that is not checked out.
func (g *Git) DeleteBranch(ctx context.Context, repo, name string, p *GitDeleteBranchParams) error {
	p = orZero(p)
	mode := "-d"
	if p.Force {
		mode = "-D"
	}
	return g.branch(ctx, "delete branch", name, &p.GitParams, "-C", repo, "branch", "--quiet", mode, "--", name)
}

func (g *Git) branch(ctx context.Context, op, name string, p *GitParams, args ...string) error {
	if err := plainWords("a branch", name); err != nil {
		return g.failed(op, err)
	}
	_, err := g.run(ctx, op, gitLine(args), orZero(p))
	return err
}
