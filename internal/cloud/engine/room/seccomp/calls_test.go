//go:build linux

package seccomp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCalls checks that the table has the calls and numbers of testdata/calls.txt.
func TestCalls(t *testing.T) {
	t.Parallel()
	lines := map[string]line{}
	previous := ""
	for _, l := range readCalls(t) {
		if l.name <= previous {
			t.Errorf("testdata/calls.txt has %s after %s", l.name, previous)
		}
		lines[l.name], previous = l, l.name
	}
	for name := range inPlace(testKey) {
		if _, ok := lines[name]; !ok {
			t.Errorf("there is no call %s to decide otherwise in place", name)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		want := map[string]int{}
		for name, l := range lines {
			if number, ok := l.numbers[arch]; ok {
				want[name] = number
			}
		}
		compare(t, arch, numbersOf(t, arch), want)
	}
}

// TestNumbers checks that the numbers are those of package unix. The package has
// only the numbers of the architecture that it is compiled for, but its sources
// have all. If a newer version has calls that the table lacks, they need a rule.
func TestNumbers(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix")
	directory, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(strings.TrimSpace(string(directory)), "zsysnum_linux_"+arch+".go")
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		must.Do(t, err)
		want := map[string]int{}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			name, ok := strings.CutPrefix(spec.Names[0].Name, "SYS_")
			if !ok || name == "ARCH_SPECIFIC_SYSCALL" { // the first number of a range
				return true
			}
			number, err := strconv.Atoi(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want[strings.ToLower(name)] = number
			return true
		})
		compare(t, arch, numbersOf(t, arch), want)
	}
}

// numbersOf returns the numbers of the table.
func numbersOf(t *testing.T, arch string) map[string]int {
	t.Helper()
	numbers, names := map[string]int{}, map[int]string{}
	for _, c := range calls {
		number := architectures[arch].number(c)
		if number == none {
			continue
		}
		if other, ok := names[number]; ok {
			t.Errorf("%s and %s have the number %d on %s", c.name, other, number, arch)
		}
		if _, ok := numbers[c.name]; ok {
			t.Errorf("%s is in the table twice", c.name)
		}
		numbers[c.name], names[number] = number, c.name
	}
	return numbers
}

func compare(t *testing.T, arch string, got, want map[string]int) {
	t.Helper()
	if len(want) < 300 {
		t.Fatalf("only %d numbers for %s to compare with", len(want), arch)
	}
	for name, number := range want {
		if have, ok := got[name]; !ok {
			t.Errorf("the table lacks %s, which is %d on %s", name, number, arch)
		} else if have != number {
			t.Errorf("%s is %d on %s, want %d", name, have, arch, number)
		}
	}
	for name, number := range maps.All(got) {
		if _, ok := want[name]; !ok {
			t.Errorf("the table has %s as %d on %s, which has no such call", name, number, arch)
		}
	}
}

// strictness orders answers by how much they allow.
type strictness int

const (
	refuses strictness = iota
	depends            // on the arguments
	allows
)

func (a answer) strictness() strictness {
	switch {
	case a.word == "holder": // no program of the sandbox is the holder
		return refuses
	case a.asks:
		return depends
	case a.allowed:
		return allows
	case a.word != "":
		return depends
	default:
		return refuses
	}
}

// TestDocker checks that testdata/calls.txt has a reason for each difference
// between the filter and Docker's default list.
func TestDocker(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/docker.txt")
	must.Do(t, err)
	docker, section := map[string]strictness{}, refuses
	for text := range strings.Lines(string(data)) {
		switch text = strings.TrimSpace(text); {
		case strings.HasPrefix(text, "#"):
		case text == "allow:":
			section = allows
		case text == "when:":
			section = depends
		default:
			for name := range strings.FieldsSeq(text) {
				docker[name] = section
			}
		}
	}
	for _, l := range readCalls(t) {
		ours, theirs := l.full.strictness(), docker[l.name]
		want := ""
		switch {
		case ours > theirs:
			want = "looser"
		case ours < theirs:
			want = "stricter"
		case ours == depends: // the conditions cannot be compared here
			want = l.differs
		}
		if l.differs != want {
			t.Errorf("%s is said to be %q in comparison with Docker's, and is %q", l.name, l.differs, want)
		}
		if (l.differs == "") != (l.reason == "") {
			t.Errorf("%s is %q in comparison with Docker's because of %q", l.name, l.differs, l.reason)
		}
		if l.place.strictness() > ours {
			t.Errorf("%s is refused to a sandbox with namespaces and allowed in place", l.name)
		}
	}
}
