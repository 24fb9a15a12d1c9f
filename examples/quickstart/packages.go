package main

import (
	"bytes"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// goPackage is the quickstart's description of one package of the Go installation.
// In the sandbox it is a dict.
type goPackage struct {
	Name    string   `py:"name"`
	Files   int      `py:"files"`
	Lines   int      `py:"lines"`
	Imports []string `py:"imports"`
}

// standardLibrary reads the packages of this machine's Go installation.
func standardLibrary(ctx context.Context) ([]goPackage, error) {
	output, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("ask go for its installation: %w", err)
	}
	return readPackages(os.DirFS(filepath.Join(strings.TrimSpace(string(output)), "src")))
}

// readPackages reads the packages below a source directory, except commands,
// tests and vendored packages.
func readPackages(source fs.FS) ([]goPackage, error) {
	var packages []goPackage
	at := map[string]int{} // by name
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{"cmd", "testdata", "vendor"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		content, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		directory := path.Dir(name)
		index, seen := at[directory]
		if !seen {
			index = len(packages)
			at[directory] = index
			packages = append(packages, goPackage{Name: directory})
		}
		return packages[index].add(name, content)
	})
	return packages, err
}

func (p *goPackage) add(name string, content []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ImportsOnly)
	if err != nil {
		return err
	}
	p.Files++
	p.Lines += bytes.Count(content, []byte("\n"))
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if !slices.Contains(p.Imports, imported) {
			p.Imports = append(p.Imports, imported)
		}
	}
	return nil
}
