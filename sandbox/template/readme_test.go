package template

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/command"

	"github.com/e2bctl/e2bctl/internal/must"
)

// difference is a row of the README's table of refused instructions.
type difference struct {
	text string // a Dockerfile
	says string // a part of its error
	last int    // its last line, which the error names
}

// whole returns the Dockerfile with the text of its here-document.
func (d difference) whole() string {
	if strings.Contains(d.text, "<<A") {
		return d.text + "\ntext\nA"
	}
	return d.text
}

// codeSpan is code in a cell of a table.
var codeSpan = regexp.MustCompile("`([^`]+)`")

// readDifferences returns the rows of the README's table.
func readDifferences(t *testing.T) []difference {
	t.Helper()
	text, err := os.ReadFile("README.md")
	must.Do(t, err)
	_, section, _ := strings.Cut(string(text), "\n## What is refused\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var all []difference
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " | ")
		spans := codeSpan.FindAllStringSubmatch(cells[0], -1)
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if len(cells) != 3 {
			t.Fatalf("%s: got %d cells, want 3", line, len(cells))
		}
		var lines []string
		if !strings.HasPrefix(spans[0][1], "FROM ") {
			lines = append(lines, "FROM x")
		}
		for _, span := range spans {
			lines = append(lines, span[1])
		}
		all = append(all, difference{strings.Join(lines, "\n"), cells[1], len(lines)})
	}
	return all
}

// TestReadmeDifferences finds each row of the table refused, with the line and the words that
// the row has.
func TestReadmeDifferences(t *testing.T) {
	t.Parallel()
	dir := differencesContext(t)
	for _, d := range readDifferences(t) {
		_, err := Check(t.Context(), FromDockerfile(strings.NewReader(d.whole()), nil), &BuildParams{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), "line "+strconv.Itoa(d.last)+": ") || !strings.Contains(err.Error(), d.says) {
			t.Errorf("%s:\ngot error %v, want line %d and %q", d.text, err, d.last, d.says)
		}
	}
}

// differencesContext makes the directory that the rows of the table copy from.
func differencesContext(t *testing.T) string {
	t.Helper()
	dir := tree(t, map[string]string{"file": "f", "x": "x", "dir/in": "i", "absolute": "-> /file", "leads-out": "-> ../file", "out[1]": "o", "archive": "text", "q/x/n": "", "r/x": ""})
	must.Do(t, os.WriteFile(filepath.Join(dir, "archive.tar"), []byte(tarOf(t, false)), 0o644))
	return dir
}

// verb is a place in a format.
var verb = regexp.MustCompile(`%(\[\d\])?[a-z]`)

// TestReadmeDifferencesComplete finds each error about a Dockerfile that is in the code either in
// the table or among the mistakes, which Docker refuses as well. It finds each instruction that
// Docker knows taken or in the table, too.
func TestReadmeDifferencesComplete(t *testing.T) {
	t.Parallel()
	all := readDifferences(t)
	texts := slices.Concat(slices.Collect(maps.Keys(mistakes)), slices.Collect(maps.Keys(stageMistakes)), []string{"FROM x\nCOPY [qr] /x/"})
	for _, d := range all {
		texts = append(texts, d.whole())
	}
	dir := differencesContext(t)
	said := []string{FromDockerfile(strings.NewReader("FROM x"), &DockerfileParams{Target: "two"}).err.Error()}
	for _, text := range texts {
		if _, err := Check(t.Context(), FromDockerfile(strings.NewReader(text), nil), &BuildParams{Dir: dir}); err != nil {
			said = append(said, err.Error())
		}
	}
	for _, format := range errorFormats(t) {
		var parts []string
		for _, part := range verb.Split(format, -1) {
			parts = append(parts, regexp.QuoteMeta(part))
		}
		if pattern := regexp.MustCompile(strings.Join(parts, "(?s:.*)")); !slices.ContainsFunc(said, pattern.MatchString) {
			t.Errorf("no row of README.md and no mistake shows the error %q", format)
		}
	}
	for name := range command.Commands {
		name = strings.ToUpper(name)
		taken := slices.Contains([]string{"FROM", "RUN", "COPY", "ADD", "WORKDIR", "USER", "ENV", "ARG", "CMD", "ENTRYPOINT"}, name) || slices.Contains(ignored, name)
		if !taken && !slices.ContainsFunc(all, func(d difference) bool { return d.says == name+" is not supported" }) {
			t.Errorf("README.md does not say what becomes of %s", name)
		}
	}
}

// errorFormats returns the texts of the errors about a Dockerfile, without those that only say
// where another error was.
func errorFormats(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("dockerfile*.go")
	must.Do(t, err)
	var all []string
	for _, file := range append(files, "heredoc.go", "unpack.go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		must.Do(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			f, isSelector := call.Fun.(*ast.SelectorExpr)
			text, isText := call.Args[0].(*ast.BasicLit)
			if !isSelector || !isText || !slices.Contains([]string{"fmt.Errorf", "errors.New", "d.failed"}, types.ExprString(f)) {
				return true
			}
			format, err := strconv.Unquote(text.Value)
			must.Do(t, err)
			if !strings.HasSuffix(format, "%w") {
				all = append(all, format)
			}
			return true
		})
	}
	return all
}
