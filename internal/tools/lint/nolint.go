package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

var (
	nolintMark = regexp.MustCompile(`^//\s*nolint\b`)
	nolintForm = regexp.MustCompile(`^//nolint:([\w-]+(?:,\s*[\w-]+)*)\s*//\s*\S`)
)

// silencer is a comment that silences linters on its own line. If it is above a node, in the same column, it
// silences them in all of the node.
type silencer struct {
	comment  *ast.Comment
	linters  []string
	file     *token.File
	from, to int // the first and the last silenced line
	used     map[string]bool
}

// silence removes the findings that comments silence. It adds findings about these comments: each must name its
// linters and its reason, and must be needed.
func silence(pass *analysis.Pass, findings []finding, linters []linter) []finding {
	var comments []*silencer
	var wrong []finding
	for _, file := range pass.Files {
		if ast.IsGenerated(file) {
			continue
		}
		found, malformed := silencersOf(pass.Fset, file)
		comments = append(comments, found...)
		wrong = append(wrong, malformed...)
	}
	findings = slices.DeleteFunc(findings, func(f finding) bool {
		for _, s := range comments {
			if s.covers(f) {
				s.used[f.linter] = true
				return true
			}
		}
		return false
	})
	for _, s := range comments {
		for _, l := range linters {
			if slices.Contains(s.linters, l.name) && !s.used[l.name] {
				wrong = append(wrong, finding{s.comment.Pos(), "nolintlint", fmt.Sprintf("%s finds nothing here: remove it from this comment", l.name)})
			}
		}
	}
	return append(findings, wrong...)
}

// silencersOf returns the comments of a file that silence linters, and findings about those comments that lack
// the linters or the reason.
func silencersOf(fset *token.FileSet, file *ast.File) (comments []*silencer, malformed []finding) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if !nolintMark.MatchString(comment.Text) {
				continue
			}
			form := nolintForm.FindStringSubmatch(comment.Text)
			if form == nil {
				malformed = append(malformed, finding{comment.Pos(), "nolintlint", "write //nolint:linter // reason"})
				continue
			}
			s := &silencer{comment: comment, file: fset.File(comment.Pos()), used: map[string]bool{}}
			for name := range strings.SplitSeq(form[1], ",") {
				s.linters = append(s.linters, strings.TrimSpace(name))
			}
			s.from, s.to = s.file.Line(group.Pos()), s.file.Line(group.End())
			s.to = endBelow(s.file, file, s.to, fset.Position(group.Pos()).Column)
			comments = append(comments, s)
		}
	}
	return comments, malformed
}

// endBelow returns the last line of the nodes that start in a column of the line after the given one. If there
// are none it returns the given line.
func endBelow(lines *token.File, file *ast.File, line, column int) int {
	end := line
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		if start := lines.Position(n.Pos()); start.Line == line+1 && start.Column == column {
			end = max(end, lines.Line(n.End()))
		}
		return true
	})
	return end
}

func (s *silencer) covers(f finding) bool {
	if !slices.Contains(s.linters, f.linter) || f.pos < token.Pos(s.file.Base()) || f.pos > token.Pos(s.file.Base()+s.file.Size()) {
		return false
	}
	line := s.file.Line(f.pos)
	return s.from <= line && line <= s.to
}
