package main

import (
	"go/ast"
	"path"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Where linters are not heard.
var exceptions = []struct {
	file    *regexp.Regexp
	linters []string
}{
	// Programs write to standard output and end themselves.
	{regexp.MustCompile(`/(examples|internal/tools)/|/main\.go$`), []string{"forbidigo"}},
	// What a test leaves open ends with it, and it has a limit of its own.
	{regexp.MustCompile(`_test\.go$`), []string{"errcheck", "bodyclose", "noctx"}},
}

// allowed reports whether a finding does not count where it is: generated files
// are as their generator writes them.
func allowed(pass *analysis.Pass, f finding) bool {
	for _, file := range pass.Files {
		if file.FileStart <= f.pos && f.pos <= file.FileEnd && ast.IsGenerated(file) {
			return true
		}
	}
	// The checkout may be in a directory of any name: the package has the path that counts.
	name := path.Join(pass.Pkg.Path(), filepath.Base(pass.Fset.Position(f.pos).Filename))
	for _, e := range exceptions {
		if slices.Contains(e.linters, f.linter) && e.file.MatchString(name) {
			return true
		}
	}
	return false
}
