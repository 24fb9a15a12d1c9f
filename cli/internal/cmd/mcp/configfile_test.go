package mcp

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// ownDirectories gives a test a home of its own, where nothing moves the files of clients.
func ownDirectories(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	for _, name := range []string{"HOME", "USERPROFILE", "AppData"} {
		t.Setenv(name, home)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "VSCODE_PORTABLE", "VSCODE_APPDATA", "GEMINI_CLI_HOME", "E2B_API_KEY", "E2B_API_URL", "E2B_DOMAIN"} {
		t.Setenv(name, "")
	}
	return home
}

// written writes a file, and returns its name.
func written(t *testing.T, name, text string, mode fs.FileMode) string {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must.Do(t, os.WriteFile(name, []byte(text), mode))
	must.Do(t, os.Chmod(name, mode))
	return name
}

// wantFile fails unless a file has this text and, where modes count, this mode.
func wantFile(t *testing.T, name, text string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(name)
	must.Do(t, err)
	info, err := os.Stat(name)
	must.Do(t, err)
	if string(got) != text || info.Mode().Perm() != mode && runtime.GOOS != "windows" {
		t.Errorf("%s: got %q, mode %v, want %q, mode %v", name, got, info.Mode(), text, mode)
	}
}

// A new file and its directories are the user's alone, unless they are a project's.
func TestNewFiles(t *testing.T) {
	home := ownDirectories(t)
	for _, c := range []struct {
		isProject bool
		dir, file fs.FileMode
	}{{false, 0o700, 0o600}, {true, 0o755, 0o644}} {
		name := filepath.Join(home, c.dir.String(), "dir", "mcp.json")
		config, err := readConfig(name)
		must.Do(t, err)
		backup, err := config.replace([]byte("new"), c.isProject)
		must.Do(t, err)
		wantFile(t, name, "new", c.file)
		info, err := os.Stat(filepath.Dir(name))
		must.Do(t, err)
		if info.Mode().Perm() != c.dir && runtime.GOOS != "windows" || backup != "" {
			t.Errorf("the directory has mode %v, want %v; the backup is %q", info.Mode(), c.dir, backup)
		}
	}
}

// A file is replaced behind a link, keeps its mode, and has one backup: the file before the
// latest change.
func TestReplacedFiles(t *testing.T) {
	home := ownDirectories(t)
	file := written(t, filepath.Join(home, "dotfiles", "mcp.json"), "one", 0o640)
	link := filepath.Join(home, "mcp.json")
	must.Do(t, os.Symlink(filepath.Join("dotfiles", "mcp.json"), link))
	for _, text := range []string{"two", "three"} {
		config, err := readConfig(link)
		must.Do(t, err)
		backup, err := config.replace([]byte(text), false)
		must.Do(t, err)
		wantFile(t, file, text, 0o640)
		wantFile(t, backup, string(config.text), 0o640)
	}
	if to, err := os.Readlink(link); err != nil || to != filepath.Join("dotfiles", "mcp.json") {
		t.Errorf("the link leads to %q (%v)", to, err)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	must.Do(t, err)
	if len(entries) != 2 || entries[1].Name() != "mcp.json.e2bctl-backup" {
		t.Errorf("the directory has %v, want the file and its backup", entries)
	}
}

// TestFilesThatChange checks that changes by another program after the file was read are not lost.
func TestFilesThatChange(t *testing.T) {
	home := ownDirectories(t)
	name := filepath.Join(home, "mcp.json")
	config, err := readConfig(name)
	must.Do(t, err)
	written(t, name, "", 0o600) // empty as the one that was not there
	_, err = config.replace([]byte("new"), false)
	must.Is(t, err, errChanged)
	config, err = readConfig(name)
	must.Do(t, err)
	written(t, name, "other", 0o600)
	_, err = config.replace([]byte("new"), false)
	must.Is(t, err, errChanged)
	wantFile(t, name, "other", 0o600)
	if _, err := os.Stat(config.backup()); err == nil {
		t.Error("there is a backup of a file that was not replaced")
	}
}

// TestFilesThatCannotBeReplaced checks that reading a file that cannot be replaced is an error.
func TestFilesThatCannotBeReplaced(t *testing.T) {
	home := ownDirectories(t)
	dangling := filepath.Join(home, "dangling")
	must.Do(t, os.Symlink(filepath.Join(home, "nowhere"), dangling))
	for name, want := range map[string]string{
		dangling: "is a link to " + filepath.Join(home, "nowhere") + ", which does not exist",
		home:     "is a directory, not a file",
		written(t, filepath.Join(home, "readonly"), "{}", 0o444): "is read-only",
		filepath.Join(home, "readonly", "mcp.json"):              "not a directory",
	} {
		if _, err := readConfig(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}
