package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// waitExceptions are the functions that may contain waits that TestWaits reports, each
// with the reason why no busy machine makes its test fail.
var waitExceptions = map[string]string{
	"cli create":                                      "the fake service answers late, for a client that has given up by then or will do so",
	"cli/internal/cmd/local TestUp":                   "what would be wrong has that time to happen",
	"cli/internal/cmd/local TestUpWhileInUse":         "what would be wrong has that time to happen",
	"internal/cloud/control TestFollowedLogs":         "its entries come in groups, however late",
	"internal/cloud/control TestLogs":                 "its entries have times of their own, however late",
	"internal/cloud/engine/gvisor TestMemoryCutOff":   "it looks until something is written, and tries again",
	"internal/cloud/engine/room TestFreezeAndClose":   "it ends a sandbox at different moments of its freeze",
	"internal/cloud/engine/room TestWarmPoolRoomEnds": "it ends a room at different moments",
	"internal/cloud/engine/room serveUntilKilled":     "it waits without end for a test that has an end of its own",
	"internal/cloud/engine/room usedSoon":             "what is frozen uses no time, however long it is looked at",
	"internal/cloud/lifecycle TestEarlierPause":       "it waits in bubbles",
	"internal/e2e TestExpiredSandbox":                 "the handle's clock has to reach the end of the lifetime, and may be later",
	"internal/e2e pass":                               "it has faults act at any moment",
	"internal/httpwait TestDo":                        "its handlers are called in bubbles",
	"internal/httpwait drip":                          "it is called in bubbles",
	"internal/realservice runCut":                     "a pause that is too short is repeated, longer",
	"sandbox RoundTrip":                               "the farm of the pool's tests is in bubbles",
	"sandbox TestInterruptThatIsLate":                 "what would be wrong has that time to happen",
}

// TestWaits checks that tests wait with package patience, and that none fails because a
// machine was busy. It reports waits and limits of a test's own, and bounds on how long
// something takes. In a bubble of testing/synctest all of these are allowed.
func TestWaits(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	packages := map[string][]*ast.File{} // by directory
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
		return err
	})
	must.Do(t, err)
	if len(packages) < 40 {
		t.Fatalf("found %d packages with tests, want at least 40", len(packages))
	}
	unused := maps.Clone(waitExceptions)
	for _, directory := range slices.Sorted(maps.Keys(packages)) {
		name := filepath.ToSlash(strings.TrimPrefix(directory, ".."+string(filepath.Separator)))
		for _, found := range waitsIn(packages[directory]) {
			where := name + " " + found.function
			if _, excepted := waitExceptions[where]; !excepted {
				t.Errorf("%s: %s has %s", files.Position(found.at), where, found.what)
			}
			delete(unused, where)
		}
	}
	for where := range unused {
		t.Errorf("%s is an exception, and nothing is found there: remove it", where)
	}
}

// The findings of TestWaits, with the remedies.
const (
	ownWait  = "a wait of its own: use patience.Until or Receive"
	ownLimit = "a limit of its own: use patience.Context or Deadline, or count without a clock"
	bound    = "a bound on time, which a busy machine exceeds: measure it in a bubble of synctest, use patience.Soon, or log it"
)

// A wait is a place where a test depends on how fast the machine is.
type wait struct {
	at       token.Pos
	function string
	what     string
}

// waitsIn finds the waits in the test files of one package.
func waitsIn(files []*ast.File) (found []wait) {
	makers := bubbleMakers(files)
	bubbled := bubbles(files, makers)
	for _, file := range files {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil || bubbled[entity(function)] {
				continue
			}
			elapsed := elapsedIn(function)
			outside(function.Body, makers, func(n ast.Node) {
				if what := waitAt(n, elapsed); what != "" {
					found = append(found, wait{n.Pos(), function.Name.Name, what})
				}
			})
		}
	}
	return found
}

// waitAt returns the finding at one node, or "" if there is none. elapsed are the
// variables that hold how long something took.
func waitAt(n ast.Node, elapsed map[string]bool) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		return waitCall(n)
	case *ast.IfStmt:
		if bounded(n.Cond, elapsed) && fails(n.Body) {
			return bound
		}
	case *ast.CaseClause:
		for _, condition := range n.List {
			if bounded(condition, elapsed) && fails(n) {
				return bound
			}
		}
	}
	return ""
}

// waitCall returns the kind of a call: a wait, or a limit of at least shortest. A call
// with a random duration chooses the moment at which a test acts, and is no wait.
func waitCall(call *ast.CallExpr) string {
	const shortest = 10 * time.Second // a test that reaches such a limit on purpose would be slow
	function, method := of(call.Fun)
	switch {
	case function == "time" && slices.Contains([]string{"After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, method):
		if !mentions(call.Args[0], "rand") && !mentions(call.Args[0], "patience") {
			return ownWait
		}
	case method == "After" || method == "Before":
		if isNow(call.Fun.(*ast.SelectorExpr).X) || len(call.Args) == 1 && isNow(call.Args[0]) {
			return ownLimit
		}
	case function == "context" && (method == "WithTimeout" || method == "WithTimeoutCause"):
		if length(call.Args[1]) >= shortest {
			return ownLimit
		}
	case strings.HasPrefix(method, "Set") && strings.HasSuffix(method, "Deadline") && len(call.Args) == 1:
		if add, ok := call.Args[0].(*ast.CallExpr); ok && len(add.Args) == 1 && mentions(add, "Now") && length(add.Args[0]) >= shortest {
			return ownLimit
		}
	}
	return ""
}

// bounded reports whether a condition holds when something took long.
func bounded(condition ast.Expr, elapsed map[string]bool) (is bool) {
	const longest = time.Hour // no machine is busy for so long
	took := func(e, than ast.Expr) bool {
		name, isName := e.(*ast.Ident)
		return (isElapsed(e) || isName && elapsed[name.Name]) && length(than) < longest
	}
	ast.Inspect(condition, func(n ast.Node) bool {
		if c, ok := n.(*ast.BinaryExpr); ok {
			switch c.Op {
			case token.GTR, token.GEQ:
				is = is || took(c.X, c.Y)
			case token.LSS, token.LEQ:
				is = is || took(c.Y, c.X)
			}
		}
		return true
	})
	return is
}

// elapsedIn returns the variables of a function that hold how long something took. It
// recognises them by their assigned values, or by their names if a call returns several
// values.
func elapsedIn(function *ast.FuncDecl) map[string]bool {
	elapsed := map[string]bool{"took": true, "elapsed": true, "passed": true, "waited": true}
	ast.Inspect(function, func(n ast.Node) bool {
		if assigned, ok := n.(*ast.AssignStmt); ok && len(assigned.Lhs) == len(assigned.Rhs) {
			for i, value := range assigned.Rhs {
				if name, ok := assigned.Lhs[i].(*ast.Ident); ok {
					elapsed[name.Name] = isElapsed(value)
				}
			}
		}
		return true
	})
	return elapsed
}

// isElapsed reports whether an expression is time.Since(x) or a.Sub(b).
func isElapsed(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	function, method := of(call.Fun)
	return function == "time" && method == "Since" || method == "Sub"
}

func isNow(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	function, method := of(call.Fun)
	return function == "time" && method == "Now"
}

// of returns the name before the dot of a call, if it is one, and the name after it.
func of(called ast.Expr) (before, after string) {
	selector, ok := called.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	if name, ok := selector.X.(*ast.Ident); ok {
		before = name.Name
	}
	return before, selector.Sel.Name
}

// length evaluates a duration like 2*time.Minute. It returns 0 for an expression that
// is no such constant.
func length(e ast.Expr) time.Duration {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op == token.MUL {
			return time.Duration(int64(length(e.X)) * int64(length(e.Y)))
		}
	case *ast.BasicLit:
		n, _ := strconv.ParseInt(e.Value, 0, 64)
		return time.Duration(n)
	case *ast.SelectorExpr:
		return map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[e.Sel.Name]
	}
	return 0
}

// fails reports whether statements can fail the test.
func fails(n ast.Node) (can bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			_, method := of(call.Fun)
			can = can || slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow"}, method)
		}
		return true
	})
	return can
}

// mentions reports whether a name occurs in an expression.
func mentions(e ast.Expr, name string) (does bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if found, ok := n.(*ast.Ident); ok {
			does = does || found.Name == name
		}
		return true
	})
	return does
}

// TestWaitsAreFound checks TestWaits itself.
func TestWaitsAreFound(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`select { case <-c: case <-time.After(time.Minute): t.Fatal("hangs") }`:                           ownWait,
		`timer := time.NewTimer(limit); <-timer.C`:                                                        ownWait,
		`for end := time.Now().Add(limit); !ok(); { if time.Now().After(end) { t.Fatal() } }`:             ownLimit,
		`for !ok() && end.After(time.Now()) {}`:                                                           ownLimit,
		`ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second); defer cancel(); use(ctx)`:       ownLimit,
		`_ = conn.SetReadDeadline(time.Now().Add(time.Minute))`:                                           ownLimit,
		`if time.Since(start) > 5*time.Second { t.Error("slow") }`:                                        bound,
		`d := time.Since(start); if err != nil || bound <= d { t.Errorf("%v", d) }`:                       bound,
		`if took := end.Sub(start); took >= bound { t.Fatalf("%v", took) }`:                               bound,
		`took, err := measured(); switch { case took > bound: t.Error(took) }`:                            bound,
		`synctest.Test(t, func(t *testing.T) { bubbled(t) }); outside(t)`:                                 ownWait,
		`synctest.Test(t, func(t *testing.T) { <-time.After(time.Hour) })`:                                "",
		`synctest.Test(t, func(t *testing.T) { bubbled(t) })`:                                             "",
		`synctest.Test(t, func(t *testing.T) { if time.Since(start) > 0 { t.Error() } })`:                 "",
		`<-time.After(time.Duration(rand.Int64N(int64(time.Second))))`:                                    "",
		`ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond); defer cancel(); use(ctx)`: "",
		`_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))`:                                      "",
		`took := allocated(f); if took > 1<<20 { t.Error(took) }`:                                         "",
		`if time.Since(modified) > 24*time.Hour { t.Error("old") }`:                                       "",
		`bubble(t, func(t *testing.T) { <-time.After(time.Hour) })`:                                       "",
		`<-time.After(time.Until(x)); synctest.Test(t, func(t *testing.T) {})`:                            ownWait,
		`if time.Since(start) < time.Second { t.Error("too soon") }`:                                      "",
		`if took := time.Since(start); took > bound { t.Logf("%v", took) }`:                               "",
		`defer time.AfterFunc(patience.Limit, end).Stop()`:                                                "",
		`patience.Until(t, "it is so", ok)`:                                                               "",
	} {
		source := fmt.Sprintf("package p\nfunc TestX(t *testing.T) {\n%s\n}\nfunc bubbled(t *testing.T) { <-time.After(time.Hour) }\n"+
			"func bubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, func(t *testing.T) { f(t) }) }\n", body)
		if strings.Contains(body, "outside(t)") {
			source += "func outside(t *testing.T) { bubbled(t) }\n"
		}
		file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		got := ""
		for _, found := range waitsIn([]*ast.File{file}) {
			got = found.what
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
}
