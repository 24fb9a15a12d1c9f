//go:build linux

package room

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOpenBinary checks that root copies a program that sandboxes may not execute, as a whole
// or not at all.
func TestOpenBinary(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root makes a copy")
	}
	closed := filepath.Join(t.TempDir(), "closed")
	must.Do(t, os.WriteFile(closed, []byte("program"), 0o700))
	dir := t.TempDir()
	f, err := openBinary(closed, dir)
	must.Do(t, err)
	defer f.Close()
	info, err := f.Stat()
	must.Do(t, err)
	text := make([]byte, 100)
	n, _ := f.Read(text)
	if string(text[:n]) != "program" || info.Mode() != 0o755 || f.Name() == closed {
		t.Errorf("opened %s with mode %v and text %q, want a copy that everybody may execute", f.Name(), info.Mode(), text[:n])
	}
	_, err = openBinary(closed, dir)
	must.Is(t, err, fs.ErrExist)
	_, err = openBinary("/proc/self/mem", t.TempDir()) // cannot be read at its beginning
	must.Is(t, err, unix.EIO)
	_, err = openBinary(dir, t.TempDir())
	if err == nil {
		t.Error("a directory was opened as a program")
	}
}
