//go:build linux

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
)

// up runs a local cloud until ctx ends, and returns its standard error and its error.
func up(ctx context.Context, out *cmdtest.Output, args ...string) (stderr string, err error) {
	var errs bytes.Buffer
	ios := cmdutil.NewIOStreams(strings.NewReader(""), nil, &errs)
	ios.Out = out
	err = cmdtest.ExecuteContext(ctx, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{newCmdUp(f)} }, append([]string{"up", "--warm", "0"}, args...)...)
	return errs.String(), err
}

// fresh makes the environment that of a new user, and returns the home directory.
func fresh(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR"} {
		t.Setenv(name, dir)
	}
	return dir
}

// published returns the files below a directory that have a text.
func published(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	must.Do(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(text)) {
			names = append(names, path)
		}
		return nil
	}))
	return names
}

// TestUp checks the record of a cloud, which others can find while it runs and no longer, and that no other cloud has
// its state directory.
func TestUp(t *testing.T) {
	dir := fresh(t)
	state := filepath.Join(dir, "kept")
	ctx, cancel := context.WithCancel(t.Context())
	var got localcloud.Record
	var before []string
	var conflict error
	out := &cmdtest.Output{}
	out.Seen = func() {
		defer cancel()
		must.Do(t, json.Unmarshal([]byte(out.String()), &got))
		before = published(t, dir, got.URL)
		_, conflict = up(ctx, &cmdtest.Output{}, "--state-dir", state) // the same process can claim the same place
	}
	stderr, err := up(ctx, out, "--state-dir", state, "-o", "json", "--domain", "up.test", "--memory", "64m", "--max-memory", "32m")
	must.Do(t, err)
	shown := localcloud.Record{State: got.State, PID: got.PID, Engine: got.Engine, Ask: got.Ask, Log: got.Log}
	if diff := cmp.Diff(localcloud.Record{State: state, PID: os.Getpid(), Engine: "room"}, shown); diff != "" {
		t.Errorf("it printed (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(got.Domain, "up.test") || got.Isolation == "" || got.Since.IsZero() {
		t.Errorf("it printed %+v", got)
	}
	if !slices.Contains(got.Env, "E2B_API_KEY="+got.Key) || !slices.Contains(got.Env, "E2B_API_URL="+got.URL) {
		t.Errorf("got the variables %q", got.Env)
	}
	if e, ok := errors.AsType[*localcloud.ConflictError](conflict); !ok || e.InUse == nil {
		t.Errorf("a second one: got error %v, want a conflict with the first", conflict)
	}
	want := "local cloud on " + got.URL + ", engine: room, isolation: " + got.Isolation + "; Ctrl-C ends it and its sandboxes\n"
	if !strings.HasPrefix(stderr, want) || strings.Contains(stderr, "its Python: ") != (got.PythonNote != "") {
		t.Errorf("it said %s, want %s first", stderr, want)
	}
	if after := published(t, dir, got.URL); len(before) == 0 || len(after) > 0 {
		t.Errorf("its address is in the files %q, and after its end in %q", before, after)
	}
	cmdtest.Refuses(t, got.URL)
}

// TestUpWithoutOutput checks that a cloud ends that cannot say where it is.
func TestUpWithoutOutput(t *testing.T) {
	dir := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &cmdtest.Output{Err: syscall.ENOSPC, Seen: cancel}
	stderr, err := up(ctx, out, "--ephemeral", "-q", "-o", "json")
	must.Is(t, err, syscall.ENOSPC)
	var got localcloud.Record
	must.Do(t, json.Unmarshal([]byte(out.String()), &got))
	if after := published(t, dir, got.URL); len(after) > 0 || got.State != "" || stderr != "" {
		t.Errorf("after its end, its address is in %q; it had %+v and said %s", after, got, stderr)
	}
	cmdtest.Refuses(t, got.URL)
}

// TestLogOfUp checks that the log of a cloud ends at its bound, and that the one of the terminal is not bounded.
func TestLogOfUp(t *testing.T) {
	t.Parallel()
	const full = "the log is full: it starts anew with the next local cloud\n"
	for left, want := range map[int]string{0: "", 1: full, 4: full, 5: "line" + full, 8: "line" + full, 9: "linelineline"[:8] + full, 13: "linelineline"} {
		var out bytes.Buffer
		log := &boundedLog{to: &out, left: left}
		for range 3 {
			if n, err := log.Write([]byte("line")); n == 0 || err != nil {
				t.Errorf("%d bytes: got %d and error %v", left, n, err)
			}
		}
		if out.String() != want {
			t.Errorf("%d bytes: got %q, want %q", left, &out, want)
		}
	}
	for _, port := range []uint16{0, 1} {
		for op, hint := range map[string]bool{"listen": port > 0, "dial": false} {
			err := &net.OpError{Op: op, Err: syscall.EADDRINUSE}
			if got := withPortFlag(err, port); !errors.Is(got, syscall.EADDRINUSE) || strings.Contains(got.Error(), "--port chooses another one") != hint {
				t.Errorf("%s on port %d: got error %v, want a hint: %v", op, port, got, hint)
			}
		}
	}
}

// TestFlagsOfUp checks that each flag that the process in the background needs is passed on to it.
func TestFlagsOfUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		nil, {"--memory", "64MiB"}, {"--cpus", "1.5"}, {"--disk", "32MiB"}, {"--pids", "20"}, {"--volume-size", "1GiB"}, {"--warm", "3"}, {"--allow-mount", dir}, {"--isolation", "full"},
		{"--max-memory", "32MiB"}, {"--max-cpus", "2"},
	} {
		opts, root, cmd := &upOptions{Factory: cmdutil.NewFactory(cmdutil.NewIOStreams(nil, nil, nil), nil)}, &cobra.Command{}, &cobra.Command{}
		opts.addFlags(cmd)
		root.AddCommand(cmd)
		must.Do(t, cmd.ParseFlags(args))
		if got := opts.flags(); !slices.Equal(got, args) {
			t.Errorf("%q: passed on %q", args, got)
		}
	}
}
