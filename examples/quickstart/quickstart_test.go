package main

import (
	"bytes"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestLocal runs the program of make demo.
func TestLocal(t *testing.T) {
	out := t.TempDir()
	var printed strings.Builder
	err := run(t.Context(), &printed, true, out)
	if errors.Is(err, local.ErrNoIsolation) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	check(t, printed.String(), out)
}

// TestService runs the same program against a service known only from its
// settings: in the environment, and in a .env file.
func TestService(t *testing.T) {
	cloud := sandboxtest.New(t)
	t.Run("environment", func(t *testing.T) {
		cloud.Setenv(t)
		serve(t)
	})
	t.Run("file", func(t *testing.T) {
		t.Chdir(t.TempDir())
		must.Do(t, os.WriteFile(".env", []byte(strings.Join(cloud.Env(), "\n")+"\n"), 0o600))
		serve(t)
	})
	t.Run("none", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if err := run(t.Context(), t.Output(), false, t.TempDir()); err == nil || !strings.Contains(err.Error(), "E2B_API_KEY") {
			t.Errorf("run without a key: %v", err)
		}
	})
}

func serve(t *testing.T) {
	t.Helper()
	out := t.TempDir()
	var printed strings.Builder
	if err := run(t.Context(), &printed, false, out); err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	check(t, printed.String(), out)
}

// check looks for every step's report and for the picture.
func check(t *testing.T, printed, out string) {
	t.Helper()
	steps := []string{
		`created sandbox \w+`, `read \d+ packages`, `installed [\w-]+ [\d.]+`, `sent them as state`,
		`\| [\d,]+ lines in [\d,]+ files`, `ran snippets/summary.py`, `\| turn +5: change`, `ran snippets/rank.py`,
		`got back: \d+ packages`, `closed the sandbox`,
	}
	rest := printed
	for _, step := range steps {
		at := regexp.MustCompile(step).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("no %q, or not in its place, in:\n%s", step, printed)
		}
		rest = rest[at[1]:]
	}
	if strings.Contains(printed, "no picture") {
		t.Log("matplotlib is not there")
		return
	}
	content, err := os.ReadFile(filepath.Join(out, "packages.png"))
	must.Do(t, err)
	picture, err := png.Decode(bytes.NewReader(content))
	if err != nil || picture.Bounds().Dx() < 400 {
		t.Errorf("the picture of %d bytes: %v", len(content), err)
	}
}
