package main

import (
	"go/ast"
	"path"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// exceptions are the files in which some linters are silent.
var exceptions = []struct {
	file    *regexp.Regexp
	linters []string
}{
	// Programs and examples write to standard output, end themselves, and share connections with nobody.
	{regexp.MustCompile(`/(examples|internal/tools)/|/main\.go$|/example\w*_test\.go$`), []string{"forbidigo"}},
	// What a test leaves open ends with the test, which has a limit of its own.
	{regexp.MustCompile(`_test\.go$`), []string{"errcheck", "bodyclose", "noctx"}},
}

// allowed reports whether a finding does not count in its file. Generated files are the business of their
// generator.
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
