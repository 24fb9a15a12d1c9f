package main

import (
	"fmt"
	"go/token"
	"reflect"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// A linter is one analyzer or several, with the name for //nolint comments.
type linter struct {
	name      string
	analyzers []*analysis.Analyzer
}

// A finding is one report of a linter.
type finding struct {
	pos     token.Pos
	linter  string
	message string
}

// newAnalyzer makes one analyzer from many linters. It reports their findings, except those that the repository
// allows or comments silence. It also reports comments that silence nothing.
func newAnalyzer(linters []linter) *analysis.Analyzer {
	all := &analysis.Analyzer{
		Name: "lint",
		Doc:  "report what the linters of this repository find",
	}
	names := map[*analysis.Analyzer]string{}
	for _, l := range linters {
		for _, a := range l.analyzers {
			c := collecting(a)
			names[c] = l.name
			all.Requires = append(all.Requires, c)
		}
	}
	all.Run = func(pass *analysis.Pass) (any, error) {
		var findings []finding
		for _, a := range all.Requires {
			for _, d := range pass.ResultOf[a].([]analysis.Diagnostic) {
				message := d.Message
				if a.Name != names[a] {
					message = a.Name + ": " + message
				}
				findings = append(findings, finding{d.Pos, names[a], message})
			}
		}
		findings = slices.DeleteFunc(findings, func(f finding) bool { return allowed(pass, f) })
		findings = silence(pass, findings, linters)
		slices.SortFunc(findings, func(a, b finding) int { return int(a.pos - b.pos) })
		for _, f := range findings {
			pass.Report(analysis.Diagnostic{Pos: f.pos, Message: fmt.Sprintf("%s (%s)", f.message, f.linter)})
		}
		return nil, nil
	}
	return all
}

// collecting returns a copy of a that returns its reports as its result.
func collecting(a *analysis.Analyzer) *analysis.Analyzer {
	c := *a
	c.ResultType = reflect.TypeFor[[]analysis.Diagnostic]()
	c.Run = func(pass *analysis.Pass) (any, error) {
		var reported []analysis.Diagnostic
		own := *pass
		own.Report = func(d analysis.Diagnostic) { reported = append(reported, d) }
		_, err := a.Run(&own)
		return reported, err
	}
	return &c
}
