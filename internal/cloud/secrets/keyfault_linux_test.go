package secrets

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestKeyFileFails makes each system call fail in turn that creates or reads a key file. The source then
// returns the error, and the next call returns a key that stays the same.
func TestKeyFileFails(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		number uint32
		writes bool // the first of these calls belongs to the writing of the key
	}{
		"openat": {unix.SYS_OPENAT, true}, "fsync": {unix.SYS_FSYNC, true}, "linkat": {unix.SYS_LINKAT, true},
		"unlinkat": {unix.SYS_UNLINKAT, true}, "newfstatat": {unix.SYS_NEWFSTATAT, false},
	} {
		for n, failed := 1, true; failed; n++ {
			dir := t.TempDir()
			source := KeyIn(func() (string, error) { return dir, nil })
			var key []byte
			var err error
			failed, err = calltest.FailNth(t, tt.number, n, unix.EIO, func() (err error) {
				key, err = source()
				return err
			})
			if errors.Is(err, unix.EIO) != failed || (key == nil) != failed {
				t.Errorf("%s %d failed, %v: got %d bytes and error %v", what, n, failed, len(key), err)
			}
			if writes := tt.writes && n == 1; failed && strings.Contains(err.Error(), "writing a new key") != writes {
				t.Errorf("%s %d failed: got %v, want that it could not be written: %v", what, n, err, writes)
			}
			if left, err := filepath.Glob(filepath.Join(dir, ".key-*")); err != nil || len(left) > 0 && what != "unlinkat" {
				t.Errorf("%s %d failed: left are %q (%v)", what, n, left, err)
			}
			first, err := source()
			again, errAgain := source()
			if key == nil {
				key = first
			}
			if err = errors.Join(err, errAgain); err != nil || len(first) != keySize || !bytes.Equal(first, again) || !bytes.Equal(key, first) {
				t.Errorf("after %s %d had failed: got %x, %x and error %v, want the same key", what, n, first, again, err)
			}
		}
	}
}

// TestKeyIsTaken checks that nothing is written if there is a key, and that the key of another process which
// was faster is taken.
func TestKeyIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := bytes.Repeat([]byte{0x0a}, keySize)
	must.Do(t, os.WriteFile(filepath.Join(dir, "key"), []byte(strings.Repeat("0a", keySize)), 0o600))
	var key []byte
	source := func() (err error) {
		key, err = KeyIn(func() (string, error) { return dir, nil })()
		return err
	}
	if writes, err := calltest.FailNth(t, unix.SYS_LINKAT, 1, unix.EIO, source); err != nil || writes || !bytes.Equal(key, want) {
		t.Errorf("got %x, error %v and a new file: %v, want only what is there", key, err, writes)
	}
	key = nil
	if late, err := calltest.FailNth(t, unix.SYS_NEWFSTATAT, 1, unix.ENOENT, source); err != nil || !late || !bytes.Equal(key, want) {
		t.Errorf("created meanwhile: got %x and error %v, want the key of the other", key, err)
	}
}
