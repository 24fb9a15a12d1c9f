package main

import (
	"slices"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	forbidigo "github.com/ashanbrown/forbidigo/v2/pkg/analyzer"
	makezero "github.com/ashanbrown/makezero/v2/pkg/analyzer"
	"github.com/charithe/durationcheck"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/gostaticanalysis/nilerr"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/ldez/usetesting"
	"github.com/sivchari/containedctx"
	"github.com/sonatard/noctx"
	"github.com/timakin/bodyclose/passes/bodyclose"
	"go-simpler.org/sloglint"
	"golang.org/x/tools/go/analysis"
	"honnef.co/go/tools/quickfix"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
)

// linters lists all linters, each with the reason for it.
var linters = []linter{
	{"bodyclose", only(bodyclose.Analyzer)},                             // a response that is not closed holds its connection
	{"containedctx", only(containedctx.Analyzer)},                       // contexts are arguments, not state
	{"durationcheck", only(durationcheck.Analyzer)},                     // duration * duration
	{"errcheck", only(errcheckAnalyzer())},                              // an error that is ignored
	{"errorlint", only(set(errorlint.NewAnalyzer(), "errorf", "true"))}, // errors.Is and As through every wrap
	{"forbidigo", only(forbidigoAnalyzer())},                            // output and exits belong to main and to writers passed in
	{"govet", vet},                                                      // go vet's analyzers: make vet leaves this system to it
	{"ineffassign", only(ineffassign.Analyzer)},                         // a value that nothing reads
	{"makezero", only(makezero.NewAnalyzer())},                          // append to a slice that already has its length
	{"misspell", only(misspellAnalyzer)},                                // readers stumble over wrong words
	{"nilerr", only(nilerr.Analyzer)},                                   // an error was found, and nil is returned
	{"noctx", only(noctx.Analyzer)},                                     // every request can be cancelled
	{"sloglint", only(sloglint.New(&sloglint.Options{ContextOnly: "all", NoMixedArguments: true}))}, // handlers find the trace in the context
	{"staticcheck", staticcheckAnalyzers()},                                                         // mistakes, and code that can be simpler
	{"unused", only(unusedAnalyzer)},                                                                // no dead code
	{"usetesting", only(set(usetesting.NewAnalyzer(), "ossetenv", "true"))},                         // changes that testing.T undoes by itself
}

func only(a *analysis.Analyzer) []*analysis.Analyzer { return []*analysis.Analyzer{a} }

// set sets a flag of an analyzer. It panics if there is no such flag or value, which is a mistake in this
// program.
func set(a *analysis.Analyzer, flag, value string) *analysis.Analyzer {
	if err := a.Flags.Set(flag, value); err != nil {
		panic(a.Name + ": " + err.Error())
	}
	return a
}

// errcheckAnalyzer ignores errors that no caller can handle.
func errcheckAnalyzer() *analysis.Analyzer {
	errcheck.DefaultExcludedSymbols = append(errcheck.DefaultExcludedSymbols,
		"(io.Closer).Close",
		"(net.Conn).Close",
		"(net/http.ResponseWriter).Write",
		"(*os.File).Close",
		"(*net.UnixConn).Close",
		"(*github.com/gorilla/websocket.Conn).Close",
		"fmt.Fprint",
		"fmt.Fprintf",
		"fmt.Fprintln",
		"io.WriteString",
	)
	return errcheck.Analyzer
}

func forbidigoAnalyzer() *analysis.Analyzer {
	a := set(forbidigo.NewAnalyzer(), "permit", "false") // only //nolint silences
	for _, forbidden := range []string{
		`{p: '^fmt\.Print.*$', msg: write to a writer that was passed in}`,
		`{p: '^os\.Exit$', msg: only main ends the process}`,
		`{p: '^time\.Sleep$', msg: wait for what you wait for}`,
		`{p: '^http\.(DefaultClient|Get|Head|Post|PostForm)$', msg: other code closes its connections; in a test use clienttest.New}`,
	} {
		set(a, "p", forbidden)
	}
	return a
}

// staticcheckAnalyzers returns all analyzers of staticcheck, except those that require a comment on every
// package and exported name, or other names for receivers and abbreviations.
func staticcheckAnalyzers() []*analysis.Analyzer {
	var analyzers []*analysis.Analyzer
	for _, a := range slices.Concat(staticcheck.Analyzers, stylecheck.Analyzers, simple.Analyzers, quickfix.Analyzers) {
		if !slices.Contains(strings.Fields("ST1000 ST1003 ST1016 ST1020 ST1021 ST1022"), a.Analyzer.Name) {
			analyzers = append(analyzers, a.Analyzer)
		}
	}
	return analyzers
}
