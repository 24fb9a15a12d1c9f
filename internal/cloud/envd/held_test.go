//go:build linux

package envd

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// trailed is a stream with trailers behind its messages.
type trailed interface {
	eventStream
	event() *process.ProcessEvent
	ResponseTrailer() http.Header
}

// heldEnd reads the stream to its end, which must report that the output is still held.
func heldEnd(t *testing.T, s trailed) result {
	t.Helper()
	r, err := collect(s)
	wantHeld(t, s, r, err)
	return r
}

// wantHeld checks that r was read up to the end of a process, and that the stream reports
// that the output is still held.
func wantHeld(t *testing.T, s trailed, r result, err error) {
	t.Helper()
	if err != nil || r.end == nil {
		t.Fatalf("got %+v, %v, want an end and no error", r, err)
	}
	if note := s.ResponseTrailer().Get("E2bctl-Output-Held"); note != "true" {
		t.Errorf("trailer %v, want that the output is held", s.ResponseTrailer())
	}
}

// through sends a word to a child by one named pipe and returns the child's answer from
// another.
func through(t *testing.T, dir string) string {
	t.Helper()
	must.Do(t, os.WriteFile(dir+"/go", []byte("go\n"), 0))
	answer, err := os.ReadFile(dir + "/answer")
	must.Do(t, err)
	return string(answer)
}

// TestOutputHeld: a command that leaves a child behind ends, with everything printed
// until then, and the child can print more than a pipe holds without being killed for
// it.
func TestOutputHeld(t *testing.T) {
	t.Parallel()
	for name, pty := range map[string]*process.PTY{"pipes": nil, "terminal": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t)
			req := shell(`mkfifo go answer ready; trap '' HUP
				(head -c 2000 /dev/zero | tr '\0' x; echo >ready
				 read word <go; if head -c 300000 /dev/zero; then echo alive >answer; else echo dead >answer; fi; exec sleep 600) &
				read word <ready; echo started; exit 3`)
			req.Pty = pty
			s, pid := d.begin(t, connect.NewRequest(req))
			r := heldEnd(t, s)
			if got := r.stdout + r.pty; strings.Count(got, "x") != 2000 || !strings.Contains(got, "started") || r.end.GetExitCode() != 3 {
				t.Errorf("%+v, want 2000 times x, started, and status 3", r)
			}
			if late := heldEnd(t, d.attach(t, t.Context(), byPid(pid))); late.end.GetExitCode() != 3 {
				t.Errorf("late Connect: %+v, want exit code 3", late)
			}
			if answer := through(t, d.home); answer != "alive\n" {
				t.Errorf("the child is %q, want that it lives", answer)
			}
			if err := d.server.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOutputHeldByDetached: neither the end of a command nor that of envd waits
// for a process that has left the group.
func TestOutputHeldByDetached(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s, _ := d.begin(t, connect.NewRequest(shell(`mkfifo pid; setsid sh -c 'echo $$ >pid; exec sleep 600' & read pid <pid; echo $pid`)))
	r := heldEnd(t, s)
	detached, err := strconv.Atoi(strings.TrimSpace(r.stdout))
	must.Do(t, err)
	t.Cleanup(func() { _ = syscall.Kill(detached, syscall.SIGKILL) })
	ended := make(chan error, 1)
	go func() { ended <- d.server.Close() }()
	if err := patience.Receive(t, "the end of envd while a process holds the output", ended); err != nil {
		t.Error(err)
	}
}

// TestOutputHeldCounts: ended processes whose output is held are bounded too, and no
// longer count once it is released.
func TestOutputHeldCounts(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s, _ := d.begin(t, connect.NewRequest(shell(`mkfifo go answer; (read word <go; echo done >answer) & exit 0`)))
	heldEnd(t, s)
	ps := d.server.processes
	open := func() int {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		return len(ps.open)
	}
	if n := open(); n != 1 {
		t.Errorf("%d are open, want 1", n)
	}
	through(t, d.home)
	patience.Until(t, "the end of what is held", func() bool { return open() == 0 })
}

// TestOutputHeldAfterDeadline: the time limit of a command that has ended does not apply
// to the processes that it left.
func TestOutputHeldAfterDeadline(t *testing.T) {
	t.Parallel()
	d := serve(t)
	inTime(t, time.Second, func(limit time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		dir := t.TempDir()
		req := shell(`cd ` + dir + `; mkfifo go answer; (read word <go; echo alive >answer) & exit 0`)
		req.Tag = proto.String("server")
		s, err := d.processes().Start(ctx, connect.NewRequest(req))
		if err != nil {
			return wantTimeUp(t, err)
		}
		defer s.Close()
		r, err := collect(startStream{s})
		if err != nil {
			return wantTimeUp(t, err)
		}
		wantHeld(t, startStream{s}, r, nil)
		<-ctx.Done()
		if answer := through(t, dir); answer != "alive\n" {
			t.Errorf("the child is %q, want that it lives", answer)
		}
		return true
	})
}

// TestInputEndsForWhatIsLeft: a process that a command left behind reads the end of the input
// once the command has ended, because nobody can send more.
func TestInputEndsForWhatIsLeft(t *testing.T) {
	t.Parallel()
	d := serve(t)
	req := shell(`exec 3<&0; (cat <&3; echo over >over) & exit 0`)
	req.Stdin = proto.Bool(true)
	s, _ := d.begin(t, connect.NewRequest(req))
	heldEnd(t, s)
	patience.Until(t, "the end of the input", func() bool {
		text, _ := os.ReadFile(d.home + "/over")
		return string(text) == "over\n"
	})
}
