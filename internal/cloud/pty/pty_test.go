//go:build linux

package pty

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOpen checks that both ends are connected, and that a deadline ends a read from the controlling
// end.
func TestOpen(t *testing.T) {
	t.Parallel()
	controller, tty, err := Open()
	must.Do(t, err)
	defer controller.Close()
	defer tty.Close()
	if _, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err != nil {
		t.Errorf("got %v for the settings of the terminal, want none", err)
	}
	_, err = tty.WriteString("to the outside")
	must.Do(t, err)
	got := make([]byte, len("to the outside"))
	_, err = io.ReadFull(controller, got)
	must.Do(t, err)
	if string(got) != "to the outside" {
		t.Errorf("got %q, want %q", got, "to the outside")
	}
	must.Do(t, controller.SetReadDeadline(time.Now()))
	_, err = controller.Read(got)
	must.Is(t, err, os.ErrDeadlineExceeded)
	if err := tty.Close(); err != nil {
		t.Error(err)
	}
	if err := controller.Close(); err != nil {
		t.Error(err)
	}
}

// TestOpenPeerRefuses checks that only the controlling end of a terminal has another end.
func TestOpenPeerRefuses(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	must.Do(t, err)
	defer null.Close()
	tty, err := openPeer(int(null.Fd()))
	must.Is(t, err, unix.ENOTTY)
	if tty != nil || !strings.Contains(err.Error(), "unlock") {
		t.Errorf("got %v and %v, want only the error of unlocking", tty, err)
	}
}

// TestOpenWithFewFiles checks that Open fails without a file for either end, and then leaves none open.
func TestOpenWithFewFiles(t *testing.T) { //nolint:paralleltest // it changes a limit of this process
	var own unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &own))
	free := lowestFree(t)
	for more, want := range []string{"/dev/ptmx", "/dev/pts/"} {
		few := own
		few.Cur = uint64(free + more)
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
		controller, tty, err := Open()
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &own))
		must.Is(t, err, unix.EMFILE)
		if controller != nil || tty != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v and %v, want only an error with %q", controller, tty, err, want)
		}
		if after := lowestFree(t); after != free {
			t.Errorf("with %d files: got %d as the next descriptor, want %d", more, after, free)
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
