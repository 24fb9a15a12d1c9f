package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// installed runs e2bctl mcp install on a terminal on which answer is typed.
func installed(t *testing.T, answer string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	ios := cmdutil.NewIOStreams(strings.NewReader(answer), &out, &errs)
	ios.InIsTerminal = true
	f := cmdutil.NewFactory(ios, nil)
	root := &cobra.Command{Use: "e2bctl", SilenceErrors: true, SilenceUsage: true}
	f.AddFlags(root)
	root.AddCommand(NewCmdMCP(f))
	root.SetArgs(append([]string{"mcp", "install"}, args...))
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// The change is made after yes alone, and the question says whether a server is replaced.
func TestQuestion(t *testing.T) {
	home := ownDirectories(t)
	file := filepath.Join(home, ".cursor", "mcp.json")
	for _, answer := range []string{"", "\n", "n\n"} {
		_, shown, err := installed(t, answer, "cursor")
		if err == nil || !strings.Contains(shown, "+    \"e2bctl\": {\n") || !strings.HasSuffix(shown, "Write "+file+"? [y/N] ") {
			t.Errorf("%q: got %v and\n%s", answer, err, shown)
		}
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("after no, the home has %v (%v), want nothing", entries, err)
	}
	out, _, err := installed(t, "yes\n", "cursor")
	if err != nil || out != file+"\n" {
		t.Errorf("got %q, %v, want %s", out, err, file)
	}
	_, shown, err := installed(t, "y\n", "cursor", "--", "--verbose")
	if err != nil || !strings.Contains(shown, "+        \"--verbose\"\n") || !strings.Contains(shown, "Replace the server e2bctl in "+file+"? [y/N] ") {
		t.Errorf("got %v and\n%s, want the change and a question", err, shown)
	}
	if _, shown, err = installed(t, "", "cursor", "--", "--verbose"); err != nil || shown != file+" has this server already: nothing changes\n" {
		t.Errorf("again: got %v and\n%s, want no question", err, shown)
	}
}

// The clients read files at these places.
func TestPlaces(t *testing.T) {
	home := ownDirectories(t)
	t.Chdir(t.TempDir())
	project, err := os.Getwd()
	must.Do(t, err)
	config, err := os.UserConfigDir()
	must.Do(t, err)
	for _, c := range []struct{ client, own, ofProject, variable, moved string }{
		{"claude", home + "/.claude.json", ".mcp.json", "CLAUDE_CONFIG_DIR", ".claude.json"},
		{"cursor", home + "/.cursor/mcp.json", ".cursor/mcp.json", "", ""},
		{"codex", home + "/.codex/config.toml", ".codex/config.toml", "CODEX_HOME", "config.toml"},
		{"vscode", config + "/Code/User/mcp.json", ".vscode/mcp.json", "VSCODE_APPDATA", "Code/User/mcp.json"},
		{"vscode", config + "/Code/User/mcp.json", ".vscode/mcp.json", "VSCODE_PORTABLE", "user-data/User/mcp.json"},
		{"gemini", home + "/.gemini/settings.json", ".gemini/settings.json", "GEMINI_CLI_HOME", ".gemini/settings.json"},
	} {
		client, _ := findClient(c.client)
		check := func(isProject bool, want string) {
			if got, err := client.file(isProject); err != nil || got != filepath.FromSlash(want) {
				t.Errorf("%s: got %s, %v, want %s", c.client, got, err, want)
			}
		}
		check(false, c.own)
		check(true, project+"/"+c.ofProject)
		if c.variable != "" {
			t.Setenv(c.variable, "moved")
			check(false, project+"/moved/"+c.moved)
			t.Setenv(c.variable, "")
		}
	}
	for _, name := range []string{"HOME", "USERPROFILE", "AppData"} {
		t.Setenv(name, "")
	}
	for _, name := range clientNames() {
		if _, _, err := installed(t, "y\n", name); err == nil || !strings.Contains(err.Error(), "set that, or use --project") {
			t.Errorf("%s without a home: got %v", name, err)
		}
	}
}

// Variables are named if they are set, and the key also when that is wished.
func TestVariables(t *testing.T) {
	ownDirectories(t)
	want := func(client, entry string, flags ...string) {
		t.Helper()
		out, _, err := installed(t, "", append([]string{client, "--print", "--name", "x"}, flags...)...)
		if err != nil || !strings.Contains(out, entry) || strings.Contains(out, "0123456789") {
			t.Errorf("%s %q: got %v and\n%s, want %s in it and no value", client, flags, err, out, entry)
		}
	}
	want("claude", "\"mcp\"\n      ]\n    }\n")
	want("claude", `"E2B_API_KEY": "${E2B_API_KEY}"`, "--with-key")
	t.Setenv("E2B_API_KEY", "e2b_0123456789")
	t.Setenv("E2B_DOMAIN", "0123456789.test")
	t.Setenv("XDG_RUNTIME_DIR", "/run/0123456789")
	want("claude", "\"env\": {\n        \"E2B_API_KEY\": \"${E2B_API_KEY}\",\n        \"E2B_DOMAIN\": \"${E2B_DOMAIN}\"\n      }")
	want("codex", "[mcp_servers.x]\n")
	want("codex", "env_vars = ['E2B_API_KEY', 'E2B_DOMAIN', 'XDG_RUNTIME_DIR']\n")
}

// Mistakes of the command line write nothing, and never show a key.
func TestMistakes(t *testing.T) {
	home := ownDirectories(t)
	const key = "e2b_0123456789abcdef0123456789abcdef01234567"
	t.Setenv("E2B_API_KEY", "another-secret")
	for _, c := range []struct{ args, want string }{
		{"", "want one client: claude, cursor, codex, vscode, gemini"},
		{"claude cursor", "want one client"},
		{"-- claude", "want one client"},
		{"emacs", `unknown client "emacs"`},
		{"claude --name a.b", "want letters, digits, - and _"},
		{"claude --name=", "want letters, digits, - and _"},
		{"claude --domain x.test", "--domain is for the server: write it after --"},
		{"claude -- --no-such-flag", "flags after --: unknown flag: --no-such-flag"},
		{"claude -- word", "flags after --: "},
		{"claude -- --domain " + key, "number 2 has a key, which is never written"},
		{"claude -- --domain=another-secret", "number 1 has a key"},
	} {
		_, shown, err := installed(t, "y\n", strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error()+shown, "another-secret") || strings.Contains(err.Error()+shown, key) {
			t.Errorf("%s: got %v and %q, want %s", c.args, err, shown, c.want)
		}
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("the home has %v (%v), want nothing", entries, err)
	}
}

// Of several at once, no change is lost.
func TestSeveralAtOnce(t *testing.T) {
	home := ownDirectories(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, _, err := installed(t, "", "claude", "--yes", "--name", fmt.Sprint("server", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(filepath.Join(home, ".claude.json"))
	must.Do(t, err)
	var config struct{ MCPServers map[string]jsonServer }
	must.Do(t, json.Unmarshal(text, &config))
	if len(config.MCPServers) != 8 {
		t.Errorf("the file has %d servers, want 8:\n%s", len(config.MCPServers), text)
	}
}

// The command is the path of this program, which is not the e2bctl of PATH, and in the file of a
// project the name.
func TestProgram(t *testing.T) {
	self, err := os.Executable()
	must.Do(t, err)
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	check := func(isProject bool, want string) {
		t.Helper()
		if got, err := program(isProject); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	check(false, self)
	check(true, "e2bctl")
	in := filepath.Join(dir, "e2bctl")
	if runtime.GOOS == "windows" {
		in += ".exe"
	}
	written(t, in, "", 0o755)
	check(false, self)
	must.Do(t, os.Remove(in))
	must.Do(t, os.Symlink(self, in))
	check(false, "e2bctl")
}

// Each client is found by its name, and no other text is one.
func TestNamesOfClients(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "cursor", "gemini", "vscode"} {
		if c, ok := findClient(name); !ok || c.name != name || c.title == "" || c.format == nil {
			t.Errorf("%s: got %+v, found %t", name, c, ok)
		}
	}
	if c, ok := findClient("code"); ok {
		t.Errorf("got %+v for a name of no client", c)
	}
}

// A key is found anywhere in an argument, and a text that only begins like one is none.
func TestKeysInArguments(t *testing.T) {
	const digits = "0123456789abcdefABCDEF0123456789"
	t.Setenv("E2B_API_KEY", "unlikely")
	for argument, want := range map[string]bool{
		"e2b_" + digits: true, "--x=e2b_1,e2b_" + digits + "f": true, "e2b_" + digits[1:]: false, "e2b_template": false, "e2b_e2b_" + digits: true,
		"e2b_" + digits[1:] + "g": false, digits: false, "": false, "--key=unlikely": true, "nlikely": false,
	} {
		if got := hasKey(argument); got != want {
			t.Errorf("%q: got %t, want %t", argument, got, want)
		}
	}
	t.Setenv("E2B_API_KEY", "nlikely") // too short to tell from a word
	if hasKey("nlikely") || hasKey("") {
		t.Error("a short word is a key")
	}
}
