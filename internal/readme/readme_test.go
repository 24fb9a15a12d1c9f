package readme

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestReadmeProgram builds and runs the program of the top README.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	program, _ := readmeGo(t)
	if diff := cmp.Diff("hello\n42\n", buildAndRun(t, program)); diff != "" {
		t.Errorf("what it prints (-want +got):\n%s", diff)
	}
}

// TestReadmePieces runs the unchanged pieces of programs of all READMEs, each in a sandbox of its
// own.
func TestReadmePieces(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	_, pieces := readmeGo(t)
	if len(pieces) < 9 {
		t.Fatalf("the READMEs have %d pieces, want at least 9", len(pieces))
	}
	out := buildAndRun(t, pieceProgram(pieces), cloud.Env()...)
	for _, want := range []string{
		"different lines: 2\n", "matching lines: 1\n", "rows: 10\n", "copied: true\n", "written: out.csv\n", "for everybody who has it: http://127.0.0.1:", "30 100\r\n",
		"committed ", "200 OK\n", "forwarded: 200 OK\n", "mean: 4 plot: true\n0\n1\n2\n", "answer: 21.5\n", "prices: 3.0\n", "after the pause: 42\n",
		"copy 1 has the first\n", "of the snapshot: first\n", "greeter: built once\n",
		"lifecycle: sandbox created\n", " processors, memory ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in what they print:\n%s", want, out)
		}
	}
}

// root is the directory of the repository.
const root = "../.."

// topReadme is the README with the one complete program.
const topReadme = "README.md"

// piece is a part of a program, and the README that has it.
type piece struct{ readme, source string }

var (
	goBlock   = regexp.MustCompile("(?s)```go\n(.*?)```")
	codeBlock = regexp.MustCompile("(?s)```.*?```")
)

// readmeGo returns the Go of the READMEs: the program of the top one, and the
// pieces of others.
func readmeGo(t *testing.T) (program string, pieces []piece) {
	t.Helper()
	for _, r := range readmes(t) {
		for _, block := range goBlock.FindAllStringSubmatch(r.text, -1) {
			switch {
			case !strings.HasPrefix(block[1], "package "):
				pieces = append(pieces, piece{r.name, block[1]})
			case r.name != topReadme || program != "":
				t.Errorf("%s has a complete program: only %s has one, and the others have pieces", r.name, topReadme)
			default:
				program = block[1]
			}
		}
	}
	if program == "" {
		t.Fatalf("%s has no Go program", topReadme)
	}
	return program, pieces
}

// pieceProgram makes a program that runs each piece as the body of a function, with the variables
// that the READMEs mention.
func pieceProgram(pieces []piece) string {
	var body strings.Builder
	for _, p := range pieces {
		fmt.Fprintf(&body, "{%q, func(ctx context.Context, client *sandbox.Client, sb *sandbox.Sandbox, repository string, credentials *sandbox.GitCredentials) error {\n%s\n}},\n", p.readme, p.source)
	}
	source := strings.Replace(pieceFrame, "PIECES", body.String(), 1)
	var imports strings.Builder
	for _, path := range []string{
		"context", "errors", "fmt", "io", "io/fs", "log", "net/http", "os", "path/filepath", "strings", "time",
		"github.com/e2bctl/e2bctl/api", "github.com/e2bctl/e2bctl/sandbox", "github.com/e2bctl/e2bctl/sandbox/agent",
		"github.com/e2bctl/e2bctl/sandbox/agent/agentmcp", "github.com/modelcontextprotocol/go-sdk/mcp",
		"github.com/e2bctl/e2bctl/sandbox/template", "github.com/e2bctl/e2bctl/state",
	} {
		if regexp.MustCompile(`\b` + path[strings.LastIndex(path, "/")+1:] + `\.[A-Z]`).MatchString(source) {
			fmt.Fprintf(&imports, "import %q\n", path)
		}
	}
	return "package main\n" + imports.String() + source
}

const pieceFrame = `
func main() {
	ctx := context.Background()
	client, err := sandbox.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	const repository = "/home/user/repository.git"
	for _, piece := range pieces {
		sb, err := client.Create(ctx)
		if err == nil {
			_, err = sb.Commands.Run(ctx, "git init --bare "+repository, nil)
		}
		if err == nil {
			err = piece.run(ctx, client, sb, repository, nil)
		}
		if err := errors.Join(err, sb.Close()); err != nil {
			log.Fatalf("a piece of %s: %v", piece.readme, err)
		}
	}
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}
}

var pieces = []struct {
	readme string
	run    func(ctx context.Context, client *sandbox.Client, sb *sandbox.Sandbox, repository string, credentials *sandbox.GitCredentials) error
}{
PIECES}
`

// buildAndRun builds a program of this module, runs it with more variables, and returns its
// output to stdout.
func buildAndRun(t *testing.T, program string, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	must.Do(t, os.WriteFile(source, []byte(program), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds it, race detector or not
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building it: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), append(env, "TMPDIR="+dir)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running it: %v\n%s%s", err, out, errs.String())
	}
	return string(out)
}

// TestReadmeCommands checks that the command lines of the READMEs name commands
// and flags that exist.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	var lines [][]string
	for _, r := range readmes(t) {
		lines = append(lines, regexp.MustCompile(`e2bctl ((?:[a-z]+ ?)+)((?:-[^#;)\n`+"`"+`]*)?)`).FindAllStringSubmatch(r.text, -1)...)
	}
	checked := 0
	for _, line := range lines {
		var help, errs strings.Builder
		if cli.Run(t.Context(), nil, &help, &errs, append(strings.Fields(line[1]), "--help")) != 0 {
			continue // prose
		}
		checked++
		_, known, _ := strings.Cut(help.String(), "Flags:\n") // without the examples' flags
		flags, _, _ := strings.Cut(line[2], " -- ")
		for _, word := range strings.Fields(flags) {
			isFlag := strings.HasPrefix(word, "--") && word != "--"
			if isFlag && !slices.Contains(strings.Fields(known), word) {
				t.Errorf("e2bctl %s has no flag %s", strings.TrimSpace(line[1]), word)
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d command lines were found, want at least 10", checked)
	}
}

// TestReadmeLinks checks that the links of READMEs to files of this repository, and to headings
// of READMEs, have existing targets.
func TestReadmeLinks(t *testing.T) {
	t.Parallel()
	headings := map[string]string{}
	all := readmes(t)
	for _, r := range all {
		for line := range strings.Lines(r.text) {
			if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
				headings[r.name] += "#" + anchor(title) + "\n"
			}
		}
	}
	checked := 0
	for _, r := range all {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(codeBlock.ReplaceAllString(r.text, ""), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			checked++
			file, heading, _ := strings.Cut(link[1], "#")
			target := r.name
			if file != "" {
				target = filepath.Join(filepath.Dir(r.name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", r.name, link[1], err)
			} else if heading != "" && !strings.Contains(headings[target], "#"+heading+"\n") {
				t.Errorf("%s links to %s: no such heading in %s", r.name, link[1], target)
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d links were found, want at least 30", checked)
	}
}

// anchor returns the link to a heading: in lower case, hyphens for spaces, without other
// punctuation.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(title))
}

// TestExamplesSayWhatTheyTake checks that an example that refers its user to -h lists there its
// arguments besides flags.
func TestExamplesSayWhatTheyTake(t *testing.T) {
	t.Parallel()
	programs, err := filepath.Glob(filepath.Join(root, "examples", "*", "main.go"))
	must.Do(t, err)
	checked := 0
	for _, name := range programs {
		text, err := os.ReadFile(name)
		must.Do(t, err)
		if !strings.Contains(string(text), "ee -h") {
			continue
		}
		checked++
		if !strings.Contains(string(text), "Usage: ") || !strings.Contains(string(text), "flag.Usage = ") {
			t.Errorf("%s sends its user to -h, which shows only flags", name)
		}
	}
	if checked < 5 {
		t.Errorf("%d examples were checked, want at least 5", checked)
	}
}

// maxLines limits the lines of a page, and maxTopLines those of the top README, which a newcomer
// reads in one sitting. firstScreen is the number of lines that are read before anybody scrolls.
const (
	maxLines    = 400
	maxTopLines = 150
	firstScreen = 40
)

// TestReadmesAreShort checks that pages are short enough to be read, and that pages beside a
// README are found: the first screen of the README links to them.
func TestReadmesAreShort(t *testing.T) {
	t.Parallel()
	// The history of versions grows, and everybody knows its place.
	all := slices.DeleteFunc(readmes(t), func(r page) bool { return r.name == "CHANGELOG.md" })
	first := map[string]string{} // of READMEs, by directory
	for _, r := range all {
		lines := strings.SplitAfter(r.text, "\n")
		if path.Base(r.name) == "README.md" {
			first[path.Dir(r.name)] = strings.Join(lines[:min(len(lines), firstScreen)], "")
		}
		most := maxLines
		if r.name == topReadme {
			most = maxTopLines
		}
		if len(lines)-1 > most {
			t.Errorf("%s has %d lines, over %d: move what fewer users need to a page beside it", r.name, len(lines)-1, most)
		}
	}
	for _, r := range all {
		screen, ok := first[path.Dir(r.name)]
		if ok && path.Base(r.name) != "README.md" && !strings.Contains(screen, "]("+path.Base(r.name)) {
			t.Errorf("%s has no link in the first %d lines of the README beside it", r.name, firstScreen)
		}
	}
}

// TestQuestionsOfNewcomers checks that the top README answers questions of newcomers in a line of
// its table: with a link that works, a command to type, or the answer that it does not exist yet.
func TestQuestionsOfNewcomers(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, r := range readmes(t) {
		if r.name == topReadme {
			_, table, _ := strings.Cut(r.text, "## How do I")
			rows = strings.Split(table, "\n")
		}
	}
	for _, question := range []string{
		"mount a host directory", "an image or a Dockerfile of my own", "JavaScript", "one sandbox from several processes",
		"100 sandboxes at once", "in a web page as it comes", "proxy, also one that opens TLS", "keep a sandbox", "memory",
		"timeouts", "which protections hold", "LangChain", "GitHub Actions", "left behind", "a cell hangs", "logs",
		"which versions", "without Go", "upgrade", "Kubernetes",
	} {
		answered := slices.ContainsFunc(rows, func(row string) bool {
			asked, answer, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
			return strings.Contains(asked, question) && (strings.Contains(answer, "](") || strings.Contains(answer, "not yet"))
		})
		if !answered {
			t.Errorf("%s has no answer for %q", topReadme, question)
		}
	}
}

// TestReadmePython checks that the Python of the READMEs is valid.
func TestReadmePython(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: ", err)
	}
	checked := 0
	for _, r := range readmes(t) {
		for _, block := range regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(r.text, -1) {
			checked++
			parse := exec.CommandContext(t.Context(), python, "-c", "import ast, sys; ast.parse(sys.stdin.read())")
			parse.Stdin = strings.NewReader(block[1])
			if out, err := parse.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", r.name, err, out)
			}
		}
	}
	if checked < 2 {
		t.Errorf("%d pieces of Python were found, want at least 2", checked)
	}
}

// page is a README, or a page of .github.
type page struct{ name, text string }

// readmes returns the pages of this repository.
func readmes(t *testing.T) []page {
	t.Helper()
	var pages []page
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			hidden := strings.HasPrefix(entry.Name(), ".") && name != "." && name != ".github"
			if hidden || slices.Contains([]string{"testdata", "node_modules"}, entry.Name()) || name == "cli/manual" { // a program writes that
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		pages = append(pages, page{name, string(text)})
		return err
	})
	must.Do(t, err)
	if len(pages) < 10 {
		t.Fatalf("%d pages were found, want at least 10", len(pages))
	}
	return pages
}
