package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// GitResetMode selects the parts that a reset changes in addition to the branch.
type GitResetMode string

// These are the modes of a reset.
const (
	// GitResetMixed resets the index and keeps the files. It is git's default.
	GitResetMixed GitResetMode = "mixed"
	// GitResetSoft keeps the index and the files.
	GitResetSoft GitResetMode = "soft"
	// GitResetHard resets the index and the files. Uncommitted changes are lost.
	GitResetHard GitResetMode = "hard"
	// GitResetMerge is like GitResetHard, but keeps changes that are not in the index. It fails
	// if such a change conflicts with the reset.
	GitResetMerge GitResetMode = "merge"
	// GitResetKeep is like GitResetHard, but keeps all uncommitted changes. It fails if a change
	// conflicts with the reset.
	GitResetKeep GitResetMode = "keep"
)

// GitResetParams sets the target and the parts of a reset.
type GitResetParams struct {
	GitParams
	// Target is the commit, branch or tag to reset to; empty means HEAD, the current commit.
	Target string
	// Mode selects the parts to reset; empty means GitResetMixed.
	Mode GitResetMode
	// Paths are paths relative to the repository. If there are any, Reset resets only the entries of
	// these paths in the index, and does not move the branch. Mode must then be empty.
	Paths []string
}

// Reset moves the current branch to another commit, or removes changes from the index. With nil
// params it removes all changes from the index.
func (g *Git) Reset(ctx context.Context, repo string, p *GitResetParams) error {
	p = orZero(p)
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

// GitRestoreParams sets what to restore, and the source.
type GitRestoreParams struct {
	GitParams
	// Staged restores the entries of the index. Worktree restores the files of the working tree. If
	// neither is set, only the files are restored.
	Staged, Worktree bool
	// Source is the commit, branch or tag to restore from; empty means the index or,
	// with Staged, HEAD.
	Source string
}

// Restore discards changes to files. Paths are relative to the repository; "." means the whole
// repository.
func (g *Git) Restore(ctx context.Context, repo string, paths []string, p *GitRestoreParams) error {
	p = orZero(p)
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
