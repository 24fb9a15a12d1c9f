//go:build linux

package reexec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestConfigBecomes checks that each field of the configuration takes effect in a sandbox that is
// restored from saved memory, or is listed with the reason why it does not. The saved envd was
// configured for another sandbox.
func TestConfigBecomes(t *testing.T) {
	t.Parallel()
	const template, machine = "saved memory is only restored with the template that it was saved with", "saved memory is only restored on the same machine, with the same programs"
	kept := map[string]string{ // with the reason
		"User": template, "Workdir": template, "Image": template,
		"Python": machine, "Path": machine,
		"MemoryBytes": "the server applies it; the saved envd only reports it", "CPUs": "as MemoryBytes",
		"Contained": "containers have no saved memory", "Wasm": "WebAssembly has no saved memory",
	}
	used := map[string]bool{}
	for file, functions := range map[string][]string{"reexec.go": {"become"}, "environment.go": {"environment", "mark"}} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must.Do(t, err)
		for _, name := range functions {
			i := slices.IndexFunc(parsed.Decls, func(d ast.Decl) bool {
				function, ok := d.(*ast.FuncDecl)
				return ok && function.Name.Name == name
			})
			if i < 0 {
				t.Fatalf("%s has no function %s", file, name)
			}
			ast.Inspect(parsed.Decls[i], func(n ast.Node) bool {
				if field, ok := n.(*ast.SelectorExpr); ok {
					if of, ok := field.X.(*ast.Ident); ok && (of.Name == "c" || of.Name == "config") {
						used[field.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[guest.Config]()) {
		switch _, stays := kept[field.Name]; {
		case stays && used[field.Name]:
			t.Errorf("become uses %s of the configuration: remove it from the list of this test", field.Name)
		case !stays && !used[field.Name]:
			t.Errorf("become does not use %s of the configuration: use it there, or list it in this test with the reason", field.Name)
		}
	}
}
