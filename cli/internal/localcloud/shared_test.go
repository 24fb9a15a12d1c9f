//go:build linux

package localcloud

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// askVariable makes this program write its result of looking for the user's local cloud.
const askVariable = "LOCALCLOUD_TEST_ASK"

func init() { asks["1"], asks["again"] = askPlace, sayPlace }

// TestSharedHome checks that a container finds the local cloud of another one in their shared
// home, reports it, and can still have one of its own.
func TestSharedHome(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root makes a namespace of processes")
	}
	home := t.TempDir()
	place := Place{dir: filepath.Join(home, "e2bctl", "local")}
	must.Do(t, os.MkdirAll(place.dir, 0o700))
	startOther(t, place, "LOCALCLOUD_TEST_PUBLISH=1")
	ask := func(tmp string) string {
		cmd := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", os.Args[0])
		cmd.Env = append(os.Environ(), askVariable+"=1", "XDG_RUNTIME_DIR=", "XDG_CACHE_HOME="+home, "TMPDIR="+tmp)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	tmp := t.TempDir()
	got := ask(tmp)
	for _, want := range []string{"read: no local cloud is running", place.dir + " is another container's", "--state-dir", "ended: false <nil>", "claim: <nil>", "again: true"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %q in it", got, want)
		}
	}
	if strings.Contains(got, "is starting or ending") {
		t.Errorf("got %s, want nothing about a start", got)
	}
	// The directory for temporary files may be shared as well.
	shared := Place{dir: filepath.Join(tmp, "e2bctl-0", "local")}
	startOther(t, shared)
	got = ask(tmp)
	if strings.Count(got, "another container's local cloud has "+shared.dir) != 3 || strings.Contains(got, "is starting or ending") {
		t.Errorf("got %s, want it to say three times who has the place", got)
	}
}

// askPlace writes the answers of the user's place, and whether it stays the same once claimed.
func askPlace(w io.Writer) error {
	place, err := Find()
	if err != nil {
		return err
	}
	_, err = place.Read()
	fmt.Fprintln(w, "read:", err)
	ended, err := place.End(context.Background())
	fmt.Fprintln(w, "ended:", ended, err)
	release, err := place.Claim()
	fmt.Fprintln(w, "claim:", err)
	if err != nil {
		return nil
	}
	defer release()
	// Another process of this container finds it.
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), askVariable+"=again")
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(w, "again: %v\n", err == nil && string(out) == place.dir)
	return err
}

// sayPlace writes the path of the user's place.
func sayPlace(w io.Writer) error {
	place, err := Find()
	if err == nil {
		_, err = io.WriteString(w, place.dir)
	}
	return err
}
