package sshserver

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestKeysAreWhole checks that a system call that fails leaves no part of a key behind, and that the keys that exist stay.
func TestKeysAreWhole(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]uint32{"openat": unix.SYS_OPENAT, "write": unix.SYS_WRITE, "read": unix.SYS_READ, "linkat": unix.SYS_LINKAT, "renameat": unix.SYS_RENAMEAT} {
		fails := 0
		for n, failed := 1, true; failed; n++ {
			dir := t.TempDir()
			var keys Keys
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() (err error) { keys, err = OpenKeys(dir); return err })
			if err != nil {
				fails++
				must.Is(t, err, unix.EIO)
			}
			entries, readErr := os.ReadDir(dir)
			must.Do(t, readErr)
			for _, entry := range entries {
				content, readErr := os.ReadFile(filepath.Join(dir, entry.Name()))
				if must.Do(t, readErr); entry.Name() != "id_ed25519" && entry.Name() != "host_ed25519" && entry.Name() != "known_hosts" || len(content) == 0 {
					t.Errorf("%s %d: %s was left with %d bytes", name, n, entry.Name(), len(content))
				}
			}
			before, readErr := os.ReadFile(filepath.Join(dir, "id_ed25519"))
			again, openErr := OpenKeys(dir)
			must.Do(t, openErr)
			after, afterErr := os.ReadFile(again.ClientFile)
			must.Do(t, afterErr)
			if readErr == nil && !bytes.Equal(before, after) || err == nil && !bytes.Equal(keys.Client.Marshal(), again.Client.Marshal()) {
				t.Errorf("%s %d: there are other keys now", name, n)
			}
		}
		if fails == 0 {
			t.Errorf("no %s was an error", name)
		}
	}
}
