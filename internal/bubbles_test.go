package internal_test

import (
	"go/ast"
	"slices"
	"strings"
)

// outside visits the nodes that are not in a bubble of synctest.
func outside(root ast.Node, makers map[string]bool, visit func(ast.Node)) {
	ast.Inspect(root, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && makesBubble(call, makers) {
			return false
		}
		if n != nil {
			visit(n)
		}
		return true
	})
}

// makesBubble reports whether a call runs its function argument in a bubble.
func makesBubble(call *ast.CallExpr, makers map[string]bool) bool {
	if name, ok := call.Fun.(*ast.Ident); ok {
		return makers[name.Name]
	}
	function, method := of(call.Fun)
	return function == "synctest" && method == "Test"
}

// bubbleMakers returns the functions that run their function argument in a bubble.
func bubbleMakers(files []*ast.File) map[string]bool {
	makers := map[string]bool{}
	for _, file := range files {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, parameter := range function.Type.Params.List {
				if _, takesFunction := parameter.Type.(*ast.FuncType); takesFunction && len(parameter.Names) > 0 {
					name := parameter.Names[0].Name
					makers[function.Name.Name] = makers[function.Name.Name] || usedInBubble(function.Body, name)
				}
			}
		}
	}
	return makers
}

// usedInBubble reports whether a name is used in a bubble, and only there.
func usedInBubble(body ast.Node, name string) bool {
	all, out := 0, 0
	count := func(n *int) func(ast.Node) {
		return func(found ast.Node) {
			if used, ok := found.(*ast.Ident); ok && used.Name == name {
				*n++
			}
		}
	}
	outside(body, nil, count(&out))
	everywhere := count(&all)
	ast.Inspect(body, func(n ast.Node) bool { everywhere(n); return true })
	return all > 0 && out == 0
}

// bubbles returns the functions and types of a package's tests that are used only in
// bubbles of synctest, or by each other. It compares only names, so it may miss one
// that shares its name with something else.
func bubbles(files []*ast.File, makers map[string]bool) map[string]bool {
	inside := map[string]bool{} // the names that are used, and not yet known to be used elsewhere
	users := map[string][]string{}
	declared := map[*ast.Ident]bool{} // the places where a name is only declared
	for _, file := range files {
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				declared[d.Name] = true
				if d.Recv == nil || inside[entity(d)] {
					inside[entity(d)] = !strings.HasPrefix(d.Name.Name, "Test")
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if named, ok := spec.(*ast.TypeSpec); ok {
						inside[named.Name.Name], declared[named.Name] = true, true
					}
				}
			}
		}
	}
	for _, file := range files {
		for _, declaration := range file.Decls {
			user := "" // the user of names outside functions
			if function, ok := declaration.(*ast.FuncDecl); ok {
				user = entity(function)
			}
			outside(declaration, makers, func(n ast.Node) {
				if name, ok := n.(*ast.Ident); ok && name.Name != user && !declared[name] {
					users[name.Name] = append(users[name.Name], user)
				}
			})
		}
	}
	for changed := true; changed; {
		changed = false
		for name := range inside {
			if inside[name] && slices.ContainsFunc(users[name], func(user string) bool { return !inside[user] }) {
				inside[name], changed = false, true
			}
		}
	}
	return inside
}

// entity returns the name that must be in a bubble for a function to be in one: its
// type's, if it is a method.
func entity(function *ast.FuncDecl) string {
	if function.Recv == nil || len(function.Recv.List) == 0 {
		return function.Name.Name
	}
	kind := function.Recv.List[0].Type
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	if generic, ok := kind.(*ast.IndexExpr); ok {
		kind = generic.X
	}
	if name, ok := kind.(*ast.Ident); ok {
		return name.Name
	}
	return function.Name.Name
}
