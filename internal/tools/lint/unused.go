package main

import (
	"go/token"

	"golang.org/x/tools/go/analysis"
	"honnef.co/go/tools/unused"
)

// unusedAnalyzer reports unused code in a package with its tests. If a package has tests, go vet asks for
// findings only together with them.
var unusedAnalyzer = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "report constants, variables, functions, types and fields that nothing uses",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		files := map[string]*token.File{}
		for _, f := range pass.Files {
			file := pass.Fset.File(f.Pos())
			files[file.Name()] = file
		}
		for _, o := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			file := files[o.Position.Filename]
			if o.Kind == "type param" || file == nil {
				continue
			}
			pass.Reportf(file.Pos(o.Position.Offset), "%s %s is unused", o.Kind, o.Name)
		}
		return nil, nil
	},
}
