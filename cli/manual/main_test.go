package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestManualIsFresh checks that the pages beside this file are those of today's commands.
func TestManualIsFresh(t *testing.T) {
	t.Setenv("E2BCTL_LOCAL", "")
	t.Setenv("E2BCTL_ANNOTATE", "")
	fresh := t.TempDir()
	must.Do(t, write(fresh, "", ""))
	if diff := cmp.Diff(pages(t, "."), pages(t, fresh)); diff != "" {
		t.Errorf("the manual is stale: run make manual (-have +want):\n%s", diff)
	}
}

// TestPagesForMan checks that each command has a page that man can show.
func TestPagesForMan(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, write("", dir, ""))
	page, err := os.ReadFile(filepath.Join(dir, "e2bctl-run.1"))
	must.Do(t, err)
	for _, want := range []string{`.TH "E2BCTL" "1"`, ".SH NAME", "e2bctl-run", "--upload"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page of run has no %s", want)
		}
	}
	if got, want := len(glob(t, dir, "*.1")), len(glob(t, ".", "*.md")); got != want {
		t.Errorf("got %d pages for man, want one for each of the %d in Markdown", got, want)
	}
}

// TestMistakes checks that a call that would write nothing says so.
func TestMistakes(t *testing.T) {
	if err := write("", "", ""); err == nil {
		t.Error("got no error without a directory")
	}
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	if write(file, "", "") == nil || write("", file, "") == nil || write("", "", file) == nil {
		t.Error("got no error for a file in place of a directory")
	}
}

func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range glob(t, dir, "*.md") {
		content, err := os.ReadFile(name)
		must.Do(t, err)
		found[filepath.Base(name)] = string(content)
	}
	return found
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	must.Do(t, err)
	return names
}
