package transfer

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestWriteLocal writes to names that are not plain files, or that this user may not
// replace.
func TestWriteLocal(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has neither modes nor links that everybody may make")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, mode fs.FileMode) {
		t.Helper()
		if err := writeLocal(name, strings.NewReader("new"), mode); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mode := func(name string) fs.FileMode {
		t.Helper()
		info, err := os.Lstat(at(name))
		must.Do(t, err)
		return info.Mode()
	}
	write(at("program"), 0o755)
	write(at("text"), 0o600)
	if !isExecutable(mode("program")) || isExecutable(mode("text")) {
		t.Errorf("the program has %v and the text %v, want the program alone to be executable", mode("program"), mode("text"))
	}
	must.Do(t, os.WriteFile(at("closed"), nil, 0o600))
	write(at("closed"), 0o755)
	if got := mode("closed"); got != 0o600 {
		t.Errorf("a file that was there has %v, want the mode that it had", got)
	}
	must.Do(t, os.Symlink("text", at("link")))
	write(at("link"), 0o644)
	if got := mode("link"); got.Type() != fs.ModeSymlink {
		t.Errorf("a link became %v, want the file replaced to which it leads", got)
	}
	write(os.DevNull, 0o644) // only root can write beside it
}

func isExecutable(mode fs.FileMode) bool { return mode&0o111 == 0o111 }

// TestWriteLocalNowhere checks that a name below a plain file is an error, and leaves the file as
// it was.
func TestWriteLocalNowhere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, []byte("kept"), 0o600))
	for _, name := range []string{"below", "below/it"} {
		must.Is(t, writeLocal(filepath.Join(file, name), strings.NewReader("new"), 0o600), syscall.ENOTDIR)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("got %q and error %v, want the file as it was", text, err)
	}
}

// TestRemoved checks that only a file that stays is an error.
func TestRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := filepath.Join(dir, "in", "file")
	must.Do(t, writeLocal(at, strings.NewReader("text"), 0o600))
	if err := removed(filepath.Dir(at)); err == nil {
		t.Error("a directory with a file was removed, or seems to be")
	}
	for range 2 { // the second time it does not exist
		if must.Do(t, removed(at)); len(files(t, dir)) > 0 {
			t.Errorf("got %v, want no file", files(t, dir))
		}
	}
}
