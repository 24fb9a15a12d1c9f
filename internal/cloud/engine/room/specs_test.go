//go:build linux

package room

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOptionsSent checks that each field of a sandbox's options either reaches a process or is
// listed with the reason why that process does not receive it. A new field fails the test for
// every process. The fields of [engine.SandboxOptions].Config are no matter of this test: only envd
// receives them, all of them.
func TestOptionsSent(t *testing.T) {
	t.Parallel()
	const server, later, earlier = "only the server needs it", "the second stage receives it", "the first stage has used it"
	inServer := map[string]string{"Limits": "the server applies it", "Tell": server}
	used := optionsUsed(t)
	for process, p := range map[string]struct {
		functions []string          // that make the specification and its files
		notSent   map[string]string // with the reason
	}{
		"first stage": {
			[]string{"initSpec", "buildSpec", "ofHost", "mountLayers", "mountVolumes", "mountHost"},
			map[string]string{"ID": later, "Config": later, "Egress": later, "Names": later, "Memory": later},
		},
		"mounter that shows an authority": {
			[]string{"authoritySpec"},
			map[string]string{
				"ID": later, "Config": later, "Egress": later, "Names": later, "Memory": later, "Files": "buildSpec is for a mounter that replaces files",
				"Layers": "as Files", "Image": "as Files", "Volumes": "a warm sandbox does not become one with volumes", "Mounts": "as Volumes",
			},
		},
		"process that enters an image": {
			[]string{"enterSpec"},
			map[string]string{"ID": later, "Config": later, "Egress": later, "Names": later, "Memory": later, "Files": earlier, "Layers": earlier, "Image": earlier, "Volumes": earlier, "Mounts": earlier},
		},
		"second stage": {
			[]string{"envdSpec", "configure"},
			map[string]string{
				"Config": "newSandbox encodes it for configure", "Files": earlier, "Layers": earlier, "Image": earlier, "Volumes": earlier, "Mounts": earlier, "Authority": earlier,
			},
		},
	} {
		var sent []string
		for _, function := range p.functions {
			fields, known := used[function]
			if !known {
				t.Errorf("%s: there is no function %s", process, function)
			}
			sent = append(sent, fields...)
		}
		for _, field := range reflect.VisibleFields(reflect.TypeFor[engine.SandboxOptions]()) {
			_, unsent := p.notSent[field.Name]
			if inServer[field.Name] != "" {
				unsent = true
			}
			switch isSent := slices.Contains(sent, field.Name); {
			case isSent && unsent:
				t.Errorf("%s: %s uses s.options.%s, but this test lists it as not sent: remove it from notSent or inServer", process, strings.Join(p.functions, " or "), field.Name)
			case !isSent && !unsent:
				t.Errorf("%s: no use of s.options.%s: if the process needs it, send it in %s; else list it in notSent of this test, with the reason", process, field.Name, p.functions[0])
			}
		}
	}
}

// optionsUsed returns the fields of s.options that each function of the package uses.
func optionsUsed(t *testing.T) map[string][]string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	must.Do(t, err)
	used := map[string][]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must.Do(t, err)
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			used[function.Name.Name] = append(used[function.Name.Name], []string{}...)
			ast.Inspect(function, func(n ast.Node) bool {
				field, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if of, ok := field.X.(*ast.SelectorExpr); ok && of.Sel.Name == "options" {
					if owner, ok := of.X.(*ast.Ident); ok && owner.Name == "s" {
						used[function.Name.Name] = append(used[function.Name.Name], field.Sel.Name)
					}
				}
				return true
			})
		}
	}
	return used
}
