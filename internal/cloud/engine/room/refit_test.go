//go:build linux

package room

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/escapetest"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestRefit checks that a warm sandbox that gets layers or saved files is like one that was
// made with them, and that nothing remains of its earlier file system.
func TestRefit(t *testing.T) {
	t.Parallel()
	limits := engine.Limits{DiskBytes: 32 << 20, MaxProcesses: 100}
	r := startRoom(t, Options{Warm: &limits})
	defer r.Close()
	if !r.ranged() {
		t.Skip("layers of this user cannot be mounted later")
	}
	s := newSandbox(t, r, engine.SandboxOptions{ID: "first"})
	wantOutput(t, s, "user", "echo mine > file", "")
	volumes := []engine.Volume{{Dir: newVolume(t), Path: "/mnt/volume"}}
	layers := []string{layerOf(t, s)}
	above := newSandbox(t, r, engine.SandboxOptions{ID: "above", Layers: layers})
	wantOutput(t, above, "user", "echo more >> file", "")
	const look = "hostname; getent hosts $(hostname) | wc -l; df -m --output=size / /dev/shm | tail -2; " +
		"grep MemTotal /proc/meminfo; cat /proc/sys/user/max_user_namespaces; nproc; ls -A / /dev /tmp; find /sys | sort; awk '{print $5, $6}' /proc/self/mountinfo; cat ~user/file; echo more > /tmp/x"
	for name, o := range map[string]engine.SandboxOptions{
		"layers":                {Layers: layers},
		"saved files":           {Files: saveTo(t, s)},
		"layers, saved files":   {Layers: layers, Files: saveTo(t, above)},
		"layers and a volume":   {Layers: layers, Volumes: volumes},
		"another saved sandbox": {Files: saveTo(t, newSandbox(t, r, engine.SandboxOptions{ID: "without", Files: saveTo(t, s)}))},
	} {
		o.ID, o.Limits = "same", limits
		readyWarm(t, r)
		r.roster.mu.Lock()
		next := r.roster.next
		r.roster.mu.Unlock()
		warm := newSandbox(t, r, o)
		if warm.number > next {
			t.Errorf("%s: the warm sandbox was not used", name)
		}
		o.Limits.MaxProcesses++
		cold := newSandbox(t, r, o)
		if cold.number <= next {
			t.Errorf("%s: the warm sandbox was used for other limits", name)
		}
		wantOutput(t, warm, "root", "ps axo stat=,args= | grep -v ^Z | grep -c '[e]2bctl'", "1")
		for _, user := range []string{"user", "root"} {
			want, got := call(t, cold, "/run", testRequest{User: user, Command: look}), call(t, warm, "/run", testRequest{User: user, Command: look})
			if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(got.Output, "mine\n") {
				t.Errorf("%s, %s (-cold +warm): %s", name, user, diff)
			}
		}
	}
	readyWarm(t, r)
	if _, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "bad", Limits: limits, Layers: []string{"/nowhere"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a layer that is missing: got %v, want %v", err, os.ErrNotExist)
	}
	readyWarm(t, r)
	wantOutput(t, newSandbox(t, r, engine.SandboxOptions{ID: "last", Limits: limits}), "user", "hostname", "last")
}

// TestRefitEscape checks that the process that replaces the file system of a warm sandbox
// leaves nothing that code in the sandbox could use.
func TestRefitEscape(t *testing.T) {
	t.Parallel()
	r := startRoom(t, Options{Warm: &engine.Limits{}})
	defer r.Close()
	if !r.ranged() {
		t.Skip("layers of this user cannot be mounted later")
	}
	layers := []string{layerOf(t, newSandbox(t, r, engine.SandboxOptions{}))}
	readyWarm(t, r)
	s := newSandbox(t, r, engine.SandboxOptions{ID: "next", Layers: layers})
	for _, user := range []string{"root", "user"} {
		for _, e := range escapetest.List(t, r.keeper.running().Cmd.Process.Pid) {
			got := call(t, s, "/run", testRequest{Command: "export TMPDIR=$(mktemp -d); (" + e.Command + "); echo tried", User: user})
			if strings.Contains(got.Output, "ESCAPED") || !strings.HasSuffix(got.Output, "tried\n") {
				t.Errorf("%s: %s\n%+v", user, e.Command, got)
			}
		}
	}
}

// TestRefitKernel checks that kernels are forked into a sandbox whose file system was
// replaced.
func TestRefitKernel(t *testing.T) {
	t.Parallel()
	env, err := pyenv.Find(t.Context())
	must.Do(t, err)
	if env.Level == pyenv.Plain {
		t.Skip(env.Note)
	}
	r := startRoom(t, Options{Trees: env.Trees, Zygote: zygoteOf(env), Warm: &engine.Limits{}})
	defer r.Close()
	patience.Until(t, "the zygote is warm", r.zygote.isWarm)
	must.Do(t, r.CheckLayers(t.Context(), t.TempDir()))
	layers := []string{layerOf(t, newSandbox(t, r, engine.SandboxOptions{}))}
	readyWarm(t, r)
	s := newSandbox(t, r, engine.SandboxOptions{ID: "next", Layers: layers})
	getKernel(t, s)
}
