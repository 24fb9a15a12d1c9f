//go:build linux

package e2e

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestCopyFS(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	tree := fstest.MapFS{
		"run.sh":       {Data: []byte("#!/bin/sh\n"), Mode: 0o555},
		"a/b/read.txt": {Data: []byte("text"), Mode: 0o400},
		"a/empty":      {Mode: fs.ModeDir | 0o500},
		"a/-rf\n é":    {Data: []byte("odd")},
		"link":         {Data: []byte("a/b/read.txt"), Mode: fs.ModeSymlink},
	}
	must.Do(t, sb.Files.CopyFS(t.Context(), tree, "deep/copy dir"))
	const list = `cd "$HOME/deep/copy dir" && find . -mindepth 1 -printf '%P %m %u %l|' | tr '\n' '?'; find ~ -maxdepth 1 -name '.e2bctl-*'`
	got := sandboxtest.Run(t, sb, list)
	for _, want := range []string{"run.sh 755 user |", "a/b/read.txt 644 user |", "a/empty 755 user |", "a/-rf? é 644 user |", "link 777 user a/b/read.txt|"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, ".e2bctl-") {
		t.Errorf("the archive is left: %q", got)
	}

	// Existing files stay, and the rest is copied.
	tree["a/b/read.txt"] = &fstest.MapFile{Data: []byte("another")}
	tree["new"] = &fstest.MapFile{Data: []byte("new")}
	err := sb.Files.CopyFS(t.Context(), tree, "deep/copy dir")
	if _, ok := errors.AsType[*fs.PathError](err); !ok || !errors.Is(err, fs.ErrExist) {
		t.Errorf("over files that exist: %v, want fs.ErrExist", err)
	}
	if got := sandboxtest.Run(t, sb, `cd "deep/copy dir"; cat a/b/read.txt new`); got != "textnew" {
		t.Errorf("after the second copy there is %q, want %q", got, "textnew")
	}

	err = sb.Files.CopyFS(t.Context(), fstest.MapFS{"pipe": {Mode: fs.ModeNamedPipe}}, "other")
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("a pipe: %v, want fs.ErrInvalid with its name", err)
	}
	if err := sb.Files.CopyFS(t.Context(), fstest.MapFS{"x": {}}, "/etc/copied"); err == nil || !strings.Contains(err.Error(), "Permission denied") {
		t.Errorf("without the right to: %v, want the reason", err)
	}
}

// listed is an error that cannot be compared, such as those of archive/tar.
type listed []string

func (e listed) Error() string { return strings.Join(e, ", ") }

// failingFS fails with an error that cannot be compared.
type failingFS struct{}

func (failingFS) Open(string) (fs.File, error) { return nil, listed{"no", "luck"} }

// The program survives the copy of any file system, regardless of its content
// and errors.
func TestCopyOddFS(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	if err := sb.Files.CopyFS(t.Context(), fstest.MapFS{"a\x00b": {}}, "odd"); err == nil || !strings.Contains(err.Error(), "a\x00b") {
		t.Errorf("a NUL byte: %v, want an error with the name", err)
	}
	err := sb.Files.CopyFS(t.Context(), failingFS{}, "odd")
	if _, ok := errors.AsType[listed](err); !ok {
		t.Errorf("a file system that fails: %v, want its error", err)
	}
	if err := sb.Files.CopyFS(t.Context(), fstest.MapFS{"x": {}}, "/proc/File exists"); err == nil || errors.Is(err, fs.ErrExist) {
		t.Errorf("a directory that cannot be made: %v, want an error other than fs.ErrExist", err)
	}
	if err := sb.Files.CopyFS(t.Context(), fstest.MapFS{"x": {}}, "/bin/bash"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file in place of the directory: %v, want fs.ErrExist", err)
	}
	if got := sandboxtest.Run(t, sb, `find ~ -name '.e2bctl-*' -o -name odd`); got != "" {
		t.Errorf("left behind: %q", got)
	}
}
