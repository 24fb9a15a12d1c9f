package interop

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/patience"
)

// drivePause makes the official command pause sandboxes and bring them back.
func (o official) drivePause(t *testing.T) {
	t.Run("pause and resume", func(t *testing.T) {
		id := o.create(t)
		running, paused := listed{id, "running", "base"}, listed{id, "paused", "base"}
		pid := o.background(t, id, "sleep 4321")
		o.must(t, "sandbox", "exec", id, "echo here > kept")
		if got, want := o.must(t, "sandbox", "pause", id), id+" has been paused"; !strings.Contains(got, want) {
			t.Errorf("pause printed %q, want %q", got, want)
		}
		if got, want := o.must(t, "sandbox", "pause", id), id+" is already paused"; !strings.Contains(got, want) {
			t.Errorf("a second pause printed %q, want %q", got, want)
		}
		if got := o.info(t, id); got.State != "paused" {
			t.Errorf("got %+v, want state %q", got, "paused")
		}
		// Without flags only running sandboxes are listed.
		for _, tt := range []struct {
			flags []string
			want  bool
		}{
			{nil, false},
			{[]string{"-s", "running"}, false},
			{[]string{"-s", "paused"}, true},
			{[]string{"-s", "running,paused"}, true},
		} {
			got := o.list(t, tt.flags...)
			if slices.Contains(got, paused) != tt.want || slices.Contains(got, running) {
				t.Errorf("list %v gave %v, want %v in it to be %v", tt.flags, got, paused, tt.want)
			}
		}
		if got, want := o.must(t, "sandbox", "resume", id), id+" has been resumed"; !strings.Contains(got, want) {
			t.Errorf("resume printed %q, want %q", got, want)
		}
		if got := o.list(t); !slices.Contains(got, running) {
			t.Errorf("got %v, want %v in the list", got, running)
		}
		if got, want := o.must(t, "sandbox", "exec", id, "cat kept && kill "+pid+" && echo killed"), "here\nkilled\n"; got != want {
			t.Errorf("after the resume exec printed %q, want %q", got, want)
		}
		o.must(t, "sandbox", "pause", id)
		o.must(t, "sandbox", "kill", id)
		if got := o.run(t, nil, "sandbox", "pause", id); got.status == 0 || !strings.Contains(got.stderr, "wasn't found") {
			t.Errorf("pause of a killed sandbox gave %+v, want %q", got, "wasn't found")
		}
	})
	t.Run("exec and connect resume", func(t *testing.T) {
		id := o.create(t, "--lifecycle.ontimeout", "pause", "--timeout", "60")
		if got := o.info(t, id).Lifecycle; got.OnTimeout != "pause" || got.AutoResume {
			t.Errorf("got lifecycle %+v, want %q without auto-resume", got, "pause")
		}
		o.must(t, "sandbox", "exec", id, "echo here > kept")
		o.must(t, "sandbox", "pause", id)
		if got, want := o.must(t, "sandbox", "exec", id, "cat kept"), "here\n"; got != want {
			t.Errorf("exec in the paused sandbox printed %q, want %q", got, want)
		}
		o.must(t, "sandbox", "pause", id)
		shown := o.terminal(t, "$ ", `cat kept; echo con""nected; exit`+"\n", "sandbox", "connect", id)
		if !strings.Contains(shown, "here\r") || !strings.Contains(shown, "\nconnected\r") {
			t.Errorf("the terminal showed %q, want %q in it and %q in it", shown, "here\r", "\nconnected\r")
		}
		o.must(t, "sandbox", "kill", id)
	})
	t.Run("the end of a terminal pauses", func(t *testing.T) {
		shown := o.terminal(t, "$ ", "echo here > kept; echo $E2B_SANDBOX_ID; exit\n",
			"sandbox", "create", "--lifecycle.ontimeout", "pause", "--lifecycle.autoresume")
		found := regexp.MustCompile(`\r([a-z0-9]{21})\r`).FindStringSubmatch(shown)
		if found == nil {
			t.Fatalf("the terminal showed %q", shown)
		}
		id := found[1]
		if got := o.info(t, id).Lifecycle; got.OnTimeout != "pause" || !got.AutoResume {
			t.Errorf("got lifecycle %+v, want %q with auto-resume", got, "pause")
		}
		patience.Until(t, "it is paused", func() bool { return o.info(t, id).State == "paused" })
		if got, want := o.must(t, "sandbox", "exec", id, "cat kept"), "here\n"; got != want {
			t.Errorf("exec in the paused sandbox printed %q, want %q", got, want)
		}
		o.must(t, "sandbox", "kill", id)
	})
}

// TestPausedSandboxesOutliveTheServer has the official command, which knows nothing of
// servers, find its paused sandboxes again after the cloud was ended and started.
func TestPausedSandboxesOutliveTheServer(t *testing.T) {
	t.Parallel()
	program, state := e2bctl(t), t.TempDir()
	first := up(t, program, state, "--warm", "0")
	down := sync.OnceFunc(func() { first.down(t) })
	t.Cleanup(down)
	o := officialCommand(t, "newest", first.env)
	asked, timed := o.create(t), o.create(t, "--lifecycle.ontimeout", "pause")
	for _, id := range []string{asked, timed} {
		o.must(t, "sandbox", "exec", id, "echo here > kept")
		o.background(t, id, "sleep 4321")
	}
	o.must(t, "sandbox", "pause", asked)
	down() // pauses the sandboxes that their timeouts would pause, and no others

	second := up(t, program, state, "--warm", "0")
	t.Cleanup(func() { second.down(t) })
	o.cloud = second.env
	for _, id := range []string{asked, timed} {
		if got := o.info(t, id); got.State != "paused" {
			t.Errorf("got %+v after the restart, want state %q", got, "paused")
		}
		got := o.must(t, "sandbox", "exec", id, "cat kept; pgrep -f 'sleep 432[1]' || echo gone")
		if want := "here\ngone\n"; got != want {
			t.Errorf("exec after the restart printed %q, want %q", got, want)
		}
		o.must(t, "sandbox", "kill", id)
	}
}

// background starts a command that continues in the sandbox and returns its process id.
func (o official) background(t *testing.T, id, command string) string {
	t.Helper()
	got := o.run(t, nil, "sandbox", "exec", "-b", id, command)
	pid := regexp.MustCompile(`^\d+\n$`).FindString(got.stderr)
	if pid == "" || got.status != 0 {
		t.Fatalf("exec -b gave %+v, want a process id", got)
	}
	return strings.TrimSpace(pid)
}
