package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestReadmeProgram builds and runs the program of the README.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	sandboxtest.New(t) // skips where this machine cannot have one
	program, _ := readmeGo(t)
	if out := buildAndRun(t, program); out != "hello\n42\n" {
		t.Errorf("it printed %q", out)
	}
}

// TestReadmePieces runs the pieces of programs of the README as they stand, each
// in a sandbox of its own.
func TestReadmePieces(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	_, pieces := readmeGo(t)
	if len(pieces) < 6 {
		t.Fatalf("the README has only %d pieces", len(pieces))
	}
	out := buildAndRun(t, pieceProgram(pieces), cloud.Env()...)
	for _, want := range []string{
		"different lines: 2\n", "written: out.csv\n", "for everybody who has it: http://127.0.0.1:", "30 100\r\n",
		"committed ", "200 OK\n", "mean: 4 plot: true\n0\n1\n2\n", "answer: 21.5\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in what they print:\n%s", want, out)
		}
	}
}

// readmeGo gives the Go of the README: its program, and the pieces of others.
func readmeGo(t *testing.T) (program string, pieces []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme(t), -1) {
		if strings.HasPrefix(block[1], "package ") {
			program = block[1]
		} else {
			pieces = append(pieces, block[1])
		}
	}
	if program == "" {
		t.Fatal("the README has no Go program")
	}
	return program, pieces
}

// pieceProgram makes a program that runs each piece as the body of a function
// with what the README says there is.
func pieceProgram(pieces []string) string {
	var body strings.Builder
	for _, piece := range pieces {
		fmt.Fprintf(&body, "func(ctx context.Context, client *sandbox.Client, sb *sandbox.Sandbox, repository string, credentials *sandbox.GitCredentials) error {\n%s\n},\n", piece)
	}
	source := strings.Replace(pieceFrame, "PIECES", body.String(), 1)
	var imports strings.Builder
	for _, path := range []string{
		"context", "errors", "fmt", "io", "io/fs", "log", "net/http", "os", "path/filepath", "strings", "time",
		"github.com/e2bctl/e2bctl/api", "github.com/e2bctl/e2bctl/sandbox", "github.com/e2bctl/e2bctl/sandbox/agent", "github.com/e2bctl/e2bctl/state",
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
	for i, piece := range pieces {
		sb, err := client.Create(ctx)
		if err == nil {
			_, err = sb.Commands.Run(ctx, "git init --bare "+repository, nil)
		}
		if err == nil {
			err = piece(ctx, client, sb, repository, nil)
		}
		if err := errors.Join(err, sb.Close()); err != nil {
			log.Fatalf("piece %d: %v", i+1, err)
		}
	}
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}
}

var pieces = []func(ctx context.Context, client *sandbox.Client, sb *sandbox.Sandbox, repository string, credentials *sandbox.GitCredentials) error{
PIECES}
`

// buildAndRun builds a program of this module, runs it with more variables, and
// returns what it printed.
func buildAndRun(t *testing.T, program string, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds it, race detector or not
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), append(env, "TMPDIR="+dir)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestReadmeCommands checks that the command lines of the README name commands
// and flags that exist.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	lines := regexp.MustCompile(`e2bctl ((?:[a-z]+ ?)+)((?:-[^#;)`+"`"+`]*)?)`).FindAllStringSubmatch(readme(t), -1)
	checked := 0
	for _, line := range lines {
		root := newCmdRoot(newFactory(NewIOStreams(nil, &strings.Builder{}, &strings.Builder{})))
		cmd, _, err := root.Find(strings.Fields(line[1]))
		if err != nil || cmd == root {
			continue // prose
		}
		checked++
		flags, _, _ := strings.Cut(line[2], " -- ")
		for _, word := range strings.Fields(flags) {
			if name, ok := strings.CutPrefix(word, "--"); ok && name != "" && !hasFlag(cmd, name) {
				t.Errorf("%s has no flag --%s", cmd.CommandPath(), name)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d command lines were found", checked)
	}
}

func hasFlag(cmd *cobra.Command, name string) bool {
	return cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
