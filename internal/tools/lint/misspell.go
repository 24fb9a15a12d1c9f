package main

import (
	"go/token"

	"github.com/golangci/misspell"
	"golang.org/x/tools/go/analysis"
)

// misspellAnalyzer reports English words that are often misspelled, in names, texts and comments.
var misspellAnalyzer = &analysis.Analyzer{
	Name: "misspell",
	Doc:  "report words that are often misspelled",
	Run: func(pass *analysis.Pass) (any, error) {
		words := misspell.Replacer{Replacements: misspell.DictMain}
		words.Compile()
		for _, f := range pass.Files {
			file := pass.Fset.File(f.Pos())
			text, err := pass.ReadFile(file.Name())
			if err != nil {
				return nil, err
			}
			_, wrong := words.Replace(string(text))
			for _, w := range wrong {
				pass.Reportf(file.LineStart(w.Line)+token.Pos(w.Column), "%s is a misspelling of %s", w.Original, w.Corrected)
			}
		}
		return nil, nil
	},
}
