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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// up runs a local cloud until ctx ends, and returns its standard error and its error.
func up(ctx context.Context, out *cmdtest.Output, args ...string) (stderr string, err error) {
	var errs bytes.Buffer
	ios := cmdutil.NewIOStreams(strings.NewReader(""), nil, &errs)
	ios.Out = out
	ios.InIsTerminal, ios.ErrIsTerminal = slices.Contains(args, "--ask"), slices.Contains(args, "--ask")
	err = cmdtest.ExecuteContext(ctx, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{newCmdUp(f)} }, append([]string{"up", "--warm", "0"}, args...)...)
	return errs.String(), err
}

// fresh makes the environment that of a new user, with a Python that has no packages, and returns the home directory.
func fresh(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR"} {
		t.Setenv(name, dir)
	}
	t.Setenv("E2BCTL_PYTHON", barePython(t, dir))
	return dir
}

// barePython makes a program that answers as a Python without packages does, and returns its path.
func barePython(t *testing.T, dir string) string {
	t.Helper()
	prefix := filepath.Join(dir, "python", "3")
	python := filepath.Join(prefix, "bin", "python3")
	answer := `{"executable":"` + python + `","real":"` + python + `","base":"` + python + `","prefixes":["` + prefix + `"],"version":[3,12,1],"modules":[]}`
	must.Do(t, os.MkdirAll(filepath.Dir(python), 0o700))
	must.Do(t, os.WriteFile(python, []byte("#!/bin/sh\necho '"+answer+"'\n"), 0o700))
	return python
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
	state := keep(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	var got localcloud.Record
	var before []string
	var conflict error
	out := &cmdtest.Output{}
	out.Seen = func() {
		must.Do(t, json.Unmarshal([]byte(out.String()), &got))
		before = published(t, dir, got.URL)
		_, conflict = up(ctx, &cmdtest.Output{}, "--state-dir", state) // the same process can claim the same place
		time.AfterFunc(200*time.Millisecond, cancel)                   // it does not end before that, although nothing uses it
	}
	stderr, err := up(ctx, out, "--state-dir", state, "-o", "json", "--domain", "up.test", "--memory", "64m", "--max-memory", "32m")
	must.Do(t, err)
	must.Is(t, ctx.Err(), context.Canceled)
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
	kept := "1 paused sandbox is kept, 1 MiB, in " + state + "; the next e2bctl local up has what is kept, e2bctl local prune removes it\n"
	if !strings.HasPrefix(stderr, want) || !strings.HasSuffix(stderr, kept) || strings.Contains(stderr, "its Python: ") != (got.PythonNote != "") {
		t.Errorf("it said %s, want %s first", stderr, want)
	}
	if after := published(t, dir, got.URL); len(before) == 0 || len(after) > 0 {
		t.Errorf("its address is in the files %q, and after its end in %q", before, after)
	}
	cmdtest.Refuses(t, got.URL)
}

// TestNotesOfUp checks that the record of a cloud has its log, whether its terminal asks, and all notes about its Python and
// its directories.
func TestNotesOfUp(t *testing.T) {
	dir := fresh(t)
	must.Do(t, os.Chmod(dir, 0o700))
	t.Setenv("XDG_STATE_HOME", os.DevNull+"/none")
	ctx, cancel := context.WithCancel(t.Context())
	out := &cmdtest.Output{Seen: cancel}
	stderr, err := up(ctx, out, "--state-dir", keep(t, "a"), "--ask", "--log", "log", "-q", "-o", "json", "--memory", "64m")
	must.Do(t, err)
	var got localcloud.Record
	must.Do(t, json.Unmarshal([]byte(out.String()), &got))
	isMemory := func(limit string) bool { return strings.HasPrefix(limit, "memory") }
	if !got.Ask || got.Log != "log" || slices.ContainsFunc(got.NotEnforced, isMemory) != slices.ContainsFunc(got.LimitNotes, isMemory) {
		t.Errorf("it printed %+v", got)
	}
	if !strings.Contains(got.PythonNote, " lacks IPython") || !strings.Contains(strings.Join(got.StateNotes, "\n"), "XDG_STATE_HOME") {
		t.Errorf("it printed the notes %q and %q", got.PythonNote, got.StateNotes)
	}
	if strings.Contains(stderr, got.URL) || strings.Contains(stderr, "is kept") {
		t.Errorf("quietly, it said %s", stderr)
	}
}

// TestUpWhileInUse checks that a cloud ends when it has had no running sandbox for a time, and that one which
// keeps nothing does not end while it has a paused one.
func TestUpWhileInUse(t *testing.T) {
	const idle = 300 * time.Millisecond
	for _, keeps := range []bool{true, false} {
		dir := fresh(t)
		must.Do(t, os.Mkdir(filepath.Join(dir, "state"), 0o700))
		must.Do(t, os.Symlink("state", filepath.Join(dir, "link")))
		t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "link"))
		ctx, args := patience.Context(t), []string{"-o", "json", "--idle", idle.String()}
		if !keeps {
			args = append(args, "--ephemeral")
		}
		var got localcloud.Record
		removed := make(chan error, 1)
		out := &cmdtest.Output{}
		out.Seen = func() {
			must.Do(t, json.Unmarshal([]byte(out.String()), &got))
			client, err := sandbox.NewClient(got.Option())
			must.Do(t, err)
			sb, err := client.Create(ctx)
			must.Do(t, err)
			must.Do(t, errors.Join(client.Pause(ctx, sb.ID(), nil), sb.Detach()))
			remove := func() { removed <- errors.Join(client.Kill(ctx, sb.ID()), client.Close()) }
			if keeps {
				removed <- client.Close()
				return
			}
			time.AfterFunc(3*idle, remove)
		}
		before := goleak.IgnoreCurrent()
		stderr, err := up(ctx, out, args...)
		if leaks := goleak.Find(before); leaks != nil {
			t.Errorf("with state %t, it has left something behind: %v", keeps, leaks)
		}
		if err := errors.Join(err, ctx.Err(), patience.Receive(t, "the removal of the sandbox", removed)); err != nil {
			t.Errorf("with state %t: got error %v, want its end after that of the sandbox", keeps, err)
		}
		state := map[bool]string{true: filepath.Join(dir, "state", "e2bctl", "cloud")}[keeps]
		if got.State != state || strings.Contains(stderr, "1 paused sandbox is kept, ") != keeps {
			t.Errorf("with state %t: it has the directory %s and said %s", keeps, got.State, stderr)
		}
	}
}

// TestFlagsThatUpRefuses checks which flags do not go together.
func TestFlagsThatUpRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		opts       upOptions
		in, screen bool // whether they are a terminal
		want       string
	}{
		{upOptions{}, false, false, ""}, {upOptions{Ask: true}, true, true, ""}, {upOptions{Warm: 64}, true, true, ""}, {upOptions{State: "/s"}, false, false, ""},
		{upOptions{Ephemeral: true}, false, false, ""}, {upOptions{Background: true}, true, true, ""},
		{upOptions{Ask: true}, true, false, "but there is none"}, {upOptions{Ask: true}, false, true, "but there is none"},
		{upOptions{Ask: true, Background: true}, true, true, "leave out --background"}, {upOptions{Warm: 65}, false, false, "--warm 65"},
		{upOptions{Ephemeral: true, State: "/s"}, false, false, "leave out --state-dir"},
	} {
		tt.opts.Factory = cmdutil.NewFactory(&cmdutil.IOStreams{InIsTerminal: tt.in, ErrIsTerminal: tt.screen}, nil)
		err := tt.opts.check(&cobra.Command{})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v on the terminals %t and %t: got error %v, want %q", tt.opts, tt.in, tt.screen, err, tt.want)
		}
	}
}

// TestUpWithoutOutput checks that a cloud ends that cannot say where it is, and that it writes nothing behind its record.
func TestUpWithoutOutput(t *testing.T) {
	dir := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &cmdtest.Output{Err: syscall.ENOSPC, Seen: cancel}
	stderr, err := up(ctx, out, "--ephemeral", "-o", "json", "--log", "log")
	must.Is(t, err, syscall.ENOSPC)
	var got localcloud.Record
	must.Do(t, json.Unmarshal([]byte(out.String()), &got))
	if after := published(t, dir, got.URL); len(after) > 0 || got.State != "" || strings.Contains(stderr, got.URL) {
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

// TestFlagsOfUp checks that each flag that the process in the background needs is passed on to it, and that each of those for
// images, mounts and the network makes an option of the cloud.
func TestFlagsOfUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := func(o *upOptions) int {
		return len(o.Images.options()) + len(o.Together.options()) + len(o.Mounts.options())
	}
	none := options(&upOptions{})
	for _, tt := range []struct {
		more int
		args []string
	}{
		{0, nil}, {0, []string{"--memory", "64MiB"}}, {0, []string{"--cpus", "1.5"}}, {0, []string{"--disk", "32MiB"}}, {0, []string{"--pids", "20"}},
		{0, []string{"--volume-size", "1GiB"}}, {0, []string{"--warm", "3"}}, {1, []string{"--allow-mount", dir}}, {0, []string{"--isolation", "full"}},
		{0, []string{"--max-memory", "32MiB"}}, {0, []string{"--max-cpus", "2"}}, {0, []string{"--max-sandboxes", "5"}}, {1, []string{"--no-private-networks"}},
		{1, []string{"--proxy-names"}}, {1, []string{"--host-service", "a=127.0.0.1:1"}}, {2, []string{"--registry-mirror", "a=https://b", "--registry-mirror", "c=https://d"}},
		{1, []string{"--insecure-registry", "a"}}, {1, []string{"--image-dir", dir}}, {1, []string{"--image-cache", "1GiB"}},
	} {
		opts, root, cmd := &upOptions{Factory: cmdutil.NewFactory(cmdutil.NewIOStreams(nil, nil, nil), nil)}, &cobra.Command{}, &cobra.Command{}
		opts.addFlags(cmd)
		root.AddCommand(cmd)
		must.Do(t, cmd.ParseFlags(tt.args))
		if got := opts.flags(); !slices.Equal(got, tt.args) {
			t.Errorf("%q: passed on %q", tt.args, got)
		}
		if got := options(opts) - none; got != tt.more && !strings.HasPrefix(strings.Join(tt.args, ""), "--max-") {
			t.Errorf("%q: got %d more options, want %d", tt.args, got, tt.more)
		}
	}
}

// TestLoggerOfUp checks that a cloud with a log writes to it, and that one without a log writes nothing.
func TestLoggerOfUp(t *testing.T) {
	t.Parallel()
	for _, log := range []string{"", "x"} {
		var errs strings.Builder
		o := &upOptions{Log: log, Factory: cmdutil.NewFactory(cmdutil.NewIOStreams(nil, nil, &errs), nil)}
		o.logger().InfoContext(t.Context(), "an event")
		if got := strings.Contains(errs.String(), "an event"); got != (log != "") {
			t.Errorf("with the log %q: got %q", log, &errs)
		}
	}
}
