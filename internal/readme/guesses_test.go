package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// guesses are calls that a Go programmer types who has read only the names of packages. right is
// the right call.
var guesses = []struct{ guess, looked, right string }{
	{`sandbox.New(ctx)`, "sandbox.New", "client.Create"},
	{`sandbox.Create(ctx, sandbox.WithTimeout(time.Hour))`, "WithTimeout", "sandbox.WithExpiry"},
	{`sb.Run(ctx, "ls")`, "sb.Run", "Commands.Run"},
	{`sb.Commands.Run(ctx, "ls")`, "", "CommandParams"},
	{`sb.RunCode(ctx, "6 * 7")`, "", "RunCodeParams"},
	{`sb.Files.Write(ctx, "a.txt", "text", nil)`, "Write of a string", "WriteText"},
	{`sb.Files.ReadFile(ctx, "a.txt")`, "Files.ReadFile", "Files.ReadText"},
	{`sb.Files.Mkdir(ctx, "dir")`, "Files.Mkdir", "Files.MakeDir"},
	{`sb.SetTimeout(ctx, time.Hour)`, "sb.SetTimeout", "SetLifetime"},
	{`sb.GetHost(3000)`, "sb.GetHost", "Host("},
	{`strings.ToUpper(sb.ID)`, "", "func() string"},
	{`sb.Close()`, "", ""},
	{`sb.Kill(ctx)`, "", ""},
}

// Each guess compiles, or the compiler's error names the right call, or a page of package sandbox
// has it beside the looked-for word.
func TestGuesses(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	source.WriteString("package main\nimport (\"context\"; \"strings\"; \"time\"; \"github.com/e2bctl/e2bctl/sandbox\")\nvar _, _ = strings.ToUpper, time.Hour\nfunc main() {}\nfunc guess(ctx context.Context, sb *sandbox.Sandbox) {\n")
	first := strings.Count(source.String(), "\n") + 1
	for _, g := range guesses {
		source.WriteString(g.guess + "\n")
	}
	source.WriteString("}\n")
	file := filepath.Join(t.TempDir(), "main.go")
	must.Do(t, os.WriteFile(file, []byte(source.String()), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "-o", os.DevNull, file).CombinedOutput()
	if err == nil {
		t.Fatal("every guess compiles: the test compares nothing")
	}
	var pages strings.Builder
	for _, r := range readmes(t) {
		if path.Dir(r.name) == "sandbox" {
			pages.WriteString(r.text)
		}
	}
	for i, g := range guesses {
		_, reason, failed := strings.Cut(string(out), fmt.Sprintf("main.go:%d:", first+i))
		reason, _, _ = strings.Cut(reason, "main.go:")
		switch {
		case !failed:
			if g.right != "" {
				t.Errorf("%s compiles: it is not a wrong guess\n%s", g.guess, out)
			}
		case g.right == "":
			t.Errorf("%s does not compile: %s", g.guess, reason)
		case strings.Contains(reason, g.right):
		case g.looked == "" || !names(pages.String(), g.looked, g.right):
			t.Errorf("%s: neither its error nor a page of sandbox names %s: %s", g.guess, g.right, reason)
		}
	}
}

// names reports whether a line of the pages has the right call, and in its comment the looked-for
// word.
func names(pages, looked, right string) bool {
	for line := range strings.Lines(pages) {
		if call, comment, ok := strings.Cut(line, " // "); ok && strings.Contains(call, right) && strings.Contains(comment, looked) {
			return true
		}
	}
	return false
}
