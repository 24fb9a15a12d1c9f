//go:build linux

package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// prepare gives a sandbox a variable and a process.
func prepare(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	sandboxtest.RunCode(t, sb, "import itertools, subprocess\ncount = itertools.count(1)\nnext(count)\nchild = subprocess.Popen(['sleep', '600'])", nil)
}

// goesOn checks that a sandbox continues with the memory of one that prepare was called for. It
// can be called once for a sandbox.
func goesOn(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	if got := sandboxtest.RunCode(t, sb, "next(count), child.poll()", nil).Text(); got != "(2, None)" {
		t.Errorf("%s: got %q, want (2, None)", sb.ID(), got)
	}
	if got := output(t, sb, "user", "hostname; echo $E2B_SANDBOX_ID"); got != sb.ID()+"\n"+sb.ID() {
		t.Errorf("got %q, want the id of the sandbox, %s", got, sb.ID())
	}
}

// startsAnew checks that a sandbox has no memory.
func startsAnew(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	if got := sandboxtest.RunCode(t, sb, "'count' in globals()", nil).Text(); got != "False" {
		t.Errorf("%s: got %q, want False", sb.ID(), got)
	}
}

// TestGVisorSnapshot checks that forks of a sandbox and sandboxes of its snapshot each continue
// with their own copy of its memory, and that those of a snapshot of files do not.
func TestGVisorSnapshot(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, gvisorOptions(t)...)
	sb := cloud.Create(t)
	prepare(t, sb)
	snapshot, err := sb.Snapshot(t.Context(), nil)
	must.Do(t, err)
	if snapshot.Memory == nil || !*snapshot.Memory {
		t.Errorf("got %+v, want a snapshot with memory", snapshot)
	}
	plain, err := sb.Snapshot(t.Context(), &sandbox.SnapshotParams{Mode: sandbox.SnapshotFilesystem})
	must.Do(t, err)
	forks, err := sb.Fork(t.Context(), &sandbox.ForkParams{Count: 2})
	must.Do(t, err)
	goesOn(t, sb)
	made := []*sandbox.Sandbox{cloud.Create(t, sandbox.WithTemplate(snapshot.ID)), cloud.Create(t, sandbox.WithTemplate(snapshot.ID))}
	for _, fork := range forks {
		must.Do(t, fork.Err)
		defer fork.Sandbox.Close()
		if fork.Memory == nil || !*fork.Memory {
			t.Errorf("got %+v, want a fork with memory", fork)
		}
		made = append(made, fork.Sandbox)
	}
	for _, one := range made {
		goesOn(t, one)
	}
	startsAnew(t, cloud.Create(t, sandbox.WithTemplate(plain.ID)))
}

// TestGVisorRestart checks that sandboxes that were paused with their memory, and snapshots,
// continue in another cloud of the same state directory. Memory of another machine is refused with
// a reason, and its files are not.
func TestGVisorRestart(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	options := append(gvisorOptions(t), local.WithStateDir(state))
	first := sandboxtest.New(t, options...)
	create := func() *sandbox.Sandbox {
		sb, err := sandbox.Create(t.Context(), first.Option())
		must.Do(t, err)
		t.Cleanup(func() { _ = sb.Close() }) // its cloud is closed by then
		prepare(t, sb)
		return sb
	}
	kept, other := create(), create()
	snapshot, err := kept.Snapshot(t.Context(), nil)
	must.Do(t, err)
	for _, sb := range []*sandbox.Sandbox{kept, other} {
		must.Do(t, sb.Pause(t.Context(), nil))
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	second := sandboxtest.New(t, options...)
	client, err := sandbox.NewClient(second.Option())
	must.Do(t, err)
	defer client.Close()
	again, err := client.Connect(t.Context(), kept.ID())
	must.Do(t, err)
	defer again.Close()
	goesOn(t, again)
	copied := second.Create(t, sandbox.WithTemplate(snapshot.ID))
	goesOn(t, copied)
	// The second cloud has another port than the first.
	if got := sandboxtest.Run(t, again, "curl -sS -o /dev/null -w '%{http_code}' http://"+copied.Host(49983)+"/health"); got != "204" {
		t.Errorf("a restored sandbox asks another: got %q, want 204", got)
	}

	machines, err := filepath.Glob(filepath.Join(state, "files", other.ID()+"*", "memory", "machine.json"))
	if err != nil || len(machines) != 1 {
		t.Fatalf("got %q, %v, want one", machines, err)
	}
	must.Do(t, os.WriteFile(machines[0], []byte(`{"Runsc": "runsc of another year"}`), 0o600))
	_, err = client.Connect(t.Context(), other.ID())
	if !errors.Is(err, api.ErrInvalidArgument) || !strings.Contains(err.Error(), "runsc of another year") {
		t.Errorf("memory of another machine: got %v", err)
	}
	booted, err := client.Connect(t.Context(), other.ID(), sandbox.WithReboot())
	must.Do(t, err)
	defer booted.Close()
	startsAnew(t, booted)
}
