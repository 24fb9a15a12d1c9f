package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

// lintSystems does go vet's checks of packages for other systems, such as "windows/amd64".
func lintSystems(systems, patterns []string) error {
	var failed []error
	for _, system := range systems {
		fmt.Println("go vet's checks for", system)
		if err := lintSystem(system, patterns); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", system, err))
		}
	}
	return errors.Join(failed...)
}

// lintSystem does go vet's checks of packages for one system. go vet would compile all
// that they import for it. lintSystem only reads the sources, and of imported modules only the declarations, which
// takes a fifth of the time.
func lintSystem(system string, patterns []string) error {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return errors.New("this is no system, want one such as windows/amd64")
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	found, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax | packages.NeedModule, Tests: true,
		Env: append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		ParseFile: func(fset *token.FileSet, name string, source []byte) (*ast.File, error) {
			file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution|parser.ParseComments)
			if file != nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
				dropBodies(file)
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return err
	}
	chosen, mistakes := ours(found)
	graph, err := checker.Analyze(vet, chosen, nil)
	if err != nil {
		return err
	}
	for action := range graph.All() {
		if !action.IsRoot {
			continue
		}
		if action.Err != nil {
			mistakes = append(mistakes, fmt.Sprintf("%s: %v", action, action.Err))
		}
		for _, d := range action.Diagnostics {
			mistakes = append(mistakes, fmt.Sprintf("%s: %s (%s)", action.Package.Fset.Position(d.Pos), d.Message, action.Analyzer.Name))
		}
	}
	if len(mistakes) > 0 {
		return errors.New("\n" + strings.Join(mistakes, "\n"))
	}
	return nil
}

// dropBodies removes the bodies of a file's functions. Nobody looks at them, and to check their types is most of
// the work.
func dropBodies(file *ast.File) {
	for _, declared := range file.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}

// ours returns those packages of found that are to be checked, and their errors. It leaves out the programs that
// go test writes, and each package that is also there together with its tests. The other packages have no bodies,
// so that their errors mean nothing.
func ours(found []*packages.Package) (chosen []*packages.Package, mistakes []string) {
	tested := map[string]bool{}
	for _, p := range found {
		tested[p.ID] = true
	}
	for _, p := range found {
		if strings.HasSuffix(p.PkgPath, ".test") || tested[p.PkgPath+" ["+p.PkgPath+".test]"] && p.ID == p.PkgPath {
			continue
		}
		chosen = append(chosen, p)
		for _, err := range p.Errors {
			mistakes = append(mistakes, err.Error())
		}
	}
	packages.Visit(found, nil, func(p *packages.Package) { p.IllTyped = false })
	return chosen, mistakes
}
