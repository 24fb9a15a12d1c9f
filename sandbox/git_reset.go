package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// GitResetMode says which parts a reset changes besides the branch.
type GitResetMode string

// The modes of a reset.
const (
	// GitResetMixed resets the index and leaves the files alone: git's default.
	GitResetMixed GitResetMode = "mixed"
	// GitResetSoft leaves the index and the files alone.
	GitResetSoft GitResetMode = "soft"
	// GitResetHard resets the index and the files: changes that are not committed are
	// lost.
	GitResetHard GitResetMode = "hard"
	// GitResetMerge is as GitResetHard, but keeps changes that are not in the index,
	// and fails where they are in the way.
	GitResetMerge GitResetMode = "merge"
	// GitResetKeep is as GitResetHard, but keeps all changes, and fails where they
	// are in the way.
	GitResetKeep GitResetMode = "keep"
)

// GitResetParams sets what to reset, and how far.
type GitResetParams struct {
	GitParams
	// Target is the commit, branch or tag to reset to; empty means HEAD, the commit
	// that is checked out.
	Target string
	// Mode says which parts to reset; empty means GitResetMixed.
	Mode GitResetMode
	// Paths are paths relative to the repository: only their entries in the index are
	// reset, and the branch stays where it is. They exclude a Mode.
	Paths []string
}

// Reset moves the current branch to another commit, or takes changes out of the
// index again. With nil it does the latter with all changes.
func (g *Git) Reset(ctx context.Context, repo string, p *GitResetParams) error {
	p = given(p)
	args := []string{"-C", repo, "reset", "--quiet"}
	err := plainWords("a target", p.Target)
	switch p.Mode {
	case "":
	case GitResetMixed, GitResetSoft, GitResetHard, GitResetMerge, GitResetKeep:
		args = append(args, "--"+string(p.Mode))
		if len(p.Paths) > 0 {
			err = errors.New("GitResetParams has both Mode and Paths: choose one")
		}
	default:
		err = fmt.Errorf("%q is not a mode of reset", clip.Text(string(p.Mode), 64))
	}
	if err != nil {
		return g.failed("reset", err)
	}
	if p.Target != "" {
		args = append(args, p.Target)
	}
	_, err = g.run(ctx, "reset", gitLine(append(append(args, "--"), p.Paths...)), &p.GitParams)
	return err
}

// GitRestoreParams sets what to restore, and from where.
type GitRestoreParams struct {
	GitParams
	// Staged restores the entries of the index, and Worktree the files. If neither is
	// set, the files are restored.
	Staged, Worktree bool
	// Source is the commit, branch or tag to restore from; empty means the index or,
	// with Staged, HEAD.
	Source string
}

// Restore takes back changes of files: the changes are lost. Paths are relative to the repository;
// "." means all of it.
func (g *Git) Restore(ctx context.Context, repo string, paths []string, p *GitRestoreParams) error {
	p = given(p)
	if len(paths) == 0 {
		return g.failed("restore", errors.New(`no paths: name some, or "." for all`))
	}
	args := []string{"-C", repo, "restore", "--quiet"}
	if p.Staged {
		args = append(args, "--staged")
	}
	if p.Worktree {
		args = append(args, "--worktree")
	}
	if p.Source != "" {
		args = append(args, "--source="+p.Source)
	}
	_, err := g.run(ctx, "restore", gitLine(append(append(args, "--"), paths...)), &p.GitParams)
	return err
}
