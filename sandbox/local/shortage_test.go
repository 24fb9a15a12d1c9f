//go:build linux

package local_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// limitVariable makes this program start a cloud under a resource limit: its number
// and its value.
const limitVariable = "LOCAL_TEST_LIMIT"

// TestShortage checks that a cloud that cannot start because this process may open too
// few files says that, and not that there is no Python or no isolation; and that
// a user who may have fewer processes than a sandbox has full isolation all the same.
func TestShortage(t *testing.T) {
	t.Parallel()
	needsFull(t)
	for _, tt := range []struct {
		name         string
		limit, value int
		want, or     string
	}{
		{"too few files for Python", unix.RLIMIT_NOFILE, 12, "no more files can be opened; raise ulimit -n: run /", ""},
		{"too few files for the room", unix.RLIMIT_NOFILE, 20, "no more files can be opened; raise ulimit -n: ", ""},
		{"too few files for a sandbox", unix.RLIMIT_NOFILE, 96, "raise ulimit -n: the hard limit of this process is 96", ""},
		{"small files", unix.RLIMIT_FSIZE, 1 << 20, "raise ulimit -f: ", ""},
		// Where control groups limit memory, no process of a sandbox has a limit on its data.
		{"little data", unix.RLIMIT_DATA, 1 << 30, "raise ulimit -d, or give sandboxes less memory: ", "isolation full"},
		{"no core files", unix.RLIMIT_CORE, 0, "isolation full", "raise ulimit -c: "}, // where a program reads them
		// Other tests of the same user may have as many processes at this moment.
		{"few processes", unix.RLIMIT_NPROC, 900, "isolation full", "this user can have no more processes and threads"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", limitVariable, tt.limit, tt.value))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			text := string(out)
			if strings.Contains(text, "no isolation") {
				t.Errorf("got %s, want nothing about isolation", text)
			}
			if !strings.Contains(text, tt.want) && (tt.or == "" || !strings.Contains(text, tt.or)) {
				t.Errorf("got %s, want %q", text, tt.want)
			}
		})
	}
}

// startLimited starts a cloud under a limit, and writes how it went.
func startLimited(w io.Writer, limit string) error {
	var number, value int
	if _, err := fmt.Sscan(limit, &number, &value); err != nil {
		return err
	}
	if err := unix.Setrlimit(number, &unix.Rlimit{Cur: uint64(value), Max: uint64(value)}); err != nil {
		return err
	}
	cloud, err := local.Start(context.Background())
	if err != nil {
		fmt.Fprintln(w, err)
		return nil
	}
	fmt.Fprintln(w, "isolation", cloud.Isolation())
	return cloud.Close()
}
