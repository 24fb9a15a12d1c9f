//go:build linux

package local_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// crowdVariable makes this program start a cloud with the isolation that it names, and take all
// processes that one of its sandboxes gets.
const crowdVariable = "LOCAL_TEST_CROWD"

// TestProcessLimit checks a server whose control group, as that of a container, allows few
// processes and cannot be changed: it outlives code that takes all that it gets, and
// another sandbox begins as soon as that has ended. Where it allows too few to start, the
// error says how many are needed.
func TestProcessLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit int
		level local.Isolation
		id    int // of the user
		want  string
	}{
		{160, local.Full, 0, "alive\n"},
		{160, local.Restricted, 0, "alive\n"},
		{160, local.Full, ordinaryID, "alive\n"},
		{160, local.Restricted, ordinaryID, "alive\n"},
		{512, local.Restricted, 0, "alive\n"},
		{48, local.Full, 0, "allows 48 processes and threads"},
	} {
		t.Run(fmt.Sprint(tt.limit, " ", tt.level, " ", tt.id), func(t *testing.T) {
			t.Parallel()
			out := runCrowded(t, tt.limit, tt.level, tt.id)
			if !strings.Contains(out, tt.want) {
				t.Errorf("got %s, want %q in it", out, tt.want)
			}
			if strings.Contains(out, "newosproc") || strings.Contains(out, "no isolation") {
				t.Errorf("got %s, want a server that goes on, or says why it does not start", out)
			}
		})
	}
}

// ordinaryID is the id of an ordinary user.
const ordinaryID = 54000

// runCrowded runs takeProcesses in a control group that allows limit processes, as a user who may
// not change the group.
func runCrowded(t *testing.T, limit int, level local.Isolation, id int) string {
	t.Helper()
	return runInGroups(t, []string{limitedGroup(t, groupLimit{"pids", "pids.max", "pids.max"}, strconv.Itoa(limit))}, true, id, crowdVariable+"="+string(level))
}

// runInGroups runs this program with a variable as a user in control groups, which it may change
// unless fixed.
func runInGroups(t *testing.T, groups []string, fixed bool, id int, variable string) string {
	t.Helper()
	// The groups are joined by the shell, and looked at through mounts that cannot be written to.
	script := `for group in $1; do echo $$ > "$group/cgroup.procs" || exit 1; done; shift
`
	if fixed {
		script += `for dir in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/self/mounts); do mount -o bind,remount,ro "$dir" || exit 1; done
`
	}
	self := copySelf(t)
	args := []string{"--mount", "--propagation", "private", "sh", "-c", script + `exec "$@"`, "sh", strings.Join(groups, " ")}
	if id != 0 {
		args = append(args, "setpriv", "--reuid", strconv.Itoa(id), "--regid", strconv.Itoa(id), "--clear-groups")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", append(args, self)...)
	home := t.TempDir()
	for dir := home; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		must.Do(t, os.Chmod(dir, 0o755))
	}
	must.Do(t, os.Chown(home, id, id))
	cmd.Env = append(os.Environ(), variable, "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_RUNTIME_DIR=", "TMPDIR=/tmp")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

// copySelf returns a copy of this program that every user may execute.
func copySelf(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "e2bctl-test-") //nolint:usetesting // other users must reach it
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := filepath.Join(dir, "program")
	data, err := os.ReadFile("/proc/self/exe")
	must.Do(t, err)
	syscall.ForkLock.RLock() // a child that has the file open for writing keeps it from being executed
	err = os.WriteFile(name, data, 0o755)
	syscall.ForkLock.RUnlock()
	must.Do(t, err)
	must.Do(t, os.Chmod(dir, 0o755))
	return name
}

// groupLimit is a limit of control groups, by its files in the two versions.
type groupLimit struct{ controller, first, second string }

// limitedGroup returns a new control group with a limit.
func limitedGroup(t *testing.T, of groupLimit, value string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes a control group for another user's processes")
	}
	for _, in := range []struct{ parent, file string }{{"/sys/fs/cgroup/" + of.controller, of.first}, {"/sys/fs/cgroup", of.second}} {
		dir := filepath.Join(in.parent, "e2bctl-test-"+rand.Text())
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			if err := cgroup.Remove(context.WithoutCancel(t.Context()), []string{dir}); err != nil {
				t.Error(err)
			}
		})
		if os.WriteFile(filepath.Join(dir, in.file), []byte(value), 0) == nil {
			return dir
		}
	}
	t.Skipf("no control group that limits %s can be made here", of.controller)
	return ""
}

// closing is a channel that is closed by the first write.
type closing chan struct{}

func (c closing) Write(p []byte) (int, error) {
	close(c)
	return len(p), nil
}

// takeProcesses starts a cloud, lets code in a sandbox take all processes that it gets, uses the
// cloud all the same, and writes whether a later sandbox works.
func takeProcesses(w io.Writer, level string) error {
	ctx := context.Background()
	cloud, err := local.Start(ctx, local.WithIsolation(local.Isolation(level)))
	if err != nil {
		fmt.Fprintln(w, err)
		return nil
	}
	defer cloud.Close()
	fmt.Fprintln(w, "processes:", cloud.Report().Processes)
	err = sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		const bomb = "import os, signal\nfor _ in range(10000):\n try:\n  if os.fork() == 0: signal.pause()\n except OSError: pass\nprint(1, flush=True)\nsignal.pause()"
		full := make(closing)
		if _, err := sb.Commands.Start(ctx, "exec python3 -c '"+bomb+"'", &sandbox.CommandParams{Stdout: full}); err != nil {
			return err
		}
		<-full
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				if other, err := sandbox.Create(ctx, cloud.Option()); err == nil { // it may find no processes
					_ = other.Kill(ctx)
				}
			})
		}
		clients.Wait()
		return nil
	}, cloud.Option())
	if err != nil {
		fmt.Fprintln(w, "the crowded sandbox:", err)
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Run(ctx, "echo alive", nil)
		if err == nil {
			fmt.Fprint(w, result.Stdout)
		}
		return err
	}, cloud.Option())
}
