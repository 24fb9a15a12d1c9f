package internal_test

import (
	"bytes"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestAPI compares the exported API of every public package with a file, so that a change
// is seen in review. UPDATE_API=1 rewrites the file. Changes that users have to know belong
// in CHANGELOG.md.
func TestAPI(t *testing.T) {
	t.Parallel()
	statSources(t)
	var got bytes.Buffer
	for _, p := range publicPackages(t) {
		for _, line := range exportedAPI(p) {
			fmt.Fprintf(&got, "%s: %s\n", strings.TrimPrefix(p.Path(), module+"/"), line)
		}
	}
	golden := filepath.Join("testdata", "api.txt")
	if os.Getenv("UPDATE_API") != "" {
		must.Do(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	must.Do(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("the exported API has changed: if that is wanted, run UPDATE_API=1 go test -run TestAPI ./internal and commit the file, with a line in CHANGELOG.md (-file +now):\n%s", diff)
	}
}

// exportedAPI returns a line for each exported name of a package, field and method.
func exportedAPI(p *types.Package) (lines []string) {
	in := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		named, ok := o.Type().(*types.Named)
		if _, isType := o.(*types.TypeName); !isType || !ok {
			line := types.ObjectString(o, in)
			if c, ok := o.(*types.Const); ok {
				line += " = " + c.Val().ExactString()
			}
			lines = append(lines, line)
			continue
		}
		lines = append(lines, typeAPI(named, in)...)
	}
	return lines
}

// typeAPI returns a line for a type, and for each exported field and method.
func typeAPI(named *types.Named, in types.Qualifier) []string {
	name := types.TypeString(named, in)
	var lines []string
	switch shape := named.Underlying().(type) {
	case *types.Struct:
		lines = append(lines, "type "+name+" struct")
		for field := range shape.Fields() {
			if field.Exported() {
				lines = append(lines, "field "+name+"."+field.Name()+" "+types.TypeString(field.Type(), in))
			}
		}
	case *types.Interface:
		line := "type " + name + " interface"
		if slices.ContainsFunc(slices.Collect(shape.Methods()), func(m *types.Func) bool { return !m.Exported() }) {
			line += " with unexported methods"
		}
		lines = append(lines, line)
		for method := range shape.Methods() {
			if !method.Exported() {
				continue
			}
			lines = append(lines, "method "+name+"."+method.Name()+strings.TrimPrefix(types.TypeString(method.Type(), in), "func"))
		}
	default:
		lines = append(lines, "type "+name+" "+types.TypeString(shape, in))
	}
	first := len(lines)
	for method := range named.Methods() {
		if method.Exported() {
			lines = append(lines, types.ObjectString(method, in))
		}
	}
	slices.Sort(lines[first:])
	return lines
}
