package cli

import (
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
	_, rest, _ := strings.Cut(readme(t), "```go\n")
	program, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the README has no Go program")
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary).CombinedOutput()
	if err != nil || string(out) != "hello\n42\n" {
		t.Errorf("it printed %q and ended with %v", out, err)
	}
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
