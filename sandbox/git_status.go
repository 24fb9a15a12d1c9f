package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// GitStatus is the state of a repository.
type GitStatus struct {
	// Branch is the current branch; empty if Detached is set.
	Branch string
	// Upstream is the upstream of the branch; empty if the branch has no upstream.
	Upstream string
	// Ahead is the number of commits that are only in the branch. Behind is the number of commits that
	// are only in the upstream.
	Ahead, Behind int
	// Detached reports that a commit is checked out instead of a branch.
	Detached bool
	// Files are the changed and the untracked files, without ignored ones.
	Files []GitFile
}

// Clean reports whether nothing changed.
func (s *GitStatus) Clean() bool { return len(s.Files) == 0 }

// GitCounts contains numbers of changed files.
type GitCounts struct {
	// Total is the number of all changed files. Each file counts as either Staged or Unstaged,
	// even if it has several changes: see [GitFile.Staged].
	Total, Staged, Unstaged int
	// Untracked is the number of Unstaged files that git does not track. Conflicts is the
	// number of Unstaged files with a conflict.
	Untracked, Conflicts int
}

// Counts counts the files.
func (s *GitStatus) Counts() GitCounts {
	n := GitCounts{Total: len(s.Files)}
	for _, f := range s.Files {
		switch {
		case f.Staged():
			n.Staged++
		case f.Conflict():
			n.Conflicts++
		case f.Untracked():
			n.Untracked++
		}
	}
	n.Unstaged = n.Total - n.Staged
	return n
}

// GitFile describes a changed file.
type GitFile struct {
	// Path is relative to the repository. It is not quoted, and may not be UTF-8. RenamedFrom
	// is the path before a rename or copy.
	Path, RenamedFrom string
	// Index is git's letter for the change in the index. Worktree is the letter for the change
	// that is not yet in the index. The letters are ' ', M, T, A, D, R, C, U and ?.
	Index, Worktree byte
}

// Staged reports whether the next commit includes a change of the file.
func (f GitFile) Staged() bool { return f.Index != ' ' && f.Index != '?' && !f.Conflict() }

// Untracked reports whether git does not track the file yet.
func (f GitFile) Untracked() bool { return f.Index == '?' }

// Conflict reports whether a merge left a conflict in the file.
func (f GitFile) Conflict() bool {
	return f.Index == 'U' || f.Worktree == 'U' || f.Index == f.Worktree && (f.Index == 'A' || f.Index == 'D')
}

// gitLabels contains the words for changes. The first one that applies is used.
var gitLabels = []struct {
	letter byte
	label  string
}{{'R', "renamed"}, {'C', "copied"}, {'D', "deleted"}, {'A', "added"}, {'M', "modified"}, {'T', "typechange"}, {'?', "untracked"}}

// Label describes the change in one word: conflict, renamed, copied, deleted, added, modified,
// typechange, untracked or unknown.
func (f GitFile) Label() string {
	if f.Conflict() {
		return "conflict"
	}
	for _, l := range gitLabels {
		if f.Index == l.letter || f.Worktree == l.letter {
			return l.label
		}
	}
	return "unknown"
}

// Status returns the state of a repository.
func (g *Git) Status(ctx context.Context, repo string, p *GitParams) (*GitStatus, error) {
	out, err := g.run(ctx, "status", gitLine([]string{"-C", repo, "status", "--porcelain=2", "--branch", "-z"}), orZero(p))
	if err != nil {
		return nil, err
	}
	status, err := parseStatus(out)
	if err != nil {
		return nil, g.failed("status", err)
	}
	return status, nil
}

// parseStatus parses version 2 of git's porcelain format.
func parseStatus(out []byte) (*GitStatus, error) {
	s := &GitStatus{}
	next := func() (string, bool) {
		text, rest, found := bytes.Cut(out, []byte{0})
		out = rest
		return string(text), found
	}
	for len(out) > 0 {
		entry, ended := next()
		kind, rest, _ := strings.Cut(entry, " ")
		// fields is the number of fields before the path.
		fields, known := map[string]int{"1": 7, "2": 8, "u": 9}[kind]
		switch {
		case kind == "#":
			s.header(rest)
			continue
		case kind == "?" && ended:
			s.Files = append(s.Files, GitFile{Path: rest, Index: '?', Worktree: '?'})
			continue
		case kind == "!" && ended:
			continue
		}
		words := strings.SplitN(rest, " ", fields+1)
		if !known || !ended || len(words) != fields+1 || len(words[0]) != 2 {
			return nil, fmt.Errorf("git's status has an entry that is not understood: %q", clip.Text(entry, 128))
		}
		file := GitFile{Path: words[fields], Index: letter(words[0][0]), Worktree: letter(words[0][1])}
		if kind == "2" {
			if file.RenamedFrom, ended = next(); !ended {
				return nil, fmt.Errorf("git's status ends in the middle of %q", clip.Text(entry, 128))
			}
		}
		s.Files = append(s.Files, file)
	}
	return s, nil
}

// letter converts a letter of version 2 of git's porcelain format to version 1. In version 1 a
// space means no change.
func letter(c byte) byte {
	if c == '.' {
		return ' '
	}
	return c
}

func (s *GitStatus) header(text string) {
	name, value, _ := strings.Cut(text, " ")
	switch name {
	case "branch.head":
		if s.Detached = value == "(detached)"; !s.Detached {
			s.Branch = value
		}
	case "branch.upstream":
		s.Upstream = value
	case "branch.ab":
		ahead, behind, _ := strings.Cut(value, " ")
		s.Ahead, _ = strconv.Atoi(strings.TrimPrefix(ahead, "+"))
		s.Behind, _ = strconv.Atoi(strings.TrimPrefix(behind, "-"))
	}
}
