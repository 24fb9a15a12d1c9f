package internal_test

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// countersFile has the maximum of each counter, its aim and the counted things. A change
// that lowers a counter updates the file in the same commit:
//
//	UPDATE_COUNTERS=1 go test -run TestCounters ./internal
const countersFile = "testdata/counters.txt"

// maxFunction limits the lines of a function: the counter long counts longer ones.
const maxFunction = 70

// counter counts something whose number should fall.
type counter struct {
	name   string
	places func(s *sources) []string
}

// counters are the counters of the house, each with the function that finds the counted
// places.
var counters = []counter{
	{"fd", matching(`\b(mounts|files)\[(last|0|1|2|own|len)`, "internal/cloud/engine/room")},
	{"gvisor", (*sources).gVisors},
	{"level", (*sources).levels},
	{"link", once(matching(`engine/room/`, "internal/cloud/engine/tunnel", "internal/cloud/engine/docker", "internal/cloud/engine/wasm", "internal/cloud/engine/gvisor"))},
	{"config", matching(`json\.Unmarshal\(o\.Config|json\.Marshal\(c\)`, "internal/cloud/engine")},
	{"lacks", matching(`\bErrNo(Layers|Volumes|Mounts|Authority|Images|Ports)\b`, "internal", "sandbox")},
	{"copy", once(matching(`HasSuffix\((destination|target|p\.target|source|e\.Path), ("/"|string)`, "cli"))},
	{"fatal", func(s *sources) []string { return s.match(regexp.MustCompile(`\.Fatal\(err\)$`), true, "") }},
	{"long", (*sources).longFunctions},
	{"pairs", func(s *sources) []string {
		return slices.Concat(s.pairs("sandbox"), s.pairs("internal/cloud/engine/room"), s.pairs("internal/cloud/engine/room/inside"))
	}},
	{"fields", func(s *sources) []string { return s.fields("internal/cloud/engine/room", "Sandbox", "Room") }},
	{"words", matching(`^\s*// [A-Za-z.]+ (is|are) (what|who|whom|where|when|how|why) `, "")},
	{"lines", matching(``, "")},
}

// TestCounters prints the counters, and fails with the places if one has risen.
func TestCounters(t *testing.T) {
	t.Parallel()
	s := readSources(t)
	text, err := os.ReadFile(countersFile)
	must.Do(t, err)
	var updated strings.Builder
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var name string
		var most, aim int
		if strings.HasPrefix(line, "#") {
			updated.WriteString(line)
			continue
		}
		if _, err := fmt.Sscan(line, &name, &most, &aim); err != nil {
			t.Fatalf("%s: %q: want a name, the most, the aim and what is counted: %v", countersFile, line, err)
		}
		at := slices.IndexFunc(counters, func(c counter) bool { return c.name == name })
		if at < 0 {
			t.Errorf("%s: there is no counter %s", countersFile, name)
			continue
		}
		known[name] = true
		places := counters[at].places(s)
		t.Logf("%-8s %6d, aim %d", name, len(places), aim)
		what := strings.Join(strings.Fields(line)[3:], " ")
		fmt.Fprintf(&updated, "%-8s %6d %6d  %s\n", name, len(places), aim, what)
		switch update := os.Getenv("UPDATE_COUNTERS") != ""; {
		case len(places) > most && !update:
			t.Errorf("%s (%s) rose from %d to %d:\n%s", name, what, most, len(places), shown(name, places))
		case len(places) < most-slack[name] && !update:
			t.Errorf("%s (%s) fell from %d to %d: write that with UPDATE_COUNTERS=1", name, what, most, len(places))
		}
	}
	for _, c := range counters {
		if !known[c.name] {
			t.Errorf("%s does not have the counter %s", countersFile, c.name)
		}
	}
	if os.Getenv("UPDATE_COUNTERS") != "" && !t.Failed() {
		if err := os.WriteFile(countersFile, []byte(updated.String()), 0o644); err != nil { //nolint:gosec // all read it
			t.Fatal(err)
		}
	}
}

// slack is the amount by which a counter may fall without an update of the file: the large
// ones change with nearly every commit.
var slack = map[string]int{"fatal": 200, "lines": 2000}

// shown returns the places of a counter, unless there are too many to read.
func shown(name string, places []string) string {
	if name == "lines" {
		return "(in all files that are neither tests nor generated)"
	}
	return strings.Join(places, "\n")
}

// sources are the files of Go of this module, by their paths from its root.
type sources struct {
	files map[string][]string // their lines
	trees map[string]*ast.File
	set   *token.FileSet
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func readSources(t *testing.T) *sources {
	t.Helper()
	s := &sources{map[string][]string{}, map[string]*ast.File{}, token.NewFileSet()}
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil || generated.Match(text) {
			return err
		}
		short := strings.TrimPrefix(filepath.ToSlash(name), "../")
		s.files[short] = strings.Split(string(bytes.TrimSuffix(text, []byte("\n"))), "\n")
		s.trees[short], err = parser.ParseFile(s.set, name, text, parser.SkipObjectResolution|parser.ParseComments)
		return err
	})
	must.Do(t, err)
	if len(s.files) < 500 {
		t.Fatalf("found %d files, want at least 500", len(s.files))
	}
	return s
}

// names returns the test files, or the other files, of a directory and all directories
// below it, in order.
func (s *sources) names(tests bool, dir string) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range maps.Keys(s.files) {
			within := dir == "" || strings.HasPrefix(name, dir+"/")
			if within && strings.HasSuffix(name, "_test.go") == tests && !yield(name) {
				return
			}
		}
	})
}

// match returns the places at which an expression matches, one for each match.
func (s *sources) match(expression *regexp.Regexp, tests bool, dirs ...string) (places []string) {
	for _, dir := range dirs {
		for _, name := range s.names(tests, dir) {
			for i, line := range s.files[name] {
				for range expression.FindAllStringIndex(line, -1) {
					places = append(places, fmt.Sprintf("%s:%d: %.100s", name, i+1, strings.TrimSpace(line)))
				}
			}
		}
	}
	return places
}

// matching counts the matches of an expression outside of tests. The empty one matches
// each line once.
func matching(expression string, dirs ...string) func(*sources) []string {
	compiled := regexp.MustCompile(cmp.Or(expression, "^"))
	return func(s *sources) []string { return s.match(compiled, false, dirs...) }
}

// once counts files in place of matches.
func once(places func(*sources) []string) func(*sources) []string {
	return func(s *sources) []string {
		return slices.CompactFunc(places(s), func(a, b string) bool {
			first, _, _ := strings.Cut(a, ":")
			return strings.HasPrefix(b, first+":")
		})
	}
}

// longFunctions returns the functions outside of tests with too many lines.
func (s *sources) longFunctions() (places []string) {
	for _, name := range s.names(false, "") {
		for _, d := range s.trees[name].Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			first, last := s.set.Position(f.Pos()).Line, s.set.Position(f.End()).Line
			if last-first >= maxFunction {
				places = append(places, fmt.Sprintf("%s:%d: %s has %d lines", name, first, f.Name.Name, last-first+1))
			}
		}
	}
	return places
}

// pairs returns the files of one package that refer to each other: each uses a name that
// the other declares outside of functions.
func (s *sources) pairs(dir string) (places []string) {
	declares, uses := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, name := range s.names(false, dir) {
		if path.Dir(name) != dir {
			continue
		}
		declares[name], uses[name] = map[string]bool{}, map[string]bool{}
		for _, d := range s.trees[name].Decls {
			for _, declared := range declaredBy(d) {
				declares[name][declared] = true
			}
		}
		ast.Inspect(s.trees[name], func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				uses[name][id.Name] = true
			}
			return true
		})
	}
	names := slices.Sorted(maps.Keys(declares))
	usesOf := func(a, b string) bool {
		for declared := range declares[b] {
			if uses[a][declared] && !declares[a][declared] {
				return true
			}
		}
		return false
	}
	for i, a := range names {
		for _, b := range names[i+1:] {
			if usesOf(a, b) && usesOf(b, a) {
				places = append(places, a+" and "+path.Base(b))
			}
		}
	}
	return places
}

// declaredBy returns the names that a declaration gives to the package. Methods have those
// of their types.
func declaredBy(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name != "init" {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.Name != "_" {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// fields returns the fields of types of a package.
func (s *sources) fields(dir string, types ...string) (places []string) {
	for _, name := range s.names(false, dir) {
		if path.Dir(name) != dir {
			continue
		}
		ast.Inspect(s.trees[name], func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !slices.Contains(types, spec.Name.Name) {
				return true
			}
			shape, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range shape.Fields.List {
				line := s.set.Position(field.Pos()).Line
				for range max(1, len(field.Names)) {
					places = append(places, fmt.Sprintf("%s:%d: %s", name, line, strings.TrimSpace(s.files[name][line-1])))
				}
			}
			return false
		})
	}
	return places
}
