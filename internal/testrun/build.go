//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pkg is a package with tests.
type pkg struct {
	path string // the import path of the package
	name string // the name of the package, relative to its module
	dir  string
}

// listPackages returns the packages that match the patterns and have tests. It runs the go command.
func listPackages(ctx context.Context, patterns []string) ([]pkg, error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Module.Path}}\t{{.Dir}}{{end}}"
	command := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, complaint.String())
	}
	var found []pkg
	for line := range strings.Lines(string(out)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(words) == 3 {
			found = append(found, pkg{words[0], strings.TrimPrefix(words[0], words[1]+"/"), words[2]})
		}
	}
	return found, nil
}

// build compiles the tests of packages. It returns the paths of the binaries, keyed by package, and
// the processor time of the builds. One go command builds several packages if the last elements of
// their paths differ. build keeps binaries that are up to date.
func build(ctx context.Context, w io.Writer, dir string, race bool, packages []pkg) (binaries map[string]string, cpu time.Duration, err error) {
	binaries = map[string]string{}
	arguments, cgo := []string{"test", "-c", "-vet=off", "-ldflags=-w"}, "0"
	if race {
		arguments, cgo = append(arguments, "-race"), "1"
	}
	var groups [][]string
	seen := map[string]int{}
	for _, p := range packages {
		base := path.Base(p.path)
		n := seen[base]
		seen[base]++
		if n == len(groups) {
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], p.path)
		binaries[p.name] = filepath.Join(dir, strconv.Itoa(n), base+".test")
	}
	for n, paths := range groups {
		into := filepath.Join(dir, strconv.Itoa(n)) + "/"
		if err := os.MkdirAll(into, 0o755); err != nil {
			return nil, cpu, err
		}
		command := exec.CommandContext(ctx, "go", append(append(arguments[:len(arguments):len(arguments)], "-o", into), paths...)...)
		command.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		command.Stdout, command.Stderr = w, w
		inGroup(command)
		err := command.Run()
		cpu += processorTime(command)
		if err != nil {
			return nil, cpu, fmt.Errorf("build the tests: %w", err)
		}
	}
	return binaries, cpu, nil
}

// hasCompiler reports whether the race detector can be linked. This needs a C compiler. In CI, a
// missing C compiler is an error.
func hasCompiler(w io.Writer, ci bool) (bool, error) {
	if _, err := exec.LookPath("cc"); err == nil {
		return true, nil
	}
	if ci {
		return false, errors.New("no C compiler: CI needs one for -race")
	}
	fmt.Fprintln(w, "no C compiler: the tests run without -race")
	return false, nil
}

var isTest = regexp.MustCompile(`^(Test|Fuzz|Example)([^a-z]|$)`)

// testNames returns the names of the functions that go test runs. It finds these functions in one
// file.
func testNames(file *ast.File) (names []string) {
	for _, declared := range file.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name != "TestMain" && isTest.MatchString(f.Name.Name) {
			names = append(names, f.Name.Name)
		}
	}
	return names
}
