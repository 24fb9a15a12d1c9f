//go:build linux

package interop

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// methodRow is a row of METHODS.md. A name that a language does not have is empty.
type methodRow struct {
	python, javascript string
	golang             []string
	cloud              string
}

// methodTable reads METHODS.md.
func methodTable(t *testing.T) []methodRow {
	t.Helper()
	text, err := os.ReadFile("METHODS.md")
	must.Do(t, err)
	var rows []methodRow
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Python") {
			continue
		}
		if len(cells) != 4 {
			t.Fatalf("a row has %d cells, want 4: %s", len(cells), line)
		}
		row := methodRow{python: method(cells[0]), javascript: method(cells[1]), cloud: strings.TrimSpace(cells[3])}
		if cells[2] != "none" {
			for name := range strings.SplitSeq(cells[2], ", ") {
				row.golang = append(row.golang, method(name))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// method returns a cell without its quotes, and "" for a dash.
func method(cell string) string { return strings.Trim(strings.TrimSpace(cell), "`–") }

// TestMethodsOfSDKs compares METHODS.md with the SDKs that are installed.
func TestMethodsOfSDKs(t *testing.T) {
	t.Parallel()
	rows := methodTable(t)
	for _, language := range []struct {
		name      string
		installed func(*testing.T) []string
		of        func(methodRow) string
	}{
		{"python", pythonMethods, func(r methodRow) string { return r.python }},
		{"javascript", jsMethods, func(r methodRow) string { return r.javascript }},
	} {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			listed := map[string]int{}
			for _, row := range rows {
				listed[language.of(row)]++
			}
			installed := language.installed(t)
			if len(installed) < 150 {
				t.Errorf("only %d methods were found", len(installed))
			}
			for _, name := range installed {
				if listed[name] != 1 {
					t.Errorf("%s is in METHODS.md %d times, want once", name, listed[name])
				}
			}
			for name := range listed {
				if name != "" && !slices.Contains(installed, name) {
					t.Errorf("METHODS.md has %s, which is no method of the SDK", name)
				}
			}
		})
	}
}

// partOf are the classes whose methods are listed as those of another, which
// inherits them or which they are a step of.
var partOf = map[string]string{
	"SandboxApi":          "Sandbox",
	"TemplateBase":        "Template",
	"TemplateBuilder":     "Template",
	"TemplateFromImage":   "Template",
	"AuthenticatedClient": "ApiClient",
	"Paginator":           "SandboxPaginator",
}

// listedMethods returns the names in the spelling of METHODS.md.
func listedMethods(names []string) []string {
	for i, name := range names {
		if class, name, ok := strings.Cut(name, "."); ok {
			names[i] = cmp.Or(partOf[class], class) + "." + name
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pythonMethods returns the public methods of the newest Python SDKs.
func pythonMethods(t *testing.T) []string {
	interpreter, packages := installPython(t, "newest")
	command := exec.CommandContext(t.Context(), interpreter, filepath.Join("python", "methods.py"))
	command.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, &stderr)
	}
	return listedMethods(strings.Fields(string(out)))
}

var (
	jsClass    = regexp.MustCompile(`^(?:declare (?:abstract )?class (\w+)|interface (Template\w+))`)
	jsFunction = regexp.MustCompile(`^declare function (\w+)`)
	jsMethod   = regexp.MustCompile(`^  ((?:static |abstract |async |private |protected |get |set )*)(\w+)\??[(<]`)
)

// jsMethods returns the public methods of the newest JavaScript SDKs. Their
// declarations mark private ones, and have classes that are exported as types only.
func jsMethods(t *testing.T) []string {
	var names []string
	for _, name := range []string{"e2b", "@e2b/code-interpreter"} {
		text, err := os.ReadFile(filepath.Join(installJS(t, "newest"), "node_modules", name, "dist", "index.d.ts"))
		must.Do(t, err)
		class := ""
		for line := range strings.Lines(string(text)) {
			if at := jsClass.FindStringSubmatch(line); at != nil {
				class = at[1] + at[2]
			}
			if at := jsFunction.FindStringSubmatch(line); at != nil {
				names = append(names, at[1])
			}
			at := jsMethod.FindStringSubmatch(line)
			if class != "" && at != nil && !regexp.MustCompile(`private|protected|get |set `).MatchString(at[1]) && at[2] != "constructor" {
				names = append(names, class+"."+at[2])
			}
			if strings.HasPrefix(line, "}") {
				class = ""
			}
		}
	}
	return listedMethods(names)
}

// TestMethodsOfGo checks that the names of METHODS.md exist in Go.
func TestMethodsOfGo(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, directory := range []string{"api", "sandbox", "sandbox/template"} {
		declarations(t, filepath.Join("..", "..", directory), filepath.Base(directory), declared)
	}
	for _, row := range methodTable(t) {
		for _, name := range row.golang {
			if !declared[name] {
				t.Errorf("%s is %s in Go, which is not there", cmp.Or(row.python, row.javascript), name)
			}
		}
	}
}

// declarations adds the functions and methods of a package.
func declarations(t *testing.T, directory, name string, to map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no Go files: %v", directory, err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		must.Do(t, err)
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			of := name
			if function.Recv != nil {
				receiver := function.Recv.List[0].Type
				if pointer, ok := receiver.(*ast.StarExpr); ok {
					receiver = pointer.X
				}
				of = fmt.Sprintf("%s.%s", name, receiver)
			}
			to[of+"."+function.Name.Name] = true
		}
	}
}

// TestMethodsOfCloud checks the column of METHODS.md on the local cloud: each served
// method is called by a case, and each other one is answered as the row says.
func TestMethodsOfCloud(t *testing.T) {
	t.Parallel()
	cases := map[string]string{"py": sources(t, "python/*cases/*.py"), "mjs": sources(t, "js/*cases/*.mjs")}
	refused := map[string][]string{} // answers by request
	for _, row := range methodTable(t) {
		name := cmp.Or(row.python, row.javascript)
		request, answer, no := strings.Cut(strings.TrimPrefix(row.cloud, "no: `"), "` is ")
		switch {
		case row.cloud == "no request":
		case row.cloud == "served":
			for kind, name := range map[string]string{"py": row.python, "mjs": row.javascript} {
				if name != "" && !regexp.MustCompile(`\b`+name[strings.Index(name, ".")+1:]+`\(`).MatchString(cases[kind]) {
					t.Errorf("%s is served, and no case calls it", name)
				}
			}
		case no:
			refused[request] = append(refused[request], answer)
		default:
			t.Errorf("%s: the local cloud is %q, want served, no request, or no: `METHOD PATH` is STATUS, MESSAGE", name, row.cloud)
		}
	}
	cloud := sharedCloud(t)
	client, err := apiClient(cloud)
	must.Do(t, err)
	defer client.Close()
	created, err := client.Sandboxes.Create(t.Context(), &api.CreateParams{Lifetime: patience.Limit})
	must.Do(t, err)
	id := created.ID
	defer func() {
		if err := client.Sandboxes.Kill(t.Context(), id); err != nil {
			t.Error(err)
		}
	}()
	for request, answers := range refused {
		if strings.Contains(request, "{build}") {
			build, err := client.Templates.Create(t.Context(), "refused", nil)
			must.Do(t, err)
			request = strings.NewReplacer("{template}", build.TemplateID, "{build}", build.BuildID).Replace(request)
		}
		method, path, _ := strings.Cut(strings.ReplaceAll(request, "{sandbox}", id), " ")
		path, body, _ := strings.Cut(path, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, variable(cloud, "E2B_API_URL")+path, strings.NewReader(body))
		must.Do(t, err)
		r.Header.Set("X-API-Key", variable(cloud, "E2B_API_KEY"))
		got := refusal(t, r)
		for _, want := range answers {
			status, message, _ := strings.Cut(want, ", ")
			if strconv.Itoa(got.Code) != status || !strings.HasSuffix(got.Message, ": "+message) {
				t.Errorf("%s: got %d %q, want %s and %q at the end", request, got.Code, got.Message, status, message)
			}
		}
	}
}

// apiError is an error answer of the API.
type apiError struct {
	Code    int
	Message string
}

func refusal(t *testing.T, r *http.Request) (e apiError) {
	t.Helper()
	response, err := clienttest.New(t).Do(r)
	must.Do(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		t.Errorf("%s %s: %d %s: %v", r.Method, r.URL.Path, response.StatusCode, text, err)
	}
	return e
}

// sources returns the text of the files that match a pattern.
func sources(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	var all strings.Builder
	for _, path := range files {
		text, err := os.ReadFile(path)
		must.Do(t, err)
		all.Write(text)
	}
	return all.String()
}
