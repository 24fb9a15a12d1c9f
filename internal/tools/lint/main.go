// Lint finds mistakes, unclear text and unused things in Go packages. It is run by
//
//	go vet -vettool=.tmp/bin/lint -every-package ./...
//
// go vet keeps the findings of a package until the package or one of its imports changes.
// linters.go lists the checks, with their reasons. For other systems, only go vet's checks are done:
//
//	.tmp/bin/lint systems windows/amd64 darwin/amd64 -- ./...
//
// Findings are mended, not silenced. If a finding is wrong, a comment says why:
//
//	ctx context.Context //nolint:containedctx // the request's
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/unitchecker"
)

// go vet asks for the facts of a package that another one imports, and then remembers that the package has no
// findings (Go 1.26). A later make lint would then miss the findings of a package that was vetted by hand. The
// flag prevents that, because go vet remembers results by flags.
var _ = flag.Bool("every-package", false, "the packages to look at are all there are; kept apart from the findings of other runs")

func main() {
	if split := slices.Index(os.Args, "--"); split > 1 && os.Args[1] == "systems" {
		if err := lintSystems(os.Args[2:split], os.Args[split+1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	analyzers, err := wanted(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(1)
	}
	unitchecker.Main(analyzers...)
}

// wanted returns the analyzers to run for the configuration that go vet wrote to a file. For a package that is
// only imported by others, these are the analyzers that record facts.
func wanted(configuration string) ([]*analysis.Analyzer, error) {
	all := newAnalyzer(linters)
	if !strings.HasSuffix(configuration, ".cfg") {
		return []*analysis.Analyzer{all}, nil
	}
	text, err := os.ReadFile(configuration)
	if err != nil {
		return nil, err
	}
	var c unitchecker.Config
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", configuration, err)
	}
	if c.VetxOnly {
		return withFacts(all), nil
	}
	return []*analysis.Analyzer{all}, nil
}

// withFacts returns those of a and the analyzers that it requires, directly or not, that record facts about a
// package.
func withFacts(a *analysis.Analyzer) []*analysis.Analyzer {
	var found []*analysis.Analyzer
	seen := map[*analysis.Analyzer]bool{}
	var walk func(*analysis.Analyzer)
	walk = func(a *analysis.Analyzer) {
		if seen[a] {
			return
		}
		seen[a] = true
		if len(a.FactTypes) > 0 {
			found = append(found, a)
		}
		for _, required := range a.Requires {
			walk(required)
		}
	}
	walk(a)
	return found
}
