package cli

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// newShell returns the environment of a shell, and skips a test on a machine without that shell.
func newShell(t *testing.T, name string) (home string, env []string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		pinned.Skip(t, "%s is not on this machine", name)
	}
	home = t.TempDir()
	return home, append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home, "TERM=xterm", "LC_ALL=C.UTF-8", "E2BCTL_LOCAL=", "E2B_API_KEY=")
}

// TestCompletionInFish has fish complete command lines.
func TestCompletionInFish(t *testing.T) {
	t.Parallel()
	home, env := newShell(t, "fish")
	for line, want := range map[string][]string{
		"e2bctl local st":             {"status\tShow the local clouds that run"},
		"e2bctl create --on-timeout=": {"--on-timeout=kill", "--on-timeout=pause"},
		"e2bctl kill --ci=":           {"--ci=job", "--ci=run"},
		"e2bctl ls -o js":             {"json", "jsonl"},
	} {
		cmd := exec.CommandContext(t.Context(), "fish", "--no-config", "-c", "e2bctl completion fish | source; complete -C $argv", "--", line)
		cmd.Env, cmd.Dir = env, home
		out, err := cmd.CombinedOutput()
		must.Do(t, err)
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: completed as %q, want %q", line, got, want)
		}
	}
}

// TestCompletionInZsh presses the tab key in zsh.
func TestCompletionInZsh(t *testing.T) {
	t.Parallel()
	home, env := newShell(t, "zsh")
	p := usesInTerminal(t, home, env, "zsh", "-f", "-i")
	p.types("PS1='> '; autoload -Uz compinit; compinit -u -D; source <(e2bctl completion zsh); echo rea''dy\r")
	p.sees("\nready")
	for typed, completed := range map[string]string{
		"e2bctl local stat\t":            "local status",
		"e2bctl kill --ci=r\t":           "--ci=run",
		"e2bctl create --on-timeout p\t": "--on-timeout pause",
	} {
		p.types(typed)
		p.sees(completed)
		p.types("\x15") // an empty line
	}
	p.types("exit\r")
	must.Do(t, p.cmd.Wait())
}
