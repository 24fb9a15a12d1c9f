package readme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// publicPackages are the packages that programs import.
var publicPackages = []string{"api", "sandbox", "sandbox/agent", "sandbox/chart", "sandbox/local", "sandbox/otel", "sandbox/sandboxtest", "sandbox/template", "state"}

// TestReadmeWords checks that the names of the public packages in prose exist: package.Name,
// package.Type.Name, and the methods and fields of values called sb and cloud.
func TestReadmeWords(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, dir := range publicPackages {
		declared(t, dir, names)
	}
	values := strings.NewReplacer("^sb.", "sandbox.Sandbox.", "^cloud.", "local.Cloud.", "^", "")
	word := regexp.MustCompile("`(\\w+\\.[A-Z]\\w*(?:\\.[A-Z]\\w*)*)")
	checked := 0
	for _, r := range readmes(t) {
		for _, found := range word.FindAllStringSubmatch(codeBlock.ReplaceAllString(r.text, ""), -1) {
			name := found[1]
			if !strings.HasPrefix(r.name, "internal/") { // there cloud is a package
				name = values.Replace("^" + name)
			}
			of, _, _ := strings.Cut(name, ".")
			if !names[of] {
				continue // of another package
			}
			checked++
			if parts := strings.Split(name, "."); len(parts) > 3 { // a field of a field: sb.Commands.List
				name = strings.Join(parts[:3], ".")
				if !names["sandbox."+parts[2]+"."+parts[3]] {
					t.Errorf("%s names %s, which does not exist", r.name, found[1])
				}
			}
			if !names[name] {
				t.Errorf("%s names %s, which does not exist", r.name, found[1])
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d names were found, want at least 50", checked)
	}
}

// TestReadmeBareWords is TestReadmeWords for words without their package, as a guide to it
// uses them: Type.Name, and options such as WithExpiry.
func TestReadmeBareWords(t *testing.T) {
	t.Parallel()
	bare := make(map[string]bool)
	names := make(map[string]bool)
	for _, dir := range publicPackages {
		declared(t, dir, names)
	}
	for name := range names {
		_, word, _ := strings.Cut(name, ".")
		bare[word] = true
	}
	word := regexp.MustCompile("`([A-Z]\\w*\\.[A-Z]\\w*|With[A-Z]\\w*)[`(]")
	checked := 0
	for _, r := range readmes(t) {
		if strings.HasPrefix(r.name, "internal/") || r.name == "CHANGELOG.md" {
			continue // it belongs to packages that are not public, or to former ones
		}
		for _, found := range word.FindAllStringSubmatch(codeBlock.ReplaceAllString(r.text, ""), -1) {
			if checked++; !bare[found[1]] {
				t.Errorf("%s names %s, which no public package has", r.name, found[1])
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d names were found, want at least 40", checked)
	}
}

// declared adds the exported names of a package: itself, its names, and those of its types'
// fields and methods.
func declared(t *testing.T, dir string, names map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(files), err)
	}
	of := filepath.Base(dir)
	names[of] = true
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must.Do(t, err)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				owner := of
				if d.Recv != nil {
					owner += "." + typeName(d.Recv.List[0].Type)
				}
				names[owner+"."+d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					declare(of, s, names)
				}
			}
		}
	}
}

func declare(of string, s ast.Spec, names map[string]bool) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names[of+"."+n.Name] = true
		}
	case *ast.TypeSpec:
		own := of + "." + s.Name.Name
		names[own] = true
		var fields *ast.FieldList
		switch kind := s.Type.(type) {
		case *ast.StructType:
			fields = kind.Fields
		case *ast.InterfaceType:
			fields = kind.Methods
		default:
			return
		}
		for _, field := range fields.List {
			for _, n := range field.Names {
				names[own+"."+n.Name] = true
			}
		}
	}
}

// typeName returns the name of a receiver's type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
