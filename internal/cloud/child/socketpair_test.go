//go:build linux

package child

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestSocketPair checks that both ends are connected, and that the other end sees when this process
// closes its own.
func TestSocketPair(t *testing.T) {
	t.Parallel()
	ours, theirs, err := SocketPair()
	must.Do(t, err)
	defer ours.Close()
	defer theirs.Close()
	_, err = theirs.WriteString("up")
	must.Do(t, err)
	got := make([]byte, 2)
	_, err = io.ReadFull(ours, got)
	must.Do(t, err)
	if string(got) != "up" {
		t.Errorf("got %q, want %q", got, "up")
	}
	must.Do(t, ours.Close())
	// A process that another test starts may have a copy for a moment.
	patience.Until(t, "the other end has seen the end", func() bool {
		n, _, err := unix.Recvfrom(int(theirs.Fd()), got, unix.MSG_DONTWAIT)
		return n == 0 && err == nil
	})
}

// TestSocketPairWithFewFiles checks that nothing stays open if there are not enough files.
func TestSocketPairWithFewFiles(t *testing.T) { //nolint:paralleltest // it changes a limit of this process
	ours, theirs, err := SocketPair()
	must.Do(t, err)
	must.Do(t, errors.Join(ours.Close(), theirs.Close()))
	var own unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &own))
	free, before := lowestFree(t), openFiles(t)
	for more, want := range []string{"socketpair", "socketpair", "fcntl"} {
		few := own
		few.Cur = uint64(free + more)
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
		ours, theirs, err := SocketPair()
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &own))
		must.Is(t, err, unix.EMFILE)
		if ours != nil || theirs != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v and %v, want only an error with %q", ours, theirs, err, want)
		}
		if after := openFiles(t); after != before {
			t.Errorf("with %d files: %d files are open afterwards, want %d", more, after, before)
		}
	}
}

// lowestFree returns the lowest number that no descriptor of this process has.
func lowestFree(t *testing.T) int {
	t.Helper()
	file, err := os.Open(os.DevNull) // also readies the poller of files, which needs a file of its own
	must.Do(t, err)
	defer file.Close()
	return int(file.Fd())
}

// openFiles counts the open files of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	must.Do(t, err)
	return len(all)
}
