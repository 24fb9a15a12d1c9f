package internal_test

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// maxOperands limits the operands of a condition of a test. The failure of a
// longer condition does not show the wrong operand.
const maxOperands = 4

// TestConditions checks that no condition in a test of this module has too many
// operands of && and ||. Split it into checks that each print the actual and
// the wanted value, or compare whole values.
func TestConditions(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	parsed := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed++
		var reported token.Pos // the end of the last condition that has too many
		ast.Inspect(file, func(n ast.Node) bool {
			condition, ok := n.(ast.Expr)
			if !ok || condition.Pos() < reported {
				return true
			}
			if got := operands(condition); got > maxOperands {
				reported = condition.End()
				var text strings.Builder
				if err := printer.Fprint(&text, files, condition); err != nil {
					t.Error(err)
				}
				t.Errorf("%s: a condition of %d operands, want at most %d: %s", files.Position(condition.Pos()), got, maxOperands, text.String())
			}
			return true
		})
		return nil
	})
	must.Do(t, err)
	if parsed < 100 {
		t.Fatalf("found %d files of tests, want at least 100", parsed)
	}
}

// operands returns how many operands && and || join in a condition.
func operands(e ast.Expr) int {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return operands(x.X)
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			return operands(x.X)
		}
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			return operands(x.X) + operands(x.Y)
		}
	}
	return 1
}
