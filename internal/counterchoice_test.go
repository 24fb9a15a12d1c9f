package internal_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// roomDir has the packages whose choice of a runner is counted.
const roomDir = "internal/cloud/engine/room"

// choiceFiles are the files of the runners, in the server and inside. A line of theirs is
// part of the choice, and is not counted.
var choiceFiles = []string{"namespaces.go", "gvisor.go", "gvisormemory.go", "inplace.go"}

// chooser is the function that chooses a runner, and is not counted either.
const chooser = "chooseRunner"

// isolationValues are the constants of package engine that name isolation levels.
var isolationValues = []string{"Auto", "Full", "Restricted", "None"}

// choice finds the places that depend on a choice that was made elsewhere. It follows
// values through names: a field, variable or function whose value comes from a known
// name is known, too, so a new name does not hide a place. It knows names and no types.
type choice struct {
	sources *sources
	known   map[string]bool
	// seed reports whether an expression depends on the choice by itself.
	seed func(ast.Expr) bool
}

// levels returns the comparisons of isolation values, the uses of values that were made of
// such comparisons, and the comparisons of the root directory of a restricted sandbox.
func (s *sources) levels() []string {
	c := &choice{sources: s, known: map[string]bool{}, seed: comparesIsolation}
	return c.places()
}

// gVisors returns the uses of the handle of runsc and of values that were made of it, and
// of the flags that the runner of gVisor sets for the processes inside.
func (s *sources) gVisors() []string {
	c := &choice{sources: s, known: map[string]bool{"Runsc": true, "runsc": true}, seed: func(ast.Expr) bool { return false }}
	ast.Inspect(s.trees[roomDir+"/gvisor.go"], func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Lhs) == 1 && named(assign.Rhs[0]) == "true" {
			if field, ok := assign.Lhs[0].(*ast.SelectorExpr); ok {
				c.known[field.Sel.Name] = true
			}
		}
		return true
	})
	return c.places()
}

func (c *choice) places() (places []string) {
	for before := -1; before != len(c.known); {
		before = len(c.known)
		for _, name := range c.sources.names(false, roomDir) {
			ast.Inspect(c.sources.trees[name], c.learn)
		}
	}
	for _, name := range c.sources.names(false, roomDir) {
		if slices.Contains(choiceFiles, path.Base(name)) {
			continue
		}
		written := map[ast.Node]bool{} // expressions that get a value
		ast.Inspect(c.sources.trees[name], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return n.Name.Name != chooser
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					written[left] = true
				}
			case ast.Expr:
				if !written[n] && (c.seed(n) || c.uses(n)) {
					line := c.sources.set.Position(n.Pos()).Line
					places = append(places, fmt.Sprintf("%s:%d: %.100s", name, line, strings.TrimSpace(c.sources.files[name][line-1])))
				}
			case *ast.CaseClause:
				places = append(places, c.cases(name, n)...)
			}
			return true
		})
	}
	return slices.Compact(places) // a line counts once
}

// cases returns the cases of a switch that are isolation values themselves.
func (c *choice) cases(name string, clause *ast.CaseClause) (places []string) {
	for _, value := range clause.List {
		if c.known["Runsc"] || !isolationValue(value) {
			continue
		}
		line := c.sources.set.Position(value.Pos()).Line
		places = append(places, fmt.Sprintf("%s:%d: %.100s", name, line, strings.TrimSpace(c.sources.files[name][line-1])))
	}
	return places
}

// learn adds the fields and functions whose value depends on the choice.
func (c *choice) learn(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if field, ok := left.(*ast.SelectorExpr); ok && len(n.Lhs) == len(n.Rhs) && c.depends(n.Rhs[i]) {
				c.known[field.Sel.Name] = true
			}
		}
	case *ast.KeyValueExpr:
		if key := named(n.Key); key != "" && c.depends(n.Value) {
			c.known[key] = true
		}
	case *ast.FuncDecl:
		results := n.Type.Results
		if n.Body == nil || results == nil || len(results.List) != 1 || named(results.List[0].Type) != "bool" {
			break
		}
		if last, ok := n.Body.List[len(n.Body.List)-1].(*ast.ReturnStmt); ok && len(last.Results) == 1 && c.depends(last.Results[0]) {
			c.known[n.Name.Name] = true
		}
	}
	return true
}

// depends reports whether the value of an expression depends on the choice: it is a known
// value, or a condition that begins with one.
func (c *choice) depends(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.depends(e.X)
	case *ast.UnaryExpr:
		return c.depends(e.X)
	case *ast.CallExpr:
		return len(e.Args) == 0 && c.depends(e.Fun)
	case *ast.BinaryExpr:
		return c.seed(e) || (e.Op == token.LAND || e.Op == token.LOR) && c.depends(e.X)
	}
	return c.uses(e)
}

// uses reports whether an expression is a field or method with a known name.
func (c *choice) uses(e ast.Expr) bool {
	field, ok := e.(*ast.SelectorExpr)
	return ok && c.known[field.Sel.Name]
}

// comparesIsolation reports whether an expression compares an isolation value, or asks for the
// root directory that only restricted sandboxes have.
func comparesIsolation(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.EQL && b.Op != token.NEQ {
		return false
	}
	root := func(x ast.Expr) bool {
		field, ok := x.(*ast.SelectorExpr)
		return ok && strings.EqualFold(field.Sel.Name, "root")
	}
	return isolationValue(b.X) || isolationValue(b.Y) || named(b.Y) == "nil" && root(b.X)
}

// isolationValue reports whether an expression is a constant such as engine.Full.
func isolationValue(e ast.Expr) bool {
	value, ok := e.(*ast.SelectorExpr)
	return ok && named(value.X) == "engine" && slices.Contains(isolationValues, value.Sel.Name)
}

// named returns the name of an identifier, and "" for every other expression.
func named(e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
